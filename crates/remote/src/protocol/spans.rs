//! Durations, as whole milliseconds. A part of a millisecond counts as a whole one, so that nothing positive becomes zero.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Millis(pub Duration);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(self.0.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
        Ok(Millis(Duration::from_millis(u64::deserialize(from)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_millisecond_are_rounded_up() {
        let text = |span| serde_json::to_string(&Millis(span)).expect("a number");
        assert_eq!(text(Duration::ZERO), "0");
        assert_eq!(text(Duration::from_micros(1)), "1");
        assert_eq!(text(Duration::from_millis(1_500)), "1500");
        assert_eq!(text(Duration::MAX), u64::MAX.to_string());
        assert!(serde_json::from_str::<Millis>(&u64::MAX.to_string()).is_ok());
        assert!(serde_json::from_str::<Millis>("-1").is_err());
    }
}
