//! Waiting jobs: who waits for what, and for too long.

use askama::Template;
use windlass::operate::views::{RepeatRow, SleepRow, WaitGroup, WaitRow, WaitingView, WaitsFor};

use super::{
    format::{When, counted, span, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::Blank,
};
use crate::error::Error;

/// How many jobs of a group are shown.
const ROWS: usize = 5;

#[derive(Template)]
#[template(path = "waiting.html")]
struct WaitingPage {
    frame: Frame,
    view: WaitingView,
    blank: Option<Blank>,
}

impl WaitingPage {
    fn what(&self, group: &WaitGroup) -> Html {
        match &group.waits_for {
            WaitsFor::Signals { names, needs } => {
                let all = Html::words("the signal ").bold(&names.join(", "));
                match names.len() {
                    0 | 1 => all,
                    count if *needs as usize >= count => Html::words("the signals ").bold(&names.join(", ")),
                    _ => Html::words(&format!("{needs} of the signals ")).bold(&names.join(", ")),
                }
            }
            WaitsFor::Children => Html::words("children"),
            WaitsFor::Branches => Html::words("branches"),
            WaitsFor::Time => Html::words("a time"),
            WaitsFor::Nothing => Html::words("a slot: they were woken just now"),
        }
    }

    /// How long such waits usually take, of how many.
    fn usual(&self, group: &WaitGroup) -> Html {
        let mut text = Html::new();
        let seconds = |seconds: f64| span(std::time::Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default());
        for usual in &group.usual {
            if let (Some(p50), Some(p95)) = (usual.arrived.p50_seconds, usual.arrived.p95_seconds) {
                let sentence = format!("Of {} in 30 days, half took {} and 95 % at most {}.", counted(usual.arrived.count, "wait", "waits"), seconds(p50), seconds(p95));
                text = text.text(&sentence).text(" ");
            }
        }
        if let Some(longer) = group.longer_than_usual.filter(|longer| *longer > 0) {
            text = text.text(&format!("{} longer than that.", counted(longer, "job has waited", "jobs have waited")));
        }
        text
    }

    fn count(&self, count: &u64) -> String {
        thousands(*count)
    }

    fn since(&self, since: &Option<windlass::Time>) -> Html {
        since.map_or(Html::words("–"), |at| Html::part(self.frame.clock().lasts(at)))
    }

    fn until(&self, until: &Option<windlass::Time>) -> Html {
        until.map_or(Html::words("no end"), |at| Html::part(self.frame.clock().ago(at)))
    }

    fn name(&self, row: &WaitRow) -> String {
        row.key.clone().unwrap_or_else(|| row.id.to_string()[24..].to_owned())
    }

    fn wakes(&self, row: &SleepRow) -> Html {
        self.until(&row.row.until)
    }

    fn last(&self, row: &RepeatRow) -> Option<When> {
        row.last_tick.map(|at| self.frame.clock().ago(at))
    }

    fn ticks(&self, row: &RepeatRow) -> String {
        row.ticks.map_or("–".into(), thousands)
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let view = WaitingView::read(call.operator(), ROWS).await?;
    let frame = call.frame("Waiting", "waiting").await?;
    let blank = (view.groups.is_empty() && view.sleeping.is_empty() && view.repeats.is_empty()).then(|| Blank {
        icon: Icon::Waiting,
        title: "No job waits".into(),
        text: Html::words("Jobs that wait for signals, children or a time are here. They cost no slot and no memory."),
        actions: Vec::new(),
    });
    html(&WaitingPage { frame, view, blank })
}
