//! What steps do to the branches of their jobs: open, spawn, seal, watch and merge.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;
use windlass_model::{
    BranchCounts, BranchMember, BranchNo, BranchUpdate, Change, NewJob, StepWrites, SubmitOutcome, Time,
    branch::items_refusal,
};

use super::{
    branch::read_member,
    consequences,
    rate::Buckets,
    sql,
    submit::{insert_jobs, insert_unplaced},
    tx::{TIMER_GATE_ID, Tx},
};
use crate::{Error, columns};

/// Whether a step writes to branches, or accounts for items of a block.
pub(super) fn updates_branches(step: &StepWrites) -> bool {
    !step.branches.is_empty() || step.accounts_for_items()
}

/// Why what a step does to branches is refused, if it is. The change must be one that will be written.
pub(super) fn refusal(tx: &Tx<'_>, change: &Change, step: &StepWrites) -> Result<Option<String>, Error> {
    if step.accounts_for_items() {
        let member = read_member(tx, change.job)?.and_then(|member| member.branch_member);
        let left = member.map_or(0, |member| member.items);
        if let Some(why) = items_refusal(step.items + step.promoted_items(), left) {
            return Ok(Some(why));
        }
    }
    let mut sealed: BTreeMap<BranchNo, bool> = BTreeMap::new();
    for number in step.named_branches() {
        let params = params![change.job.as_bytes(), number.0];
        let is_sealed = tx.query_one(sql::branches::READ_SEALED, params, |row| row.get(0))?;
        sealed.extend(is_sealed.map(|is_sealed| (number, is_sealed)));
    }
    Ok(step.branch_refusal(|number| sealed.get(&number).copied()))
}

impl Tx<'_> {
    /// Writes what a step does to branches, apart from the children it spawns.
    pub(super) fn update_branches(&self, now: Time, change: &Change, step: &StepWrites) -> Result<(), Error> {
        let job = change.job.as_bytes();
        if step.branches.iter().any(|update| update.opened_as.is_some()) {
            self.execute(sql::branches::MARK_HAS_BRANCHES, [job])?;
        }
        for update in &step.branches {
            let BranchUpdate {
                number,
                opened_as,
                spawns,
                cursor,
                seal,
                watch,
                merge_record,
                merged,
                cancel_children,
            } = update;
            if let Some(name) = opened_as {
                let params = params![job, number.0, name, now.micros()];
                self.execute(sql::branches::OPEN, params)?;
            }
            self.settle_count((change.job, *number))?;
            let params = params![
                job,
                number.0,
                spawns.as_ref().map(|names| serde_json::to_string(names).expect("text is plain data")),
                cursor.as_ref().map(|cursor| cursor.codec),
                cursor.as_ref().map(|cursor| cursor.bytes.as_slice()),
                merge_record,
                seal,
                watch.as_ref().map(columns::watch_text),
                watch.as_ref().map(|watch| (now + watch.poll_interval.min).micros()),
                merged,
                cancel_children,
                now.micros(),
            ];
            self.execute(sql::branches::UPDATE, params)?;
            if watch.is_some() || *cancel_children {
                self.bump_gate(TIMER_GATE_ID);
            }
        }
        Ok(())
    }

    /// Counts the children of a step that were inserted, and notifies the job of branches whose watch was met before
    /// it was set.
    pub(super) fn count_spawned(
        &self,
        now: Time,
        change: &Change,
        step: &StepWrites,
        submitted: &[SubmitOutcome],
    ) -> Result<(), Error> {
        let mut spawned: BTreeMap<BranchNo, i64> = BTreeMap::new();
        for (child, _) in step.children.iter().zip(submitted).filter(|(_, outcome)| outcome.is_inserted()) {
            if let Some(position) = &child.branch_position {
                *spawned.entry(position.branch).or_default() += i64::from(position.items);
            }
        }
        for (number, items) in spawned {
            let params = params![change.job.as_bytes(), number.0, items];
            self.execute(sql::branches::ADD_SPAWNED, params)?;
        }
        let watched = step.branches.iter().filter(|update| update.watch.is_some());
        let watched: BTreeSet<BranchNo> = watched.map(|update| update.number).collect();
        watched.into_iter().try_for_each(|number| {
            let branch_member = BranchMember { parent: change.job, branch: number, items: 0 };
            self.count(now, branch_member, BranchCounts::default())
        })
    }

    /// Writes what a change of a child accounts for: items of a block that are done, and promoted items, which become
    /// jobs of their own.
    pub(super) fn write_member_items(
        &self,
        now: Time,
        change: &Change,
        buckets: &Buckets,
    ) -> Result<(), Error> {
        let Some(branch_member) = read_member(self, change.job)?.and_then(|position| position.branch_member)
        else {
            return Ok(());
        };
        let step = change.writes.as_deref();
        if let Some(step) = step.filter(|step| step.accounts_for_items()) {
            let params = params![change.job.as_bytes(), step.items, step.promoted_items()];
            self.execute(sql::branches::COUNT_ITEMS, params)?;
        }
        if let Some(step) = step.filter(|step| !step.promoted.is_empty()) {
            let parent = Some(branch_member.parent);
            let sibling = |job: &NewJob| NewJob { parent, parent_rev: None, ..job.clone() };
            let attempted = step.attempted_jobs();
            let (attempted_jobs, new_jobs): (Vec<NewJob>, Vec<NewJob>) =
                step.promoted.iter().map(sibling).partition(|job| attempted.contains(&job.id));
            insert_jobs(self, now, &new_jobs, buckets, None)?;
            insert_unplaced(self, now, &attempted_jobs, buckets)?;
        }
        // Its end is counted when the job has ended.
        self.count(now, branch_member, change.counts_before_end(i64::from(branch_member.items)))?;
        change.first_attempts().try_for_each(|attempt| consequences::write_first_attempt(self, now, &attempt))
    }
}
