//! The context of a workflow: named values that others can read while the workflow runs.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{Failure, Limits, Payload, failure::class, limits::check_key};

use super::{core::Core, fault::misuse};
use crate::codec::Codecs;

/// The context of a workflow: named values, committed with the step before or after which they are set, that others can read
/// while the workflow runs.
pub struct Context<'f> {
    pub(super) core: &'f Arc<Core>,
}

impl Context<'_> {
    /// Returns a value, if it is set.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let value = self.core.lock().context.values.get(name).cloned();
        let Some(Value(value)) = value else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|error| {
            let text = format!("the value {name:?} of the context does not decode ({error})");
            Failure::stop(text).class(class::UNDECODABLE)
        })
    }

    /// Whether a value is set.
    pub fn has(&self, name: &str) -> bool {
        self.core.lock().context.values.contains_key(name)
    }

    /// Sets a value. It is written with the next commit of the workflow.
    pub fn set<T: Serialize>(&self, name: &str, value: T) -> Result<(), Failure> {
        if self.core.may_call(&format!("setting {name:?} of the context")) {
            let value = Value::new(self.core.services.store.limits(), name, &value)?;
            self.core.set(None, name, value);
        }
        Ok(())
    }

    /// Sets a value unless it is set. Returns whether it did.
    pub fn set_once<T: Serialize>(&self, name: &str, value: T) -> Result<bool, Failure> {
        if self.has(name) {
            return Ok(false);
        }
        self.set(name, value)?;
        Ok(true)
    }
}

/// A value of a context. Only [`Value::payload`] converts it into bytes, and encodes them: a plain value cannot become part of
/// anything else that is written.
#[derive(Clone, PartialEq)]
pub(super) struct Value(serde_json::Value);

impl Value {
    /// Makes a value, if the store can keep it.
    pub(super) fn new<T: Serialize>(limits: &Limits, name: &str, value: &T) -> Result<Value, Failure> {
        check_key("name in the context", name).map_err(misuse)?;
        let value = serde_json::to_value(value).map_err(|error| {
            misuse(format!("the value {name:?} of the context cannot be written as JSON ({error})"))
        })?;
        limits.check_context(name, value.to_string().len()).map_err(misuse)?;
        Ok(Value(value))
    }

    /// The plain value, for the unit test that set it: nothing of that is written.
    pub(super) fn into_json(self) -> serde_json::Value {
        self.0
    }

    /// Decodes a value.
    pub(super) fn read(payload: &Payload, codecs: &Codecs) -> Option<Value> {
        let plain = codecs.decode(payload).ok()?;
        serde_json::from_slice(&plain).ok().map(Value)
    }

    /// Encodes it.
    pub(super) fn payload(&self, core: &Core) -> Result<Payload, Failure> {
        core.encode(serde_json::to_vec(&self.0).unwrap_or_default())
    }
}
