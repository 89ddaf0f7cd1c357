//! A branch as people see it: how far it is, how fast, and what keeps it. Nothing here reads or waits.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use windlass::{
    JobId, Merge, State, Time,
    store::{Branch, Summary},
};

use crate::out;

/// How long after its time a look may come before it is worth a word: workers look within seconds.
const LATE: Duration = Duration::from_secs(30);

/// The job whose branches they are.
pub(crate) struct Parent {
    pub(crate) id: JobId,
    pub(crate) kind: String,
    pub(crate) key: Option<String>,
    pub(crate) state: State,
}

impl Parent {
    pub(crate) fn of(job: &Summary) -> Parent {
        Parent { id: job.id, kind: job.kind.clone(), key: job.key.clone(), state: job.state }
    }
}

/// How a branch stands with its merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// It is merged.
    Merged,
    /// Its job waits for it.
    Merging,
    /// Its job has not asked for it yet.
    Unmerged,
    /// It was not merged, and its children are being cancelled.
    Cut,
}

impl Standing {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Standing::Merged => "merged",
            Standing::Merging => "merging",
            Standing::Unmerged => "unmerged",
            Standing::Cut => "cut",
        }
    }
}

/// What there is to see of one branch.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) branch: Branch,
    pub(crate) standing: Standing,
    pub(crate) merge: Option<Merge>,
    pub(crate) pending: u64,
    /// How many of those that are pending nobody has begun with, as far as a look has told.
    pub(crate) never_started: Option<u64>,
    /// How many end per second, if that is known.
    pub(crate) rate: Option<f64>,
    /// What keeps it, and what to do about it.
    pub(crate) notes: Vec<String>,
}

impl View {
    /// `rate` is what was measured just now; what was seen at the last look is taken otherwise.
    pub(crate) fn of(branch: Branch, parent: &Parent, rate: Option<f64>, now: Time, program: &str) -> View {
        let merge = branch.goal.as_deref().and_then(|goal| serde_json::from_str(goal).ok());
        // After a merge that failed, its job may be retried and merge it anew.
        let merged = branch.merged && branch.watch.is_none();
        let standing = match (merged, branch.cancels_children, &merge) {
            (true, ..) => Standing::Merged,
            (false, true, _) => Standing::Cut,
            (false, false, Some(_)) if !parent.state.is_final() => Standing::Merging,
            (false, false, _) => Standing::Unmerged,
        };
        let pending = count(branch.spawned - branch.tally.ended());
        // Those that run for the first time are known to the last look only.
        let never = count(branch.spawned - branch.tally.started).min(count(branch.poll.never_started));
        let never_started = branch.poll.at.map(|_| never.min(pending));
        let rate = rate.or((branch.poll.polls > 1).then_some(branch.poll.rate));
        let mut view = View { branch, standing, merge, pending, never_started, rate, notes: Vec::new() };
        view.notes = view.noted(parent, now, program);
        view
    }

    pub(crate) fn bad(&self) -> u64 {
        count(self.branch.tally.unsuccessful())
    }

    pub(crate) fn ended(&self) -> u64 {
        count(self.branch.tally.ended())
    }

    pub(crate) fn spawned(&self) -> u64 {
        count(self.branch.spawned)
    }

    /// Whether only somebody who retries children can help it.
    pub(crate) fn is_blocked(&self) -> bool {
        let waits = self.merge.as_ref().is_some_and(Merge::waits_for_unsuccessful);
        self.standing == Standing::Merging && waits && self.bad() > 0
    }

    /// Whether nothing more comes of it that anybody waits for.
    pub(crate) fn is_over(&self, parent: &Parent) -> bool {
        self.standing == Standing::Merged || (parent.state.is_final() && self.pending == 0)
    }

    /// How long the rest takes at this rate.
    pub(crate) fn left(&self) -> Option<Duration> {
        left(self.pending, self.rate)
    }

    /// How its children stand, in a word or two.
    pub(crate) fn state(&self) -> String {
        let filled = if self.branch.sealed { "sealed" } else { "filling" };
        match self.standing {
            Standing::Merged if self.branch.cancels_children => "merged, the rest is cut".to_owned(),
            Standing::Merged => "merged".to_owned(),
            other => format!("{filled}, {}", other.word()),
        }
    }

    fn noted(&self, parent: &Parent, now: Time, program: &str) -> Vec<String> {
        let id = parent.id;
        let mut notes = Vec::new();
        if self.is_blocked() {
            notes.push(blocked(self.bad(), id, Some(&self.branch.name), program));
        }
        let full = self.branch.watch.as_ref().filter(|_| !self.branch.sealed).and_then(|watch| watch.ended);
        if let Some(ended) = full.filter(|ended| *ended > self.ended()) {
            let ended = out::thousands(ended);
            notes.push(format!(
                "full: as many are in flight as may be; more are spawned when {ended} have ended"
            ));
        }
        if self.branch.cancels_children && self.pending > 0 {
            notes.push(format!("cut: {} being cancelled", children(self.pending, "is", "are")));
        } else if parent.state.is_final() && self.pending > 0 {
            let (children, state) = (children(self.pending, "goes on", "go on"), parent.state);
            let unwanted = format!("`{program} cancel {id} --children` ends what is not wanted");
            notes.push(match self.standing {
                Standing::Merged => format!("left: the job is {state}, and {children}; {unwanted}"),
                _ => format!(
                    "left: the job is {state}, and {children} that nobody waits for; {unwanted}, `{program} retry {id}` takes \
                     the job up again where it was"
                ),
            });
        }
        let late = self.branch.poll.next_at.map(|at| now.since(at)).filter(|late| *late > LATE);
        if let Some(late) = late {
            let late = crate::span::show(late);
            notes.push(format!(
                "overdue: it should have been looked at {late} ago, which workers do; start one: `{program} worker`, or your \
                 program"
            ));
        }
        notes
    }

    pub(crate) fn told(&self) -> Value {
        let Branch {
            number,
            name,
            spawns,
            sealed,
            cancels_children: cut,
            tally,
            opened_at,
            merged_at,
            poll,
            ..
        } = &self.branch;
        json!({
            "name": name, "number": number, "spawns": spawns, "standing": self.standing, "sealed": sealed, "cut": cut,
            "spawned": self.spawned(), "done": tally.done, "failed": tally.failed, "cancelled": tally.cancelled,
            "pending": self.pending, "never_started": self.never_started, "rate": self.rate,
            "eta_seconds": self.left().map(|left| left.as_secs_f64()),
            "merge": self.merge.as_ref().map(Merge::to_string), "blocked": self.is_blocked(), "notes": self.notes,
            "opened_at": opened_at, "merged_at": merged_at,
            "last_poll_at": poll.at, "next_poll_at": poll.next_at, "poll_interval_seconds": poll.interval,
            "polls": poll.polls, "redelivered": poll.redelivered, "redelivered_at": poll.redelivered_at,
        })
    }
}

/// What is said of children that keep a merge, in one branch or in several.
fn blocked(bad: u64, id: JobId, branch: Option<&str>, program: &str) -> String {
    let children = children(bad, "has not ended well and is", "have not ended well and are");
    let branch = branch.map(|name| format!(" --branch {}", out::plain(name))).unwrap_or_default();
    format!(
        "{BLOCKED} {children} waited for; mend the cause (`{program} branches {id} --children --only failed` lists them), then \
         `{program} redrive {id}{branch}`"
    )
}

/// What is to be noted of several branches that have a line each: what blocks them together, and the rest with its branch.
pub(crate) fn notes(views: &[View], id: JobId, program: &str) -> Vec<String> {
    let stuck: Vec<&View> = views.iter().filter(|view| view.is_blocked()).collect();
    let together = stuck.len() > 1;
    let mut notes = Vec::new();
    if together {
        notes.push(blocked(stuck.iter().map(|view| view.bad()).sum(), id, None, program));
    }
    for view in views {
        let own = view.notes.iter().filter(|note| !together || !note.starts_with(BLOCKED));
        notes.extend(own.map(|note| match note.split_once(": ") {
            Some((word, rest)) => format!("{word}: {}: {rest}", out::plain(&view.branch.name)),
            None => note.clone(),
        }));
    }
    notes
}

/// How the note begins that says so.
const BLOCKED: &str = "blocked:";

/// Several branches together: those that are not merged.
pub(crate) struct Sum {
    pub(crate) branches: usize,
    pub(crate) spawned: u64,
    pub(crate) done: u64,
    pub(crate) bad: u64,
    pub(crate) pending: u64,
    pub(crate) never_started: Option<u64>,
    pub(crate) rate: Option<f64>,
}

impl Sum {
    pub(crate) fn of(views: &[View]) -> Sum {
        let open = || views.iter().filter(|view| view.standing != Standing::Merged);
        let sum = |of: &dyn Fn(&View) -> u64| open().map(of).sum();
        // How fast those are that are through says nothing of the rest.
        let rates: Vec<f64> = open().filter(|view| view.pending > 0).filter_map(|view| view.rate).collect();
        let never: Vec<u64> = open().filter_map(|view| view.never_started).collect();
        Sum {
            branches: open().count(),
            spawned: sum(&View::spawned),
            done: sum(&|view| count(view.branch.tally.done)),
            bad: sum(&View::bad),
            pending: sum(&|view| view.pending),
            never_started: (!never.is_empty()).then(|| never.iter().sum()),
            rate: (!rates.is_empty()).then(|| rates.iter().sum()),
        }
    }

    /// How long the rest of all of them takes: the sum of what is left by the sum of the rates.
    pub(crate) fn left(&self) -> Option<Duration> {
        left(self.pending, self.rate)
    }

    pub(crate) fn told(&self) -> Value {
        json!({
            "branches": self.branches, "spawned": self.spawned, "done": self.done, "bad": self.bad, "pending": self.pending,
            "never_started": self.never_started, "rate": self.rate,
            "eta_seconds": self.left().map(|left| left.as_secs_f64()),
        })
    }
}

fn left(pending: u64, rate: Option<f64>) -> Option<Duration> {
    let rate = rate.filter(|rate| *rate > 0.0 && pending > 0)?;
    Duration::try_from_secs_f64(pending as f64 / rate).ok()
}

fn count(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// So many children, and what they do.
pub(crate) fn children(count: u64, one: &str, more: &str) -> String {
    match count {
        1 => format!("1 child {one}"),
        count => format!("{} children {more}", out::thousands(count)),
    }
}
