//! Journals and outputs that are larger than one answer of a server may be.

use windlass::{State, prelude::*};
use windlass_remote::{Options, RemoteStore};
use windlass_server::Settings;
use windlass_store::{Error, JobEnd};

use crate::{
    engine::{soon, url},
    kit::{self, Database, Running, settings},
    on_both,
};

on_both! {
    a_workflow_with_large_results_replays_through_pages
    an_answer_that_is_too_large_is_no_outage
}

/// How many steps the workflow has.
const STEPS: usize = 40;
/// How many bytes each returns: nearly as many as a payload may have.
const BYTES: usize = 1_000_000;

/// Collects large results, and waits.
#[derive(Serialize, Deserialize)]
struct Large {}

impl Workflow for Large {
    const KIND: &'static str = "large";
    type Output = usize;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<usize, Failure> {
        let mut bytes = 0;
        for n in 0..STEPS {
            let part: String = flow
                .step("part", move || async move { Ok::<_, Failure>(letter(n).repeat(BYTES)) })
                .key(n)
                .await?;
            assert!(part.starts_with(&letter(n)));
            bytes += part.len();
        }
        let more: usize = flow.signal("go").await?;
        Ok(bytes + more)
    }
}

fn letter(n: usize) -> String {
    char::from(b'a' + (n % 26) as u8).to_string()
}

async fn engine(url: &str) -> Engine {
    Engine::builder(url).workflow::<Large>().queue("default", Pool::slots(2)).open().await.expect("an engine")
}

async fn a_workflow_with_large_results_replays_through_pages(database: Database) {
    let (dir, host) = kit::engine(database).await;
    host.start_maintenance().await.expect("maintenance");
    let page_bytes = 4 << 20;
    let server = Running::on(dir, host, Settings { page_bytes, ..settings() }).await;
    let worker = engine(&url(&server)).await;
    worker.start().await.expect("a worker");
    let job = worker.submit(Large {}).await.expect("submitted");
    soon(async {
        loop {
            let seen = server.engine.inspect().job(job.id()).await.expect("read").expect("it exists");
            if seen.summary.state == State::Waiting {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    worker.stop().await;

    // Another worker replays all of it.
    let other = engine(&url(&server)).await;
    other.start().await.expect("a worker");
    other.signal(job.id(), "go", 5_usize).await.expect("delivered");
    assert_eq!(soon(job.result()).await.expect("an output"), STEPS * BYTES + 5);
    other.stop().await;

    // No answer is much larger than a page, in base64 and with names too.
    let options = Options { body_limit: 8 << 20, ..Options::default() };
    let store = RemoteStore::open(&url(&server), options).await.expect("a store");
    let store: std::sync::Arc<dyn windlass_store::Store> = std::sync::Arc::new(store);
    let journal = store.journal(job.id(), None, usize::MAX).await.expect("all of it");
    let large = journal.iter().filter(|entry| entry.payload.bytes.len() >= BYTES).count();
    assert_eq!(large, STEPS);
    let both = store.journals(&[job.id(), job.id()]).await.expect("both");
    assert!(both[0] == journal && both[1] == journal);
    let ends = store.job_ends(&[job.id(); 40]).await.expect("ends");
    assert!(ends.len() == 40 && ends.iter().all(|end| matches!(end, Some(JobEnd::Done(_)))));
}

async fn an_answer_that_is_too_large_is_no_outage(database: Database) {
    let (dir, host) = kit::engine(database).await;
    let server = Running::on(dir, host, settings()).await;
    let output = serde_json::json!("x".repeat(100_000));
    let job = server.engine.submit(kit::Echo(output)).await.expect("submitted");
    server.engine.start().await.expect("a worker");
    soon(job.result()).await.expect("an output");
    let options = Options { body_limit: 50_000, ..Options::default() };
    let store = RemoteStore::open(&url(&server), options).await.expect("a store");
    let store: std::sync::Arc<dyn windlass_store::Store> = std::sync::Arc::new(store);
    let error = store.job_ends(&[job.id()]).await.expect_err("too large");
    assert!(matches!(&error, Error::Fault(why) if why.contains("more than 50000 bytes")), "{error:?}");
    server.engine.stop().await;
}
