//! Looking at branches once a second: how fast they are is measured by the looks themselves, so that it is of now.

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
    page::{Setting, page},
    view::{Parent, Sum, View},
};
use crate::{out, place::Place, stop::Stop};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);
/// How often a line says how far it is, where there is no terminal.
const SAID: Duration = Duration::from_secs(5);
/// Over which time a rate is measured: long enough to be steady, short enough to be of now.
const SPAN: Duration = Duration::from_secs(10);
/// For how long nothing may have ended before it is asked why.
const STILL: Duration = Duration::from_secs(5);
/// Of how many branches it is asked.
const ASKED: usize = 3;

/// What was seen lately.
#[derive(Default)]
pub(super) struct Pace {
    looks: VecDeque<(Instant, BTreeMap<BranchNo, i64>)>,
}

impl Pace {
    pub(super) fn look(&mut self, at: Instant, branches: &[Branch]) {
        let ended = branches.iter().map(|branch| (branch.number, branch.tally.ended()));
        self.looks.push_back((at, ended.collect()));
        while self.looks.len() > 2 && self.looks.front().is_some_and(|(first, _)| at - *first > SPAN) {
            self.looks.pop_front();
        }
    }

    /// How many children of a branch ended per second, once two looks have told.
    pub(super) fn rate(&self, number: BranchNo) -> Option<f64> {
        let ended = |(at, ended): &(Instant, BTreeMap<BranchNo, i64>)| Some((*at, *ended.get(&number)?));
        let first = self.looks.iter().find_map(ended)?;
        let last = self.looks.iter().rev().find_map(ended)?;
        let seconds = (last.0 - first.0).as_secs_f64();
        // Children that are retried have not ended any more.
        (seconds > 0.0).then(|| ((last.1 - first.1) as f64 / seconds).max(0.0))
    }
}

/// What is seen in one look.
pub(super) struct Look {
    pub(super) parent: Parent,
    pub(super) views: Vec<View>,
    pub(super) now: Time,
}

impl Look {
    /// Whether nothing more comes that anybody waits for.
    fn is_over(&self) -> bool {
        match self.views.is_empty() {
            true => self.parent.state.is_final(),
            false => self.views.iter().all(|view| view.is_over(&self.parent)),
        }
    }
}

/// Whose branches are looked at, and which.
pub(super) struct Watched<'a> {
    pub(super) job: JobId,
    pub(super) branch: Option<&'a str>,
    pub(super) engine: &'a Engine,
    pub(super) place: &'a Place,
}

impl Watched<'_> {
    pub(super) async fn look(&self, pace: &mut Pace) -> anyhow::Result<Look> {
        let inspect = self.engine.inspect();
        let Some(job) = inspect.job(self.job).await? else { bail!(self.place.no_job(self.job)) };
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
        pace.look(Instant::now(), &branches);
        let parent = Parent::of(&job.summary);
        let view = |branch: Branch| {
            let rate = pace.rate(branch.number);
            View::of(branch, &parent, rate, now, &self.place.program)
        };
        let views = branches.into_iter().map(view).collect();
        Ok(Look { parent, views, now })
    }

    /// Notes, of branches in which nothing ends, what keeps the first child that is left.
    pub(super) async fn explain(&self, look: &mut Look) -> anyhow::Result<()> {
        let still = |view: &&mut View| {
            let since = view.branch.poll.at.unwrap_or(view.branch.opened_at).max(view.branch.opened_at);
            let known = view.rate.is_some() || look.now.since(since) >= STILL;
            let open = !view.branch.merged && !view.branch.cancels_children && view.pending > 0;
            open && known && view.rate.unwrap_or(0.0) <= 0.0
        };
        for view in look.views.iter_mut().filter(still).take(ASKED) {
            let (job, branch) = (self.job, view.branch.number);
            let live = BranchChildFilter { job, branch, only: ChildStates::Live, after: None, limit: 1 };
            let Some(first) = self.engine.inspect().branch_children(&live).await?.pop() else { continue };
            let id = first.summary.id;
            let Some(why) = self.engine.why(id).await? else { continue };
            let hint = self.place.said(&why.hint);
            view.notes.push(format!(
                "still: nothing ends. Of the first that is left ({id}): {} {hint}",
                why.because
            ));
        }
        Ok(())
    }

    /// Looks until nothing more comes, or it is told to end. Answers whether it was over.
    pub(super) async fn watch(&self) -> anyhow::Result<bool> {
        let (mut stop, mut pace, term) = (Stop::listen()?, Pace::default(), Term::stdout());
        let mut screen = Screen::default();
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked: Option<(Instant, BTreeMap<BranchNo, Vec<String>>)> = None;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.told() => return Ok(false),
            }
            let mut look = self.look(&mut pace).await?;
            if asked.as_ref().is_none_or(|(at, _)| at.elapsed() >= STILL) {
                let before: Vec<usize> = look.views.iter().map(|view| view.notes.len()).collect();
                self.explain(&mut look).await?;
                let new = look.views.iter().zip(before);
                let new = new.map(|(view, before)| (view.branch.number, view.notes[before..].to_vec()));
                asked = Some((Instant::now(), new.collect()));
            } else if let Some((_, notes)) = &asked {
                for view in look.views.iter_mut().filter(|view| view.rate.unwrap_or(0.0) <= 0.0) {
                    view.notes.extend(notes.get(&view.branch.number).into_iter().flatten().cloned());
                }
            }
            let over = look.is_over();
            screen.show(&term, &look, over, &self.place.program)?;
            if over {
                return Ok(true);
            }
        }
    }
}

/// What is on the screen: a page that is drawn anew where there is a terminal, a line now and then where not.
#[derive(Default)]
struct Screen {
    drawn: usize,
    said: Option<Instant>,
}

impl Screen {
    fn show(&mut self, term: &Term, look: &Look, last: bool, program: &str) -> anyhow::Result<()> {
        let text = page(&look.parent, &look.views, look.now, Setting::here(), program);
        if !term.is_term() {
            return self.say(look, &text, last);
        }
        let (rows, columns) = term.size();
        let (rows, columns) = (usize::from(rows).max(4), usize::from(columns).max(1));
        // A command that does not fit is broken by the terminal.
        let height = |line: &str| console::measure_text_width(line).div_ceil(columns).max(1);
        let mut lines: Vec<&str> = text.lines().collect();
        let mut used = 0;
        let fits = lines.iter().take_while(|line| {
            used += height(line);
            used < rows - 1
        });
        let fits = fits.count();
        let more = format!("… {} more lines; --branch NAME shows one branch alone", lines.len() - fits);
        if fits < lines.len() {
            lines.truncate(fits);
            lines.push(&more);
        }
        // In one go, so that it does not flicker.
        let up = if self.drawn > 0 { format!("\x1b[{}A\r\x1b[J", self.drawn) } else { String::new() };
        self.drawn = lines.iter().map(|line| height(line)).sum();
        out::print(&format!("{up}{}\n", lines.join("\n")))
    }

    fn say(&mut self, look: &Look, page: &str, last: bool) -> anyhow::Result<()> {
        if last || self.said.is_none() {
            self.said = Some(Instant::now());
            return out::print(page);
        }
        if self.said.is_some_and(|said| said.elapsed() >= SAID) {
            self.said = Some(Instant::now());
            let Sum { spawned, pending, bad, rate, .. } = Sum::of(&look.views);
            let rate = rate.map(|rate| format!(", {rate:.0}/s")).unwrap_or_default();
            let (ended, spawned) = (out::thousands(spawned - pending), out::thousands(spawned));
            out::note(&format!("{ended} of {spawned} ended, {} not well{rate}", out::thousands(bad)));
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
            tally: windlass::model::Tally { done, ..Default::default() },
            watch: None,
            goal: None,
            opened_at: Time(0),
            merged_at: None,
            poll: Default::default(),
        }
    }

    #[test]
    fn rates_are_of_the_last_looks() {
        let (mut pace, began) = (Pace::default(), Instant::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        pace.look(at(0), &[branch(1, 0)]);
        assert_eq!(pace.rate(BranchNo(1)), None, "one look tells nothing");
        pace.look(at(2), &[branch(1, 100), branch(2, 7)]);
        assert_eq!((pace.rate(BranchNo(1)), pace.rate(BranchNo(2))), (Some(50.0), None));
        for second in 3..20 {
            pace.look(at(second), &[branch(1, 100), branch(2, 7 + second as i64)]);
        }
        assert_eq!((pace.rate(BranchNo(1)), pace.rate(BranchNo(2))), (Some(0.0), Some(1.0)));
        pace.look(at(20), &[branch(1, 40), branch(2, 27)]);
        assert_eq!(pace.rate(BranchNo(1)), Some(0.0), "what is retried is no progress, and no regress");
    }
}
