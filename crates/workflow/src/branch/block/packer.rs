//! Packing: fills blocks with the items of a source, in their order.

use std::borrow::Cow;

use windlass_env::IdSource;
use windlass_model::{
    BranchNo, BranchPosition, Failure, KindVersion, NewJob, Payload, When, branch::MAX_BLOCK_ITEMS,
    failure::class,
};

use super::BLOCK;
use crate::child::PackableChild;

/// The error for a child that cannot be packed.
pub(crate) fn unpackable(kind: &str) -> Failure {
    let text = format!(
        "a child of kind {kind:?} cannot be packed: packed children are plain tasks without settings of their own (but their \
         queue). Leave out `.packed()`, or its settings"
    );
    Failure::stop(text).class(class::REFUSED)
}

/// Packs items into blocks, in their order.
pub(crate) struct Packer {
    spawn: i16,
    when: When,
    /// The most bytes of inputs in one block.
    max_bytes: usize,
    open: Option<OpenBlock>,
    blocks: Vec<NewJob>,
}

/// A block that is being filled.
struct OpenBlock {
    kind: KindVersion,
    queue: Cow<'static, str>,
    first: u64,
    /// The JSON between the brackets of the list of items.
    items: Vec<u8>,
    /// Where in there the last item begins.
    last: usize,
    keys: Vec<String>,
    count: u32,
    bytes: usize,
}

impl Packer {
    pub(crate) fn new(spawn: i16, when: When, max_bytes: usize) -> Packer {
        Packer { spawn, when, max_bytes, open: None, blocks: Vec::new() }
    }

    /// Adds an item. `number` is its number in the source, which is its name if it has no key.
    pub(crate) fn push(
        &mut self,
        item: PackableChild,
        key: Option<String>,
        number: u64,
        ids: &IdSource,
    ) -> Result<(), String> {
        let input = item.input?;
        let max_bytes = self.max_bytes;
        if input.len() > max_bytes {
            return Err(format!(
                "an item of {} bytes is too long to be packed, more than {max_bytes}; keep large data elsewhere and pass a reference",
                input.len()
            ));
        }
        let bytes = input.len() + key.as_ref().map_or(0, String::len);
        let fits = self.open.as_ref().is_some_and(|open| {
            (open.count as usize) < MAX_BLOCK_ITEMS
                && open.bytes + bytes <= max_bytes
                && open.kind.kind == item.kind
                && open.kind.version == item.version
                && open.queue == item.queue
        });
        if !fits {
            self.close(ids);
        }
        let open = self.open.get_or_insert_with(|| OpenBlock {
            kind: KindVersion { kind: item.kind.to_owned(), version: item.version },
            queue: item.queue,
            first: number,
            items: Vec::with_capacity(input.len() * 64),
            last: 0,
            keys: Vec::new(),
            count: 0,
            bytes: 0,
        });
        open.bytes += bytes + 4;
        if open.count > 0 {
            open.items.push(b',');
        }
        open.last = open.items.len();
        open.items.extend_from_slice(&input);
        open.keys.extend(key);
        open.count += 1;
        Ok(())
    }

    /// Returns the digest of the last item, as a job of its own would have it.
    pub(crate) fn last_digest(&self) -> Option<[u8; 16]> {
        let open = self.open.as_ref()?;
        let input = Payload::json(open.items[open.last..].to_vec());
        Some(windlass_model::job::digest(&open.kind.kind, &input))
    }

    /// Returns the blocks.
    pub(crate) fn finish(mut self, ids: &IdSource) -> Vec<NewJob> {
        self.close(ids);
        self.blocks
    }

    fn close(&mut self, ids: &IdSource) {
        let Some(OpenBlock { kind, queue, first, items, keys, count, .. }) = self.open.take() else { return };
        let item = keys.first().cloned().unwrap_or_else(|| first.to_string());
        let position = BranchPosition { branch: BranchNo(0), spawn: self.spawn, item, items: count };
        let mut input = format!("{{\"spawn\":{},\"first\":{first},\"items\":[", self.spawn).into_bytes();
        input.extend_from_slice(&items);
        input.push(b']');
        if !keys.is_empty() {
            input.extend_from_slice(b",\"keys\":");
            input.extend(serde_json::to_vec(&keys).unwrap_or_default());
        }
        input.push(b'}');
        let job = NewJob::new(ids.job(), &kind.kind, &queue, Payload::json(input));
        let (stage, branch_position) = (Some(BLOCK.into()), Some(Box::new(position)));
        self.blocks.push(NewJob { kind, stage, branch_position, when: self.when, ..job });
    }
}
