//! Making jobs ready: into the ready set, to the jobs that wait for a serial key, or held. One routine for all verbs.

use super::*;

impl Inner {
    pub(super) fn waits_for_serial_key(&self, id: JobId) -> bool {
        let row = self.row(id);
        let waits = |key: &str| self.serial_waiting.contains(&(key.to_owned(), row.serial_position, id));
        row.serial_key().is_some_and(waits)
    }

    /// Makes a job that is due ready, has it wait for its serial key, or holds it.
    pub(super) fn enter(&mut self, id: JobId) {
        let row = self.row_mut(id);
        if row.hold == Hold::Pending {
            row.hold = Hold::Held;
            return self.leave_serial_key(id);
        }
        let position = row.serial_position;
        let Some(key) = row.serial_key().map(str::to_owned) else { return self.make_ready(id) };
        if self.slot_holders.contains(&(key.clone(), id)) {
            return self.make_ready(id);
        }
        self.serial_waiting.insert((key.clone(), position, id));
        self.unsettled.insert(key);
    }

    /// Adds a job to the ready set, and moves its queue's gate.
    pub(super) fn make_ready(&mut self, id: JobId) {
        let key = self.row(id).ready_key();
        self.bump_gate(&key.0.queue);
        self.ready.insert(key);
    }

    /// Gives up a job's slot, or its position among those that wait.
    pub(super) fn leave_serial_key(&mut self, id: JobId) {
        let row = self.row(id);
        let Some(key) = row.serial_key().map(str::to_owned) else { return };
        let waiting = (key.clone(), row.serial_position, id);
        self.serial_waiting.remove(&waiting);
        self.slot_holders.remove(&(key.clone(), id));
        self.unsettled.insert(key);
    }

    /// Gives free slots of all changed keys to the first jobs that wait for them.
    pub(super) fn fill_serial_slots(&mut self) {
        for key in std::mem::take(&mut self.unsettled) {
            self.fill_slots(&key);
        }
    }

    /// Gives free slots of a key to the first jobs that wait for it. Returns how many jobs became ready.
    fn fill_slots(&mut self, key: &str) -> usize {
        let slots = self.serial_slots.get(key).copied().unwrap_or(1) as usize;
        let mut entered = 0;
        while self.slot_holders.iter().filter(|(of, _)| of == key).count() < slots {
            let Some(first) = self.serial_waiting.iter().find(|(of, ..)| of == key).cloned() else { break };
            self.serial_waiting.remove(&first);
            self.slot_holders.insert((first.0, first.2));
            self.make_ready(first.2);
            entered += 1;
        }
        entered
    }

    pub(super) fn set_slots(&mut self, key: &str, slots: u32) {
        self.serial_slots.insert(key.to_owned(), slots);
        self.unsettled.insert(key.to_owned());
    }

    /// Fills slots that were left free. Returns how many jobs became ready.
    pub(super) fn repair_serial_keys(&mut self) -> usize {
        let keys: BTreeSet<String> = self.serial_waiting.iter().map(|(key, ..)| key.clone()).collect();
        keys.iter().map(|key| self.fill_slots(key)).sum()
    }
}
