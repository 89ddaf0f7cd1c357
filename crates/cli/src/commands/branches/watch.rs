//! Watches branches: reads them once a second, measures their current rate, and explains why one has stalled.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use anyhow::bail;
use console::Term;
use windlass::{
    Engine, JobId, Time,
    model::BranchNo,
    store::{Branch, BranchChildFilter, ChildStates},
};

use super::{
    page::{Layout, page},
    view::{BranchView, Parent, Totals},
};
use crate::{out, program::Program, stop::StopSignals};

/// How often the branches are read.
const REFRESH: Duration = Duration::from_secs(1);
/// How often a line is printed without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// A rate is measured over this time: long enough to be steady, short enough to be current.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// A branch has stalled if nothing ended in it for this long.
const STALL: Duration = Duration::from_secs(5);
/// How many stalled branches are explained: it takes several queries each.
const EXPLAINED: usize = 3;

/// Measures the rate of each branch from the latest reads.
#[derive(Default)]
pub(super) struct RateMeter {
    samples: VecDeque<(Instant, BTreeMap<BranchNo, i64>)>,
}

impl RateMeter {
    fn add(&mut self, at: Instant, branches: &[Branch]) {
        let ended = branches.iter().map(|branch| (branch.number, branch.counts.ended()));
        self.samples.push_back((at, ended.collect()));
        while self.samples.len() > 2
            && self.samples.front().is_some_and(|(first, _)| at - *first > RATE_WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// How many children of a branch ended per second; `None` before the second sample.
    fn rate(&self, number: BranchNo) -> Option<f64> {
        let ended = |(at, ended): &(Instant, BTreeMap<BranchNo, i64>)| Some((*at, *ended.get(&number)?));
        let first = self.samples.iter().find_map(ended)?;
        let last = self.samples.iter().rev().find_map(ended)?;
        let seconds = (last.0 - first.0).as_secs_f64();
        // A retried child no longer counts as ended, so the difference may be negative.
        (seconds > 0.0).then(|| ((last.1 - first.1) as f64 / seconds).max(0.0))
    }
}

/// The branches at one time.
pub(super) struct BranchSnapshot {
    pub(super) parent: Parent,
    pub(super) views: Vec<BranchView>,
    pub(super) now: Time,
}

impl BranchSnapshot {
    /// Whether nothing more is expected of any branch.
    fn is_over(&self) -> bool {
        match self.views.is_empty() {
            true => self.parent.state.is_final(),
            false => self.views.iter().all(|view| view.is_over(&self.parent)),
        }
    }
}

/// Reads all branches of a job, or those of one name.
pub(super) struct BranchWatcher<'a> {
    pub(super) job: JobId,
    pub(super) branch: Option<&'a str>,
    pub(super) engine: &'a Engine,
    pub(super) program: &'a Program,
}

impl BranchWatcher<'_> {
    pub(super) async fn read(&self, meter: &mut RateMeter) -> anyhow::Result<BranchSnapshot> {
        let inspect = self.engine.inspect();
        let Some(job) = inspect.job(self.job).await? else { bail!(self.program.no_job(self.job)) };
        let mut branches = inspect.branches(self.job).await?;
        if let Some(name) = self.branch {
            let known: Vec<String> = branches.iter().map(|branch| branch.name.clone()).collect();
            branches.retain(|branch| branch.name == name);
            if branches.is_empty() {
                let (job, branch) = (self.job, name.to_owned());
                bail!(windlass::Error::NoSuchBranch { job, branch, known });
            }
        }
        let now = inspect.clock().await?;
        meter.add(Instant::now(), &branches);
        let parent = Parent::new(&job.summary);
        let view = |branch: Branch| {
            let rate = meter.rate(branch.number);
            BranchView::new(branch, &parent, rate, now, &self.program.name)
        };
        let views = branches.into_iter().map(view).collect();
        Ok(BranchSnapshot { parent, views, now })
    }

    /// Adds a note to branches in which nothing ends: why the first live child is in its state.
    pub(super) async fn explain_stalls(&self, snapshot: &mut BranchSnapshot) -> anyhow::Result<()> {
        let is_stalled = |view: &&mut BranchView| {
            let since = view.branch.poll.at.unwrap_or(view.branch.opened_at).max(view.branch.opened_at);
            let known = view.rate.is_some() || snapshot.now.since(since) >= STALL;
            let open = !view.branch.merged && !view.branch.cancels_children && view.pending > 0;
            open && known && view.rate.unwrap_or(0.0) <= 0.0
        };
        for view in snapshot.views.iter_mut().filter(is_stalled).take(EXPLAINED) {
            let (job, branch) = (self.job, view.branch.number);
            let live = BranchChildFilter { job, branch, only: ChildStates::Live, after: None, limit: 1 };
            let Some(first) = self.engine.inspect().branch_children(&live).await?.pop() else { continue };
            let id = first.summary.id;
            let Some(why) = self.engine.why(id).await? else { continue };
            let hint = self.program.with_own_name(&why.hint);
            view.notes
                .push(format!("stalled: no child ends. The first live one, {id}: {} {hint}", why.because));
        }
        Ok(())
    }

    /// Refreshes until nothing more is expected or a signal arrives. Returns false after a signal.
    pub(super) async fn watch(&self) -> anyhow::Result<bool> {
        let (mut stop, mut meter, term) = (StopSignals::listen()?, RateMeter::default(), Term::stdout());
        let mut screen = Screen::default();
        let mut tick = tokio::time::interval(REFRESH);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut explained: Option<(Instant, BTreeMap<BranchNo, Vec<String>>)> = None;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.received() => return Ok(false),
            }
            let mut snapshot = self.read(&mut meter).await?;
            if explained.as_ref().is_none_or(|(at, _)| at.elapsed() >= STALL) {
                let before: Vec<usize> = snapshot.views.iter().map(|view| view.notes.len()).collect();
                self.explain_stalls(&mut snapshot).await?;
                let new = snapshot.views.iter().zip(before);
                let new = new.map(|(view, before)| (view.branch.number, view.notes[before..].to_vec()));
                explained = Some((Instant::now(), new.collect()));
            } else if let Some((_, notes)) = &explained {
                for view in snapshot.views.iter_mut().filter(|view| view.rate.unwrap_or(0.0) <= 0.0) {
                    view.notes.extend(notes.get(&view.branch.number).into_iter().flatten().cloned());
                }
            }
            let over = snapshot.is_over();
            screen.show(&term, &snapshot, over, &self.program.name)?;
            if over {
                return Ok(true);
            }
        }
    }
}

/// Shows snapshots: on a terminal as a page that is redrawn, otherwise as a line every few seconds.
#[derive(Default)]
struct Screen {
    /// How many rows of the terminal the page takes.
    drawn_rows: usize,
    printed_at: Option<Instant>,
}

impl Screen {
    fn show(
        &mut self,
        term: &Term,
        snapshot: &BranchSnapshot,
        last: bool,
        program: &str,
    ) -> anyhow::Result<()> {
        let BranchSnapshot { parent, views, now } = snapshot;
        let text = page(parent, views, *now, Layout::of_terminal(), program);
        if !term.is_term() {
            return self.print_line(snapshot, &text, last);
        }
        let (rows, columns) = term.size();
        let (rows, columns) = (usize::from(rows).max(4), usize::from(columns).max(1));
        // The terminal wraps a command that does not fit.
        let height = |line: &str| console::measure_text_width(line).div_ceil(columns).max(1);
        let mut lines: Vec<&str> = text.lines().collect();
        let mut used = 0;
        let fits = lines.iter().take_while(|line| {
            used += height(line);
            used < rows - 1
        });
        let fits = fits.count();
        let more = format!("… {} more lines; use --branch NAME to see one branch", lines.len() - fits);
        if fits < lines.len() {
            lines.truncate(fits);
            lines.push(&more);
        }
        // In one write, so that it does not flicker.
        let up =
            if self.drawn_rows > 0 { format!("\x1b[{}A\r\x1b[J", self.drawn_rows) } else { String::new() };
        self.drawn_rows = lines.iter().map(|line| height(line)).sum();
        out::print(&format!("{up}{}\n", lines.join("\n")))
    }

    /// Prints the page first and last, and a line in between.
    fn print_line(&mut self, snapshot: &BranchSnapshot, page: &str, last: bool) -> anyhow::Result<()> {
        if last || self.printed_at.is_none() {
            self.printed_at = Some(Instant::now());
            return out::print(page);
        }
        if self.printed_at.is_some_and(|at| at.elapsed() >= LINE_INTERVAL) {
            self.printed_at = Some(Instant::now());
            let Totals { spawned, pending, unsuccessful, rate, .. } = Totals::of(&snapshot.views);
            let rate = rate.map(|rate| format!(", {rate:.0}/s")).unwrap_or_default();
            let (ended, spawned) = (out::thousands(spawned - pending), out::thousands(spawned));
            let unsuccessful = out::thousands(unsuccessful);
            out::note(&format!("{ended} of {spawned} ended, {unsuccessful} of them unsuccessfully{rate}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(number: i64, done: i64) -> Branch {
        Branch {
            job: JobId::from_parts(1, 0, 0),
            number: BranchNo(number),
            name: "a".into(),
            spawns: Vec::new(),
            cursor: None,
            sealed: true,
            merged: false,
            cancels_children: false,
            spawned: 1_000,
            counts: windlass::model::BranchCounts { done, ..Default::default() },
            watch: None,
            goal: None,
            opened_at: Time(0),
            merged_at: None,
            poll: Default::default(),
        }
    }

    #[test]
    fn rates_are_measured_over_the_last_samples() {
        let (mut meter, began) = (RateMeter::default(), Instant::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        meter.add(at(0), &[branch(1, 0)]);
        assert_eq!(meter.rate(BranchNo(1)), None, "one sample is not enough");
        meter.add(at(2), &[branch(1, 100), branch(2, 7)]);
        assert_eq!((meter.rate(BranchNo(1)), meter.rate(BranchNo(2))), (Some(50.0), None));
        for second in 3..20 {
            meter.add(at(second), &[branch(1, 100), branch(2, 7 + second as i64)]);
        }
        assert_eq!((meter.rate(BranchNo(1)), meter.rate(BranchNo(2))), (Some(0.0), Some(1.0)));
        meter.add(at(20), &[branch(1, 40), branch(2, 27)]);
        assert_eq!(meter.rate(BranchNo(1)), Some(0.0), "a retried child does not make the rate negative");
    }
}
