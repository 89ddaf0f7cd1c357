//! The page of a branch: what it shows of many children, its lists, and its redrive.

use std::time::Duration;

use serde_json::json;
use windlass::{JobId, model::Role, operate::views::BranchesView, prelude::*};
use windlass_server::Settings;

use crate::{
    client::{Request, Response},
    kit::{self, Database, PATIENCE, Running, settings},
    on_both,
};

on_both! {
    a_branch_is_shown_with_its_children
    a_large_branch_is_shown_in_parts
    unsuccessful_children_are_redriven
    viewers_only_look
    what_is_not_there_is_said
}

const HOSTILE: &str = "<script>alert(1)</script>";

/// Fails if its number ends in 3.
#[derive(Serialize, Deserialize)]
struct Part {
    number: u64,
}

impl Task for Part {
    const KIND: &'static str = "part";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        match self.number % 10 {
            3 => Err(Failure::stop(format!("part {} is {HOSTILE}", self.number))),
            _ => Ok(self.number),
        }
    }
}

/// Makes parts in a branch, and in a packed one.
#[derive(Serialize, Deserialize)]
struct Fan {
    parts: u64,
    packed: u64,
}

impl Workflow for Fan {
    const KIND: &'static str = "fan";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let part = |number| Part { number };
        flow.branch("<b>parts").spawn_each("part", 0..self.parts, part).await?;
        if self.packed > 0 {
            flow.branch("blocks").packed().spawn_each("part", 0..self.packed, |_| Part { number: 1 }).await?;
            flow.merge_branch("blocks").by(Merge::settled()).await?;
        }
        flow.merge_branch("<b>parts").reduce(0, |sum: u64, part: u64| sum + part).await
    }
}

/// A server with a worker and a fan whose children have ended, but for those that failed.
async fn fan(
    database: Database,
    parts: u64,
    packed: u64,
    change: impl FnOnce(&mut Settings),
) -> (Running, JobId) {
    let (dir, engine) = kit::engine_with(database, |builder| builder.task::<Part>().workflow::<Fan>()).await;
    let control = engine.control("test");
    control.create_user("vera", Role::Viewer, "correct horse").await.expect("answered").expect("created");
    let mut settings = settings();
    change(&mut settings);
    let server = Running::on(dir, engine, settings).await;
    let job = server.engine.submit(Fan { parts, packed }).key("the fan").await.expect("submitted").id();
    server.engine.start().await.expect("a worker");
    settled(&server, job, parts + packed).await;
    (server, job)
}

/// Waits until so many children of a job have ended.
async fn settled(server: &Running, job: JobId, children: u64) {
    let settled = async {
        loop {
            let view = BranchesView::read(&server.engine.operator(), job, None).await.expect("branches");
            if view.branches.iter().map(|branch| branch.ended()).sum::<u64>() == children {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("the children end");
}

async fn get(server: &Running, path: &str) -> Response {
    server.send(Request::get(path).header("accept", "text/html")).await
}

async fn page(server: &Running, path: &str) -> String {
    let page = get(server, path).await;
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    assert!(page.body.len() < 60_000, "{path} has {} bytes", page.body.len());
    assert!(!page.body.contains(HOSTILE) && !page.body.contains("<b>parts"), "{path}");
    page.body
}

/// The address of a branch, as the page of its job has it.
async fn address(server: &Running, job: JobId, name: &str) -> String {
    let view = BranchesView::read(&server.engine.operator(), job, None).await.expect("branches");
    let branch = view.branches.iter().find(|branch| branch.name == name).expect("the branch");
    let path = format!("/jobs/{job}/branches/{}", branch.number);
    assert!(page(server, &format!("/jobs/{job}")).await.contains(&format!("href=\"{path}\"")));
    path
}

/// What stands between two texts of a page.
fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = page.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {page}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after:?} after {before:?}")).0
}

async fn a_branch_is_shown_with_its_children(database: Database) {
    let (server, job) = fan(database, 30, 2_000, |_| {}).await;
    let path = address(&server, job, "<b>parts").await;
    let shown = page(&server, &path).await;
    assert!(page(&server, "/branches").await.contains(&format!("href=\"{path}\"")));
    let texts = [
        "Children in order",
        "Unsuccessful, by error",
        "the fan",
        "30 of 30",
        "What is holding it up?",
        "p95",
    ];
    for text in texts.into_iter().chain(["A retry cannot help", "part {…} is", "preview=redrive"]) {
        assert!(
            shown.contains(text) || shown.to_lowercase().contains(&text.to_lowercase()),
            "{text}: {shown}"
        );
    }
    assert_eq!(between(&shown, "<nav class=\"item-map\"", "</nav>").matches("<a ").count(), 30);
    assert_eq!(between(&shown, "<nav class=\"item-map\"", "</nav>").matches("t-bad").count(), 3);
    let failed = between(&shown, "id=\"children\"", "</section>");
    assert_eq!(
        (failed.matches("<tr id=\"c-").count(), failed.matches("/retry\"").count()),
        (3, 3),
        "{failed}"
    );
    let all = page(&server, &format!("{path}?only=all")).await;
    assert_eq!(all.matches("<tr id=\"c-").count(), 30);
    let none = page(&server, &format!("{path}?only=live")).await;
    assert!(none.contains("No child that was looked at is live."), "{none}");
    let cells: Vec<&str> =
        between(&shown, "<nav class=\"item-map\"", "</nav>").split("href=\"").skip(1).collect();
    let cell = |number: usize| {
        let address = cells[number].split('"').next().expect("an address");
        let address = address.replace("&#38;", "&").replace("&amp;", "&");
        format!("{path}{}", address.split('#').next().expect("a query"))
    };
    assert!(cell(3).contains("only=failed") && cell(4).contains("only=all"), "the fourth part failed");
    let failed = page(&server, &cell(23)).await;
    assert_eq!(failed.matches("<tr id=\"c-").count(), 3, "the newest one that failed is in this cell");
    assert_eq!(page(&server, &cell(3)).await.matches("<tr id=\"c-").count(), 1, "and the oldest in this one");
    assert_eq!(page(&server, &cell(20)).await.matches("<tr id=\"c-").count(), 10, "from this one on");
    for query in
        ["only=x", "from=zzz", "preview=none", "only=failed&from=00000000-0000-0000-0000-000000000000"]
    {
        page(&server, &format!("{path}?{query}")).await;
    }
    assert!(page(&server, &format!("/jobs/{job}/branches/%3Cb%3Eparts")).await.contains("30 of 30"));
    let blocks = address(&server, job, "blocks").await;
    let blocks = page(&server, &blocks).await;
    assert!(blocks.contains("2,000 of 2,000") && blocks.contains("block of 1,000 items"), "{blocks}");
}

async fn a_large_branch_is_shown_in_parts(database: Database) {
    let (server, job) = fan(database, 900, 0, |_| {}).await;
    let path = address(&server, job, "<b>parts").await;
    let shown = page(&server, &path).await;
    let cells = between(&shown, "<nav class=\"item-map\"", "</nav>").matches("<a ").count();
    assert!((1..=200).contains(&cells) && shown.contains("parts by when they were spawned"), "{cells} cells");
    assert!(shown.contains("of the first") && shown.contains("Next page"));
    let (mut next, mut seen) = (format!("{path}?only=all"), 0);
    loop {
        let shown = page(&server, &next).await;
        seen += shown.matches("<tr id=\"c-").count();
        let foot = between(&shown, "aria-label=\"Pages\"", "</nav>");
        let Some((to, _)) = foot.split_once("\" rel=\"next\"") else { break };
        next = to.rsplit("href=\"").next().expect("an address").replace("&#38;", "&").replace("&amp;", "&");
    }
    assert_eq!(seen, 900, "every child is on one page");
    let (mut next, mut failed) = (path.clone(), 0);
    loop {
        let shown = page(&server, &next).await;
        failed += shown.matches("<tr id=\"c-").count();
        let foot = between(&shown, "aria-label=\"Pages\"", "</nav>");
        let Some((to, _)) = foot.split_once("\" rel=\"next\"") else { break };
        next = to.rsplit("href=\"").next().expect("an address").replace("&#38;", "&").replace("&amp;", "&");
    }
    assert_eq!(failed, 90);
}

async fn unsuccessful_children_are_redriven(database: Database) {
    let (server, job) = fan(database, 30, 0, |_| {}).await;
    let path = address(&server, job, "<b>parts").await;
    let drawer = page(&server, &format!("{path}?preview=redrive")).await;
    assert!(drawer.contains("Redrive 3 children") && drawer.contains("will probably fail again"), "{drawer}");
    let csrf = between(&drawer, "name=\"csrf\" value=\"", "\"").to_owned();
    let post = |csrf: &str, fields: &str| {
        server.send(Request::form(&format!("{path}/redrive"), &format!("csrf={csrf}&back={path}&{fields}")))
    };
    assert_eq!(post("wrong", "").await.status, 403);
    let refused = post(&csrf, "rate=fast").await;
    assert_eq!((refused.status, refused.header("location")), (303, Some(path.as_str())), "{refused:?}");
    let begun = post(&csrf, "rate=1000&note=fixed+%3Cb%3E").await;
    let operation = begun.header("location").expect("an operation").to_owned();
    assert!(begun.status == 303 && operation.starts_with("/operations/"), "{begun:?}");
    let ended = async {
        while !page(&server, &operation).await.contains("ended ") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends");
    let shown = page(&server, &operation).await;
    assert!(shown.contains("Redrive") && shown.contains("fixed &lt;b&gt;"), "{shown}");
    let audit = page(&server, &format!("/audit?subject={job}")).await;
    assert!(audit.contains("redrive branch") && audit.contains("3 retried"), "{audit}");
    settled(&server, job, 30).await;
    assert!(page(&server, &path).await.contains("preview=redrive"), "they failed again");
}

async fn viewers_only_look(database: Database) {
    let (server, job) = fan(database, 10, 0, |settings| settings.login = true).await;
    let login = server.send(Request::form("/login", "name=vera&password=correct+horse")).await;
    let cookie = login.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a session");
    let path = format!("/jobs/{job}/branches/%3Cb%3Eparts");
    let get = |path: String| {
        server.send(Request::get(&path).header("accept", "text/html").header("cookie", cookie))
    };
    let shown = get(format!("{path}?preview=redrive")).await;
    assert_eq!(shown.status, 200, "{shown:?}");
    for absent in ["Redrive", "/retry\"", "preview=cancel"] {
        assert!(!shown.body.contains(absent), "{absent}");
    }
    let csrf = between(&shown.body, "name=\"csrf\" value=\"", "\"");
    let body = format!("csrf={csrf}");
    let refused =
        server.send(Request::form(&format!("{path}/redrive"), &body).header("cookie", cookie)).await;
    assert_eq!(refused.status, 403, "{refused:?}");
}

async fn what_is_not_there_is_said(database: Database) {
    let server = Running::new(database).await;
    let job = server.submit(json!({ "kind": "echo", "input": 1 })).await;
    for path in [format!("/jobs/{job}/branches/1"), format!("/jobs/{job}/branches/none")] {
        let missing = get(&server, &path).await;
        assert!(missing.status == 404 && missing.body.contains("no such branch"), "{missing:?}");
    }
    let gone = get(&server, "/jobs/00000000-0000-7000-8000-000000000000/branches/1").await;
    assert_eq!(gone.status, 404, "{gone:?}");
}
