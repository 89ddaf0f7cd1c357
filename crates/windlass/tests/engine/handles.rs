//! Handles: attached to jobs by key or id, typed by the kind, and what they can do.

use windlass::{
    AnyKind, ControlOutcome, Delivery, Error, Reason, State, Time, operate::AuditFilter, prelude::*,
    store::Prune,
};

use crate::{
    common::reaches,
    flow::{On, on_every_store},
};

on_every_store!(
    a_job_is_attached_by_its_key_and_by_its_id,
    a_job_of_another_kind_is_not_attached,
    any_kind_stands_for_all_kinds,
    a_handle_signals_explains_and_cancels,
    the_error_of_a_kind_is_typed_in_every_process,
);

#[derive(Serialize, Deserialize)]
struct Double(u32);

impl Task for Double {
    const KIND: &'static str = "handle_double";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        Ok(2 * self.0)
    }
}

#[derive(Serialize, Deserialize)]
struct Approve {
    by: String,
}

impl Signal for Approve {
    const NAME: &'static str = "approve";
}

/// Waits for two signals, one by its name and one by its type.
#[derive(Serialize, Deserialize)]
struct Waits;

impl Workflow for Waits {
    const KIND: &'static str = "handle_waits";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let amount: u32 = flow.signal("amount").await?;
        let approve = flow.receive::<Approve>().await?;
        Ok(format!("{amount} by {}", approve.by))
    }
}

/// The error of a payment, with which a job ends.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
enum PayError {
    Declined { limit: u32 },
}

impl From<PayError> for Failure {
    fn from(error: PayError) -> Failure {
        Failure::stop("the card was declined").class("declined").with_detail(&error)
    }
}

#[derive(Serialize, Deserialize)]
struct Pay {
    panics: bool,
}

impl Task for Pay {
    const KIND: &'static str = "handle_pay";
    type Output = ();
    type Error = PayError;

    async fn run(self, _cx: &TaskCx) -> Result<(), PayError> {
        assert!(!self.panics, "on purpose");
        Err(PayError::Declined { limit: 10 })
    }

    fn retry() -> Retry {
        Retry::never()
    }
}

async fn start(url: &str) -> Engine {
    let engine = Engine::builder(url).task::<Double>().task::<Pay>().workflow::<Waits>();
    engine.start().await.expect("started")
}

/// An engine on the same store that serves nothing, as another process has. A store in memory has only one process.
async fn elsewhere(engine: &Engine) -> Engine {
    let other = Engine::builder(engine.url());
    let other = if engine.url() == "memory:" { other.store(engine.store().clone()) } else { other };
    other.open().await.expect("opened")
}

async fn a_job_is_attached_by_its_key_and_by_its_id(on: On) {
    let store = on.fresh().await;
    let engine = start(&store.url).await;
    let submitted = engine.submit(Double(4)).key("orders/4").await.expect("submitted");
    assert!(submitted.is_new());
    let other = elsewhere(&engine).await;
    let by_key: Handle<Double> = other.job("orders/4").await.expect("found");
    let by_id: Handle<Double> = other.job(submitted.id()).await.expect("found");
    for attached in [by_key, by_id] {
        assert_eq!((attached.id(), attached.is_new()), (submitted.id(), false));
        assert_eq!(attached.clone().result().await.expect("done"), 8);
    }
    // Also before it has ended.
    let waits = engine.submit(Waits).key("orders/4").await.expect("keys are unique per kind");
    let attached: Handle<Waits> = other.job("orders/4").await.expect("found");
    assert_eq!(attached.id(), waits.id());
    attached.signal("amount", 7).await.expect("sent");
    attached.send(Approve { by: "ada".into() }).await.expect("sent");
    assert_eq!(attached.result().await.expect("done"), "7 by ada");
    engine.stop().await;
}

async fn a_job_of_another_kind_is_not_attached(on: On) {
    let store = on.fresh().await;
    let engine = start(&store.url).await;
    let job = engine.submit(Double(4)).key("four").await.expect("submitted");
    let error = engine.job::<Waits, _>(job.id()).await.expect_err("another kind");
    assert!(matches!(&error, Error::OtherKind { job: id, .. } if *id == job.id()), "{error:?}");
    for part in ["\"handle_double\"", "\"handle_waits\"", "the type that it was submitted with"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = engine.job::<Waits, _>("four").await.expect_err("no such key of this kind");
    assert!(matches!(&error, Error::NoSuchKey { kind, key } if kind == "handle_waits" && key == "four"));
    let error = engine.job::<Double, _>("five").await.expect_err("unknown");
    assert!(matches!(&error, Error::NoSuchKey { kind, key } if kind == "handle_double" && key == "five"));
    let unknown = engine.new_id();
    let error = engine.job::<Double, _>(unknown).await.expect_err("unknown");
    assert!(matches!(error, Error::NoSuchJob(id) if id == unknown));
    engine.stop().await;
}

async fn any_kind_stands_for_all_kinds(on: On) {
    let store = on.fresh().await;
    let engine = start(&store.url).await;
    let double = engine.submit(Double(4)).key("a/b").await.expect("submitted");
    let other = elsewhere(&engine).await;
    let by_id: Handle<AnyKind> = other.job(double.id()).await.expect("found");
    let by_key: Handle<AnyKind> = other.job("handle_double/a/b").await.expect("found");
    assert_eq!(by_key.id(), double.id());
    assert_eq!(by_id.result().await.expect("done"), serde_json::json!(8));
    let pay = engine.submit(Pay { panics: false }).await.expect("submitted");
    let pay: Handle<AnyKind> = other.job(pay.id()).await.expect("found");
    let error = pay.result().await.expect_err("declined");
    assert_eq!(error.failure().map(|failure| &*failure.class), Some("declined"));

    let error = other.job::<AnyKind, _>("handle_double/none").await.expect_err("unknown");
    assert!(matches!(&error, Error::NoSuchKey { kind, key } if kind == "handle_double" && key == "none"));
    let error = other.job::<AnyKind, _>("a").await.expect_err("of which kind?");
    assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains("`kind/a`"), "{error}");
    let error = other.job::<AnyKind, _>(other.new_id()).await.expect_err("unknown");
    assert!(matches!(error, Error::NoSuchJob(_)), "{error:?}");
    engine.stop().await;
}

async fn a_handle_signals_explains_and_cancels(on: On) {
    let store = on.fresh().await;
    let engine = start(&store.url).await;
    let job = engine.submit(Waits).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    let why = job.why().await.expect("explained");
    assert_eq!((why.job, why.cause), (job.id(), windlass::Cause::Signal), "{why:?}");
    assert!(why.because.contains("amount"), "{why:?}");
    assert_eq!(job.signal("amount", 1).dedup("first").await.expect("sent"), Delivery::Delivered);
    assert_eq!(job.signal("amount", 2).dedup("first").await.expect("sent"), Delivery::Duplicate);
    assert_eq!(job.send(Approve { by: "ada".into() }).dedup("x").await.expect("sent"), Delivery::Delivered);
    assert_eq!(job.result().await.expect("done"), "1 by ada");
    assert_eq!(job.why().await.expect("explained").cause, windlass::Cause::Done);

    assert!(matches!(job.cancel().await, Ok(ControlOutcome::Already(_))), "it has ended");
    assert!(job.result().await.is_ok(), "and stays as it is");
    let error = job.send(Approve { by: "eve".into() }).await.expect_err("it has ended");
    assert!(matches!(error, Error::Ended { state: State::Done, .. }), "{error}");

    let job = engine.submit(Waits).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    let outcome = job.cancel().await.expect("cancelled");
    assert!(matches!(outcome, ControlOutcome::Done | ControlOutcome::CancelRequested), "{outcome:?}");
    match job.result().await {
        Err(JobError::Cancelled(failure)) => assert_eq!(failure.message, "cancelled by the program"),
        other => panic!("{other:?}"),
    }
    let filter = AuditFilter { subject: Some(job.id().to_string()), ..AuditFilter::default() };
    let audit = engine.inspect().audit(&filter).await.expect("audit");
    assert_eq!(audit.iter().map(|entry| entry.author.as_str()).collect::<Vec<_>>(), ["the program"]);

    let prune = Prune { state: State::Cancelled, before: Time::MAX, kind: None, after: None, limit: 9 };
    assert_eq!(engine.store().prune(None, &prune).await.expect("pruned").jobs, 1);
    assert!(matches!(job.cancel().await, Err(Error::NoSuchJob(id)) if id == job.id()));
    assert!(matches!(job.why().await, Err(Error::NoSuchJob(_))));
    assert!(matches!(job.signal("amount", 1).await, Err(Error::NoSuchJob(_))));
    assert!(matches!(job.result().await, Err(JobError::Gone(_))));
    engine.stop().await;
}

async fn the_error_of_a_kind_is_typed_in_every_process(on: On) {
    let store = on.fresh().await;
    let engine = start(&store.url).await;
    let other = elsewhere(&engine).await;
    let declined = other.submit(Pay { panics: false }).key("declined").await.expect("submitted");
    let attached: Handle<Pay> = other.job("declined").await.expect("found");
    for job in [declined, attached] {
        let error = job.result().await.expect_err("declined");
        assert_eq!(error.error(), Some(PayError::Declined { limit: 10 }));
        let JobError::Failed { reason: Reason::Stopped, failure, .. } = error else { panic!("{error:?}") };
        assert_eq!((&*failure.class, &*failure.message), ("declined", "the card was declined"));
    }
    // A failure that is not the kind's own error.
    let panics = other.submit(Pay { panics: true }).await.expect("submitted");
    let error = panics.result().await.expect_err("it panicked");
    assert_eq!(error.error(), None);
    assert_eq!(error.failure().map(|failure| &*failure.class), Some("panic"));
    engine.stop().await;
}
