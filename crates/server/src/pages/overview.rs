//! The overview: whether anything is wrong, what, since when, and what to do.

use std::{sync::Arc, time::Duration};

use askama::Template;
use windlass::{
    State,
    operate::{
        alerts::{AlertRow, AlertsView},
        views::{FailureGroup, OpenBranchRow, OpenBranches, QueueRow, Queues, Situation, ThroughputView},
    },
    store::{AuditEntry, AuditFilter, Severity},
};

use super::{
    bars::Meter,
    charts::{Chart, Series, Shape, Unit},
    form::url,
    format::{Clock, When, counted, percent, rate, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    job,
    numbers::Numbers,
    page::{PageCall, html},
    parts::{Action, Attention, Counter, Counters, Tone},
};
use crate::{alerts::link::path_of, error::Error};

/// How many rows the lists have.
const ROWS: usize = 8;
/// A group of failures is news for so long.
const RECENT: Duration = Duration::from_secs(3_600);
/// A ready job that has waited so long needs somebody.
const LATE: Duration = Duration::from_secs(600);

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    verdict: String,
    detail: String,
    attention: Vec<Attention>,
    counters: Counters,
    chart: Chart,
    queues: Vec<QueueRow>,
    most_ready: u64,
    branches: Vec<OpenBranchRow>,
    audit: Vec<AuditEntry>,
}

impl OverviewPage {
    fn ago(&self, at: &windlass::Time) -> When {
        self.frame.clock().ago(*at)
    }

    fn lasts(&self, at: &windlass::Time) -> When {
        self.frame.clock().lasts(*at)
    }

    fn meter(&self, queue: &QueueRow) -> Meter {
        let tone = if queue.paused.is_some() { Tone::Warn } else { Tone::Run };
        Meter::new(tone, queue.ready as f64, self.most_ready as f64)
    }

    fn count(&self, count: &u64) -> String {
        thousands(*count)
    }

    fn band(&self, row: &OpenBranchRow) -> super::bars::Band {
        job::band(&row.branch).small()
    }

    fn pace(&self, row: &OpenBranchRow) -> String {
        job::pace(&row.branch)
    }

    fn parent(&self, row: &OpenBranchRow) -> String {
        row.key.clone().unwrap_or_else(|| format!("{} {}", row.kind, &row.job.to_string()[24..]))
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let shared = Arc::clone(call.shared());
    let numbers = shared.pages.numbers(&shared).await?;
    let situation = shared.pages.situation(&shared).await?;
    let (queues, branches, hour) =
        (call.queues().await?, call.open_branches().await?, call.last_hour().await?);
    let (failures, alerts) = (call.failures().await?, call.alerts().await?);
    let audit = AuditFilter { limit: ROWS, ..AuditFilter::default() };
    let audit = call.operator().inspect().audit(&audit).await?;
    let frame = call.frame("Overview", "overview").await?;
    let mut attention: Vec<Attention> = firing(&alerts, frame.clock(), frame.may_administer).collect();
    let recent = failures
        .groups
        .iter()
        .filter(|group| call.now - group.last_at < RECENT && group.cancelled < group.count);
    attention.extend(recent.take(ROWS).map(|group| failing(group, &frame)));
    attention.extend(blocked(&branches, &frame));
    attention.extend(paused_and_late(&queues, &situation, &frame));
    attention.extend(lost(&situation, &frame));
    attention.sort_by_key(|row| row.tone != Tone::Bad);
    let bad = attention.iter().filter(|row| row.tone == Tone::Bad).count() as u64;
    let others = attention.len() as u64 - bad;
    let mut sorted: Vec<QueueRow> = queues
        .queues
        .iter()
        .filter(|queue| queue.ready + queue.running + queue.scheduled + queue.waiting > 0)
        .cloned()
        .collect();
    sorted.sort_by_key(|queue| std::cmp::Reverse(queue.ready));
    sorted.truncate(ROWS);
    let page = OverviewPage {
        verdict: verdict(bad, others),
        detail: detail(&hour),
        counters: counters(&numbers, &queues, &situation, &hour, &frame),
        chart: chart(&hour, &frame),
        most_ready: sorted.iter().map(|queue| queue.ready).max().unwrap_or(0),
        queues: sorted,
        branches: branches
            .branches
            .iter()
            .filter(|row| !row.state.is_final())
            .take(ROWS / 2)
            .cloned()
            .collect(),
        audit,
        attention,
        frame,
    };
    html(&page)
}

fn verdict(bad: u64, others: u64) -> String {
    match (bad, others) {
        (0, 0) => "Nothing needs you.".to_owned(),
        (0, others) => format!("{} to know.", counted(others, "thing", "things")),
        (bad, 0) => format!("{} you.", counted(bad, "thing needs", "things need")),
        (bad, others) => format!("{} you, {others} to know.", counted(bad, "thing needs", "things need")),
    }
}

fn detail(hour: &ThroughputView) -> String {
    let total = hour.total;
    let ended = total.done + total.failed + total.cancelled;
    if ended == 0 {
        return "No job has ended in the last hour.".to_owned();
    }
    let seconds = (hour.until - hour.from).as_secs_f64().max(1.0);
    format!(
        "In the last hour {} ended, {}; {} of them are done.",
        counted(ended, "job", "jobs"),
        rate(ended as f64 / seconds),
        percent(total.done, ended)
    )
}

fn row(id: String, tone: Tone, icon: Icon, title: Html, href: String, detail: Html) -> Attention {
    Attention { id, tone, icon, title, href, detail, since: None, actions: Vec::new() }
}

/// Alerts that fire, are not muted, and were evaluated lately.
fn firing(view: &AlertsView, clock: Clock, may_mute: bool) -> impl Iterator<Item = Attention> {
    let fires = |row: &&AlertRow| row.fires() && row.muted.is_none() && !row.is_stale;
    view.alerts.iter().filter(fires).take(ROWS).map(move |AlertRow { alert, .. }| {
        let (tone, icon) = match alert.severity {
            Severity::Bad => (Tone::Bad, Icon::Failed),
            Severity::Warn => (Tone::Warn, Icon::Warn),
        };
        let id = format!("a-{}", short_hash(&format!("{} {}", alert.rule, alert.subject)));
        let detail = Html::words("Alert ").user(&alert.rule).text(": ").user(&alert.subject).text(".");
        let href = path_of(&alert.target);
        let mut found = row(id, tone, icon, Html::words("").user(&alert.text), href.clone(), detail);
        found.since = Some((clock.ago(alert.since), clock.at(alert.since)));
        if may_mute {
            let subject = Some(alert.subject.as_str());
            let mute = url("/access", [("mute", Some(alert.rule.as_str())), ("subject", subject)]);
            found.actions.push(Action::link("Mute…", &mute).small());
        }
        found.actions.push(Action::link("Show", &href).small().primary());
        found
    })
}

/// Jobs of a kind fail with the same error.
fn failing(group: &FailureGroup, frame: &Frame) -> Attention {
    let href = url(
        "/jobs",
        [
            ("state", Some("failed")),
            ("kind", Some(group.kind.as_str())),
            ("error_class", Some(group.class.as_str())),
        ],
    );
    let title = Html::words(&format!("{} of ", counted(group.count, "job", "jobs")))
        .user(&group.kind)
        .text(" failed with ")
        .user(&group.class);
    let detail = Html::words("").user(&group.message).text(". ").text(&group.advice.to_string());
    let id: String = blake3::hash(format!("{} {} {}", group.kind, group.class, group.shape).as_bytes())
        .to_hex()[..12]
        .to_owned();
    let mut found = row(format!("f-{id}"), Tone::Bad, Icon::Failed, title, href.clone(), detail);
    found.since = Some((frame.clock().ago(group.first_at), frame.clock().at(group.first_at)));
    if frame.may_act {
        found.actions.push(Action::link("Retry…", &format!("{href}&preview=retry")).small());
    }
    found.actions.push(Action::link("Show", &href).small().primary());
    found
}

/// Merges that wait for children that have failed.
fn blocked<'a>(branches: &'a OpenBranches, frame: &'a Frame) -> impl Iterator<Item = Attention> + 'a {
    branches.branches.iter().filter(|open| open.branch.blocked && !open.state.is_final()).take(ROWS).map(
        move |open| {
            let branch = &open.branch;
            let title = Html::words("The branch ").user(&branch.name).text(&format!(
                " waits for {}",
                counted(branch.unsuccessful(), "unsuccessful child", "unsuccessful children")
            ));
            let parent = open.key.clone().unwrap_or_else(|| open.job.to_string());
            let detail =
                Html::words("Its merge wants all of them. Retry them, or cancel ").user(&parent).text(".");
            let href = format!("/jobs/{}", open.job);
            let mut found = row(
                format!("b-{}-{}", &open.job.to_string()[24..], branch.number),
                Tone::Warn,
                Icon::Warn,
                title,
                href.clone(),
                detail,
            );
            found.since = Some((frame.clock().ago(branch.opened_at), frame.clock().at(branch.opened_at)));
            found.actions.push(Action::link("Show", &href).small());
            found
        },
    )
}

/// Queues that somebody paused, and those whose jobs wait long.
fn paused_and_late(queues: &Queues, situation: &Situation, frame: &Frame) -> Vec<Attention> {
    let mut found = Vec::new();
    for queue in &queues.queues {
        let href = url("/jobs", [("queue", Some(queue.name.as_str())), ("state", Some("ready"))]);
        let waiting = counted(queue.ready, "job waits", "jobs wait");
        if let Some(pause) = situation.paused_queues.get(&queue.name) {
            let title =
                Html::words("The queue ").user(&queue.name).text(" is paused by ").user(&pause.author);
            let note =
                pause.note.as_deref().map_or(Html::new(), |note| Html::words("“").user(note).text("” "));
            let mut row = row(
                format!("p-{}", short_hash(&queue.name)),
                Tone::Warn,
                Icon::Paused,
                title,
                href.clone(),
                note.text(&waiting).text("."),
            );
            row.since = Some((frame.clock().ago(pause.at), frame.clock().at(pause.at)));
            row.actions.push(Action::link("Queues", "/queues").small());
            found.push(row);
        } else if let Some(since) = queue.oldest_ready.filter(|since| frame.now - *since > LATE) {
            let title = Html::words("The queue ").user(&queue.name).text(" is behind");
            let mut row = row(
                format!("l-{}", short_hash(&queue.name)),
                Tone::Idle,
                Icon::Queues,
                title,
                href.clone(),
                Html::words(&waiting).text(" for a slot."),
            );
            row.since = Some((frame.clock().ago(since), frame.clock().at(since)));
            row.actions.push(Action::link("Show", &href).small());
            found.push(row);
        }
    }
    found.truncate(2 * ROWS);
    found
}

/// Workers that have not renewed their lease; none at all, while jobs are ready.
fn lost(situation: &Situation, frame: &Frame) -> Vec<Attention> {
    let alive =
        situation.workers.iter().filter(|worker| worker.alive && worker.lease_until > situation.now).count();
    if alive > 0 {
        return Vec::new();
    }
    let detail = Html::words("Nothing runs. Start ").code("windlass worker").text(", or your program.");
    let _ = frame;
    vec![row(
        "no-worker".into(),
        Tone::Bad,
        Icon::Lost,
        Html::words("No worker is alive"),
        "/jobs?state=ready".into(),
        detail,
    )]
}

fn short_hash(name: &str) -> String {
    blake3::hash(name.as_bytes()).to_hex()[..12].to_owned()
}

fn counters(
    numbers: &Numbers,
    queues: &Queues,
    situation: &Situation,
    hour: &ThroughputView,
    frame: &Frame,
) -> Counters {
    let counter = |id, name, state: State| {
        Counter::new(id, name, &thousands(numbers.of(state)))
            .href(&format!("/jobs?state={state}"))
            .icon(state.into(), super::parts::Pill::icon_of(state))
    };
    let alive = situation.workers.iter().filter(|worker| worker.alive).count() as u64;
    let oldest = queues.queues.iter().filter_map(|queue| Some((queue.oldest_ready?, &queue.name))).min();
    let below = oldest.map_or(Html::new(), |(at, name)| {
        Html::words("oldest ").add(frame.clock().lasts(at)).text(", in ").user(name)
    });
    Counters::new(
        "Jobs by state",
        vec![
            counter("n-running", "Running", State::Running).below(Html::words(&counted(
                alive,
                "live worker",
                "live workers",
            ))),
            counter("n-ready", "Ready", State::Ready).below(below),
            counter("n-scheduled", "Scheduled", State::Scheduled),
            counter("n-waiting", "Waiting", State::Waiting),
            counter("n-failed", "Failed", State::Failed)
                .below(Html::words(&format!("{} in the last hour", thousands(hour.total.failed)))),
            counter("n-done", "Done", State::Done)
                .below(Html::words(&format!("{} in the last hour", thousands(hour.total.done)))),
        ],
    )
}

/// Ended per second, by minute.
fn chart(hour: &ThroughputView, frame: &Frame) -> Chart {
    const MINUTE: Duration = Duration::from_secs(60);
    let steps = usize::try_from((hour.until - hour.from).as_secs().div_ceil(60)).unwrap_or(60).clamp(1, 61);
    let mut done = vec![Some(0.0); steps];
    let mut failed = vec![Some(0.0); steps];
    for row in &hour.rows {
        let Some(at) = row.starts_at else { continue };
        let step = usize::try_from((at - hour.from).as_secs() / 60).unwrap_or(usize::MAX);
        if step < steps {
            done[step] = Some(row.ended.done as f64 / 60.0);
            failed[step] = Some((row.ended.failed + row.ended.retried) as f64 / 60.0);
        }
    }
    let series = vec![
        Series { name: "done".into(), tone: Tone::Ok, shape: Shape::Bars, values: done },
        Series { name: "failed attempts".into(), tone: Tone::Bad, shape: Shape::Below, values: failed },
    ];
    let sentence = format!(
        "In the last hour {} jobs were done and {} attempts failed",
        thousands(hour.total.done),
        thousands(hour.total.failed + hour.total.retried)
    );
    Chart::new(&sentence, frame.clock(), hour.from, MINUTE, Unit::Rate, series)
}

#[cfg(test)]
mod tests {
    use windlass::{
        Time,
        store::{Alert, AlertMute, AlertState, AlertTarget},
    };

    use super::*;

    fn alert(subject: &str, state: AlertState) -> AlertRow {
        let alert = Alert {
            rule: "queue-behind".into(),
            subject: subject.into(),
            severity: Severity::Bad,
            state,
            value: "12m".into(),
            text: format!("The oldest ready job of {subject} waits for 12m"),
            target: AlertTarget::Queue { queue: subject.into() },
            since: Time(0),
            fired_at: Some(Time(0)),
            clear_since: None,
            resolved_at: None,
            updated_at: Time(0),
            posted: false,
            rev: 1,
        };
        AlertRow { alert, muted: None, is_stale: false }
    }

    #[test]
    fn alerts_that_fire_are_shown_unless_somebody_muted_them_or_nobody_evaluates_them() {
        let mute = AlertMute {
            rule: "queue-behind".into(),
            subject: None,
            until: None,
            at: Time(0),
            author: "ada".into(),
            note: None,
        };
        let alerts = vec![
            alert("mail<", AlertState::Firing),
            alert("bakery", AlertState::Resolving),
            alert("office", AlertState::Pending),
            AlertRow { muted: Some(mute), ..alert("shops", AlertState::Firing) },
            AlertRow { is_stale: true, ..alert("letters", AlertState::Firing) },
        ];
        let view = AlertsView { alerts, mutes: Vec::new(), now: Time(0) };
        let clock = Clock { now: Time(0), relative: true };
        let rows: Vec<Attention> = firing(&view, clock, true).collect();
        let html: Vec<String> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(rows.len(), 2, "{html:?}");
        assert!(html[0].contains("mail&lt;") && html[1].contains("bakery"), "{html:?}");
        assert!(html[0].contains("href=\"/access?mute=queue-behind&#38;subject=mail%3C\""), "{html:?}");
        assert!(firing(&view, clock, false).all(|row| !row.to_string().contains("Mute")));
    }

    #[test]
    fn the_verdict_counts() {
        assert_eq!(verdict(0, 0), "Nothing needs you.");
        assert_eq!(verdict(1, 0), "1 thing needs you.");
        assert_eq!(verdict(2, 5), "2 things need you, 5 to know.");
        assert_eq!(verdict(0, 1), "1 thing to know.");
    }
}
