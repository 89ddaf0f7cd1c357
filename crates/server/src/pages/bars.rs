//! Bars: how a whole divides, how full something is, where percentiles are, which items failed.
//!
//! Widths are percentages of an SVG without a viewBox, so bars have any width without inline styles and without distortion. Failures
//! are hatched, or marked with a hole: colour alone says nothing.

use std::time::Duration;

use askama::{Template, filters::HtmlSafe};

use super::{
    format::{span, thousands},
    parts::Tone,
};

/// The narrowest slice that is not nothing, in percent: about three pixels on a phone.
const SLIVER: f64 = 0.7;

/// A whole and its parts, with a legend of numbers that link to what they count.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/band.html")]
pub(crate) struct Band {
    /// What it says, for screen readers.
    sentence: String,
    slices: Vec<Slice>,
    /// Whether it is low and without a legend, as in a row.
    is_small: bool,
}

impl HtmlSafe for Band {}

/// One part of a whole.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    tone: Tone,
    count: u64,
    name: String,
    href: Option<String>,
    is_hatched: bool,
    /// Whether it is what is left: the ground of the band.
    is_rest: bool,
}

impl Slice {
    pub(crate) fn new(tone: Tone, count: u64, name: &str) -> Slice {
        Slice { tone, count, name: name.to_owned(), href: None, is_hatched: false, is_rest: false }
    }

    /// What is left of the whole.
    pub(crate) fn rest(count: u64, name: &str) -> Slice {
        Slice { is_rest: true, ..Slice::new(Tone::Idle, count, name) }
    }

    /// Links it to the list that it counts.
    pub(crate) fn href(mut self, href: &str) -> Slice {
        self.href = Some(href.to_owned());
        self
    }

    /// Marks it as failed.
    pub(crate) fn hatched(mut self) -> Slice {
        self.is_hatched = true;
        self
    }

    fn classes(&self) -> String {
        let rest = if self.is_rest { " rest" } else { "" };
        let hatched = if self.is_hatched { " hatched" } else { "" };
        format!("{}{rest}{hatched}", self.tone.class())
    }

    /// The fill of a hatched slice, which no class can have.
    fn fill(&self) -> &'static str {
        match (self.is_hatched, self.tone) {
            (true, Tone::Idle) => " fill=\"url(#p-idle)\"",
            (true, _) => " fill=\"url(#p-bad)\"",
            _ => "",
        }
    }

    fn number(&self) -> String {
        thousands(self.count)
    }
}

impl Band {
    pub(crate) fn new(sentence: &str, slices: Vec<Slice>) -> Band {
        let slices = slices.into_iter().filter(|slice| slice.count > 0).collect();
        Band { sentence: sentence.to_owned(), slices, is_small: false }
    }

    /// Low and without a legend.
    pub(crate) fn small(mut self) -> Band {
        self.is_small = true;
        self
    }

    /// The slices with where they begin and how wide they are, in percent. No slice is narrower than a sliver; the others give it room.
    fn spans(&self) -> Vec<(&Slice, f64, f64)> {
        let total: u64 = self.slices.iter().map(|slice| slice.count).sum();
        let share = |slice: &Slice| slice.count as f64 / total.max(1) as f64 * 100.0;
        let (mut slivers, mut wide) = (0.0, 0.0);
        for slice in &self.slices {
            match share(slice) < SLIVER {
                true => slivers += SLIVER,
                false => wide += share(slice),
            }
        }
        let mut at = 0.0;
        let place = |slice| {
            let width = match share(slice) < SLIVER {
                true => SLIVER,
                false => share(slice) / wide.max(0.001) * (100.0_f64 - slivers).max(0.0),
            };
            at += width;
            (slice, round(at - width), round(width))
        };
        self.slices.iter().map(place).collect()
    }
}

/// How full something is.
#[derive(Clone, Copy, Debug, Template)]
#[template(
    source = "<svg class=\"meter {{ tone.class() }}\" aria-hidden=\"true\"><rect class=\"fill\" width=\"{{ self.percent(share) }}%\" height=\"100%\"/>\
              {% if let Some(mark) = mark %}<rect class=\"mark\" x=\"{{ self.percent(mark) }}%\" width=\"2\" height=\"100%\"/>{% endif %}</svg>",
    ext = "html"
)]
pub(crate) struct Meter {
    tone: Tone,
    share: f64,
    mark: Option<f64>,
}

impl HtmlSafe for Meter {}

impl Meter {
    /// `part` of `whole`; more than all is all.
    pub(crate) fn new(tone: Tone, part: f64, whole: f64) -> Meter {
        Meter { tone, share: if whole > 0.0 { part / whole } else { 0.0 }, mark: None }
    }

    /// Marks a share, for example what is usual.
    pub(crate) fn mark(mut self, share: f64) -> Meter {
        self.mark = Some(share);
        self
    }

    /// In percent; what is not nothing can be seen.
    fn percent(&self, share: &f64) -> f64 {
        let percent = share.clamp(0.0, 1.0) * 100.0;
        round(if percent > 0.0 { percent.max(2.0) } else { 0.0 })
    }
}

/// A limit and how much of it is used.
#[derive(Clone, Debug)]
pub(crate) struct Rail {
    pub(crate) name: String,
    /// "28 of 40".
    pub(crate) value: String,
    pub(crate) meter: Meter,
}

/// Limits, one below the other.
#[derive(Clone, Debug, Template)]
#[template(
    source = "<ul class=\"rails\">{% for rail in rails %}<li><span class=\"row\"><span>{{ rail.name }}</span><b class=\"end\">{{ rail.value }}</b></span>{{ rail.meter }}</li>{% endfor %}</ul>",
    ext = "html"
)]
pub(crate) struct Rails {
    pub(crate) rails: Vec<Rail>,
}

impl HtmlSafe for Rails {}

/// Percentiles of a duration on a logarithmic scale that several rows share: a box from p50 to p90, a line at p99, a mark at the
/// longest.
#[derive(Clone, Copy, Debug, Template)]
#[template(path = "parts/percentiles.html")]
pub(crate) struct Percentiles {
    pub(crate) p50: Duration,
    pub(crate) p90: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
    /// Where the scale begins and ends.
    pub(crate) scale: (Duration, Duration),
}

impl HtmlSafe for Percentiles {}

impl Percentiles {
    fn at(&self, duration: &Duration) -> f64 {
        let log = |duration: Duration| (duration.as_micros().max(1) as f64).ln();
        let (low, high) = (log(self.scale.0), log(self.scale.1));
        let share = if high > low { (log(*duration) - low) / (high - low) } else { 0.0 };
        round(share.clamp(0.0, 1.0) * 98.0 + 1.0)
    }

    fn width(&self, from: &Duration, to: &Duration) -> f64 {
        round((self.at(to) - self.at(from)).max(1.0))
    }

    /// p50, p90, p99 and the longest, as the cells beside the bar show them.
    pub(crate) fn texts(&self) -> [String; 4] {
        [self.p50, self.p90, self.p99, self.longest].map(span)
    }

    fn sentence(&self) -> String {
        let Percentiles { p50, p90, p99, longest, .. } = *self;
        format!("p50 {}, p90 {}, p99 {}, longest {}", span(p50), span(p90), span(p99), span(longest))
    }
}

/// Items in their order, so many to a cell. Each cell is a link to its items.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/item_map.html")]
pub(crate) struct ItemMap {
    /// What it says, for screen readers.
    pub(crate) sentence: String,
    /// At most [`ItemMap::CELLS`].
    pub(crate) cells: Vec<ItemCell>,
}

impl HtmlSafe for ItemMap {}

impl ItemMap {
    /// The most cells: each can be hit with a finger, and the page stays small.
    pub(crate) const CELLS: u64 = 200;

    /// How many items a cell has, for so many items.
    pub(crate) fn items_per_cell(items: u64) -> u64 {
        // One, two or five, and zeros: 2,500 items to a cell are hard to count with.
        let least = items.div_ceil(ItemMap::CELLS).max(1);
        let power = 10_u64.pow(least.ilog10());
        [1, 2, 5, 10].into_iter().map(|factor| factor * power).find(|size| *size >= least).unwrap_or(least)
    }
}

/// A cell of an item map.
#[derive(Clone, Debug)]
pub(crate) struct ItemCell {
    /// Where its items are listed. Relative to the page, `?items=5001`, it keeps the page small.
    pub(crate) href: String,
    /// Its items and how they are: "2,001–4,000: 3 failed".
    pub(crate) title: String,
    pub(crate) state: CellState,
}

/// How the items of a cell are. The most urgent that is true of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CellState {
    /// Some are failed or cancelled.
    Failed,
    /// Some run.
    Running,
    /// Some are done, others have not started.
    Begun,
    /// All are done.
    Done,
    /// None has started.
    Untouched,
}

impl CellState {
    fn class(self) -> &'static str {
        match self {
            CellState::Failed => "t-bad",
            CellState::Running => "t-run",
            CellState::Begun => "t-ok half",
            CellState::Done => "t-ok",
            CellState::Untouched => "t-idle",
        }
    }
}

/// Two decimals are enough for a screen.
pub(super) fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slivers_can_be_seen_and_the_band_is_full() {
        let slices = vec![
            Slice::new(Tone::Ok, 612_480, "done"),
            Slice::new(Tone::Bad, 217, "failed").hatched(),
            Slice::new(Tone::Run, 0, "running"),
            Slice::rest(386_976, "left"),
        ];
        let band = Band::new("61 %", slices);
        let spans: Vec<(f64, f64)> = band.spans().iter().map(|(_, at, width)| (*at, *width)).collect();
        assert_eq!(spans.len(), 3, "what is nothing is not drawn");
        assert_eq!(spans[1].1, SLIVER);
        assert!((spans[2].0 + spans[2].1 - 100.0).abs() < 0.02, "{spans:?}");
        assert!(spans.windows(2).all(|pair| (pair[0].0 + pair[0].1 - pair[1].0).abs() < 0.02));
        assert!(band.to_string().contains("fill=\"url(#p-bad)\""));
        assert_eq!(Band::new("nothing", vec![]).spans().len(), 0);
    }

    #[test]
    fn meters_show_what_is_not_nothing() {
        assert!(Meter::new(Tone::Run, 0.0, 10.0).to_string().contains("width=\"0%\""));
        assert!(Meter::new(Tone::Run, 1.0, 10_000.0).to_string().contains("width=\"2%\""));
        assert!(Meter::new(Tone::Run, 12.0, 10.0).to_string().contains("width=\"100%\""));
        assert!(Meter::new(Tone::Run, 1.0, 0.0).to_string().contains("width=\"0%\""));
    }

    #[test]
    fn cells_have_round_numbers_of_items() {
        let sizes = [0, 1, 200, 201, 1_000, 200_000, 500_000, 1_000_000].map(ItemMap::items_per_cell);
        assert_eq!(sizes, [1, 1, 1, 2, 5, 1_000, 5_000, 5_000]);
    }

    #[test]
    fn percentiles_stay_on_their_scale() {
        let ms = Duration::from_millis;
        let bar = Percentiles {
            p50: ms(590),
            p90: ms(890),
            p99: ms(2_400),
            longest: ms(90_000),
            scale: (ms(10), ms(60_000)),
        };
        assert_eq!(bar.at(&ms(90_000)), 99.0);
        assert_eq!(bar.at(&Duration::ZERO), 1.0);
        assert!(bar.at(&bar.p50) < bar.at(&bar.p90));
    }
}
