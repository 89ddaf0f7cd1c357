//! What is in requests and in answers: failures, waits, journal entries, settings of jobs.
//!
//! Each type exists twice, made by one macro: in [`request`] an unknown field is an error, in [`answer`] it is ignored.

use serde::{Deserialize, Serialize};
use windlass_model::{
    BranchWatch, JournalEntry, RateCharge, Reason, Rev, Settings, Time, Unwind, WaitCondition,
    branch::PollInterval,
    failure::{OnFailure, class},
    journal::{CallEvent, CallKind},
    unique::{Conflict, States},
};

use super::{payload::WirePayload, schema::described, spans::Millis};

/// Whether a value is the default of its type, and is left out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

const fn is_true(value: &bool) -> bool {
    *value
}

macro_rules! shared_types {
    ($(#[$($strict:tt)*])*) => {
        described! {
            /// An error of an attempt. Made from, and into, [`windlass_model::Failure`].
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct Failure {
                /// A word by which retry policies match it; `error` if it has none.
                #[serde(default = "error_class")]
                pub class: String,
                /// What went wrong, for people.
                pub message: String,
                /// Whether another attempt may help.
                #[serde(default = "yes", skip_serializing_if = "is_true")]
                pub retry: bool,
                /// Whether it cancels the job, which is no error.
                #[serde(default, skip_serializing_if = "is_default")]
                pub cancel: bool,
                /// How long to wait before the next attempt, in place of the policy's delay.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub after_ms: Option<Millis>,
                /// The error as data.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub detail: Option<serde_json::Value>,
            }
        }

        fn error_class() -> String {
            class::ERROR.to_owned()
        }

        impl From<windlass_model::Failure> for Failure {
            fn from(failure: windlass_model::Failure) -> Failure {
                Failure {
                    class: failure.class.into_owned(),
                    message: failure.message,
                    retry: failure.then == OnFailure::Retry,
                    cancel: failure.then == OnFailure::Cancel,
                    after_ms: failure.after.map(Millis),
                    detail: failure.detail,
                }
            }
        }

        impl From<Failure> for windlass_model::Failure {
            fn from(failure: Failure) -> windlass_model::Failure {
                let then = match (failure.cancel, failure.retry) {
                    (true, _) => OnFailure::Cancel,
                    (false, true) => OnFailure::Retry,
                    (false, false) => OnFailure::Stop,
                };
                windlass_model::Failure {
                    class: failure.class.into(),
                    message: failure.message,
                    then,
                    detail: failure.detail,
                    after: failure.after_ms.map(|after| after.0),
                }
            }
        }

        described! {
            /// One rule of a retry policy; the first whose class matches a failure decides.
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct RetryRule {
                /// The class that it matches; every class if it is left out.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub class: Option<String>,
                /// After how many such failures the job fails.
                pub attempts: u32,
                /// The delay after the first failure; it doubles with each further one.
                #[serde(default = "first_delay")]
                pub base_ms: Millis,
                /// The longest delay.
                #[serde(default = "longest_delay")]
                pub cap_ms: Millis,
                /// Which part of the delay is random, from 0 to 1.
                #[serde(default = "jitter")]
                pub jitter: f64,
            }
        }

        const fn first_delay() -> Millis {
            Millis(std::time::Duration::from_secs(1))
        }

        const fn longest_delay() -> Millis {
            Millis(std::time::Duration::from_secs(300))
        }

        const fn jitter() -> f64 {
            0.25
        }

        /// The rules of a policy.
        pub fn retry_rules(retry: &windlass_model::Retry) -> Vec<RetryRule> {
            let rule = |rule: &windlass_model::retry::RetryRule| RetryRule {
                class: rule.class.as_ref().map(|class| class.clone().into_owned()),
                attempts: rule.attempts,
                base_ms: Millis(rule.base),
                cap_ms: Millis(rule.cap),
                jitter: rule.jitter,
            };
            retry.as_rules().iter().map(rule).collect()
        }

        /// The policy of rules.
        pub fn retry(rules: Vec<RetryRule>) -> windlass_model::Retry {
            rules.into_iter().fold(windlass_model::Retry::rules(), |retry, rule| {
                let retry = match rule.class {
                    Some(class) => retry.on(class, rule.attempts),
                    None => retry.otherwise(rule.attempts),
                };
                retry.backoff(rule.base_ms.0, rule.cap_ms.0).jitter(rule.jitter)
            })
        }

        described! {
            /// A unique name; see [`windlass_model::Unique`].
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct Unique {
                /// The name.
                pub name: String,
                /// In which states a job holds it: all that are not final if it is left out.
                #[serde(default = "live", skip_serializing_if = "is_live")]
                pub states: States,
                /// How long after its submit a job holds it at most.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub within_ms: Option<Millis>,
                /// What happens to a submit while another job holds it.
                #[serde(default, skip_serializing_if = "is_default")]
                pub on_conflict: Conflict,
            }
        }

        const fn live() -> States {
            States::LIVE
        }

        fn is_live(states: &States) -> bool {
            *states == States::LIVE
        }

        described! {
            /// A serial key; see [`windlass_model::Serial`].
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct Serial {
                /// The key.
                pub key: String,
                /// How many of its jobs run at once from now on; unchanged if it is left out.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub slots: Option<u32>,
                /// Whether the job keeps its slot while it waits.
                #[serde(default, skip_serializing_if = "is_default")]
                pub keeps_slot: bool,
            }
        }

        described! {
            /// A charge to a rate limit; see [`RateCharge`].
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct Rate {
                /// The limit.
                pub limit: String,
                /// How many tokens the job costs.
                #[serde(default = "one")]
                pub weight: u32,
            }
        }

        /// The settings of one job, as the fields of a job have them; see [`Settings`].
        #[derive(Default)]
        pub(in crate::protocol) struct SettingsFields {
            pub(in crate::protocol) timeout_ms: Option<Millis>,
            pub(in crate::protocol) retry: Option<Vec<RetryRule>>,
            pub(in crate::protocol) unique: Option<Box<Unique>>,
            pub(in crate::protocol) serial: Option<Box<Serial>>,
            pub(in crate::protocol) rate: Option<Box<Rate>>,
            pub(in crate::protocol) tick: Option<Time>,
            pub(in crate::protocol) trace: Option<String>,
        }

        impl SettingsFields {
            pub(in crate::protocol) fn of(settings: Settings) -> SettingsFields {
                SettingsFields {
                    timeout_ms: settings.timeout.map(Millis),
                    retry: settings.retry.as_ref().map(retry_rules),
                    unique: settings.unique.map(|unique| {
                        Box::new(Unique {
                            name: unique.key,
                            states: unique.scope,
                            within_ms: unique.within.map(Millis),
                            on_conflict: unique.conflict,
                        })
                    }),
                    serial: settings.serial.map(|serial| {
                        Box::new(Serial {
                            key: serial.key,
                            slots: serial.slots,
                            keeps_slot: serial.keeps_slot,
                        })
                    }),
                    rate: settings
                        .rate
                        .map(|rate| Box::new(Rate { limit: rate.limit, weight: rate.weight })),
                    tick: settings.tick,
                    trace: settings.trace,
                }
            }

            pub(in crate::protocol) fn into_settings(self) -> Settings {
                Settings {
                    retry: self.retry.map(retry),
                    timeout: self.timeout_ms.map(|span| span.0),
                    unique: self.unique.map(|unique| {
                        Box::new(windlass_model::Unique {
                            key: unique.name,
                            scope: unique.states,
                            within: unique.within_ms.map(|span| span.0),
                            conflict: unique.on_conflict,
                        })
                    }),
                    serial: self.serial.map(|serial| {
                        Box::new(windlass_model::Serial {
                            key: serial.key,
                            slots: serial.slots,
                            keeps_slot: serial.keeps_slot,
                        })
                    }),
                    rate: self
                        .rate
                        .map(|rate| Box::new(RateCharge { limit: rate.limit, weight: rate.weight })),
                    tick: self.tick,
                    trace: self.trace,
                }
            }
        }

        described! {
            /// What a parked job waits for: signals, children, or neither, which only gives up its slot. See
            /// [`windlass_model::Wait`].
            #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct Wait {
                /// Signals.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub signals: Option<WaitSignals>,
                /// The children that the change which made this revision submitted.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub children: Option<Rev>,
                /// How long it waits at most.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub timeout_ms: Option<Millis>,
            }
        }

        described! {
            /// The signals that a job waits for.
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct WaitSignals {
                /// Their names; none if only the timeout is waited for.
                pub names: Vec<SignalName>,
                /// Of how many of the names a signal must have arrived.
                pub needs: u32,
            }
        }

        described! {
            /// The name of an awaited signal.
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct SignalName {
                /// The name.
                pub name: String,
                /// Whether the step sees every signal of the name, and not only the oldest.
                #[serde(default, skip_serializing_if = "is_default")]
                pub every: bool,
            }
        }

        impl From<WaitCondition> for Wait {
            fn from(condition: WaitCondition) -> Wait {
                match condition {
                    WaitCondition::Nothing => Wait::default(),
                    WaitCondition::Children { rev } => Wait { children: Some(rev), ..Wait::default() },
                    WaitCondition::Signals { names, needs } => {
                        let name = |name: windlass_model::wait::SignalName| SignalName {
                            name: name.name,
                            every: name.every,
                        };
                        let names = names.into_iter().map(name).collect();
                        Wait { signals: Some(WaitSignals { names, needs }), ..Wait::default() }
                    }
                }
            }
        }

        impl TryFrom<Wait> for WaitCondition {
            type Error = &'static str;

            fn try_from(wait: Wait) -> Result<WaitCondition, &'static str> {
                match (wait.signals, wait.children) {
                    (None, None) => Ok(WaitCondition::Nothing),
                    (None, Some(rev)) => Ok(WaitCondition::Children { rev }),
                    (Some(WaitSignals { names, needs }), None) => {
                        let name = |name: SignalName| windlass_model::wait::SignalName {
                            name: name.name,
                            every: name.every,
                        };
                        Ok(WaitCondition::Signals { names: names.into_iter().map(name).collect(), needs })
                    }
                    (Some(_), Some(_)) => Err("a wait has `signals` or `children`, and not both"),
                }
            }
        }

        described! {
            /// The counts at which a branch sends its job a signal; see [`BranchWatch`].
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct Watch {
                /// This many children are done.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub done: Option<u64>,
                /// This many failed or were cancelled.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub unsuccessful: Option<u64>,
                /// This many ended.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub ended: Option<u64>,
                /// The shortest time between two polls of the branch.
                #[serde(default = "min_poll")]
                pub min_poll_ms: Millis,
                /// The longest time.
                #[serde(default = "max_poll")]
                pub max_poll_ms: Millis,
            }
        }

        fn min_poll() -> Millis {
            Millis(PollInterval::default().min)
        }

        fn max_poll() -> Millis {
            Millis(PollInterval::default().max)
        }

        impl From<BranchWatch> for Watch {
            fn from(watch: BranchWatch) -> Watch {
                Watch {
                    done: watch.done,
                    unsuccessful: watch.unsuccessful,
                    ended: watch.ended,
                    min_poll_ms: Millis(watch.poll_interval.min),
                    max_poll_ms: Millis(watch.poll_interval.max),
                }
            }
        }

        impl From<Watch> for BranchWatch {
            fn from(watch: Watch) -> BranchWatch {
                BranchWatch {
                    done: watch.done,
                    unsuccessful: watch.unsuccessful,
                    ended: watch.ended,
                    poll_interval: PollInterval {
                        min: watch.min_poll_ms.0,
                        max: watch.max_poll_ms.0.max(watch.min_poll_ms.0),
                    },
                }
            }
        }

        described! {
            /// How a job ends once its undos have run; see [`windlass_model::Unwind`].
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct UnwindTo {
                /// Why it fails; it is cancelled if this is left out.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub reason: Option<Reason>,
                /// The error.
                pub error: Failure,
            }
        }

        impl From<Unwind> for UnwindTo {
            fn from(unwind: Unwind) -> UnwindTo {
                UnwindTo { reason: unwind.reason, error: unwind.failure.into() }
            }
        }

        impl From<UnwindTo> for Unwind {
            fn from(unwind: UnwindTo) -> Unwind {
                Unwind { reason: unwind.reason, failure: unwind.error.into() }
            }
        }

        described! {
            /// An entry of a journal; see [`JournalEntry`].
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct Entry {
                /// Its number.
                pub seq: i32,
                /// The kind of the call.
                pub call: CallKind,
                /// What happened to it.
                pub event: CallEvent,
                /// The name of the call.
                pub name: String,
                /// Distinguishes it from others of the name.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub key: Option<String>,
                /// Where in the source it was made.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub line: Option<String>,
                /// When, by the worker's clock.
                pub at: Time,
                /// Its result.
                pub payload: WirePayload,
            }
        }

        impl From<JournalEntry> for Entry {
            fn from(entry: JournalEntry) -> Entry {
                Entry {
                    seq: entry.seq,
                    call: entry.call_kind,
                    event: entry.event,
                    name: entry.name,
                    key: entry.key,
                    line: entry.line,
                    at: entry.at,
                    payload: entry.payload.into(),
                }
            }
        }

        impl From<Entry> for JournalEntry {
            fn from(entry: Entry) -> JournalEntry {
                JournalEntry {
                    seq: entry.seq,
                    call_kind: entry.call,
                    event: entry.event,
                    name: entry.name,
                    key: entry.key,
                    line: entry.line,
                    at: entry.at,
                    payload: entry.payload.into(),
                }
            }
        }

        described! {
            /// A value in the context of a workflow.
            #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
            $(#[$($strict)*])*
            pub struct ContextValue {
                /// Its name.
                pub name: String,
                /// The value.
                pub value: WirePayload,
            }
        }
    };
}

/// The types in requests: an unknown field is an error.
pub mod request {
    use super::*;

    shared_types! { #[serde(deny_unknown_fields)] }
}

/// The types in answers: unknown fields are ignored.
pub mod answer {
    use super::*;

    shared_types! {}
}
