//! The queues: what is behind, and what holds it.

use std::sync::Arc;

use askama::Template;
use windlass::{
    model::Permission,
    operate::views::{QueueRow, Queues, RateLimits, SerialKeys},
    store::{LimitView, SerialView},
};

use super::{
    bars::Meter,
    format::{When, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{Done, PageCall, Posted, form_route, html},
    parts::{Blank, Pill, Tone},
};
use crate::{error::Error, routes::Route};

/// How many serial keys are shown.
const KEYS: usize = 50;

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    frame: Frame,
    queues: Arc<Queues>,
    limits: RateLimits,
    keys: SerialKeys,
    blank: Option<Blank>,
    /// The queue that the drawer pauses.
    pausing: Option<String>,
    most_ready: u64,
}

impl QueuesPage {
    fn at(&self, at: &windlass::Time) -> When {
        self.frame.clock().lasts(*at)
    }

    fn ago(&self, at: &windlass::Time) -> When {
        self.frame.clock().ago(*at)
    }

    fn count(&self, count: &u64) -> String {
        thousands(*count)
    }

    fn meter(&self, queue: &QueueRow) -> Meter {
        let tone = if queue.paused.is_some() { Tone::Warn } else { Tone::Run };
        Meter::new(tone, queue.ready as f64, self.most_ready as f64)
    }

    fn pill(&self, queue: &QueueRow) -> Option<Pill> {
        queue.paused.as_ref().map(|_| Pill::paused())
    }

    fn rule(&self, limit: &LimitView) -> String {
        format!("{} per {}", thousands(u64::from(limit.limit.rate)), super::format::span(limit.limit.per))
    }

    fn tokens(&self, limit: &LimitView) -> Meter {
        Meter::new(Tone::Run, limit.tokens.max(0) as f64, f64::from(limit.limit.burst.max(1)))
    }

    fn id(&self, name: &str) -> String {
        blake3::hash(name.as_bytes()).to_hex()[..12].to_owned()
    }

    fn held(&self, key: &SerialView) -> String {
        format!("{} of {}", key.held, key.slots)
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let queues = call.queues().await?;
    let limits = RateLimits::read(call.operator()).await?;
    let keys = SerialKeys::read(call.operator(), None, KEYS).await?;
    let frame = call.frame("Queues", "queues").await?;
    let pausing = call.query.text("pause").filter(|name| frame.may_act && queues.queues.iter().any(|queue| queue.name == *name));
    let blank = queues.queues.is_empty().then(|| Blank {
        icon: Icon::Queues,
        title: "No queue was ever used".into(),
        text: Html::words("A queue exists once a job is submitted to it."),
        actions: Vec::new(),
    });
    let pausing = pausing.map(str::to_owned);
    let most_ready = queues.queues.iter().map(|queue| queue.ready).max().unwrap_or(0);
    html(&QueuesPage { frame, queues, limits, keys, blank, pausing, most_ready })
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        form_route("/queues/pause", Permission::Act, pause),
        form_route("/queues/resume", Permission::Act, resume),
    ]
}

async fn pause(posted: Posted) -> Result<Done, Error> {
    let queue = posted.form.required("queue")?;
    let control = posted.call.control(posted.form.text("note").map(str::to_owned));
    let text = match control.pause_queue(queue).await? {
        true => format!("The queue {queue} is paused: none of its jobs is claimed."),
        false => format!("The queue {queue} was paused before."),
    };
    Ok(Done { text, next: Some("/queues".into()) })
}

async fn resume(posted: Posted) -> Result<Done, Error> {
    let queue = posted.form.required("queue")?;
    let control = posted.call.control(posted.form.text("note").map(str::to_owned));
    let text = match control.resume_queue(queue).await? {
        true => format!("The queue {queue} is resumed."),
        false => format!("The queue {queue} was not paused."),
    };
    Ok(Done { text, next: None })
}
