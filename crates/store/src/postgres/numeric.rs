//! PostgreSQL's `numeric` as decimal text, in its binary format: a header of four 16-bit numbers (how many digits follow, the
//! power of the first one, the sign, the number of decimal places), then digits of base 10,000.

const BASE_DIGITS: usize = 4;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;
/// The most decimal digits before and after the point that the format can express.
const MAX_WHOLE: usize = 131_072;
const MAX_FRACTION: usize = 16_383;

/// Encodes a number like `-12.50`. `None` if the text is not such a number, or too long.
pub(super) fn encode(decimal: &str) -> Option<Vec<u8>> {
    let (negative, digits) = match decimal.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, decimal),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || digits.ends_with('.') {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > MAX_WHOLE || fraction.len() > MAX_FRACTION {
        return None;
    }
    // Groups of four digits, counted from the point.
    let padding = (BASE_DIGITS - whole.len() % BASE_DIGITS) % BASE_DIGITS;
    let mut all = "0".repeat(padding) + whole + fraction;
    all.extend(std::iter::repeat_n('0', (BASE_DIGITS - all.len() % BASE_DIGITS) % BASE_DIGITS));
    let groups: Vec<u16> = all
        .as_bytes()
        .chunks(BASE_DIGITS)
        .map(|group| group.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
        .collect();
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|group| *group != 0).map_or(first, |last| last + 1);
    let kept = &groups[first..last];
    let weight =
        if kept.is_empty() { 0 } else { ((padding + whole.len()) / BASE_DIGITS) as i32 - 1 - first as i32 };
    let sign = if negative && !kept.is_empty() { NEGATIVE } else { 0 };
    let header = [kept.len() as u16, weight as i16 as u16, sign, fraction.len() as u16];
    Some(header.iter().chain(kept).flat_map(|number| number.to_be_bytes()).collect())
}

/// Decodes a number as text. `None` if the bytes are no number.
pub(super) fn decode(bytes: &[u8]) -> Option<String> {
    let numbers: Vec<u16> =
        bytes.chunks(2).map(|pair| pair.try_into().map(u16::from_be_bytes).ok()).collect::<Option<_>>()?;
    let [count, weight, sign, scale, digits @ ..] = &*numbers else { return None };
    let (weight, scale) = (i32::from(*weight as i16), usize::from(*scale));
    match *sign {
        NAN => return Some("NaN".to_owned()),
        INFINITY => return Some("Infinity".to_owned()),
        NEGATIVE_INFINITY => return Some("-Infinity".to_owned()),
        _ if digits.len() != usize::from(*count) => return None,
        _ => {}
    }
    // The digit of 10,000 to this power.
    let digit = |power: i32| {
        let index = usize::try_from(weight - power).ok();
        index.and_then(|index| digits.get(index)).copied().unwrap_or(0)
    };
    let mut text: String = (0..=weight.max(0)).rev().map(|power| format!("{:04}", digit(power))).collect();
    let zeros = text.len() - text.trim_start_matches('0').len();
    text.drain(..zeros.min(text.len() - 1));
    if *sign == NEGATIVE {
        text.insert(0, '-');
    }
    if scale > 0 {
        let groups = scale.div_ceil(BASE_DIGITS) as i32;
        let fraction: String = (1..=groups).map(|group| format!("{:04}", digit(-group))).collect();
        text.push('.');
        text.push_str(&fraction[..scale]);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_return_as_they_were() {
        for decimal in [
            "0",
            "0.00",
            "1",
            "-1",
            "9999",
            "10000",
            "10000000",
            "123456789012345678901234567890",
            "0.1",
            "-12.50",
            "0.0001",
            "0.00001",
            "10000.00001",
            "99999999.99999999",
            "-0.000000012",
        ] {
            let bytes = encode(decimal).expect(decimal);
            assert_eq!(decode(&bytes).as_deref(), Some(decimal));
        }
        assert_eq!(decode(&encode("007").expect("encoded")).as_deref(), Some("7"));
        assert_eq!(decode(&encode("-0").expect("encoded")).as_deref(), Some("0"));
    }

    #[test]
    fn the_format_is_the_servers() {
        // As `numeric_send` writes 12345.678.
        let bytes = [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c];
        assert_eq!(encode("12345.678").as_deref(), Some(&bytes[..]));
        assert_eq!(decode(&[0, 0, 0, 0, 0xC0, 0, 0, 0]).as_deref(), Some("NaN"));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".", "1.", ".5", "1e3", "+1", "1 ", "a", "1.2.3", "--1"] {
            assert_eq!(encode(text), None, "{text:?}");
        }
        for bytes in [&[][..], &[0, 1, 0], &[0, 1, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
