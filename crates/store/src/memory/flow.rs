//! What keeps jobs out and back: serial keys, unique names, rate limits, pauses.

use std::collections::HashSet;

use super::*;
use crate::control::outcome;
use windlass_model::{Conflict, Invalid};

impl Inner {
    pub(super) fn is_ready(&self, id: JobId) -> bool {
        let row = &self.jobs[&id];
        self.ready.contains(&(row.lane(), row.rank(), id))
    }

    pub(super) fn in_line(&self, id: JobId) -> bool {
        let row = &self.jobs[&id];
        row.serial().is_some_and(|key| self.line.contains(&(key.to_owned(), row.place, id)))
    }

    /// A job that is due enters the ready set, the line of its key, or is set aside: the one routine for all doors.
    pub(super) fn enter(&mut self, id: JobId) {
        let row = self.jobs.get_mut(&id).expect("only jobs that are there enter");
        if row.hold == Hold::Wanted {
            row.hold = Hold::Aside;
            return self.leave(id);
        }
        let Some(key) = row.serial().map(str::to_owned) else { return self.make_ready(id) };
        if self.holders.contains(&(key.clone(), id)) {
            return self.make_ready(id);
        }
        let place = row.place;
        self.line.insert((key.clone(), place, id));
        self.unsettled.insert(key);
    }

    pub(super) fn make_ready(&mut self, id: JobId) {
        let row = &self.jobs[&id];
        let place = (row.lane(), row.rank(), id);
        *self.gates.entry(row.new.queue.clone()).or_default() += 1;
        self.ready.insert(place);
    }

    /// A job gives up its slot or its place in line.
    pub(super) fn leave(&mut self, id: JobId) {
        let row = &self.jobs[&id];
        let Some(key) = row.serial().map(str::to_owned) else { return };
        self.line.remove(&(key.clone(), row.place, id));
        self.holders.remove(&(key.clone(), id));
        self.unsettled.insert(key);
    }

    /// The end of every verb: free slots go to the first in line, once all that the verb does is done.
    pub(super) fn settle_all(&mut self) {
        for key in std::mem::take(&mut self.unsettled) {
            self.settle(&key);
        }
    }

    /// Hands free slots of a key to the first in its line.
    fn settle(&mut self, key: &str) -> usize {
        let slots = self.slots.get(key).copied().unwrap_or(1) as usize;
        let mut entered = 0;
        while self.holders.iter().filter(|(of, _)| of == key).count() < slots {
            let Some(first) = self.line.iter().find(|(of, ..)| of == key).cloned() else { break };
            self.line.remove(&first);
            self.holders.insert((first.0, first.2));
            self.make_ready(first.2);
            entered += 1;
        }
        entered
    }

    pub(super) fn set_slots(&mut self, key: &str, slots: u32) {
        self.slots.insert(key.to_owned(), slots);
        self.unsettled.insert(key.to_owned());
    }

    pub(super) fn sweep(&mut self) -> usize {
        let keys: BTreeSet<String> = self.line.iter().map(|(key, ..)| key.clone()).collect();
        keys.iter().map(|key| self.settle(key)).sum()
    }

    /// Whether a submit's rate limit is there and can pay for it.
    pub(super) fn check_rate(&self, job: &NewJob) -> Result<(), Invalid> {
        let Some(charge) = &job.settings.rate else { return Ok(()) };
        match self.buckets.get(&charge.limit) {
            Some(bucket) if bucket.lifted => Ok(()),
            Some(bucket) => bucket.limit.check_weight(charge.weight),
            None => Err(columns::no_limit(&charge.limit)),
        }
    }

    /// The job that has a unique name now, if another one has.
    pub(super) fn namesake(&self, job: &NewJob, now: Time) -> Option<JobId> {
        let unique = job.settings.unique.as_ref()?;
        let id = *self.scopes.get(&(job.kind.kind.clone(), unique.key.clone()))?;
        let row = self.jobs.get(&id)?;
        let theirs = row.new.settings.unique.as_ref()?;
        (id != job.id && theirs.holds(self.state(id), row.submitted_at, now)).then_some(id)
    }

    /// Takes a unique name for a job, or says what is to be answered instead. `Ok(Some)` is the job it replaces.
    pub(super) fn take_name(&mut self, job: &NewJob, now: Time) -> Result<Option<JobId>, SubmitOutcome> {
        let Some(unique) = &job.settings.unique else { return Ok(None) };
        let there = self.namesake(job, now);
        if let Some(id) = there {
            let same_input = self.jobs[&id].new.digest == job.digest;
            let running = self.state(id) == State::Running;
            match unique.conflict {
                Conflict::Keep => return Err(SubmitOutcome::Existing { id, same_input }),
                Conflict::Reject => return Err(SubmitOutcome::Rejected { id }),
                Conflict::Replace if running => return Err(SubmitOutcome::Rejected { id }),
                Conflict::Replace | Conflict::CancelAndReplace => {
                    self.cancel(now, id, crate::columns::GRACE, &outcome::replaced(job.id));
                }
            }
        }
        self.scopes.insert((job.kind.kind.clone(), unique.key.clone()), job.id);
        Ok(there)
    }

    /// Takes the first `most` places of some lanes, by rank, as far as their rate limits pay for them. Answers the
    /// places, and when to ask again for those that wait for a limit.
    pub(super) fn take(&mut self, now: Time, wanted: &[Lane], most: usize) -> (Vec<JobId>, Option<Time>) {
        let mut ready: Vec<_> =
            self.ready.iter().filter(|(lane, ..)| wanted.contains(lane)).cloned().collect();
        ready.sort_by_key(|(_, rank, id)| (*rank, *id));
        let mut dry: HashSet<String> = HashSet::new();
        let mut refill_at: Option<Time> = None;
        let mut taken = Vec::new();
        for place in ready {
            if taken.len() == most {
                break;
            }
            let row = &self.jobs[&place.2];
            if let Some(charge) = row.new.settings.rate.clone() {
                let bucket = self.buckets.get_mut(&charge.limit).expect("checked at submit");
                bucket.level = bucket.level.refilled(&bucket.limit, now);
                if !bucket.lifted {
                    if dry.contains(&charge.limit) {
                        continue;
                    }
                    match bucket.level.charged(&bucket.limit, charge.weight) {
                        Some(level) => bucket.level = level,
                        None => {
                            let at = bucket.level.next_claim_at(&bucket.limit, charge.weight);
                            refill_at = Some(refill_at.map_or(at, |other| other.min(at)));
                            dry.insert(charge.limit);
                            continue;
                        }
                    }
                }
            }
            self.moved(place.2, Event::Claim);
            self.ready.remove(&place);
            taken.push(place.2);
        }
        (taken, refill_at)
    }
}
