//! Every call of a workflow with a worker that dies before and after each commit.

use std::{ops::ControlFlow, time::Duration};

use futures_util::future::{join_all, try_join};
use windlass::{CatchUp, First2, JobError, OnError, Unit, prelude::*};

use super::{On, on_every_store, ran, times};

on_every_store!(
    steps_sleeps_and_signals_survive_every_crash,
    concurrent_steps_survive_every_crash,
    children_survive_every_crash,
    a_select_survives_every_crash,
    wait_until_survives_every_crash,
    continue_if_survives_every_crash,
    a_repeat_survives_every_crash,
    a_failed_step_survives_every_crash,
    a_retried_step_survives_every_crash,
    continue_as_new_survives_every_crash,
    a_context_survives_every_crash,
    the_newest_value_of_a_context_survives_every_crash,
    undos_survive_every_crash,
    time_and_random_numbers_survive_every_crash,
);

/// Steps, a sleep and a signal, one after the other.
#[derive(Serialize, Deserialize)]
struct Long;

impl Workflow for Long {
    const KIND: &'static str = "long";
    type Output = (u32, String, u32);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u32, String, u32), Failure> {
        let one = flow.step("one", async || Ok(1)).await?;
        flow.sleep(days(30)).await;
        let two = flow.signal::<String>("two").await?;
        let mut sum = 0;
        for n in 0..3_u32 {
            sum += flow.step("add", || async move { Ok(n) }).key(n).await?;
        }
        Ok((one, two, sum))
    }
}

async fn steps_sleeps_and_signals_survive_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Long>(),
            async |lab| {
                let began = lab.now();
                let job = lab.submit(Long).await;
                lab.signal(job, "two", "zwei").await;
                lab.run().await;
                let slept = lab.now() - began;
                assert!(slept >= days(30) && slept < days(30) + hours(1), "{slept:?}");
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok((1, "zwei".to_owned(), 3)));
    assert!(report.crashes >= 2 * 7, "{report:?}");
}

/// Concurrent steps.
#[derive(Serialize, Deserialize)]
struct Many;

impl Workflow for Many {
    const KIND: &'static str = "many";
    type Output = Vec<u32>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<u32>, Failure> {
        let step = |n: u32| {
            let pause = Duration::from_millis(u64::from(40 - n));
            flow.step("n", move || async move {
                tokio::time::sleep(pause).await;
                Ok(n)
            })
            .key(n)
        };
        let all = join_all((0..40).map(step)).await;
        let (left, right) =
            try_join(flow.step("left", async || Ok(100)), flow.step("right", async || Ok(200))).await?;
        let mut all = all.into_iter().collect::<Result<Vec<u32>, Failure>>()?;
        all.extend([left, right]);
        Ok(all)
    }
}

async fn concurrent_steps_survive_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Many>(),
            async |lab| {
                let job = lab.submit(Many).await;
                lab.run().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    let all: Vec<u32> = (0..40).chain([100, 200]).collect();
    assert_eq!(report.outcome, Ok(all));
}

#[derive(Serialize, Deserialize)]
struct Double(u32);

impl Task for Double {
    const KIND: &'static str = "flow_double";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        if self.0 == 13 { Err(Failure::stop("unlucky")) } else { Ok(self.0 * 2) }
    }
}

#[derive(Serialize, Deserialize)]
struct Parent;

impl Workflow for Parent {
    const KIND: &'static str = "parent";
    type Output = (u32, u32, String);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u32, u32, String), Failure> {
        let first = flow.child("first", Double(1)).await?;
        let (second, third) =
            tokio::join!(flow.child("second", Double(first)), flow.child("third", Double(13)));
        Ok((first, second?, third.expect_err("unlucky").message))
    }
}

async fn children_survive_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Parent>().task::<Double>(),
            async |lab| {
                let job = lab.submit(Parent).await;
                lab.run().await;
                let (first, second, third) = lab.result(job).await.map_err(|error| error.to_string())?;
                let unlucky = third.ends_with("failed (stopped): unlucky");
                // However often the parent was replayed, each child was submitted once.
                let children = lab.engine().await.inspect().children(job.id(), None, 99).await;
                let children = children.expect("children").len();
                Ok::<_, String>((first, second, unlucky, children))
            },
        )
        .await;
    assert_eq!(report.outcome, Ok((2, 4, true, 3)));
}

#[derive(Serialize, Deserialize)]
struct Decide;

impl Workflow for Decide {
    const KIND: &'static str = "decide";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let mut answers = Vec::new();
        for turn in 0..2 {
            let signal = flow.signal::<String>("approve").key(turn);
            let late = flow.sleep(hours(1)).name("late").key(turn);
            match flow.select("decision", (signal, late)).key(turn).await {
                First2::A(name) => answers.push(name?),
                First2::B(()) => answers.push("late".into()),
            }
        }
        Ok(answers)
    }
}

async fn a_select_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Decide>(),
            async |lab| {
                let job = lab.submit(Decide).await;
                lab.signal(job, "approve", "ann").await;
                lab.run_past_timeouts().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok(vec!["ann".to_owned(), "late".to_owned()]));
}

/// Waits for a condition that holds at the fourth check, and for one that never holds.
#[derive(Serialize, Deserialize)]
struct Watch;

impl Workflow for Watch {
    const KIND: &'static str = "watch";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let id = flow.id();
        let warm = || async move { Ok(ran(format!("{id}/warm")) >= 4) };
        flow.wait_until("warm", warm).every(minutes(2)).timeout(hours(1)).await?;
        let never = flow.wait_until("never", async || Ok(false));
        let never = never.every(minutes(10)).timeout(minutes(25)).await;
        Ok(never.expect_err("it never holds").class.into_owned())
    }
}

async fn wait_until_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Watch>(),
            async |lab| {
                let began = lab.now();
                let job = lab.submit(Watch).await;
                lab.run().await;
                let took = lab.now() - began;
                // A check that a crash interrupted is repeated at once.
                assert!(took >= minutes(25) && took <= minutes(32), "{took:?}");
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok("timeout".to_owned()));
}

#[derive(Serialize, Deserialize)]
struct Gate;

impl Workflow for Gate {
    const KIND: &'static str = "gate";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let open = |more: Option<u32>| async move { Ok(more.filter(|more| *more > 2)) };
        flow.continue_if("open", open).timeout(days(1)).await
    }
}

async fn continue_if_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Gate>(),
            async |lab| {
                // One has all its signals before it starts, the other receives them while it waits.
                let engine = lab.engine().await;
                let late = engine.submit(Gate).delay(minutes(1)).await.expect("submitted");
                let late = lab.job::<Gate>(late.id());
                for n in 1..=4_u32 {
                    lab.signal(late, "open", n).await;
                }
                let early = lab.submit(Gate).await;
                for n in 1..=3_u32 {
                    lab.signal(early, "open", n).await;
                    lab.advance(seconds(1)).await;
                }
                lab.run().await;
                (lab.result(late).await.ok(), lab.result(early).await.ok())
            },
        )
        .await;
    assert_eq!(report.outcome, (Some(3), Some(3)));
}

#[derive(Serialize, Deserialize)]
struct Invoices;

impl Workflow for Invoices {
    const KIND: &'static str = "invoices";
    type Output = (Option<u32>, Option<u32>);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(Option<u32>, Option<u32>), Failure> {
        let monthly = Calendar::every(1, Unit::Months).map_err(Failure::stop)?;
        let id = flow.id();
        let broken = flow
            .repeat("bill", monthly, move |tick, cx| async move {
                ran(format!("{id}/{tick}"));
                if cx.attempt() == 1 && tick.to_string().contains("-03-") {
                    return Err(Failure::retry("the printer is out of ink"));
                }
                Ok(ControlFlow::<u32>::Continue(()))
            })
            .times(5)
            .await?;
        let hourly = Calendar::every(1, Unit::Hours).map_err(Failure::stop)?;
        let third = flow
            .repeat("third", hourly, move |tick, _| async move {
                if ran(format!("{id}/third/{tick}")) == 0 {
                    return Err(Failure::stop("never"));
                }
                match ran(format!("{id}/thirds")) {
                    n if n >= 3 => Ok(ControlFlow::Break(3)),
                    _ => Ok(ControlFlow::Continue(())),
                }
            })
            .on_error(OnError::Fail)
            .catch_up(CatchUp::Skip)
            .await?;
        Ok((broken, third))
    }
}

async fn a_repeat_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Invoices>(),
            async |lab| {
                let began = lab.now();
                let job = lab.submit(Invoices).await;
                lab.run().await;
                let took = lab.now() - began;
                assert!(took > days(4 * 28) && took < days(6 * 31), "{took:?}");
                assert!(lab.journal(job).await.len() < 40, "{}", lab.journal(job).await.len());
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok((None, Some(3))));
}

#[derive(Serialize, Deserialize)]
struct Brittle;

impl Workflow for Brittle {
    const KIND: &'static str = "brittle";
    type Output = (String, String);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(String, String), Failure> {
        let id = flow.id();
        let failed = flow.step("breaks", || async move {
            ran(format!("{id}/breaks"));
            Err::<u32, _>(Failure::stop("broken").class("glass"))
        });
        let failed = failed.await.expect_err("it breaks");
        flow.sleep(minutes(1)).await;
        Ok((failed.class.into_owned(), failed.message))
    }
}

async fn a_failed_step_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Brittle>(),
            async |lab| {
                let job = lab.submit(Brittle).await;
                lab.run().await;
                assert!(times(format!("{}/breaks", job.id())) <= 2, "once, and once more if the worker died");
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok(("glass".into(), "broken".into())));
}

#[derive(Serialize, Deserialize)]
struct Retried;

impl Workflow for Retried {
    const KIND: &'static str = "retried";
    type Output = (u32, u32);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u32, u32), Failure> {
        let third = flow.step_with("third", |cx| async move {
            if cx.attempt() < 3 { Err(Failure::retry("not yet")) } else { Ok(cx.attempt()) }
        });
        let third = third.retry(Retry::times(5).backoff(minutes(10), hours(1))).await?;
        let never = flow.step_with("never", |cx| async move {
            Err::<(), _>(Failure::retry(format!("try {}", cx.attempt())))
        });
        let never = never.retry(Retry::times(2)).await.expect_err("it never works");
        assert_eq!(never.message, "try 2");
        Ok((third, 2))
    }
}

async fn a_retried_step_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Retried>(),
            async |lab| {
                let began = lab.now();
                let job = lab.submit(Retried).await;
                lab.run().await;
                assert!(lab.now() - began >= minutes(20), "it waited between its attempts");
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok((3, 2)));
}

#[derive(Serialize, Deserialize)]
struct Count {
    from: u32,
}

impl Workflow for Count {
    const KIND: &'static str = "count";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let from = self.from;
        let known: u32 = flow.context().get("at")?.unwrap_or_default();
        if known != from {
            return Err(Failure::stop(format!("the context says {known} and the input {from}")));
        }
        let next = flow.step("next", || async move { Ok(from + 1) }).await?;
        flow.context().set("at", next)?;
        if next < 4 {
            return flow.continue_as_new(Count { from: next }).await;
        }
        Ok(next)
    }
}

async fn continue_as_new_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Count>(),
            async |lab| {
                let job = lab.submit(Count { from: 0 }).await;
                lab.run().await;
                let (journal, at) = (lab.journal(job).await.len(), lab.context::<_, u32>(job, "at").await);
                let result = lab.result(job).await.map_err(|error| error.to_string());
                (result, at, journal)
            },
        )
        .await;
    assert_eq!(
        report.outcome,
        (Ok(4), Some(4), 2),
        "the journal has only the last run, and the context from before it"
    );
}

#[derive(Serialize, Deserialize)]
struct Notes;

impl Workflow for Notes {
    const KIND: &'static str = "notes";
    type Output = (u32, bool, bool);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u32, bool, bool), Failure> {
        flow.context().set("outside", 1)?;
        flow.step_with("sets", |cx| async move {
            cx.set("inside", 20)?;
            Ok(())
        })
        .await?;
        flow.sleep(days(1)).await;
        let once = flow.context().set_once("inside", 99)?;
        let first = flow.context().set_once("late", true)?;
        let inside: u32 = flow.context().get("inside")?.unwrap_or_default();
        let outside: u32 = flow.context().get("outside")?.unwrap_or_default();
        flow.step("after", async || Ok(())).await?;
        Ok((inside + outside, once, first))
    }
}

async fn a_context_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Notes>(),
            async |lab| {
                let job = lab.submit(Notes).await;
                lab.run().await;
                let seen = lab.engine().await.context(job.id()).await.expect("a context");
                let seen = serde_json::to_string(&seen).expect("plain data");
                (lab.result(job).await.map_err(|error| error.to_string()), seen)
            },
        )
        .await;
    let seen = r#"{"inside":20,"late":true,"outside":1}"#;
    assert_eq!(report.outcome, (Ok((21, false, true)), seen.to_owned()));
}

/// Values that steps and ticks set repeatedly.
#[derive(Serialize, Deserialize)]
struct Newest;

impl Workflow for Newest {
    const KIND: &'static str = "newest";
    type Output = (u32, u32, u32);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u32, u32, u32), Failure> {
        for n in 1..=3_u32 {
            let set = flow.step_with("set", move |cx| async move { cx.set("x", n) });
            set.key(n).await?;
        }
        let hourly = Calendar::every(1, Unit::Hours).map_err(Failure::stop)?;
        let tick = |_, cx: StepCx| async move {
            let n = ran(format!("{}/ticks", cx.id()));
            cx.set("ticks", n)?;
            Ok(ControlFlow::<()>::Continue(()))
        };
        flow.repeat("tick", hourly, tick).times(4).await?;
        flow.sleep(hours(1)).await;
        let get = |name: &str| flow.context().get::<u32>(name).map(|value| value.unwrap_or_default());
        // A call that was skipped does not make the version of later code old.
        let first = flow.sleep(minutes(1)).name("first");
        flow.select("either", (first, flow.sleep(minutes(3)).name("slow"))).await;
        flow.step("between", async || Ok(())).await?;
        Ok((get("x")?, get("ticks")?.min(4), flow.version("new", 7)))
    }
}

async fn the_newest_value_of_a_context_survives_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Newest>(),
            async |lab| {
                let job = lab.submit(Newest).await;
                lab.run().await;
                let seen = (lab.context::<_, u32>(job, "x").await, lab.context::<_, u32>(job, "ticks").await);
                let journal = lab.journal(job).await;
                let left = journal
                    .iter()
                    .filter(|entry| entry.call_kind == windlass::model::journal::CallKind::Context);
                let (x, ticks) = (seen.0, seen.1.map(|ticks| ticks.min(4)));
                (lab.result(job).await.map_err(|error| error.to_string()), x, ticks, left.count())
            },
        )
        .await;
    assert_eq!(
        report.outcome,
        (Ok((3, 4, 7)), Some(3), Some(4), 4),
        "of the values that ticks set, the last of each name is kept in the journal"
    );
}

#[derive(Serialize, Deserialize)]
struct Trip {
    ends: String,
}

impl Workflow for Trip {
    const KIND: &'static str = "trip";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        for part in ["hotel", "flight", "car"] {
            flow.step("book", move || async move { Ok(part.to_owned()) })
                .key(part)
                .undo(move |part| async move {
                    ran(format!("{id}/undo/{part}"));
                    let order = ran(format!("{id}/order"));
                    if part == "flight" && order == 2 {
                        return Err(Failure::retry("the line is busy"));
                    }
                    Ok(())
                })
                .await?;
        }
        match self.ends.as_str() {
            "fails" => flow.step("pay", || async { Err::<(), _>(Failure::stop("no money")) }).await,
            _ => flow.signal("never").await,
        }
    }
}

async fn undos_survive_every_crash(on: On) {
    for ends in ["fails", "cancelled"] {
        let report = on
            .crash(
                |engine| engine.workflow::<Trip>(),
                async |lab| {
                    let job = lab.submit(Trip { ends: ends.into() }).await;
                    lab.run().await;
                    if ends == "cancelled" {
                        lab.cancel(job).await.accepted().expect("accepted");
                        lab.run().await;
                    }
                    let undone: Vec<String> = lab
                        .journal(job)
                        .await
                        .into_iter()
                        .filter(|entry| entry.event == windlass::model::journal::CallEvent::Undone)
                        .map(|entry| entry.key.unwrap_or_default())
                        .collect();
                    let message = match lab.result(job).await {
                        Err(JobError::Failed { failure, .. }) => failure.message,
                        Err(JobError::Cancelled(failure)) => failure.message,
                        other => format!("{other:?}"),
                    };
                    (undone, message)
                },
            )
            .await;
        let message = if ends == "fails" { "no money" } else { "cancelled by lab" };
        let undone: Vec<String> = ["car", "flight", "hotel"].map(String::from).into();
        assert_eq!(report.outcome, (undone, message.to_owned()), "{ends}");
    }
}

#[derive(Serialize, Deserialize)]
struct TimeAndRandom;

impl Workflow for TimeAndRandom {
    const KIND: &'static str = "time_and_random";
    type Output = bool;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<bool, Failure> {
        let (now, one, two) = (flow.now(), flow.random(), flow.random());
        let kept = flow.step("kept", move || async move { Ok((now, one, two)) }).await?;
        flow.sleep(days(2)).await;
        let later = flow.now();
        let again = flow.step("again", move || async move { Ok(later) }).await?;
        let at = later + days(5);
        flow.sleep_until(at).name("until").await;
        let same = kept == (now, one, two) && one != two && again == later && flow.now() >= at;
        Ok(same && later - now >= days(2) && flow.version("v", 2) == 2)
    }
}

async fn time_and_random_numbers_survive_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<TimeAndRandom>(),
            async |lab| {
                let job = lab.submit(TimeAndRandom).await;
                lab.run().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok(true));
}
