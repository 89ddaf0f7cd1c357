//! What ended over time: how much, how much of it failed, how long jobs waited and ran.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use askama::Template;
use windlass::{
    Time,
    operate::views::{EndedView, Percentiles, ThroughputRequest, ThroughputView},
    store::ThroughputBy,
};

use super::{
    charts::{Chart, Series, Shape, Unit},
    format::{Clock, counted, percent, rate, span, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::{Blank, Tab, Tabs, Tone},
};
use crate::error::Error;

/// How many kinds are listed.
const KINDS: usize = 40;

/// A span that can be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    name: &'static str,
    words: &'static str,
    since: Duration,
    /// What a row of the store's sums up, and what is said about it.
    by: ThroughputBy,
    step: Duration,
    step_words: &'static str,
}

const HOUR: Duration = Duration::from_secs(3_600);
const SPANS: [Span; 4] = [
    Span {
        name: "1h",
        words: "1 hour",
        since: HOUR,
        by: ThroughputBy::Minute,
        step: Duration::from_secs(60),
        step_words: "by minute",
    },
    Span {
        name: "24h",
        words: "24 hours",
        since: Duration::from_secs(24 * 3_600),
        by: ThroughputBy::Hour,
        step: HOUR,
        step_words: "by hour",
    },
    Span {
        name: "7d",
        words: "7 days",
        since: Duration::from_secs(7 * 24 * 3_600),
        by: ThroughputBy::Hour,
        step: HOUR,
        step_words: "by hour",
    },
    Span {
        name: "30d",
        words: "30 days",
        since: Duration::from_secs(30 * 24 * 3_600),
        by: ThroughputBy::Hour,
        step: HOUR,
        step_words: "by hour",
    },
];

/// What ended in a span, over time and by kind.
pub(super) struct Analytics {
    times: ThroughputView,
    kinds: ThroughputView,
}

#[derive(Template)]
#[template(path = "analytics.html")]
struct AnalyticsPage {
    frame: Frame,
    span: Span,
    tabs: Tabs,
    detail: String,
    charts: Vec<(&'static str, &'static str, String, Chart)>,
    kinds: Vec<KindRow>,
    left_out: Option<String>,
    blank: Option<Blank>,
    wrong: Option<String>,
}

/// A kind in a queue.
struct KindRow {
    kind: String,
    queue: String,
    ended: EndedView,
}

impl KindRow {
    fn count(&self) -> String {
        thousands(jobs(&self.ended))
    }

    fn fails(&self) -> String {
        percent(bad(&self.ended), attempts(&self.ended))
    }

    fn is_bad(&self) -> bool {
        bad(&self.ended) > 0
    }

    fn wait(&self) -> [String; 2] {
        texts(&self.ended.wait)
    }

    fn run(&self) -> [String; 2] {
        texts(&self.ended.run)
    }
}

fn texts(percentiles: &Percentiles) -> [String; 2] {
    [percentiles.p50_seconds, percentiles.p95_seconds].map(|seconds| seconds.map_or("–".into(), seconds_text))
}

fn seconds_text(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
}

/// Jobs that ended.
fn jobs(ended: &EndedView) -> u64 {
    ended.done + ended.failed + ended.cancelled
}

/// Attempts that failed.
fn bad(ended: &EndedView) -> u64 {
    ended.failed + ended.retried
}

fn attempts(ended: &EndedView) -> u64 {
    jobs(ended) + ended.retried
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let asked = call.query.text("span");
    let known = SPANS.into_iter().find(|span| asked == Some(span.name));
    let wrong = asked
        .filter(|_| known.is_none())
        .map(|_| "The span in the address is none of 1h, 24h, 7d and 30d: this is the last day.".to_owned());
    let span = known.unwrap_or(SPANS[1]);
    let read = call.analytics(span).await?;
    let frame = call.frame("Analytics", "analytics").await?;
    let total = &read.times.total;
    let mut kinds: Vec<KindRow> = read
        .kinds
        .rows
        .iter()
        .map(|row| KindRow {
            kind: row.kind.clone().unwrap_or_default(),
            queue: row.queue.clone().unwrap_or_default(),
            ended: row.ended,
        })
        .collect();
    kinds.sort_by_key(|row| std::cmp::Reverse(attempts(&row.ended)));
    let left_out = (kinds.len() > KINDS)
        .then(|| format!("The {KINDS} of {} kinds with the most jobs.", thousands(kinds.len() as u64)));
    kinds.truncate(KINDS);
    let tab = |other: Span| Tab {
        name: other.words.to_owned(),
        href: format!("/analytics?span={}", other.name),
        icon: None,
        count: String::new(),
        id: format!("span-{}", other.name),
        is_current: other == span,
    };
    let blank = (attempts(total) == 0).then(|| Blank {
        icon: Icon::Analytics,
        title: format!("Nothing ended in the last {}", span.words),
        text: Html::words("Numbers of jobs that ended are kept by minute, and later by hour."),
        actions: Vec::new(),
    });
    let page = AnalyticsPage {
        tabs: Tabs { label: "Span", tabs: SPANS.map(tab).into() },
        detail: detail(total, span),
        charts: charts(&read.times, span, frame.clock()),
        span,
        kinds,
        left_out,
        blank,
        wrong,
        frame,
    };
    html(&page)
}

fn detail(total: &EndedView, span: Span) -> String {
    let failed = percent(bad(total), attempts(total));
    format!(
        "In the last {} {} ended; {failed} of the attempts failed.",
        span.words,
        counted(jobs(total), "job", "jobs")
    )
}

/// The charts: title, what it shows, the number of the whole span, the chart.
fn charts(
    view: &ThroughputView,
    span: Span,
    clock: Clock,
) -> Vec<(&'static str, &'static str, String, Chart)> {
    let step = span.step.as_micros() as i64;
    let steps = ((view.until - view.from).as_micros() as i64 / step + 1).clamp(1, 800) as usize;
    let rows: BTreeMap<usize, &EndedView> = view
        .rows
        .iter()
        .filter_map(|row| {
            let number =
                usize::try_from((row.starts_at?.micros() - view.from.micros()).div_euclid(step)).ok()?;
            (number < steps).then_some((number, &row.ended))
        })
        .collect();
    let values = |value: &dyn Fn(&EndedView) -> Option<f64>, none: Option<f64>| -> Vec<Option<f64>> {
        (0..steps).map(|number| rows.get(&number).map_or(none, |ended| value(ended))).collect()
    };
    let chart = |sentence: &str, unit, series| {
        Chart::new(sentence, clock, Time(view.from.micros()), span.step, unit, series)
    };
    let line = |name: &str, tone, values| Series { name: name.into(), tone, shape: Shape::Line, values };
    let (seconds, total) = (span.step.as_secs_f64(), &view.total);
    let mean = rate(jobs(total) as f64 / (view.until - view.from).as_secs_f64().max(1.0));
    let ended = vec![
        Series {
            name: "done".into(),
            tone: Tone::Ok,
            shape: Shape::Bars,
            values: values(&|ended| Some(ended.done as f64 / seconds), Some(0.0)),
        },
        Series {
            name: "failed attempts".into(),
            tone: Tone::Bad,
            shape: Shape::Below,
            values: values(&|ended| Some(bad(ended) as f64 / seconds), Some(0.0)),
        },
    ];
    let share =
        |ended: &EndedView| (attempts(ended) > 0).then(|| bad(ended) as f64 / attempts(ended) as f64 * 100.0);
    let fails = vec![Series {
        name: "failed".into(),
        tone: Tone::Bad,
        shape: Shape::Area,
        values: values(&share, None),
    }];
    let spread = |of: fn(&EndedView) -> &Percentiles| {
        vec![
            line("p50", Tone::Run, values(&|ended| of(ended).p50_seconds, None)),
            line("p95", Tone::Warn, values(&|ended| of(ended).p95_seconds, None)),
        ]
    };
    let p95 = |percentiles: &Percentiles| format!("p95 {}", texts(percentiles)[1]);
    vec![
        (
            "Ended per second",
            span.step_words,
            format!("{mean} mean"),
            chart("Jobs that were done and attempts that failed, per second", Unit::Rate, ended),
        ),
        (
            "Attempts that fail",
            "of all attempts",
            percent(bad(total), attempts(total)),
            chart("The share of attempts that failed", Unit::Percent, fails),
        ),
        (
            "How long jobs wait",
            "from when they are due until the last attempt starts",
            p95(&total.wait),
            chart(
                "How long jobs waited: half of them, and 95 % of them at most",
                Unit::Span,
                spread(|ended| &ended.wait),
            ),
        ),
        (
            "How long jobs run",
            "the last attempt",
            p95(&total.run),
            chart(
                "How long the last attempt ran: half of them, and 95 % of them at most",
                Unit::Span,
                spread(|ended| &ended.run),
            ),
        ),
    ]
}

impl PageCall {
    async fn analytics(&self, span: Span) -> Result<Arc<Analytics>, Error> {
        let request = |by| ThroughputRequest { queues: Vec::new(), kinds: Vec::new(), since: span.since, by };
        let read = async || {
            let times = ThroughputView::read(self.operator(), &request(span.by)).await?;
            let kinds = ThroughputView::read(self.operator(), &request(ThroughputBy::Kind)).await?;
            Ok(Analytics { times, kinds })
        };
        self.views().analytics.get(&span.name, read).await
    }
}
