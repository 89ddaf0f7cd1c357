//! Checks flow control: paused queues, serial keys held by jobs of dead workers, schedules that do not fire.

use std::{collections::BTreeMap, time::Duration};

use windlass::{
    Engine, JobId, State, Time,
    store::{Filter, WorkerView},
};

use super::Findings;
use crate::{durations, out, outcome, program::Program};

/// A schedule that has not fired this long after its tick is worth a warning: workers fire it within seconds.
const LATE: Duration = Duration::from_secs(120);
/// How many running jobs are checked for serial keys.
const CHECKED: usize = 1_000;

pub(super) async fn examine(
    findings: &mut Findings,
    engine: &Engine,
    program: &Program,
) -> anyhow::Result<()> {
    let now = engine.inspect().clock().await?;
    queues(findings, engine, program, now).await?;
    serial(findings, engine, program, now).await?;
    schedules(findings, engine, program, now).await
}

async fn queues(
    findings: &mut Findings,
    engine: &Engine,
    program: &Program,
    now: Time,
) -> anyhow::Result<()> {
    let paused: Vec<_> =
        engine.inspect().queues().await?.into_iter().filter(|queue| queue.paused.is_some()).collect();
    for queue in &paused {
        let pause = queue.paused.as_ref().map(|pause| outcome::paused_by(pause, now)).unwrap_or_default();
        let resume = format!("`{} queues resume {}` resumes it", program.name, queue.name);
        findings.warn("queue", format!("{} was paused {pause}; {resume}", queue.name));
    }
    Ok(())
}

/// Warns of serial keys held by a job whose worker is dead: the jobs behind it wait until another worker takes it over.
async fn serial(
    findings: &mut Findings,
    engine: &Engine,
    program: &Program,
    now: Time,
) -> anyhow::Result<()> {
    let inspect = engine.inspect();
    let workers = inspect.workers().await?;
    let dead = |worker: &&WorkerView| (!worker.alive || worker.lease_until < now) && worker.claims > 0;
    let dead: Vec<_> = workers.iter().filter(dead).map(|worker| worker.id).collect();
    if dead.is_empty() {
        return Ok(());
    }
    let running = Filter { state: Some(State::Running), limit: CHECKED, ..Filter::default() };
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
                "key {key:?} is held by job {job}, whose worker is dead; another worker takes it over; start one with `{} worker` \
                 if none runs",
                program.name
            ),
        );
    }
    Ok(())
}

async fn schedules(
    findings: &mut Findings,
    engine: &Engine,
    program: &Program,
    now: Time,
) -> anyhow::Result<()> {
    let schedules = engine.inspect().schedules().await?;
    for view in &schedules {
        let (name, program) = (&view.schedule.name, &program.name);
        match (&view.paused, view.next_at) {
            (Some(pause), _) => {
                let resume = format!("`{program} schedules resume {name}` resumes it");
                findings.warn(
                    "schedule",
                    format!("{name} was paused {}; {resume}", outcome::paused_by(pause, now)),
                );
            }
            (None, Some(at)) if now.since(at) > LATE => {
                let late = durations::format(now.since(at));
                let start = format!("start a worker to fire it: `{program} worker`");
                findings.warn("schedule", format!("{name} should have fired {late} ago; {start}"));
            }
            (None, None) => {
                let drop = format!("`{program} schedules drop {name}` deletes it");
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
