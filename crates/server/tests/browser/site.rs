//! A server on a store with jobs of every sort, and the addresses of all its pages.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex},
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::sync::watch;
use windlass::{Builder, Calendar, JobId, Overlap, RateLimit, State, Unit, model::Role, prelude::*};
use windlass_server::Settings;

use crate::kit::{self, Database, PATIENCE, Running, settings};

/// Under which children of branches run.
const LIMIT: &str = "items-per-second";
/// The kinds of pages, from the source: a page that is added is tested.
const PAGES: &str = include_str!("../../src/pages/mod.rs");

/// Runs until the gate of this name is opened, and ends as that says.
#[derive(Serialize, Deserialize)]
pub(crate) struct Gated {
    pub(crate) gate: String,
}

/// What opens gates.
static GATES: LazyLock<Mutex<HashMap<String, watch::Sender<Option<bool>>>>> = LazyLock::new(Mutex::default);

fn gate(name: &str) -> watch::Sender<Option<bool>> {
    let mut gates = GATES.lock().expect("no panic");
    gates.entry(name.to_owned()).or_insert_with(|| watch::channel(None).0).clone()
}

/// Ends the attempt that waits at a gate, or the next one that comes to it: well, or as failed.
pub(crate) fn open(name: &str, ends_well: bool) {
    gate(name).send_replace(Some(ends_well));
}

impl Task for Gated {
    const KIND: &'static str = "gated";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        let gate = gate(&self.gate);
        let mut says = gate.subscribe();
        let ends_well = says.wait_for(Option::is_some).await.ok().and_then(|says| *says);
        gate.send_replace(None);
        match ends_well {
            Some(true) => Ok("the gate is open".into()),
            _ => Err(Failure::stop("the gate stays shut")),
        }
    }
}

/// Fails, and is tried again in an hour.
#[derive(Serialize, Deserialize)]
struct Flaky {}

impl Task for Flaky {
    const KIND: &'static str = "flaky";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Err(Failure::retry("the service is down").retry_after(hours(1)))
    }
}

/// A child of a branch.
#[derive(Serialize, Deserialize)]
struct Item {
    number: u32,
}

impl Task for Item {
    const KIND: &'static str = "item";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        match self.number % 25 {
            7 => Err(Failure::stop(format!("item {} has no weight", self.number))),
            _ => Ok(self.number),
        }
    }
}

/// Opens a branch of so many children and merges it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) items: u32,
}

impl Workflow for Batch {
    const KIND: &'static str = "batch";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let merge = Merge::tolerate(percent(50.0)).poll_interval(seconds(1), seconds(1));
        let items = self.items;
        flow.branch("items")
            .spawn_each("item", 0..items, |number| Child::new(Item { number }).rate(LIMIT))
            .merge(merge)
            .reduce(0, |sum: u64, number: u32| sum + u64::from(number))
            .await
    }
}

/// A machine that waits for a signal.
#[derive(Serialize, Deserialize)]
enum Claim {
    Received,
    Checked,
    Paid,
}

impl Machine for Claim {
    const KIND: &'static str = "claim";
    type Output = ();
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(match self {
            Claim::Received => Next::to(Claim::Checked),
            Claim::Checked => Next::wait(Claim::Paid, "approved").timeout(days(2)),
            Claim::Paid => Next::done(()),
        })
    }
}

/// The kinds of the tests.
pub(crate) fn kinds(builder: Builder) -> Builder {
    builder.task::<Gated>().task::<Flaky>().task::<Item>().workflow::<Batch>().machine::<Claim>()
}

/// A server with a worker on an empty store; with `login`, people have to log in.
pub(crate) async fn server(login: bool) -> Running {
    let (dir, engine) = kit::engine_with(Database::Sqlite, kinds).await;
    if login {
        kit::token(&engine, "first", Role::Admin, &[], &[]).await;
    }
    let running = Running::on(dir, engine, Settings { login, ..settings() }).await;
    running.engine.start().await.expect("a worker");
    set_limit(&running, 6).await;
    running
}

/// Sets how many children of branches start in a second.
pub(crate) async fn set_limit(server: &Running, per_second: u32) {
    let limit = RateLimit::per_second(LIMIT, per_second).burst(2);
    assert!(server.engine.control("test").set_limit(limit).await.expect("it is set"));
}

/// Waits until a job is in a state.
pub(crate) async fn until_state(server: &Running, job: JobId, state: State) {
    let began = Instant::now();
    loop {
        let found = server.engine.inspect().job(job).await.expect("an answer").expect("a job").summary.state;
        if found == state {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{job} is {found} and never {state}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server whose store has jobs in every state, and the address of every page and preview.
pub(crate) struct Site {
    pub(crate) server: Running,
    /// The name of each page, and its address.
    pub(crate) pages: Vec<(String, String)>,
}

impl Site {
    pub(crate) async fn fill() -> Site {
        let server = server(false).await;
        let engine = &server.engine;
        set_limit(&server, 1).await;
        let batch = engine.submit(Batch { items: 400 }).key("archive-7").await.expect("submitted").id();
        let claim =
            engine.submit(Claim::Received).key("claim-1841").tag("motor").await.expect("submitted").id();
        let gated = engine.submit(Gated { gate: "never".into() }).key("report/2026-11").await;
        let flaky = engine.submit(Flaky {}).key("sync-prices").await.expect("submitted").id();
        let failed = engine
            .submit_json("echo", 1, json!("fail"))
            .key("invoice-77")
            .tag("billing")
            .await
            .expect("submitted");
        let long = "a-key-that-is-rather-long-and-has-no-space-in-it-".repeat(6);
        engine
            .submit_json(
                "echo",
                1,
                json!({ "to": [1, 2.5, null, true, "a text"], "deep": { "er": { "still": {} } } }),
            )
            .key(long)
            .await
            .expect("submitted");
        for number in 0..30 {
            let key = format!("letter-{number}");
            engine.submit_json("echo", 1, json!(number)).key(key).queue("letters").await.expect("submitted");
        }
        engine
            .submit_json("echo", 1, json!(1))
            .serial("customer-7")
            .queue("letters")
            .await
            .expect("submitted");
        engine.submit_json("echo", 1, json!(1)).delay(days(3)).await.expect("submitted");
        let control = engine.control("ines").note("the printer is being repaired, until Thursday");
        assert!(control.pause_queue("letters").await.expect("it is paused"));
        let calendar = Calendar::every(1, Unit::Hours).expect("a calendar");
        let hourly = engine.schedule_json("tills", calendar, "echo", 1, &json!("tills"));
        assert!(hourly.overlap(Overlap::Queue).await.expect("it is set"));
        let nightly = Calendar::cron("30 2 * * *", "Europe/Dublin").expect("a calendar");
        assert!(engine.schedule_json("backup", nightly, "echo", 1, &json!(null)).await.expect("it is set"));
        until_state(&server, claim, State::Waiting).await;
        until_state(&server, gated.expect("submitted").id(), State::Running).await;
        until_state(&server, flaky, State::Scheduled).await;
        let failed = failed.id();
        until_state(&server, failed, State::Failed).await;
        until_state(&server, batch, State::Waiting).await;
        let operation = bulk(&server).await;
        let pages = pages(&[batch, claim, flaky, failed], &operation);
        Site { server, pages }
    }
}

/// Changes the priority of many jobs. Returns the address of the operation.
async fn bulk(server: &Running) -> String {
    use crate::client::Request;
    let page = server.send(Request::get("/jobs").header("accept", "text/html")).await;
    let token = page.body.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let fields = format!("csrf={}&action=priority&priority=5&queue=letters", token.expect("a token"));
    let done = server.send(Request::form("/jobs/act", &fields)).await;
    done.header("location").expect("an operation").to_owned()
}

/// Every page, for each of these jobs if it is about one, and what pages show besides: previews, empty lists, errors.
fn pages(jobs: &[JobId], operation: &str) -> Vec<(String, String)> {
    let mut pages: Vec<(String, String)> = Vec::new();
    let patterns = PAGES.split("page!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    for pattern in patterns {
        let name = pattern.replace(['{', '}'], "").replace('/', "-").trim_start_matches('-').to_owned();
        let name = if name.is_empty() { "overview".to_owned() } else { name };
        match pattern {
            "/operations/{id}" => pages.push((name, operation.to_owned())),
            _ if pattern.contains("{job}") => {
                // Only the first job has a branch.
                let shown = if pattern.contains("{name}") { &jobs[..1] } else { jobs };
                for (number, job) in shown.iter().enumerate() {
                    let path = pattern.replace("{job}", &job.to_string()).replace("{name}", "items");
                    pages.push((format!("{name}-{number}"), path));
                }
            }
            _ => pages.push((name, pattern.to_owned())),
        }
    }
    assert!(pages.len() > 12, "the pages are not found in the source: {pages:?}");
    for (name, path) in [
        ("jobs-retry", "/jobs?state=failed&preview=retry".to_owned()),
        ("jobs-priority", "/jobs?queue=letters&preview=priority".to_owned()),
        ("jobs-none", "/jobs?kind=none&tag=other".to_owned()),
        ("job-signal", format!("/jobs/{}?preview=signal", jobs[1])),
        ("job-cancel", format!("/jobs/{}?preview=cancel", jobs[1])),
        ("job-fork", format!("/jobs/{}?preview=fork", jobs[0])),
        ("job-unknown", "/jobs/none".to_owned()),
        ("queue-pause", "/queues?pause=default".to_owned()),
        ("schedule", "/schedules?name=tills".to_owned()),
        ("schedule-pause", "/schedules?pause=tills".to_owned()),
        ("submit-echo", "/submit?kind=echo".to_owned()),
        ("login", "/login".to_owned()),
    ] {
        pages.push((name.to_owned(), path));
    }
    pages
}
