//! Branches: what is spawned in them, how it ends, and who is told.
//!
//! Ends are counted in memory while a transaction lasts and written at its end, once for each branch, however many children
//! it ends. A parent is told as soon as the count is there.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rusqlite::{Row, params};
use windlass_model::{
    BranchMember, BranchNo, BranchUpdate, Change, JobId, NewJob, Reason, Rev, State, Step, SubmitOutcome,
    Tally, Time, Watch,
};

use super::{
    commit,
    rate::Buckets,
    signal, sql,
    submit::{put, put_unplaced},
    tx::{TIMERS, Tx},
};
use crate::{Error, columns};

/// A branch: its job, and its number there.
pub(super) type Key = (JobId, BranchNo);

/// What a transaction knows of the branches it counts for.
pub(super) type Counts = BTreeMap<Key, Count>;

/// How the children of a branch have ended, with what this transaction has counted.
pub(super) struct Count {
    tally: Tally,
    watch: Option<Watch>,
    /// Whether it is not written yet.
    dirty: bool,
}

/// Reads started, done, failed and cancelled, from this column on.
pub(super) fn tally(row: &Row<'_>, from: usize) -> rusqlite::Result<Tally> {
    Ok(Tally {
        started: row.get(from)?,
        done: row.get(from + 1)?,
        failed: row.get(from + 2)?,
        cancelled: row.get(from + 3)?,
    })
}

/// Reads what a job wants to be told of.
pub(super) fn watch(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Watch>> {
    Ok(columns::watch(row.get::<_, Option<String>>(at)?.as_deref()))
}

/// A job as far as branches go.
struct Member {
    counted: Option<BranchMember>,
    rev: Rev,
    state: i16,
    reason: Option<Reason>,
    branched: bool,
}

fn read_member(tx: &Tx<'_>, id: JobId) -> Result<Option<Member>, Error> {
    tx.one(sql::branches::READ_MEMBER, [id.as_bytes()], |row| {
        let parent = row.get::<_, Option<[u8; 16]>>(0)?.map(JobId::from_bytes);
        let (branch, items) = (row.get::<_, Option<i64>>(1)?.map(BranchNo), row.get(2)?);
        Ok(Member {
            counted: parent.zip(branch).map(|(parent, branch)| BranchMember { parent, branch, items }),
            rev: Rev(row.get(3)?),
            state: row.get(4)?,
            reason: columns::reason(row.get(5)?),
            branched: row.get(6)?,
        })
    })
}

/// Whether a change does anything to branches, or accounts for items of a block.
pub(super) fn concerns(step: &Step) -> bool {
    !step.branches.is_empty() || step.items > 0 || !step.promoted.is_empty()
}

fn items_of(jobs: &[NewJob]) -> u32 {
    jobs.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items)).sum()
}

/// What is wrong with what a step does to branches, if anything is. The change must be one that will be written.
pub(super) fn refusal(tx: &Tx<'_>, change: &Change, step: &Step) -> Result<Option<String>, Error> {
    let accounted = step.items + items_of(&step.promoted);
    if accounted > 0 {
        let counted = read_member(tx, change.job)?.and_then(|twig| twig.counted);
        let left = counted.map_or(0, |counted| counted.items);
        if accounted > left {
            return Ok(Some(format!("{accounted} items are accounted for, and {left} are left")));
        }
    }
    let sealed = |number: BranchNo| -> Result<Option<bool>, Error> {
        let params = params![change.job.as_bytes(), number.0];
        tx.one(sql::branches::READ_SEALED, params, |row| row.get(0))
    };
    for BranchUpdate { number, opened_as: open, .. } in &step.branches {
        match (sealed(*number)?, open) {
            (Some(_), Some(_)) => return Ok(Some(format!("there is a branch {number} already"))),
            (None, None) => return Ok(Some(format!("there is no branch {number}"))),
            _ => {}
        }
    }
    let mut open: Vec<BranchNo> =
        step.branches.iter().filter(|grow| grow.opened_as.is_some()).map(|grow| grow.number).collect();
    for twig in step.children.iter().filter_map(|child| child.branch_position.as_ref()) {
        if open.contains(&twig.branch) {
            continue;
        }
        if sealed(twig.branch)? != Some(false) {
            return Ok(Some(format!("there is no open branch {}", twig.branch)));
        }
        open.push(twig.branch);
    }
    Ok(None)
}

impl Tx<'_> {
    /// What a step does to branches, beside the children it puts in.
    pub(super) fn update(&self, now: Time, change: &Change, step: &Step) -> Result<(), Error> {
        let job = change.job.as_bytes();
        if step.branches.iter().any(|grow| grow.opened_as.is_some()) {
            self.run(sql::branches::MARK_HAS_BRANCHES, [job])?;
        }
        for grow in &step.branches {
            let BranchUpdate {
                number,
                opened_as: open,
                spawns,
                cursor,
                seal,
                watch,
                merge_record: goal,
                merged: merge,
                cancel_children: cut,
            } = grow;
            if let Some(name) = open {
                let params = params![job, number.0, name, now.micros()];
                self.run(sql::branches::OPEN, params)?;
            }
            self.settle_count((change.job, *number))?;
            let params = params![
                job,
                number.0,
                spawns.as_ref().map(|names| serde_json::to_string(names).expect("text is plain data")),
                cursor.as_ref().map(|cursor| cursor.codec),
                cursor.as_ref().map(|cursor| cursor.bytes.as_slice()),
                goal,
                seal,
                watch.as_ref().map(columns::watch_text),
                watch.as_ref().map(|watch| now.plus(watch.poll_interval.min).micros()),
                merge,
                cut,
                now.micros(),
            ];
            self.run(sql::branches::UPDATE, params)?;
            if watch.is_some() || *cut {
                self.move_gate(TIMERS);
            }
        }
        Ok(())
    }

    /// Children of a step are in: they are counted, and what was there before the job watched for it is told.
    pub(super) fn spawned(
        &self,
        now: Time,
        change: &Change,
        step: &Step,
        put: &[SubmitOutcome],
    ) -> Result<(), Error> {
        let is_in = |answer: &SubmitOutcome| {
            matches!(answer, SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. })
        };
        let mut spawned: BTreeMap<BranchNo, i64> = BTreeMap::new();
        for (child, _) in step.children.iter().zip(put).filter(|(_, answer)| is_in(answer)) {
            if let Some(twig) = &child.branch_position {
                *spawned.entry(twig.branch).or_default() += i64::from(twig.items);
            }
        }
        for (number, items) in spawned {
            let params = params![change.job.as_bytes(), number.0, items];
            self.run(sql::branches::ADD_SPAWNED, params)?;
        }
        let watched = step.branches.iter().filter(|grow| grow.watch.is_some());
        let watched: BTreeSet<BranchNo> = watched.map(|grow| grow.number).collect();
        watched.into_iter().try_for_each(|number| {
            let counted = BranchMember { parent: change.job, branch: number, items: 0 };
            self.count(now, counted, Tally::default())
        })
    }

    /// A job of a branch writes a change, which may be its first and may account for items of a block: some have ended well,
    /// and jobs of their own take the place of others.
    pub(super) fn member_writes(&self, now: Time, change: &Change, buckets: &Buckets) -> Result<(), Error> {
        let Some(counted) = read_member(self, change.job)?.and_then(|twig| twig.counted) else {
            return Ok(());
        };
        let step = change.step.as_deref();
        let (done, promoted) = step.map_or((0, &[][..]), |step| (step.items, step.promoted.as_slice()));
        let replaced = items_of(promoted);
        if done + replaced > 0 {
            let params = params![change.job.as_bytes(), done, replaced];
            self.run(sql::branches::COUNT_ITEMS, params)?;
        }
        if !promoted.is_empty() {
            let parent = Some(counted.parent);
            let sibling = |job: &NewJob| NewJob { parent, parent_rev: None, ..job.clone() };
            let attempted = step.map_or(HashSet::new(), |step| step.attempted());
            let (tried, fresh): (Vec<NewJob>, Vec<NewJob>) =
                promoted.iter().map(sibling).partition(|job| attempted.contains(&job.id));
            put(self, now, &fresh, buckets, None)?;
            put_unplaced(self, now, &tried, buckets)?;
        }
        let first = if change.rev == Rev(0) { i64::from(counted.items) } else { 0 };
        // What was promoted begins anew.
        let started = first - i64::from(replaced);
        self.count(now, counted, Tally { started, done: i64::from(done), ..Tally::default() })?;
        change.first_attempts().try_for_each(|attempt| commit::first(self, now, &attempt))
    }

    /// A change was written of a job with nothing hanging on it but its branch.
    pub(super) fn member_wrote(
        &self,
        now: Time,
        change: &Change,
        counted: BranchMember,
    ) -> Result<(), Error> {
        let first = change.rev == Rev(0);
        let end = change.outcome.end();
        if !first && end.is_none() {
            return Ok(());
        }
        // Whoever claims a job knows what its first change accounts for; later ones have others before them.
        let counted = match first {
            true => Some(counted),
            false => read_member(self, change.job)?.and_then(|twig| twig.counted),
        };
        let Some(counted) = counted else { return Ok(()) };
        let items = i64::from(counted.items);
        let mut tally = end.map_or(Tally::default(), |state| Tally::of(state, items));
        tally.started = if first { items } else { 0 };
        self.count(now, counted, tally)
    }

    /// A job that is in a branch or has some has ended: it is counted in the one, and nobody waits for the others. If it was
    /// made to end, so are they.
    pub(super) fn child_ended(&self, now: Time, id: JobId) -> Result<(), Error> {
        let Some(twig) = read_member(self, id)? else { return Ok(()) };
        let Some(state) = columns::final_state(twig.state) else { return Ok(()) };
        if let Some(counted) = twig.counted {
            let mut tally = Tally::of(state, i64::from(counted.items));
            // It never wrote anything, and will not.
            tally.started = if twig.rev == Rev(0) { i64::from(counted.items) } else { 0 };
            self.count(now, counted, tally)?;
        }
        if !twig.branched {
            return Ok(());
        }
        let mine: Vec<Key> = self.counts.borrow().keys().filter(|key| key.0 == id).copied().collect();
        mine.into_iter().try_for_each(|key| self.settle_count(key))?;
        self.run(sql::branches::END_WATCHES, [id.as_bytes()])?;
        let made_to = state == State::Cancelled || twig.reason == Some(Reason::Expired);
        if made_to && self.run(sql::branches::CANCEL_CHILDREN, params![id.as_bytes(), now.micros()])? > 0 {
            self.move_gate(TIMERS);
        }
        Ok(())
    }

    /// A job of a branch that had ended in this state is live again.
    pub(super) fn child_lives(&self, now: Time, id: JobId, was: State) -> Result<(), Error> {
        let Some(Member { counted: Some(counted), rev, .. }) = read_member(self, id)? else { return Ok(()) };
        let items = -i64::from(counted.items);
        let mut tally = Tally::of(was, items);
        tally.started = if rev == Rev(0) { items } else { 0 };
        self.count(now, counted, tally)
    }

    /// Counts for a branch, and tells its job if that is what it waits for: the one routine for all doors.
    fn count(&self, now: Time, counted: BranchMember, tally: Tally) -> Result<(), Error> {
        let key = (counted.parent, counted.branch);
        if !self.counts.borrow().contains_key(&key) {
            let params = params![key.0.as_bytes(), key.1.0];
            let count = self.one(sql::branches::READ_COUNTS, params, |row| {
                Ok(Count { tally: self::tally(row, 0)?, watch: watch(row, 4)?, dirty: false })
            })?;
            // Its job may have been pruned.
            let Some(count) = count else { return Ok(()) };
            self.counts.borrow_mut().insert(key, count);
        }
        let met = {
            let mut counts = self.counts.borrow_mut();
            let count = counts.get_mut(&key).expect("put there above");
            count.tally.add(tally);
            count.dirty |= tally != Tally::default();
            count.watch.take_if(|watch| watch.is_met(&count.tally))
        };
        match met {
            Some(_) => self.notify(now, key),
            None => Ok(()),
        }
    }

    /// A job's watch is met: it is over, and the job is told.
    pub(super) fn notify(&self, now: Time, (job, number): Key) -> Result<(), Error> {
        self.run(sql::branches::END_WATCH, params![job.as_bytes(), number.0])?;
        signal::signal_branch(self, now, job, number)
    }

    /// Writes what was counted for one branch, and forgets what is known of it.
    fn settle_count(&self, key: Key) -> Result<(), Error> {
        let count = self.counts.borrow_mut().remove(&key);
        match count {
            Some(Count { tally, dirty: true, .. }) => self.write_count(key, tally),
            _ => Ok(()),
        }
    }

    /// The same for all branches.
    pub(super) fn settle_counts(&self) -> Result<(), Error> {
        for (key, Count { tally, dirty, .. }) in self.counts.take() {
            if dirty {
                self.write_count(key, tally)?;
            }
        }
        Ok(())
    }

    pub(super) fn write_count(&self, (job, number): Key, tally: Tally) -> Result<(), Error> {
        let Tally { started, done, failed, cancelled } = tally;
        let params = params![job.as_bytes(), number.0, started, done, failed, cancelled];
        self.run(sql::branches::WRITE_COUNTS, params)?;
        Ok(())
    }
}
