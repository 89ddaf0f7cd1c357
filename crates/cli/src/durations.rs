//! Durations as people write and read them: `15s`, `500ms`, `1h30m`, `3m ago`.

pub(crate) use windlass::operate::text::{duration as format, parse_duration as parse, relative};

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
