//! A thousand schedules and three processes, two of which are killed on the way: whether every tick fires once.
//!
//! The expected ticks are computed from the calendar; the firings are read from the store.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use windlass::{
    CatchUp, Engine, JobId, Overlap, Time, Unit,
    prelude::*,
    store::{Filter, Firing},
};

use super::{
    Stores,
    helper::{self, Helper},
    record::Account,
    report::Report,
};
use crate::out;

const PROCESSES: usize = 3;
/// How old a tick may be and still fire: older than any of this bench.
const WINDOW: Duration = Duration::from_secs(3_600);
/// How long the schedules are measured, and when a process is killed and replaced.
const SPAN: Duration = Duration::from_secs(30);
const KILLS: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(16)];
/// How long ticks of the span that have not fired in it are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A task that does nothing, now and then.
#[derive(Serialize, Deserialize)]
struct Tick {
    schedule: usize,
}

impl Task for Tick {
    const KIND: &'static str = "bench.tick";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("every-second-{number}")
}

fn calendar() -> anyhow::Result<Calendar> {
    Ok(Calendar::every(1, Unit::Seconds)?)
}

pub(super) async fn run(stores: &Stores, n: usize, quick: bool) -> anyhow::Result<Report> {
    let (span, kills) = if quick { (SPAN / 10, KILLS.map(|at| at / 10)) } else { (SPAN, KILLS) };
    let url = stores.url();
    let engine = Engine::open(&url).await?;
    for number in 0..n {
        let schedule = engine.schedule(&name(number), calendar()?, Tick { schedule: number });
        schedule.overlap(Overlap::Allow).catch_up(CatchUp::All { window: WINDOW }).await?;
    }
    let begin = engine.inspect().clock().await?;
    out::note(&format!("  {n} schedules are created; {PROCESSES} processes for {span:?}"));
    let until = watch(&url, &engine, span, &kills).await?;

    let expected: HashSet<Time> = calendar()?.ticks_after(begin).take_while(|tick| *tick <= until).collect();
    let submitted = submitted(&engine).await?;
    let (mut account, mut fired, mut late) = (Account::default(), 0, Histogram::<u64>::new(3)?);
    let mut known: HashSet<JobId> = HashSet::new();
    for number in 0..n {
        let firings = engine.inspect().firings(&name(number), 100_000).await?;
        known.extend(firings.iter().map(|firing| firing.job));
        let one = compare(&firings, &expected, &submitted);
        account.lost += one.lost;
        account.duplicated += one.duplicated;
        for firing in firings.iter().filter(|firing| expected.contains(&firing.tick)) {
            fired += 1;
            if let Some(at) = submitted.get(&firing.job) {
                late.record((*at - firing.tick).as_micros() as u64)?;
            }
        }
    }
    // Jobs without a firing are duplicates.
    account.duplicated += submitted.keys().filter(|id| !known.contains(id)).count();
    let ms = |quantile: f64| late.value_at_quantile(quantile) as f64 / 1_000.0;
    Ok(Report::new("schedule", stores.name(), n)
        .rate(fired, span.as_secs_f64())
        .with("processes", PROCESSES)
        .with("killed", kills.len())
        .with("ticks", expected.len() * n)
        .with("fired", fired)
        .figure("late_p50_ms", ms(0.5))
        .figure("late_p99_ms", ms(0.99))
        .figure("late_max_ms", ms(1.0))
        .account(account))
}

/// Lets processes fire the schedules for a while, and kills some. Returns the time up to which all ticks should have fired.
async fn watch(url: &str, engine: &Engine, span: Duration, kills: &[Duration]) -> anyhow::Result<Time> {
    let start = || Helper::start("schedule-worker", url, Path::new("-"));
    let mut helpers = Vec::new();
    for _ in 0..PROCESSES {
        helpers.push(start().await?);
    }
    let begun = Instant::now();
    for at in kills {
        tokio::time::sleep(at.saturating_sub(begun.elapsed())).await;
        helpers.remove(0).kill().await?;
        out::note(&format!(
            "  {:>5.1} s  a process was killed; another is started",
            begun.elapsed().as_secs_f64()
        ));
        helpers.push(start().await?);
    }
    tokio::time::sleep(span.saturating_sub(begun.elapsed())).await;
    let until = engine.inspect().clock().await?;
    let ended = Instant::now();
    let behind = |next_at: Option<Time>| next_at.is_some_and(|next_at| next_at <= until);
    while ended.elapsed() < PATIENCE
        && engine.inspect().schedules().await?.iter().any(|schedule| behind(schedule.next_at))
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for helper in helpers {
        helper.stop().await?;
    }
    Ok(until)
}

/// What is missing and what is there twice of one schedule. A firing whose job is not there is none; one that the
/// calendar does not have is one too many.
fn compare(firings: &[Firing], expected: &HashSet<Time>, submitted: &HashMap<JobId, Time>) -> Account {
    let mut seen = HashSet::new();
    let again = firings.iter().filter(|firing| !seen.insert(firing.tick)).count();
    let (first, last) = (expected.iter().min(), expected.iter().max());
    let inside =
        |tick: &Time| first.is_some_and(|first| tick >= first) && last.is_some_and(|last| tick <= last);
    let strange = seen.iter().filter(|tick| inside(tick) && !expected.contains(tick)).count();
    let there: HashSet<Time> = firings
        .iter()
        .filter(|firing| submitted.contains_key(&firing.job))
        .map(|firing| firing.tick)
        .collect();
    Account { lost: expected.difference(&there).count(), duplicated: again + strange }
}

/// When the jobs of the schedules were submitted.
async fn submitted(engine: &Engine) -> anyhow::Result<HashMap<JobId, Time>> {
    let mut all = HashMap::new();
    let mut filter = Filter { kind: Some(Tick::KIND.into()), limit: 5_000, ..Filter::default() };
    loop {
        let page = engine.inspect().jobs(&filter).await?;
        all.extend(page.jobs.iter().map(|job| (job.id, job.submitted_at)));
        let Some(next) = page.next else { return Ok(all) };
        filter.before = Some(next);
    }
}

/// One of the processes: fires schedules and runs their jobs.
pub(super) async fn worker(url: &str) -> anyhow::Result<ExitCode> {
    let engine = Engine::builder(url).task::<Tick>().start().await?;
    let code = helper::serve_commands(|_| ()).await?;
    engine.stop().await;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_twice_or_strange_is_counted() {
        let ids = windlass::env::IdSource::default();
        let jobs: Vec<JobId> = (0..5).map(|_| ids.job()).collect();
        let firing = |tick: i64, job: usize| Firing { tick: Time(tick), job: jobs[job] };
        let expected: HashSet<Time> = [10, 20, 30, 40].map(Time).into();
        let submitted: HashMap<JobId, Time> = jobs[..4].iter().map(|id| (*id, Time(0))).collect();
        // 10 and 20 are right, 20 fired twice, 25 is no tick, 30 has no job, 40 did not fire, 50 is after the span.
        let firings =
            [firing(50, 3), firing(30, 4), firing(25, 2), firing(20, 1), firing(20, 1), firing(10, 0)];
        let account = compare(&firings, &expected, &submitted);
        assert_eq!((account.lost, account.duplicated), (2, 2));
    }
}
