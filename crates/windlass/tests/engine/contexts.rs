//! Contexts that a unit test builds: the code of tasks, machines, steps and undos runs without an engine.

use windlass::{
    ChildrenError, JobError, SignalError, Time,
    prelude::*,
    testing::{self, CancelSwitch, Lab},
};

/// The data of the program.
struct Limit(u32);

/// Returns what it knows, or waits until it is cancelled.
#[derive(Serialize, Deserialize)]
struct Knows {
    hangs: bool,
}

impl Task for Knows {
    const KIND: &'static str = "context_knows";
    type Output = (u32, u32);
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(u32, u32), Failure> {
        if self.hangs {
            cx.cancelled().await;
            return Err(Failure::stop("cancelled"));
        }
        Ok((cx.attempt(), cx.data::<Limit>().0))
    }
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
enum Trip {
    Book,
    Booked,
    Fail,
}

impl Machine for Trip {
    const KIND: &'static str = "context_trip";
    type Output = Vec<String>;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Trip>, Failure> {
        Ok(match self {
            Trip::Book => Next::wait(Trip::Booked, WaitFor::all(["hotel", "train"])).timeout(days(2)),
            Trip::Booked if cx.timed_out() => Next::retry_after(Trip::Booked, hours(1)),
            Trip::Booked => Next::done(cx.signals("hotel")?),
            Trip::Fail => Next::stop("no"),
        })
    }
}

#[test]
fn a_context_has_what_the_test_sets() {
    let id: JobId = "0199f0c2-6f7a-7000-8000-000000000000".parse().expect("an id");
    let cx = testing::task_cx()
        .id(id)
        .key("mine")
        .data(Limit(3))
        .attempt(4)
        .fence(9)
        .tick(Time(5))
        .traceparent("00-1-2-01");
    let cx = cx.build();
    assert_eq!((cx.id(), cx.key(), cx.attempt(), cx.fence()), (id, Some("mine"), 4, 9));
    assert_eq!((cx.tick(), cx.traceparent().as_deref()), (Some(Time(5)), Some("00-1-2-01")));
    assert_eq!((cx.data::<Limit>().0, cx.try_data::<String>()), (3, None));
    let first = testing::task_cx().build();
    assert_eq!((first.attempt(), first.key(), first.tick(), first.is_cancelled()), (1, None, None, false));
    assert_ne!(first.id(), testing::task_cx().build().id());
    let undo = testing::undo_cx().id(id).attempt(2).data(Limit(1)).build();
    assert_eq!((undo.undo_id(), undo.attempt()), (format!("undo:{id}/step"), 2));
    assert_eq!((undo.id(), undo.data::<Limit>().0), (id, 1));
}

#[tokio::test]
async fn a_task_runs_on_a_context_of_a_test() {
    let cx = testing::task_cx().data(Limit(7)).attempt(3).build();
    assert_eq!(Knows { hangs: false }.run(&cx).await.expect("done"), (3, 7));
    let cancelled = testing::task_cx().cancelled().build();
    assert!(Knows { hangs: true }.run(&cancelled).await.is_err());
    let switch = CancelSwitch::new();
    let cx = testing::task_cx().cancelled_by(&switch).build();
    let run = tokio::spawn(async move { Knows { hangs: true }.run(&cx).await });
    tokio::task::yield_now().await;
    assert!(!run.is_finished());
    switch.cancel();
    assert!(run.await.expect("no panic").is_err());
}

#[test]
#[should_panic(expected = "Limit`, and the context of this test was given none; add `.data(value)`")]
fn missing_data_is_a_panic_that_says_what_to_write() {
    testing::step_cx().build().data::<Limit>();
}

#[test]
#[should_panic(expected = "has no engine; give it one with `.engine(&engine)`")]
fn a_missing_engine_is_a_panic_that_says_what_to_write() {
    testing::task_cx().build().engine();
}

#[tokio::test]
async fn a_context_has_the_engine_that_it_was_given() {
    let lab = Lab::new(|engine| engine.task::<Knows>().data(Limit(1))).await;
    let cx = testing::step_cx().engine(&lab.engine().await).build();
    let job = cx.engine().submit(Knows { hangs: false }).await.expect("submitted");
    lab.run().await;
    assert_eq!(lab.result(lab.job::<Knows>(job.id())).await.expect("done"), (1, 1));
}

#[tokio::test]
async fn a_machine_sees_the_signals_that_it_waited_for() {
    let next = Trip::Book.step(&testing::machine_cx().build()).await.expect("a step");
    assert_eq!((next.stage(), next.wait_time()), (Some(&Trip::Booked), Some(days(2))));
    assert_eq!(next.signals(), Some(&WaitFor::all(["hotel", "train"])));
    let both = testing::machine_cx().signal("hotel", "Ritz").signal("hotel", "Plaza").signal("train", "ICE");
    let next = Trip::Booked.step(&both.build()).await.expect("a step");
    assert_eq!(next.output(), Some(&vec!["Ritz".to_owned(), "Plaza".to_owned()]));
    let one = || testing::machine_cx().waited_for(WaitFor::all(["hotel", "train"])).signal("hotel", "Ritz");
    assert!(one().build().timed_out());
    let next = Trip::Booked.step(&one().build()).await.expect("a step");
    assert_eq!((next.stage(), next.wait_time()), (Some(&Trip::Booked), Some(hours(1))), "{next:?}");
    let next = Trip::Fail.step(&testing::machine_cx().build()).await.expect("a step");
    assert_eq!(next.failure().expect("failed").message, "no");
    let cx = testing::machine_cx().signal("hotel", 7).build();
    assert!(matches!(cx.signal::<String>("hotel"), Err(SignalError::Undecodable { .. })));
    assert!(matches!(cx.signal::<String>("boat"), Err(SignalError::NotWaited(_))));
}

#[tokio::test]
async fn a_machine_sees_the_children_that_it_waited_for() {
    let cx = testing::machine_cx().child_done("page", Some("a"), 1).child_failed(
        "page",
        None,
        Failure::stop("torn"),
    );
    let cx = cx.build();
    assert!(!cx.timed_out());
    let children = cx.children::<u32>().await.expect("children");
    assert_eq!((children[0].key.as_deref(), children[0].result.as_ref().ok()), (Some("a"), Some(&1)));
    assert!(matches!(&children[1].result, Err(JobError::Failed { .. })), "{children:?}");
    let cx = testing::machine_cx().child_unfinished("page", None).build();
    assert!(cx.timed_out());
    assert!(matches!(cx.children::<u32>().await.expect("children")[0].result, Err(JobError::Unfinished(_))));
    let none = testing::machine_cx().build().children::<u32>().await;
    assert!(matches!(none, Err(ChildrenError::NotWaited)));
}

#[tokio::test]
async fn what_a_step_sets_can_be_read() {
    let cx = testing::step_cx().step_id("job/charge").key("k").attempt(2).build();
    assert_eq!((cx.step_id(), cx.key(), cx.attempt()), ("job/charge", Some("k"), 2));
    cx.set("charged", 5).expect("set");
    cx.clone().set("charged", 6).expect("set");
    assert_eq!(testing::values_set(&cx)["charged"], 6);
    assert!(cx.set("no\0name", 1).is_err(), "as in a running workflow");
    assert!(!cx.is_cancelled());
    testing::step_cx().cancelled().build().cancelled().await;
}

/// A context of a test has no store: these return errors instead of empty answers.
#[tokio::test]
async fn calls_that_need_a_store_say_so() {
    let machine = testing::machine_cx().build();
    let opened = machine.branch("pages").spawn("page", Child::new(Knows { hangs: false })).open().await;
    let merged = machine.merged("pages").await.map(drop);
    let step = testing::step_cx().build();
    let context = step.context_of(step.id()).await.map(drop);
    for (result, call) in [(opened, "`branch`"), (merged, "`merged`"), (context, "`context_of`")] {
        let failure = result.expect_err(call);
        assert!(failure.message.starts_with(call) && failure.message.contains("testing::Lab"), "{failure}");
    }
}
