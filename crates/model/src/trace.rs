//! The trace that a job is part of: a W3C `traceparent`, kept with the job and passed on to the jobs it submits.

/// An example, for error messages and tests.
pub const EXAMPLE: &str = "00-5f1c9a0e7b3d42868ce01b9d4a7733e2-3ac1e57d90b64f28-01";

/// The longest traceparent accepted: version 00 has 55 bytes, and later versions may append to it.
const MAX_BYTES: usize = 128;

/// The parts of a traceparent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceParent<'a> {
    /// The trace, which all its spans share: 32 hexadecimal digits.
    pub trace_id: &'a str,
    /// The span that caused this one: 16 hexadecimal digits.
    pub span_id: &'a str,
    /// Whether the caller recorded its span.
    pub sampled: bool,
}

/// Parses a traceparent; `None` if the text is not one.
pub fn parse(text: &str) -> Option<TraceParent<'_>> {
    if text.len() > MAX_BYTES || !text.is_ascii() {
        return None;
    }
    let mut parts = text.splitn(5, '-');
    let version = hex(parts.next()?, 2)?;
    let (trace_id, span_id, flags) =
        (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?, hex(parts.next()?, 2)?);
    let all_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    if version == "ff" || all_zero(trace_id) || all_zero(span_id) {
        return None;
    }
    // Version 00 ends here; what a later version appends is passed on unread.
    if version == "00" && parts.next().is_some() {
        return None;
    }
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
    Some(TraceParent { trace_id, span_id, sampled })
}

/// Returns the text if it consists of this many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<&str> {
    let fits = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    fits.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_parsed() {
        let parsed = parse(EXAMPLE).expect("valid");
        assert_eq!(parsed.trace_id, "5f1c9a0e7b3d42868ce01b9d4a7733e2");
        assert_eq!((parsed.span_id, parsed.sampled), ("3ac1e57d90b64f28", true));
        assert!(!parse(&EXAMPLE.replace("-01", "-02")).expect("valid").sampled);
        assert!(parse(&format!("01{}-later", &EXAMPLE[2..])).is_some(), "later versions may append");
    }

    #[test]
    fn other_text_is_refused() {
        let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
        for bad in [
            String::new(),
            "hello".into(),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replace("00-", "ff-"),
            format!("{EXAMPLE}-more"),
            format!("{EXAMPLE}-"),
            EXAMPLE[..54].to_owned(),
            EXAMPLE.replace('-', "_"),
            EXAMPLE.replace("5f1c9a0e7b3d42868ce01b9d4a7733e2", &no_trace),
            EXAMPLE.replace("3ac1e57d90b64f28", &no_span),
            format!("01{}-{}", &EXAMPLE[2..], "x".repeat(200)),
            "é".repeat(27),
        ] {
            assert_eq!(parse(&bad), None, "{bad:?}");
        }
    }
}
