//! Watches branches: reads them once a second and redraws their page.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use console::Term;
use windlass::{
    JobId,
    model::BranchNo,
    operate::views::{BranchesView, RateMeter, Totals},
};

use super::page::{Layout, page};
use crate::{client::Client, out, program::Program, stop::StopSignals};

/// How often the branches are read.
const REFRESH: Duration = Duration::from_secs(1);
/// How often a line is printed without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// How often stalled branches are explained: it takes several queries each.
const EXPLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Reads all branches of a job, or those of one name.
pub(super) struct BranchWatcher<'a> {
    pub(super) job: JobId,
    pub(super) branch: Option<&'a str>,
    pub(super) client: &'a Client,
    pub(super) program: &'a Program,
}

impl BranchWatcher<'_> {
    /// Reads the branches; with `explain` also why those have stalled in which nothing ends.
    pub(super) async fn read(&self, explain: bool) -> anyhow::Result<BranchesView> {
        let mut view = self.client.branches(self.job, self.branch, explain).await?;
        self.use_own_name(&mut view);
        Ok(view)
    }

    fn use_own_name(&self, view: &mut BranchesView) {
        for note in view.branches.iter_mut().flat_map(|branch| &mut branch.notes) {
            *note = self.program.with_own_name(note);
        }
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
            let explains = explained.as_ref().is_none_or(|(at, _)| at.elapsed() >= EXPLAIN_INTERVAL);
            let mut view = self.read(explains).await?;
            meter.measure(Instant::now(), &mut view);
            let stalls = view.take_stalls();
            if explains {
                explained = Some((Instant::now(), stalls));
            }
            if let Some((_, stalls)) = &explained {
                for branch in view.branches.iter_mut().filter(|branch| branch.rate.unwrap_or(0.0) <= 0.0) {
                    branch.notes.extend(stalls.get(&branch.number).into_iter().flatten().cloned());
                }
            }
            let over = view.is_over();
            screen.show(&term, &view, over)?;
            if over {
                return Ok(true);
            }
        }
    }
}

/// Shows branches: on a terminal as a page that is redrawn, otherwise as a line every few seconds.
#[derive(Default)]
struct Screen {
    /// How many rows of the terminal the page takes.
    drawn_rows: usize,
    printed_at: Option<Instant>,
}

impl Screen {
    fn show(&mut self, term: &Term, view: &BranchesView, last: bool) -> anyhow::Result<()> {
        let text = page(view, Layout::of_terminal());
        if !term.is_term() {
            return self.print_line(&view.unmerged, &text, last);
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
    fn print_line(&mut self, totals: &Totals, page: &str, last: bool) -> anyhow::Result<()> {
        if last || self.printed_at.is_none() {
            self.printed_at = Some(Instant::now());
            return out::print(page);
        }
        if self.printed_at.is_some_and(|at| at.elapsed() >= LINE_INTERVAL) {
            self.printed_at = Some(Instant::now());
            let Totals { spawned, pending, unsuccessful, rate, .. } = *totals;
            let rate = rate.map(|rate| format!(", {rate:.0}/s")).unwrap_or_default();
            let (ended, spawned) = (out::thousands(spawned - pending), out::thousands(spawned));
            let unsuccessful = out::thousands(unsuccessful);
            out::note(&format!("{ended} of {spawned} ended, {unsuccessful} of them unsuccessfully{rate}"));
        }
        Ok(())
    }
}
