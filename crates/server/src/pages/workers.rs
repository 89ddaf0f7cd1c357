//! The workers: which are alive, what they serve, and which were lost.

use std::sync::Arc;

use askama::Template;
use windlass::{
    operate::views::Situation,
    store::{Serves, WorkerView},
};

use super::{
    format::{counted, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::{Blank, Pill, Tone},
};
use crate::error::Error;

/// How many workers are shown.
const ROWS: usize = 60;
/// How many kinds of a queue are named.
const KINDS: usize = 6;

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    detail: String,
    rows: Vec<WorkerView>,
    /// How many are not shown.
    left_out: Option<String>,
    blank: Option<Blank>,
}

impl WorkersPage {
    fn id(&self, worker: &WorkerView) -> String {
        worker.id.to_string()
    }

    fn pill(&self, worker: &WorkerView) -> Pill {
        match (worker.alive, worker.lease_until > self.frame.now) {
            (true, true) => Pill::new(Tone::Run, Icon::Running, "live"),
            (true, false) => Pill::new(Tone::Warn, Icon::Warn, "late"),
            (false, _) => Pill::lost(),
        }
    }

    /// Until when it has its jobs, or had them.
    fn lease(&self, worker: &WorkerView) -> Html {
        let word = if worker.lease_until > self.frame.now { "expires " } else { "expired " };
        Html::words(word).add(self.frame.clock().ago(worker.lease_until))
    }

    fn count(&self, count: &u64) -> String {
        thousands(*count)
    }

    fn slots(&self, serves: &Serves) -> String {
        counted(serves.slots as u64, "slot", "slots")
    }

    fn kinds(&self, serves: &Serves) -> Html {
        let mut text = Html::new();
        for (number, kind) in serves.kinds.iter().take(KINDS).enumerate() {
            let named = format!("{} v{}", kind.kind, kind.version);
            text = if number > 0 { text.text(", ") } else { text };
            text = text.link(&super::form::url("/jobs", [("kind", Some(kind.kind.as_str()))]), &named);
        }
        match serves.kinds.len() {
            0 => Html::words("no kind"),
            count if count > KINDS => text.text(&format!(" and {} more", count - KINDS)),
            _ => text,
        }
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let shared = Arc::clone(call.shared());
    let situation = shared.pages.situation(&shared).await?;
    let frame = call.frame("Workers", "workers").await?;
    let mut rows = situation.workers.clone();
    // Those that need a look first; else by name.
    let is_live = |worker: &WorkerView| worker.alive && worker.lease_until > frame.now;
    rows.sort_by(|a, b| (is_live(a), &a.name, a.id).cmp(&(is_live(b), &b.name, b.id)));
    let left_out = rows
        .len()
        .checked_sub(ROWS)
        .filter(|more| *more > 0)
        .map(|more| format!("{} more, which are live", thousands(more as u64)));
    rows.truncate(ROWS);
    let blank = rows.is_empty().then(|| Blank {
        icon: Icon::Workers,
        title: "No worker is here".into(),
        text: Html::words("Jobs wait until a worker serves their queue and kind. Start one with ")
            .code("windlass worker")
            .text(", or start your program."),
        actions: Vec::new(),
    });
    html(&WorkersPage { detail: detail(&situation, frame.now), rows, left_out, blank, frame })
}

fn detail(situation: &Situation, now: windlass::Time) -> String {
    let live = situation.workers.iter().filter(|worker| worker.alive && worker.lease_until > now);
    let (mut count, mut slots) = (0, 0);
    for worker in live {
        count += 1;
        slots += worker.serves.iter().map(|serves| serves.slots as u64).sum::<u64>();
    }
    let others = situation.workers.len() as u64 - count;
    let mut text =
        format!("{} with {}", counted(count, "live worker", "live workers"), counted(slots, "slot", "slots"));
    if others > 0 {
        text += &format!(
            "; {} lost lately or late. Jobs of a lost worker are claimed again once its lease has expired",
            thousands(others)
        );
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::Time;

    #[test]
    fn slots_of_lost_workers_do_not_count() {
        let worker = |alive, lease| WorkerView {
            id: windlass::model::WorkerId(1),
            name: "w".into(),
            liveness_file: None,
            alive,
            lease_until: Time(lease),
            claims: 0,
            lost_at: None,
            serves: vec![Serves { queue: "q".into(), slots: 4, kinds: Vec::new() }],
        };
        let situation = Situation {
            workers: vec![worker(true, 20), worker(true, 5), worker(false, 20)],
            ..Situation::default()
        };
        assert!(detail(&situation, Time(10)).starts_with("1 live worker with 4 slots; 2 lost"));
    }
}
