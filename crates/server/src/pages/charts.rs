//! Charts over time: bars, areas and lines with axes, and sparklines. The server makes them; the script only reads values under the
//! pointer from the attribute `data-points`.
//!
//! A chart is an SVG of any width: what must not be distorted (text, lines) is placed by percentages, and the series are in an inner SVG
//! of 1,000 units that is stretched. Each has a sentence that says what it shows. A forecast is dashed, and has its own word.

use std::time::Duration;

use askama::{Template, filters::HtmlSafe};
use serde_json::json;
use windlass::Time;

use super::{
    bars::round,
    format::{Clock, Form, decimal, rate, rfc3339, span, svg_time, thousands},
    html::{Html, escape},
    parts::Tone,
};

/// Units of the inner SVG, across and down.
const WIDE: f64 = 1_000.0;
/// Between the top of the chart and its highest tick: room for labels of marks.
const HEAD: f64 = 18.0;

/// Values above are drawn as this: no count or rate comes near it.
const HIGHEST: f64 = 1e15;

/// A chart over time.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/chart.html")]
pub(crate) struct Chart {
    /// What it shows, in a sentence: it is read to those who do not see it.
    sentence: String,
    clock: Clock,
    from: Time,
    step: Duration,
    to: Time,
    unit: Unit,
    series: Vec<Series>,
    marks: Vec<Mark>,
    limits: Vec<Limit>,
    /// Pixels of the plot.
    height: f64,
}

impl HtmlSafe for Chart {}

/// What the values of a chart are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Per second.
    Rate,
    /// Numbers of jobs.
    Count,
    /// Durations in seconds.
    Span,
    /// Percent.
    Percent,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Unit::Rate => rate(value),
            Unit::Count => thousands(value.round() as u64),
            Unit::Span => span(Duration::from_secs_f64(value.clamp(0.0, 1e9))),
            Unit::Percent => format!("{} %", decimal(value)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Rate => "rate",
            Unit::Count => "count",
            Unit::Span => "span",
            Unit::Percent => "percent",
        }
    }
}

/// Values of one thing over time.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) tone: Tone,
    pub(crate) shape: Shape,
    /// One for each step; `None` is a gap.
    pub(crate) values: Vec<Option<f64>>,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Bars, on those of the bars before it.
    Bars,
    /// The same, lighter: a part of them.
    Part,
    /// Bars below the line: failures.
    Below,
    /// A line over a light ground.
    Area,
    Line,
    /// A dashed line: a forecast.
    Forecast,
}

/// A vertical line at a time, with a word: a deploy, the first error, now.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) at: Time,
    pub(crate) text: String,
    pub(crate) tone: Option<Tone>,
}

/// A horizontal dashed line at a value, with a word: a limit, an alert.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) value: f64,
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Chart {
    /// A chart of series whose first values are of the step after `from`.
    pub(crate) fn new(
        sentence: &str,
        clock: Clock,
        from: Time,
        step: Duration,
        unit: Unit,
        series: Vec<Series>,
    ) -> Chart {
        let mut series = series;
        for value in series.iter_mut().flat_map(|series| &mut series.values) {
            *value = value.filter(|value| value.is_finite()).map(|value| value.clamp(0.0, HIGHEST));
        }
        let steps = series.iter().map(|series| series.values.len()).max().unwrap_or(1).max(1);
        let to = from + step * u32::try_from(steps).unwrap_or(u32::MAX);
        Chart {
            sentence: sentence.to_owned(),
            clock,
            from,
            step,
            to,
            unit,
            series,
            marks: Vec::new(),
            limits: Vec::new(),
            height: 190.0,
        }
    }

    pub(crate) fn mark(mut self, at: Time, text: &str, tone: Option<Tone>) -> Chart {
        self.marks.push(Mark { at, text: text.to_owned(), tone });
        self
    }

    pub(crate) fn limit(mut self, value: f64, text: &str, tone: Tone) -> Chart {
        self.limits.push(Limit { value, text: text.to_owned(), tone });
        self
    }

    /// Makes the plot so many pixels high.
    pub(crate) fn height(mut self, pixels: f64) -> Chart {
        self.height = pixels;
        self
    }

    fn steps(&self) -> usize {
        self.series.iter().map(|series| series.values.len()).max().unwrap_or(1).max(1)
    }

    /// The highest value above the line: of stacked bars their sum.
    fn top(&self) -> f64 {
        let is_bar = |series: &&Series| matches!(series.shape, Shape::Bars | Shape::Part);
        let stacked = (0..self.steps()).map(|step| {
            let bars = self.series.iter().filter(is_bar);
            bars.filter_map(|series| series.values.get(step).copied().flatten()).sum::<f64>()
        });
        let lines = self
            .series
            .iter()
            .filter(|series| !matches!(series.shape, Shape::Bars | Shape::Part | Shape::Below))
            .flat_map(|series| series.values.iter().flatten().copied());
        let limits = self.limits.iter().map(|limit| limit.value);
        stacked.chain(lines).chain(limits).fold(0.0, f64::max)
    }

    /// The highest value below the line.
    fn bottom(&self) -> f64 {
        let below = self.series.iter().filter(|series| series.shape == Shape::Below);
        below.flat_map(|series| series.values.iter().flatten().copied()).fold(0.0, f64::max)
    }

    /// The highest tick, and the pixels between the line and the bottom of the plot.
    fn frame(&self) -> (f64, f64) {
        let (top, bottom) = (nice(self.top(), self.unit), self.bottom());
        let below = match bottom > 0.0 {
            true => (self.height * bottom / (bottom + top)).clamp(12.0, self.height * 0.4),
            false => 0.0,
        };
        (top, below)
    }

    /// Pixels per unit: both sides of the line have the same scale.
    fn scale(&self) -> f64 {
        let ((top, below), bottom) = (self.frame(), self.bottom());
        let up = (self.height - below) / top;
        if bottom > 0.0 { up.min(below / bottom) } else { up }
    }

    /// Where the line is, in pixels.
    fn zero(&self) -> f64 {
        HEAD + self.height - self.frame().1
    }

    fn y(&self, value: f64) -> f64 {
        round(self.zero() - value * self.scale())
    }

    /// Where a time is, in percent.
    fn x(&self, at: Time) -> f64 {
        let whole = (self.to - self.from).as_secs_f64().max(0.001);
        round(((at.max(self.from) - self.from).as_secs_f64() / whole * 100.0).min(100.0))
    }

    fn bottom_edge(&self) -> f64 {
        HEAD + self.height
    }

    /// The height of everything, with the labels of the time axis.
    fn full_height(&self) -> f64 {
        self.bottom_edge() + 24.0
    }

    /// Values with a line across: where they are, and how they are written.
    fn levels(&self) -> Vec<(f64, String)> {
        let (top, _) = self.frame();
        let levels = [0.0, top / 2.0, top];
        levels
            .map(|value| (self.y(value), if value == 0.0 { "0".to_owned() } else { self.unit.text(value) }))
            .into()
    }

    /// Labels of the time axis: place, anchor, attributes, text. Every second one is left out on a phone.
    fn times(&self) -> Vec<(f64, &'static str, Html, String)> {
        let (form, ticks) = time_ticks(self.from, self.to, 6);
        let label = |at: Time| {
            let x = self.x(at);
            let anchor = match x {
                x if x < 4.0 => "start",
                x if x > 96.0 => "end",
                _ => "middle",
            };
            let (attributes, text) = svg_time(at, form, self.clock);
            (x, anchor, Html::trusted(attributes), text)
        };
        ticks.into_iter().map(label).collect()
    }

    /// Marks: place, which side of the line its word is, class, text.
    fn marked(&self) -> Vec<(f64, &'static str, i32, String, &str)> {
        let mark = |mark: &'_ Mark| {
            let x = self.x(mark.at);
            let (anchor, dx) = if x > 70.0 { ("end", -5) } else { ("start", 5) };
            (x, anchor, dx, mark.tone.map_or(String::new(), |tone| format!(" toned {}", tone.class())))
        };
        self.marks
            .iter()
            .map(|of| {
                let (x, anchor, dx, class) = mark(of);
                (x, anchor, dx, class, of.text.as_str())
            })
            .collect()
    }

    fn limited(&self) -> Vec<(f64, &'static str, &str)> {
        self.limits
            .iter()
            .map(|limit| (self.y(limit.value), limit.tone.class(), limit.text.as_str()))
            .collect()
    }

    /// The paths of the series, in units of the inner SVG: its height is in pixels.
    fn paths(&self) -> Html {
        let step = WIDE / self.steps() as f64;
        let mut stacked = vec![0.0; self.steps()];
        let mut html = String::new();
        for series in &self.series {
            let class = series.tone.class();
            match series.shape {
                Shape::Bars | Shape::Part | Shape::Below => {
                    let path = self.bars(series, step, &mut stacked);
                    let part = if series.shape == Shape::Part { " part" } else { "" };
                    html += &format!("<path class=\"{class} fill{part}\" d=\"{path}\"/>");
                }
                Shape::Area => {
                    html += &format!(
                        "<path class=\"{class} fill ground\" d=\"{}\"/><path class=\"{class} line\" d=\"{}\"/>",
                        self.area(series, step),
                        self.line(series, step)
                    );
                }
                Shape::Line => {
                    html += &format!("<path class=\"{class} line\" d=\"{}\"/>", self.line(series, step))
                }
                Shape::Forecast => {
                    html +=
                        &format!("<path class=\"{class} line dashed\" d=\"{}\"/>", self.line(series, step));
                }
            }
        }
        Html::trusted(html)
    }

    fn bars(&self, series: &Series, step: f64, stacked: &mut [f64]) -> String {
        let (gap, scale) = (step * 0.16, self.scale());
        let mut path = String::new();
        for (number, value) in series.values.iter().enumerate() {
            let Some(value) = value.filter(|value| *value > 0.0) else { continue };
            let (x, width) = (tenth(number as f64 * step + gap / 2.0), tenth(step - gap));
            // What is not nothing can be seen.
            let height = (value * scale).max(1.5);
            let y = match series.shape {
                Shape::Below => self.zero() + 2.0,
                _ => {
                    stacked[number] += height;
                    self.zero() - stacked[number]
                }
            };
            path += &format!("M{x} {}h{width}v{}h-{width}z", tenth(y), tenth(height));
        }
        path
    }

    /// The points of a line, in runs without gaps.
    fn runs(&self, series: &Series, step: f64) -> Vec<Vec<(f64, f64)>> {
        let mut runs = vec![Vec::new()];
        for (number, value) in series.values.iter().enumerate() {
            match value {
                Some(value) => {
                    let point = (tenth((number as f64 + 0.5) * step), tenth(self.y(*value)));
                    if let Some(run) = runs.last_mut() {
                        run.push(point);
                    }
                }
                None => runs.push(Vec::new()),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }

    fn line(&self, series: &Series, step: f64) -> String {
        let mut path = String::new();
        for run in self.runs(series, step) {
            for (number, (x, y)) in run.iter().enumerate() {
                path += &format!("{}{x} {y}", if number == 0 { "M" } else { "L" });
            }
            // A single point is a short line.
            if run.len() == 1 {
                path += "h2";
            }
        }
        path
    }

    fn area(&self, series: &Series, step: f64) -> String {
        let mut path = String::new();
        for run in self.runs(series, step) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            path += &format!("M{} {}", first.0, self.zero());
            for (x, y) in &run {
                path += &format!("L{x} {y}");
            }
            path += &format!("L{} {}z", last.0, self.zero());
        }
        path
    }

    /// The values for the script, with three digits each.
    fn points(&self) -> String {
        let short = |value: &Option<f64>| match value {
            Some(value) if *value >= 100.0 => json!(value.round() as i64),
            Some(value) => json!(format!("{value:.3}").parse::<f64>().unwrap_or(*value)),
            None => json!(null),
        };
        let series: Vec<_> = self
            .series
            .iter()
            .map(|series| json!([series.name, series.values.iter().map(short).collect::<Vec<_>>()]))
            .collect();
        json!({
            "from": rfc3339(self.from),
            "step": self.step.as_secs(),
            "unit": self.unit.name(),
            "series": series,
        })
        .to_string()
    }

    /// Name and class of each series, if there is more than one.
    fn legend(&self) -> Vec<(&str, String)> {
        if self.series.len() < 2 {
            return Vec::new();
        }
        let class = |series: &Series| {
            let shape = match series.shape {
                Shape::Part => " part",
                Shape::Line => " stroke",
                Shape::Forecast => " stroke dashed",
                _ => "",
            };
            format!("{}{shape}", series.tone.class())
        };
        self.series.iter().map(|series| (series.name.as_str(), class(series))).collect()
    }
}

/// A small line without axes, for a row.
#[derive(Clone, Debug)]
pub(crate) struct Spark {
    pub(crate) tone: Tone,
    pub(crate) values: Vec<f64>,
    /// What it says, for screen readers: "failures in 24 h, rising".
    pub(crate) sentence: String,
}

impl HtmlSafe for Spark {}

impl std::fmt::Display for Spark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (class, sentence) = (self.tone.class(), escape(&self.sentence));
        let top = self.values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = 96.0 / (self.values.len().max(2) - 1) as f64;
        let y =
            |value: f64| if top > 0.0 && value > 0.0 { 22.0 - (value / top).min(1.0) * 19.0 } else { 22.0 };
        let line: Vec<String> = self
            .values
            .iter()
            .enumerate()
            .map(|(number, value)| format!("{} {}", round(number as f64 * step), round(y(*value))))
            .collect();
        let line = line.join("L");
        write!(
            f,
            "<svg class=\"spark {class}\" width=\"96\" height=\"24\" role=\"img\" aria-label=\"{sentence}\">"
        )?;
        if !line.is_empty() {
            write!(
                f,
                "<path class=\"fill ground\" d=\"M0 23L{line}L96 23z\"/><path class=\"line\" d=\"M{line}\"/>"
            )?;
        }
        f.write_str("</svg>")
    }
}

/// One decimal is enough for a path: there are hundreds of points.
fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The next round value for the top of an axis.
fn nice(value: f64, unit: Unit) -> f64 {
    if value <= 1e-6 {
        return 1.0;
    }
    if unit == Unit::Span && value >= 1.0 {
        const SECONDS: [f64; 20] = [
            2.0, 4.0, 6.0, 10.0, 20.0, 30.0, 60.0, 120.0, 240.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0,
            14_400.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0,
        ];
        if let Some(top) = SECONDS.into_iter().find(|top| *top >= value) {
            return top;
        }
    }
    let power = 10_f64.powf(value.log10().floor());
    // A power below 1 is divided by: 3 / 10 is 0.3, 3 * 0.1 is not.
    let times = |factor: f64| if power < 1.0 { factor / power.recip().round() } else { factor * power };
    let factors = [1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    factors.into_iter().map(times).find(|top| *top >= value * 0.999).unwrap_or(10.0 * power)
}

/// Round times between two times, at most so many, and how they are written.
pub(super) fn time_ticks(from: Time, to: Time, most: usize) -> (Form, Vec<Time>) {
    const MINUTE: i64 = 60_000_000;
    const STEPS: [i64; 16] = [
        MINUTE / 12,
        MINUTE / 4,
        MINUTE,
        2 * MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        15 * MINUTE,
        30 * MINUTE,
        60 * MINUTE,
        120 * MINUTE,
        240 * MINUTE,
        360 * MINUTE,
        720 * MINUTE,
        1_440 * MINUTE,
        2_880 * MINUTE,
        10_080 * MINUTE,
    ];
    let whole = to.micros().saturating_sub(from.micros()).max(1);
    let step = STEPS.into_iter().find(|step| whole / step <= most as i64).unwrap_or(whole / most as i64);
    let first = from.micros().div_euclid(step).saturating_mul(step);
    let ticks = (0..).map(|number: i64| Time(first.saturating_add(step.saturating_mul(number))));
    let ticks = ticks.skip_while(|at| *at < from).take_while(|at| *at <= to).take(most + 2).collect();
    let form = match step {
        step if step < MINUTE => Form::Second,
        step if step < 1_440 * MINUTE => Form::Minute,
        _ => Form::Day,
    };
    (form, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        text.parse().expect("a time")
    }

    fn series(shape: Shape, values: &[f64]) -> Series {
        Series {
            name: format!("{shape:?}"),
            tone: Tone::Ok,
            shape,
            values: values.iter().copied().map(Some).collect(),
        }
    }

    fn chart(series: Vec<Series>) -> Chart {
        let clock = Clock { now: at("2026-11-19T14:32:08Z"), relative: true };
        Chart::new(
            "Jobs that ended",
            clock,
            at("2026-11-19T13:32:00Z"),
            Duration::from_secs(60),
            Unit::Rate,
            series,
        )
    }

    #[test]
    fn axes_end_at_round_values() {
        let tops = [0.0, 0.3, 1.0, 7.0, 398.0, 425.0, 512_345.0].map(|value| nice(value, Unit::Rate));
        assert_eq!(tops, [1.0, 0.3, 1.0, 8.0, 400.0, 500.0, 600_000.0]);
        assert_eq!(
            [1.5, 45.0, 500.0, 90_000.0].map(|value| nice(value, Unit::Span)),
            [2.0, 60.0, 600.0, 172_800.0]
        );
    }

    #[test]
    fn time_axes_have_a_few_round_times() {
        let hour = time_ticks(at("2026-11-19T13:32:00Z"), at("2026-11-19T14:32:00Z"), 6);
        let text: Vec<String> = hour.1.iter().map(|tick| rfc3339(*tick)[11..16].to_owned()).collect();
        assert_eq!(
            (hour.0, text),
            (Form::Minute, ["13:40", "13:50", "14:00", "14:10", "14:20", "14:30"].map(String::from).into())
        );
        let month = time_ticks(at("2026-10-19T13:32:00Z"), at("2026-11-19T14:32:00Z"), 6);
        assert_eq!(month.0, Form::Day);
        assert!((4..=7).contains(&month.1.len()));
        assert!(time_ticks(Time(i64::MIN), Time(i64::MAX), 6).1.len() <= 8);
    }

    #[test]
    fn bars_stack_and_small_failures_can_be_seen() {
        let chart = chart(vec![
            series(Shape::Bars, &[10.0, 20.0, 0.0]),
            series(Shape::Part, &[30.0, 60.0, 0.0]),
            series(Shape::Below, &[0.0, 0.001, 0.0]),
        ]);
        assert_eq!(chart.top(), 80.0);
        let html = chart.to_string();
        assert!(html.contains("v1.5h"), "{html}");
        assert!(html.contains("role=\"img\" aria-label=\"Jobs that ended\""));
        assert!(!html.contains("style="));
        // Both sides have the same scale.
        assert!(chart.y(80.0) >= HEAD - 0.1);
    }

    #[test]
    fn gaps_break_a_line() {
        let mut line = series(Shape::Line, &[1.0, 2.0, 3.0, 4.0]);
        line.values[1] = None;
        let chart = chart(vec![line]);
        assert_eq!(chart.line(&chart.series[0], 250.0).matches('M').count(), 2);
    }

    #[test]
    fn values_that_are_no_numbers_do_no_harm() {
        for values in [&[][..], &[0.0], &[f64::MAX, 1.0], &[1e-300], &[f64::NAN, -1.0]] {
            let html = chart(vec![series(Shape::Area, values), series(Shape::Bars, values)]).to_string();
            assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
            assert!(
                Spark { tone: Tone::Run, values: values.to_vec(), sentence: "s".into() }
                    .to_string()
                    .ends_with("</svg>")
            );
        }
    }
}
