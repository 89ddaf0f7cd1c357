//! Checks of changes before they are committed.

use super::{
    Invalid, Limits, MAX_CHILDREN, MAX_KEY_BYTES, MAX_NAME_BYTES, check_key, check_stage, check_text,
    invalid, quoted,
};
use crate::{BranchUpdate, Change, JournalEntry, NewJob, Outcome, Step};

impl Limits {
    /// Checks a change before it is committed: its sizes, its names, and that it accounts for no item of a block twice.
    pub fn check_change(&self, change: &Change) -> Result<(), Invalid> {
        match &change.outcome {
            Outcome::Done(output) => self.check_payload("output", &output.bytes)?,
            Outcome::Wait(wait) => wait.check()?,
            _ => {}
        }
        let Some(step) = &change.step else { return Ok(()) };
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

    fn check_step_size(&self, change: &Change, step: &Step) -> Result<(), Invalid> {
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
        self.check_payload(&format!("result of {} {}", entry.op, quoted(&entry.name)), &entry.payload.bytes)
    }
}

/// Checks that a block accounts for each of its items at most once, and promotes them within its own branch.
fn check_promoted(change: &Change, step: &Step) -> Result<(), Invalid> {
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
fn check_first_attempts(step: &Step) -> Result<(), Invalid> {
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
