//! Workflows that catch a cancel and clean up.

use std::sync::Arc;

use windlass::{JobError, State, prelude::*, testing::Lab};

use super::{On, on_every_store, ran, times};

on_every_store!(
    a_parked_workflow_catches_a_cancel_and_cleans_up,
    a_cleanup_survives_a_crash_at_every_commit,
    a_cancel_outside_of_a_scope_ends_the_job,
    the_innermost_scope_catches,
    a_step_that_cleans_up_is_not_asked_to_stop,
    undos_run_after_the_cleanup,
    a_retried_job_is_not_cancelled_any_more,
    a_scope_that_ends_by_itself_returns_its_result,
);

/// Works in a scope, and cleans up when it is cancelled.
#[derive(Serialize, Deserialize)]
struct Scoped {
    how: String,
    run: String,
}

impl Workflow for Scoped {
    const KIND: &'static str = "scoped";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let Scoped { how, run } = &self;
        let note = |what: &str| ran(format!("{run}/{what}"));
        if how == "undo" {
            let run = run.clone();
            flow.step("rent", async || Ok(()))
                .undo(move |()| {
                    let order = ran(format!("{run}/order"));
                    ran(format!("{run}/undone as {order}"));
                    async { Ok(()) }
                })
                .await?;
        }
        if how == "before" {
            flow.sleep(days(10)).name("before").await;
        }
        let work = async {
            if how == "nested" {
                let inner = flow.catch_cancel("inner", flow.sleep(days(10)).name("inner_sleep")).await;
                flow.step("inner_cleanup", async || Ok(note("inner"))).await?;
                return inner.map(|()| "slept".to_owned()).map_err(Failure::from);
            }
            let go = flow.signal::<String>("go").timeout(days(30));
            let both = flow.select("either", (go, flow.sleep(days(20)).name("longest"))).await;
            match both {
                First2::A(go) => Ok(go?),
                First2::B(()) => Ok("slept".to_owned()),
            }
        };
        match flow.catch_cancel("work", work).await {
            Ok(result) => result,
            Err(cancelled) => {
                flow.step("cleanup", async || Ok(note("cleanup"))).await?;
                flow.sleep(hours(3)).name("settle").await;
                let asked = flow.step_with("ask", async |cx: StepCx| Ok(cx.is_cancelled())).await?;
                assert!(!asked, "a step that cleans up may run");
                flow.step("last", async || Ok(note("order"))).await?;
                match how.as_str() {
                    "ok" => Ok("as if nothing had happened".into()),
                    _ => Err(cancelled.into()),
                }
            }
        }
    }
}

fn kinds(engine: windlass::Builder) -> windlass::Builder {
    engine.workflow::<Scoped>()
}

fn scoped(how: &str, on: On) -> Scoped {
    Scoped { how: how.into(), run: format!("scoped/{how}/{on:?}") }
}

/// Submits a job, cancels it after an hour, and runs until it has ended.
async fn cancelled(lab: &Lab, job: Scoped) -> (windlass::testing::LabJob<Scoped>, Result<String, JobError>) {
    let job = lab.submit(job).await;
    lab.advance(hours(1)).await;
    lab.cancel(job).await.accepted().expect("accepted");
    lab.run().await;
    (job, lab.result(job).await)
}

async fn lab(on: On) -> Lab {
    let store = on.fresh().await;
    let url = store.url.clone();
    // The folder of the store lives as long as the process.
    std::mem::forget(store);
    Lab::on(&url, kinds).await
}

async fn a_parked_workflow_catches_a_cancel_and_cleans_up(on: On) {
    for how in ["plain", "ok"] {
        let lab = lab(on).await;
        let (job, result) = cancelled(&lab, scoped(how, on)).await;
        assert!(matches!(result, Err(JobError::Cancelled(_))), "{result:?}");
        assert_eq!(times(format!("scoped/{how}/{on:?}/cleanup")), 1);
        assert_eq!(lab.state(job).await, State::Cancelled);
    }
}

async fn a_cleanup_survives_a_crash_at_every_commit(on: On) {
    let scenario = async |lab: Arc<Lab>| {
        let (_, result) = cancelled(&lab, scoped("crash", on)).await;
        result.map_err(|error| error.to_string())
    };
    let report = on.crash(kinds, scenario).await;
    let error = report.outcome.as_ref().expect_err("cancelled");
    assert!(error.starts_with("the job was cancelled"), "{error}");
    assert!(report.commits >= 5, "{report:?}");
}

async fn a_cancel_outside_of_a_scope_ends_the_job(on: On) {
    let lab = lab(on).await;
    let (_, result) = cancelled(&lab, scoped("before", on)).await;
    assert!(matches!(result, Err(JobError::Cancelled(_))), "{result:?}");
    assert_eq!(times(format!("scoped/before/{on:?}/cleanup")), 0);
}

async fn the_innermost_scope_catches(on: On) {
    let lab = lab(on).await;
    let (_, result) = cancelled(&lab, scoped("nested", on)).await;
    assert!(matches!(result, Err(JobError::Cancelled(_))), "{result:?}");
    let run = format!("scoped/nested/{on:?}");
    assert_eq!((times(format!("{run}/inner")), times(format!("{run}/cleanup"))), (1, 0));
}

async fn a_step_that_cleans_up_is_not_asked_to_stop(on: On) {
    let lab = lab(on).await;
    let (job, _) = cancelled(&lab, scoped("cleans_up", on)).await;
    let journal = lab.journal(job).await;
    let asked = journal.iter().find(|entry| entry.name == "ask").expect("asked");
    assert_eq!(asked.payload.bytes, b"false");
}

async fn undos_run_after_the_cleanup(on: On) {
    let lab = lab(on).await;
    let (_, result) = cancelled(&lab, scoped("undo", on)).await;
    assert!(result.is_err());
    assert_eq!(times(format!("scoped/undo/{on:?}/undone as 2")), 1, "the cleanup was first");
}

async fn a_retried_job_is_not_cancelled_any_more(on: On) {
    let lab = lab(on).await;
    let (job, _) = cancelled(&lab, scoped("retried", on)).await;
    let control = lab.engine().await.control("test");
    control.retry(job.id()).await.expect("retried").accepted().expect("accepted");
    lab.signal(job, "go", "again").await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), "again");
}

async fn a_scope_that_ends_by_itself_returns_its_result(on: On) {
    let lab = lab(on).await;
    let job = lab.submit(scoped("done", on)).await;
    lab.advance(hours(1)).await;
    lab.signal(job, "go", "gone").await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), "gone");
    assert_eq!(times(format!("scoped/done/{on:?}/cleanup")), 0);
}
