//! A job whose row cannot be decoded fails and says why; its neighbours run.

use std::{collections::BTreeMap, sync::Mutex};

use windlass::{
    Cause, ControlOutcome, JobError,
    model::{Reason, Settings},
    prelude::*,
};

use crate::on_both_stores;

on_both_stores!(a_job_whose_row_cannot_be_decoded_fails_alone);

/// How often each number was returned, by the URL of the test's store.
static RUNS: Mutex<BTreeMap<(String, u32), usize>> = Mutex::new(BTreeMap::new());

#[derive(Serialize, Deserialize)]
struct Echo {
    n: u32,
    url: String,
}

impl Task for Echo {
    const KIND: &'static str = "undecodable_echo";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        *RUNS.lock().expect("runs").entry((self.url, self.n)).or_default() += 1;
        Ok(self.n)
    }
}

/// Writes the settings of a job's row as text.
async fn write_settings(url: &str, id: JobId, text: &str) {
    #[cfg(feature = "sqlite")]
    if let Some(path) = url.strip_prefix("sqlite://") {
        let conn = windlass::store::rusqlite::Connection::open(path).expect("open");
        let sql = "update windlass_jobs set settings = ?2 where id = ?1";
        assert_eq!(conn.execute(sql, windlass::store::rusqlite::params![id.as_bytes(), text]), Ok(1));
        return;
    }
    #[cfg(feature = "postgres")]
    {
        use windlass::store::postgres::{Options, Postgres};
        let client = Postgres::client(&Options::parse(url).expect("an address")).await.expect("connected");
        let sql = format!("update jobs set settings = '{text}' where id = '{id}'");
        client.batch_execute(&sql).await.expect("updated");
    }
}

async fn a_job_whose_row_cannot_be_decoded_fails_alone(url: &str) {
    let submitter = Engine::builder(url).task::<Echo>().open().await.expect("opened");
    let broken = submitter.submit(Echo { n: 7, url: url.into() }).await.expect("submitted");
    let sound = submitter.submit(Echo { n: 8, url: url.into() }).await.expect("submitted");
    write_settings(url, broken.id(), r#"{"retry":"#).await;
    let why = submitter.operator().why(broken.id()).await.expect("read").expect("exists");
    assert_eq!(why.cause, Cause::Undecodable);
    assert!(
        why.because.starts_with("It fails when it is claimed next, because the column settings of its row")
    );

    let engine = Engine::builder(url).task::<Echo>().start().await.expect("started");
    assert_eq!(sound.result().await.expect("done"), 8);
    let error = broken.result().await.expect_err("failed");
    let JobError::Failed { reason, failure, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*reason, Reason::Undecodable);
    assert!(failure.message.starts_with("the column settings of its row cannot be decoded: "), "{failure}");
    let runs = || RUNS.lock().expect("runs").get(&(url.to_owned(), 7)).copied();
    assert_eq!(runs(), None, "it did not run");

    let job = engine.inspect().job(broken.id()).await.expect("read").expect("exists");
    assert_eq!((job.summary.attempts, job.settings), (0, Settings::default()), "no attempt is counted");
    let retried = engine.control("ada").retry(broken.id()).await.expect("asked");
    assert!(matches!(retried, ControlOutcome::Refused(_)), "{retried:?}");
    write_settings(url, broken.id(), "{}").await;
    assert_eq!(engine.control("ada").retry(broken.id()).await.expect("asked"), ControlOutcome::Done);
    assert_eq!(broken.result().await.expect("done"), 7);
    assert_eq!(runs(), Some(1));
    engine.stop().await;
}
