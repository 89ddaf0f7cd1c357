//! What the page says and draws of a branch. Pure.

use std::time::Duration;

use windlass::{
    JobId,
    operate::views::{
        BranchDetails, BranchFailures, BranchView, ChildCell, MergeState, Percentiles as Spread,
    },
};

use super::{
    Action, Band, Counters, Html, Icon, ItemMap, Percentiles, Pill, Tone, Why, counted, job::code_in,
    thousands,
};
use crate::pages::{
    bars::{CellState, ItemCell, Slice},
    format::{Clock, percent, rate, span},
    parts::Counter,
    trouble::sentence,
};

pub(super) fn seconds(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
}

/// Whether it is merged, blocked or goes on.
pub(super) fn pill(details: &BranchDetails) -> Pill {
    let branch = &details.branch;
    let pill = match branch.merge_state {
        _ if branch.blocked => Pill::blocked(),
        MergeState::Merged => Pill::new(Tone::Ok, Icon::Done, ""),
        MergeState::Cancelling => Pill::new(Tone::Warn, Icon::Drain, ""),
        _ if branch.pending == 0 => Pill::new(Tone::Wait, Icon::Waiting, ""),
        _ => Pill::new(Tone::Run, Icon::Running, ""),
    };
    let word = branch.state();
    pill.saying(if branch.blocked { "blocked" } else { &word }).boxed()
}

/// How far it is, or what holds it up.
pub(super) fn why(details: &BranchDetails, here: &str, can_redrive: bool, clock: Clock) -> Why {
    let branch = &details.branch;
    let mut notes = branch.notes.iter().map(|note| sentences(note));
    let mut actions = Vec::new();
    if can_redrive && branch.blocked {
        let redrive = Action::link("Redrive…", &format!("{here}?preview=redrive"));
        actions.push(redrive.primary().icon(Icon::Retry));
    }
    let held_up = "What is holding it up?";
    let (tone, icon, question, (said, more)) = if branch.blocked {
        (Tone::Bad, Icon::Blocked, held_up, notes.next().unwrap_or_default())
    } else if let Some(held) = &details.held_up {
        let said = Html::words("No child ends. The first that does not run is ");
        let said = said.link(&format!("/jobs/{}", held.job), &held.job.to_string()[24..]).text(": ");
        let said = code_in(said, &held.because);
        (Tone::Warn, Icon::Warn, held_up, (said, code_in(Html::new(), &held.hint).text(" ")))
    } else if let Some(note) = notes.next() {
        (Tone::Warn, Icon::Warn, held_up, note)
    } else {
        let (tone, icon, question, said) = progress(branch, clock);
        (tone, icon, question, (said, Html::new()))
    };
    let more = notes.fold(more, |all, (said, more)| all.add(said).text(" ").add(more));
    Why { tone, icon, question, sentence: said, more, actions }
}

/// A note without the word that it begins with: what is so, and what to do about it.
fn sentences(note: &str) -> (Html, Html) {
    let text = note.split_once(": ").map_or(note, |(_, text)| text);
    let (said, more) = text.split_once("; ").unwrap_or((text, ""));
    let html = |text: &str| code_in(Html::new(), &sentence(text));
    (html(said), if more.is_empty() { Html::new() } else { html(more).text(" ") })
}

fn progress(branch: &BranchView, clock: Clock) -> (Tone, Icon, &'static str, Html) {
    let unsuccessful = branch.unsuccessful();
    if branch.merge_state == MergeState::Merged {
        let said = match branch.merged_at {
            Some(at) => Html::words("It was merged ").add(clock.ago(at)),
            None => Html::words("It is merged"),
        };
        let (done, spawned) = (thousands(branch.done), thousands(branch.spawned));
        let said = said.text(&format!(": {done} of {spawned} children are done"));
        let said = match unsuccessful {
            0 => said.text("."),
            count => said.text(&format!(", {} not.", thousands(count))),
        };
        return (Tone::Ok, Icon::Done, "How did it end?", said);
    }
    if branch.pending == 0 {
        let said = match (branch.spawned, branch.sealed) {
            (0, _) => "No child was spawned yet.".to_owned(),
            (_, true) => "All children have ended. Its job merges it next.".to_owned(),
            (_, false) => "All children that were spawned have ended. Its job may spawn more.".to_owned(),
        };
        return (Tone::Wait, Icon::Waiting, "How far is it?", Html::words(&said));
    }
    let left = counted(branch.pending, "child has not ended", "children have not ended");
    let said = match (branch.rate.filter(|per_second| *per_second > 0.0), branch.time_left()) {
        (Some(per_second), Some(time)) => Html::words(&format!(
            "{left}. At {} they take about {}, until about ",
            rate(per_second),
            span(time)
        ))
        .add(clock.minute(clock.now + time))
        .text("."),
        _ => Html::words(&format!("{left}. How fast they end is known after the next poll.")),
    };
    (Tone::Run, Icon::Running, "How far is it?", said)
}

pub(super) fn counters(details: &BranchDetails, here: &str, clock: Clock) -> Counters {
    let branch = &details.branch;
    let list = |only: &str| format!("{here}?only={only}#children");
    let mut counters = vec![
        Counter::new("n-ended", "Ended", &percent(branch.ended(), branch.spawned))
            .href(&list("all"))
            .below(Html::words(&format!("{} of {}", thousands(branch.ended()), thousands(branch.spawned)))),
    ];
    let is_open = branch.pending > 0 && branch.merge_state != MergeState::Merged;
    if is_open {
        let left = branch.time_left();
        let done_at = |left: Duration| Html::words("done at about ").add(clock.minute(clock.now + left));
        counters.push(
            Counter::new("n-left", "Left", &left.map_or("–".to_owned(), span))
                .href(&list("live"))
                .below(left.map_or_else(|| Html::words("not known yet"), done_at)),
        );
    }
    let life = branch.times.end_rate.map(|life| format!("{} over its life", rate(life)));
    let now = branch.rate.filter(|_| is_open).map_or("–".to_owned(), rate);
    counters.push(Counter::new("n-rate", "Rate", &now).below(Html::words(&life.unwrap_or_default())));
    let unmerged = &details.unmerged;
    if unmerged.branches > 1 && is_open {
        let left = unmerged.time_left().map(|left| format!(", {} left", span(left))).unwrap_or_default();
        let text = format!("{} branches{left}", unmerged.branches);
        counters.push(
            Counter::new("n-all", "With its siblings", &unmerged.rate.map_or("–".to_owned(), rate))
                .href(&format!("/jobs/{}#branches", details.job))
                .below(Html::words(&text)),
        );
    }
    let unsuccessful = Counter::new("n-failed", "Unsuccessful", &thousands(branch.unsuccessful()))
        .href(&list("failed"))
        .below(Html::words(&format!(
            "{} of those that ended",
            percent(branch.unsuccessful(), branch.ended())
        )));
    counters.push(if branch.unsuccessful() > 0 { unsuccessful.tone(Tone::Bad) } else { unsuccessful });
    counters.push(
        Counter::new("n-parent", "Its job", &details.state.to_string())
            .href(&format!("/jobs/{}", details.job))
            .below(Html::words(waits(branch))),
    );
    Counters::new("The branch in numbers", counters).within()
}

/// What its job does with it.
fn waits(branch: &BranchView) -> &'static str {
    match branch.merge_state {
        MergeState::Merged => "has merged this branch",
        MergeState::Merging => "waits for this branch",
        MergeState::Unmerged => "does not wait for it yet",
        MergeState::Cancelling => "does not wait for it",
    }
}

/// How its children are, each part with a link to the children in it.
pub(super) fn band(branch: &BranchView, here: &str) -> Band {
    let list = |only: &str| format!("{here}?only={only}#children");
    let sentence =
        format!("{} of {} children have ended", thousands(branch.ended()), thousands(branch.spawned));
    let mut slices = vec![
        Slice::new(Tone::Ok, branch.done, "done").href(&list("all")),
        Slice::new(Tone::Bad, branch.failed, "failed").hatched().href(&list("failed")),
        Slice::new(Tone::Warn, branch.cancelled, "cancelled").hatched().href(&list("failed")),
    ];
    match branch.never_started {
        Some(never) => {
            slices.push(
                Slice::new(Tone::Run, branch.pending - never.min(branch.pending), "started")
                    .href(&list("live")),
            );
            slices.push(Slice::rest(never, "never started").href(&list("live")));
        }
        None => slices.push(Slice::rest(branch.pending, "not ended").href(&list("live"))),
    }
    Band::new(&sentence, slices)
}

/// The children in their order. A cell leads to the list from its children on: of those that failed, if one of them did. Its address is
/// relative to that of the page, because there are many of them.
pub(super) fn map(details: &BranchDetails, failures: &BranchFailures) -> ItemMap {
    let cell = |(number, cell): (usize, &ChildCell)| {
        let is_here = |id: &&JobId| (cell.range.first..=cell.range.last).contains(*id);
        // What failed is known of all children, not only of those that were read.
        let failed = failures.children.iter().filter(is_here);
        let unsuccessful = (failed.clone().count() as u64).max(cell.unsuccessful);
        let (only, from) = match failed.max() {
            Some(failed) => ("failed", *failed),
            None => ("all", cell.range.first),
        };
        ItemCell {
            href: format!("?only={only}&from={from}#children"),
            title: title(cell, unsuccessful, details.is_whole, number),
            state: state(cell, unsuccessful),
        }
    };
    ItemMap {
        sentence: "Children in the order in which they were spawned".into(),
        cells: details.cells.iter().enumerate().map(cell).collect(),
    }
}

fn state(cell: &ChildCell, unsuccessful: u64) -> CellState {
    match cell {
        _ if unsuccessful > 0 => CellState::Failed,
        cell if cell.running > 0 => CellState::Running,
        cell if cell.done == cell.read => CellState::Done,
        cell if cell.done > 0 => CellState::Begun,
        _ => CellState::Untouched,
    }
}

fn title(cell: &ChildCell, unsuccessful: u64, is_whole: bool, number: usize) -> String {
    let mut text = match is_whole {
        true => format!("{} of {} done", thousands(cell.done), thousands(cell.read)),
        false => format!(
            "part {}: {} of the first {} done",
            number + 1,
            thousands(cell.done),
            thousands(cell.read)
        ),
    };
    for (count, what) in [(cell.running, "running"), (unsuccessful, "unsuccessful")] {
        if count > 0 {
            text += &format!(", {} {what}", thousands(count));
        }
    }
    text
}

/// What a cell is.
pub(super) fn map_text(details: &BranchDetails) -> String {
    match details.is_whole {
        true => "all of them".to_owned(),
        false => format!(
            "in {} parts by when they were spawned, of each the first few and what failed",
            details.cells.len()
        ),
    }
}

/// How long children waited and ran, on one scale.
pub(super) fn times(wait: &Spread, run: &Spread) -> Vec<(&'static str, Percentiles)> {
    let duration = |seconds: Option<f64>| {
        Duration::try_from_secs_f64(seconds.unwrap_or(0.0).max(0.0)).unwrap_or_default()
    };
    let ends = [wait, run].into_iter().filter(|spread| spread.count > 0);
    let lowest = ends.clone().map(|spread| duration(spread.p50_seconds)).min().unwrap_or_default();
    let highest = ends.map(|spread| duration(spread.p99_seconds)).max().unwrap_or_default();
    let scale = ((lowest / 4).max(Duration::from_millis(1)), (highest * 2).max(Duration::from_millis(2)));
    let row = |(name, spread): (&'static str, &Spread)| {
        let (p50, p95, p99) =
            (duration(spread.p50_seconds), duration(spread.p95_seconds), duration(spread.p99_seconds));
        (name, Percentiles { p50, p90: p95, p99, longest: p99, scale })
    };
    let rows = [("Waited", wait), ("Ran", run)];
    rows.into_iter().filter(|(_, spread)| spread.count > 0).map(row).collect()
}

#[cfg(test)]
mod tests {
    use windlass::store::ChildRange;

    use super::*;

    fn cell(read: u64, done: u64, unsuccessful: u64, running: u64) -> ChildCell {
        let id = JobId::from_parts(1, 1, 1);
        ChildCell { range: ChildRange { first: id, last: id }, read, done, unsuccessful, running }
    }

    #[test]
    fn a_cell_shows_what_is_most_urgent() {
        let states = [
            (cell(4, 2, 1, 1), CellState::Failed),
            (cell(4, 2, 0, 1), CellState::Running),
            (cell(4, 2, 0, 0), CellState::Begun),
            (cell(4, 4, 0, 0), CellState::Done),
            (cell(4, 0, 0, 0), CellState::Untouched),
        ];
        for (cell, expected) in states {
            assert_eq!(state(&cell, cell.unsuccessful), expected, "{cell:?}");
        }
        assert_eq!(state(&cell(4, 4, 0, 0), 7), CellState::Failed, "known from the index of such jobs");
        assert_eq!(title(&cell(4, 2, 1, 1), 1, true, 0), "2 of 4 done, 1 running, 1 unsuccessful");
        assert_eq!(title(&cell(4, 4, 0, 0), 7, false, 11), "part 12: 4 of the first 4 done, 7 unsuccessful");
    }

    #[test]
    fn times_share_a_scale() {
        let spread = |count, p50: f64, p99: f64| Spread {
            count,
            p50_seconds: Some(p50),
            p95_seconds: Some(p99),
            p99_seconds: Some(p99),
        };
        let times = times(&spread(9, 700.0, 1_500.0), &spread(9, 0.6, 2.4));
        assert_eq!(times.len(), 2);
        assert!(times[0].1.scale == times[1].1.scale && times[0].1.scale.1 == Duration::from_secs(3_000));
        assert!(super::times(&spread(0, 0.0, 0.0), &spread(0, 0.0, 0.0)).is_empty());
    }

    #[test]
    fn a_note_is_a_sentence_without_its_word() {
        let (said, more) =
            sentences("blocked: the merge waits for 2 children; fix it, then `windlass redrive x`");
        assert_eq!(said.as_str(), "<bdi class=\"long\">The merge waits for 2 children.</bdi>");
        assert!(
            more.as_str().contains("Fix it, then") && more.as_str().contains("<code>"),
            "{}",
            more.as_str()
        );
        assert!(sentences("it stands still").1.is_empty());
    }
}
