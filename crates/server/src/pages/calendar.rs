//! The calendar strip: the ticks of schedules from some hours ago to some hours ahead.
//!
//! What fired, what was missed and what is to come differ in shape: filled, higher, outlined. A schedule with more ticks than can be
//! told apart is drawn as bands.

use std::time::Duration;

use askama::{Template, filters::HtmlSafe};
use windlass::Time;

use super::{
    bars::round,
    charts::time_ticks,
    format::{Clock, svg_time},
    html::{Html, Text},
    parts::{Pill, Tone},
};

/// More ticks than this are a band: they would be nearer than their width on a phone.
const DENSE: usize = 60;

/// Schedules and their ticks.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/calendar.html")]
pub(crate) struct Calendar {
    pub(crate) clock: Clock,
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) rows: Vec<CalendarRow>,
}

impl HtmlSafe for Calendar {}

/// A schedule.
#[derive(Clone, Debug)]
pub(crate) struct CalendarRow {
    pub(crate) name: String,
    pub(crate) href: String,
    /// Paused, or something else that is unusual.
    pub(crate) pill: Option<Pill>,
    /// When it ticks, in words or as a cron expression.
    pub(crate) rule: String,
    /// In order.
    pub(crate) ticks: Vec<(Time, TickState)>,
    /// Its next tick.
    pub(crate) next: Html,
    /// What is to be said about the last ones, and its tone.
    pub(crate) note: (Option<Tone>, Html),
}

/// What came of a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TickState {
    Fired,
    Missed,
    Coming,
}

impl TickState {
    fn class(self) -> &'static str {
        match self {
            TickState::Fired => "t-ok fill",
            TickState::Missed => "t-bad fill",
            TickState::Coming => "coming",
        }
    }

    /// From where to where a tick reaches, of 44.
    fn reach(self) -> (u32, u32) {
        match self {
            TickState::Fired | TickState::Coming => (15, 14),
            TickState::Missed => (9, 26),
        }
    }
}

impl Calendar {
    /// Where a time is, in thousandths.
    fn at(&self, time: Time) -> f64 {
        let whole = (self.to - self.from).as_secs_f64().max(1.0);
        ((time.max(self.from) - self.from).as_secs_f64() / whole * 1_000.0).min(1_000.0)
    }

    fn now(&self) -> f64 {
        round(self.at(self.clock.now) / 10.0)
    }

    /// Labels of the axis: their place in percent, attributes and text. None is near "now".
    fn labels(&self) -> Vec<(f64, Html, String)> {
        let (form, ticks) = time_ticks(self.from, self.to, 7);
        let near = |at: &Time| (self.at(*at) / 10.0 - self.now()).abs() > 6.0;
        let label = |at: Time| {
            let (attributes, text) = svg_time(at, form, self.clock);
            (round(self.at(at) / 10.0), Html::trusted(attributes), text)
        };
        let inside = |at: &Time| (3.0..97.0).contains(&(self.at(*at) / 10.0));
        ticks.into_iter().filter(near).filter(inside).map(label).collect()
    }

    fn lines(&self) -> Vec<f64> {
        time_ticks(self.from, self.to, 7).1.into_iter().map(|at| round(self.at(at) / 10.0)).collect()
    }

    /// The paths of a row's ticks: of each state one.
    fn paths(&self, row: &CalendarRow) -> Vec<(&'static str, String)> {
        let is_dense = row.ticks.len() > DENSE;
        [TickState::Fired, TickState::Coming, TickState::Missed]
            .into_iter()
            .map(|state| {
                let path = if is_dense { self.bands(row, state) } else { self.ticks(row, state) };
                (state.class(), path)
            })
            .filter(|(_, path)| !path.is_empty())
            .collect()
    }

    fn ticks(&self, row: &CalendarRow, state: TickState) -> String {
        let (top, height) = state.reach();
        let width = if state == TickState::Missed { 8.0 } else { 5.0 };
        let of_state = row.ticks.iter().filter(|(_, other)| *other == state);
        let inside = of_state.filter(|(at, _)| (self.from..=self.to).contains(at));
        inside
            .map(|(at, _)| format!("M{} {top}h{width}v{height}h-{width}z", round(self.at(*at).min(994.0))))
            .collect()
    }

    /// Runs of ticks of one state.
    fn bands(&self, row: &CalendarRow, state: TickState) -> String {
        let (top, height) = state.reach();
        let mut path = String::new();
        for run in row.ticks.chunk_by(|a, b| a.1 == b.1) {
            if let (Some((first, of)), Some((last, _))) = (run.first(), run.last())
                && *of == state
            {
                let (from, to) = (self.at(*first), self.at(*last));
                path += &format!(
                    "M{} {top}H{}v{height}H{}z",
                    round(from),
                    round((to).max(from + 5.0)),
                    round(from)
                );
            }
        }
        path
    }

    /// What a row's lane says, for screen readers.
    fn sentence(&self, row: &CalendarRow) -> String {
        let count = |state| row.ticks.iter().filter(|(_, other)| *other == state).count();
        format!(
            "{} fired, {} missed, {} to come",
            count(TickState::Fired),
            count(TickState::Missed),
            count(TickState::Coming)
        )
    }
}

impl CalendarRow {
    fn shown(&self) -> Text<'_> {
        Text::cut(&self.name, 40)
    }

    fn rule_shown(&self) -> Text<'_> {
        Text::cut(&self.rule, 60)
    }

    fn note_class(&self) -> String {
        self.note.0.map_or(String::new(), |tone| format!("toned {}", tone.class()))
    }
}

/// The window of the strip: six hours back, eighteen ahead.
pub(crate) fn window(now: Time) -> (Time, Time) {
    let hour = Duration::from_secs(3_600);
    (now - hour * 6, now + hour * 18)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(ticks: Vec<(Time, TickState)>) -> Calendar {
        let now: Time = "2026-11-19T14:32:08Z".parse().expect("a time");
        let (from, to) = window(now);
        let row = CalendarRow {
            name: "sync".into(),
            href: "/schedules/sync".into(),
            pill: None,
            rule: "every 5 minutes".into(),
            ticks,
            next: Html::words("in 2 min"),
            note: (None, Html::new()),
        };
        Calendar { clock: Clock { now, relative: true }, from, to, rows: vec![row] }
    }

    #[test]
    fn many_ticks_are_bands() {
        let now: Time = "2026-11-19T14:32:08Z".parse().expect("a time");
        let (from, _) = window(now);
        let state = |at| match at {
            at if at > now => TickState::Coming,
            at if at > now - Duration::from_secs(1_800) => TickState::Missed,
            _ => TickState::Fired,
        };
        let ticks: Vec<_> =
            (0..288).map(|n| from + Duration::from_secs(300) * n).map(|at| (at, state(at))).collect();
        let html = calendar(ticks.clone()).to_string();
        assert_eq!(html.matches("<path").count(), 3);
        assert!(html.len() < 3_000, "{} bytes", html.len());
        let few = calendar(ticks.into_iter().step_by(12).collect());
        assert!(few.to_string().contains("6 fired, 1 missed, 17 to come"), "{few}");
    }
}
