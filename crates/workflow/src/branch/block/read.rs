//! Reading a block: its items, and what those that are done returned.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use windlass_model::{Failure, JobId, Payload, failure::class};
use windlass_store::JobEnd;

use super::format::{Items, StoredProgress};
use crate::{ChildOf, JobError, codec::Codecs, output::decode_output};

/// An item of a block that was not promoted.
pub struct PackedItem {
    /// Its index among all items of the block.
    pub index: usize,
    /// Its key, or its number as text.
    pub key: String,
    /// Its input.
    pub input: Box<RawValue>,
    /// What it returned, if it is done.
    pub result: Option<Box<RawValue>>,
}

/// Returns the items of a block that were not promoted. `progress` is the block's output if the block is done, and its data
/// otherwise.
pub fn packed_items(
    input: &Payload,
    progress: Option<&Payload>,
    codecs: &Codecs,
) -> Result<Vec<PackedItem>, Failure> {
    let plain = codecs.decode(input).map_err(Failure::stop)?;
    let items = Items::read(&plain)?;
    let progress = progress.map(|progress| codecs.decode(progress)).transpose().map_err(Failure::stop)?;
    let progress: StoredProgress<'_> = match &progress {
        Some(progress) => serde_json::from_slice(progress).map_err(Failure::stop)?,
        None => StoredProgress::default(),
    };
    let item = |index: usize| {
        let (input, result) = (items.items[index].to_owned(), progress.result(index).map(ToOwned::to_owned));
        PackedItem { index, key: items.key(index), input, result }
    };
    Ok((0..items.items.len()).filter(|index| !progress.promoted.has(*index)).map(item).collect())
}

/// Returns how the items of a block ended that has ended itself, without those that were promoted.
pub(crate) fn ended<T: DeserializeOwned>(
    id: JobId,
    input: &Payload,
    data: Option<&Payload>,
    ended: JobEnd,
    codecs: &Codecs,
) -> Result<Vec<ChildOf<T>>, Failure> {
    let progress = match &ended {
        JobEnd::Done(output) => Some(output),
        _ => data,
    };
    let child = |item: PackedItem| {
        let result = match item.result {
            Some(result) => {
                serde_json::from_str(result.get()).map_err(|source| JobError::Undecodable { id, source })
            }
            None => decode_output(id, ended.clone(), codecs),
        };
        ChildOf { id, item: item.key, result }
    };
    Ok(packed_items(input, progress, codecs)?.into_iter().map(child).collect())
}

/// Returns the items that are done of a block that has not ended.
pub(crate) fn done_so_far<T: DeserializeOwned>(
    id: JobId,
    input: &Payload,
    data: Option<&Payload>,
    codecs: &Codecs,
) -> Result<Vec<ChildOf<T>>, Failure> {
    let child = |item: PackedItem| {
        let result = item.result?;
        let result =
            serde_json::from_str(result.get()).map_err(|source| JobError::Undecodable { id, source });
        Some(ChildOf { id, item: item.key, result })
    };
    Ok(packed_items(input, data, codecs)?.into_iter().filter_map(child).collect())
}

/// Returns what the items of a done block returned, without reading their inputs.
pub(crate) fn results<T: DeserializeOwned>(
    id: JobId,
    output: &Payload,
    codecs: &Codecs,
) -> Result<Vec<T>, Failure> {
    let plain = codecs.decode(output).map_err(Failure::stop)?;
    let progress: StoredProgress<'_> = serde_json::from_slice(&plain).map_err(Failure::stop)?;
    let read = |index: usize| {
        let result = progress.result(index)?;
        Some(serde_json::from_str(result.get()).map_err(|error| {
            let text = format!(
                "what an item of the block {id} returned does not decode as {} ({error})",
                std::any::type_name::<T>()
            );
            Failure::stop(text).class(class::UNDECODABLE)
        }))
    };
    (0..progress.results.len()).filter_map(read).collect()
}
