//! The ids of steps and of their undos: unique idempotency keys.

use windlass_model::JobId;

use super::driver::run_of;

/// The id of a step, `JOB[~UNDONE][/RUN]/NAME[/KEY]`: the same for all attempts and replays, and another one after the step was
/// undone, because then it must be done once more. The job's id has a fixed length and the parts are escaped, so different
/// steps have different ids, whatever their names and keys.
pub(super) fn step_id(job: JobId, undone: u32, run: Option<&str>, name: &str, key: Option<&str>) -> String {
    let mut id = job.to_string();
    if undone > 0 {
        id += &format!("~{undone}");
    }
    if let Some(run) = run {
        id.push('/');
        id += run;
    }
    id.push('/');
    match name.strip_prefix("run-") {
        // A first part that looks like a run must be a run.
        Some(number) if run_of(name).is_some() => id += &format!("run%2D{number}"),
        _ => escape(name, &mut id),
    }
    if let Some(key) = key {
        id.push('/');
        escape(key, &mut id);
    }
    id
}

/// The id of the undo of a step.
pub(super) fn undo_id(step: &str) -> String {
    format!("undo:{step}")
}

/// Writes a part of an id, and escapes the characters that separate parts.
fn escape(part: &str, id: &mut String) {
    for c in part.chars() {
        match c {
            '/' => id.push_str("%2F"),
            '%' => id.push_str("%25"),
            '~' => id.push_str("%7E"),
            c => id.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// All texts of at most three of these pieces: those that ids are made of, and their escaped forms.
    fn texts() -> Vec<String> {
        let pieces = ["a", "/", "%", "~", "1", "2F", "%2D", "run-", "run-2", "undo:"];
        let longer = |texts: &[String]| -> Vec<String> {
            texts.iter().flat_map(|text| pieces.map(|piece| format!("{text}{piece}"))).collect()
        };
        let one = longer(&[String::new()]);
        let two = longer(&one);
        let three = longer(&two);
        let mut all: Vec<String> = [vec![String::new()], one, two, three].concat();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn different_steps_have_different_ids() {
        let jobs = [JobId::from_parts(1, 1, 1), JobId::from_parts(1, 1, 2)];
        let texts = texts();
        let mut seen = HashMap::new();
        let mut check = |job, undone, run, name: &str, key: Option<&str>| {
            let step = step_id(job, undone, run, name, key);
            for (id, undoes) in [(undo_id(&step), true), (step, false)] {
                let of = (job, undone, run, name.to_owned(), key.map(str::to_owned), undoes);
                if let Some(other) = seen.insert(id.clone(), of.clone()) {
                    panic!("{other:?} and {of:?} have {id}");
                }
            }
        };
        for (place, name) in texts.iter().enumerate() {
            let some = texts.iter().skip(place % 13).step_by(13).filter(|key| !key.is_empty());
            let keys = [None, Some("")].into_iter().chain(some.map(|key| Some(key.as_str())));
            for key in keys {
                for (undone, run) in [(0, None), (0, Some("run-2")), (1, None), (1, Some("run-12"))] {
                    check(jobs[0], undone, run, name, key);
                }
            }
            check(jobs[1], 0, None, name, None);
        }
    }

    #[test]
    fn simple_ids_are_not_escaped() {
        let job = JobId::from_parts(1, 1, 1);
        assert_eq!(step_id(job, 0, None, "charge", None), format!("{job}/charge"));
        assert_eq!(
            step_id(job, 2, Some("run-3"), "charge", Some("a b")),
            format!("{job}~2/run-3/charge/a b")
        );
        assert_eq!(step_id(job, 0, None, "charge/eu", Some("~1%")), format!("{job}/charge%2Feu/%7E1%25"));
        assert_eq!(step_id(job, 0, None, "run-2", None), format!("{job}/run%2D2"));
        assert_eq!(undo_id(&step_id(job, 0, None, "charge", None)), format!("undo:{job}/charge"));
    }
}
