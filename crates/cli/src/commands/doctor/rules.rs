//! What holds jobs back by rule: paused queues, serial keys whose holder's worker died, schedules that do not fire.

use std::{collections::BTreeMap, time::Duration};

use windlass::{
    Engine, JobId, State, Time,
    store::{Filter, WorkerView},
};

use super::Findings;
use crate::{out, place::Place, rule, span};

/// How long after its tick a schedule may not have fired before it is worth a word: a worker fires it within seconds.
const LATE: Duration = Duration::from_secs(120);
/// How many running jobs are looked at for serial keys that a dead worker holds.
const LOOKED: usize = 1_000;

pub(super) async fn examine(findings: &mut Findings, engine: &Engine, place: &Place) -> anyhow::Result<()> {
    let now = engine.inspect().clock().await?;
    queues(findings, engine, place, now).await?;
    serial(findings, engine, place, now).await?;
    schedules(findings, engine, place, now).await
}

async fn queues(findings: &mut Findings, engine: &Engine, place: &Place, now: Time) -> anyhow::Result<()> {
    let paused: Vec<_> =
        engine.inspect().queues().await?.into_iter().filter(|queue| queue.paused.is_some()).collect();
    for queue in &paused {
        let pause = queue.paused.as_ref().map(|pause| rule::paused(pause, now)).unwrap_or_default();
        let resume = format!("`{} queues resume {}` lets it go on", place.program, queue.name);
        findings.warn("queue", format!("{} was paused {pause}; {resume}", queue.name));
    }
    Ok(())
}

/// Serial keys that a job holds whose worker is dead: those behind it wait until it is taken over.
async fn serial(findings: &mut Findings, engine: &Engine, place: &Place, now: Time) -> anyhow::Result<()> {
    let inspect = engine.inspect();
    let workers = inspect.workers().await?;
    let dead = |worker: &&WorkerView| (!worker.alive || worker.lease_until < now) && worker.claims > 0;
    let dead: Vec<_> = workers.iter().filter(dead).map(|worker| worker.id).collect();
    if dead.is_empty() {
        return Ok(());
    }
    let running = Filter { state: Some(State::Running), limit: LOOKED, ..Filter::default() };
    let mut held: BTreeMap<String, JobId> = BTreeMap::new();
    for summary in inspect.jobs(&running).await? {
        let Some(job) = inspect.job(summary.id).await? else { continue };
        if let Some(serial) = job.settings.serial
            && job.worker.is_some_and(|worker| dead.contains(&worker))
        {
            held.insert(serial.key, summary.id);
        }
    }
    for (key, job) in held {
        findings.warn(
            "serial",
            format!(
                "key {key:?} is held by job {job}, whose worker stopped renewing; another worker takes it over, so start one \
                 with `{} worker` if none runs",
                place.program
            ),
        );
    }
    Ok(())
}

async fn schedules(findings: &mut Findings, engine: &Engine, place: &Place, now: Time) -> anyhow::Result<()> {
    let schedules = engine.inspect().schedules().await?;
    for view in &schedules {
        let (name, program) = (&view.schedule.name, &place.program);
        match (&view.paused, view.next_at) {
            (Some(pause), _) => {
                let resume = format!("`{program} schedules resume {name}` lets it go on");
                findings
                    .warn("schedule", format!("{name} was paused {}; {resume}", rule::paused(pause, now)));
            }
            (None, Some(at)) if now.since(at) > LATE => {
                let late = span::show(now.since(at));
                let start = format!("any worker fires it, so start one with `{program} worker`");
                findings
                    .warn("schedule", format!("{name} should have fired {late} ago and has not; {start}"));
            }
            (None, None) => {
                let drop = format!("`{program} schedules drop {name}` forgets it");
                findings.warn("schedule", format!("{name} never fires again; {drop}"));
            }
            _ => {}
        }
    }
    if !schedules.is_empty() {
        findings.ok("schedules", out::thousands(schedules.len() as u64) + " known");
    }
    Ok(())
}
