//! The page of branches: a few lines for each, or a table if there are many.

#[cfg(test)]
mod tests;

use std::time::Duration;

use console::{StyledObject, style};
use windlass::{
    Time,
    operate::views::{BranchView, BranchesView, MergeState, Percentiles},
};

use crate::{
    durations, out,
    table::{Column, column},
};

/// Up to this many branches have several lines each.
const FEW: usize = 4;
/// The length of a bar.
const BAR: usize = 30;
/// The length of a bar in a table.
const SHORT_BAR: usize = 10;

/// The width and colours of a page.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// `None`, without a limit, if standard output is no terminal.
    pub(crate) width: Option<usize>,
    pub(crate) colour: bool,
}

impl Layout {
    pub(crate) fn of_terminal() -> Layout {
        Layout { width: out::width(), colour: console::Term::stdout().is_term() }
    }

    fn style<'s>(&self, text: &'s str) -> StyledObject<&'s str> {
        style(text).force_styling(self.colour)
    }
}

pub(crate) fn page(view: &BranchesView, layout: Layout) -> String {
    let key = view.key.as_ref().map(|key| format!(", key {}", out::plain(key))).unwrap_or_default();
    let mut page = format!("job {}, {}, {}{key}\n\n", view.job, out::plain(&view.kind), view.state);
    match view.branches.len() {
        0 if view.state.is_final() => page += "it opened no branches\n",
        0 => page += "it has opened no branches yet\n",
        1..=FEW => {
            let lines = |branch: &BranchView| lines(branch, view, layout);
            page += &view.branches.iter().map(lines).collect::<Vec<String>>().join("\n");
        }
        _ => {
            page += &table(&view.branches, layout);
            let notes = view.notes();
            if !notes.is_empty() {
                page += &format!("\n{}", render_notes(&notes, 0, layout));
            }
        }
    }
    let totals = &view.unmerged;
    if totals.branches > 1 {
        let text = format!(
            "total  {} of {} ended, {}{}",
            out::thousands(totals.spawned - totals.pending),
            out::thousands(totals.spawned),
            pending(totals.pending, totals.never_started),
            rate_and_time_left(totals.rate, totals.time_left(), totals.pending),
        );
        page += &format!("\n{}", wrap(&text, 0, layout.width));
    }
    page
}

/// The lines of one branch.
fn lines(branch: &BranchView, view: &BranchesView, layout: Layout) -> String {
    let name = out::plain(&branch.name);
    let mut text = format!("{}  {}\n", layout.style(&name).bold(), branch.state());
    let (ended, spawned) = (branch.ended(), branch.spawned);
    let more = if branch.sealed { "" } else { ", more to come" };
    text += &match spawned {
        0 if branch.sealed => "  no children\n".to_owned(),
        0 => "  no children yet\n".to_owned(),
        _ => format!(
            "  {}  {}  {} of {} ended{more}\n",
            bar(branch, BAR, layout),
            percent(ended, spawned),
            out::thousands(ended),
            out::thousands(spawned)
        ),
    };
    let number = |count: u64, what: &str| format!("{} {what}", out::thousands(count));
    let in_red = |count: u64, what: &str| {
        let text = number(count, what);
        let styled = layout.style(&text);
        if count > 0 { styled.red().to_string() } else { text.clone() }
    };
    let mut ends = format!("{} · {} · ", number(branch.done, "done"), in_red(branch.failed, "failed"));
    ends += &format!(
        "{} · {}",
        in_red(branch.cancelled, "cancelled"),
        pending(branch.pending, branch.never_started)
    );
    let rate = branch.rate.filter(|_| branch.merge_state != MergeState::Merged);
    ends += &rate_and_time_left(rate, branch.time_left(), branch.pending);
    text += &wrap(&ends, 2, layout.width);
    text += &wrap(&polls(branch, view.now), 2, layout.width);
    let times = times(branch, view.now);
    if !times.is_empty() {
        text += &wrap(&times, 2, layout.width);
    }
    let rule = match (&branch.merge, branch.merge_state, branch.merged_at) {
        (Some(merge), MergeState::Merged, Some(at)) => {
            format!("merged {}, {merge}", durations::relative(at, view.now))
        }
        (Some(merge), ..) => format!("merged {merge}"),
        (None, MergeState::Unmerged, _) if view.state.is_final() => "never merged".to_owned(),
        (None, MergeState::Unmerged, _) => "not being merged yet".to_owned(),
        (None, ..) => String::new(),
    };
    if !rule.is_empty() {
        text += &wrap(&rule, 2, layout.width);
    }
    text + &render_notes(&branch.notes, 2, layout)
}

/// Notes, each with its first word in colour.
pub(crate) fn render_notes(notes: &[String], indent: usize, layout: Layout) -> String {
    let note = |note: &String| {
        let text = wrap(&out::plain(note), indent, layout.width);
        match note.split_once(':') {
            Some((word, _)) if layout.colour => {
                text.replacen(word, &layout.style(word).yellow().to_string(), 1)
            }
            _ => text,
        }
    };
    notes.iter().map(note).collect()
}

/// When it was opened, and its polls.
fn polls(branch: &BranchView, now: Time) -> String {
    let next = branch.next_poll_at.map(|at| match at > now {
        true => format!("next poll {}", durations::relative(at, now)),
        false => "next poll now".to_owned(),
    });
    let last = branch.last_poll_at.map(|at| format!("last poll {}", durations::relative(at, now)));
    let polls = out::counted(branch.polls.into(), "poll", "polls");
    let redelivered = format!("{} redelivered", out::thousands(branch.redelivered));
    let opened = format!("opened {}", durations::relative(branch.opened_at, now));
    let parts = [Some(opened), last, next, Some(polls), Some(redelivered)];
    parts.into_iter().flatten().collect::<Vec<String>>().join(" · ")
}

/// How fast children were spawned and ended, how long they waited and ran, and when the last one ended.
fn times(branch: &BranchView, now: Time) -> String {
    let times = &branch.times;
    let seconds =
        |seconds: Option<f64>| seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let spawned = times.sealed_at.and(seconds(Some(times.spawn_seconds))).map(|took| {
        let rate = times.spawn_rate.map(|rate| format!(", {}", format_rate(rate))).unwrap_or_default();
        format!("spawned in {}{rate}", durations::format(took))
    });
    let started = times.first_start_at.map(|at| format!("first start {}", durations::relative(at, now)));
    let ended = times.last_end_at.map(|at| {
        let rate =
            times.end_rate.map(|rate| format!(", {} on the whole", format_rate(rate))).unwrap_or_default();
        format!("last end {}{rate}", durations::relative(at, now))
    });
    let spread = |what: &str, spread: &Percentiles| {
        let (p50, p95) = (seconds(spread.p50_seconds)?, seconds(spread.p95_seconds)?);
        Some(format!("{what} {} (95 %: {})", durations::format(p50), durations::format(p95)))
    };
    let (waited, ran) = (spread("waited", &times.wait), spread("ran", &times.run));
    let parts = [spawned.filter(|_| branch.spawned > 0), started, ended, waited, ran];
    parts.into_iter().flatten().collect::<Vec<String>>().join(" · ")
}

fn pending(pending: u64, never_started: Option<u64>) -> String {
    let never_started = never_started.filter(|count| *count > 0);
    let never_started =
        never_started.map(|count| format!(", {} of them never started", out::thousands(count)));
    format!("{} pending{}", out::thousands(pending), never_started.unwrap_or_default())
}

/// The rate and the time left, if known.
fn rate_and_time_left(rate: Option<f64>, left: Option<Duration>, pending: u64) -> String {
    let Some(rate) = rate.filter(|_| pending > 0) else { return String::new() };
    let left = left.map(|left| format!(", about {} left", durations::format(left))).unwrap_or_default();
    format!(" · {}{left}", format_rate(rate))
}

/// A rate per second, minute or hour, whichever is at least one.
fn format_rate(rate: f64) -> String {
    match rate {
        10.0.. => format!("{}/s", out::thousands(rate.round() as u64)),
        1.0.. => format!("{rate:.1}/s"),
        rate if rate <= 0.0 => "0/s".to_owned(),
        rate if rate * 60.0 >= 1.0 => format!("{:.1}/min", rate * 60.0),
        rate => format!("{:.1}/h", rate * 3_600.0),
    }
}

/// The share of children that have ended. Rounded down, so that it is 100 only if all have.
fn percent(ended: u64, spawned: u64) -> String {
    let share = (ended as f64 * 1_000.0 / spawned.max(1) as f64).floor() / 10.0;
    format!("{share:>5.1} %")
}

/// A bar: done, unsuccessful, pending.
fn bar(view: &BranchView, length: usize, layout: Layout) -> String {
    let spawned = view.spawned.max(1) as f64;
    let cells = |count: u64| (count as f64 * length as f64 / spawned) as usize;
    // At least one cell is red if any child was unsuccessful.
    let red = cells(view.unsuccessful()).max(usize::from(view.unsuccessful() > 0)).min(length);
    let green = cells(view.ended()).saturating_sub(red).min(length - red);
    let rest = length - red - green;
    let (green, red, rest) = ("━".repeat(green), "━".repeat(red), "─".repeat(rest));
    format!("{}{}{}", layout.style(&green).green(), layout.style(&red).red(), layout.style(&rest).dim())
}

const COLUMNS: [Column; 11] = [
    Column { min_width: Some(8), ..column("BRANCH") },
    Column { min_width: Some(7), ..column("STATE") },
    Column { expendable: 2, ..column("") },
    Column { align_right: true, ..column("SPAWNED") },
    Column { align_right: true, ..column("DONE") },
    Column { align_right: true, ..column("FAILED") },
    Column { align_right: true, expendable: 4, ..column("CANCELLED") },
    Column { align_right: true, ..column("PENDING") },
    Column { align_right: true, expendable: 5, ..column("NEVER STARTED") },
    Column { align_right: true, expendable: 3, ..column("RATE") },
    Column { align_right: true, expendable: 1, ..column("LEFT") },
];

/// A table with a line for each branch.
pub(crate) fn table(views: &[BranchView], layout: Layout) -> String {
    let row = |view: &BranchView| {
        let rate = view.rate.filter(|_| view.pending > 0).map(format_rate).unwrap_or_default();
        vec![
            out::plain(&view.name),
            view.state(),
            bar(view, SHORT_BAR, layout),
            out::thousands(view.spawned),
            out::thousands(view.done),
            out::thousands(view.failed),
            out::thousands(view.cancelled),
            out::thousands(view.pending),
            view.never_started.map(out::thousands).unwrap_or_default(),
            rate,
            view.time_left().map(durations::format).unwrap_or_default(),
        ]
    };
    crate::table::render(&COLUMNS, &views.iter().map(row).collect::<Vec<_>>(), layout.width)
}

/// Wraps text to the width, with an indent; continuation lines are indented by two more. Commands between backticks are not
/// broken, so that they can be copied.
fn wrap(text: &str, indent: usize, width: Option<usize>) -> String {
    let available = width.map_or(usize::MAX, |width| width.saturating_sub(indent + 2).max(20));
    let mut lines: Vec<String> = Vec::new();
    let mut used = usize::MAX;
    for word in words(text) {
        let length = console::measure_text_width(&word);
        match lines.last_mut().filter(|_| used.saturating_add(length + 1) <= available) {
            Some(line) => {
                line.push(' ');
                line.push_str(&word);
                used += length + 1;
            }
            None => {
                lines.push(word);
                used = length;
            }
        }
    }
    let line = |(number, line): (usize, String)| {
        let indent = indent + if number == 0 { 0 } else { 2 };
        format!("{:indent$}{line}\n", "")
    };
    lines.into_iter().enumerate().map(line).collect()
}

/// The words of a text; a command between backticks is one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut within = false;
    for word in text.split(' ') {
        match words.last_mut().filter(|_| within) {
            Some(command) => *command += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
        within ^= word.matches('`').count() % 2 == 1;
    }
    words
}
