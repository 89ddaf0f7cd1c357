//! Reads for people: what keeps jobs from running, and the rules behind that.

use super::*;
use crate::{
    CancelHold, Holds, LimitView, QueueView, RateHold, SerialHold, SerialView, UnreadableSignalView, Waiting,
};

/// How many jobs before a job are counted at most.
const MAX_AHEAD: usize = 1_000;

/// How many jobs that wait for a rule are counted at most.
const MAX_WAITING: usize = 10_000;

/// How many holders of a serial key are shown.
const HOLDERS_SHOWN: usize = 10;

impl Inner {
    /// What keeps a live job from running.
    pub(super) fn holds(&self, now: Time, id: JobId) -> Option<Holds> {
        let row = self.jobs.get(&id).filter(|row| row.is_live())?;
        let cancel_requested = self.pending_cancels.get(&id).map(|pending| CancelHold {
            deadline_at: pending.request.deadline_at,
            author: pending.request.actor.author.clone(),
            note: pending.request.actor.note.clone(),
        });
        Some(Holds {
            arriving: false,
            paused: self.pauses.get(&id).cloned(),
            queue_paused: self.queue_pauses.get(&row.new.queue).cloned(),
            cancel_requested,
            serial: row.serial_key().map(|key| self.serial_hold(key, row)),
            rate: self.rate_hold(now, row),
            waiting: row.waiting(),
            suspect: row.suspect,
            ahead: self.ahead(row),
        })
    }

    /// How many jobs of its lane are before a job in the ready set.
    fn ahead(&self, row: &Row) -> u64 {
        let key = row.ready_key();
        if !self.ready.contains(&key) {
            return 0;
        }
        self.ready.range(..&key).filter(|(lane, ..)| *lane == key.0).take(MAX_AHEAD).count() as u64
    }

    fn serial_hold(&self, key: &str, row: &Row) -> SerialHold {
        let id = row.new.id;
        let is_ahead =
            |(of, at, job): &&(String, Time, JobId)| of == key && (*at, *job) < (row.serial_position, id);
        let ahead = match self.waits_for_serial_key(id) {
            true => self.serial_waiting.iter().filter(is_ahead).take(MAX_AHEAD).count() as u64,
            false => 0,
        };
        let holders = self.slot_holders.iter().filter(|(of, _)| of == key).map(|(_, job)| *job);
        SerialHold {
            key: key.to_owned(),
            slots: self.serial_slots.get(key).copied().unwrap_or(1),
            held: self.slot_holders.contains(&(key.to_owned(), id)),
            holders: holders.take(HOLDERS_SHOWN).collect(),
            hidden_holders: 0,
            ahead,
        }
    }

    fn rate_hold(&self, now: Time, row: &Row) -> Option<RateHold> {
        let charge = row.new.settings.rate.as_ref()?;
        let bucket = self.buckets.get(&charge.limit)?;
        let level = bucket.level.refilled(&bucket.limit, now);
        let affordable_at =
            if bucket.lifted { now } else { level.affordable_at(&bucket.limit, charge.weight) };
        let limit = (!bucket.lifted).then(|| bucket.limit.clone());
        Some(RateHold { limit, name: charge.limit.clone(), weight: charge.weight, affordable_at })
    }

    pub(super) fn queues(&self) -> Vec<QueueView> {
        // The set is sorted: the first job of each lane is the one that is claimed next.
        let mut first: BTreeMap<&Lane, JobId> = BTreeMap::new();
        for (lane, _, id) in &self.ready {
            first.entry(lane).or_insert(*id);
        }
        let oldest_ready = |name: &String| {
            let of_queue = first.iter().filter(|(lane, _)| lane.queue == *name);
            of_queue.map(|(_, id)| self.row(*id).due_at).min()
        };
        let view = |name: &String| QueueView {
            name: name.clone(),
            paused: self.queue_pauses.get(name).cloned(),
            oldest_ready: oldest_ready(name),
        };
        self.queues.iter().map(view).collect()
    }

    pub(super) fn rate_limits(&self, now: Time) -> Vec<LimitView> {
        let waiting = |name: &String| {
            let lanes = self.ready.iter().map(|(lane, ..)| lane);
            lanes.filter(|lane| lane.limit.as_ref() == Some(name)).take(MAX_WAITING).count() as u64
        };
        let view = |bucket: &Bucket| LimitView {
            limit: bucket.limit.clone(),
            lifted: bucket.lifted,
            tokens: bucket.level.refilled(&bucket.limit, now).tokens(&bucket.limit),
            waiting: waiting(&bucket.limit.name),
        };
        self.buckets.values().map(view).collect()
    }

    pub(super) fn serial_keys(&self, key: Option<&str>, limit: usize) -> Vec<SerialView> {
        let view = |(name, slots): (&String, &u32)| SerialView {
            key: name.clone(),
            slots: *slots,
            held: self.slot_holders.iter().filter(|(of, _)| of == name).count() as u64,
            waiting: self.serial_waiting.iter().filter(|(of, ..)| of == name).take(MAX_WAITING).count()
                as u64,
        };
        let is_wanted = |view: &SerialView| match key {
            Some(key) => view.key == key,
            None => view.held + view.waiting > 0,
        };
        self.serial_slots.iter().map(view).filter(is_wanted).take(limit).collect()
    }
}

impl Row {
    /// What a parked job waits for, and what of it has arrived.
    fn waiting(&self) -> Option<Waiting> {
        let condition = self.wait.clone().filter(|_| self.parked)?;
        let arrived: BTreeSet<String> = self.readable_signals().map(|signal| signal.name.clone()).collect();
        let unreadable = self.inbox.iter().filter_map(UnreadableSignalView::of);
        Some(Waiting {
            condition,
            since: self.parked_at,
            wait_until: self.wait_until,
            arrived: arrived.into_iter().collect(),
            pending_children: self.pending_children,
            unreadable: unreadable.take(columns::UNREADABLE_SHOWN as usize).collect(),
        })
    }
}
