//! What a workflow records: commits, contexts, typed errors, encoded journals, and what a replay makes of it.

use std::fmt;

use windlass::{
    JobError, Reason,
    model::journal::{CallEvent, CallKind},
    prelude::*,
    testing::Lab,
};

use super::{On, on_every_store, ran, times};
use crate::common::Reversed;

on_every_store!(
    a_running_workflow_is_not_replayed_between_steps,
    a_workflow_can_run_in_one_commit,
    a_parent_reads_the_context_of_its_child,
    a_child_whose_key_is_taken_is_an_error,
    errors_keep_their_type_and_their_decision,
    a_journal_is_encoded_with_the_codec,
    a_slow_step_does_not_delay_a_concurrent_wait,
    a_signal_that_loses_a_select_stays_in_the_inbox,
    a_replayed_repeat_has_the_same_result,
);

#[derive(Serialize, Deserialize)]
struct Fifty;

impl Workflow for Fifty {
    const KIND: &'static str = "fifty";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        ran(format!("{}/code", flow.id()));
        let mut sum = 0;
        for n in 0..50_u32 {
            sum += flow.step("n", || async move { Ok(n) }).key(n).await?;
        }
        flow.sleep(days(1)).await;
        Ok(sum)
    }
}

async fn a_running_workflow_is_not_replayed_between_steps(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Fifty>()).await;
    let job = lab.submit(Fifty).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 1_225);
    assert_eq!(times(format!("{}/code", job.id())), 2, "once before the sleep and once after");
    assert_eq!(lab.commits(), 52, "each step, the sleep, and the end");
}

#[derive(Serialize, Deserialize)]
struct Pure;

impl Workflow for Pure {
    const KIND: &'static str = "pure";
    const ONE_COMMIT: bool = true;
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let mut sum = 0;
        for n in 0..10_u32 {
            sum += flow.step("n", || async move { Ok(n) }).key(n).await?;
        }
        Ok(sum)
    }
}

async fn a_workflow_can_run_in_one_commit(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Pure>()).await;
    let job = lab.submit(Pure).await;
    lab.run().await;
    assert_eq!((lab.result(job).await.ok(), lab.commits()), (Some(45), 1));
    assert_eq!(lab.journal(job).await.len(), 10, "its journal is complete");
}

#[derive(Serialize, Deserialize)]
struct Plant;

impl Workflow for Plant {
    const KIND: &'static str = "plant";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.context().set("height", 7)?;
        flow.step("grow", async || Ok(())).await
    }
}

#[derive(Serialize, Deserialize)]
struct Gardener;

impl Workflow for Gardener {
    const KIND: &'static str = "gardener";
    type Output = (u32, bool);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u32, bool), Failure> {
        assert_eq!(flow.child_id("plant", None), None, "it has no id before it is called");
        flow.child("plant", Plant).await?;
        let plant = flow.child_id("plant", None).ok_or_else(|| Failure::stop("no plant"))?;
        let measured = flow.step_with("measure", move |cx| async move {
            let context = cx.context_of(plant).await?;
            Ok(context.get("height").and_then(|height| height.as_u64()).unwrap_or_default())
        });
        let height = measured.await?;
        flow.sleep(days(1)).await;
        Ok((height as u32, flow.child_id("plant", None) == Some(plant)))
    }
}

async fn a_parent_reads_the_context_of_its_child(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Gardener>().workflow::<Plant>(),
            async |lab| {
                let job = lab.submit(Gardener).await;
                lab.run().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok((7, true)));
}

#[derive(Serialize, Deserialize)]
struct Rival;

impl Workflow for Rival {
    const KIND: &'static str = "rival";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let child = flow.child("plant", Plant).with(|child| child.key("the-only-one"));
        Ok(child.await.expect_err("its key is taken").message)
    }
}

async fn a_child_whose_key_is_taken_is_an_error(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Rival>().workflow::<Plant>()).await;
    lab.engine().await.submit(Plant).key("the-only-one").await.expect("submitted");
    let job = lab.submit(Rival).await;
    lab.run().await;
    let error = lab.result(job).await.expect("it does not wait for ever");
    assert!(error.contains("does not exist: another job has its key"), "{error}");
}

/// An error type of the user.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
enum PayError {
    Declined { limit: u32 },
    Other(String),
}

impl fmt::Display for PayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl From<PayError> for Failure {
    fn from(error: PayError) -> Failure {
        Failure::stop(&error).class("pay").with_detail(&error)
    }
}

impl From<Failure> for PayError {
    fn from(failure: Failure) -> PayError {
        failure.detail().unwrap_or(PayError::Other(failure.message))
    }
}

fn pay(job: JobId, step: &str, limit: u32) -> Result<(), PayError> {
    ran(format!("{job}/{step}"));
    Err(PayError::Declined { limit })
}

#[derive(Serialize, Deserialize)]
struct Pay;

impl Workflow for Pay {
    const KIND: &'static str = "pay";
    type Output = ();
    type Error = PayError;

    async fn run(self, flow: Flow) -> Result<(), PayError> {
        let id = flow.id();
        let first = flow.step("first", async || Ok(pay(id, "first", 10)?)).await;
        flow.sleep(days(1)).await;
        let first = first.expect_err("in the first run and in every replay");
        assert_eq!((&*first.class, first.detail()), ("pay", Some(PayError::Declined { limit: 10 })));
        let slow = flow.step("slow", async || {
            std::future::pending::<()>().await;
            Ok(())
        });
        let slow = slow.timeout(Duration::from_millis(20)).retry(Retry::never()).await;
        let slow = PayError::from(slow.expect_err("it never returns"));
        assert!(matches!(slow, PayError::Other(text) if text.contains("ran longer than 20ms")));
        flow.step("last", async || Ok(pay(id, "last", 20)?)).await?;
        Ok(())
    }
}

/// The conversion of the user's error decides, also in steps: it says that no retry helps.
async fn errors_keep_their_type_and_their_decision(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Pay>()).await;
    let job = lab.submit(Pay).await;
    lab.run().await;
    let error = lab.result(job).await.expect_err("declined");
    assert_eq!(error.error(), Some(PayError::Declined { limit: 20 }));
    match error {
        JobError::Failed { reason: Reason::Stopped, failure, .. } => assert_eq!(failure.class, "pay"),
        other => panic!("{other:?}"),
    }
    for step in ["first", "last"] {
        assert_eq!(times(format!("{}/{step}", job.id())), 1, "{step} was not retried");
    }
}

#[derive(Serialize, Deserialize)]
struct Secret;

impl Workflow for Secret {
    const KIND: &'static str = "secret";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let step = flow.step_with("step", |cx| async move {
            cx.set("inner", "secret")?;
            Ok("secret".to_owned())
        });
        let step = step.await?;
        flow.context().set("outer", "secret")?;
        let signal = flow.signal::<String>("word").await?;
        let inner: Option<String> = flow.context().get("inner")?;
        Ok(step + &signal + &inner.unwrap_or_default())
    }
}

async fn a_journal_is_encoded_with_the_codec(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Secret>().codec(Reversed)).await;
    let job = lab.submit(Secret).await;
    lab.run().await;
    lab.signal(job, "word", "secret").await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), "secretsecretsecret");
    for entry in lab.journal(job).await {
        let kept = String::from_utf8_lossy(&entry.payload.bytes).into_owned();
        assert!(!kept.contains("secret"), "{} {}: {kept}", entry.call_kind, entry.name);
    }
    assert_eq!(lab.context::<_, String>(job, "inner").await.as_deref(), Some("secret"));
    assert_eq!(lab.context::<_, String>(job, "outer").await.as_deref(), Some("secret"));
}

/// A slow step, and a concurrent wait that ends earlier.
#[derive(Serialize, Deserialize)]
struct Concurrent;

impl Workflow for Concurrent {
    const KIND: &'static str = "concurrent";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let id = flow.id();
        let slow = async {
            flow.step("slow", || async move {
                while times(format!("{id}/answered")) == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok("slow".to_owned())
            })
            .await
        };
        let asked = async {
            let question: String = flow.signal("ask").await?;
            flow.step("answer", || async move {
                ran(format!("{id}/answered"));
                Ok(())
            })
            .await?;
            Ok(question)
        };
        let (slow, asked) = futures_util::future::try_join(slow, asked).await?;
        Ok(vec![slow, asked])
    }
}

async fn a_slow_step_does_not_delay_a_concurrent_wait(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url).workflow::<Concurrent>().start().await.expect("started");
    let job = engine.submit(Concurrent).await.expect("submitted");
    tokio::time::sleep(Duration::from_millis(50)).await;
    job.signal("ask", "quick").await.expect("sent");
    assert_eq!(job.result().await.expect("done"), ["slow", "quick"]);
    let journal = engine.inspect().journal(job.id(), None, 99).await.expect("a journal");
    let ends: Vec<(CallKind, &str)> = journal
        .iter()
        .filter(|entry| entry.event == CallEvent::Done)
        .map(|entry| (entry.call_kind, entry.name.as_str()))
        .collect();
    assert_eq!(ends, [(CallKind::Signal, "ask"), (CallKind::Step, "answer"), (CallKind::Step, "slow")]);
    engine.stop().await;
}

/// When it wakes, its timer has expired and a signal has arrived.
#[derive(Serialize, Deserialize)]
struct Second;

impl Workflow for Second {
    const KIND: &'static str = "second";
    type Output = (bool, String);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(bool, String), Failure> {
        let (timer, word) = (flow.sleep(hours(1)).name("timer"), flow.signal::<String>("word").key(1));
        let first = flow.select("first", (timer, word)).await;
        let word = flow.signal::<String>("word").key(2).timeout(hours(1)).await?;
        Ok((matches!(first, First2::A(())), word))
    }
}

async fn a_signal_that_loses_a_select_stays_in_the_inbox(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Second>()).await;
    let job = lab.submit(Second).await;
    lab.advance(minutes(30)).await;
    // No worker claims it when the hour ends and the signal arrives.
    let engine = lab.engine().await;
    engine.control("test").pause_queue("default").await.expect("paused");
    lab.advance(hours(2)).await;
    lab.signal(job, "word", "hello").await;
    engine.control("test").resume_queue("default").await.expect("resumed");
    lab.run().await;
    assert_eq!(
        lab.result(job).await.expect("done"),
        (true, "hello".to_owned()),
        "the signal is still in the inbox"
    );
}

/// A repeat whose tick fails, handled, and replayed much later.
#[derive(Serialize, Deserialize)]
struct Ended;

impl Workflow for Ended {
    const KIND: &'static str = "ended";
    type Output = (String, bool);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(String, bool), Failure> {
        let hourly = Calendar::every(1, windlass::Unit::Hours).map_err(Failure::stop)?;
        let tick =
            |_, _| async { Err::<std::ops::ControlFlow<()>, _>(Failure::stop("the first tick fails")) };
        let failed = flow.repeat("hourly", hourly, tick).on_error(windlass::OnError::Fail).await;
        let failed = failed.expect_err("its tick fails").message;
        let number = flow.random();
        let kept = flow.step("kept", move || async move { Ok(number) }).await?;
        flow.sleep(days(3)).await;
        Ok((failed, kept == number))
    }
}

async fn a_replayed_repeat_has_the_same_result(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Ended>(),
            async |lab| {
                let job = lab.submit(Ended).await;
                lab.run().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok(("the first tick fails".to_owned(), true)));
}
