//! What a job did over time: the calls of a workflow, or the attempts of a task.

use std::collections::BTreeMap;

use windlass::{
    State, Time,
    model::journal::{CallEvent, CallKind},
    operate::views::{EntryResult, EntryView, JobView},
};

use crate::pages::{
    format::{Clock, span},
    html::Html,
    icon::Icon,
    parts::Tone,
    timeline::{Appearance, Row, Segment, Timeline},
};

/// The timeline of a job; `None` if it has done nothing that takes time.
pub(super) fn timeline(view: &JobView, clock: Clock, folds: bool) -> Option<Timeline> {
    let rows = if view.workflow.journal.is_empty() { attempts(view) } else { calls(view) };
    let ended = view.job.summary.finished_at;
    (!rows.is_empty()).then(|| Timeline::new(rows, clock, ended, folds))
}

/// The failed attempts, and the last one.
fn attempts(view: &JobView) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, attempt) in view.history.iter().enumerate() {
        let segment =
            segment(attempt.started_at, Some(attempt.ended_at), Appearance::Failed, &attempt.failure.message);
        rows.push(row(
            &format!("attempt {}", number + 1),
            (Tone::Bad, Icon::Failed, "failed"),
            vec![segment],
            span(attempt.ended_at - attempt.started_at),
        ));
    }
    let job = &view.job;
    let started = job.started_at.filter(|at| view.history.last().is_none_or(|last| *at > last.started_at));
    match (job.summary.state, started) {
        (State::Running, Some(at)) => rows.push(row(
            "running now",
            (Tone::Run, Icon::Running, "running"),
            vec![segment(at, None, Appearance::Runs, "runs")],
            String::new(),
        )),
        (State::Done, Some(at)) => {
            let end = job.summary.finished_at.unwrap_or(at);
            let name = format!("attempt {}", view.history.len() + 1);
            rows.push(row(
                &name,
                (Tone::Ok, Icon::Done, "done"),
                vec![segment(at, Some(end), Appearance::Ran, "done")],
                span(end - at),
            ));
        }
        _ => {}
    }
    rows
}

/// A call of a workflow, as its entries say.
#[derive(Default)]
struct Call {
    name: String,
    kind: Option<CallKind>,
    segments: Vec<Segment>,
    state: Option<CallEvent>,
    open_since: Option<Time>,
    tries: usize,
    first: Option<Time>,
    last: Option<Time>,
}

/// The calls by name and key, in the order in which they first occur. A call without a first entry of its own ran since the entry before.
fn calls(view: &JobView) -> Vec<Row> {
    let mut order: Vec<(String, Option<String>)> = Vec::new();
    let mut calls: BTreeMap<(String, Option<String>), Call> = BTreeMap::new();
    let mut previous = view.workflow.previous_at.unwrap_or(view.job.summary.submitted_at);
    for entry in &view.workflow.journal {
        if matches!(
            entry.call_kind,
            CallKind::Context | CallKind::Now | CallKind::Lifecycle | CallKind::Version
        ) {
            previous = entry.at;
            continue;
        }
        let id = (entry.name.clone(), entry.key.clone());
        let call = calls.entry(id.clone()).or_insert_with(|| {
            order.push(id);
            Call::default()
        });
        call.add(entry, previous);
        previous = entry.at;
    }
    let is_over = view.job.summary.state.is_final();
    order.into_iter().filter_map(|id| calls.remove(&id)).map(|call| call.row(is_over)).collect()
}

impl Call {
    fn add(&mut self, entry: &EntryView, previous: Time) {
        self.name = match &entry.key {
            Some(key) => format!("{} {key}", entry.name),
            None => entry.name.clone(),
        };
        self.kind = Some(entry.call_kind);
        self.state = Some(entry.event);
        let from = self.open_since.take().unwrap_or(previous);
        self.first.get_or_insert(from);
        self.last = Some(entry.at);
        match entry.event {
            CallEvent::Begun => {
                self.open_since = Some(entry.at);
                self.first = Some(entry.at);
            }
            CallEvent::Tried => {
                self.tries += 1;
                self.segments.push(segment(
                    from,
                    Some(entry.at),
                    Appearance::Failed,
                    "failed, and is tried again",
                ));
                self.open_since = None;
            }
            CallEvent::Failed => {
                self.segments.push(segment(from, Some(entry.at), Appearance::Failed, "failed"))
            }
            CallEvent::Undone | CallEvent::NotUndone => {}
            CallEvent::Done | CallEvent::DoneWithUndo => {
                self.segments.push(segment(from, Some(entry.at), self.appearance(), "done"))
            }
        }
    }

    /// How its time looks, by what it is.
    fn appearance(&self) -> Appearance {
        match self.kind {
            Some(CallKind::Sleep) => Appearance::Asleep,
            Some(
                CallKind::Signal
                | CallKind::WaitUntil
                | CallKind::ContinueIf
                | CallKind::Select
                | CallKind::Merge,
            ) => Appearance::Waited,
            _ => Appearance::Ran,
        }
    }

    fn row(mut self, is_over: bool) -> Row {
        if let Some(since) = self.open_since.filter(|_| !is_over) {
            let appearance =
                if self.appearance() == Appearance::Ran { Appearance::Runs } else { self.appearance() };
            self.segments.push(Segment {
                from: since,
                to: None,
                appearance,
                label: String::new(),
                title: "has not ended".into(),
            });
        }
        let state = match self.state {
            Some(CallEvent::Failed) => (Tone::Bad, Icon::Failed, "failed"),
            Some(CallEvent::Undone) => (Tone::Warn, Icon::Undo, "undone"),
            Some(CallEvent::NotUndone) => (Tone::Bad, Icon::Undo, "not undone"),
            Some(event) if event.is_done() => (Tone::Ok, Icon::Done, "done"),
            Some(CallEvent::Tried) => (Tone::Idle, Icon::Scheduled, "backing off"),
            _ if is_over => (Tone::Idle, Icon::Ready, "left"),
            _ => (Tone::Wait, Icon::Waiting, "not ended"),
        };
        let mut marks = Vec::new();
        match self.kind {
            Some(CallKind::Sleep) => marks.push(Icon::Asleep),
            Some(CallKind::Signal) => marks.push(Icon::Signal),
            Some(CallKind::Child | CallKind::Branch | CallKind::Merge) => marks.push(Icon::Branches),
            _ => {}
        }
        if self.state == Some(CallEvent::DoneWithUndo) {
            marks.push(Icon::Undo);
        }
        let end = match (self.tries, self.first, self.last) {
            (0, Some(first), Some(last)) if self.open_since.is_none() => span(last - first),
            (0, ..) => String::new(),
            (tries, ..) => format!("{} attempts", tries + 1),
        };
        Row { marks, ..row(&self.name, state, self.segments, end) }
    }
}

fn row(name: &str, (tone, icon, word): (Tone, Icon, &str), segments: Vec<Segment>, end: String) -> Row {
    Row {
        name: name.to_owned(),
        href: "#journal".to_owned(),
        state: (tone, icon),
        state_word: word.to_owned(),
        marks: Vec::new(),
        segments,
        end,
    }
}

fn segment(from: Time, to: Option<Time>, appearance: Appearance, title: &str) -> Segment {
    let title: String = title.chars().take(200).collect();
    Segment { from, to, appearance, label: String::new(), title }
}

/// What an entry has recorded, in a line.
pub(super) fn result(entry: &EntryView) -> Html {
    match &entry.result {
        EntryResult::Failure(failure) => {
            Html::words("").bold(&failure.class).text(" ").user(&failure.message)
        }
        EntryResult::Payload(value) if value.is_null() => Html::new(),
        EntryResult::Payload(value) => {
            let text: String = value.to_string().chars().take(120).collect();
            Html::words("").code(&text)
        }
    }
}
