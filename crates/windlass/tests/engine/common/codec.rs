//! A codec for tests.

use windlass::Codec;

/// Reverses the bytes.
pub(crate) struct Reversed;

impl Codec for Reversed {
    fn id(&self) -> u8 {
        77
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(plain.iter().rev().copied().collect()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.iter().rev().copied().collect())
    }
}
