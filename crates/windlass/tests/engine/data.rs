//! The program's own data, which the code of jobs gets by its type, and the engine that it runs in.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use windlass::{OnError, Reason, Unit, prelude::*, store::ChildStates, testing::Lab};

use crate::{
    common::until,
    flow::{On, on_every_store},
};

on_every_store!(
    data_reaches_all_code_of_jobs,
    data_that_was_never_given_fails_the_job_at_once,
    data_that_an_error_handler_lacks_fails_the_job,
    jobs_submit_others_with_the_engine_that_they_run_in,
    data_is_dropped_with_its_engine,
);

/// What the code of jobs noted, in the order in which it ran.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().expect("not poisoned").push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("not poisoned"))
    }
}

/// Data that no engine is given.
struct Absent;

/// Notes that it ran, and asks for absent data if it should.
#[derive(Serialize, Deserialize)]
struct Note {
    asks: bool,
}

impl Task for Note {
    const KIND: &'static str = "data_note";
    type Output = ();
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<(), Failure> {
        cx.data::<Ledger>().note("task");
        assert!(cx.try_data::<Absent>().is_none() && cx.try_data::<Ledger>().is_some());
        if self.asks {
            cx.data::<Ledger>().note(format!("asks in line {}", line!() + 1));
            cx.data::<Absent>();
        }
        Ok(())
    }
}

/// Fails in its only step, and ends in `on_error`.
#[derive(Serialize, Deserialize)]
enum Stages {
    Begin { asks: String },
}

impl Machine for Stages {
    const KIND: &'static str = "data_stages";
    type Output = ();
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Stages>, Failure> {
        let Stages::Begin { asks } = self;
        cx.data::<Ledger>().note("machine");
        if asks == "step" {
            cx.data::<Ledger>().note(format!("asks in line {}", line!() + 1));
            cx.data::<Absent>();
        }
        Err(Failure::retry("busy"))
    }

    async fn on_error(self, failure: Failure, cx: &MachineCx) -> Result<Next<Stages>, Failure> {
        let Stages::Begin { asks } = self;
        cx.data::<Ledger>().note(format!("on_error after {}", failure.class));
        match asks.as_str() {
            "step" => return Ok(Next::by_policy(failure)),
            "on_error" => {
                cx.data::<Ledger>().note(format!("asks in line {}", line!() + 1));
                cx.data::<Absent>();
            }
            _ => {}
        }
        Ok(Next::done(()))
    }
}

/// Uses data in every place where a workflow can, and asks for absent data in one of them. Fails in the end, to be undone, unless
/// an item or a tick asked.
#[derive(Serialize, Deserialize)]
struct Places {
    asks: String,
}

impl Workflow for Places {
    const KIND: &'static str = "data_places";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        let asks = |place: &str| self.asks == place;
        let ledger = flow.data::<Ledger>().clone();
        flow.step("flow", async || {
            ledger.note("flow");
            Ok(())
        })
        .await?;
        if asks("flow") {
            ledger.note(format!("asks in line {}", line!() + 1));
            flow.data::<Absent>();
        }
        let (step_asks, undo_asks, tick_asks, item_asks) =
            (asks("step"), asks("undo"), asks("tick"), asks("item"));
        let step = flow.step_with("step", move |cx| async move {
            cx.data::<Ledger>().note("step");
            assert!(cx.try_data::<Absent>().is_none());
            if step_asks {
                cx.data::<Ledger>().note(format!("asks in line {}", line!() + 1));
                cx.data::<Absent>();
            }
            Ok(())
        });
        step.undo_with(move |cx, ()| async move {
            cx.data::<Ledger>().note("undo");
            assert!(cx.try_data::<Absent>().is_none());
            if undo_asks {
                cx.data::<Ledger>().note(format!("asks in line {}", line!() + 1));
                cx.data::<Absent>();
            }
            Ok(())
        })
        .await?;
        let ticks = flow.repeat("tick", Calendar::every(1, Unit::Days)?, move |_, cx| async move {
            cx.data::<Ledger>().note("tick");
            if tick_asks {
                cx.data::<Ledger>().note(format!("asks in line {}", line!() + 1));
                cx.data::<Absent>();
            }
            Ok(ControlFlow::<()>::Continue(()))
        });
        ticks.times(2).on_error(OnError::Fail).await?;
        let items = flow.branch("items").packed();
        let items = items.spawn_each("n", 0..3_u32, move |n| Note { asks: item_asks && n == 1 });
        let merged = items.merge(Merge::settled()).await?;
        if item_asks { Ok((merged.done, merged.failed)) } else { Err(Failure::stop("no")) }
    }
}

async fn lab(url: &str, ledger: &Ledger) -> Lab {
    let ledger = ledger.clone();
    Lab::on(url, move |engine| {
        engine.data(ledger.clone()).task::<Note>().machine::<Stages>().workflow::<Places>()
    })
    .await
}

async fn data_reaches_all_code_of_jobs(on: On) {
    let store = on.fresh().await;
    let ledger = Ledger::default();
    let lab = lab(&store.url, &ledger).await;
    for _ in 0..2 {
        let task = lab.submit(Note { asks: false }).await;
        lab.run().await;
        assert!(lab.result(task).await.is_ok());
        assert_eq!(ledger.take(), ["task"]);
        let machine = lab.submit(Stages::Begin { asks: "nothing".into() }).await;
        lab.run().await;
        assert!(lab.result(machine).await.is_ok());
        assert_eq!(ledger.take(), ["machine", "on_error after error"]);
        let flow = lab.submit(Places { asks: "nothing".into() }).await;
        lab.run().await;
        let failed = lab.result(flow).await.expect_err("it is undone").to_string();
        assert_eq!(failed, "the job failed (stopped): no");
        assert_eq!(ledger.take(), ["flow", "step", "tick", "tick", "task", "task", "task", "undo"]);
        // The next worker is given the data again.
        lab.crash().await;
    }
}

/// Checks that absent data was asked for once, and that a text names its type, the line that asked for it, and what to write.
fn names_absent_data(noted: &[String], text: &str) {
    let asked: Vec<&str> = noted.iter().filter_map(|note| note.strip_prefix("asks in line ")).collect();
    assert_eq!(asked.len(), 1, "it was tried once: {noted:?}");
    let line = format!("tests/engine/data.rs:{} ", asked[0]);
    for part in [line.as_str(), "engine::data::Absent`", "`.data(value)`", "`Needs`"] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

async fn data_that_was_never_given_fails_the_job_at_once(on: On) {
    let store = on.fresh().await;
    let ledger = Ledger::default();
    let lab = lab(&store.url, &ledger).await;
    let refused = |error: JobError| match error {
        JobError::Failed { reason: Reason::Refused, failure, .. } => {
            assert_eq!(failure.class, "refused");
            names_absent_data(&ledger.take(), &failure.message);
        }
        other => panic!("{other:?}"),
    };
    let task = lab.submit(Note { asks: true }).await;
    lab.run().await;
    refused(lab.result(task).await.expect_err("in a task"));
    let machine = lab.submit(Stages::Begin { asks: "step".into() }).await;
    lab.run().await;
    refused(lab.result(machine).await.expect_err("in a step of a machine"));
    for place in ["flow", "step", "tick"] {
        let flow = lab.submit(Places { asks: place.into() }).await;
        lab.run().await;
        refused(lab.result(flow).await.expect_err(place));
    }

    let undone = lab.submit(Places { asks: "undo".into() }).await;
    lab.run().await;
    let failed = lab.result(undone).await.expect_err("it is undone").to_string();
    assert!(failed.starts_with("the job failed (stopped): no; not undone: \"step\" ("), "{failed}");
    names_absent_data(&ledger.take(), &failed);

    let items = lab.submit(Places { asks: "item".into() }).await;
    lab.run().await;
    assert_eq!(lab.result(items).await.expect("the others are done"), (2, 1));
    let engine = lab.engine().await;
    let mut failed = engine.items(items.id(), None, ChildStates::Unsuccessful).await.expect("listed");
    let item = failed.next().await.expect("listed").expect("one");
    let failure = item.failure.expect("it has failed");
    assert_eq!(failure.class, "refused");
    names_absent_data(&ledger.take(), &failure.message);
}

async fn data_that_an_error_handler_lacks_fails_the_job(on: On) {
    let store = on.fresh().await;
    let ledger = Ledger::default();
    let lab = lab(&store.url, &ledger).await;
    let machine = lab.submit(Stages::Begin { asks: "on_error".into() }).await;
    lab.run().await;
    let failed = lab.result(machine).await.expect_err("on_error failed").to_string();
    names_absent_data(&ledger.take(), &failed);
}

#[derive(Serialize, Deserialize)]
struct Echo(u32);

impl Task for Echo {
    const KIND: &'static str = "data_echo";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        Ok(self.0)
    }
}

/// Submits an [`Echo`] and waits for it.
#[derive(Serialize, Deserialize)]
struct WaitsForEcho(u32);

impl Task for WaitsForEcho {
    const KIND: &'static str = "data_waits_for_echo";
    type Output = u32;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        let engine = cx.engine();
        assert!(engine.worker().await.is_some(), "it is the engine that runs this");
        Ok(engine.submit(Echo(self.0)).parent(cx.id()).await?.result().await?)
    }
}

/// Submits an [`Echo`] in a step, and another one in its undo if it fails.
#[derive(Serialize, Deserialize)]
struct Submits {
    fails: bool,
}

impl Workflow for Submits {
    const KIND: &'static str = "data_submits";
    type Output = JobId;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<JobId, Failure> {
        let step = flow.step_with("submit", move |cx| async move {
            let submitted = cx.engine().submit(Echo(1)).key(cx.step_id()).await?;
            Ok(submitted.id())
        });
        let id = step
            .undo_with(move |cx, _: JobId| async move {
                cx.engine().submit(Echo(2)).key(cx.undo_id()).await?;
                Ok(())
            })
            .await?;
        if self.fails { Err(Failure::stop("no")) } else { Ok(id) }
    }
}

/// Submits an [`Echo`] in its step.
#[derive(Serialize, Deserialize)]
enum SubmitsByMachine {
    Begin,
}

impl Machine for SubmitsByMachine {
    const KIND: &'static str = "data_submits_by_machine";
    type Output = JobId;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<SubmitsByMachine>, Failure> {
        let submitted = cx.engine().submit(Echo(3)).key(cx.step_id()).await?;
        Ok(Next::done(submitted.id()))
    }
}

async fn jobs_submit_others_with_the_engine_that_they_run_in(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url).task::<Echo>().task::<WaitsForEcho>();
    let engine = engine.workflow::<Submits>().machine::<SubmitsByMachine>();
    let engine = engine.queue("default", Pool::slots(4)).start().await.expect("started");
    let waits = engine.submit(WaitsForEcho(7)).await.expect("submitted");
    assert_eq!(waits.result().await.expect("done"), 7);
    let children = engine.inspect().children(waits.id(), None, 9).await.expect("children");
    assert_eq!(children.iter().map(|child| child.kind.as_str()).collect::<Vec<_>>(), ["data_echo"]);

    let flow = engine.submit(Submits { fails: false }).await.expect("submitted");
    let id = flow.result().await.expect("done");
    assert_eq!(engine.result::<u32>(id).await.expect("done"), 1);
    let machine = engine.submit(SubmitsByMachine::Begin).await.expect("submitted");
    let id = machine.result().await.expect("done");
    assert_eq!(engine.result::<u32>(id).await.expect("done"), 3);

    let undone = engine.submit(Submits { fails: true }).await.expect("submitted");
    undone.result().await.expect_err("it is undone");
    let echo: Handle<Echo> = engine.job(format!("undo:{}/submit", undone.id())).await.expect("submitted");
    assert_eq!(echo.result().await.expect("done"), 2);
    engine.stop().await;
}

/// Jobs have their engine, and the engine has the data: neither keeps the other for ever.
async fn data_is_dropped_with_its_engine(on: On) {
    let store = on.fresh().await;
    let ledger = Ledger::default();
    let engine = Engine::builder(&store.url).data(ledger.clone()).task::<Note>().task::<WaitsForEcho>();
    let engine = engine.task::<Echo>().start().await.expect("started");
    engine.submit(Note { asks: false }).await.expect("submitted").result().await.expect("done");
    engine.submit(WaitsForEcho(1)).await.expect("submitted").result().await.expect("done");
    assert!(Arc::strong_count(&ledger.0) > 1);
    engine.stop().await;
    drop(engine);
    until("only the test has the data", async || Arc::strong_count(&ledger.0) == 1).await;
}
