//! Numbers, durations and sizes as people read them.

use std::time::Duration;

use windlass_model::Time;
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn numbers_have_commas_and_sizes_a_unit() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "child", "children"), jobs(2_000)), ("1 child".into(), "2,000 jobs".into()));
        assert_eq!([17, 2_048, 3 << 20].map(bytes), ["17 bytes", "2 KiB", "3 MiB"]);
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }
}
