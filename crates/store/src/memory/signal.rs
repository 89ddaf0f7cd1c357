//! Machines: stages, signals, waits and children.

use windlass_model::{Outcome, StepWrites, Wait, wait::CHILD_SIGNAL};

use super::*;
use crate::{ControlOutcome, control::outcome};

impl Row {
    /// A place in the journal that a step would take twice.
    pub(super) fn taken(&self, step: &StepWrites) -> Option<i32> {
        let stays = |seq: &i32| !step.continue_as_new && !step.forget_entries.contains(seq);
        let mut taken: BTreeSet<i32> = self.journal.keys().copied().filter(stays).collect();
        step.entries.iter().map(|entry| entry.seq).find(|seq| !taken.insert(*seq))
    }
}

impl Inner {
    /// Delivers a signal, and wakes the job if that completes what it waits for.
    pub(super) fn signal(&mut self, now: Time, signal: &NewSignal, most: usize) -> SignalOutcome {
        let Some(row) = self.jobs.get(&signal.job) else { return SignalOutcome::Unknown };
        if let Some(state) = row.ended {
            return SignalOutcome::Ended(state);
        }
        if row.heard.contains(&(signal.name.clone(), signal.dedup.clone())) {
            return SignalOutcome::Duplicate;
        }
        let aside = row.inbox.iter().filter(|signal| signal.unreadable.is_some()).count();
        if row.inbox.len() - aside >= most || aside >= most {
            return SignalOutcome::Full;
        }
        self.record_delivery(now, signal.job, signal);
        SignalOutcome::Delivered { woke: self.wake_if_met(signal.job, now) }
    }

    /// Puts a signal into an inbox, unless it was there before.
    pub(super) fn record_delivery(&mut self, now: Time, id: JobId, signal: &NewSignal) {
        let row = self.jobs.get_mut(&id).expect("only jobs that are there hear");
        if row.heard.insert((signal.name.clone(), signal.dedup.clone())) {
            let (name, payload) = (signal.name.clone(), signal.payload.clone());
            let number = row.heard.len() as i64;
            row.inbox.push(Signal { number, name, at: now, payload, unreadable: None });
        }
    }

    /// The signals that a worker is handed with a job: the oldest of each name it waits for, or all of the name.
    pub(super) fn shown(&self, id: JobId) -> Vec<Signal> {
        let row = &self.jobs[&id];
        let Some(wait) = &row.wait else { return Vec::new() };
        let mut seen = BTreeSet::new();
        let wanted = |signal: &&Signal| match wait.wants(&signal.name).filter(|_| signal.unreadable.is_none())
        {
            Some(every) => seen.insert(signal.name.clone()) || every,
            None => false,
        };
        row.inbox.iter().filter(wanted).cloned().collect()
    }

    /// What a step writes beside its outcome.
    pub(super) fn step(&mut self, now: Time, change: &Change, step: &StepWrites) {
        let row = self.jobs.get_mut(&change.job).expect("claimed, so there");
        if let Some((stage, data)) = &step.stage {
            row.stage = Some(stage.clone());
            if change.outcome.progresses() {
                // What was waited for before is waited for no longer.
                (row.since, row.pending) = (row.rev, 0);
            }
            row.data = Some(data.clone());
        }
        if let Some(stage) = step.from_stage.clone() {
            let next = row.stage.clone().filter(|_| !change.outcome.ends());
            let how = change.outcome.name().to_owned();
            row.steps.push(Transition { rev: row.rev, stage, next, how, at: now, worker: change.worker });
        }
        row.inbox.retain(|signal| !step.consumed.contains(&signal.number));
        for aside in &step.unreadable {
            if let Some(signal) = row.inbox.iter_mut().find(|signal| signal.number == aside.number) {
                signal.unreadable.get_or_insert_with(|| aside.why.clone());
            }
        }
        if step.continue_as_new {
            row.journal.clear();
        }
        row.journal.retain(|seq, _| !step.forget_entries.contains(seq));
        row.journal.extend(step.entries.iter().map(|entry| (entry.seq, entry.clone())));
        row.context.extend(step.context.iter().cloned());
        row.undo |= step.has_undo;
        if let Some(unwind) = &step.unwind {
            row.unwind = Some(Box::new(columns::kept_unwind(unwind)));
        }
    }

    /// Puts in the children of a step.
    pub(super) fn spawn_children(&mut self, now: Time, change: &Change) {
        let Some(step) = &change.step else { return };
        let row = &self.jobs[&change.job];
        let round = if step.signal_child_ends { Rev::SIGNALLED } else { row.rev };
        let children = step.children.iter().map(|child| NewJob {
            parent: Some(change.job),
            parent_rev: Some(round).filter(|_| child.branch_position.is_none()),
            ..child.clone()
        });
        let children: Vec<NewJob> = children.collect();
        let answers = self.submit(now, &children, None);
        let is_in = |answer: &SubmitOutcome| {
            matches!(answer, SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. })
        };
        let put = children.iter().zip(&answers).filter(|(_, answer)| is_in(answer));
        let put: Vec<_> = put.filter_map(|(child, _)| child.branch_position.as_deref().cloned()).collect();
        self.spawned(now, change, step, &put);
    }

    /// A job has got further: its counters start anew, unless it stands where it stood.
    pub(super) fn progress(&mut self, change: &Change) {
        let row = self.jobs.get_mut(&change.job).expect("claimed, so there");
        (row.deaths, row.crashes, row.suspect) = (0, 0, false);
        // One that halts lets others pass, and no more than that.
        let goes_on = change.outcome == Outcome::Next && row.hold != Hold::Wanted;
        if change.step.as_ref().is_some_and(|step| step.partial) {
            row.run += u32::from(goes_on);
            return;
        }
        let unchanged = change.step.as_ref().is_some_and(|step| step.unchanged);
        row.attempts = if unchanged { row.attempts + 1 } else { 0 };
        row.spent = Vec::new();
        (row.wait, row.until) = (None, None);
        let rests =
            matches!(&change.outcome, Outcome::Wait(wait) if wait.condition != WaitCondition::Nothing);
        let moved = goes_on || change.step.as_ref().is_some_and(|step| step.stage.is_some());
        row.run = match (moved, rests) {
            (false, _) => row.run,
            (true, true) => 0,
            (true, false) => row.run + 1,
        };
    }

    /// Ends the claim of a job that goes on later.
    pub(super) fn yield_slot(&mut self, id: JobId, now: Time) {
        let row = self.jobs.get_mut(&id).expect("claimed, so there");
        row.epoch.0 += 1;
        row.due_at = now;
        self.enter(id);
    }

    pub(super) fn park(&mut self, id: JobId, wait: &Wait, now: Time) {
        if wait.condition == WaitCondition::Nothing {
            return self.yield_slot(id, now);
        }
        let row = self.jobs.get_mut(&id).expect("claimed, so there");
        row.epoch.0 += 1;
        row.parked = true;
        row.wait = Some(wait.condition.clone());
        row.until = wait.timeout.map(|timeout| now.plus(timeout));
        row.due_at = row.until.unwrap_or(now);
        let keeps = row.new.settings.serial.as_ref().is_some_and(|serial| serial.keeps_slot);
        if let Some(at) = row.until {
            self.set_timer(at, id, Timer::Wake);
        }
        // What was there before the wait ends it at once: then the job has not let go of its key.
        if !self.wake_if_met(id, now) && !keeps {
            self.leave(id);
        }
    }

    /// Wakes a parked job that has what it waits for: the one routine for all doors.
    pub(super) fn wake_if_met(&mut self, id: JobId, now: Time) -> bool {
        let row = &self.jobs[&id];
        let there = row.inbox.iter().filter(|signal| signal.unreadable.is_none());
        let names = there.map(|signal| signal.name.as_str());
        let met = row.parked && row.wait.as_ref().is_some_and(|wait| wait.is_met(names, row.pending));
        if met {
            self.moved(id, Event::Wake);
            let row = self.jobs.get_mut(&id).expect("looked up before");
            self.timers.remove(&(row.due_at, id, Timer::Wake));
            row.parked = false;
            row.due_at = now;
            self.enter(id);
        }
        met
    }

    /// Takes a signal out of an inbox for good, or puts one back that was set aside.
    pub(super) fn act_on_signal(
        &mut self,
        now: Time,
        id: JobId,
        number: i64,
        restores: bool,
    ) -> ControlOutcome {
        let runs = self.state(id) == State::Running;
        let inbox = &mut self.jobs.get_mut(&id).expect("looked up before").inbox;
        let Some(place) = inbox.iter().position(|signal| signal.number == number) else {
            return outcome::no_signal(number);
        };
        match (restores, inbox[place].unreadable.is_some()) {
            (true, false) => return outcome::signal_is_readable(),
            (false, false) if runs => return outcome::signal_in_use(),
            (true, true) => inbox[place].unreadable = None,
            (false, _) => drop(inbox.remove(place)),
        }
        if restores {
            self.wake_if_met(id, now);
        }
        ControlOutcome::Done
    }

    /// The parent whose wait a child counts for, as long as it is in the stage that waits for it.
    fn waiting_parent(&mut self, id: JobId) -> Option<(JobId, &mut Row)> {
        let (parent, round) = (self.jobs[&id].new.parent?, self.jobs[&id].new.parent_rev?);
        let row = self.jobs.get_mut(&parent)?;
        (row.since == round).then_some((parent, row))
    }

    /// A child that was put in, or is live again, counts for the wait of its parent.
    pub(super) fn child_lives(&mut self, id: JobId) {
        if let Some((_, row)) = self.waiting_parent(id) {
            row.pending += 1;
        }
    }

    /// Its end counts too.
    pub(super) fn child_ended(&mut self, id: JobId, now: Time) {
        if let Some((parent, row)) = self.waiting_parent(id) {
            row.pending -= 1;
            self.wake_if_met(parent, now);
        }
        self.signal_parent(id, now);
    }

    /// A parent that asked for it is told of the end of a child.
    fn signal_parent(&mut self, id: JobId, now: Time) {
        let row = &self.jobs[&id];
        let Some(parent) = row.new.parent.filter(|_| row.new.parent_rev == Some(Rev::SIGNALLED)) else {
            return;
        };
        if self.jobs.get(&parent).is_some_and(|row| row.ended.is_none()) {
            let dedup = format!("{id}/{}", row.epoch.0);
            let payload = Payload::json(format!("\"{id}\"").into_bytes());
            self.record_delivery(
                now,
                parent,
                &NewSignal { job: parent, name: CHILD_SIGNAL.into(), dedup, payload },
            );
            self.wake_if_met(parent, now);
        }
    }

    pub(super) fn sweep_waits(&mut self, now: Time) -> usize {
        let parked: Vec<JobId> = self.jobs.iter().filter(|(_, row)| row.parked).map(|(id, _)| *id).collect();
        parked.into_iter().filter(|id| self.wake_if_met(*id, now)).count()
    }
}
