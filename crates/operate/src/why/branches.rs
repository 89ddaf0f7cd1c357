//! Why a job waits for its branches: their progress, and what blocks them.

use windlass_model::{Merge, State, Time, branch::BRANCH_SIGNAL, merge::BranchProgress};
use windlass_store::{Branch, Job, Waiting};

use super::{Cause, Explanation, sentence, span};
use crate::text;

/// How many branches are named in a sentence.
const NAMED: usize = 5;

/// Whether a job waits for its branches.
pub(super) fn is_awaited(job: &Job) -> bool {
    let names = job.wait.iter().flat_map(|wait| wait.names());
    job.summary.state == State::Waiting && names.into_iter().any(|name| name == BRANCH_SIGNAL)
}

/// Whether unsuccessful children block the merge of a branch.
pub(super) fn is_blocked(branch: &Branch) -> bool {
    let merge = branch.merge_record.as_deref().and_then(|record| serde_json::from_str::<Merge>(record).ok());
    branch.counts.unsuccessful() > 0 && merge.is_some_and(|merge| merge.waits_for_unsuccessful())
}

/// A cause for each awaited merge, blocked ones first, and for branches that are full.
pub(super) fn causes(job: &Job, waiting: &Waiting, branches: &[Branch], now: Time) -> Vec<Explanation> {
    let awaited = || branches.iter().filter(|branch| branch.watch.is_some());
    let mut records: Vec<Option<&str>> = awaited().map(|branch| branch.merge_record.as_deref()).collect();
    records.sort_unstable();
    records.dedup();
    let mut causes: Vec<Explanation> = Vec::new();
    for record in records {
        let rule = record.and_then(|record| serde_json::from_str::<Merge>(record).ok());
        // Branches that are merged together have the same record, including those that have ended.
        let open = |branch: &&Branch| !branch.merged || branch.watch.is_some();
        let of = branches.iter().filter(open).filter(|branch| branch.merge_record.as_deref() == record);
        let of: Vec<&Branch> = of.collect();
        match rule {
            Some(merge) => causes.push(merging(job, waiting, &of, &merge, now)),
            None => causes.extend(
                of.into_iter().filter(|branch| branch.watch.is_some()).map(|branch| full(job, branch)),
            ),
        }
    }
    causes.sort_by_key(|Explanation(cause, ..)| *cause != Cause::Blocked);
    if causes.is_empty() {
        let because = "One of its branches has just reached what it waits for.";
        causes.push(Explanation(Cause::Branches, because.into(), "Run this command again.".into()));
    }
    causes
}

/// It waits until some children have ended before it spawns more.
fn full(job: &Job, branch: &Branch) -> Explanation {
    let because = format!(
        "{} waits for room in its branch {:?}: {} not ended of the children it spawned, and it spawns more when some have.",
        who(job),
        branch.name,
        verb((branch.spawned - branch.counts.ended()).max(0), "has", "have"),
    );
    Explanation(Cause::Branches, because, watch(job))
}

fn merging(job: &Job, waiting: &Waiting, branches: &[&Branch], merge: &Merge, now: Time) -> Explanation {
    let until = match waiting.wait_until {
        Some(until) if until > now => format!(" until {until}, in {}", span(until - now)),
        Some(until) => format!(" until {until}, which has passed"),
        None => String::new(),
    };
    let (names, branch) = match branches {
        [one] => (format!("branch {:?}", one.name), format!(" --branch {}", one.name)),
        many => (format!("branches {}", listed(many)), String::new()),
    };
    let progress: Vec<BranchProgress> = branches
        .iter()
        .map(|branch| BranchProgress { spawned: branch.spawned, counts: branch.counts })
        .collect();
    let all = BranchProgress::sum(&progress);
    let because = sentence(&format!(
        "{} waits for the merge of its {names}{until}: {}. It is merged {merge}",
        who(job),
        progress_text(&all)
    ));
    if all.counts.unsuccessful() > 0 && merge.waits_for_unsuccessful() {
        let id = job.summary.id;
        let hint = format!(
            "Fix the cause (`windlass branches {id} --children --only failed` lists them), then retry them: \
             `windlass redrive {id}{branch}`.",
        );
        return Explanation(Cause::Blocked, because, hint);
    }
    Explanation(Cause::Branches, because, watch(job))
}

fn who(job: &Job) -> String {
    job.summary.stage.as_ref().map(|stage| format!("In {stage}, it")).unwrap_or("It".into())
}

fn watch(job: &Job) -> String {
    format!("See its progress: `windlass branches {}`.", job.summary.id)
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
    let mut line = format!("of its {} {children} {} done", number(*spawned), verb(counts.done, "is", "are"));
    if counts.failed > 0 {
        line += &format!(", {} failed", number(counts.failed));
    }
    if counts.cancelled > 0 {
        line += &format!(", {} cancelled", verb(counts.cancelled, "was", "were"));
    }
    match (spawned - counts.ended()).max(0) {
        0 => line + ", and all have ended",
        left => format!("{line}, and {} not ended", verb(left, "has", "have")),
    }
}

fn verb(count: i64, one: &str, more: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { more })
}

fn number(count: i64) -> String {
    text::thousands(count.unsigned_abs())
}
