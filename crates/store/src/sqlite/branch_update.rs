//! What steps do to branches of their jobs: they are opened, filled, sealed, watched and merged.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rusqlite::params;
use windlass_model::{
    BranchMember, BranchNo, BranchUpdate, Change, NewJob, Rev, Step, SubmitOutcome, Tally, Time,
};

use super::{
    branch::read_member,
    consequences,
    rate::Buckets,
    sql,
    submit::{put, put_unplaced},
    tx::{TIMERS, Tx},
};
use crate::{Error, columns};

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
        change.first_attempts().try_for_each(|attempt| consequences::first(self, now, &attempt))
    }
}
