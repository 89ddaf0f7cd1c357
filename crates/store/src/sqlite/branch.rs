//! Branches: counting how their children end, and notifying their parents.
//!
//! Ends are counted in memory while a transaction runs and written at its end, once per branch, however many children
//! it ends. A parent is notified as soon as its watch is met.

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use windlass_model::{
    BranchCounts, BranchMember, BranchNo, BranchWatch, Change, JobId, Reason, Rev, State, Time,
    branch::cancels_children,
};

use super::{
    signal, sql,
    tx::{TIMER_GATE_ID, Tx},
};
use crate::{Error, columns};

/// A branch: its job, and its number there.
pub(super) type BranchKey = (JobId, BranchNo);

/// The counts of branches that a transaction has read or changed.
pub(super) type Counts = BTreeMap<BranchKey, Count>;

/// How the children of a branch have ended, including what this transaction has counted.
pub(super) struct Count {
    counts: BranchCounts,
    watch: Option<BranchWatch>,
    /// Whether it must be written.
    dirty: bool,
}

/// Reads started, done, failed and cancelled, from this column on.
pub(super) fn read_counts(row: &Row<'_>, from: usize) -> rusqlite::Result<BranchCounts> {
    Ok(BranchCounts {
        started: row.get(from)?,
        done: row.get(from + 1)?,
        failed: row.get(from + 2)?,
        cancelled: row.get(from + 3)?,
    })
}

/// Reads what a job watches a branch for.
pub(super) fn watch(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<BranchWatch>> {
    Ok(columns::watch(row.get::<_, Option<String>>(at)?.as_deref()))
}

/// What a job's row says about branches.
pub(super) struct Member {
    pub(super) branch_member: Option<BranchMember>,
    rev: Rev,
    state: i16,
    reason: Option<Reason>,
    has_branches: bool,
}

pub(super) fn read_member(tx: &Tx<'_>, id: JobId) -> Result<Option<Member>, Error> {
    tx.query_one(sql::branches::READ_MEMBER, [id.as_bytes()], |row| {
        let parent = row.get::<_, Option<[u8; 16]>>(0)?.map(JobId::from_bytes);
        let (branch, items) = (row.get::<_, Option<i64>>(1)?.map(BranchNo), row.get(2)?);
        Ok(Member {
            branch_member: parent.zip(branch).map(|(parent, branch)| BranchMember { parent, branch, items }),
            rev: Rev(row.get(3)?),
            state: row.get(4)?,
            reason: columns::reason(row.get(5)?),
            has_branches: row.get(6)?,
        })
    })
}

impl Tx<'_> {
    /// Counts a change of a child that was written, on which nothing but its branch depends.
    pub(super) fn count_member_change(
        &self,
        now: Time,
        change: &Change,
        branch_member: BranchMember,
    ) -> Result<(), Error> {
        if !change.is_counted() {
            return Ok(());
        }
        // A claim says what a job represents at its first change; later changes have others before them.
        let branch_member = match change.rev == Rev(0) {
            true => Some(branch_member),
            false => read_member(self, change.job)?.and_then(|member| member.branch_member),
        };
        let Some(branch_member) = branch_member else { return Ok(()) };
        self.count(now, branch_member, change.counts(i64::from(branch_member.items)))
    }

    /// Counts the end of a job that is in a branch, and ends the watches of its own branches. If it was cancelled or
    /// has expired, their children are cancelled too.
    pub(super) fn branch_job_ended(&self, now: Time, id: JobId) -> Result<(), Error> {
        let Some(member) = read_member(self, id)? else { return Ok(()) };
        let Some(state) = columns::final_state(member.state) else { return Ok(()) };
        if let Some(branch_member) = member.branch_member {
            let items = i64::from(branch_member.items);
            self.count(now, branch_member, BranchCounts::of_end(state, items, member.rev == Rev(0)))?;
        }
        if !member.has_branches {
            return Ok(());
        }
        let keys: Vec<BranchKey> = self.counts.borrow().keys().filter(|key| key.0 == id).copied().collect();
        keys.into_iter().try_for_each(|key| self.settle_count(key))?;
        self.execute(sql::branches::END_WATCHES, [id.as_bytes()])?;
        if cancels_children(state, member.reason)
            && self.execute(sql::branches::CANCEL_CHILDREN, params![id.as_bytes(), now.micros()])? > 0
        {
            self.bump_gate(TIMER_GATE_ID);
        }
        Ok(())
    }

    /// Counts that a child which had ended in state `was` is live again.
    pub(super) fn branch_child_revived(&self, now: Time, id: JobId, was: State) -> Result<(), Error> {
        let Some(Member { branch_member: Some(branch_member), rev, .. }) = read_member(self, id)? else {
            return Ok(());
        };
        let items = i64::from(branch_member.items);
        self.count(now, branch_member, BranchCounts::of_revival(was, items, rev == Rev(0)))
    }

    /// Adds to the counts of a branch, and notifies its job if that meets its watch: the one routine for all verbs.
    pub(super) fn count(
        &self,
        now: Time,
        branch_member: BranchMember,
        added: BranchCounts,
    ) -> Result<(), Error> {
        let key = (branch_member.parent, branch_member.branch);
        if !self.counts.borrow().contains_key(&key) {
            let params = params![key.0.as_bytes(), key.1.0];
            let count = self.query_one(sql::branches::READ_COUNTS, params, |row| {
                Ok(Count { counts: read_counts(row, 0)?, watch: watch(row, 4)?, dirty: false })
            })?;
            // Its job may have been pruned.
            let Some(count) = count else { return Ok(()) };
            self.counts.borrow_mut().insert(key, count);
        }
        let met = {
            let mut counts = self.counts.borrow_mut();
            let count = counts.get_mut(&key).expect("inserted above");
            count.counts.add(added);
            count.dirty |= added != BranchCounts::default();
            count.watch.take_if(|watch| watch.is_met(&count.counts))
        };
        match met {
            Some(_) => self.notify(now, key),
            None => Ok(()),
        }
    }

    /// Ends a watch that is met, and sends the job a signal.
    pub(super) fn notify(&self, now: Time, (job, number): BranchKey) -> Result<(), Error> {
        self.execute(sql::branches::END_WATCH, params![job.as_bytes(), number.0])?;
        signal::signal_branch(self, now, job, number)
    }

    /// Writes the counts of one branch, and drops them from memory.
    pub(super) fn settle_count(&self, key: BranchKey) -> Result<(), Error> {
        let count = self.counts.borrow_mut().remove(&key);
        match count {
            Some(Count { counts, dirty: true, .. }) => self.write_count(key, counts),
            _ => Ok(()),
        }
    }

    /// Writes the counts of all branches.
    pub(super) fn settle_counts(&self) -> Result<(), Error> {
        for (key, Count { counts, dirty, .. }) in self.counts.take() {
            if dirty {
                self.write_count(key, counts)?;
            }
        }
        Ok(())
    }

    pub(super) fn write_count(&self, (job, number): BranchKey, counts: BranchCounts) -> Result<(), Error> {
        let BranchCounts { started, done, failed, cancelled } = counts;
        let params = params![job.as_bytes(), number.0, started, done, failed, cancelled];
        self.execute(sql::branches::WRITE_COUNTS, params)?;
        Ok(())
    }
}
