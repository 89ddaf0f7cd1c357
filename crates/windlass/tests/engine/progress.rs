//! Attempts that report their progress: what people see of it, and heartbeat timeouts.

use windlass::{Cause, Config, Progress, Reason, model::failure::class, prelude::*};

use crate::{
    common::{gate, until},
    on_both_stores,
};

on_both_stores!(
    the_progress_of_a_running_task_is_shown_until_it_ends,
    the_progress_of_a_step_names_the_step,
    code_that_stops_reporting_times_out,
);

/// Reports three of four, and waits at its gate.
#[derive(Serialize, Deserialize)]
struct Reports {
    gate: String,
}

impl Task for Reports {
    const KIND: &'static str = "reports";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        cx.progress(1, None, "starting");
        cx.progress(3, 4, "page 3");
        gate(&self.gate).acquire().await.map_err(Failure::stop)?.forget();
        Ok(())
    }
}

/// The same in a step.
#[derive(Serialize, Deserialize)]
struct StepReports {
    gate: String,
}

impl Workflow for StepReports {
    const KIND: &'static str = "step_reports";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.step_with("fetch", async |cx| {
            cx.progress(3, 4, "page 3");
            gate(&self.gate).acquire().await.map_err(Failure::stop)?.forget();
            Ok(())
        })
        .await
    }
}

async fn start(url: &str) -> Engine {
    let config = Config { renew_every: Duration::from_millis(20), ..Config::default() };
    let builder = Engine::builder(url).task::<Reports>().workflow::<StepReports>().config(config);
    builder.start().await.expect("started")
}

async fn shown<J>(job: &Handle<J>) -> Progress {
    let mut shown = None;
    until("its progress is shown", async || {
        shown = job.progress().await.expect("read").filter(|progress| progress.done == 3);
        shown.is_some()
    })
    .await;
    shown.expect("shown")
}

async fn the_progress_of_a_running_task_is_shown_until_it_ends(url: &str) {
    let engine = start(url).await;
    let name = format!("reports/{url}");
    let job = engine.submit(Reports { gate: name.clone() }).await.expect("submitted");
    let progress = shown(&job).await;
    assert_eq!((progress.total, &*progress.note, progress.step), (Some(4), "page 3", None));
    let why = job.why().await.expect("explained");
    assert_eq!(why.cause, Cause::Running);
    assert!(why.because.contains("Its progress: 3 of 4 (75 %), page 3, "), "{}", why.because);
    gate(&name).add_permits(1);
    job.result().await.expect("done");
    assert_eq!(job.progress().await.expect("read"), None);
    engine.stop().await;
}

async fn the_progress_of_a_step_names_the_step(url: &str) {
    let engine = start(url).await;
    let name = format!("step reports/{url}");
    let job = engine.submit(StepReports { gate: name.clone() }).await.expect("submitted");
    assert_eq!(shown(&job).await.step.as_deref(), Some("fetch"));
    gate(&name).add_permits(1);
    job.result().await.expect("done");
    engine.stop().await;
}

/// How long those that stop reporting may be silent.
const SILENCE: Duration = Duration::from_millis(50);

/// Reports once, and never again.
#[derive(Serialize, Deserialize)]
struct Silent;

impl Task for Silent {
    const KIND: &'static str = "silent";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        cx.progress(1, None, "");
        std::future::pending().await
    }

    fn retry() -> Retry {
        Retry::times(2).backoff(Duration::ZERO, Duration::ZERO)
    }

    fn heartbeat_timeout() -> Option<Duration> {
        Some(SILENCE)
    }
}

/// The same in a step.
#[derive(Serialize, Deserialize)]
struct SilentStep;

impl Workflow for SilentStep {
    const KIND: &'static str = "silent_step";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let step = flow.step_with("hang", async |cx| -> Result<(), Failure> {
            cx.progress(1, None, "");
            std::future::pending().await
        });
        let failed = step.retry(Retry::never()).heartbeat_timeout(SILENCE).await;
        Ok(failed.expect_err("it hangs").message)
    }
}

/// The same in a stage of a machine.
#[derive(Serialize, Deserialize)]
enum SilentMachine {
    Hang,
    Give(String),
}

impl Machine for SilentMachine {
    const KIND: &'static str = "silent_machine";
    type Output = String;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        match self {
            SilentMachine::Hang => {
                cx.progress(1, None, "");
                std::future::pending().await
            }
            SilentMachine::Give(message) => Ok(Next::done(message)),
        }
    }

    async fn on_error(self, failure: Failure, _cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(Next::to(SilentMachine::Give(failure.message)))
    }

    fn heartbeat_timeout(&self) -> Option<Duration> {
        matches!(self, SilentMachine::Hang).then_some(SILENCE)
    }
}

async fn code_that_stops_reporting_times_out(url: &str) {
    let builder = Engine::builder(url).task::<Silent>().workflow::<SilentStep>().machine::<SilentMachine>();
    let engine = builder.start().await.expect("started");
    let task = engine.submit(Silent).await.expect("submitted");
    match task.result().await {
        Err(JobError::Failed { reason, failure, .. }) => {
            assert_eq!((reason, &*failure.class), (Reason::Timeout, class::TIMEOUT));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        engine.inspect().history(task.id()).await.expect("read").len(),
        2,
        "it is retried like any other"
    );
    let step = engine.submit(SilentStep).await.expect("submitted").result().await.expect("handled");
    let stage = engine.submit(SilentMachine::Hang).await.expect("submitted").result().await.expect("handled");
    for message in [step, stage] {
        assert!(message.contains("no progress for 50ms"), "{message}");
    }
    engine.stop().await;
}
