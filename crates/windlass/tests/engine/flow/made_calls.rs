//! Calls that start when they are made: side by side, detached, and dropped without being awaited.

use windlass::{JobError, Reason, State, prelude::*, testing::Lab};

use super::{On, on_every_store, ran, times};

on_every_store!(
    children_that_are_made_one_after_the_other_run_side_by_side,
    a_call_that_ended_before_it_was_awaited_returns_its_result,
    a_signal_that_is_awaited_late_is_received,
    a_detached_child_is_submitted_once_and_not_waited_for,
    a_detached_child_is_submitted_although_the_workflow_fails,
    a_call_that_is_never_awaited_is_an_error_of_the_workflow,
    an_error_counts_more_than_a_call_that_it_leaves_unawaited,
    made_calls_survive_a_crash_at_every_commit,
);

/// A child that meets another one: both wait for the other's signal.
#[derive(Serialize, Deserialize)]
struct Meets {
    name: String,
    other: String,
}

impl Workflow for Meets {
    const KIND: &'static str = "meets";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        ran(format!("meets/{}", self.name));
        flow.sleep(hours(1)).await;
        Ok(format!("{} met {}", self.name, self.other))
    }
}

/// What a workflow does with its calls.
#[derive(Serialize, Deserialize)]
struct Makes {
    what: String,
    run: String,
}

impl Workflow for Makes {
    const KIND: &'static str = "makes";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let child = |name: &str| Meets { name: format!("{}/{name}", self.run), other: "the other".into() };
        match self.what.as_str() {
            "side_by_side" => {
                let began = flow.now();
                let (a, b) = (flow.child("a", child("a")), flow.child("b", child("b")).key(2));
                let both = vec![a.await?, b.await?];
                assert!(flow.now() - began < hours(2), "they ran one after the other");
                Ok(both)
            }
            "late" => {
                let a = flow.child("a", child("a"));
                let nap = flow.sleep(minutes(5)).name("nap");
                flow.sleep(days(1)).await;
                nap.await;
                let first = flow.select("first", (a, flow.sleep(days(30)).name("other"))).await;
                match first {
                    First2::A(a) => Ok(vec![a?]),
                    First2::B(()) => Err(Failure::stop("the child has ended long ago")),
                }
            }
            "signal" => {
                let signal = flow.signal::<String>("go").timeout(days(2));
                flow.step("work", async || Ok(())).await?;
                flow.sleep(days(1)).await;
                Ok(vec![signal.await?])
            }
            "detach" => {
                flow.child("a", child("a")).with(|child| child.tag("free")).detach();
                flow.step("work", async || Ok(())).await?;
                flow.child("b", child("b")).detach();
                Ok(Vec::new())
            }
            "detach_and_fail" => {
                flow.step("work", async || Ok(())).undo(async |()| Ok(())).await?;
                flow.child("a", child("a")).detach();
                Err(Failure::stop("no"))
            }
            "drop_child" => {
                drop(flow.child("a", child("a")));
                flow.step("work", async || Ok(())).await?;
                Ok(Vec::new())
            }
            "drop_started_child" => {
                let started = flow.child("a", child("a"));
                flow.step("work", async || Ok(())).await?;
                drop(started);
                flow.step("more", async || Ok(())).await?;
                Ok(Vec::new())
            }
            "drop_at_the_end" => {
                let _signal = flow.signal::<()>("go");
                let _sleep = flow.sleep(days(9));
                flow.step("work", async || Ok(())).await?;
                Ok(Vec::new())
            }
            "drop_step" => {
                drop(flow.step("work", async || Ok(())));
                Ok(Vec::new())
            }
            "drop_branch" => {
                let _ = flow.branch("letters").spawn_each("letter", 0..3_u32, move |_| Child::new(Noop));
                Ok(Vec::new())
            }
            "drop_and_fail" => {
                let _a = flow.child("a", child("a"));
                flow.step("work", async || Err::<(), _>(Failure::stop("broken"))).await?;
                Ok(Vec::new())
            }
            other => panic!("{other}"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Noop;

impl Task for Noop {
    const KIND: &'static str = "makes_noop";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

fn kinds(engine: windlass::Builder) -> windlass::Builder {
    engine.workflow::<Makes>().workflow::<Meets>().task::<Noop>()
}

fn makes(what: &str, on: On) -> Makes {
    Makes { what: what.into(), run: format!("{what}/{on:?}") }
}

async fn run(on: On, what: &str) -> (Lab, Result<Vec<String>, JobError>) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let job = lab.submit(makes(what, on)).await;
    lab.run().await;
    let result = lab.result(job).await;
    (lab, result)
}

async fn children_that_are_made_one_after_the_other_run_side_by_side(on: On) {
    let (_, result) = run(on, "side_by_side").await;
    assert_eq!(result.expect("done").len(), 2);
}

async fn a_call_that_ended_before_it_was_awaited_returns_its_result(on: On) {
    let (_, result) = run(on, "late").await;
    assert_eq!(result.expect("done").len(), 1);
}

async fn a_signal_that_is_awaited_late_is_received(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, kinds).await;
    let job = lab.submit(makes("signal", on)).await;
    lab.advance(hours(1)).await;
    lab.signal(job, "go", "now").await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), ["now"]);
}

async fn children_of(lab: &Lab) -> Vec<State> {
    let engine = lab.engine().await;
    let filter = windlass::Filter { kind: Some("meets".into()), limit: 10, ..Default::default() };
    let jobs = engine.inspect().jobs(&filter).await.expect("read").jobs;
    jobs.into_iter().map(|job| job.state).collect()
}

async fn a_detached_child_is_submitted_once_and_not_waited_for(on: On) {
    let report = on
        .crash(kinds, async |lab: std::sync::Arc<Lab>| {
            let began = lab.now();
            let job = lab.submit(makes("detach", on)).await;
            lab.advance(minutes(1)).await;
            let done = lab.state(job).await;
            lab.run().await;
            let engine = lab.engine().await;
            let children = engine.inspect().children(job.id(), None, 10).await.expect("read");
            let states: Vec<State> = children.iter().map(|child| child.state).collect();
            (done, states, lab.now() - began >= hours(1))
        })
        .await;
    assert_eq!(report.outcome, (State::Done, vec![State::Done, State::Done], true));
}

async fn a_detached_child_is_submitted_although_the_workflow_fails(on: On) {
    let (lab, result) = run(on, "detach_and_fail").await;
    assert_eq!(result.expect_err("failed").failure().expect("a failure").message, "no");
    assert_eq!(children_of(&lab).await.len(), 1);
}

async fn a_call_that_is_never_awaited_is_an_error_of_the_workflow(on: On) {
    let kinds = [
        ("drop_child", "child", ", or `.detach()` it"),
        ("drop_started_child", "child", ", or `.detach()` it"),
        ("drop_at_the_end", "sleep", "await it"),
        ("drop_step", "step", "await it"),
        ("drop_branch", "branch", "await it"),
    ];
    for (what, kind, hint) in kinds {
        let (_, result) = run(on, what).await;
        match result {
            Err(JobError::Failed { reason: Reason::Refused, failure, .. }) => {
                for part in [&format!("the {kind} that is made at "), "made_calls.rs", hint] {
                    assert!(failure.message.contains(part), "{what}: {failure}");
                }
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

async fn an_error_counts_more_than_a_call_that_it_leaves_unawaited(on: On) {
    let (_, result) = run(on, "drop_and_fail").await;
    assert_eq!(result.expect_err("failed").failure().expect("a failure").message, "broken");
}

async fn made_calls_survive_a_crash_at_every_commit(on: On) {
    for what in ["side_by_side", "late"] {
        let scenario = async |lab: std::sync::Arc<Lab>| {
            let job = lab.submit(makes(what, on)).await;
            lab.run().await;
            lab.result(job).await.map_err(|error| error.to_string())
        };
        let report = on.crash(kinds, scenario).await;
        assert!(report.outcome.is_ok(), "{report:?}");
        assert!(report.crashes >= 2 * report.commits - 2, "{report:?}");
    }
    assert!(times(format!("meets/side_by_side/{on:?}/a")) >= 2);
}
