//! What the store keeps of a block: its items as its input, their progress as its data and its output.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_model::{Failure, failure::class};

/// The items of a block: its input.
#[derive(Serialize, Deserialize)]
pub(super) struct Items<'a> {
    /// Which spawn of the branch they come from.
    pub(super) spawn: i16,
    /// The number of the first one.
    #[serde(default)]
    pub(super) first: u64,
    #[serde(borrow)]
    pub(super) items: Vec<&'a RawValue>,
    /// Their keys; `None` if they are numbered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) keys: Option<Vec<String>>,
}

impl<'a> Items<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Items<'a>, Failure> {
        serde_json::from_slice(bytes).map_err(|error| {
            Failure::stop(format!("the items of the block cannot be read ({error})"))
                .class(class::UNDECODABLE)
        })
    }

    /// Returns the key of an item, or its number as text.
    pub(super) fn key(&self, index: usize) -> String {
        match &self.keys {
            Some(keys) => keys.get(index).cloned().unwrap_or_default(),
            None => (self.first + index as u64).to_string(),
        }
    }
}

/// How far a block is: its data between two commits, and its output.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct Progress {
    /// The items that are done.
    pub(super) done: Bits,
    /// The items that were promoted.
    #[serde(rename = "moved")]
    pub(super) promoted: Bits,
    /// What each item returned that is done; null for the others.
    pub(super) results: Vec<Option<Box<RawValue>>>,
}

/// The same, borrowed by readers of the results.
#[derive(Deserialize, Default)]
pub(super) struct StoredProgress<'a> {
    done: Bits,
    #[serde(rename = "moved")]
    pub(super) promoted: Bits,
    #[serde(borrow)]
    pub(super) results: Vec<Option<&'a RawValue>>,
}

impl<'a> StoredProgress<'a> {
    /// Returns what an item returned, if it is done. A null result deserializes as `None`, so only `done` tells.
    pub(super) fn result(&self, index: usize) -> Option<&'a RawValue> {
        let result = self.results.get(index).copied().flatten();
        self.done.has(index).then(|| result.unwrap_or(RawValue::NULL))
    }
}

/// One bit per item, written as hexadecimal digits.
#[derive(Clone, Default)]
pub(super) struct Bits(Vec<u8>);

impl Bits {
    pub(super) fn set(&mut self, index: usize) {
        if self.0.len() <= index / 8 {
            self.0.resize(index / 8 + 1, 0);
        }
        self.0[index / 8] |= 1 << (index % 8);
    }

    pub(super) fn has(&self, index: usize) -> bool {
        self.0.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }
}

impl Serialize for Bits {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Bits, D::Error> {
        let text = String::deserialize(from)?;
        let byte = |start: usize| u8::from_str_radix(text.get(start..start + 2).unwrap_or("x"), 16);
        let bytes = (0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>();
        bytes.map(Bits).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_result_of_a_done_item_is_a_result() {
        let stored = r#"{"done":"05","moved":"02","results":[null,null,7,null]}"#;
        let progress: StoredProgress<'_> = serde_json::from_str(stored).expect("read");
        let results: Vec<_> = (0..4).map(|index| progress.result(index).map(RawValue::get)).collect();
        assert_eq!(results, [Some("null"), None, Some("7"), None]);
        assert!(progress.promoted.has(1) && !progress.promoted.has(0));
        let owned: Progress = serde_json::from_str(stored).expect("read");
        assert_eq!(serde_json::to_string(&owned).expect("written"), stored);
    }

    #[test]
    fn bits_that_are_not_hexadecimal_are_refused() {
        assert!(serde_json::from_str::<Bits>(r#""0""#).is_err());
        assert!(serde_json::from_str::<Bits>(r#""zz""#).is_err());
    }
}
