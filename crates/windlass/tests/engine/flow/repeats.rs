//! Repeats that missed ticks: which ticks run late, how the others are summarised, and at what cost.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Mutex};

use windlass::{
    CatchUp, State, Time, Unit,
    model::{JournalEntry, calendar::Missed, journal::CallKind},
    prelude::*,
    testing::{Lab, LabJob},
};

use super::{On, on_every_store};

on_every_store!(
    a_year_of_missed_ticks_is_one_entry_and_the_last_hour_runs_late,
    a_year_of_missed_ticks_can_be_skipped_or_caught_up_by_one_tick,
    a_year_of_missed_ticks_survives_every_crash,
    ticks_after_the_end_of_a_repeat_are_not_missed,
    a_replay_has_the_context_that_the_last_tick_set,
);

const STEP: Duration = minutes(10);

/// The ticks that ran, by job: each once, although a tick whose worker dies runs again.
static TICKS: Mutex<BTreeMap<JobId, Vec<Time>>> = Mutex::new(BTreeMap::new());

fn ticks(job: JobId) -> Vec<Time> {
    TICKS.lock().unwrap_or_else(|e| e.into_inner()).get(&job).cloned().unwrap_or_default()
}

/// Repeats every ten minutes, twenty times or until a time.
#[derive(Serialize, Deserialize)]
struct Beats {
    catch_up: Option<CatchUp>,
    until: Option<Time>,
}

impl Workflow for Beats {
    const KIND: &'static str = "beats";
    type Output = Option<()>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Option<()>, Failure> {
        let calendar = Calendar::every(10, Unit::Minutes).map_err(Failure::stop)?;
        let id = flow.id();
        let mut beats = flow.repeat("beat", calendar, move |tick, _| async move {
            let mut ticks = TICKS.lock().unwrap_or_else(|e| e.into_inner());
            let ticks = ticks.entry(id).or_default();
            if ticks.last() != Some(&tick) {
                ticks.push(tick);
            }
            Ok(ControlFlow::Continue(()))
        });
        if let Some(catch_up) = self.catch_up {
            beats = beats.catch_up(catch_up);
        }
        if let Some(until) = self.until {
            beats = beats.until(until);
        }
        beats.times(20).await
    }
}

type Beating = LabJob<Beats>;

/// A job that ran for half an hour and was paused for a year.
struct Year {
    /// The last tick before the pause.
    last: Time,
    /// When the pause ended.
    over: Time,
    /// Ticks that were due by then and ran late.
    late: Vec<Time>,
    missed: Vec<Missed>,
    /// The number of changes that this took.
    changes: i32,
}

async fn missed_of(lab: &Lab, job: Beating) -> Vec<Missed> {
    let is_summary = |entry: &JournalEntry| {
        entry.call_kind == CallKind::Repeat
            && entry.key.as_ref().is_some_and(|key| key.starts_with("missed "))
    };
    let journal = lab.journal(job).await;
    assert!(journal.len() < 20, "{journal:#?}");
    let read = |entry: &JournalEntry| serde_json::from_slice(&entry.payload.bytes).expect("a summary");
    journal.iter().filter(|entry| is_summary(entry)).map(read).collect()
}

/// Runs a job for half an hour, pauses it for a year, and resumes it.
async fn a_year(lab: &Lab, beats: Beats) -> (Beating, Year) {
    let job = lab.submit(beats).await;
    lab.advance(minutes(35)).await;
    let engine = lab.engine().await;
    engine.control("test").pause_queue("default").await.expect("paused");
    let before = ticks(job.id());
    let rev = async || {
        lab.engine().await.inspect().job(job.id()).await.expect("read").expect("the job exists").rev.0
    };
    let first_rev = rev().await;
    lab.advance(days(365)).await;
    assert_eq!(ticks(job.id()), before, "it is paused");
    let over = lab.now();
    let engine = lab.engine().await;
    engine.control("test").resume_queue("default").await.expect("resumed");
    lab.advance(Duration::from_secs(1)).await;
    let late = ticks(job.id())[before.len()..].iter().copied().filter(|tick| *tick <= over).collect();
    let (missed, changes) = (missed_of(lab, job).await, rev().await - first_rev);
    let last = *before.last().expect("it has ticked");
    (job, Year { last, over, late, missed, changes })
}

/// The ticks of the grid after one of them, up to a time.
fn grid(after: Time, to: Time) -> Vec<Time> {
    let steps = std::iter::successors(Some(after + STEP), |tick| Some(*tick + STEP));
    steps.take_while(|tick| *tick <= to).collect()
}

/// Checks that the ticks of the year from `from` on ran late, and that all earlier ones are in one summary.
fn is_caught_up_from(year: &Year, from: Time) {
    let due = grid(year.last, year.over);
    let (missed, late): (Vec<Time>, Vec<Time>) = due.into_iter().partition(|tick| *tick < from);
    assert_eq!(year.late, late, "oldest first, each once, on the grid");
    let summary =
        Missed { from: missed[0], to: missed[missed.len() - 1], count: missed.len() as u64, at_least: false };
    assert!(summary.count > 50_000, "{summary:?}");
    assert_eq!(year.missed, [summary]);
    let most = 2 * late.len() as i32 + 4;
    assert!(year.changes <= most, "{} changes for {} late ticks", year.changes, late.len());
}

async fn ends_on_the_grid(lab: &Lab, job: Beating) {
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Done);
    let ticks = ticks(job.id());
    assert_eq!(ticks.len(), 20);
    for pair in ticks.windows(2) {
        let apart = (pair[1] - pair[0]).as_micros();
        assert!(apart > 0 && apart % STEP.as_micros() == 0, "{pair:?}");
    }
}

async fn a_year_of_missed_ticks_is_one_entry_and_the_last_hour_runs_late(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Beats>()).await;
    let (job, year) = a_year(&lab, Beats { catch_up: None, until: None }).await;
    is_caught_up_from(&year, year.over - hours(1));
    assert!((6..=7).contains(&year.late.len()));
    ends_on_the_grid(&lab, job).await;
    assert_eq!(missed_of(&lab, job).await.len(), 0, "after ten more ticks it is not shown any more");
}

async fn a_year_of_missed_ticks_can_be_skipped_or_caught_up_by_one_tick(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Beats>()).await;
    let (job, year) = a_year(&lab, Beats { catch_up: Some(CatchUp::Skip), until: None }).await;
    is_caught_up_from(&year, year.over - minutes(1));
    ends_on_the_grid(&lab, job).await;
    let (job, year) = a_year(&lab, Beats { catch_up: Some(CatchUp::One), until: None }).await;
    is_caught_up_from(&year, *grid(year.last, year.over).last().expect("a year of ticks"));
    ends_on_the_grid(&lab, job).await;
    let window = minutes(80);
    let (job, year) = a_year(&lab, Beats { catch_up: Some(CatchUp::All { window }), until: None }).await;
    is_caught_up_from(&year, year.over - window);
    lab.cancel(job).await.accepted().expect("accepted");
}

async fn a_year_of_missed_ticks_survives_every_crash(on: On) {
    let scenario = async |lab: std::sync::Arc<Lab>| {
        let (job, year) = a_year(&lab, Beats { catch_up: None, until: None }).await;
        let due = grid(year.last, year.over);
        let late = due.iter().position(|tick| *tick >= year.over - hours(1)).expect("an hour of ticks");
        assert_eq!(year.late, due[late..]);
        assert_eq!(year.missed.len(), 1, "{:?}", year.missed);
        assert_eq!(year.missed[0].count, late as u64);
        ends_on_the_grid(&lab, job).await;
    };
    let report = on.crash(|engine| engine.workflow::<Beats>(), scenario).await;
    assert!(report.crashes > 40, "{report:?}");
}

async fn ticks_after_the_end_of_a_repeat_are_not_missed(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Beats>()).await;
    let until = lab.now() + hours(30);
    let (job, year) = a_year(&lab, Beats { catch_up: None, until: Some(until) }).await;
    assert_eq!((lab.state(job).await, year.late), (State::Done, Vec::new()));
    let missed = grid(year.last, until);
    let [summary] = year.missed.as_slice() else { panic!("{:?}", year.missed) };
    assert_eq!(
        (summary.from, summary.to, summary.count),
        (missed[0], missed[missed.len() - 1], missed.len() as u64)
    );
}

/// Counts in its ticks, and ends with the third.
#[derive(Serialize, Deserialize)]
struct Third;

impl Workflow for Third {
    const KIND: &'static str = "third";
    type Output = (Option<u32>, Option<u32>);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(Option<u32>, Option<u32>), Failure> {
        let calendar = Calendar::every(10, Unit::Minutes).map_err(Failure::stop)?;
        let id = flow.id();
        let last = flow.repeat("count", calendar, move |tick, cx| async move {
            let n = super::ran(format!("{id}/count/{tick}"));
            let n =
                if n == 1 { super::ran(format!("{id}/count")) } else { super::times(format!("{id}/count")) };
            cx.set("count", n)?;
            Ok(if n < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(n) })
        });
        let last = last.await?;
        flow.sleep(days(1)).await;
        Ok((last, flow.context().get("count")?))
    }
}

async fn a_replay_has_the_context_that_the_last_tick_set(on: On) {
    let scenario = async |lab: std::sync::Arc<Lab>| {
        let job = lab.submit(Third).await;
        lab.run().await;
        lab.result(job).await.map_err(|error| error.to_string())
    };
    let report = on.crash(|engine| engine.workflow::<Third>(), scenario).await;
    assert_eq!(report.outcome, Ok((Some(3), Some(3))));
}
