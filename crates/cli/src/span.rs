//! Spans of time as people write and read them: `15s`, `500ms`, `1h30m`, `3m ago`.

use std::time::Duration;

use windlass::Time;

const UNITS: [(&str, u64); 7] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
];

/// Reads a span like `15s`, `500ms`, `2m` or `1h30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a span of time; write one as 15s, 500ms, 2m, 1h30m or 7d");
    let mut rest = text.trim();
    let mut micros = 0f64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(|| {
            format!("{text:?} has no unit; write a span of time as {text}s, {text}ms or {text}m")
        })?;
        let (count, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let count: f64 = count.parse().map_err(|_| wrong())?;
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        micros += count * *size as f64;
        rest = tail.trim_start();
    }
    // Two centuries; what is longer is a mistake, and would not fit elsewhere.
    if micros > 6.4e15 {
        return Err(format!("{text:?} is longer than can be waited for"));
    }
    Ok(Duration::from_micros(micros.round() as u64))
}

/// A span for people: two digits are enough for anyone.
pub(crate) fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.is_zero() => "0s".to_owned(),
        0 if span.as_millis() == 0 => format!("{}us", span.as_micros()),
        0 => format!("{}ms", span.as_millis()),
        1..10 if span.subsec_millis() >= 50 => format!("{:.1}s", span.as_secs_f64()),
        1..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long before or after `now` a moment is.
pub(crate) fn relative(at: Time, now: Time) -> String {
    if at > now {
        return format!("in {}", show(at.since(now)));
    }
    let since = now.since(at);
    if since < Duration::from_secs(1) {
        "just now".to_owned()
    } else {
        format!("{} ago", show(trimmed(since)))
    }
}

/// Ages are told in whole seconds.
fn trimmed(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        let read = |text| parse(text).map(|span| span.as_millis());
        assert_eq!(read("15s"), Ok(15_000));
        assert_eq!(read("500ms"), Ok(500));
        assert_eq!(read("2m"), Ok(120_000));
        assert_eq!(read("1h30m"), Ok(5_400_000));
        assert_eq!(read("0.5s"), Ok(500));
        assert!(read("15").unwrap_err().contains("no unit"));
        assert!(read("soon").unwrap_err().contains("15s, 500ms"));
        assert!(read("").is_err() && read("s").is_err() && read("-3s").is_err() && read("9999999w").is_err());
    }

    #[test]
    fn ages_are_short() {
        let now = Time(1_800_000_000_000_000);
        let ago = |seconds| relative(now.minus(Duration::from_secs(seconds)), now);
        assert_eq!(
            [0, 3, 90, 180, 86_400 * 3].map(ago),
            ["just now", "3s ago", "90s ago", "3m ago", "3d ago"]
        );
        assert_eq!(relative(now.plus(Duration::from_secs(600)), now), "in 10m");
    }
}
