//! Durations as people write and read them: `15s`, `500ms`, `1h30m`, `3m ago`.

use std::time::Duration;

pub(crate) use windlass::operate::text::{duration as format, relative};

const UNITS: [(&str, u64); 7] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
];

/// Parses a duration like `15s`, `500ms`, `2m` or `1h30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration; write it as 15s, 500ms, 2m, 1h30m or 7d");
    let mut rest = text.trim();
    let mut micros = 0f64;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(|| {
            format!("{text:?} has no unit; write the duration as {text}s, {text}ms or {text}m")
        })?;
        let (count, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let count: f64 = count.parse().map_err(|_| invalid())?;
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        micros += count * *size as f64;
        rest = tail.trim_start();
    }
    // Two centuries: a longer one is a mistake, and would overflow a `Time`.
    if micros > 6.4e15 {
        return Err(format!("{text:?} is too long; the longest duration is about 200 years"));
    }
    Ok(Duration::from_micros(micros.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_people_write_them() {
        let parsed = |text| parse(text).map(|duration| duration.as_millis());
        assert_eq!(parsed("15s"), Ok(15_000));
        assert_eq!(parsed("500ms"), Ok(500));
        assert_eq!(parsed("2m"), Ok(120_000));
        assert_eq!(parsed("1h30m"), Ok(5_400_000));
        assert_eq!(parsed("0.5s"), Ok(500));
        assert!(parsed("15").unwrap_err().contains("no unit"));
        assert!(parsed("soon").unwrap_err().contains("15s, 500ms"));
        assert!(
            parsed("").is_err()
                && parsed("s").is_err()
                && parsed("-3s").is_err()
                && parsed("9999999w").is_err()
        );
    }
}
