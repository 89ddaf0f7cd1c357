//! Versions of a machine: served side by side, changed without a new version, and migrated.

use windlass::{Cause, MachineCx, Reason, State, prelude::*};

use crate::{
    common::{reaches, state},
    on_both_stores,
};

on_both_stores!(
    a_stage_that_does_not_decode_fails_only_its_job_and_can_be_migrated,
    two_versions_run_side_by_side,
);

/// An earlier version of a machine.
#[derive(Serialize, Deserialize)]
enum Old {
    Begin { value: u32 },
    Middle { value: u32 },
}

impl Machine for Old {
    const KIND: &'static str = "versioned";
    type Output = String;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Old>, Failure> {
        Ok(match self {
            Old::Begin { value } => Next::wait(Old::Middle { value }, "go"),
            Old::Middle { value } => Next::done(format!("old {value}")),
        })
    }
}

/// The same with other stages.
#[derive(Serialize, Deserialize)]
enum New {
    Start { value: u64, unit: String },
    Centre { value: u64, unit: String },
}

impl Machine for New {
    const KIND: &'static str = "versioned";
    const VERSION: i32 = 2;
    type Output = String;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<New>, Failure> {
        Ok(match self {
            New::Start { value, unit } => Next::wait(New::Centre { value, unit }, "go"),
            New::Centre { value, unit } => Next::done(format!("new {value} {unit}")),
        })
    }
}

/// The first version with a variant renamed and, by mistake, the same version number.
#[derive(Serialize, Deserialize)]
enum Renamed {
    Begin { value: u32 },
    Middling { value: u32 },
}

impl Machine for Renamed {
    const KIND: &'static str = "versioned";
    type Output = String;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Renamed>, Failure> {
        Ok(match self {
            Renamed::Begin { value } => Next::to(Renamed::Middling { value }),
            Renamed::Middling { value } => Next::done(format!("renamed {value}")),
        })
    }
}

fn newer(old: Old) -> Result<New, String> {
    let unit = "kg".to_owned();
    Ok(match old {
        Old::Begin { value: 13 } => return Err("13 is unlucky".into()),
        Old::Begin { value } => New::Start { value: value.into(), unit },
        Old::Middle { value } => New::Centre { value: value.into(), unit },
    })
}

async fn a_stage_that_does_not_decode_fails_only_its_job_and_can_be_migrated(url: &str) {
    let old = Engine::builder(url).machine::<Old>().start().await.expect("started");
    let stuck = old.submit(Old::Begin { value: 1 }).await.expect("submitted");
    let parked = old.submit(Old::Begin { value: 2 }).await.expect("submitted");
    reaches(&old, stuck.id(), State::Waiting).await;
    reaches(&old, parked.id(), State::Waiting).await;
    old.stop().await;
    let careless = Engine::builder(url).machine::<Renamed>().start().await.expect("started");
    careless.signal(stuck.id(), "go", ()).await.expect("sent");
    let Err(JobError::Failed { reason, failure, .. }) = stuck.result().await else {
        panic!("it cannot decode")
    };
    assert_eq!(reason, Reason::Undecodable);
    assert!(failure.message.contains("\"Middle\" does not decode as version 1"), "{failure}");
    assert!(failure.message.contains("whose stages are Begin, Middling"), "{failure}");
    careless.stop().await;

    let unlucky = old.submit(Old::Begin { value: 13 }).await.expect("submitted");
    let waiting = old.submit(Old::Begin { value: 3 }).await.expect("submitted");
    let engine = Engine::builder(url).machine::<New>().start().await.expect("started");
    let why = engine.why(waiting.id()).await.expect("why").expect("the job exists");
    assert_eq!(why.cause, Cause::VersionUnserved, "{why:?}");
    assert!(why.hint.contains("migrate their stages"), "{why:?}");
    let ops = engine.control("ada");
    let dry = ops.migrate(newer).dry_run().await.expect("a dry run");
    assert_eq!((dry.seen, dry.migrated, dry.refused, dry.busy), (4, 3, 1, 0));
    assert_eq!(dry.refusals, [(unlucky.id(), "13 is unlucky".to_owned())]);
    assert_eq!(
        engine.why(waiting.id()).await.expect("why").expect("the job exists").cause,
        Cause::VersionUnserved
    );
    let done = ops.migrate(newer).run(|_| true).await.expect("migrated");
    assert_eq!((done.migrated, done.refused), (3, 1));
    assert_eq!(ops.retry(stuck.id()).await.expect("retried"), windlass::ControlOutcome::Done);
    assert_eq!(stuck.result().await.expect("done"), "new 1 kg");
    parked.signal("go", ()).await.expect("sent");
    assert_eq!(parked.result().await.expect("done"), "new 2 kg");
    waiting.signal("go", ()).await.expect("sent");
    assert_eq!(waiting.result().await.expect("done"), "new 3 kg");
    assert_eq!(state(&engine, unlucky.id()).await, State::Ready, "it stays where it was");
    engine.stop().await;
}

async fn two_versions_run_side_by_side(url: &str) {
    let engine = Engine::builder(url).machine::<Old>().machine::<New>();
    let engine = engine.start().await.expect("started");
    let old = engine.submit(Old::Begin { value: 1 }).await.expect("submitted");
    let new = engine.submit(New::Start { value: 2, unit: "m".into() }).await.expect("submitted");
    old.signal("go", ()).await.expect("sent");
    new.signal("go", ()).await.expect("sent");
    assert_eq!(old.result().await.expect("done"), "old 1");
    assert_eq!(new.result().await.expect("done"), "new 2 m");
    engine.stop().await;
}
