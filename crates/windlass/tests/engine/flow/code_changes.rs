//! Code that changes while jobs are open: what fits their journals, what diverges, and what a check reports.

use windlass::{Filter, JobError, Reason, State, operate::Checked, prelude::*, testing::Lab};

use super::{On, on_every_store, ran, times};
use crate::common::{reaches, until};

on_every_store!(
    steps_may_be_added_removed_and_reordered,
    a_divergence_is_reported_with_both_sides,
    a_check_finds_the_one_job_that_would_diverge,
    a_check_lists_the_calls_in_which_a_build_differs,
    a_check_lists_the_steps_that_lost_their_undo,
    an_open_job_keeps_the_version_it_has_recorded,
    a_fork_continues_from_a_step,
    a_retried_job_repeats_the_step_that_made_it_fail,
);

async fn note(flow: &Flow, name: &str) -> Result<String, Failure> {
    let (id, text) = (flow.id(), name.to_owned());
    flow.step(name, move || {
        let text = text.clone();
        async move {
            ran(format!("{id}/{text}"));
            Ok(text)
        }
    })
    .await
}

/// Versions of one workflow: the same kind, changed code.
macro_rules! edition {
    ($name:ident, $flow:ident, $body:expr) => {
        #[derive(Serialize, Deserialize)]
        struct $name;

        impl Workflow for $name {
            const KIND: &'static str = "edition";
            type Output = Vec<String>;
            type Error = Failure;

            async fn run(self, $flow: Flow) -> Result<Vec<String>, Failure> {
                $body
            }
        }
    };
}

edition!(First, flow, {
    let mut all = vec![note(&flow, "a").await?, note(&flow, "b").await?, note(&flow, "c").await?];
    flow.signal::<()>("go").await?;
    all.push(note(&flow, "d").await?);
    Ok(all)
});

edition!(Second, flow, {
    // "b" was removed, "c" moved to the front, "x" and "y" are new.
    let mut all = vec![note(&flow, "c").await?, note(&flow, "x").await?, note(&flow, "a").await?];
    flow.signal::<()>("go").await?;
    all.push(note(&flow, "y").await?);
    all.push(note(&flow, "d").await?);
    Ok(all)
});

edition!(Removed, flow, {
    let all = vec![note(&flow, "a").await?];
    flow.signal::<()>("go").await?;
    Ok(all)
});

async fn charged(flow: &Flow, name: &str) -> Result<String, Failure> {
    let text = name.to_owned();
    let step = flow.step(name, move || {
        let text = text.clone();
        async move { Ok(text) }
    });
    step.undo(|_: String| async { Ok(()) }).await
}

edition!(Charging, flow, {
    let all = vec![note(&flow, "a").await?, charged(&flow, "charge").await?];
    flow.signal::<()>("go").await?;
    Ok(all)
});

edition!(Paying, flow, {
    let all = vec![note(&flow, "a").await?, charged(&flow, "pay").await?];
    flow.signal::<()>("go").await?;
    Ok(all)
});

edition!(Keeping, flow, {
    let all = vec![note(&flow, "a").await?, note(&flow, "charge").await?];
    flow.signal::<()>("go").await?;
    Ok(all)
});

/// The calls in which a build differs, as lines.
fn differing(checked: &Checked) -> Vec<String> {
    let line = |call: &windlass::operate::ChangedCall| {
        let undo = if call.undo { " with an undo" } else { "" };
        format!("{:?} {}{undo}", call.change, call.name)
    };
    checked.changed.iter().map(line).collect()
}

async fn a_check_lists_the_calls_in_which_a_build_differs(on: On) {
    let store = on.fresh().await;
    let same = from_to::<First, First>(&store.url, async |engine, _| {
        let checked = engine.check().run(|_| true).await.expect("checked");
        assert_eq!((differing(&checked), checked.skipping), (Vec::new(), 0));
    });
    assert!(same.await.is_ok());
    let store = on.fresh().await;
    let removed = from_to::<First, Removed>(&store.url, async |engine, _| {
        let checked = engine.check().run(|_| true).await.expect("checked");
        assert_eq!(differing(&checked), ["NotReached b", "NotReached c"], "the wait is not new");
        assert_eq!((checked.broken.len(), checked.skipping, checked.losing_undo), (0, 1, 0));
    });
    assert!(removed.await.is_ok());
    let store = on.fresh().await;
    let renamed = from_to::<Charging, Paying>(&store.url, async |engine, id| {
        let checked = engine.check().run(|_| true).await.expect("checked");
        assert_eq!(differing(&checked), ["NotReached charge with an undo", "New pay"]);
        assert_eq!((checked.broken.len(), checked.skipping, checked.losing_undo), (0, 1, 1));
        let [charge, pay] = checked.changed.as_slice() else { panic!("{checked:?}") };
        assert_eq!((charge.jobs, charge.example, pay.jobs), (1, id, 1));
        let at = |call: &windlass::operate::ChangedCall| {
            call.line.clone().is_some_and(|line| line.contains("code_changes.rs:"))
        };
        assert!(at(charge) && at(pay), "{checked:?}");
    });
    assert_eq!(renamed.await.expect("it continues"), ["a", "pay"]);
}

async fn a_check_lists_the_steps_that_lost_their_undo(on: On) {
    let store = on.fresh().await;
    let kept = from_to::<Charging, Keeping>(&store.url, async |engine, id| {
        let checked = engine.check().run(|_| true).await.expect("checked");
        assert_eq!(differing(&checked), ["UndoRemoved charge with an undo"]);
        assert_eq!((checked.broken.len(), checked.skipping, checked.losing_undo), (0, 0, 1));
        assert_eq!((checked.changed[0].jobs, checked.changed[0].example), (1, id));
    });
    assert_eq!(kept.await.expect("it continues"), ["a", "charge"]);
}

/// Starts a job with one edition, stops the engine while it waits, and continues with another edition.
async fn from_to<A, B>(url: &str, between: impl AsyncFnOnce(&Engine, JobId)) -> Result<Vec<String>, JobError>
where
    A: Workflow<Output = Vec<String>> + Default,
    B: Workflow<Output = Vec<String>>,
{
    let engine = Engine::open(url).await.expect("opened");
    let store = engine.store().clone();
    let first = Engine::builder(url).store(store.clone()).workflow::<A>().start().await.expect("started");
    let job = first.submit(A::default()).await.expect("submitted");
    let id = job.id();
    reaches(&first, id, State::Waiting).await;
    first.stop().await;
    let second = Engine::builder(url).store(store).workflow::<B>().open().await.expect("opened");
    between(&second, id).await;
    second.start().await.expect("started");
    second.signal(id, "go", ()).await.expect("sent");
    let result = second.result(id).await;
    second.stop().await;
    result
}

macro_rules! default {
    ($($name:ident),*) => { $(impl Default for $name { fn default() -> Self { $name } })* };
}
default!(First, Second, Other, Retyped, Placed, Versioned, Removed, Charging, Paying, Keeping);

async fn steps_may_be_added_removed_and_reordered(on: On) {
    let store = on.fresh().await;
    let mut seen = None;
    let result = from_to::<First, Second>(&store.url, async |engine, id| {
        seen = Some(id);
        let checked = engine.check().run(|_| true).await.expect("checked");
        assert_eq!((checked.jobs, checked.broken.len(), checked.skipping), (1, 0, 1), "{checked:?}");
        assert_eq!(differing(&checked), ["NotReached a", "NotReached b", "New x"]);
    })
    .await;
    assert_eq!(result.expect("it fits"), ["c", "x", "a", "y", "d"]);
    let id = seen.expect("submitted");
    for (name, count) in [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("x", 1), ("y", 1)] {
        assert_eq!(times(format!("{id}/{name}")), count, "{name}");
    }
}

edition!(Other, flow, {
    note(&flow, "a").await?;
    flow.sleep(seconds(1)).name("b").await;
    flow.signal::<()>("go").await?;
    Ok(Vec::new())
});

edition!(Retyped, flow, {
    note(&flow, "a").await?;
    flow.step("b", async || Ok(vec![1_u32])).await?;
    flow.signal::<()>("go").await?;
    Ok(Vec::new())
});

async fn a_divergence_is_reported_with_both_sides(on: On) {
    let store = on.fresh().await;
    let parts = [
        "\"b\" is a step, and the code makes it a sleep",
        "recorded:  step at",
        "attempted: sleep at",
        "code_changes.rs:",
    ];
    let mut broken = None;
    let result = from_to::<First, Other>(&store.url, async |engine, id| {
        broken = Some(id);
        let checked = engine.check().run(|_| true).await.expect("checked");
        assert_eq!(checked.broken.len(), 1, "{checked:?}");
        let why = &checked.broken[0].why.message;
        parts.iter().for_each(|part| assert!(why.contains(part), "{why:?} lacks {part:?}"));
    })
    .await;
    match result {
        Err(JobError::Failed { reason: Reason::Diverged, failure, .. }) => {
            parts.iter().for_each(|part| assert!(failure.message.contains(part), "{failure} lacks {part:?}"));
        }
        other => panic!("{other:?}"),
    }
    // Nothing is lost: with code that fits, it continues.
    if on != On::Memory {
        let engine = Engine::builder(&store.url).workflow::<First>().start().await.expect("started");
        let id = broken.expect("submitted");
        engine.control("test").retry(id).await.expect("retried").accepted().expect("retried");
        assert_eq!(engine.result::<Vec<String>>(id).await.expect("it fits"), ["a", "b", "c", "d"]);
        engine.stop().await;
    }

    let store = on.fresh().await;
    let result = from_to::<First, Retyped>(&store.url, async |_, _| {}).await;
    match result {
        Err(JobError::Failed { reason: Reason::Diverged, failure, .. }) => {
            for part in [
                "result of \"b\" does not decode",
                "recorded:  \"b\"",
                "alloc::vec::Vec<u32>",
                "code_changes.rs:",
            ] {
                assert!(failure.message.contains(part), "{failure} lacks {part:?}");
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Of a thousand open jobs one has recorded a call that the new code does not make.
#[derive(Serialize, Deserialize)]
struct Odd {
    n: u32,
}

impl Workflow for Odd {
    const KIND: &'static str = "odd";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        if self.n == 613 {
            flow.sleep(seconds(0)).name("prepare").await;
        } else {
            flow.step("prepare", async || Ok(())).await?;
        }
        flow.signal("go").await
    }
}

#[derive(Serialize, Deserialize)]
struct OddLater {
    n: u32,
}

impl Workflow for OddLater {
    const KIND: &'static str = "odd";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.step("prepare", async || Ok(())).await?;
        flow.signal("go").await
    }
}

async fn a_check_finds_the_one_job_that_would_diverge(on: On) {
    let store = on.fresh().await;
    let url = store.url.as_str();
    let engine = Engine::open(url).await.expect("opened");
    let store = engine.store().clone();
    let first = Engine::builder(url).store(store.clone()).workflow::<Odd>().start().await.expect("started");
    let jobs = first.submit_all((0..1_000).map(|n| Odd { n })).await.expect("submitted");
    let waiting = Filter { state: Some(State::Waiting), limit: 1_000, ..Filter::default() };
    until("all wait", async || first.inspect().jobs(&waiting).await.expect("jobs").jobs.len() == 1_000).await;
    first.stop().await;
    let before =
        store.inspect().journal(jobs[613].id().expect("submitted"), None, 99).await.expect("a journal");
    let later =
        Engine::builder(url).store(store.clone()).workflow::<OddLater>().open().await.expect("opened");
    let checked = later.check().run(|_| true).await.expect("checked");
    assert_eq!(checked.jobs, 1_000);
    let broken: Vec<JobId> = checked.broken.iter().map(|broken| broken.job).collect();
    assert_eq!(broken, [jobs[613].id().expect("submitted")]);
    assert!(
        checked.broken[0].why.message.contains("is a sleep, and the code makes it a step"),
        "{checked:?}"
    );
    // A check changes nothing.
    assert_eq!(
        store.inspect().journal(jobs[613].id().expect("submitted"), None, 99).await.expect("a journal"),
        before
    );
    assert_eq!(store.inspect().jobs(&waiting).await.expect("jobs").jobs.len(), 1_000);
}

edition!(Placed, flow, {
    let mut all = vec![note(&flow, "a").await?];
    let version = flow.version("tax", 1);
    all.push(note(&flow, &format!("tax-{version}")).await?);
    flow.signal::<()>("go").await?;
    all.push(format!("{}", flow.version("late", 1)));
    Ok(all)
});

edition!(Versioned, flow, {
    let mut all = vec![note(&flow, "a").await?];
    let early = flow.version("early", 5);
    let version = flow.version("tax", 2);
    all.push(note(&flow, &format!("tax-{version}")).await?);
    flow.signal::<()>("go").await?;
    all.push(format!("{early} {}", flow.version("late", 3)));
    Ok(all)
});

async fn an_open_job_keeps_the_version_it_has_recorded(on: On) {
    let store = on.fresh().await;
    let result = from_to::<Placed, Versioned>(&store.url, async |_, _| {}).await;
    assert_eq!(
        result.expect("it fits"),
        ["a", "tax-1", "0 3"],
        "it had passed there before the code had a version"
    );
    let store = on.fresh().await;
    let result = from_to::<Versioned, Versioned>(&store.url, async |_, _| {}).await;
    assert_eq!(result.expect("it fits"), ["a", "tax-2", "5 3"]);
}

async fn a_fork_continues_from_a_step(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<First>()).await;
    let job = lab.submit(First).await;
    lab.signal(job, "go", ()).await;
    lab.run().await;
    let before = lab.journal(job).await;
    let engine = lab.engine().await;
    let fork = engine.control("test").fork().before("c").key("again").run(job.id()).await.expect("forked");
    engine.signal(fork, "go", ()).await.expect("sent");
    lab.run().await;
    assert_eq!(engine.result::<Vec<String>>(fork).await.expect("done"), ["a", "b", "c", "d"]);
    for (name, count) in [("a", 0), ("b", 0), ("c", 1), ("d", 1)] {
        assert_eq!(times(format!("{fork}/{name}")), count, "{name}");
    }
    assert_eq!(lab.journal(job).await, before, "the original is unchanged");
    let control = engine.control("test");
    for (fork, parts) in [
        (control.fork().before("nowhere"), "its journal has no call \"nowhere\"; it has a, b, c, go, d"),
        (control.fork().before_key("a", 7), "no call \"a\" with key \"7\""),
        (control.fork().before_entry(99), "its journal has no entry 99"),
        (control.fork().before("c").key("again"), "has the key \"again\""),
    ] {
        let error = fork.run(job.id()).await.expect_err(parts).to_string();
        assert!(error.contains(parts), "{error:?} lacks {parts:?}");
    }
    let gone = control.fork().run(engine.new_id()).await.expect_err("no such job").to_string();
    assert!(gone.contains("it does not exist"), "{gone}");
    let all = Filter { kind: Some("edition".into()), ..Filter::default() };
    let many = control.fork().from_beginning().each(all, |_| true).await.expect("forked");
    assert_eq!((many.made.len(), many.refused.len()), (2, 0), "{many:?}");
}

/// Fails in its first attempt.
#[derive(Serialize, Deserialize)]
struct Failing;

impl Workflow for Failing {
    const KIND: &'static str = "failing";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let id = flow.id();
        let handled = flow.step("handled", move || async move {
            ran(format!("{id}/handled"));
            Err::<(), _>(Failure::stop("that is all right"))
        });
        let handled = handled.await.expect_err("it fails").message;
        let good = note(&flow, "good").await?;
        let bad = flow.step("bad", move || async move {
            match ran(format!("{id}/bad")) {
                1 => Err(Failure::stop("not today")),
                n => Ok(format!("try {n}")),
            }
        });
        Ok(vec![handled, good, bad.await?])
    }
}

async fn a_retried_job_repeats_the_step_that_made_it_fail(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Failing>()).await;
    let job = lab.submit(Failing).await;
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): not today");
    lab.engine().await.control("test").retry(job.id()).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), ["that is all right", "good", "try 2"]);
    let id = job.id();
    assert_eq!(times(format!("{id}/handled")), 1, "a failure that was handled is not repeated");
    assert_eq!((times(format!("{id}/good")), times(format!("{id}/bad"))), (1, 2));
}
