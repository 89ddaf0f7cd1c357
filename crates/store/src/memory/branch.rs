//! Branches: what is spawned in them, how it ends, and who is told.

use std::collections::HashSet;

use windlass_model::{
    BranchCounts, BranchMember, BranchNo, BranchPoll, BranchPosition, BranchUpdate, BranchWatch, StepWrites,
    branch::{BRANCH_SIGNAL, PollInterval},
    poll::{ChildRows, MAX_REDELIVERED, PollSample, Recount},
};

use super::*;
use crate::{Branch, BranchChild, BranchChildFilter, CANCEL_AGAIN, ChildPlace, ChildStates, PollReport};

/// What is kept of a branch.
#[derive(Clone, Default)]
pub(super) struct Kept {
    name: String,
    spawns: Vec<String>,
    cursor: Option<Payload>,
    sealed: bool,
    spawned: i64,
    counts: BranchCounts,
    /// What its parent wants to be told of, and which revision said so.
    watch: Option<BranchWatch>,
    goal: Option<String>,
    merged: bool,
    cut: bool,
    poll: BranchPoll,
    opened_at: Time,
    merged_at: Option<Time>,
}

impl Inner {
    /// What is wrong with what a step does to branches, if anything is.
    pub(super) fn check_branches(&self, change: &Change, step: &StepWrites) -> Option<String> {
        let promoted: u32 =
            step.promoted.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items)).sum();
        let left = self.counted(change.job).map_or(0, |counted| counted.items);
        if step.items + promoted > left {
            return Some(format!("{} items are accounted for, and {left} are left", step.items + promoted));
        }
        for grow in &step.branches {
            match (self.branches.get(&(change.job, grow.number)), &grow.opened_as) {
                (Some(_), Some(_)) => return Some(format!("there is a branch {} already", grow.number)),
                (None, None) => return Some(format!("there is no branch {}", grow.number)),
                _ => {}
            }
        }
        let opened =
            |number| step.branches.iter().any(|grow| grow.number == number && grow.opened_as.is_some());
        for twig in step.children.iter().filter_map(|child| child.branch_position.as_ref()) {
            let open = self.branches.get(&(change.job, twig.branch)).is_some_and(|kept| !kept.sealed);
            if !open && !opened(twig.branch) {
                return Some(format!("there is no open branch {}", twig.branch));
            }
        }
        None
    }

    /// What a step does to branches, beside the children it puts in.
    pub(super) fn grow(&mut self, now: Time, change: &Change, step: &StepWrites) {
        for grow in &step.branches {
            let kept = self.branches.entry((change.job, grow.number)).or_default();
            let BranchUpdate {
                opened_as: open,
                spawns,
                cursor,
                seal,
                watch,
                merge_record: goal,
                merged: merge,
                cancel_children: cut,
                ..
            } = grow;
            if let Some(name) = open {
                (kept.name, kept.opened_at) = (name.clone(), now);
            }
            if let Some(spawns) = spawns {
                kept.spawns = spawns.clone();
            }
            kept.cursor = cursor.clone().or(kept.cursor.take());
            kept.goal = goal.clone().or(kept.goal.take());
            kept.sealed |= seal;
            if let Some(watch) = watch {
                // What is cut is looked at sooner.
                kept.poll.next_at =
                    kept.poll.next_at.filter(|_| kept.cut).or(Some(now.plus(watch.poll_interval.min)));
                kept.watch = Some(watch.clone());
                // Who waits for it again has not merged it.
                (kept.merged, kept.merged_at) = (false, None);
            }
            if *merge {
                (kept.merged, kept.watch, kept.merged_at) = (true, None, Some(now));
                kept.poll.next_at = kept.poll.next_at.filter(|_| kept.cut);
            }
            if *cut {
                kept.cut = true;
                kept.poll.next_at = Some(now);
            }
            if watch.is_some() || *cut {
                *self.gates.entry(crate::TIMER_GATE.to_owned()).or_default() += 1;
            }
        }
    }

    /// The children of a step are in: they are counted, and what was there before the job watched for it is told.
    pub(super) fn spawned(&mut self, now: Time, change: &Change, step: &StepWrites, put: &[BranchPosition]) {
        for twig in put {
            let kept = self.branches.get_mut(&(change.job, twig.branch)).expect("checked before");
            kept.spawned += i64::from(twig.items);
        }
        let grown: BTreeSet<BranchNo> = step.branches.iter().map(|grow| grow.number).collect();
        for number in grown {
            self.tell_branch((change.job, number), now);
        }
    }

    /// The branch that a job's end counts for, and how many children it stands for that are not counted yet.
    pub(super) fn counted(&self, id: JobId) -> Option<BranchMember> {
        let row = &self.jobs[&id];
        let twig = row.new.branch_position.as_ref()?;
        Some(BranchMember { parent: row.new.parent?, branch: twig.branch, items: twig.items - row.tallied })
    }

    /// Counts for the branch of a job, and tells its parent if that is what it waits for.
    fn count(&mut self, counted: BranchMember, counts: BranchCounts, now: Time) {
        let branch = (counted.parent, counted.branch);
        if let Some(kept) = self.branches.get_mut(&branch) {
            kept.counts.add(counts);
            self.tell_branch(branch, now);
        }
    }

    /// A job of a branch has ended, in this state.
    pub(super) fn twig_ended(&mut self, id: JobId, state: State, now: Time) {
        let Some(counted) = self.counted(id) else { return };
        let mut counts = BranchCounts::of(state, i64::from(counted.items));
        // It never wrote anything, and will not.
        if self.jobs[&id].rev == Rev(0) {
            counts.started = i64::from(counted.items);
        }
        self.count(counted, counts, now);
    }

    /// One that had ended in this state is live again.
    pub(super) fn twig_lives(&mut self, id: JobId, was: State, now: Time) {
        let Some(counted) = self.counted(id) else { return };
        let mut counts = BranchCounts::of(was, -i64::from(counted.items));
        if self.jobs[&id].rev == Rev(0) {
            counts.started = -i64::from(counted.items);
        }
        self.count(counted, counts, now);
    }

    /// A job of a branch writes a change, which may be its first and may account for items of a block: some have ended well,
    /// and jobs of their own take the place of others.
    pub(super) fn twig_writes(&mut self, now: Time, change: &Change, limits: &Limits) {
        let Some(counted) = self.counted(change.job) else { return };
        let promoted = change.step.as_ref().map_or(&[][..], |step| &step.promoted);
        let items: u32 = promoted.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items)).sum();
        let done = change.step.as_ref().map_or(0, |step| step.items);
        let first = if change.rev == Rev(0) { i64::from(counted.items) } else { 0 };
        // What was promoted begins anew.
        let started = first - i64::from(items);
        let row = self.jobs.get_mut(&change.job).expect("claimed, so there");
        row.tallied += done;
        if let Some(twig) = &mut row.new.branch_position {
            twig.items -= items;
        }
        let parent = Some(counted.parent);
        let jobs: Vec<NewJob> =
            promoted.iter().map(|job| NewJob { parent, parent_rev: None, ..job.clone() }).collect();
        let attempted = change.step.as_ref().map_or(HashSet::new(), |step| step.attempted_jobs());
        let (tried, fresh): (Vec<NewJob>, Vec<NewJob>) =
            jobs.into_iter().partition(|job| attempted.contains(&job.id));
        self.submit(now, &fresh, None);
        self.count(counted, BranchCounts { started, done: i64::from(done), ..BranchCounts::default() }, now);
        for job in &tried {
            self.put_in(now, job, true);
        }
        for attempt in change.first_attempts() {
            self.commit(now, &attempt, limits);
        }
    }

    /// Tells a parent that one of its branches has come to what it waits for: the one routine for all doors.
    fn tell_branch(&mut self, branch: (JobId, BranchNo), now: Time) -> bool {
        let met = |kept: &Kept| kept.watch.as_ref().is_some_and(|watch| watch.is_met(&kept.counts));
        self.branches.get(&branch).is_some_and(met) && self.end_watch(branch, now)
    }

    /// Ends a watch, whether or not it is met, and tells the parent; whether there was one.
    fn end_watch(&mut self, branch: (JobId, BranchNo), now: Time) -> bool {
        let Some(kept) = self.branches.get_mut(&branch) else { return false };
        if kept.watch.take().is_none() {
            return false;
        }
        kept.poll.next_at = kept.poll.next_at.filter(|_| kept.cut);
        let (job, number) = branch;
        if let Some(row) = self.jobs.get(&job).filter(|row| row.ended.is_none()) {
            // No two are the same.
            let dedup = format!("{number}/{}", row.heard.len());
            let payload = Payload::json(number.to_string().into_bytes());
            self.record_delivery(now, job, &NewSignal { job, name: BRANCH_SIGNAL.into(), dedup, payload });
            self.wake_if_met(job, now);
        }
        true
    }

    /// A job has ended: nobody waits for its branches any more. If it was made to end, so are they.
    pub(super) fn branches_ended(&mut self, id: JobId, cut: bool, now: Time) {
        let first = BranchNo(i64::MIN);
        for (_, kept) in self.branches.range_mut((id, first)..).take_while(|((job, _), _)| *job == id) {
            kept.watch = None;
            kept.poll.next_at = kept.poll.next_at.filter(|_| kept.cut);
            if cut && !kept.merged {
                (kept.cut, kept.poll.next_at) = (true, Some(now));
                *self.gates.entry(crate::TIMER_GATE.to_owned()).or_default() += 1;
            }
        }
    }

    pub(super) fn forget_branches(&mut self, id: JobId) {
        self.branches.retain(|(job, _), _| *job != id);
    }

    pub(super) fn poll(&mut self, now: Time, limit: usize) -> PollReport {
        let mut polled = PollReport { now, ..PollReport::default() };
        let looks = self.branches.iter().filter_map(|(id, kept)| Some((kept.poll.next_at?, *id)));
        let due: BTreeSet<(Time, (JobId, BranchNo))> = looks.filter(|(at, _)| *at <= now).collect();
        for (_, branch) in due.into_iter().take(limit) {
            polled.polled += 1;
            self.look_at(branch, now, &mut polled);
        }
        polled.next_at = self.branches.values().filter_map(|kept| kept.poll.next_at).min();
        polled
    }

    fn look_at(&mut self, branch: (JobId, BranchNo), now: Time, polled: &mut PollReport) {
        let kept = &self.branches[&branch];
        let pace = kept.watch.as_ref().map_or(PollInterval::default(), |watch| watch.poll_interval);
        let before = kept.poll.clone();
        let mut poll = before.next(&self.seen(branch, now), pace);
        if before.recount_due(&poll) {
            let Recount { difference, missing } = self.recount(branch);
            polled.corrected += usize::from(difference != BranchCounts::default());
            let counted_at = Some(now);
            poll = BranchPoll { missing, counted_at, ..before.next(&self.seen(branch, now), pace) };
        }
        if before.search_due(&poll) {
            let lost = self.redeliver(branch);
            polled.redelivered += lost;
            poll.add_redelivered(lost);
        }
        let (next_at, lacks) = (poll.next_at, poll.found_missing());
        let poll = columns::poll(Some(&columns::poll_text(&poll)), next_at);
        self.branches.get_mut(&branch).expect("looked up above").poll = poll;
        let told = if lacks { self.end_watch(branch, now) } else { self.tell_branch(branch, now) };
        polled.notified += usize::from(told);
        let kept = self.branches.get_mut(&branch).expect("looked up above");
        kept.cut = kept.cut && kept.poll.pending > 0;
        kept.poll.next_at = match (kept.cut, &kept.watch) {
            (true, _) => Some(now.plus(CANCEL_AGAIN)),
            (false, Some(_)) => next_at,
            (false, None) => None,
        };
        if kept.cut {
            polled.to_cancel.push(branch);
        }
    }

    /// The jobs of a branch, with how many children each stands for that are not counted yet.
    fn leaves(&self, branch: (JobId, BranchNo)) -> impl Iterator<Item = (JobId, &Row, i64)> {
        let of = move |(id, row): (&JobId, &'_ Row)| -> Option<(JobId, i64)> {
            let twig = row.new.branch_position.as_ref()?;
            let meant = (row.new.parent?, twig.branch) == branch;
            meant.then_some((*id, i64::from(twig.items - row.tallied)))
        };
        self.jobs.iter().filter_map(move |(id, row)| {
            let (id, items) = of((id, row))?;
            Some((id, row, items))
        })
    }

    /// All that workers have claimed, and what they had.
    fn pairs(&self) -> BTreeSet<(JobId, Epoch)> {
        self.claims.values().flat_map(|claim| claim.jobs.iter().copied()).collect()
    }

    fn seen(&self, branch: (JobId, BranchNo), now: Time) -> PollSample {
        // One that is in no place looks as if it ran, and nobody has begun with it.
        let pairs = self.pairs();
        let running = self
            .leaves(branch)
            .filter(|(id, row, _)| row.ended.is_none() && pairs.contains(&(*id, row.epoch)));
        let claimed: Vec<(bool, i64)> = running.map(|(_, row, items)| (row.rev == Rev(0), items)).collect();
        let kept = &self.branches[&branch];
        PollSample {
            now,
            spawned: kept.spawned,
            counts: kept.counts,
            claimed: claimed.iter().map(|(_, items)| items).sum(),
            claimed_unstarted: claimed.iter().filter(|(first, _)| *first).map(|(_, items)| items).sum(),
        }
    }

    /// Puts children of a branch back that are in no place at all.
    fn redeliver(&mut self, branch: (JobId, BranchNo)) -> usize {
        let claimed = self.pairs();
        // What is in no other place looks as if it ran.
        let is_lost = |(id, row, _): &(JobId, &Row, i64)| {
            self.state(*id) == State::Running && !claimed.contains(&(*id, row.epoch))
        };
        let lost: Vec<JobId> =
            self.leaves(branch).filter(is_lost).map(|(id, ..)| id).take(MAX_REDELIVERED).collect();
        for id in &lost {
            self.jobs.get_mut(id).expect("listed above").epoch.0 += 1;
            self.enter(*id);
        }
        lost.len()
    }

    /// Counts the ends in a branch anew.
    fn recount(&mut self, branch: (JobId, BranchNo)) -> Recount {
        let mut rows = ChildRows::default();
        for (_, row, items) in self.leaves(branch) {
            rows.ends.done += i64::from(row.tallied);
            match row.ended {
                Some(state) => rows.ends.add(BranchCounts::of(state, items)),
                None => rows.live += items,
            }
        }
        let kept = self.branches.get_mut(&branch).expect("looked up before");
        let recount = rows.recount(kept.spawned, &kept.counts);
        kept.counts.add(recount.difference);
        recount
    }

    /// Where a job stands in a branch of its parent.
    pub(super) fn place(&self, id: JobId) -> Option<ChildPlace> {
        let row = &self.jobs[&id];
        let twig = row.new.branch_position.as_ref()?;
        let kept = self.branches.get(&(row.new.parent?, twig.branch))?;
        let spawn = usize::try_from(twig.spawn).ok().and_then(|spawn| kept.spawns.get(spawn));
        let (name, spawn) = (kept.name.clone(), spawn.cloned().unwrap_or_default());
        Some(ChildPlace { branch: twig.branch, name, spawn, item: twig.item.clone(), items: twig.items })
    }

    pub(super) fn branches(&self, job: JobId) -> Vec<Branch> {
        let all = self.branches.range((job, BranchNo(i64::MIN))..);
        let view = |((job, number), kept): (&(JobId, BranchNo), &Kept)| Branch {
            job: *job,
            number: *number,
            name: kept.name.clone(),
            spawns: kept.spawns.clone(),
            cursor: kept.cursor.clone(),
            sealed: kept.sealed,
            merged: kept.merged,
            cancels_children: kept.cut,
            spawned: kept.spawned,
            counts: kept.counts,
            watch: kept.watch.clone(),
            goal: kept.goal.clone(),
            opened_at: kept.opened_at,
            merged_at: kept.merged_at,
            poll: kept.poll.clone(),
        };
        all.take_while(|((of, _), _)| *of == job).map(view).collect()
    }

    pub(super) fn leaves_of(&self, of: &BranchChildFilter) -> Vec<BranchChild> {
        let meant = |(id, row, _): &(JobId, &Row, i64)| {
            let live = row.ended.is_none();
            let only = match of.only {
                ChildStates::All => true,
                ChildStates::Live => live,
                ChildStates::Ended => !live,
                ChildStates::Bad => !live && row.ended != Some(State::Done),
            };
            only && of.after.is_none_or(|after| *id > after)
        };
        let view = |(id, row, _): (JobId, &Row, i64)| BranchChild {
            summary: self.summary(id),
            branch_position: *row.new.branch_position.clone().expect("only jobs with one are leaves"),
            items_done: row.tallied,
            ended: self.ended(id),
            input: row.new.input.clone(),
            data: row.data.clone(),
        };
        self.leaves((of.job, of.branch)).filter(meant).take(of.limit).map(view).collect()
    }
}
