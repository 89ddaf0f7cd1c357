//! One job: why it is where it is, what it did, what it has, and what can be done with it.

pub(super) mod act;
mod drawn;
mod history;
mod repeats;
mod tree;

use askama::Template;
use serde_json::Value;
use windlass::{
    JobId, State,
    model::Payload as Stored,
    operate::{
        Found, Why as Explained,
        diagram::JobDiagram,
        views::{Ancestors, BranchView, EntryView, JobView},
    },
    store::{Attempt, AuditEntry, AuditFilter, Summary, Transition},
};

use self::{repeats::Repeat, tree::Tree};

use super::{
    bars::{Band, Slice},
    diagram::Diagram,
    form,
    format::{Clock, When, percent, rate, span, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::{Action, Pill, Tone, Why},
    payload::Payload,
    timeline::Timeline,
};
use crate::error::{Error, ErrorKind, JOB};

/// How many entries of a journal and transitions are shown.
const SHOWN: usize = 50;

/// The page.
#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    view: JobView,
    name: String,
    pill: Pill,
    why: Option<Why>,
    actions: Vec<Action>,
    timeline: Option<Timeline>,
    diagram: Option<Diagram>,
    payloads: Vec<Payload>,
    tree: Tree,
    repeats: Vec<Repeat>,
    audit: Vec<AuditEntry>,
    /// The way up: addresses and names, the topmost job first.
    crumbs: Vec<(String, String)>,
    /// The preview of an action, as its name.
    drawer: Option<&'static str>,
    /// The signals that it waits for.
    awaited: Vec<String>,
}

impl JobPage {
    fn clock(&self) -> Clock {
        self.frame.clock()
    }

    fn id(&self) -> JobId {
        self.view.job.summary.id
    }

    fn at(&self, at: &windlass::Time) -> When {
        self.clock().at(*at)
    }

    fn ago(&self, at: &windlass::Time) -> When {
        self.clock().ago(*at)
    }

    fn took(&self, attempt: &Attempt) -> String {
        span(attempt.ended_at - attempt.started_at)
    }

    fn transition(&self, transition: &Transition) -> Html {
        let to = transition.next.as_deref().unwrap_or("the end");
        Html::words("").bold(&transition.stage).text(" → ").bold(to)
    }

    fn entry(&self, entry: &EntryView) -> Html {
        history::result(entry)
    }

    /// How far a branch is, in a band and in words.
    fn band(&self, branch: &BranchView) -> Band {
        band(branch).small()
    }

    fn pace(&self, branch: &BranchView) -> String {
        pace(branch)
    }
}

/// The progress of a branch.
pub(super) fn band(branch: &BranchView) -> Band {
    let sentence =
        format!("{} of {} children have ended", thousands(branch.ended()), thousands(branch.spawned));
    Band::new(
        &sentence,
        vec![
            Slice::new(Tone::Ok, branch.done, "done"),
            Slice::new(Tone::Bad, branch.failed, "failed").hatched(),
            Slice::new(Tone::Warn, branch.cancelled, "cancelled").hatched(),
            Slice::rest(branch.pending, "not ended"),
        ],
    )
}

/// How far a branch is, how fast, and how long it still takes.
pub(super) fn pace(branch: &BranchView) -> String {
    let mut text = format!("{} of {}", percent(branch.ended(), branch.spawned), thousands(branch.spawned));
    if let Some(per_second) = branch.rate.filter(|rate| *rate > 0.0 && branch.pending > 0) {
        text += &format!(" · {}", rate(per_second));
    }
    if let Some(left) = branch.time_left().filter(|_| branch.pending > 0) {
        text += &format!(" · about {} left", span(left));
    }
    text
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let id = find(&call, call.call.path("job")).await?;
    let operator = call.operator();
    let view = JobView::read(operator, id, Some(SHOWN)).await?.ok_or_else(|| unknown(&id.to_string()))?;
    let why = operator.why(id).await?;
    let diagram = JobDiagram::read(operator, id).await?;
    let tree = Tree::read(&call, id).await?;
    let audit = AuditFilter { subject: Some(id.to_string()), limit: 20, ..AuditFilter::default() };
    let audit = operator.inspect().audit(&audit).await?;
    let place = view.job.position.as_ref();
    let ancestors = Ancestors::read(operator, view.job.parent, place.map(|place| place.branch)).await?;
    let crumbs = crumbs(&ancestors, place.map(|place| place.name.as_str()), &view.job.summary);
    let name = name_of(&view.job.summary, view.child_name.as_deref());
    let frame = call.frame(name.clone(), "jobs").await?;
    let clock = frame.clock();
    let awaited =
        view.holds.waiting.as_ref().map(|waiting| waiting.condition.names().map(str::to_owned).collect());
    let awaited: Vec<String> = awaited.unwrap_or_default();
    let awaited: Vec<String> =
        awaited.into_iter().filter(|name| !name.starts_with('$') && !name.starts_with("windlass")).collect();
    let drawer = drawer(&call, &view, frame.may_act)?;
    let page = JobPage {
        pill: pill(&view),
        why: why.map(|why| banner(&why, &view, &awaited, &frame)),
        actions: if frame.may_act { actions(&view, &frame) } else { Vec::new() },
        timeline: history::timeline(&view, clock, !call.query.has("scale")),
        diagram: diagram.and_then(|diagram| drawn::diagram(&diagram, view.job.summary.state, clock)),
        payloads: payloads(&call, &view),
        repeats: repeats::repeats(&view.workflow.journal, clock),
        tree,
        audit,
        crumbs,
        drawer,
        awaited,
        name,
        view,
        frame,
    };
    html(&page)
}

/// The job with this id, key or name.
pub(super) async fn find(call: &PageCall, name: &str) -> Result<JobId, Error> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    match call.operator().find(name).await {
        Ok(Found::Job(id)) => Ok(id),
        Ok(Found::Packed(item)) => Ok(item.id),
        Err(windlass::Error::Store(error)) => Err(error.into()),
        Err(error) => Err(Error::of_text(ErrorKind::NotFound, &error.to_string()).about(JOB)),
    }
}

/// The way up from a job: the jobs that it descends from, with the branches between them; of a job without a parent its kind.
fn crumbs(ancestors: &Ancestors, branch: Option<&str>, job: &Summary) -> Vec<(String, String)> {
    let mut crumbs = Vec::new();
    if ancestors.jobs.is_empty() {
        crumbs.push((form::url("/jobs", [("kind", Some(job.kind.as_str()))]), job.kind.clone()));
    }
    if ancestors.has_more {
        crumbs.push((format!("/jobs/{}", ancestors.jobs[0].job.id), "…".to_owned()));
    }
    for (number, ancestor) in ancestors.jobs.iter().enumerate() {
        let href = format!("/jobs/{}", ancestor.job.id);
        crumbs.push((href.clone(), name_of(&ancestor.job, None)));
        if let Some(opened) = ancestor.branch {
            // Of the nearest branch the name is known.
            let name = branch.filter(|_| number + 1 == ancestors.jobs.len());
            let name = name.map_or_else(|| format!("branch {opened}"), str::to_owned);
            crumbs.push((format!("{href}/branches/{opened}"), name));
        }
    }
    crumbs
}

fn unknown(name: &str) -> Error {
    let hint = "it was pruned after its retention, or it is in another store";
    Error::new(ErrorKind::NotFound, format!("there is no job {name}"), hint).about(JOB)
}

fn name_of(job: &Summary, child: Option<&str>) -> String {
    let id = || format!("{} {}", job.kind, &job.id.to_string()[24..]);
    job.key.clone().or_else(|| child.map(str::to_owned)).unwrap_or_else(id)
}

fn pill(view: &JobView) -> Pill {
    let state = view.job.summary.state;
    let held = view.holds.paused.is_some() || (state == State::Ready && view.holds.queue_paused.is_some());
    if held && !state.is_final() { Pill::paused().boxed() } else { Pill::state(state).boxed() }
}

/// Why it is in its state, and what fits best.
fn banner(why: &Explained, view: &JobView, awaited: &[String], frame: &Frame) -> Why {
    let state = view.job.summary.state;
    let question = match state {
        State::Done => "How did it end?",
        State::Failed => "Why did it fail?",
        State::Cancelled => "Why was it cancelled?",
        State::Running => "What is it doing?",
        _ => "Why is it not running?",
    };
    let mut more = Html::new();
    if let Some(child) = &why.child {
        let text = format!("job {}", &child.job.to_string()[24..]);
        more = more
            .text("It waits for ")
            .link(&format!("/jobs/{}", child.job), &text)
            .text(": ")
            .user(&child.because)
            .text(" ");
    }
    more = code_in(more, &why.hint);
    for also in &why.also {
        more = code_in(more.text(" "), also);
    }
    let here = format!("/jobs/{}", view.job.summary.id);
    let mut actions = Vec::new();
    if frame.may_act {
        if let Some(signal) = awaited.first() {
            actions.push(
                Action::link(&format!("Send “{signal}”…"), &format!("{here}?preview=signal"))
                    .primary()
                    .icon(Icon::Send),
            );
        } else if matches!(state, State::Failed | State::Cancelled) {
            actions.push(
                Action::post("Retry", &format!("{here}/retry"), &frame.csrf)
                    .field("back", &here)
                    .primary()
                    .icon(Icon::Retry),
            );
        } else if view.holds.paused.is_some() && !state.is_final() {
            actions.push(
                Action::post("Resume", &format!("{here}/resume"), &frame.csrf).field("back", &here).primary(),
            );
        }
    }
    Why {
        tone: state.into(),
        icon: Pill::icon_of(state),
        question,
        sentence: code_in(Html::new(), &why.because),
        more,
        actions,
    }
}

/// A text of the engine, in which commands stand between backticks.
pub(super) fn code_in(html: Html, text: &str) -> Html {
    text.split('`').enumerate().fold(html, |html, (number, part)| match number % 2 {
        0 => html.add(Text::long(part)),
        _ => html.code(part),
    })
}

fn actions(view: &JobView, frame: &Frame) -> Vec<Action> {
    let id = view.job.summary.id;
    let here = format!("/jobs/{id}");
    let state = view.job.summary.state;
    let post = |text: &str, action: &str| {
        Action::post(text, &format!("{here}/{action}"), &frame.csrf).field("back", &here)
    };
    let mut actions = Vec::new();
    if !view.workflow.journal.is_empty() {
        actions.push(
            Action::link("Fork…", &format!("{here}?preview=fork")).icon(Icon::Fork).command("Fork this job"),
        );
    }
    match state {
        State::Failed | State::Cancelled => {
            actions.push(post("Retry", "retry").icon(Icon::Retry).command("Retry this job").key('r'))
        }
        State::Done => {}
        _ => {
            match &view.holds.paused {
                Some(_) => actions.push(post("Resume", "resume").icon(Icon::Play).command("Resume this job")),
                None => actions.push(
                    Action::link("Pause…", &format!("{here}?preview=pause"))
                        .icon(Icon::Paused)
                        .command("Pause this job"),
                ),
            }
            actions.push(
                Action::link("Signal…", &format!("{here}?preview=signal"))
                    .icon(Icon::Send)
                    .command("Send a signal to this job"),
            );
            actions.push(
                Action::link("Cancel…", &format!("{here}?preview=cancel"))
                    .danger()
                    .command("Cancel this job"),
            );
        }
    }
    actions
}

/// The name of the preview that the query asks for, if it is one.
fn drawer(call: &PageCall, view: &JobView, may_act: bool) -> Result<Option<&'static str>, Error> {
    let Some(name) = call.query.text("preview") else { return Ok(None) };
    if !may_act {
        return Err(crate::access::forbidden(
            "the role viewer may not change jobs",
            "ask for the role operator",
        ));
    }
    let is_over = view.job.summary.state.is_final();
    let known = ["signal", "pause", "cancel", "fork"].into_iter().find(|known| *known == name);
    Ok(known.filter(|name| *name == "fork" || !is_over))
}

/// Input, data, context and output, decoded.
fn payloads(call: &PageCall, view: &JobView) -> Vec<Payload> {
    let id = view.job.summary.id;
    let whole = format!("/v1/jobs/{id}");
    let tree = |name: &str, stored: &Stored| {
        let size = stored.bytes.len() as u64;
        let decoded = call.operator().decode(stored).map_err(|error| error.to_string());
        let value = decoded
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).map_err(|error| error.to_string()));
        match value {
            Ok(value) => Payload::tree(&name.to_lowercase(), name, size, &value, &whole),
            Err(why) => Payload::absent(name, Html::words("It cannot be shown: ").user(&why)),
        }
    };
    let mut payloads = vec![tree("Input", &view.job.input)];
    if let Some(data) = &view.job.data {
        payloads.push(tree("Data of its stage", data));
    }
    if !view.workflow.context.is_empty() {
        let context = Value::Object(view.workflow.context.clone());
        payloads.push(Payload::tree(
            "context",
            "Context",
            context.to_string().len() as u64,
            &context,
            &whole,
        ));
    }
    payloads.push(match &view.job.output {
        Some(output) => tree("Output", output),
        None if view.job.summary.state.is_final() => Payload::absent("Output", Html::words("It has none.")),
        None => Payload::absent("Output", Html::words("None yet: it has not ended.")),
    });
    payloads
}
