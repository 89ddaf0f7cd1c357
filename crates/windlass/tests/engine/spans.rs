//! Spans of attempts, and the trace of a job, which reaches other processes and the jobs that it submits.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Mutex, Once},
    time::Instant,
};

use tracing::{
    Event, Level,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, prelude::*, registry::LookupSpan};
use windlass::{model::WorkerId, prelude::*};

crate::on_both_stores!(
    a_trace_reaches_the_attempt_in_another_engine,
    jobs_that_a_task_submits_have_its_trace,
    a_span_records_the_outcome_of_its_attempt,
);

const TRACE: &str = "00-11112222333344445555666677778888-aaaabbbbccccdddd-01";
const TRACE_ID: &str = "11112222333344445555666677778888";
const OTHER: &str = "00-99992222333344445555666677778888-aaaabbbbccccdddd-00";

/// The fields of a span, as text.
#[derive(Clone, Default, Debug)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// Attempts that have ended, with the fields of their spans.
static ENDED: Mutex<Vec<BTreeMap<&'static str, String>>> = Mutex::new(Vec::new());

/// Errors that were logged.
static ERRORS: Mutex<Vec<BTreeMap<&'static str, String>>> = Mutex::new(Vec::new());

/// Keeps the spans of attempts and the errors that are logged, of all tests in this process.
struct Recorder;

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).expect("new").extensions_mut().insert(fields);
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        ERRORS.lock().expect("not poisoned").push(fields.0);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("the span exists");
        let mut extensions = span.extensions_mut();
        record.record(extensions.get_mut::<Fields>().expect("inserted by on_new_span"));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("the span exists");
        let fields = span.extensions_mut().remove::<Fields>().expect("inserted by on_new_span");
        ENDED.lock().expect("not poisoned").push(fields.0);
    }
}

pub(crate) fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let recorded = tracing_subscriber::filter::filter_fn(|metadata| match metadata.is_span() {
            true => metadata.target() == "windlass" && metadata.name() == "attempt",
            false => *metadata.level() == Level::ERROR,
        });
        tracing_subscriber::registry().with(Recorder.with_filter(recorded)).init();
    });
}

/// The errors that were logged about a worker, since the first call of [`record`].
pub(crate) fn errors_of(worker: WorkerId) -> Vec<BTreeMap<&'static str, String>> {
    let errors = ERRORS.lock().expect("not poisoned").clone();
    errors.into_iter().filter(|fields| fields.get("worker") == Some(&worker.to_string())).collect()
}

/// The spans of a job's attempts, once there are `count`.
async fn spans(job: JobId, count: usize) -> Vec<BTreeMap<&'static str, String>> {
    let (job, deadline) = (job.to_string(), Instant::now() + Duration::from_secs(30));
    loop {
        let all = ENDED.lock().expect("not poisoned").clone();
        let mine: Vec<_> = all.into_iter().filter(|span| span["job"] == job).collect();
        if mine.len() >= count {
            return mine;
        }
        assert!(Instant::now() < deadline, "{} of {count} spans: {mine:?}", mine.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns its trace.
#[derive(Serialize, Deserialize)]
struct Traced;

impl Task for Traced {
    const KIND: &'static str = "traced";
    const QUEUE: &'static str = "traced";
    type Output = Option<String>;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<Option<String>, Failure> {
        Ok(cx.traceparent())
    }
}

/// Submits jobs in every way.
#[derive(Serialize, Deserialize)]
struct Submitter;

impl Task for Submitter {
    const KIND: &'static str = "submitter";
    type Output = Vec<JobId>;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<Vec<JobId>, Failure> {
        let engine = cx.engine();
        let single = engine.submit(Traced).await?.id();
        let many = engine.submit_all([Traced, Traced]).await?;
        let json = engine.submit_json("traced", 1, serde_json::json!(null)).queue("traced").await?.id();
        let other = engine.submit(Traced).trace(OTHER).await?.id();
        let trace = cx.traceparent();
        let spawned = tokio::spawn(async move {
            let alone = engine.submit(Traced).await?.id();
            let passed_on = match trace {
                Some(trace) => engine.submit(Traced).trace(trace).await?.id(),
                None => engine.submit(Traced).await?.id(),
            };
            Ok::<_, windlass::Error>([alone, passed_on])
        });
        let [alone, passed_on] = spawned.await.or_stop()??;
        Ok(vec![single, many[0].id()?, many[1].id()?, json, passed_on, other, alone])
    }
}

async fn a_trace_reaches_the_attempt_in_another_engine(url: &str) {
    record();
    let here = Engine::open(url).await.expect("opened");
    let there = Engine::builder(url).task::<Traced>().queue("traced", Pool::slots(2));
    let there = there.start().await.expect("started");
    let job = here.submit(Traced).trace(TRACE).await.expect("submitted");
    assert_eq!(job.result().await.expect("done").as_deref(), Some(TRACE));
    let span = spans(job.id(), 1).await.remove(0);
    let worker = there.worker().await.expect("it works").to_string();
    let expected = BTreeMap::from([
        ("job", job.id().to_string()),
        ("kind", "traced".into()),
        ("version", "1".into()),
        ("queue", "traced".into()),
        ("attempt", "1".into()),
        ("epoch", "0".into()),
        ("worker", worker),
        ("trace", TRACE_ID.into()),
        ("outcome", "done".into()),
    ]);
    assert_eq!(span, expected);

    let plain = here.submit(Traced).await.expect("submitted");
    assert_eq!(plain.result().await.expect("done"), None);
    assert!(!spans(plain.id(), 1).await[0].contains_key("trace"));
    let kept = here.inspect().job(plain.id()).await.expect("read").expect("the job exists");
    assert!(kept.settings.is_default(), "a job without a trace has default settings");

    let bad = here.submit(Traced).trace("not-a-trace").await.expect_err("refused").to_string();
    assert!(bad.contains("\"not-a-trace\" is not a traceparent") && bad.contains("like 00-"), "{bad}");
    there.stop().await;
}

async fn jobs_that_a_task_submits_have_its_trace(url: &str) {
    record();
    // Two engines, as in different processes.
    let submitting = Engine::builder(url).task::<Submitter>().start().await.expect("started");
    let tracing = Engine::builder(url).task::<Traced>().queue("traced", Pool::slots(4));
    let tracing = tracing.start().await.expect("started");
    let trace_of = async |id: JobId| tracing.result::<Option<String>>(id).await.expect("done");

    let submitter = submitting.submit(Submitter).trace(TRACE).await.expect("submitted");
    let ids = submitter.result().await.expect("done");
    for id in &ids[..5] {
        assert_eq!(trace_of(*id).await.as_deref(), Some(TRACE));
        assert_eq!(spans(*id, 1).await[0]["trace"], TRACE_ID);
    }
    assert_eq!(trace_of(ids[5]).await.as_deref(), Some(OTHER), "a trace given at submit wins");
    assert_eq!(trace_of(ids[6]).await, None, "a spawned task has no trace");

    let plain = submitting.submit(Submitter).await.expect("submitted");
    let ids = plain.result().await.expect("done");
    assert_eq!((trace_of(ids[0]).await, trace_of(ids[1]).await), (None, None));
    submitting.stop().await;
    tracing.stop().await;
}

/// Fails once, then ends in this way.
#[derive(Serialize, Deserialize)]
enum End {
    Done,
    Fail,
    Cancel,
    Hang,
}

impl Task for End {
    const KIND: &'static str = "end";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        match self {
            _ if cx.attempt() == 1 => Err(Failure::retry("not yet").class("early")),
            End::Done => Ok(()),
            End::Fail => Err(Failure::stop("x".repeat(10_000))),
            End::Cancel => Err(Failure::cancel("no longer wanted")),
            End::Hang => std::future::pending().await,
        }
    }

    fn retry() -> Retry {
        Retry::times(3).backoff(Duration::from_millis(1), Duration::from_millis(1))
    }
}

async fn a_span_records_the_outcome_of_its_attempt(url: &str) {
    record();
    let config = windlass::Config { drain: Duration::from_millis(10), ..Default::default() };
    let engine = Engine::builder(url).task::<End>().config(config);
    let engine = engine.start().await.expect("started");
    for (end, outcome, error) in
        [(End::Done, "done", 0), (End::Fail, "failed", 500), (End::Cancel, "cancelled", 16)]
    {
        let job = engine.submit(end).await.expect("submitted");
        let ended = spans(job.id(), 2).await;
        assert_eq!((ended[0]["outcome"].as_str(), ended[0]["error"].as_str()), ("retry", "early: not yet"));
        assert_eq!((ended[1]["outcome"].as_str(), ended[1]["attempt"].as_str()), (outcome, "2"));
        assert_eq!(ended[1].get("error").map_or(0, String::len), error, "{ended:?}");
    }
    let hung = engine.submit(End::Hang).await.expect("submitted");
    spans(hung.id(), 1).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while engine.counts().started < 8 {
        assert!(Instant::now() < deadline, "the second attempt does not start");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.stop().await;
    assert_eq!(spans(hung.id(), 2).await[1]["outcome"], "given_up");
}
