//! Checks for branches that need help, and for children that nothing waits for.

use std::time::Duration;

use windlass_model::{Merge, Time};
use windlass_store::{BranchHealth, Error};

use super::Finding;
use crate::{Operator, text};

/// A poll this late is worth a warning: workers poll within seconds.
const LATE: Duration = Duration::from_secs(60);
/// How many branches are read: enough to find what is wrong, few enough to read at once.
const LIMIT: usize = 10_000;

/// What was read.
pub(super) struct Branches {
    awaited: Vec<BranchHealth>,
    orphaned: Vec<BranchHealth>,
    now: Time,
}

pub(super) async fn read(operator: &Operator) -> Result<Branches, Error> {
    let diagnose = operator.store().diagnose();
    Ok(Branches {
        awaited: diagnose.awaited_branches(LIMIT).await?,
        orphaned: diagnose.orphaned_branches(LIMIT).await?,
        now: operator.inspect().clock().await?,
    })
}

impl Branches {
    pub(super) fn judge(&self) -> Vec<Finding> {
        let (blocked, overdue) = (self.blocked(), self.overdue());
        let is_fine = !self.awaited.is_empty() && blocked.is_none() && overdue.is_none();
        let awaited = is_fine.then(|| {
            let count = self.awaited.len();
            let more = if count >= LIMIT { " or more" } else { "" };
            Finding::ok("branches", format!("{}{more} awaited", text::thousands(count as u64)))
                .advice("`windlass branches JOB` shows those of a job")
                .number("awaited", count as u64)
        });
        [blocked, overdue, self.orphaned(), awaited].into_iter().flatten().collect()
    }

    /// Branches whose merge waits for unsuccessful children only.
    fn blocked(&self) -> Option<Finding> {
        let blocked: Vec<&BranchHealth> = self.awaited.iter().filter(|branch| is_blocked(branch)).collect();
        let BranchHealth { job, name, .. } = blocked.first()?;
        let unsuccessful = blocked.iter().map(|branch| branch.counts.unsuccessful().unsigned_abs()).sum();
        let found = format!(
            "{} for {}",
            text::counted(blocked.len() as u64, "branch waits", "branches wait"),
            text::counted(unsuccessful, "unsuccessful child", "unsuccessful children"),
        );
        let advice =
            format!("`windlass redrive JOB` retries them, like `windlass redrive {job} --branch {name}`");
        let finding = Finding::warn("branches", found).advice(advice);
        Some(finding.number("blocked", blocked.len() as u64).number("unsuccessful", unsuccessful))
    }

    fn overdue(&self) -> Option<Finding> {
        let late = |at: &Time| self.now - *at > LATE;
        let polls: Vec<Time> = self.awaited.iter().filter_map(|branch| branch.poll_at).filter(late).collect();
        let waits = self.now - *polls.iter().min()?;
        let branches = text::counted(polls.len() as u64, "branch", "branches");
        let found = format!("workers should have polled {branches} {} ago", text::duration(waits));
        let finding = Finding::warn("branches", found);
        let finding = finding.advice("start one with `windlass worker`, or your program");
        Some(finding.number("overdue", polls.len() as u64).seconds("overdue_seconds", waits))
    }

    fn orphaned(&self) -> Option<Finding> {
        let job = self.orphaned.first()?.job;
        let children = self.orphaned.iter().map(pending).sum();
        let found = format!(
            "{} live although the job that opened the branch has ended",
            text::counted(children, "child is", "children are")
        );
        let advice =
            format!("`windlass cancel JOB --children` cancels them, like `windlass cancel {job} --children`");
        Some(Finding::warn("branches", found).advice(advice).number("orphaned_children", children))
    }
}

/// How many children of a branch have not ended.
pub(crate) fn pending(branch: &BranchHealth) -> u64 {
    (branch.spawned - branch.counts.ended()).max(0).unsigned_abs()
}

/// Whether its merge waits for unsuccessful children only.
pub(crate) fn is_blocked(branch: &BranchHealth) -> bool {
    branch.counts.unsuccessful() > 0
        && pending(branch) == 0
        && branch.merge.as_ref().is_some_and(Merge::waits_for_unsuccessful)
}

#[cfg(test)]
mod tests {
    use windlass_model::{BranchCounts, JobId};

    use super::*;
    use crate::doctor::Verdict;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn branch(spawned: i64, done: i64, failed: i64, merge: Merge) -> BranchHealth {
        BranchHealth {
            job: JobId::from_parts(1, 0, 0),
            name: "items".into(),
            merge: Some(merge),
            spawned,
            counts: BranchCounts { started: 0, done, failed, cancelled: 0 },
            poll_at: Some(NOW),
        }
    }

    fn found(awaited: Vec<BranchHealth>, orphaned: Vec<BranchHealth>) -> Vec<(Verdict, String)> {
        let findings = Branches { awaited, orphaned, now: NOW }.judge();
        findings.into_iter().map(|finding| (finding.verdict, finding.found)).collect()
    }

    #[test]
    fn branches_that_need_help_are_warnings() {
        assert_eq!(found(vec![], vec![]), []);
        let healthy = found(vec![branch(10, 1, 0, Merge::all()), branch(10, 1, 3, Merge::settled())], vec![]);
        assert_eq!(healthy, [(Verdict::Ok, "2 awaited".into())]);
        let blocked = found(vec![branch(10, 8, 2, Merge::all()), branch(10, 7, 2, Merge::all())], vec![]);
        assert_eq!(blocked, [(Verdict::Warn, "1 branch waits for 2 unsuccessful children".into())]);
        let poll_at = Some(NOW - Duration::from_secs(600));
        let late = found(vec![BranchHealth { poll_at, ..branch(9, 1, 0, Merge::all()) }], vec![]);
        assert_eq!(late, [(Verdict::Warn, "workers should have polled 1 branch 10m ago".into())]);
        let orphaned = found(vec![], vec![branch(10, 1, 0, Merge::all())]);
        assert!(orphaned[0].1.starts_with("9 children are live although the job"), "{orphaned:?}");
    }
}
