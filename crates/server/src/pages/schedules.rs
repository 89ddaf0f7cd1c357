//! The schedules: what they fired, what they missed and why, when they fire next.

use std::{sync::Arc, time::Duration};

use askama::Template;
use windlass::{
    ControlOutcome, Time,
    model::Permission,
    operate::views::{ScheduleRow, Schedules},
    store::{AdminAction, Firing, Miss},
};

use super::{
    calendar::{Calendar, CalendarRow, TickState},
    form::url,
    format::{When, counted, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{Done, PageCall, Posted, form_route, html},
    parts::{Blank, Pill, Tone},
};
use crate::{
    error::{Error, accepted},
    routes::Route,
};

/// How many schedules are shown. A filter reaches the others.
const ROWS: usize = 20;
/// How many of its newest firings are read of each schedule, and how many groups of misses. What fires more often is drawn as a band.
pub(super) const TICKS: usize = 400;
/// How many ticks of one schedule are listed.
const LISTED: usize = 50;
/// How many coming ticks are counted one by one.
const COMING: usize = 200;
/// What the calendar shows.
const BACK: Duration = Duration::from_secs(6 * 3_600);
const AHEAD: Duration = Duration::from_secs(18 * 3_600);

/// What a schedule fired and missed, newest first.
pub(super) struct Ticks {
    pub(super) firings: Vec<Firing>,
    pub(super) misses: Vec<Miss>,
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    detail: String,
    calendar: Calendar,
    rows: Vec<ScheduleRow>,
    /// Why not all are shown, if that is so.
    left_out: Option<String>,
    filter: String,
    blank: Option<Blank>,
    /// The schedule whose ticks are listed.
    chosen: Option<Chosen>,
    /// The name that the address has and no schedule.
    unknown: Option<String>,
    /// The schedule that the drawer pauses.
    pausing: Option<String>,
}

/// A schedule with its ticks.
struct Chosen {
    row: ScheduleRow,
    lines: Vec<Line>,
    input: String,
}

/// A tick, or several that were missed for the same reason.
struct Line {
    at: Time,
    pill: Pill,
    text: Html,
}

impl SchedulesPage {
    fn at(&self, at: &Time) -> When {
        self.frame.clock().at(*at)
    }

    fn ago(&self, at: &Time) -> When {
        self.frame.clock().ago(*at)
    }

    fn id(&self, name: &str) -> String {
        blake3::hash(name.as_bytes()).to_hex()[..12].to_owned()
    }

    fn next(&self, row: &ScheduleRow) -> Html {
        next(row, &self.frame)
    }

    fn short(&self, job: &windlass::JobId) -> String {
        job.to_string()[24..].to_owned()
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let all = call.schedules().await?;
    let filter = call.query.text("q").unwrap_or_default().to_owned();
    let found = |row: &&ScheduleRow| {
        let schedule = &row.view.schedule;
        schedule.name.contains(&filter) || schedule.kind.kind.contains(&filter)
    };
    let found: Vec<&ScheduleRow> = all.schedules.iter().filter(found).collect();
    let left_out = (found.len() > ROWS).then(|| {
        format!(
            "{ROWS} of {} are shown. Filter by name or kind to see others.",
            counted(found.len() as u64, "schedule", "schedules")
        )
    });
    let rows: Vec<ScheduleRow> = found.into_iter().take(ROWS).cloned().collect();
    let frame = call.frame("Schedules", "schedules").await?;
    let named = |field: &str| {
        let name = call.query.text(field)?;
        all.schedules.iter().find(|row| row.view.schedule.name == name)
    };
    let mut missed = 0;
    let mut lanes = Vec::new();
    for row in &rows {
        let ticks = call.ticks(&row.view.schedule.name).await?;
        let (lane, count) = lane(row, &ticks, &frame);
        missed += count;
        lanes.push(lane);
    }
    let chosen = match named("name") {
        Some(row) => Some(chosen(row, &*call.ticks(&row.view.schedule.name).await?, &frame)),
        None => None,
    };
    let unknown = call.query.text("name").filter(|_| chosen.is_none()).map(str::to_owned);
    let pausing = named("pause").filter(|row| frame.may_act && row.view.paused.is_none());
    let blank = rows.is_empty().then(|| Blank {
        icon: Icon::Schedules,
        title: if filter.is_empty() {
            "There are no schedules".into()
        } else {
            "No schedule has this in its name or kind".into()
        },
        text: Html::words("A schedule submits a job at each tick of its calendar. Create one with ")
            .code("windlass schedules set")
            .text("."),
        actions: Vec::new(),
    });
    let page = SchedulesPage {
        detail: detail(&all, missed),
        calendar: Calendar { clock: frame.clock(), from: call.now - BACK, to: call.now + AHEAD, rows: lanes },
        left_out,
        filter,
        blank,
        chosen,
        unknown,
        pausing: pausing.map(|row| row.view.schedule.name.clone()),
        rows,
        frame,
    };
    html(&page)
}

fn detail(all: &Schedules, missed: u64) -> String {
    let paused = all.schedules.iter().filter(|row| row.view.paused.is_some()).count() as u64;
    let mut text = counted(all.schedules.len() as u64, "schedule", "schedules");
    if paused > 0 {
        text += &format!(", {} paused", thousands(paused));
    }
    if missed > 0 {
        text += &format!(". {} missed in the last 6 hours", counted(missed, "tick was", "ticks were"));
    }
    text + "."
}

fn next(row: &ScheduleRow, frame: &Frame) -> Html {
    match (&row.view.paused, row.view.next_at) {
        (Some(_), _) => Html::part(Pill::paused()),
        (None, Some(at)) if at < frame.now => Html::words("was due ").add(frame.clock().ago(at)),
        (None, Some(at)) => Html::words("next ").add(frame.clock().ago(at)),
        (None, None) => Html::words("never again"),
    }
}

/// The lane of a schedule in the calendar, and how many ticks it missed in the span that is shown.
fn lane(row: &ScheduleRow, read: &Ticks, frame: &Frame) -> (CalendarRow, u64) {
    let (from, to) = (frame.now - BACK, frame.now + AHEAD);
    let schedule = &row.view.schedule;
    let fired = read.firings.iter().map(|firing| (firing.tick, TickState::Fired));
    let mut ticks: Vec<(Time, TickState)> = fired.filter(|(at, _)| *at >= from).collect();
    let recent = || read.misses.iter().filter(|miss| miss.missed.to >= from);
    for miss in recent() {
        let first = miss.missed.from.max(from);
        let between =
            schedule.calendar.ticks_after(Time(first.micros() - 1)).take_while(|at| *at <= miss.missed.to);
        ticks.extend(between.take(TICKS).map(|at| (at, TickState::Missed)));
    }
    if let Some(next) = row.view.next_at.filter(|at| row.view.paused.is_none() && *at <= to) {
        let coming = || schedule.calendar.ticks_after(Time(next.micros() - 1)).take_while(|at| *at <= to);
        ticks.extend(coming().take(COMING).map(|at| (at, TickState::Coming)));
        // More are a band, which reaches to the last one.
        let last = schedule.calendar.last_at_or_before(to).filter(|_| coming().nth(COMING).is_some());
        ticks.extend(last.map(|at| (at, TickState::Coming)));
    }
    ticks.sort_by_key(|(at, _)| *at);
    let missed: u64 = recent().map(|miss| miss.missed.count).sum();
    let note = match (&row.view.paused, recent().next(), read.firings.first()) {
        (Some(pause), ..) => {
            (None, Html::words("since ").add(frame.clock().at(pause.at)).text(" by ").user(&pause.author))
        }
        (None, Some(miss), _) => (
            Some(Tone::Bad),
            Html::words(&format!("{} missed: ", thousands(missed))).add(Text::cut(&miss.why, 60)),
        ),
        (None, None, Some(last)) => (None, Html::words("last fired ").add(frame.clock().ago(last.tick))),
        (None, None, None) => (None, Html::words("has not fired yet")),
    };
    let lane = CalendarRow {
        name: schedule.name.clone(),
        href: url("/schedules", [("name", Some(schedule.name.as_str()))]),
        pill: row.view.paused.as_ref().map(|_| Pill::paused()),
        rule: row.calendar_text.clone(),
        ticks,
        next: next(row, frame),
        note,
    };
    (lane, missed)
}

fn chosen(row: &ScheduleRow, read: &Ticks, frame: &Frame) -> Chosen {
    let fired = read.firings.iter().map(|firing| Line {
        at: firing.tick,
        pill: Pill::new(Tone::Ok, Icon::Done, "fired"),
        text: Html::words("job ").link(&format!("/jobs/{}", firing.job), &firing.job.to_string()[24..]),
    });
    let missed = read.misses.iter().map(|miss| {
        let count = thousands(miss.missed.count);
        let word =
            if miss.missed.at_least { format!("at least {count} missed") } else { format!("{count} missed") };
        let text = Html::new().user(&miss.why);
        let since = miss.missed.from < miss.missed.to;
        let text = if since { text.text(", since ").add(frame.clock().at(miss.missed.from)) } else { text };
        Line { at: miss.missed.to, pill: Pill::new(Tone::Bad, Icon::Failed, &word), text }
    });
    let mut lines: Vec<Line> = fired.chain(missed).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.at));
    lines.truncate(LISTED);
    let coming = row.view.next_at.filter(|_| row.view.paused.is_none()).map(|at| Line {
        at,
        pill: Pill::new(Tone::Idle, Icon::Scheduled, "to come"),
        text: Html::words("–"),
    });
    lines.splice(0..0, coming);
    Chosen { input: row.input.to_string(), row: row.clone(), lines }
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        form_route("/schedules/pause", Permission::Act, pause),
        form_route("/schedules/resume", Permission::Act, resume),
        form_route("/schedules/trigger", Permission::Act, trigger),
    ]
}

async fn administer(
    posted: &Posted,
    action: fn(String) -> AdminAction,
) -> Result<(String, ControlOutcome), Error> {
    let name = posted.form.required("schedule")?.to_owned();
    let control = posted.call.control(posted.form.text("note").map(str::to_owned));
    let outcome = control.administer(&action(name.clone())).await?;
    Ok((name.clone(), accepted(outcome, &format!("schedule {name:?}"))?))
}

async fn pause(posted: Posted) -> Result<Done, Error> {
    let (name, outcome) = administer(&posted, AdminAction::PauseSchedule).await?;
    let text = match outcome {
        ControlOutcome::Already(_) => format!("The schedule {name} was paused before."),
        _ => format!("The schedule {name} is paused: its ticks do not fire."),
    };
    Ok(Done { text, next: None })
}

async fn resume(posted: Posted) -> Result<Done, Error> {
    let (name, outcome) = administer(&posted, AdminAction::ResumeSchedule).await?;
    let text = match outcome {
        ControlOutcome::Already(_) => format!("The schedule {name} was not paused."),
        _ => format!("The schedule {name} is resumed. Ticks during the pause do not fire."),
    };
    Ok(Done { text, next: None })
}

async fn trigger(posted: Posted) -> Result<Done, Error> {
    let (name, outcome) = administer(&posted, |name| AdminAction::Trigger { name, id: None }).await?;
    let next = match &outcome {
        ControlOutcome::Created(job) => Some(format!("/jobs/{job}")),
        _ => None,
    };
    Ok(Done { text: format!("The schedule {name} was triggered: this is its job."), next })
}

impl PageCall {
    /// All schedules.
    async fn schedules(&self) -> Result<Arc<Schedules>, Error> {
        self.views().schedules.get(&(), async || Ok(Schedules::read(self.operator()).await?)).await
    }

    /// The newest ticks of a schedule.
    async fn ticks(&self, name: &str) -> Result<Arc<Ticks>, Error> {
        let read = async || {
            let inspect = self.operator().inspect();
            let (firings, misses) =
                (inspect.firings(name, TICKS).await?, inspect.misses(name, LISTED).await?);
            Ok(Ticks { firings, misses })
        };
        self.views().ticks.get(&name.to_owned(), read).await
    }
}
