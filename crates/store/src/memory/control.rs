//! What people do to work that is there.

use std::time::Duration;

use super::*;
use crate::{
    AdminAction, Control, ControlOutcome, Fork, JobAction, Prune, Pruned, StageUpdate,
    control::{check_actor, outcome},
};

impl Inner {
    fn log(&mut self, now: Time, action: &str, subject: &str, by: &Actor) {
        let number = self.audit.len() as i64 + 1;
        let (author, note) = (by.author.clone(), by.note.clone());
        let (action, subject) = (action.to_owned(), subject.to_owned());
        self.audit.push(AuditEntry { number, at: now, author, action, subject, note });
    }

    fn act(&mut self, now: Time, id: JobId, act: JobAction, by: &Actor) -> ControlOutcome {
        if !self.jobs.contains_key(&id) {
            return ControlOutcome::Unknown;
        }
        let did = match act {
            JobAction::Cancel { grace } => self.cancel(now, id, grace, by),
            JobAction::Pause => self.pause(now, id, by),
            JobAction::Resume => self.resume(id),
            JobAction::Retry => self.revive(now, id),
            JobAction::Priority(priority) => self.reprioritise(id, priority),
            JobAction::DropSignal(number) => self.act_on_signal(now, id, number, false),
            JobAction::RestoreSignal(number) => self.act_on_signal(now, id, number, true),
        };
        if matches!(did, ControlOutcome::Done | ControlOutcome::CancelRequested) {
            self.log(now, &columns::action(act), &id.to_string(), by);
        }
        did
    }

    pub(super) fn cancel(&mut self, now: Time, id: JobId, grace: Duration, by: &Actor) -> ControlOutcome {
        match self.state(id) {
            state if state.is_final() => return outcome::ended(state),
            State::Running => {}
            _ => {
                let unwind = Unwind { reason: None, failure: by.failure() };
                let ended = self.end_from_outside(id, Event::Cancel, unwind, now);
                return if ended { ControlOutcome::Done } else { ControlOutcome::CancelRequested };
            }
        }
        if self.asked.contains_key(&id) {
            return outcome::cancel_requested_before();
        }
        let row = self.jobs.get_mut(&id).expect("looked up before");
        row.hold = Hold::Wanted;
        let pair = (id, row.epoch);
        let worker = self.claims.iter().find(|(_, claim)| claim.jobs.contains(&pair)).map(|((w, _), _)| *w);
        let deadline_at = now.plus(grace);
        let order = CancelRequest { job: id, epoch: pair.1, deadline_at, actor: by.clone() };
        self.asked.insert(id, Asked { order, worker: worker.unwrap_or(WorkerId(0)) });
        self.set_timer(deadline_at, id, Timer::Cancel);
        *self.gates.entry(CANCEL_GATE.to_owned()).or_default() += 1;
        ControlOutcome::CancelRequested
    }

    fn pause(&mut self, now: Time, id: JobId, by: &Actor) -> ControlOutcome {
        let state = self.state(id);
        if state.is_final() {
            return outcome::cannot("pause", state);
        }
        if self.asked.contains_key(&id) {
            return outcome::being_cancelled();
        }
        if let Some(pause) = self.pauses.get(&id) {
            return ControlOutcome::Already(format!("it was paused by {} before", pause.author));
        }
        let pause = Pause { at: now, author: by.author.clone(), note: by.note.clone() };
        self.pauses.insert(id, pause);
        let row = &self.jobs[&id];
        let place = (row.lane(), row.rank(), id);
        let waits = state == State::Ready;
        if waits {
            self.ready.remove(&place);
            self.leave(id);
        }
        self.jobs.get_mut(&id).expect("looked up before").hold =
            if waits { Hold::Aside } else { Hold::Wanted };
        ControlOutcome::Done
    }

    fn resume(&mut self, id: JobId) -> ControlOutcome {
        if self.pauses.remove(&id).is_none() {
            return ControlOutcome::Already("it is not paused".into());
        }
        let asked = self.asked.contains_key(&id);
        let row = self.jobs.get_mut(&id).expect("looked up before");
        match row.hold {
            _ if asked => {}
            Hold::Aside => {
                row.hold = Hold::None;
                self.enter(id);
            }
            _ => row.hold = Hold::None,
        }
        ControlOutcome::Done
    }

    fn revive(&mut self, now: Time, id: JobId) -> ControlOutcome {
        match self.state(id) {
            State::Done => return outcome::retry_done(),
            state if !state.is_final() => return outcome::retry_live(state),
            _ => {}
        }
        let new = self.jobs[&id].new.clone();
        if let Some(other) = self.namesake(&new, now) {
            return outcome::name_taken(other);
        }
        if let Some(unique) = &new.settings.unique {
            self.scopes.insert((new.kind.kind.clone(), unique.key.clone()), id);
        }
        let was = self.state(id);
        self.moved(id, Event::Revive);
        let row = self.jobs.get_mut(&id).expect("looked up before");
        (row.ended, row.reason, row.finished_at) = (None, None, None);
        (row.attempts, row.deaths, row.crashes, row.suspect, row.run) = (0, 0, 0, false, 0);
        row.spent = Vec::new();
        row.unwind = None;
        row.epoch.0 += 1;
        (row.due_at, row.place) = (now, now);
        let deadline = row.new.deadline_at.map(|at| now.plus(at.since(row.submitted_at)));
        row.new.deadline_at = deadline;
        if let Some(at) = deadline {
            self.set_timer(at, id, Timer::Deadline);
        }
        self.child_lives(id);
        self.twig_lives(id, was, now);
        self.enter(id);
        ControlOutcome::Done
    }

    fn restate(&mut self, now: Time, restate: &StageUpdate, by: &Actor) -> ControlOutcome {
        let id = restate.job;
        if !self.jobs.contains_key(&id) {
            return ControlOutcome::Unknown;
        }
        match self.state(id) {
            State::Done => return outcome::update_done(),
            State::Running => return outcome::update_running(),
            _ => {}
        }
        let ready = self.is_ready(id);
        let row = self.jobs.get_mut(&id).expect("looked up before");
        if (row.epoch, row.rev) != (restate.epoch, restate.rev) {
            return outcome::update_moved();
        }
        let place = (row.lane(), row.rank(), id);
        row.new.kind.version = restate.version;
        row.epoch.0 += 1;
        row.stage = Some(restate.stage.clone());
        row.data = Some(restate.data.clone());
        self.ready.remove(&place);
        if ready {
            self.make_ready(id);
        }
        self.log(now, &columns::stage_update_action(restate), &id.to_string(), by);
        ControlOutcome::Done
    }

    fn fork(&mut self, now: Time, fork: &Fork, by: &Actor) -> ControlOutcome {
        let Some(row) = self.jobs.get(&fork.from) else { return ControlOutcome::Unknown };
        if self.jobs.contains_key(&fork.id) {
            return ControlOutcome::Created(fork.id);
        }
        let kept: BTreeMap<i32, JournalEntry> =
            row.journal.range(..fork.before).map(|(seq, entry)| (*seq, entry.clone())).collect();
        let last = row.journal.last_key_value().map(|(seq, _)| *seq);
        if !row.journal.contains_key(&fork.before) && !fork.is_whole(last) {
            return outcome::fork_nowhere(fork.before);
        }
        if let Some(key) = &fork.key
            && let Some(other) = self.keys.get(&(row.new.kind.kind.clone(), key.clone()))
        {
            return outcome::fork_key_taken(key, *other);
        }
        let (undo, stage, data) = (row.undo, row.stage.clone(), row.data.clone());
        let new = fork.job(&row.new);
        self.submit(now, &[new], None);
        let row = self.jobs.get_mut(&fork.id).expect("just put in");
        (row.undo, row.stage, row.data, row.rev) = (undo, stage, data, Rev(1));
        row.journal = kept;
        row.journal.insert(fork.before, fork.entry(now));
        self.log(now, &columns::fork_action(fork), &fork.from.to_string(), by);
        ControlOutcome::Created(fork.id)
    }

    fn reprioritise(&mut self, id: JobId, priority: i16) -> ControlOutcome {
        let state = self.state(id);
        if state.is_final() {
            return outcome::cannot("reorder", state);
        }
        let ready = self.is_ready(id);
        let row = &self.jobs[&id];
        if row.new.priority == priority {
            return ControlOutcome::Already(format!("its priority is {priority}"));
        }
        let place = (row.lane(), row.rank(), id);
        self.ready.remove(&place);
        self.jobs.get_mut(&id).expect("looked up before").new.priority = priority;
        if ready {
            self.make_ready(id);
        }
        ControlOutcome::Done
    }

    fn rule(&mut self, now: Time, rule: &AdminAction, by: &Actor) -> Result<ControlOutcome, Error> {
        let did = match rule {
            AdminAction::PauseQueue(queue) => match self.queue_pauses.get(queue) {
                Some(pause) => ControlOutcome::Already(format!("it was paused by {} before", pause.author)),
                None => {
                    let pause = Pause { at: now, author: by.author.clone(), note: by.note.clone() };
                    self.queues.insert(queue.clone());
                    self.queue_pauses.insert(queue.clone(), pause);
                    ControlOutcome::Done
                }
            },
            AdminAction::ResumeQueue(queue) => match self.queue_pauses.remove(queue) {
                Some(_) => {
                    *self.gates.entry(queue.clone()).or_default() += 1;
                    ControlOutcome::Done
                }
                None => ControlOutcome::Already("it is not paused".into()),
            },
            AdminAction::Limit(limit)
                if self.buckets.get(&limit.name).is_some_and(|old| old.limit == *limit && !old.lifted) =>
            {
                ControlOutcome::Already("it is so already".into())
            }
            AdminAction::Limit(limit) => {
                let level = match self.buckets.get(&limit.name) {
                    Some(old) => old.level.converted(&old.limit, limit, now),
                    None => BucketLevel::full(limit, now),
                };
                let bucket = Bucket { limit: limit.clone(), lifted: false, level };
                self.buckets.insert(limit.name.clone(), bucket);
                self.limit_moved(&limit.name);
                ControlOutcome::Done
            }
            AdminAction::Lift(name) => match self.buckets.get_mut(name) {
                None => ControlOutcome::Unknown,
                Some(bucket) if bucket.lifted => ControlOutcome::Already("it is lifted".into()),
                Some(bucket) => {
                    bucket.lifted = true;
                    self.limit_moved(name);
                    ControlOutcome::Done
                }
            },
            AdminAction::Slots { key, slots } => {
                self.set_slots(key, *slots);
                ControlOutcome::Done
            }
            AdminAction::Schedule(schedule) => {
                self.check_rate(&schedule.job(now))?;
                self.put_schedule(now, schedule)
            }
            AdminAction::DropSchedule(name) => match self.schedules.remove(name) {
                Some(_) => ControlOutcome::Done,
                None => ControlOutcome::Unknown,
            },
            AdminAction::PauseSchedule(name) => self.pause_schedule(now, name, Some(by)),
            AdminAction::ResumeSchedule(name) => self.pause_schedule(now, name, None),
            AdminAction::Trigger(name) => self.trigger(now, name),
        };
        if matches!(did, ControlOutcome::Done | ControlOutcome::Created(_)) {
            let (action, subject) = columns::admin_action(rule);
            self.log(now, &action, &subject, by);
        }
        Ok(did)
    }

    /// What waits for a limit may go on: the gates of its queues move.
    fn limit_moved(&mut self, name: &str) {
        let of_limit = |(lane, ..): &&(Lane, i64, JobId)| lane.3.as_deref() == Some(name);
        let queues: BTreeSet<String> =
            self.ready.iter().filter(of_limit).map(|(lane, ..)| lane.0.clone()).collect();
        for queue in queues {
            *self.gates.entry(queue).or_default() += 1;
        }
    }

    pub(super) fn prune(&mut self, now: Time, prune: &Prune) -> Pruned {
        let mut pruned = Pruned::default();
        if prune.state == State::Done {
            for kept in self.schedules.values_mut() {
                kept.firings.retain(|tick, _| *tick >= prune.before);
                kept.misses.retain(|miss| miss.at >= prune.before || miss.missed.to >= prune.before);
            }
        }
        let after = |id: &JobId| prune.after.is_none_or(|after| *id > after);
        let looked: Vec<JobId> = self.jobs.keys().copied().filter(after).take(prune.limit.max(1)).collect();
        pruned.after = looked.last().copied().filter(|_| looked.len() == prune.limit.max(1));
        for id in looked {
            let row = &self.jobs[&id];
            let old = row.ended == Some(prune.state)
                && row.finished_at.is_some_and(|at| at < prune.before)
                && prune.kind.as_ref().is_none_or(|kind| *kind == row.new.kind.kind);
            if !old {
                continue;
            }
            let parent = row.new.parent.and_then(|parent| self.jobs.get(&parent));
            // One that is not done may read it, now or when it is retried.
            let needed = parent.is_some_and(|parent| parent.ended != Some(State::Done));
            if needed || self.has_name(id, now) {
                pruned.kept += 1;
                continue;
            }
            self.keys.retain(|_, job| *job != id);
            self.scopes.retain(|_, job| *job != id);
            self.jobs.remove(&id);
            self.forget_branches(id);
            pruned.jobs += 1;
        }
        pruned
    }

    /// Whether a job has its unique name still.
    fn has_name(&self, id: JobId, now: Time) -> bool {
        let row = &self.jobs[&id];
        let Some(unique) = &row.new.settings.unique else { return false };
        self.scopes.get(&(row.new.kind.kind.clone(), unique.key.clone())) == Some(&id)
            && unique.holds(self.state(id), row.submitted_at, now)
    }
}

impl Control for Memory {
    fn act_on_jobs<'a>(
        &'a self,
        now: Now,
        jobs: &'a [JobId],
        act: JobAction,
        by: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        self.run(now, |inner, now| {
            check_actor(by)?;
            columns::check_act(act)?;
            Ok(jobs.iter().map(|id| inner.act(now, *id, act, by)).collect())
        })
    }

    fn administer<'a>(&'a self, now: Now, rule: &'a AdminAction, by: &'a Actor) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_actor(by)?;
            columns::check_admin(rule, &self.limits)?;
            inner.rule(now, rule, by)
        })
    }

    fn update_stages<'a>(
        &'a self,
        now: Now,
        jobs: &'a [StageUpdate],
        by: &'a Actor,
    ) -> Fut<'a, Vec<ControlOutcome>> {
        self.run(now, |inner, now| {
            check_actor(by)?;
            jobs.iter().try_for_each(|restate| columns::check_stage_update(restate, &self.limits))?;
            Ok(jobs.iter().map(|restate| inner.restate(now, restate, by)).collect())
        })
    }

    fn fork<'a>(&'a self, now: Now, forks: &'a [Fork], by: &'a Actor) -> Fut<'a, Vec<ControlOutcome>> {
        self.run(now, |inner, now| {
            check_actor(by)?;
            forks.iter().try_for_each(Fork::check)?;
            Ok(forks.iter().map(|fork| inner.fork(now, fork, by)).collect())
        })
    }

    fn record_audit<'a>(&'a self, now: Now, action: &'a str, subject: &'a str, by: &'a Actor) -> Fut<'a, ()> {
        self.run(now, |inner, now| {
            check_actor(by)?;
            inner.log(now, action, subject, by);
            Ok(())
        })
    }
}
