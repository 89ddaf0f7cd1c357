//! Compares outcomes of runs that contain ids of jobs: every run makes new ids, and a worker that died makes them again.

use std::{fmt::Write, ops::RangeInclusive};

use windlass_model::{JobId, Time};

/// The length of an id as text.
const LENGTH: usize = 36;

/// Replaces the ids of jobs that were made between these times by the order in which they first appear: equal ids stay equal, and
/// different ids stay different. Other UUIDs stay as they are.
pub(super) fn number_ids(text: &str, made: &RangeInclusive<Time>) -> String {
    let mut seen: Vec<JobId> = Vec::new();
    let mut numbered = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let id = rest.get(..LENGTH).and_then(|text| text.parse::<JobId>().ok());
        match id.filter(|id| is_made_in(id, made)) {
            Some(id) => {
                let number = seen.iter().position(|known| *known == id).unwrap_or_else(|| {
                    seen.push(id);
                    seen.len() - 1
                });
                let _ = write!(numbered, "<job {}>", number + 1);
                rest = &rest[LENGTH..];
            }
            None => {
                numbered.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    numbered
}

/// Whether it is the id of a job that was made between these times.
fn is_made_in(id: &JobId, made: &RangeInclusive<Time>) -> bool {
    let millis = id.as_bytes()[..6].iter().fold(0, |millis, byte| millis << 8 | i64::from(*byte));
    let limits = made.start().micros() / 1_000..=made.end().micros() / 1_000;
    id.0.get_version_num() == 7 && limits.contains(&millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: RangeInclusive<Time> = Time(5_000_000)..=Time(9_000_000);

    fn id(millis: u64, random: u64) -> JobId {
        JobId::from_parts(millis, 0, random)
    }

    #[test]
    fn ids_are_numbered_by_their_first_appearance_also_within_words() {
        let (a, b) = (id(5_000, 1), id(9_000, 2));
        let text = format!("ü [{b}/charge, {a}, \"undo:{b}~1/ship\"] {a}");
        assert_eq!(number_ids(&text, &MADE), "ü [<job 1>/charge, <job 2>, \"undo:<job 1>~1/ship\"] <job 2>");
    }

    #[test]
    fn what_was_not_made_by_the_run_stays() {
        let constant = "6fa459ea-ee8a-4ca4-894e-db77e160355e";
        for text in [constant.to_owned(), id(4_999, 1).to_string(), id(9_001, 1).to_string(), "é".repeat(40)]
        {
            assert_eq!(number_ids(&text, &MADE), text);
        }
    }
}
