//! Why a job waits for its branches: how far they are, and what keeps them.

use windlass_model::{Merge, State, Time, branch::BRANCH_SIGNAL, merge::BranchProgress};
use windlass_store::{Branch, Job, Waiting};

use super::{Cause, sentence, span};

/// How many branches are named in a sentence.
const NAMED: usize = 5;

/// Whether a job waits for something to be told of its branches.
pub(super) fn is_awaited(job: &Job) -> bool {
    let names = job.wait.iter().flat_map(|wait| wait.names());
    job.summary.state == State::Waiting && names.into_iter().any(|name| name == BRANCH_SIGNAL)
}

/// A cause for each merge that is waited for, those first in which only a person can help, and for branches that are full.
pub(super) fn causes(job: &Job, waiting: &Waiting, branches: &[Branch], now: Time) -> Vec<Cause> {
    let waited = || branches.iter().filter(|branch| branch.watch.is_some());
    let mut goals: Vec<Option<&str>> = waited().map(|branch| branch.goal.as_deref()).collect();
    goals.sort_unstable();
    goals.dedup();
    let mut causes: Vec<Cause> = Vec::new();
    for goal in goals {
        let rule = goal.and_then(|goal| serde_json::from_str::<Merge>(goal).ok());
        // Branches that are merged together are so by one rule; those that have nothing more to tell belong to it too.
        let open = |branch: &&Branch| !branch.merged || branch.watch.is_some();
        let of = branches.iter().filter(open).filter(|branch| branch.goal.as_deref() == goal);
        let of: Vec<&Branch> = of.collect();
        match rule {
            Some(merge) => causes.push(merging(job, waiting, &of, &merge, now)),
            None => causes.extend(
                of.into_iter().filter(|branch| branch.watch.is_some()).map(|branch| full(job, branch)),
            ),
        }
    }
    causes.sort_by_key(|Cause(cause, ..)| *cause != "blocked");
    if causes.is_empty() {
        let because = "One of its branches has come to what it waits for, just now.";
        causes.push(Cause("branches", because.into(), "Look again.".into()));
    }
    causes
}

/// It waits until some children have ended before it spawns more.
fn full(job: &Job, branch: &Branch) -> Cause {
    let because = format!(
        "{} waits for room in its branch {:?}: {} not ended of those that were spawned, and no more are until some have.",
        who(job),
        branch.name,
        verb((branch.spawned - branch.counts.ended()).max(0), "has", "have"),
    );
    Cause("branches", because, watch(job))
}

fn merging(job: &Job, waiting: &Waiting, branches: &[&Branch], merge: &Merge, now: Time) -> Cause {
    let until = match waiting.until {
        Some(until) if until > now => format!(" until {until}, in {}", span(until.since(now))),
        Some(until) => format!(" until {until}, which has passed"),
        None => String::new(),
    };
    let (names, branch) = match branches {
        [one] => (format!("branch {:?}", one.name), format!(" --branch {}", one.name)),
        many => (format!("branches {}", listed(many)), String::new()),
    };
    let stands: Vec<BranchProgress> = branches
        .iter()
        .map(|branch| BranchProgress { spawned: branch.spawned, counts: branch.counts })
        .collect();
    let all = BranchProgress::sum(&stands);
    let because = sentence(&format!(
        "{} waits for the merge of its {names}{until}: {}. It is merged {merge}",
        who(job),
        progress_text(&all)
    ));
    if all.counts.unsuccessful() > 0 && merge.waits_for_unsuccessful() {
        let id = job.summary.id;
        let hint = format!(
            "Mend what made them fail (`windlass branches {id} --children --only failed` lists them), then retry them: \
             `windlass redrive {id}{branch}`.",
        );
        return Cause("blocked", because, hint);
    }
    Cause("branches", because, watch(job))
}

fn who(job: &Job) -> String {
    job.summary.stage.as_ref().map(|stage| format!("In {stage}, it")).unwrap_or("It".into())
}

fn watch(job: &Job) -> String {
    format!("See how far it is: `windlass branches {}`.", job.summary.id)
}

/// The names of branches, the first of them if there are many.
fn listed(branches: &[&Branch]) -> String {
    let mut names: Vec<String> =
        branches.iter().take(NAMED).map(|branch| format!("{:?}", branch.name)).collect();
    if branches.len() > NAMED {
        names.push(format!("and {} more", branches.len() - NAMED));
    }
    names.join(", ")
}

/// How the children of a branch have ended, in words.
fn progress_text(all: &BranchProgress) -> String {
    let BranchProgress { spawned, counts } = all;
    let children = if *spawned == 1 { "child" } else { "children" };
    let mut text = format!("of its {} {children} {} done", many(*spawned), verb(counts.done, "is", "are"));
    if counts.failed > 0 {
        text += &format!(", {} failed", many(counts.failed));
    }
    if counts.cancelled > 0 {
        text += &format!(", {} cancelled", verb(counts.cancelled, "was", "were"));
    }
    match (spawned - counts.ended()).max(0) {
        0 => text + ", and all have ended",
        left => format!("{text}, and {} not ended", verb(left, "has", "have")),
    }
}

fn verb(count: i64, one: &str, more: &str) -> String {
    format!("{} {}", many(count), if count == 1 { one } else { more })
}

/// A number with commas between thousands.
fn many(count: i64) -> String {
    match count {
        ..1_000 => count.to_string(),
        _ => format!("{},{:03}", many(count / 1_000), count % 1_000),
    }
}
