//! The timeline of a job: a row for each step, with idle time folded.
//!
//! A workflow works for seconds and waits for days. [`Scale`] draws the time in which something ran to scale, and long gaps as narrow
//! hatched columns that say how long they were. It is pure; the SVG uses percentages, so it has any width.

use askama::{Template, filters::HtmlSafe};
use windlass::Time;

use super::{
    bars::round,
    format::{Clock, Form, age, svg_time},
    html::{Text, escape},
    icon::Icon,
    parts::Tone,
};

/// The width of a folded gap, in percent.
const FOLD: f64 = 9.0;
/// The width of the last gap if it is not over: what the job waits for stands in it.
const OPEN_FOLD: f64 = 34.0;
/// The most that all folded gaps have, in percent.
const ALL_FOLDS: f64 = 62.0;
/// A gap is folded if it is longer than this share of everything that is not folded.
const LONG: f64 = 0.6;
/// The width of a letter of the axis, in percent of the width of a lane.
const LETTER: f64 = 1.15;

/// The steps of a job over time.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/timeline.html")]
pub(crate) struct Timeline {
    rows: Vec<Row>,
    scale: Scale,
    clock: Clock,
    /// Whether it has not ended: the last label is "now".
    is_open: bool,
}

impl HtmlSafe for Timeline {}

/// A step.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Where more is said about it.
    pub(crate) href: String,
    /// Its state: icon and tone.
    pub(crate) state: (Tone, Icon),
    /// What the state is, for screen readers.
    pub(crate) state_word: String,
    /// What else it is: undone if the job fails, a sleep, a child.
    pub(crate) marks: Vec<Icon>,
    pub(crate) segments: Vec<Segment>,
    /// What stands at the end of the row: how long it took, or "3 attempts".
    pub(crate) end: String,
}

/// Something that a step did for a time.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) from: Time,
    /// When it ended; `None` if it has not.
    pub(crate) to: Option<Time>,
    pub(crate) appearance: Appearance,
    /// What stands in it; may be empty.
    pub(crate) label: String,
    /// What its tooltip says.
    pub(crate) title: String,
}

/// How a segment looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Appearance {
    /// It ran and succeeded.
    Ran,
    /// It runs.
    Runs,
    /// An attempt that failed.
    Failed,
    /// The time between two attempts.
    BackOff,
    /// It slept.
    Asleep,
    /// It waited, for a signal, children or a branch.
    Waited,
}

impl Appearance {
    /// Whether time passes as something runs: it is never folded.
    fn is_busy(self) -> bool {
        matches!(self, Appearance::Ran | Appearance::Runs | Appearance::Failed)
    }

    fn class(self) -> &'static str {
        match self {
            Appearance::Ran => "ran t-ok",
            Appearance::Runs => "ran t-run",
            Appearance::Failed => "failed t-bad",
            Appearance::BackOff => "back-off",
            Appearance::Asleep => "asleep t-wait",
            Appearance::Waited => "waited t-wait",
        }
    }

    fn fill(self) -> &'static str {
        match self {
            Appearance::Failed => " fill=\"url(#p-bad)\"",
            Appearance::Waited => " fill=\"url(#p-wait)\"",
            _ => "",
        }
    }
}

impl Timeline {
    /// The timeline of a job from its first step to its end, or until now. `folds` is false for real scale.
    pub(crate) fn new(rows: Vec<Row>, clock: Clock, ended: Option<Time>, folds: bool) -> Timeline {
        let until = ended.unwrap_or(clock.now);
        let segments = || rows.iter().flat_map(|row| &row.segments);
        let from = segments().map(|segment| segment.from).min().unwrap_or(until);
        let busy: Vec<(Time, Time)> = segments()
            .filter(|segment| segment.appearance.is_busy())
            .map(|segment| (segment.from, segment.to.unwrap_or(until)))
            .collect();
        let scale = Scale::new(from, until, busy, folds, ended.is_none());
        Timeline { rows, scale, clock, is_open: ended.is_none() }
    }

    /// Whether any time is folded.
    pub(crate) fn has_folds(&self) -> bool {
        self.scale.pieces.iter().any(|piece| piece.is_folded)
    }

    /// The SVG of a row.
    fn lane(&self, row: &Row) -> super::html::Html {
        let mut svg = String::new();
        for segment in &row.segments {
            let begin = self.scale.at(segment.from);
            let end = self.scale.at(segment.to.unwrap_or(self.scale.until));
            let (x, width) =
                (round(begin.min(99.4)), round((end - begin).max(0.6).min(100.0 - begin.min(99.4))));
            let (class, fill) = (segment.appearance.class(), segment.appearance.fill());
            let title = match segment.title.is_empty() {
                true => String::new(),
                false => format!("<title>{}</title>", escape(&segment.title)),
            };
            let label = match segment.label.is_empty() {
                true => String::new(),
                false => format!("<text x=\"6\" y=\"21\">{}</text>", escape(&segment.label)),
            };
            svg += &match segment.appearance {
                Appearance::BackOff => format!(
                    "<line class=\"{class}\" x1=\"{x}%\" x2=\"{}%\" y1=\"17\" y2=\"17\"/>",
                    round(x + width)
                ),
                // An SVG of its own cuts what stands in it.
                _ => format!(
                    "<svg class=\"{class}\" x=\"{x}%\" width=\"{width}%\">{title}<rect{fill} y=\"9\" width=\"100%\" height=\"16\" rx=\"3\"/>{label}</svg>"
                ),
            };
        }
        super::html::Html::trusted(svg)
    }

    /// The columns of folded gaps, which all rows have.
    fn folds(&self) -> super::html::Html {
        let mut svg = String::new();
        for piece in self.scale.pieces.iter().filter(|piece| piece.is_folded) {
            let (x, width) = (round(piece.x), round(piece.width));
            svg += &format!(
                "<rect class=\"fold\" fill=\"url(#p-fold)\" x=\"{x}%\" width=\"{width}%\" height=\"100%\"/>"
            );
        }
        super::html::Html::trusted(svg)
    }

    /// The labels of the axis.
    fn axis(&self) -> super::html::Html {
        let mut svg = String::new();
        let last = self.scale.at(self.scale.until);
        let mut free = 0.0;
        // A label that would touch another, or the last one, is left out.
        let mut label = |x: f64, anchor: &str, attributes: &str, text: &str, svg: &mut String| {
            let width = text.chars().count() as f64 * LETTER;
            let begin = if anchor == "middle" { x - width / 2.0 } else { x };
            if begin >= free && begin + width <= last - 6.0 {
                let x = round(x);
                *svg +=
                    &format!("<text x=\"{x}%\" y=\"18\" text-anchor=\"{anchor}\"{attributes}>{text}</text>");
                free = begin + width + 1.0;
            }
        };
        for piece in &self.scale.pieces {
            if piece.is_folded {
                let middle = piece.x + piece.width / 2.0;
                label(middle, "middle", "", &age(piece.to - piece.from), &mut svg);
            } else {
                let parts = (piece.width / 18.0).floor().max(1.0) as u32;
                for part in 0..parts {
                    let at = piece.from + (piece.to - piece.from) / parts * part;
                    let (attributes, text) = svg_time(at, Form::Second, self.clock);
                    label(
                        piece.x + piece.width / f64::from(parts) * f64::from(part),
                        "start",
                        &attributes,
                        &text,
                        &mut svg,
                    );
                }
            }
        }
        let (attributes, text) = match self.is_open {
            true => (String::new(), "now".to_owned()),
            false => svg_time(self.scale.until, Form::Second, self.clock),
        };
        svg += &format!("<text x=\"100%\" y=\"18\" text-anchor=\"end\"{attributes}>{text}</text>");
        super::html::Html::trusted(svg)
    }
}

impl Row {
    fn shown(&self) -> Text<'_> {
        Text::cut(&self.name, 48)
    }
}

/// Where times are, in percent of the width.
#[derive(Clone, PartialEq, Debug)]
struct Scale {
    pieces: Vec<Piece>,
    until: Time,
}

/// A span of time that is drawn to scale, or folded.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Piece {
    from: Time,
    to: Time,
    x: f64,
    width: f64,
    is_folded: bool,
}

impl Scale {
    fn new(from: Time, until: Time, mut busy: Vec<(Time, Time)>, folds: bool, is_open: bool) -> Scale {
        let until = until.max(from);
        busy.sort_unstable();
        // The gaps between what ran.
        let (mut gaps, mut at) = (Vec::new(), from);
        for (begin, end) in busy {
            if begin > at {
                gaps.push((at, begin.min(until)));
            }
            at = at.max(end.min(until));
        }
        if at < until {
            gaps.push((at, until));
        }
        let seconds = |(begin, end): &(Time, Time)| (*end - *begin).as_secs_f64();
        let mut folded = Vec::new();
        if folds {
            gaps.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
            let mut rest = seconds(&(from, until));
            for gap in gaps {
                if seconds(&gap) <= (rest - seconds(&gap)) * LONG {
                    break;
                }
                rest -= seconds(&gap);
                folded.push(gap);
            }
            folded.sort_unstable();
        }
        let width_of = |gap: &(Time, Time)| if is_open && gap.1 == until { OPEN_FOLD } else { FOLD };
        let wanted: f64 = folded.iter().map(width_of).sum();
        let unfolded = seconds(&(from, until)) - folded.iter().map(seconds).sum::<f64>();
        let most = if unfolded > 0.0 { ALL_FOLDS } else { 100.0 };
        let squeeze = if wanted > most || unfolded <= 0.0 { most / wanted.max(0.001) } else { 1.0 };
        let per_second = if unfolded > 0.0 { (100.0 - wanted * squeeze) / unfolded } else { 0.0 };
        let (mut pieces, mut x, mut at) = (Vec::new(), 0.0, from);
        let mut push = |from: Time, to: Time, width: f64, is_folded: bool| {
            if to > from {
                pieces.push(Piece { from, to, x, width, is_folded });
                x += width;
            }
        };
        for gap in &folded {
            push(at, gap.0, seconds(&(at, gap.0)) * per_second, false);
            push(gap.0, gap.1, width_of(gap) * squeeze, true);
            at = gap.1;
        }
        push(at, until, seconds(&(at, until)) * per_second, false);
        Scale { pieces, until }
    }

    /// Where a time is.
    fn at(&self, time: Time) -> f64 {
        let Some(piece) = self.pieces.iter().find(|piece| time < piece.to).or(self.pieces.last()) else {
            return 0.0;
        };
        let whole = (piece.to - piece.from).as_secs_f64();
        let share = if whole > 0.0 { (time - piece.from).as_secs_f64() / whole } else { 0.0 };
        piece.x + piece.width * share.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time(1_800_000_000_000_000) + Duration::from_secs(seconds)
    }

    #[test]
    fn long_gaps_are_folded_and_the_rest_is_to_scale() {
        // Eight seconds of work, five minutes of sleep, two seconds, an hour of waiting.
        let busy = vec![(at(0), at(4)), (at(4), at(8)), (at(308), at(310))];
        let scale = Scale::new(at(0), at(3_910), busy, true, true);
        let folds: Vec<bool> = scale.pieces.iter().map(|piece| piece.is_folded).collect();
        assert_eq!(folds, [false, true, false, true]);
        assert_eq!((scale.pieces[1].width, scale.pieces[3].width), (FOLD, OPEN_FOLD));
        let (eight, two) = (scale.pieces[0].width, scale.pieces[2].width);
        assert!((eight / two - 4.0).abs() < 0.001, "both are to the same scale");
        assert_eq!(scale.at(at(0)), 0.0);
        assert!((scale.at(at(3_910)) - 100.0).abs() < 0.001);
        assert!(scale.at(at(4)) < scale.at(at(8)) && scale.at(at(8)) < scale.at(at(200)));
    }

    #[test]
    fn short_gaps_and_real_scale_are_not_folded() {
        let busy = vec![(at(0), at(5)), (at(6), at(10))];
        let scale = Scale::new(at(0), at(10), busy.clone(), true, false);
        assert_eq!(scale.pieces.len(), 1);
        let scale = Scale::new(at(0), at(1_000), busy, false, false);
        assert_eq!(scale.pieces.len(), 1);
        assert_eq!(scale.at(at(500)), 50.0);
    }

    #[test]
    fn many_folds_leave_room_and_nothing_has_no_width() {
        // Each gap is ten times as long as the one before.
        let begins: Vec<u64> = (0..10).map(|n| 10_u64.pow(n)).collect();
        let busy = begins.iter().map(|begin| (at(*begin), at(*begin + 1))).collect();
        let scale = Scale::new(at(0), at(begins[9] + 1), busy, true, false);
        assert!(scale.pieces.iter().filter(|piece| piece.is_folded).count() >= 8);
        let end = scale.pieces.last().map(|piece| piece.x + piece.width);
        assert!(end.is_some_and(|end| (end - 100.0).abs() < 0.001), "{end:?}");
        let waits = Scale::new(at(0), at(100), Vec::new(), true, true);
        assert_eq!((waits.pieces.len(), waits.at(at(50))), (1, 50.0));
        assert_eq!(Scale::new(at(5), at(5), Vec::new(), true, true).at(at(5)), 0.0);
    }
}
