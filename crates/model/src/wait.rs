//! Waits and signals: what a parked job waits for, and which signals its next step sees.
//!
//! The signals that a step sees depend only on what its job waited for and on the inbox ([`WaitCondition::select_signals`]). So a
//! step that is retried sees the same signals, a signal that the wait did not ask for stays in the inbox, and progress consumes
//! exactly the signals that the step saw. A signal that is marked unreadable is kept for people only: it ends no wait, no step
//! sees it, and nothing consumes it.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Invalid, JobId, Payload, Rev, Time,
    limits::{MAX_DELAY, RESERVED_PREFIX, check_name, check_text, invalid},
};

/// The most signal names in one wait.
pub const MAX_NAMES: usize = 32;
/// The longest dedup id, in bytes.
pub const MAX_DEDUP_BYTES: usize = 512;

/// The name of the signal that a store sends to a workflow when a child has ended. Its payload is the child's id. The prefix is
/// reserved, so nobody else can send one.
pub const CHILD_SIGNAL: &str = "windlass.child";

/// What a parked job waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitCondition {
    /// Nothing: it gives up its slot to others and is ready again at once.
    Nothing,
    /// Signals; without names, only the timeout.
    Signals {
        /// Their names, without duplicates.
        names: Vec<SignalName>,
        /// For how many of the names a signal must have arrived: 1 waits for any of them, as many as there are for all.
        needs: u32,
    },
    /// The end of all children that one change submitted.
    Children {
        /// The revision that this change made.
        rev: Rev,
    },
}

/// The name of an awaited signal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignalName {
    /// The name.
    pub name: String,
    /// Whether the step sees every signal of this name in the inbox; otherwise it sees the oldest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every: bool,
}

/// What a parked job waits for, and how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// What it waits for.
    pub condition: WaitCondition,
    /// How long it waits at most, by the store's clock. Then the job wakes as if the condition were met.
    pub timeout: Option<Duration>,
}

impl Wait {
    /// Gives up the slot to others, and continues as soon as one is free.
    pub const YIELD: Wait = Wait { condition: WaitCondition::Nothing, timeout: None };

    /// Whether it parks the job. One that waits for nothing only gives up its slot, and its timeout has no effect.
    pub fn parks(&self) -> bool {
        self.condition != WaitCondition::Nothing
    }

    /// Returns when the wait of a job times out that parks now; `None` if it waits for ever or does not park.
    pub fn until(&self, now: Time) -> Option<Time> {
        self.timeout.filter(|_| self.parks()).map(|timeout| now + timeout)
    }

    /// Checks the timeout and the names.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(timeout) = self.timeout {
            if timeout.is_zero() {
                let hint = "leave it out to wait for ever, or use `Next::to` if there is nothing to wait for";
                return Err(invalid("the timeout of the wait", "is zero", hint));
            }
            if timeout > MAX_DELAY {
                let hint = "leave it out to wait for ever, or choose a shorter one";
                return Err(invalid("the timeout of the wait", "is longer than 100 years", hint));
            }
        }
        let WaitCondition::Signals { names, needs } = &self.condition else { return Ok(()) };
        if names.is_empty() && *needs == 1 && self.timeout.is_some() {
            return Ok(());
        }
        if names.is_empty() || *needs == 0 {
            return Err(invalid("the wait", "names no signal", "name at least one"));
        }
        if names.len() > MAX_NAMES {
            let why = format!("names {} signals, more than the {MAX_NAMES} allowed", names.len());
            return Err(invalid("the wait", why, "use one name and tell them apart by their payload"));
        }
        for (index, SignalName { name, .. }) in names.iter().enumerate() {
            if name != CHILD_SIGNAL && name != crate::branch::BRANCH_SIGNAL {
                check_name("signal", name)?;
            }
            if names[..index].iter().any(|earlier| earlier.name == *name) {
                return Err(invalid("the wait", format!("names {name:?} twice"), "name it once"));
            }
        }
        if *needs as usize > names.len() {
            let why = format!("needs {needs} of {} signals", names.len());
            return Err(invalid("the wait", why, "name as many as it needs"));
        }
        Ok(())
    }
}

impl WaitCondition {
    /// Returns the names of the awaited signals.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            WaitCondition::Signals { names, .. } => names.as_slice(),
            _ => &[],
        };
        names.iter().map(|name| name.name.as_str())
    }

    /// Returns `None` if no signal of this name is awaited, otherwise whether the step sees every signal of the name.
    pub fn wants(&self, name: &str) -> Option<bool> {
        let WaitCondition::Signals { names, .. } = self else { return None };
        names.iter().find(|wanted| wanted.name == name).map(|wanted| wanted.every)
    }

    /// Whether the condition is met. `arrived` are the names of the readable signals in the inbox, `pending_children` is how
    /// many of the awaited children have not ended.
    pub fn is_met<'a>(&self, arrived: impl IntoIterator<Item = &'a str>, pending_children: u32) -> bool {
        match self {
            WaitCondition::Nothing => true,
            WaitCondition::Children { .. } => pending_children == 0,
            WaitCondition::Signals { names, needs } => {
                let wanted = |name: &&str| names.iter().any(|wanted| wanted.name == *name);
                let arrived: BTreeSet<&str> = arrived.into_iter().filter(wanted).collect();
                arrived.len() >= *needs as usize
            }
        }
    }

    /// Returns the names under which the length of a wait is recorded that has ended: of a wait that was met, the awaited names whose
    /// signals met it, as many as it needs; of one that timed out, those without a signal. `arrived` are the names of the readable
    /// signals in the inbox, in order. The engine's own signals are not recorded.
    pub fn names_of_ended<'a>(
        &'a self,
        arrived: impl IntoIterator<Item = &'a str>,
        timed_out: bool,
    ) -> Vec<&'a str> {
        let WaitCondition::Signals { names, needs } = self else { return Vec::new() };
        let mut met: Vec<&str> = Vec::new();
        for name in arrived {
            if names.iter().any(|wanted| wanted.name == name) && !met.contains(&name) {
                met.push(name);
            }
        }
        let is_recorded = |name: &&str| !name.starts_with(RESERVED_PREFIX);
        if timed_out {
            return self.names().filter(|name| !met.contains(name)).filter(is_recorded).collect();
        }
        met.into_iter().take(*needs as usize).filter(is_recorded).collect()
    }

    /// Returns the indexes of the signals in the inbox that the step sees. If the wait needs one name, these are signals of the
    /// name that arrived first, and the others stay for later waits; otherwise signals of all names. Of each name the step sees
    /// the oldest, or every one if the wait asks for that.
    pub fn select_signals(&self, inbox: &[Signal]) -> Vec<usize> {
        let WaitCondition::Signals { names, needs } = self else { return Vec::new() };
        let wanted = |signal: &Signal| {
            names.iter().find(|name| signal.unreadable.is_none() && name.name == signal.name)
        };
        let first = inbox.iter().find_map(wanted);
        let mut seen = BTreeSet::new();
        let selected = |(_, signal): &(usize, &Signal)| {
            let Some(name) = wanted(signal) else { return false };
            let left_for_later = *needs == 1 && first != Some(name);
            !left_for_later && (seen.insert(name.name.as_str()) || name.every)
        };
        inbox.iter().enumerate().filter(selected).map(|(index, _)| index).collect()
    }
}

/// A signal as it is sent.
#[derive(Clone, PartialEq, Debug)]
pub struct NewSignal {
    /// The job it is sent to.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Distinguishes it from other signals of this name to this job: a signal that was delivered before, consumed or not, is not
    /// delivered again. A sender without an id of its own makes one per signal, so that the store recognises a call that is
    /// repeated because its answer was lost.
    pub dedup: String,
    /// The encoded message.
    pub payload: Payload,
}

impl NewSignal {
    /// Checks the name and the dedup id. [`crate::Limits::check_signal`] also checks the payload.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("signal", &self.name)?;
        if self.dedup.is_empty() {
            return Err(invalid(
                "the dedup id of the signal",
                "is empty",
                "leave it out, or give it a value",
            ));
        }
        check_text("dedup id of the signal", &self.dedup, MAX_DEDUP_BYTES)
    }
}

/// Whether an inbox takes no more signals: it has `limit` readable ones, or `limit` that the job's code could not decode. Signals of
/// the store itself are delivered however full it is.
pub fn inbox_is_full(readable: usize, unreadable: usize, limit: usize) -> bool {
    readable >= limit || unreadable >= limit
}

/// A signal in an inbox.
#[derive(Clone, PartialEq, Debug)]
pub struct Signal {
    /// Its number, which orders the signals of an inbox. The store gives it.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// When it was delivered.
    pub at: Time,
    /// The encoded message.
    pub payload: Payload,
    /// Why the job's code could not decode it, if it is marked unreadable. The commit of the attempt that failed to decode it
    /// writes this; people clear it when they restore the signal.
    pub unreadable: Option<String>,
}

/// A signal that an attempt could not decode and marks as unreadable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableSignal {
    /// Its number in the inbox.
    pub number: i64,
    /// Why not.
    pub why: String,
}

/// The longest reason kept with an unreadable signal, in bytes.
pub const MAX_REASON_BYTES: usize = 1_000;

impl UnreadableSignal {
    /// Marks the signal with this number. A reason that is too long is truncated.
    pub fn new(number: i64, why: impl Into<String>) -> UnreadableSignal {
        let mut why = why.into().replace('\0', "\u{fffd}");
        if why.len() > MAX_REASON_BYTES {
            let end = (0..=MAX_REASON_BYTES - '…'.len_utf8())
                .rev()
                .find(|end| why.is_char_boundary(*end))
                .unwrap_or(0);
            why.truncate(end);
            why.push('…');
        }
        UnreadableSignal { number, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals(needs: u32, names: &[&str]) -> WaitCondition {
        let name = |name: &&str| SignalName {
            name: name.trim_end_matches('*').to_owned(),
            every: name.ends_with('*'),
        };
        WaitCondition::Signals { names: names.iter().map(name).collect(), needs }
    }

    fn inbox(names: &[&str]) -> Vec<Signal> {
        let signal = |(number, name): (usize, &&str)| Signal {
            number: number as i64,
            name: (*name).to_owned(),
            at: Time(0),
            payload: Payload::json(b"1".to_vec()),
            unreadable: None,
        };
        names.iter().enumerate().map(signal).collect()
    }

    #[test]
    fn a_wait_is_met_when_signals_of_enough_names_have_arrived() {
        let any = signals(1, &["a", "b"]);
        assert!(!any.is_met([], 0) && !any.is_met(["c"], 0) && any.is_met(["c", "b"], 7));
        let all = signals(2, &["a", "b"]);
        assert!(!all.is_met(["a", "a"], 0) && all.is_met(["b", "a"], 0));
        let children = WaitCondition::Children { rev: Rev(3) };
        assert!(!children.is_met(["a"], 1) && children.is_met([], 0));
        assert!(WaitCondition::Nothing.is_met([], 9));
    }

    #[test]
    fn the_length_of_a_wait_is_recorded_for_the_signals_that_ended_it() {
        let any = signals(1, &["a", "b", "windlass.child"]);
        assert_eq!(any.names_of_ended(["x", "b", "a"], false), ["b"], "the first ended it");
        assert!(any.names_of_ended(["windlass.child", "a"], false).is_empty(), "a child ended it");
        assert_eq!(any.names_of_ended([], true), ["a", "b"]);
        let all = signals(2, &["a", "b", "c"]);
        assert_eq!(all.names_of_ended(["c", "c", "a", "b"], false), ["c", "a"]);
        assert_eq!(all.names_of_ended(["c"], true), ["a", "b"], "the missing ones");
        assert!(WaitCondition::Children { rev: Rev(1) }.names_of_ended(["a"], false).is_empty());
    }

    #[test]
    fn a_step_sees_only_the_signals_that_its_wait_asks_for() {
        let seen = |wait: &WaitCondition, names: &[&str]| wait.select_signals(&inbox(names));
        assert_eq!(seen(&signals(1, &["a"]), &["b", "a", "a"]), [1], "the oldest of the name");
        assert_eq!(seen(&signals(1, &["a*"]), &["b", "a", "a"]), [1, 2], "all of the name");
        assert_eq!(seen(&signals(1, &["a", "b"]), &["b", "a", "b"]), [0], "the name that came first");
        assert_eq!(seen(&signals(1, &["a", "b*"]), &["b", "a", "b"]), [0, 2]);
        assert_eq!(seen(&signals(2, &["a", "b"]), &["b", "b", "a", "c"]), [0, 2], "one of each");
        assert_eq!(
            seen(&signals(2, &["a", "b"]), &["b", "b"]),
            [0],
            "what has arrived when the wait times out"
        );
        assert!(seen(&WaitCondition::Nothing, &["a"]).is_empty());
    }

    #[test]
    fn an_unreadable_signal_is_treated_as_not_arrived() {
        let mut inbox = inbox(&["a", "b", "a", "b"]);
        inbox[0].unreadable = Some("not a number".into());
        assert_eq!(signals(1, &["a"]).select_signals(&inbox), [2], "the next one of the name");
        assert_eq!(signals(1, &["a*"]).select_signals(&inbox), [2]);
        assert_eq!(signals(1, &["a", "b"]).select_signals(&inbox), [1], "the name that came first after it");
        assert_eq!(signals(2, &["a", "b"]).select_signals(&inbox), [1, 2]);
    }

    #[test]
    fn only_a_wait_for_something_parks_and_times_out() {
        let now = Time(1_000_000);
        let second = Some(Duration::from_secs(1));
        let wait = |condition, timeout| Wait { condition, timeout };
        assert!(!Wait::YIELD.parks() && Wait::YIELD.until(now).is_none());
        assert_eq!(wait(WaitCondition::Nothing, second).until(now), None);
        let timed = wait(signals(1, &["a"]), second);
        assert!(timed.parks());
        assert_eq!(timed.until(now), Some(Time(2_000_000)));
        assert_eq!(wait(WaitCondition::Children { rev: Rev(1) }, None).until(now), None, "for ever");
    }

    #[test]
    fn an_inbox_is_full_of_readable_or_of_unreadable_signals() {
        assert!(!inbox_is_full(2, 2, 3));
        assert!(inbox_is_full(3, 0, 3) && inbox_is_full(0, 3, 3));
    }

    #[test]
    fn a_long_reason_is_truncated() {
        assert_eq!(UnreadableSignal::new(1, "a\0b").why, "a\u{fffd}b");
        let long = UnreadableSignal::new(1, "ü".repeat(MAX_REASON_BYTES)).why;
        assert!(long.len() <= MAX_REASON_BYTES && long.ends_with("ü…"), "{}", long.len());
    }

    #[test]
    fn invalid_waits_are_refused_with_a_hint() {
        let check = |condition, timeout| Wait { condition, timeout }.check();
        assert_eq!(check(signals(2, &["a", "b"]), Some(Duration::from_secs(1))), Ok(()));
        let century = Some(Duration::from_secs(101 * 365 * 86_400));
        let many: Vec<String> = (0..33).map(|n| format!("s{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (condition, timeout, text) in [
            (signals(1, &["a"]), Some(Duration::ZERO), "is zero; leave it out"),
            (signals(1, &["a"]), century, "longer than 100 years"),
            (signals(0, &[]), None, "names no signal"),
            (signals(1, &["a", "a"]), None, "names \"a\" twice"),
            (signals(2, &["a"]), None, "needs 2 of 1"),
            (signals(1, &["a b"]), None, "contains ' '"),
            (signals(1, &many), None, "more than the 32"),
        ] {
            let error = check(condition, timeout).expect_err(text).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
    }
}
