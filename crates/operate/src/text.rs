//! Numbers, durations and sizes as people read them.

use std::time::Duration;

use windlass_model::{Progress, Time};
use windlass_store::Pause;

/// A number with commas between thousands.
pub fn thousands(number: u64) -> String {
    match number {
        ..1_000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1_000), number % 1_000),
    }
}

/// A number with the singular or the plural of what it counts.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}

/// A number of jobs: "1 job", "2,000 jobs".
pub fn jobs(number: u64) -> String {
    counted(number, "job", "jobs")
}

/// A duration in one unit: `15s`, `3m`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0s".to_owned(),
        0 if duration.as_millis() == 0 => format!("{}us", duration.as_micros()),
        0 => format!("{}ms", duration.as_millis()),
        1..10 if duration.subsec_millis() >= 50 => format!("{:.1}s", duration.as_secs_f64()),
        1..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A span of a setting, exact to the second, as it is written there: `1h`, `1h30m`, `10m`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [(seconds / 3_600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let parts: String =
        units.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if parts.is_empty() { duration(span) } else { parts }
}

/// How long before or after `now` a time is: `3m ago`, `in 10m`.
pub fn relative(at: Time, now: Time) -> String {
    if at > now {
        return format!("in {}", duration(at - now));
    }
    let since = now - at;
    if since < Duration::from_secs(1) {
        "just now".to_owned()
    } else {
        format!("{} ago", duration(Duration::from_secs(since.as_secs())))
    }
}

/// A size in bytes, KiB, MiB or GiB.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Who paused something, when and why.
pub fn paused_by(pause: &Pause, now: Time) -> String {
    let note = pause.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("by {} {}{note}", pause.author, relative(pause.at, now))
}

/// How far an attempt has come, and when it said so: `412 of 5,000 (8 %), page 3, 4s ago`.
pub fn progress(progress: &Progress, now: Time) -> String {
    let done = match (progress.total, progress.percent()) {
        (Some(total), Some(percent)) => {
            format!("{} of {} ({percent:.0} %)", thousands(progress.done), thousands(total))
        }
        _ => thousands(progress.done),
    };
    let step = progress.step.as_ref().map(|step| format!("step {step}"));
    let note = Some(progress.note.clone()).filter(|note| !note.is_empty());
    let parts = [step, Some(done), note, Some(relative(progress.at, now))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Units of durations, in microseconds.
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
pub fn parse_duration(text: &str) -> Result<Duration, String> {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn progress_reads_as_a_share_a_note_and_an_age() {
        let now = Time(1_800_000_000_000_000);
        let at = now - Duration::from_secs(4);
        let report = Progress::new(412, Some(5_000), "page 3", at);
        assert_eq!(progress(&report, now), "412 of 5,000 (8 %), page 3, 4s ago");
        let open_ended = Progress { step: Some("fetch".into()), ..Progress::new(1_200, None, "", now) };
        assert_eq!(progress(&open_ended, now), "step fetch, 1,200, just now");
    }

    #[test]
    fn ages_are_short() {
        let now = Time(1_800_000_000_000_000);
        let ago = |seconds| relative(now - Duration::from_secs(seconds), now);
        assert_eq!(
            [0, 3, 90, 180, 86_400 * 3].map(ago),
            ["just now", "3s ago", "90s ago", "3m ago", "3d ago"]
        );
        assert_eq!(relative(now + Duration::from_secs(600), now), "in 10m");
    }

    #[test]
    fn spans_of_settings_are_exact() {
        let seconds = [0, 45, 90, 600, 3_600, 5_400, 86_400];
        let spans = seconds.map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["0s", "45s", "1m30s", "10m", "1h", "1h30m", "24h"]);
        assert_eq!(span(Duration::from_millis(250)), "250ms");
    }

    #[test]
    fn numbers_have_commas_and_sizes_a_unit() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "child", "children"), jobs(2_000)), ("1 child".into(), "2,000 jobs".into()));
        assert_eq!([17, 2_048, 3 << 20].map(bytes), ["17 bytes", "2 KiB", "3 MiB"]);
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser_of_durations(text in "(([0-9]{0,22}(\\.[0-9]{0,4})?(ms|us|s|m|h|d|w|[a-z]{0,3}) ?){0,4}|\\PC{0,20})") {
            match parse_duration(&text) {
                Ok(span) => prop_assert!(span.as_micros() <= 6_400_000_000_000_000, "{text}: {span:?}"),
                Err(why) => prop_assert!(why.contains(&format!("{text:?}")), "{why}"),
            }
        }

        #[test]
        fn a_duration_is_read_as_it_is_written(seconds in 0_u64..1_000_000_000) {
            let span = Duration::from_secs(seconds);
            // Long ones are written in their largest units.
            let read = parse_duration(&duration(span)).expect("a duration");
            prop_assert!(read.abs_diff(span) <= span / 10, "{} is read as {read:?}", duration(span));
        }
    }
}
