//! The list of jobs: which there are, why each is where it is, and actions on many of them after a preview.

pub(super) mod act;
pub(crate) mod filter;
mod preview;

use std::collections::BTreeSet;

use askama::Template;
use windlass::{
    Filter, JobId, State,
    operate::views::{JobRow, JobRows, RowReason},
    store::{MatchCount, StateCount},
};

use self::{
    filter::{ListFilter, ROWS},
    preview::Drawer,
};
use super::{
    format::{Clock, When, span, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::{Blank, Filters, Newer, Pages, Pill, Tab, Tabs},
};
use crate::error::Error;

/// Up to how many jobs are counted where no number is maintained.
const COUNTED: usize = 5_000;
/// How many of the newest jobs are looked at for newer ones.
const NEWEST: usize = 200;

/// The page.
#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    tabs: Tabs,
    filters: Filters,
    newer: Newer,
    rows: Vec<JobRow>,
    pages: Pages,
    blank: Option<Blank>,
    /// How many jobs match in the state that is shown, and the preview of an action on all of them.
    all: String,
    fields: Vec<(&'static str, String)>,
    drawer: Option<Drawer>,
}

impl JobsPage {
    fn clock(&self) -> Clock {
        self.frame.clock()
    }

    fn pill(&self, row: &JobRow) -> Pill {
        pill(row.job.state, &row.because)
    }

    fn why(&self, row: &JobRow) -> Html {
        why(&row.because, self.clock())
    }

    /// The last digits of an id, which are random: one of them for each row of a page.
    fn short(&self, row: &JobRow) -> String {
        row.job.id.to_string()[24..].to_owned()
    }

    fn submitted(&self, row: &JobRow) -> When {
        self.clock().ago(row.job.submitted_at)
    }

    fn attempt(&self, row: &JobRow) -> String {
        attempt(row)
    }

    /// What retries, cancels or pauses all jobs that match.
    fn preview(&self, action: &str) -> String {
        let fields = self.fields.iter().map(|(name, value)| (*name, Some(value.as_str())));
        super::form::url("/jobs", fields.chain([("preview", Some(action))]))
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let list = ListFilter::of(&call.query);
    let before: Option<JobId> = call.query.parsed("before")?;
    // Live updates are rendered from the row that the browser shows first.
    let at: Option<JobId> = call.query.parsed("at")?;
    let upper = at.map(after).or(before);
    let filter = list.filter(upper, call.now)?;
    let shared = call.shared();
    let situation = shared.pages.situation(shared).await?;
    let JobRows { rows, next_before, .. } = JobRows::read(call.operator(), &filter, &situation).await?;
    let counts = shared.pages.counts(shared).await?;
    let (by_state, is_capped) = count(&call, &filter, &counts).await?;
    let first = rows.first().map(|row| row.job.id);
    let newer = newer(&call, &list, &filter, at.or(first).filter(|_| before.is_none())).await?;

    let state = list.state()?;
    let total: u64 = match state {
        Some(state) => by_state.get(&state).copied().unwrap_or(0),
        None => by_state.values().sum(),
    };
    let drawer = match call.query.text("preview") {
        Some(action) => Some(Drawer::read(&call, &list, action).await?),
        None => None,
    };
    let live = {
        let anchor = at.or(first.filter(|_| before.is_none())).map(|id| id.to_string());
        let before = before.map(|id| id.to_string());
        let fields = list.fields();
        let fields = fields.iter().map(|(name, value)| (*name, Some(value.as_str())));
        super::form::url("/jobs", fields.chain([("before", before.as_deref()), ("at", anchor.as_deref())]))
    };
    let frame = call.frame_at("Jobs", "jobs", &live).await?;
    let names = |of: fn(&StateCount) -> &String| counts.iter().map(of).cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let filters = Filters {
        action: list.state()?.map_or("/jobs".to_owned(), |state| format!("/jobs?state={state}")),
        chips: list.chips(),
        hidden: list.fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        fields: list.addable(names(|count| &count.kind), names(|count| &count.queue)),
    };
    let plus = if is_capped { "+" } else { "" };
    let shown = format!("{} of {}{plus} jobs", thousands(rows.len() as u64), thousands(total.max(rows.len() as u64)));
    let pages = Pages {
        text: if rows.is_empty() && next_before.is_some() { "None among the 10,000 jobs that were examined".into() } else { shown },
        first: before.is_some().then(|| list.href()),
        next: next_before.map(|id| list.with("before", Some(&id.to_string()))),
    };
    let blank = (rows.is_empty() && next_before.is_none()).then(|| blank(&list, before));
    let page = JobsPage {
        tabs: tabs(&list, state, &by_state, is_capped),
        filters,
        newer,
        pages,
        blank,
        all: format!("{}{plus}", thousands(total)),
        fields: list.fields(),
        rows,
        drawer,
        frame,
    };
    html(&page)
}

/// The id right after a job: a page before it begins with the job.
pub(crate) fn after(id: JobId) -> JobId {
    JobId::from_bytes(u128::from_be_bytes(*id.as_bytes()).saturating_add(1).to_be_bytes())
}

type ByState = std::collections::BTreeMap<State, u64>;

/// How many jobs match in each state, whichever state is shown; and whether there may be more.
async fn count(call: &PageCall, filter: &Filter, counts: &[StateCount]) -> Result<(ByState, bool), Error> {
    let any = Filter { state: None, before: None, ..filter.clone() };
    if any.has_maintained_counts() && any.version.is_none() {
        let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        let mut by_state = ByState::new();
        for count in counts.iter().filter(|count| is(&any.kind, &count.kind) && is(&any.queue, &count.queue)) {
            *by_state.entry(count.state).or_default() += count.jobs;
        }
        return Ok((by_state, false));
    }
    // Of one state alone, an index may lead that counts few jobs.
    let counted = Filter { before: None, ..filter.clone() };
    let MatchCount { jobs, at_least } = call.operator().inspect().count_jobs(&counted, COUNTED).await?;
    Ok((jobs, at_least))
}

/// How many jobs that match are newer than the first row. Of a store in which more were submitted than are looked at, it is the least.
async fn newer(call: &PageCall, list: &ListFilter, filter: &Filter, first: Option<JobId>) -> Result<Newer, Error> {
    let href = list.href();
    let empty = Newer { count: 0, noun: ("job", "jobs"), href: href.clone() };
    let Some(first) = first.filter(|_| call.query.has("at")) else { return Ok(empty) };
    let newest = Filter { before: None, limit: NEWEST, ..filter.clone() };
    let page = call.operator().inspect().jobs(&newest).await?;
    let count = page.jobs.iter().filter(|job| job.id > first).count() as u64;
    Ok(Newer { count, ..empty })
}

fn tabs(list: &ListFilter, current: Option<State>, by_state: &ByState, is_capped: bool) -> Tabs {
    let order =
        [State::Running, State::Ready, State::Scheduled, State::Waiting, State::Failed, State::Cancelled, State::Done];
    let plus = if is_capped { "+" } else { "" };
    let number = |count: u64| format!("{}{plus}", thousands(count));
    // What is counted of one state says nothing about the others.
    let is_known = |state: Option<State>| list.is_state_alone() || !is_capped || state == current || current.is_none();
    let tab = |state: Option<State>| {
        let name = state.map_or("All".to_owned(), |state| super::trouble::sentence(&state.to_string()).trim_end_matches('.').to_owned());
        let count = match state {
            Some(state) => by_state.get(&state).copied().unwrap_or(0),
            None => by_state.values().sum(),
        };
        Tab {
            id: format!("tab-{}", state.map_or("all".to_owned(), |state| state.to_string())),
            href: list.with("state", state.map(|state| state.to_string()).as_deref()),
            icon: state.map(Pill::icon_of),
            count: if is_known(state) { number(count) } else { String::new() },
            is_current: state == current,
            name,
        }
    };
    Tabs { label: "State", tabs: std::iter::once(None).chain(order.map(Some)).map(tab).collect() }
}

fn blank(list: &ListFilter, before: Option<JobId>) -> Blank {
    let chips = list.chips();
    if before.is_some() {
        return blank_of("There are no older jobs", Html::words("This was the last page."));
    }
    if chips.is_empty() && list.is_state_alone() && list.href() == "/jobs" {
        let text = Html::words("Submit one here, with ").code("windlass submit").text(", or from a program.");
        return blank_of("There are no jobs yet", text);
    }
    let mut text = Html::words("Leave out a condition: ");
    for (number, chip) in chips.iter().enumerate() {
        let separator = if number == 0 { "" } else { ", " };
        text = text.text(separator).link(&chip.without, &format!("{} {}", chip.name, chip.value));
    }
    if chips.is_empty() {
        text = Html::words("All jobs are in other states. ").link("/jobs", "Show all");
    }
    blank_of("No job matches", text)
}

fn blank_of(title: &str, text: Html) -> Blank {
    Blank { icon: Icon::Jobs, title: title.to_owned(), text, actions: Vec::new() }
}

/// The state of a row. What holds a job is said in its place.
pub(crate) fn pill(state: State, because: &RowReason) -> Pill {
    match because {
        RowReason::Paused { .. } | RowReason::QueuePaused { .. } => Pill::paused(),
        RowReason::BackingOff { .. } => Pill::backing_off(),
        RowReason::Serial { .. } | RowReason::Rate { .. } | RowReason::CancelRequested { .. } => Pill::held(),
        RowReason::NoWorker
        | RowReason::QueueUnserved { .. }
        | RowReason::KindUnserved { .. }
        | RowReason::VersionUnserved { .. } => Pill::blocked(),
        RowReason::WorkerLost { .. } => Pill::lost(),
        _ => Pill::state(state),
    }
}

/// Why a job is in its state, in a few words with times that go on.
pub(crate) fn why(because: &RowReason, clock: Clock) -> Html {
    let until = |html: Html, until: Option<windlass::Time>| match until {
        Some(until) => html.text(", times out ").add(clock.ago(until)),
        None => html,
    };
    match because {
        RowReason::Running { worker, since } => Html::words("on ").bold(worker).text(" for ").add(clock.lasts(*since)),
        RowReason::Scheduled { due_at } => Html::words("due ").add(clock.ago(*due_at)),
        RowReason::BackingOff { failure, due_at, .. } => {
            Html::words("next attempt ").add(clock.ago(*due_at)).text(", after ").bold(&failure.class).text(": ").user(&failure.message)
        }
        RowReason::Signals { names, until: end, .. } => until(Html::words("waits for ").bold(&names.join(", ")), *end),
        RowReason::Asleep { until: Some(end), .. } => Html::words("sleeps, wakes ").add(clock.ago(*end)),
        RowReason::Ready { since } => Html::words("waits for a slot since ").add(clock.at(*since)),
        RowReason::Rate { limit, until } => Html::words("the limit ").bold(limit).text(" has too few tokens before ").add(clock.at(*until)),
        RowReason::Serial { key } => Html::words("waits for the serial key ").bold(key),
        RowReason::Failed { why, failure } => {
            Html::words(&format!("{why}: ")).bold(&failure.class).text(" ").user(&failure.message)
        }
        RowReason::Done { took_seconds: Some(seconds) } => {
            let took = std::time::Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
            Html::words(&format!("in {}", span(took)))
        }
        other => Html::words("").user(&other.words(clock.now)),
    }
}

/// Which attempt it is.
pub(crate) fn attempt(row: &JobRow) -> String {
    let failed = u64::from(row.job.attempts);
    let current = if row.job.state.is_final() && row.job.state != State::Done { failed } else { failed + 1 };
    match row.max_attempts {
        Some(most) => format!("{current} of {most}"),
        None => current.to_string(),
    }
}

const _: () = assert!(ROWS <= NEWEST);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_after_a_row_begins_with_it() {
        let id: JobId = "0199f0c2-6f7a-7000-8000-3d2a2d6b8c91".parse().expect("an id");
        assert!(after(id) > id);
        assert_eq!(after(id).to_string(), "0199f0c2-6f7a-7000-8000-3d2a2d6b8c92");
    }

    #[test]
    fn tabs_have_numbers_that_are_known() {
        let list = ListFilter::of(&super::super::form::Form::parse(b"state=failed&tag=a"));
        let by_state = ByState::from([(State::Failed, 5_000)]);
        let tabs = tabs(&list, Some(State::Failed), &by_state, true);
        let count = |name: &str| tabs.tabs.iter().find(|tab| tab.name == name).map(|tab| tab.count.as_str());
        assert_eq!((count("Failed"), count("Done")), (Some("5,000+"), Some("")));
    }
}
