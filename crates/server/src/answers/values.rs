//! Values that are no objects, and objects that serde writes in ways of their own.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Map, Value, json};
use windlass::{
    Calendar, CatchUp, Cause, ControlOutcome, Delivery, JobId, OnFailure, Overlap, Reason, Retry, State,
    States, Time,
    model::{
        BranchNo, Conflict, Epoch, Payload, Rev, Role, WaitCondition, WorkerId,
        journal::{CallEvent, CallKind},
        wait::SignalName,
    },
    operate::{
        SkipReason,
        doctor::Verdict,
        graph::{CallState, Point},
        views::{EntryResult, MergeState},
    },
};
use windlass_remote::protocol::schema::{Described, Schemas, nullable};

use super::Answered;

/// Types that the worker protocol describes too.
macro_rules! as_in_the_protocol {
    ($($type:ty)*) => {$(
        impl Answered for $type {
            fn schema(schemas: &mut Schemas) -> Value {
                <$type as Described>::describe(schemas)
            }
        }
    )*};
}

as_in_the_protocol! {
    bool String Box<str> Cow<'static, str> Value i16 i32 i64 u16 u32 u64 usize f64 JobId WorkerId Epoch Rev BranchNo Time State Reason
    CallKind CallEvent States Conflict
}

macro_rules! answered {
    ($($type:ty => $schema:tt;)*) => {$(
        impl Answered for $type {
            fn schema(_: &mut Schemas) -> Value {
                json!($schema)
            }
        }
    )*};
}

answered! {
    // Of codecs of the program, only the size is shown.
    Payload => {};
    Duration => {
        "type": "object",
        "properties": { "secs": { "type": "integer", "minimum": 0 }, "nanos": { "type": "integer", "minimum": 0 } },
        "required": ["secs", "nanos"]
    };
    Role => { "type": "string", "enum": (Role::ALL) };
    Cause => { "type": "string", "examples": (Cause::ALL), "description": "A word that stays the same between versions." };
    OnFailure => { "type": "string", "enum": ["retry", "stop", "cancel"] };
    Overlap => { "type": "string", "enum": ["skip", "queue", "cancel_previous", "allow"] };
    Delivery => { "type": "string", "enum": ["delivered", "duplicate"] };
    Verdict => { "type": "string", "enum": ["ok", "warn", "fail"] };
    MergeState => { "type": "string", "enum": ["merged", "merging", "unmerged", "cancelling"] };
    SkipReason => { "type": "string", "enum": ["merged", "cancelling"] };
    CallState => { "type": "string", "enum": ["done", "failed", "waiting", "tried", "undone", "not_undone", "left"] };
    Map<String, Value> => { "type": "object", "additionalProperties": {} };
    Retry => { "type": "array", "items": { "type": "object" }, "description": "The rules of the policy." };
    Calendar => { "type": "object", "additionalProperties": { "type": "object" }, "description": "`cron` or `every`." };
    CatchUp => {
        "anyOf": [
            { "type": "string", "enum": ["one", "skip"] },
            { "type": "object", "additionalProperties": { "type": "object" } }
        ]
    };
    Point => {
        "description": "`start`, the index of a node, or the state in which jobs ended.",
        "anyOf": [
            { "type": "string", "const": "start" },
            {
                "type": "object",
                "properties": {
                    "node": { "type": "integer", "minimum": 0 },
                    "end": { "type": "string", "enum": (State::ALL) }
                }
            }
        ]
    };
}

impl Answered for WaitCondition {
    fn schema(schemas: &mut Schemas) -> Value {
        let names = Vec::<SignalName>::schema(schemas);
        json!({
            "anyOf": [
                { "type": "string", "const": "nothing" },
                {
                    "type": "object",
                    "properties": {
                        "signals": {
                            "type": "object",
                            "properties": { "names": names, "needs": u32::schema(schemas) },
                            "required": ["names", "needs"],
                        },
                        "children": {
                            "type": "object",
                            "properties": { "rev": Rev::schema(schemas) },
                            "required": ["rev"],
                        },
                    },
                },
            ],
        })
    }
}

impl Answered for ControlOutcome {
    fn schema(schemas: &mut Schemas) -> Value {
        schemas.named("Outcome", Self::inline)
    }

    fn inline(_: &mut Schemas) -> Value {
        let outcomes = ["done", "cancel_requested", "created", "already", "refused", "unknown"];
        json!({
            "type": "object",
            "properties": {
                "outcome": { "type": "string", "enum": outcomes, "description": "What became of the action." },
                "why": { "type": "string", "description": "Why it was not done, or the id of the job that was created." },
            },
            "required": ["outcome"],
        })
    }
}

impl Answered for EntryResult {
    fn schema(schemas: &mut Schemas) -> Value {
        let failure = windlass::Failure::schema(schemas);
        json!({
            "type": "object",
            "properties": {
                "payload": { "description": "The value; its size, if the server cannot decode it." },
                "failure": failure,
            },
        })
    }
}

impl<T: Answered> Answered for Option<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        nullable(T::schema(schemas))
    }

    fn present(schemas: &mut Schemas) -> Value {
        T::schema(schemas)
    }
}

impl<T: Answered> Answered for Box<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        T::schema(schemas)
    }
}

impl<T: Answered> Answered for Vec<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::schema(schemas) })
    }
}

impl<T: Answered> Answered for BTreeSet<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::schema(schemas) })
    }
}

impl<K, T: Answered> Answered for BTreeMap<K, T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "object", "additionalProperties": T::schema(schemas) })
    }
}
