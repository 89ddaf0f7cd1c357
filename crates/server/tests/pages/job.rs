//! The page of a job: its children level by level, the way up, and what its repeats did.

use std::{ops::ControlFlow, time::Duration};

use windlass::{JobId, State, prelude::*};

use crate::{
    client::Request,
    kit::{self, Database, PATIENCE, Running, settings},
    on_both,
};

on_both! {
    children_are_shown_level_by_level
    the_way_up_leads_through_branches
    repeats_say_how_late_their_ticks_ended
}

/// Fails, or returns at once.
#[derive(Serialize, Deserialize)]
struct Leaf {
    fails: bool,
}

impl Task for Leaf {
    const KIND: &'static str = "leaf";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        if self.fails { Err(Failure::stop("<i>no</i>")) } else { Ok(1) }
    }
}

/// Has children, of which one fails.
#[derive(Serialize, Deserialize)]
struct Middle {
    branches: bool,
}

impl Workflow for Middle {
    const KIND: &'static str = "middle";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        if self.branches {
            return flow
                .branch("leaves")
                .spawn_each("leaf", 0..3_u64, |n| Leaf { fails: n == 1 })
                .automerge()
                .reduce(0, |sum: u64, n: u64| sum + n)
                .await;
        }
        let good = flow.child("good", Leaf { fails: false }).await?;
        let bad = flow.child("bad", Leaf { fails: true }).await?;
        Ok(good + bad)
    }
}

/// Has middle jobs.
#[derive(Serialize, Deserialize)]
struct Trunk {}

impl Workflow for Trunk {
    const KIND: &'static str = "trunk";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let (failed, stuck) = (
            flow.child("failed", Middle { branches: false }),
            flow.child("stuck", Middle { branches: true }),
        );
        let done = flow.child("done", Leaf { fails: false });
        done.detach();
        failed.detach();
        stuck.detach();
        flow.signal::<u64>("go").await
    }
}

/// Repeats something three times.
#[derive(Serialize, Deserialize)]
struct Beat {}

impl Workflow for Beat {
    const KIND: &'static str = "beat";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let calendar = windlass::Calendar::every(1, windlass::Unit::Seconds).expect("a calendar");
        flow.repeat("pulse", calendar, |_, _| async { Ok::<_, Failure>(ControlFlow::<()>::Continue(())) })
            .times(2)
            .await?;
        flow.signal::<()>("go").await
    }
}

async fn server(database: Database) -> Running {
    let kinds =
        |builder: Builder| builder.task::<Leaf>().workflow::<Middle>().workflow::<Trunk>().workflow::<Beat>();
    let (dir, engine) = kit::engine_with(database, kinds).await;
    let server = Running::on(dir, engine, settings()).await;
    server.engine.start().await.expect("a worker");
    server
}

async fn page(server: &Running, path: &str) -> String {
    let page = server.send(Request::get(path).header("accept", "text/html")).await;
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    assert!(page.body.len() < 60_000, "{path} has {} bytes", page.body.len());
    assert!(!page.body.contains("<i>no"), "{path}");
    page.body
}

/// Loads a page until it has a text.
async fn page_with(server: &Running, path: &str, text: &str) -> String {
    let loaded = async {
        loop {
            let page = page(server, path).await;
            if page.contains(text) {
                return page;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, loaded).await.unwrap_or_else(|_| panic!("{path} never has {text}"))
}

/// Waits until the children of a job with this kind are so many.
async fn children(
    server: &Running,
    job: JobId,
    is_so: impl Fn(&[(JobId, String, State)]) -> bool,
) -> Vec<(JobId, String, State)> {
    let read = async {
        loop {
            let children = server.engine.inspect().children(job, None, 99).await.expect("children");
            let children: Vec<_> =
                children.into_iter().map(|child| (child.id, child.kind, child.state)).collect();
            if is_so(&children) {
                return children;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("the children")
}

/// A trunk whose middle jobs have done what they can: the one that failed, and the one whose branch waits.
async fn trunk(server: &Running) -> (JobId, JobId, JobId) {
    let job = server.engine.submit(Trunk {}).key("the trunk").await.expect("submitted").id();
    let of_kind = |children: &[(JobId, String, State)], kind: &str, state: State| {
        children.iter().find(|child| child.1 == kind && child.2 == state).map(|child| child.0)
    };
    let all = children(server, job, |children| {
        of_kind(children, "middle", State::Failed).is_some()
            && of_kind(children, "middle", State::Waiting).is_some()
            && of_kind(children, "leaf", State::Done).is_some()
    })
    .await;
    let find = |state| of_kind(&all, "middle", state).expect("a middle job");
    let (failed, stuck) = (find(State::Failed), find(State::Waiting));
    children(server, stuck, |leaves| leaves.len() == 3 && leaves.iter().all(|leaf| leaf.2.is_final())).await;
    (job, failed, stuck)
}

/// Where the children are in a page, in the order of their rows.
fn rows(page: &str) -> Vec<String> {
    let (_, tree) = page.split_once("id=\"children\"").expect("children");
    let tree = tree.split("</section>").next().expect("a panel");
    tree.split("<tr id=\"").skip(1).map(|row| row.split('"').next().expect("an id").to_owned()).collect()
}

async fn children_are_shown_level_by_level(database: Database) {
    let server = server(database).await;
    let (job, failed, stuck) = trunk(&server).await;
    let shown = page(&server, &format!("/jobs/{job}")).await;
    let found = rows(&shown);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[..2], [format!("c-{failed}"), format!("c-{stuck}")], "what needs someone comes first");
    assert!(
        shown.contains(&format!("/jobs/{failed}/retry")) && !shown.contains(&format!("/jobs/{stuck}/retry"))
    );
    assert!(shown.contains(&format!("href=\"/jobs/{job}?open={failed}#children\"")), "{shown}");
    let open = page(&server, &format!("/jobs/{job}?open={failed}&open={stuck}")).await;
    let found = rows(&open);
    assert_eq!(found.len(), 6, "{found:?}");
    assert_eq!(
        (found[0].as_str(), found[3].as_str()),
        (format!("c-{failed}").as_str(), format!("c-{stuck}").as_str())
    );
    assert!(open.contains(&format!("/jobs/{stuck}/branches/")) && open.contains("leaves"), "{open}");
    assert!(open.contains("aria-expanded=\"true\"") && open.contains("class=\"d1\""));
    assert!(open.contains(&format!("href=\"/jobs/{job}?open={stuck}#children\"")), "it is closed again");
    let leaf = children(&server, failed, |_| true).await[0].0;
    let empty = page(&server, &format!("/jobs/{job}?open={failed}&open={leaf}")).await;
    assert!(empty.contains("It has no children."), "{empty}");
    for query in ["open=x", "open=", &"open=00000000-0000-7000-8000-000000000000&".repeat(50)] {
        page(&server, &format!("/jobs/{job}?{query}")).await;
    }
}

async fn the_way_up_leads_through_branches(database: Database) {
    let server = server(database).await;
    let (job, failed, stuck) = trunk(&server).await;
    let leaf = children(&server, stuck, |_| true).await[0].0;
    let crumbs = |page: &str| {
        let (_, crumbs) = page.split_once("aria-label=\"Breadcrumb\">").expect("crumbs");
        crumbs.split("</nav>").next().expect("an end").to_owned()
    };
    let of_leaf = crumbs(&page(&server, &format!("/jobs/{leaf}")).await);
    for part in [
        format!("href=\"/jobs/{job}\""),
        "the trunk".into(),
        format!("href=\"/jobs/{stuck}\""),
        "leaves".into(),
    ] {
        assert!(of_leaf.contains(&part), "{part}: {of_leaf}");
    }
    assert!(of_leaf.contains(&format!("/jobs/{stuck}/branches/")), "{of_leaf}");
    let of_middle = crumbs(&page(&server, &format!("/jobs/{failed}")).await);
    assert!(of_middle.contains("the trunk") && !of_middle.contains("branches"), "{of_middle}");
    let of_trunk = crumbs(&page(&server, &format!("/jobs/{job}")).await);
    assert!(of_trunk.contains("/jobs?kind=trunk"), "{of_trunk}");
}

async fn repeats_say_how_late_their_ticks_ended(database: Database) {
    let server = server(database).await;
    let job = server.engine.submit(Beat {}).await.expect("submitted").id();
    let shown = page_with(&server, &format!("/jobs/{job}"), "2 ticks have run").await;
    assert!(shown.contains("Repeat ") && shown.contains("after it was due"), "{shown}");
}
