//! Branches on a page: a few lines for each, or a line for each if there are many.

#[cfg(test)]
mod tests;

use std::time::Duration;

use console::{StyledObject, style};
use windlass::Time;

use super::view::{self, Parent, Standing, Sum, View};
use crate::{
    out, span,
    table::{self, Column, column},
};

/// Up to how many branches have lines of their own.
const FEW: usize = 4;
/// How long a bar is, alone on its line and in a table.
const BAR: usize = 30;
const SHORT_BAR: usize = 10;

/// How a page is set.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// How many columns there are; as many as it likes if nobody looks at it directly.
    pub(crate) width: Option<usize>,
    pub(crate) colour: bool,
}

impl Setting {
    pub(crate) fn here() -> Setting {
        Setting { width: out::width(), colour: console::Term::stdout().is_term() }
    }

    fn style<'s>(&self, text: &'s str) -> StyledObject<&'s str> {
        style(text).force_styling(self.colour)
    }
}

/// All of it, with what is said first of the job.
pub(crate) fn page(parent: &Parent, views: &[View], now: Time, setting: Setting, program: &str) -> String {
    let key = parent.key.as_ref().map(|key| format!(", key {}", out::plain(key))).unwrap_or_default();
    let mut page = format!("job {}, {}, {}{key}\n\n", parent.id, out::plain(&parent.kind), parent.state);
    match views.len() {
        0 if parent.state.is_final() => page += "it has opened no branch\n",
        0 => page += "it has opened no branch yet\n",
        1..=FEW => {
            let each: Vec<String> = views.iter().map(|view| lines(view, parent, now, setting)).collect();
            page += &each.join("\n");
        }
        _ => {
            page += &list(views, setting);
            let notes = view::notes(views, parent.id, program);
            if !notes.is_empty() {
                page += &format!("\n{}", noted(&notes, 0, setting));
            }
        }
    }
    let sum = Sum::of(views);
    if sum.branches > 1 {
        let text = format!(
            "together  {} of {} ended, {}{}",
            out::thousands(sum.spawned - sum.pending),
            out::thousands(sum.spawned),
            pending(sum.pending, sum.never_started),
            speed(sum.rate, sum.left(), sum.pending),
        );
        page += &format!("\n{}", wrapped(&text, 0, setting.width));
    }
    page
}

/// A branch with all that is known of it.
fn lines(view: &View, parent: &Parent, now: Time, setting: Setting) -> String {
    let name = out::plain(&view.branch.name);
    let mut text = format!("{}  {}\n", setting.style(&name).bold(), view.state());
    let tally = &view.branch.tally;
    let (ended, spawned) = (view.ended(), view.spawned());
    let more = if view.branch.sealed { "" } else { ", more to come" };
    text += &match spawned {
        0 if view.branch.sealed => "  no children\n".to_owned(),
        0 => "  no children yet\n".to_owned(),
        _ => format!(
            "  {}  {}  {} of {} ended{more}\n",
            bar(view, BAR, setting),
            percent(ended, spawned),
            out::thousands(ended),
            out::thousands(spawned)
        ),
    };
    let number = |count: i64, what: &str| format!("{} {what}", out::thousands(count.unsigned_abs()));
    let bad = |count: i64, what: &str| {
        let text = number(count, what);
        let styled = setting.style(&text);
        if count > 0 { styled.red().to_string() } else { text.clone() }
    };
    let mut ends = format!("{} · {} · ", number(tally.done, "done"), bad(tally.failed, "failed"));
    ends += &format!("{} · {}", bad(tally.cancelled, "cancelled"), pending(view.pending, view.never_started));
    ends += &speed(view.rate.filter(|_| !view.branch.merged), view.left(), view.pending);
    text += &wrapped(&ends, 2, setting.width);
    text += &wrapped(&looks(view, now), 2, setting.width);
    let rule = match (&view.merge, view.standing, view.branch.merged_at) {
        (Some(merge), Standing::Merged, Some(at)) => format!("merged {}, {merge}", span::relative(at, now)),
        (Some(merge), ..) => format!("merged {merge}"),
        (None, Standing::Unmerged, _) if parent.state.is_final() => "it was never merged".to_owned(),
        (None, Standing::Unmerged, _) => "its job has not said yet how it is merged".to_owned(),
        (None, ..) => String::new(),
    };
    if !rule.is_empty() {
        text += &wrapped(&rule, 2, setting.width);
    }
    text + &noted(&view.notes, 2, setting)
}

/// What keeps branches, each note with its first word set apart.
pub(crate) fn noted(notes: &[String], indent: usize, setting: Setting) -> String {
    let note = |note: &String| {
        let text = wrapped(&out::plain(note), indent, setting.width);
        match note.split_once(':') {
            Some((word, _)) if setting.colour => {
                text.replacen(word, &setting.style(word).yellow().to_string(), 1)
            }
            _ => text,
        }
    };
    notes.iter().map(note).collect()
}

/// When it was looked at, and is next.
fn looks(view: &View, now: Time) -> String {
    let poll = &view.branch.poll;
    let next = poll.next_at.map(|at| match at > now {
        true => format!("next look {}", span::relative(at, now)),
        false => "next look now".to_owned(),
    });
    let last = poll.at.map(|at| format!("last look {}", span::relative(at, now)));
    let looks = match poll.polls {
        1 => "1 look".to_owned(),
        polls => format!("{} looks", out::thousands(polls.into())),
    };
    let back = format!("{} redelivered", out::thousands(poll.redelivered));
    let opened = format!("opened {}", span::relative(view.branch.opened_at, now));
    let parts = [Some(opened), last, next, Some(looks), Some(back)];
    parts.into_iter().flatten().collect::<Vec<String>>().join(" · ")
}

fn pending(pending: u64, never_started: Option<u64>) -> String {
    let never = never_started.filter(|never| *never > 0);
    let never = never.map(|never| format!(", {} of them never started", out::thousands(never)));
    format!("{} pending{}", out::thousands(pending), never.unwrap_or_default())
}

/// How fast it goes, and how long that takes, as far as it is known.
fn speed(rate: Option<f64>, left: Option<Duration>, pending: u64) -> String {
    let Some(rate) = rate.filter(|_| pending > 0) else { return String::new() };
    let left = left.map(|left| format!(", about {} left", span::show(left))).unwrap_or_default();
    format!(" · {}{left}", per_time(rate))
}

/// A rate for people.
fn per_time(rate: f64) -> String {
    match rate {
        10.0.. => format!("{}/s", out::thousands(rate.round() as u64)),
        1.0.. => format!("{rate:.1}/s"),
        rate if rate <= 0.0 => "0/s".to_owned(),
        rate if rate * 60.0 >= 1.0 => format!("{:.1}/min", rate * 60.0),
        rate => format!("{:.1}/h", rate * 3_600.0),
    }
}

/// How much of it has ended. It is all only if it is all.
fn percent(ended: u64, spawned: u64) -> String {
    let share = (ended as f64 * 1_000.0 / spawned.max(1) as f64).floor() / 10.0;
    format!("{share:>5.1} %")
}

/// What has ended well, what has not, and what is left.
fn bar(view: &View, length: usize, setting: Setting) -> String {
    let spawned = view.spawned().max(1) as f64;
    let cells = |count: u64| (count as f64 * length as f64 / spawned) as usize;
    // What went wrong is seen, however little it is.
    let bad = cells(view.bad()).max(usize::from(view.bad() > 0)).min(length);
    let done = cells(view.ended()).saturating_sub(bad).min(length - bad);
    let rest = length - bad - done;
    let (done, bad, rest) = ("━".repeat(done), "━".repeat(bad), "─".repeat(rest));
    format!("{}{}{}", setting.style(&done).green(), setting.style(&bad).red(), setting.style(&rest).dim())
}

const COLUMNS: [Column; 11] = [
    Column { least: Some(8), ..column("BRANCH") },
    Column { least: Some(7), ..column("STATE") },
    Column { expendable: 2, ..column("") },
    Column { right: true, ..column("SPAWNED") },
    Column { right: true, ..column("DONE") },
    Column { right: true, ..column("FAILED") },
    Column { right: true, expendable: 4, ..column("CANCELLED") },
    Column { right: true, ..column("PENDING") },
    Column { right: true, expendable: 5, ..column("NEVER STARTED") },
    Column { right: true, expendable: 3, ..column("RATE") },
    Column { right: true, expendable: 1, ..column("LEFT") },
];

/// A line for each branch.
pub(crate) fn list(views: &[View], setting: Setting) -> String {
    let number = |count: i64| out::thousands(count.unsigned_abs());
    let row = |view: &View| {
        let tally = &view.branch.tally;
        let rate = view.rate.filter(|_| view.pending > 0).map(per_time).unwrap_or_default();
        vec![
            out::plain(&view.branch.name),
            view.state(),
            bar(view, SHORT_BAR, setting),
            out::thousands(view.spawned()),
            number(tally.done),
            number(tally.failed),
            number(tally.cancelled),
            out::thousands(view.pending),
            view.never_started.map(out::thousands).unwrap_or_default(),
            rate,
            view.left().map(span::show).unwrap_or_default(),
        ]
    };
    table::set(&COLUMNS, &views.iter().map(row).collect::<Vec<_>>(), setting.width)
}

/// Text in lines that fit, each with so many columns before it; what follows on is set in by two more. Commands, which stand
/// between backticks, are not broken: they are there to be copied.
fn wrapped(text: &str, indent: usize, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent + 2).max(20));
    let mut lines: Vec<String> = Vec::new();
    let mut used = usize::MAX;
    for word in words(text) {
        let length = console::measure_text_width(&word);
        match lines.last_mut().filter(|_| used.saturating_add(length + 1) <= room) {
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
    let line = |(place, line): (usize, String)| {
        let indent = indent + if place == 0 { 0 } else { 2 };
        format!("{:indent$}{line}\n", "")
    };
    lines.into_iter().enumerate().map(line).collect()
}

/// The words of a text; a command is one.
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
