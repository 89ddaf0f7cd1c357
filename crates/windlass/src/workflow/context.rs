//! The context of a workflow: values by name, which others can read while it lives.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{Failure, failure::class, limits::check_given};

use super::{core::Core, state::misuse};

/// The longest value, in bytes.
const VALUE: usize = 16 << 10;

/// The context of a workflow: values by name, committed with the step before or after which they are set, and read by
/// whoever looks at the job.
pub struct Context<'f> {
    pub(super) core: &'f Arc<Core>,
}

impl Context<'_> {
    /// A value, if it is set.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let value = self.core.lock().context.get(name).cloned();
        let Some(value) = value else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|error| {
            let text = format!("the value {name:?} of the context does not decode ({error})");
            Failure::stop(text).class(class::UNDECODABLE)
        })
    }

    /// Whether a value is set.
    pub fn has(&self, name: &str) -> bool {
        self.core.lock().context.contains_key(name)
    }

    /// Sets a value. It is written with the next commit of the workflow.
    pub fn set<T: Serialize>(&self, name: &str, value: T) -> Result<(), Failure> {
        if self.core.may_call(&format!("setting {name:?} of the context")) {
            self.core.set(None, name, self::value(name, &value)?);
        }
        Ok(())
    }

    /// Sets a value unless it is set. Whether it did.
    pub fn set_once<T: Serialize>(&self, name: &str, value: T) -> Result<bool, Failure> {
        if self.has(name) {
            return Ok(false);
        }
        self.set(name, value)?;
        Ok(true)
    }
}

/// A value as it is kept, if it can be.
pub(super) fn value<T: Serialize>(name: &str, value: &T) -> Result<serde_json::Value, Failure> {
    check_given("name in the context", name).map_err(misuse)?;
    let value = serde_json::to_value(value).map_err(|error| {
        misuse(format!("the value {name:?} of the context cannot be written as JSON ({error})"))
    })?;
    let size = value.to_string().len();
    if size > VALUE {
        return Err(misuse(format!(
            "the value {name:?} of the context is {size} bytes long, more than the {VALUE} allowed; keep it elsewhere and set \
             a reference to it"
        )));
    }
    Ok(value)
}
