//! The verbs themselves, on plain maps.

use windlass_model::{ClaimedJob, Outcome, When, crash, failure::class};

use super::*;

impl Inner {
    pub(super) fn enlist(&mut self, now: Time, new: &NewWorker) -> bool {
        if self.workers.contains_key(&new.id) {
            return false;
        }
        let week = std::time::Duration::from_secs(7 * 86_400);
        self.workers.retain(|_, worker| worker.life != Life::Gone || worker.lease_until >= now.minus(week));
        let lease_until = now.plus(new.lease);
        let (name, beacon, serves) = (new.name.clone(), new.liveness_file.clone(), new.serves.clone());
        let worker = Worker { name, beacon, lease_until, life: Life::Alive, serves };
        self.workers.insert(new.id, worker);
        true
    }

    pub(super) fn submit(
        &mut self,
        now: Time,
        jobs: &[NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Vec<SubmitOutcome> {
        // Told whatever the lease: a claim that the worker does not know of would wait for its death.
        let before: Vec<JobId> = born
            .and_then(|b| self.claims.get(&(b.worker, b.number)))
            .map(|claim| claim.jobs.iter().map(|(id, _)| *id).collect())
            .unwrap_or_default();
        let born = born.filter(|b| self.workers.get(&b.worker).is_some_and(|w| w.serves(now)));
        self.queues.extend(jobs.iter().map(|job| job.queue.clone()));
        for serial in jobs.iter().filter_map(|job| job.settings.serial.as_ref()) {
            match serial.slots {
                Some(slots) => self.set_slots(&serial.key, slots),
                None => _ = self.slots.entry(serial.key.clone()).or_insert(1),
            }
        }
        let mut taken = Vec::new();
        let mut seen = BTreeSet::new();
        let answers = jobs
            .iter()
            .map(|job| {
                let first = seen.insert(job.id);
                if let Some(row) = self.jobs.get(&job.id) {
                    return match row.new.digest == job.digest {
                        true if first && before.contains(&job.id) => {
                            SubmitOutcome::New { claimed: Some(Epoch(0)) }
                        }
                        true => SubmitOutcome::Repeated,
                        false => SubmitOutcome::IdTaken,
                    };
                }
                let key = job.key.as_ref().map(|key| (job.kind.kind.clone(), key.clone()));
                if let Some(id) = key.as_ref().and_then(|key| self.keys.get(key)) {
                    return SubmitOutcome::Existing {
                        id: *id,
                        same_input: self.jobs[id].new.digest == job.digest,
                    };
                }
                let replaced = match self.take_name(job, now) {
                    Ok(replaced) => replaced,
                    Err(answer) => return answer,
                };
                if let Some(key) = key {
                    self.keys.insert(key, job.id);
                }
                let born =
                    born.is_some() && !job.needs_slow_path() && !self.queue_pauses.contains_key(&job.queue);
                let claimed = self.put_in(now, job, born);
                for signal in &job.signals {
                    self.record_delivery(now, job.id, signal);
                }
                taken.extend(claimed.map(|epoch| (job.id, epoch)));
                match replaced {
                    Some(id) => SubmitOutcome::Replaced { id },
                    None => SubmitOutcome::New { claimed },
                }
            })
            .collect();
        if let Some(born) = born.filter(|_| !taken.is_empty()) {
            let claim = Claim { jobs: taken, alone: false, claimed_at: now };
            self.claims.insert((born.worker, born.number), claim);
        }
        answers
    }

    /// Puts a job in; one that is born claimed goes into no place.
    pub(super) fn put_in(&mut self, now: Time, job: &NewJob, born: bool) -> Option<Epoch> {
        let due_at = match job.when {
            When::Now => now,
            When::After(delay) => now.plus(delay),
            When::At(at) => at.max(now),
        };
        let row = Row {
            new: job.clone(),
            ended: None,
            reason: None,
            failure: None,
            output: None,
            epoch: Epoch(0),
            rev: Rev(0),
            rev_epoch: Epoch(-1),
            rev_claim: ClaimNo(0),
            attempts: 0,
            spent: Vec::new(),
            deaths: 0,
            crashes: 0,
            suspect: false,
            hold: Hold::None,
            place: due_at,
            worker: None,
            submitted_at: now,
            due_at,
            started_at: None,
            finished_at: None,
            history: Vec::new(),
            stage: job.stage.clone(),
            since: Rev(0),
            run: 0,
            data: None,
            wait: None,
            until: None,
            parked: false,
            pending: 0,
            steps: Vec::new(),
            inbox: Vec::new(),
            heard: BTreeSet::new(),
            journal: BTreeMap::new(),
            context: BTreeMap::new(),
            undo: false,
            unwind: None,
            tallied: 0,
        };
        self.jobs.insert(job.id, row);
        self.child_lives(job.id);
        if let Some(at) = job.deadline_at {
            self.set_timer(at, job.id, Timer::Deadline);
        }
        if due_at > now {
            self.set_timer(due_at, job.id, Timer::Wake);
        } else if born {
            return Some(Epoch(0));
        } else {
            self.enter(job.id);
        }
        None
    }

    pub(super) fn claim(&mut self, now: Time, ask: &ClaimRequest) -> Result<ClaimBatch, Error> {
        if !ask.kinds.is_empty() {
            self.queues.insert(ask.queue.clone());
        }
        match self.workers.get(&ask.worker) {
            Some(worker) if worker.life != Life::Alive => return Err(Error::Dead),
            Some(worker) if worker.lease_until <= now => return Err(lease_ran_out()),
            Some(_) => {}
            None => return Err(Error::Dead),
        }
        self.settle_claims(ask.worker, &ask.settled);
        let limits: Vec<Option<String>> =
            std::iter::once(None).chain(self.buckets.keys().cloned().map(Some)).collect();
        let lanes = |alone: bool| {
            let lane = |k: &windlass_model::KindVersion, limit: &Option<String>| {
                (ask.queue.clone(), k.kind.clone(), k.version, limit.clone(), alone)
            };
            ask.kinds
                .iter()
                .flat_map(|k| limits.iter().map(move |limit| lane(k, limit)))
                .collect::<Vec<Lane>>()
        };
        let number = (ask.worker, ask.number);
        let mut refill_at = None;
        let pairs = match self.claims.get(&number) {
            Some(claim) => claim.jobs.iter().copied().filter(|pair| self.is_claimed(*pair)).collect(),
            None if self.queue_pauses.contains_key(&ask.queue) => Vec::new(),
            None => {
                let most = if ask.solo { 1 } else { ask.limit };
                let (taken, refill) = self.take(now, &lanes(ask.solo), most);
                refill_at = refill;
                let pairs: Vec<_> = taken.into_iter().map(|id| (id, self.jobs[&id].epoch)).collect();
                if !pairs.is_empty() {
                    let claim = Claim { jobs: pairs.clone(), alone: ask.solo, claimed_at: now };
                    self.claims.insert(number, claim);
                }
                pairs
            }
        };
        let waiting = lanes(true);
        let suspects = !self.queue_pauses.contains_key(&ask.queue)
            && self.ready.iter().any(|(lane, ..)| waiting.contains(lane));
        let limit = if ask.solo { 1 } else { ask.limit };
        let more = limit > 0 && pairs.len() >= limit;
        let jobs = pairs.into_iter().map(|(id, _)| self.claimed(id, ask.number)).collect();
        Ok(ClaimBatch { jobs, more, suspects, refill_at, now })
    }

    /// Forgets claims of which nothing is left.
    fn settle_claims(&mut self, worker: WorkerId, numbers: &[ClaimNo]) {
        for number in numbers.iter().map(|number| (worker, *number)) {
            let claim = self.claims.get(&number);
            if claim.is_some_and(|claim| claim.jobs.iter().all(|pair| !self.is_claimed(*pair))) {
                self.claims.remove(&number);
            }
        }
    }

    fn claimed(&self, id: JobId, claim: ClaimNo) -> ClaimedJob {
        let row = &self.jobs[&id];
        ClaimedJob {
            id,
            kind: row.new.kind.clone(),
            claim,
            epoch: row.epoch,
            rev: row.rev,
            attempts: row.attempts,
            retry_counts: row.spent.clone(),
            worker_deaths: row.deaths,
            key: row.new.key.clone(),
            due_at: row.due_at,
            deadline_at: row.new.deadline_at,
            settings: row.new.settings.clone(),
            input: row.new.input.clone(),
            parent: row.new.parent.filter(|_| row.new.parent_rev.is_some()),
            branch_member: self.counted(id),
            stage: row.stage.clone(),
            stage_rev: row.since,
            steps_since_wait: row.run,
            data: row.data.clone(),
            wait: row.wait.clone(),
            wait_until: row.until,
            pending_children: row.pending,
            inbox: self.shown(id),
            unwind: row.unwind.clone(),
            fault: None,
        }
    }

    pub(super) fn commit(&mut self, now: Time, change: &Change, limits: &Limits) -> CommitOutcome {
        let children = || change.step.iter().flat_map(|step| step.children.iter().chain(&step.promoted));
        let rates = || children().try_for_each(|job| self.check_rate(job));
        let refused = limits.check_change(change).and_then(|()| rates());
        if let Err(invalid) = refused {
            return CommitOutcome::Refused(invalid.to_string());
        }
        // Known from now on, whatever becomes of the change.
        self.queues.extend(children().map(|job| job.queue.clone()));
        let Some(row) = self.jobs.get(&change.job) else { return CommitOutcome::Fenced };
        let wrote = (row.rev_epoch, row.worker, row.rev_claim);
        if row.rev.0 == change.rev.0 + 1 && wrote == (change.epoch, Some(change.worker), change.claim) {
            match (change.outcome == Outcome::Next, self.is_claimed((change.job, change.epoch))) {
                (true, false) => return CommitOutcome::Halted,
                // What its claim wrote was another change: this one would have ended the claim.
                (false, true) => return CommitOutcome::Fenced,
                _ => return CommitOutcome::Committed,
            }
        }
        // A claim that the store does not know was lost with what came after a backup, or before a standby had it.
        let known = self.claims.contains_key(&(change.worker, change.claim));
        if row.rev != change.rev || !known || !self.is_claimed((change.job, change.epoch)) {
            return CommitOutcome::Fenced;
        }
        if let Some(seq) = change.step.as_ref().and_then(|step| row.taken(step)) {
            return CommitOutcome::Refused(format!("there is an entry {seq} in the journal already"));
        }
        if let Some(why) = change.step.as_ref().and_then(|step| self.check_branches(change, step)) {
            return CommitOutcome::Refused(why);
        }
        if change.step.as_ref().is_some_and(|step| step.unwind.is_some()) {
            self.release_holds(change.job);
        }
        let row = self.jobs.get_mut(&change.job).expect("claimed, so there");
        row.rev.0 += 1;
        (row.rev_epoch, row.rev_claim) = (change.epoch, change.claim);
        row.worker = Some(change.worker);
        row.started_at = Some(change.started_at);
        row.attempts += u32::from(change.outcome.counts_as_attempt());
        let halted = change.outcome == Outcome::Next && row.hold == Hold::Wanted;
        let event = if halted { Event::Yield } else { change.outcome.event() };
        let to = self.moved(change.job, event);
        if let Some(step) = &change.step {
            self.step(now, change, step);
            self.grow(now, change, step);
        }
        self.twig_writes(now, change, limits);
        // The names of a job that ends are free for its children.
        if !change.outcome.ends() {
            self.spawn_children(now, change);
        }
        if let Some(failure) = change.outcome.failure() {
            self.note(change.job, change.worker, change.epoch, change.started_at, now, failure);
        }
        match &change.outcome {
            Outcome::Done(output) => {
                self.jobs.get_mut(&change.job).expect("found above").output = Some(output.clone());
                self.end(change.job, to, None, None, now);
            }
            Outcome::Failed { reason, .. } => self.end(change.job, to, Some(*reason), None, now),
            Outcome::Cancelled(_) => self.end(change.job, to, None, None, now),
            Outcome::Next if halted => {
                self.progress(change);
                self.yield_slot(change.job, now);
                return CommitOutcome::Halted;
            }
            Outcome::Next => self.progress(change),
            Outcome::Wait(wait) => {
                self.progress(change);
                self.park(change.job, wait, now);
            }
            Outcome::Retry { after, retry_counts: spent, .. } => {
                let row = self.jobs.get_mut(&change.job).expect("found above");
                row.epoch.0 += 1;
                row.spent = spent.clone();
                row.suspect = false;
                row.due_at = now.plus(*after);
                if row.due_at > now {
                    let at = row.due_at;
                    let holds = row.new.settings.serial.as_ref().is_some_and(|serial| serial.keeps_slot);
                    self.set_timer(at, change.job, Timer::Wake);
                    if !holds {
                        self.leave(change.job);
                    }
                } else {
                    self.enter(change.job);
                }
            }
        }
        if change.outcome.ends() {
            self.spawn_children(now, change);
        }
        CommitOutcome::Committed
    }

    pub(super) fn renew(&mut self, now: Time, beat: &RenewRequest) -> Renewal {
        self.settle_claims(beat.worker, &beat.settled);
        for number in &beat.solo_ended {
            if let Some(claim) = self.claims.get_mut(&(beat.worker, *number)) {
                claim.alone = false;
            }
        }
        let Some(worker) = self.workers.get_mut(&beat.worker).filter(|w| w.life == Life::Alive) else {
            return Renewal::Lost;
        };
        worker.lease_until = now.plus(beat.lease);
        let lapsed = self.workers.values().any(|w| match w.life {
            Life::Alive => w.lease_until <= now,
            Life::Dead => true,
            Life::Gone => false,
        });
        let claims =
            self.claims.keys().filter(|(w, _)| *w == beat.worker).map(|(_, number)| *number).collect();
        Renewal::Held { lapsed, claims }
    }

    pub(super) fn reap(&mut self, now: Time, sweep: &ReapRequest) -> ReapReport {
        let mut reaped = ReapReport::default();
        for (id, worker) in self.workers.iter_mut().filter(|(_, w)| w.life == Life::Alive) {
            if sweep.dead.contains(id) || (sweep.lapsed && worker.lease_until <= now) {
                worker.life = Life::Dead;
                reaped.workers.push(*id);
            }
        }
        let of_dead = |inner: &Inner, worker: &WorkerId| {
            inner.workers.get(worker).is_some_and(|w| w.life == Life::Dead)
        };
        let numbers: Vec<_> =
            self.claims.keys().copied().filter(|(w, _)| of_dead(self, w)).take(sweep.limit).collect();
        for number in numbers {
            let claim = self.claims.remove(&number).expect("listed above");
            for pair in claim.jobs {
                if self.is_claimed(pair) {
                    self.return_lost(
                        now,
                        pair.0,
                        number.0,
                        claim.alone,
                        claim.claimed_at,
                        sweep.crashes,
                        &mut reaped,
                    );
                }
            }
        }
        reaped.more = self.claims.keys().any(|(w, _)| of_dead(self, w));
        let busy: BTreeSet<WorkerId> = self.claims.keys().map(|(w, _)| *w).collect();
        for (id, worker) in &mut self.workers {
            if worker.life == Life::Dead && !busy.contains(id) {
                worker.life = Life::Gone;
            }
        }
        reaped
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, and each is a fact about the death")]
    fn return_lost(
        &mut self,
        now: Time,
        id: JobId,
        worker: WorkerId,
        alone: bool,
        claimed_at: Time,
        cap: u16,
        reaped: &mut ReapReport,
    ) {
        let row = &self.jobs[&id];
        let epoch = row.epoch;
        let fate = crash::after_death(row.deaths, row.crashes, alone, cap);
        self.note(id, worker, epoch, claimed_at, now, &lost(worker, alone));
        match fate {
            crash::AfterDeath::Suspect { worker_deaths: deaths, solo_crashes: crashes } => {
                self.moved(id, Event::Reap);
                let row = self.jobs.get_mut(&id).expect("looked up above");
                (row.deaths, row.crashes, row.suspect) = (deaths, crashes, true);
                row.epoch.0 += 1;
                self.enter(id);
                reaped.returned += 1;
            }
            crash::AfterDeath::Poison { worker_deaths: deaths, solo_crashes: crashes } => {
                let row = self.jobs.get_mut(&id).expect("looked up above");
                (row.deaths, row.crashes) = (deaths, crashes);
                let unwind = Unwind { reason: Some(Reason::Poison), failure: lost(worker, alone) };
                self.end_from_outside(id, Event::Poison, unwind, now);
                reaped.poisoned += 1;
            }
        }
    }

    pub(super) fn release(&mut self, jobs: &[JobClaim]) -> usize {
        let known = |held: &&JobClaim| self.claims.contains_key(&(held.worker, held.claim));
        let pairs: Vec<_> = jobs.iter().filter(known).map(|held| (held.job, held.epoch)).collect();
        self.hand_back(&pairs)
    }

    fn hand_back(&mut self, pairs: &[(JobId, Epoch)]) -> usize {
        let mut released = 0;
        for pair in pairs {
            if self.is_claimed(*pair) {
                self.moved(pair.0, Event::Release);
                self.jobs.get_mut(&pair.0).expect("claimed, so there").epoch.0 += 1;
                self.enter(pair.0);
                released += 1;
            }
        }
        released
    }

    pub(super) fn retire(&mut self, worker: WorkerId) -> usize {
        match self.workers.get_mut(&worker) {
            Some(w) if w.life == Life::Alive => w.life = Life::Gone,
            _ => return 0,
        }
        let numbers: Vec<_> = self.claims.keys().copied().filter(|(w, _)| *w == worker).collect();
        numbers.into_iter().map(|number| self.disown(number)).sum()
    }

    pub(super) fn disown(&mut self, number: (WorkerId, ClaimNo)) -> usize {
        self.claims.remove(&number).map_or(0, |claim| self.hand_back(&claim.jobs))
    }

    pub(super) fn due(&mut self, now: Time, limit: usize) -> TimerReport {
        let mut due = TimerReport { now, ..TimerReport::default() };
        let fired: Vec<_> =
            self.timers.iter().copied().take_while(|(at, ..)| *at <= now).take(limit).collect();
        for timer in fired {
            // An expiry earlier in this batch may have taken the job's other timer with it.
            if !self.timers.contains(&timer) {
                continue;
            }
            match timer {
                (_, id, Timer::Wake) => {
                    self.moved(id, Event::Due);
                    self.timers.remove(&timer);
                    self.jobs.get_mut(&id).expect("has a timer, so is there").parked = false;
                    self.enter(id);
                    due.woken += 1;
                }
                (at, id, Timer::Deadline) => {
                    let unwind = Unwind { reason: Some(Reason::Expired), failure: expired(at) };
                    self.end_from_outside(id, Event::Expire, unwind, now);
                    due.expired += 1;
                }
                (_, id, Timer::Cancel) => {
                    let unwind = Unwind { reason: None, failure: self.asked[&id].order.actor.failure() };
                    self.end_from_outside(id, Event::Cancel, unwind, now);
                    due.cancelled += 1;
                }
            }
        }
        due.fired = self.fire(now);
        let timer = self.timers.first().map(|(at, ..)| *at);
        let waiting = self.schedules.values().filter(|kept| kept.paused.is_none());
        due.next_at = waiting.filter_map(|kept| kept.next_at).chain(timer).min();
        due
    }

    pub(super) fn ended(&self, id: JobId) -> Option<JobEnd> {
        let Some(row) = self.jobs.get(&id) else { return Some(JobEnd::Gone) };
        JobEnd::from_parts(row.ended?, row.reason, row.failure.clone(), row.output.clone())
    }
}

impl Worker {
    fn serves(&self, now: Time) -> bool {
        self.life == Life::Alive && self.lease_until > now
    }
}

/// What is kept in the history of a job whose worker died.
pub(crate) fn lost(worker: WorkerId, alone: bool) -> Failure {
    let message = match alone {
        true => format!("worker {worker} was lost while it ran this job alone"),
        false => format!("worker {worker} was lost with this job among its claims"),
    };
    Failure::retry(message).class(class::LOST)
}

/// What is kept as the error of a job whose deadline passed.
pub(crate) fn expired(at: Time) -> Failure {
    Failure::stop(format!("the deadline {at} passed before the job had ended")).class(class::EXPIRED)
}

/// What a claim answers while the lease has run out but the worker was not declared dead.
pub(crate) fn lease_ran_out() -> Error {
    Error::Unavailable("this worker's lease has run out; it must renew before it claims".into())
}
