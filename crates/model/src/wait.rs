//! What a parked job waits for: signals, or its children.
//!
//! Which signals a step is shown follows from what its job waited for and what is in the inbox, and from nothing else:
//! a step that is tried again is shown the same ones, those that came meanwhile and are not asked for stay where they
//! are, and progress consumes exactly what was shown. A signal that was set aside is there for people alone: it ends no wait,
//! is not shown, and is never consumed.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Invalid, JobId, Payload, Rev, Time,
    limits::{MAX_DELAY, check_name, check_text, invalid},
};

/// The most names one wait may have.
pub const MAX_NAMES: usize = 32;
/// The longest dedup id, in bytes.
pub const MAX_DEDUP_BYTES: usize = 512;

/// The name of the signals by which a workflow is told that a child has ended; their payload is the child's id. Nobody
/// else can send one.
pub const CHILD_SIGNAL: &str = "windlass.child";

/// What a parked job waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitCondition {
    /// Nothing: it lets others pass and is ready again at once.
    Nothing,
    /// Signals. Without names, nothing but the time that the wait takes.
    Signals {
        /// Their names, each one once.
        names: Vec<SignalName>,
        /// Of how many of the names there must be one: 1 is any of them, as many as there are is all of them.
        needs: u32,
    },
    /// The end of the children that a change submitted.
    Children {
        /// The revision that change made.
        rev: Rev,
    },
}

/// The name of a signal that is waited for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignalName {
    /// The name.
    pub name: String,
    /// Whether the step is shown all signals of the name that are there; else the oldest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every: bool,
}

/// What a parked job waits for, and how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// What.
    pub condition: WaitCondition,
    /// How long at most, by the store's clock. Then the job is woken like by what it waits for.
    pub timeout: Option<Duration>,
}

impl Wait {
    /// Lets others pass.
    pub const YIELD: Wait = Wait { condition: WaitCondition::Nothing, timeout: None };

    /// Checks it before it reaches a store.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(timeout) = self.timeout {
            if timeout.is_zero() {
                let hint =
                    "leave it out to wait for ever, or go on with `Next::to` if there is nothing to wait for";
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
        for (place, SignalName { name, .. }) in names.iter().enumerate() {
            if name != CHILD_SIGNAL && name != crate::branch::BRANCH_SIGNAL {
                check_name("signal", name)?;
            }
            if names[..place].iter().any(|before| before.name == *name) {
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
    /// The names of the signals that are waited for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            WaitCondition::Signals { names, .. } => names.as_slice(),
            _ => &[],
        };
        names.iter().map(|name| name.name.as_str())
    }

    /// Whether a signal of this name is waited for, and if so whether all of the name are.
    pub fn wants(&self, name: &str) -> Option<bool> {
        let WaitCondition::Signals { names, .. } = self else { return None };
        names.iter().find(|wanted| wanted.name == name).map(|wanted| wanted.every)
    }

    /// Whether what is waited for has come: `there` are the names of the signals in the inbox, `pending` is how many
    /// children have not ended.
    pub fn is_met<'a>(&self, there: impl IntoIterator<Item = &'a str>, pending: u32) -> bool {
        match self {
            WaitCondition::Nothing => true,
            WaitCondition::Children { .. } => pending == 0,
            WaitCondition::Signals { names, needs } => {
                let wanted = |name: &&str| names.iter().any(|wanted| wanted.name == *name);
                let there: BTreeSet<&str> = there.into_iter().filter(wanted).collect();
                there.len() >= *needs as usize
            }
        }
    }

    /// Which of the signals in the inbox a step is shown, by their places. If one name is enough, it is shown what has
    /// the name that came first, and the others stay for later waits; else what has any of the names. Of each name it
    /// is shown the oldest, or all if the wait says so.
    pub fn select_signals(&self, inbox: &[Signal]) -> Vec<usize> {
        let WaitCondition::Signals { names, needs } = self else { return Vec::new() };
        let wanted = |signal: &Signal| {
            names.iter().find(|name| signal.unreadable.is_none() && name.name == signal.name)
        };
        let first = inbox.iter().find_map(wanted);
        let mut seen = BTreeSet::new();
        let shown = |(_, signal): &(usize, &Signal)| {
            let Some(name) = wanted(signal) else { return false };
            let passed_over = *needs == 1 && first != Some(name);
            !passed_over && (seen.insert(name.name.as_str()) || name.every)
        };
        inbox.iter().enumerate().filter(shown).map(|(place, _)| place).collect()
    }
}

/// A signal as it is sent.
#[derive(Clone, PartialEq, Debug)]
pub struct NewSignal {
    /// To which job.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// What tells it from other signals of this name to this job: one that was delivered before, consumed or not, is
    /// not delivered again. Senders that have no id of their own make one per signal, so that a repeat of a call whose
    /// answer was lost is recognised.
    pub dedup: String,
    /// Whatever it says.
    pub payload: Payload,
}

impl NewSignal {
    /// Checks it before it reaches a store; its payload is for [`crate::Limits`] to check.
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

/// A signal in an inbox.
#[derive(Clone, PartialEq, Debug)]
pub struct Signal {
    /// Its number, larger than those of the signals before it in the same inbox.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// When it was delivered.
    pub at: Time,
    /// What it says.
    pub payload: Payload,
    /// Why it was set aside, if it was: the job could not read it. Written by the commit of the attempt that found out;
    /// cleared by people who restore it.
    pub unreadable: Option<String>,
}

/// A signal that an attempt could not read, and sets aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableSignal {
    /// Its number in the inbox.
    pub number: i64,
    /// Why it could not be read.
    pub why: String,
}

/// The longest text that is kept of why a signal was set aside, in bytes.
pub const MAX_REASON_BYTES: usize = 1_000;

impl UnreadableSignal {
    /// A signal with this number, with as much of the reason as is kept.
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
    fn a_wait_is_met_by_enough_of_its_names() {
        let any = signals(1, &["a", "b"]);
        assert!(!any.is_met([], 0) && !any.is_met(["c"], 0) && any.is_met(["c", "b"], 7));
        let all = signals(2, &["a", "b"]);
        assert!(!all.is_met(["a", "a"], 0) && all.is_met(["b", "a"], 0));
        let children = WaitCondition::Children { rev: Rev(3) };
        assert!(!children.is_met(["a"], 1) && children.is_met([], 0));
        assert!(WaitCondition::Nothing.is_met([], 9));
    }

    #[test]
    fn what_is_not_asked_for_is_not_shown() {
        let shown = |wait: &WaitCondition, names: &[&str]| wait.select_signals(&inbox(names));
        assert_eq!(shown(&signals(1, &["a"]), &["b", "a", "a"]), [1], "the oldest of the name");
        assert_eq!(shown(&signals(1, &["a*"]), &["b", "a", "a"]), [1, 2], "all of the name");
        assert_eq!(shown(&signals(1, &["a", "b"]), &["b", "a", "b"]), [0], "the name that came first");
        assert_eq!(shown(&signals(1, &["a", "b*"]), &["b", "a", "b"]), [0, 2]);
        assert_eq!(shown(&signals(2, &["a", "b"]), &["b", "b", "a", "c"]), [0, 2], "one of each");
        assert_eq!(shown(&signals(2, &["a", "b"]), &["b", "b"]), [0], "what there is when time is over");
        assert!(shown(&WaitCondition::Nothing, &["a"]).is_empty());
    }

    #[test]
    fn what_was_set_aside_is_as_if_it_had_not_come() {
        let mut inbox = inbox(&["a", "b", "a", "b"]);
        inbox[0].unreadable = Some("it is no number".into());
        assert_eq!(signals(1, &["a"]).select_signals(&inbox), [2], "the next of the name");
        assert_eq!(signals(1, &["a*"]).select_signals(&inbox), [2]);
        assert_eq!(signals(1, &["a", "b"]).select_signals(&inbox), [1], "the name that came first after it");
        assert_eq!(signals(2, &["a", "b"]).select_signals(&inbox), [1, 2]);
    }

    #[test]
    fn a_reason_is_kept_as_far_as_it_fits() {
        assert_eq!(UnreadableSignal::new(1, "a\0b").why, "a\u{fffd}b");
        let long = UnreadableSignal::new(1, "ü".repeat(MAX_REASON_BYTES)).why;
        assert!(long.len() <= MAX_REASON_BYTES && long.ends_with("ü…"), "{}", long.len());
    }

    #[test]
    fn waits_that_cannot_be_are_refused_with_what_to_do() {
        let check =
            |what: WaitCondition, timeout: Option<Duration>| Wait { condition: what, timeout }.check();
        assert_eq!(check(signals(2, &["a", "b"]), Some(Duration::from_secs(1))), Ok(()));
        let century = Some(Duration::from_secs(101 * 365 * 86_400));
        let many: Vec<String> = (0..33).map(|n| format!("s{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (what, timeout, text) in [
            (signals(1, &["a"]), Some(Duration::ZERO), "is zero; leave it out"),
            (signals(1, &["a"]), century, "longer than 100 years"),
            (signals(0, &[]), None, "names no signal"),
            (signals(1, &["a", "a"]), None, "names \"a\" twice"),
            (signals(2, &["a"]), None, "needs 2 of 1"),
            (signals(1, &["a b"]), None, "contains ' '"),
            (signals(1, &many), None, "more than the 32"),
        ] {
            let error = check(what, timeout).expect_err(text).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
    }
}
