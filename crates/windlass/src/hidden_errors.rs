//! Errors whose type `Box<dyn Error>` or `anyhow::Error` hides: the engine's own are found again, and a type that is not registered is
//! reported.

use windlass_model::failure::{on_unregistered, register};
use windlass_workflow::{Cancelled, ChildrenError, Error, JobError, SignalError};

use crate::RunError;

/// Registers the errors of the engine's own calls, and logs a warning for each type that is retried because nobody registered it.
pub(crate) fn find_again() {
    register::<windlass_store::Error>();
    register::<Error>();
    register::<JobError>();
    register::<RunError>();
    register::<Cancelled>();
    register::<SignalError>();
    register::<ChildrenError>();
    on_unregistered(|name| {
        tracing::warn!(
            error = name,
            "an error is retried by default, because `Box<dyn Error>` or `anyhow::Error` hides its type and with it its conversion into \
             `Failure`; name the type with `.error::<T>()` on the engine's builder, or say it at the call with `.or_retry()?` or \
             `.or_stop()?`"
        );
    });
}
