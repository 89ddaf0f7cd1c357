//! Promoting: items of a running block become jobs, or smaller blocks, that the next commit submits in their place.

use serde_json::value::RawValue;
use windlass_model::{BranchPosition, JobId, NewJob, Payload};

use super::{BLOCK, format::Items, run::RunningBlock};

/// The number of blocks that a block is split into: with 10, three splits find one item in a
/// thousand.
const PARTS: usize = 10;

impl RunningBlock<'_> {
    /// Returns the id of an item, which the job has that the item becomes if it is promoted.
    fn item_id(&self, index: usize) -> JobId {
        JobId::of_item(self.member.parent, self.member.branch, self.items.spawn, &self.items.key(index))
    }

    /// Makes an item a job of its own.
    pub(super) fn promote_item(&mut self, index: usize) -> JobId {
        let (id, position) = (self.item_id(index), self.position(index, 1));
        let input = Payload::json(self.items.items[index].get().as_bytes().to_vec());
        self.promoted.push(self.new_job(id, position, input));
        self.progress.promoted.set(index);
        id
    }

    /// Makes items a block of their own.
    pub(super) fn promote_to_block(&mut self, indexes: &[usize]) {
        let [first, ..] = indexes else { return };
        let items: Vec<&RawValue> = indexes.iter().map(|index| self.items.items[*index]).collect();
        let keys = indexes.iter().map(|index| self.items.key(*index)).collect();
        let position = self.position(*first, items.len() as u32);
        let items = Items { spawn: position.spawn, first: 0, items, keys: Some(keys) };
        let input = Payload::json(serde_json::to_vec(&items).unwrap_or_default());
        let job = self.new_job(self.services.ids.job(), position, input);
        self.promoted.push(NewJob { stage: Some(BLOCK.into()), ..job });
        indexes.iter().for_each(|index| self.progress.promoted.set(*index));
    }

    /// Splits the open items into smaller blocks. Workers died while they ran this block, and nothing but this block: splitting it
    /// finds the item that kills them.
    pub(super) fn split(&mut self, open: &[usize]) {
        for part in open.chunks(open.len().div_ceil(PARTS)) {
            self.promote_to_block(part);
        }
    }

    fn position(&self, index: usize, items: u32) -> BranchPosition {
        let (branch, spawn) = (self.member.branch, self.items.spawn);
        BranchPosition { branch, spawn, item: self.items.key(index), items }
    }

    fn new_job(&self, id: JobId, position: BranchPosition, input: Payload) -> NewJob {
        let kind = &self.attempt.job.kind;
        let job = NewJob::new(id, &kind.kind, self.attempt.writer.queue(), input);
        NewJob { kind: kind.clone(), branch_position: Some(Box::new(position)), ..job }
    }
}
