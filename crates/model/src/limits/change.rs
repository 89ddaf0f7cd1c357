//! Checks of changes before they are committed.

use super::{
    Invalid, Limits, MAX_CHILDREN, MAX_KEY_BYTES, MAX_NAME_BYTES, check_key, check_stage, check_text,
    invalid, quoted,
};
use crate::{BranchUpdate, Change, JournalEntry, NewJob, Outcome, StepWrites};

impl Limits {
    /// Checks a change before it is committed: its sizes, its names, and that it accounts for no item of a block twice.
    pub fn check_change(&self, change: &Change) -> Result<(), Invalid> {
        match &change.outcome {
            Outcome::Done(output) => self.check_payload("output", &output.bytes)?,
            Outcome::Wait(wait) => wait.check()?,
            _ => {}
        }
        let Some(step) = &change.writes else { return Ok(()) };
        self.check_step_size(change, step)?;
        if let Some((stage, data)) = &step.stage {
            check_stage(stage)?;
            self.check_payload("data of the stage", &data.bytes)?;
        }
        step.entries.iter().try_for_each(|entry| self.check_entry(entry))?;
        for (name, value) in &step.context {
            check_key("name in the context", name)?;
            self.check_payload(&format!("value of {} in the context", quoted(name)), &value.bytes)?;
        }
        step.branches.iter().try_for_each(BranchUpdate::check)?;
        check_promoted(change, step)?;
        check_first_attempts(step)?;
        step.children.iter().chain(&step.promoted).try_for_each(|child| self.check_child(child))
    }

    /// Checks the size of a value in the context of a workflow, as plain JSON.
    pub fn check_context(&self, name: &str, bytes: usize) -> Result<(), Invalid> {
        if bytes <= self.context {
            return Ok(());
        }
        let why = format!("is {bytes} bytes long, more than the {} allowed", self.context);
        let raise = Limits::raise_hint("context");
        let hint = format!("keep it elsewhere and set a reference to it, or {raise}");
        Err(invalid(format!("the value {} of the context", quoted(name)), why, hint))
    }

    fn check_step_size(&self, change: &Change, step: &StepWrites) -> Result<(), Invalid> {
        let (bytes, max) = (change.bytes(), self.step);
        if bytes > max {
            let why = format!("have {bytes} bytes together, more than the {max} that one commit may write");
            let hint = format!("spread them over several steps, or {}", Limits::raise_hint("step"));
            return Err(invalid("the payloads of one step", why, hint));
        }
        if step.children.len() > MAX_CHILDREN {
            let why = format!("are {}, more than the {MAX_CHILDREN} one step may have", step.children.len());
            return Err(invalid("the children", why, "spread them over several steps"));
        }
        Ok(())
    }

    fn check_child(&self, child: &NewJob) -> Result<(), Invalid> {
        if let Some(position) = &child.branch_position {
            position.check()?;
            if child.key.is_some() {
                let hint = "leave it out; such a child is identified by its branch and its item";
                return Err(invalid("the key of a child of a branch", "is given", hint));
            }
        }
        self.check_job(child)
    }

    fn check_entry(&self, entry: &JournalEntry) -> Result<(), Invalid> {
        // The entry of an undo has the call's name with a prefix.
        check_text("name of the call", &entry.name, MAX_NAME_BYTES + 8)?;
        if let Some(key) = &entry.key {
            check_text("key of the call", key, MAX_KEY_BYTES)?;
        }
        self.check_payload(
            &format!("result of {} {}", entry.call_kind, quoted(&entry.name)),
            &entry.payload.bytes,
        )
    }
}

/// Checks that a block accounts for each of its items at most once, and promotes them within its own branch.
fn check_promoted(change: &Change, step: &StepWrites) -> Result<(), Invalid> {
    let positions = || step.promoted.iter().map(|job| job.branch_position.as_deref());
    let promoted: u32 = positions().flatten().map(|position| position.items).sum();
    let left = change.branch_member.map_or(0, |member| member.items);
    let counted = step.items.saturating_add(promoted);
    if counted > left {
        let why = format!("are {counted}, more than the {left} left");
        return Err(invalid("the items that a block accounts for", why, "count each of them once"));
    }
    let branch = change.branch_member.map(|member| member.branch);
    if positions().any(|position| position.is_none_or(|position| Some(position.branch) != branch)) {
        return Err(invalid("a promoted item", "is not in the branch of its block", "leave it there"));
    }
    if step.promoted.iter().any(|job| job.settings.unique.is_some()) {
        let hint = "leave it out; an item whose name is taken would not be inserted, and its branch would wait for ever";
        return Err(invalid("the unique name of a promoted item", "is given", hint));
    }
    Ok(())
}

/// Checks that each first attempt is that of one promoted item, and that it did not succeed.
fn check_first_attempts(step: &StepWrites) -> Result<(), Invalid> {
    let what = "the first attempt at a promoted item";
    let mut jobs = step.attempted_jobs();
    if jobs.len() < step.first_attempts.len() {
        return Err(invalid(what, "is given twice", "give it once"));
    }
    let is_unsuccessful = |outcome: &Outcome| {
        matches!(outcome, Outcome::Retry { .. } | Outcome::Failed { .. } | Outcome::Cancelled(_))
    };
    if !step.first_attempts.iter().all(|attempt| is_unsuccessful(&attempt.outcome)) {
        return Err(invalid(what, "did not fail", "count the item as done instead"));
    }
    let is_one_item = |job: &&NewJob| {
        !job.needs_slow_path() && job.branch_position.as_ref().is_some_and(|position| position.items == 1)
    };
    for job in step.promoted.iter().filter(is_one_item) {
        jobs.remove(&job.id);
    }
    if !jobs.is_empty() {
        let why = "belongs to no job that was promoted for one item";
        return Err(invalid(what, why, "promote the item as a job of its own in the same change"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        BranchMember, BranchNo, BranchPosition, ClaimNo, Epoch, Failure, FirstAttempt, JobId, Payload, Time,
        WorkerId,
    };

    fn job(n: u32) -> NewJob {
        NewJob::new(JobId::from_parts(1, n, 1), "resize", "default", Payload::json(b"1".to_vec()))
    }

    fn promoted(n: u32, branch: i64, items: u32) -> NewJob {
        let position = BranchPosition { branch: BranchNo(branch), spawn: 0, item: n.to_string(), items };
        NewJob { branch_position: Some(Box::new(position)), ..job(n) }
    }

    fn first_attempt(n: u32, outcome: Outcome) -> FirstAttempt {
        FirstAttempt { job: job(n).id, started_at: Time(0), outcome }
    }

    fn retry() -> Outcome {
        let failure = Some(Failure::retry("busy"));
        Outcome::Retry { after: Duration::from_secs(1), retry_counts: vec![1], failure }
    }

    /// The change of a block with 3 items left in branch 7.
    fn block(step: StepWrites) -> Change {
        let claimed = job(1).claimed_at_submit(ClaimNo(1), Epoch(0), Time(0));
        let member = BranchMember { parent: job(0).id, branch: BranchNo(7), items: 3 };
        Change {
            branch_member: Some(member),
            writes: Some(Box::new(step)),
            ..Change::new(&claimed, WorkerId(1), Time(0), Outcome::Next)
        }
    }

    #[test]
    fn a_block_accounts_for_each_item_once_and_promotes_within_its_branch() {
        let check = |step: StepWrites| Limits::default().check_change(&block(step));
        let promote = |items, promoted| StepWrites { items, promoted, ..StepWrites::default() };
        assert_eq!(check(promote(1, vec![promoted(2, 7, 2)])), Ok(()));
        for (step, text) in [
            (promote(2, vec![promoted(2, 7, 2)]), "are 4, more than the 3 left"),
            (promote(0, vec![promoted(2, 8, 1)]), "is not in the branch of its block"),
            (promote(0, vec![job(2)]), "is not in the branch of its block"),
        ] {
            let error = check(step).expect_err(text).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
        let no_block = Change { branch_member: None, ..block(promote(0, vec![job(2)])) };
        assert!(Limits::default().check_change(&no_block).is_err(), "only a block promotes");
    }

    #[test]
    fn a_first_attempt_belongs_to_one_promoted_item_and_did_not_succeed() {
        let check = |items, first_attempts| {
            let promoted = vec![promoted(2, 7, items)];
            Limits::default().check_change(&block(StepWrites {
                promoted,
                first_attempts,
                ..StepWrites::default()
            }))
        };
        assert_eq!(check(1, vec![first_attempt(2, retry())]), Ok(()));
        for (items, attempts, text) in [
            (1, vec![first_attempt(2, retry()), first_attempt(2, retry())], "is given twice"),
            (1, vec![first_attempt(2, Outcome::Done(Payload::default()))], "did not fail"),
            (1, vec![first_attempt(3, retry())], "belongs to no job"),
            (2, vec![first_attempt(2, retry())], "belongs to no job"),
        ] {
            let error = check(items, attempts).expect_err(text).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
    }

    #[test]
    fn a_child_of_a_branch_has_no_key_and_a_step_has_bounded_children() {
        let check = |children| {
            Limits::default().check_change(&block(StepWrites { children, ..StepWrites::default() }))
        };
        let keyed = NewJob { key: Some("a".into()), ..promoted(2, 9, 1) };
        assert!(
            check(vec![keyed]).expect_err("a key").to_string().contains("the key of a child of a branch")
        );
        let many = vec![job(2); MAX_CHILDREN + 1];
        assert!(check(many).expect_err("too many").to_string().contains("more than the 10000"));
    }
}
