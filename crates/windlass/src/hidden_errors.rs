//! Errors whose type `Box<dyn Error>` or `anyhow::Error` hides: the engine's own are found again, and a type that is not registered is
//! reported.

use windlass_model::failure::{Unregistered, on_unregistered, register};
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
    on_unregistered(|error| tracing::warn!(error = error.name, "{}", warning(error)));
}

/// Says what to write. Of an enum only the variant is known, so that the text says which error it is.
fn warning(Unregistered { name, text }: Unregistered<'_>) -> String {
    format!(
        "the error `{name}` ({text:?}) is retried by default, because `Box<dyn Error>` or `anyhow::Error` hides its type and with it its \
         conversion into `Failure`; give the type that is named `{name}`, or the enum that has the variant `{name}`, to `.error::<…>()` \
         of the engine's builder, or decide at the call with `.or_retry()?` or `.or_stop()?`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_says_that_the_enum_is_registered_and_not_its_variant() {
        let text = warning(Unregistered { name: "TooHeavy", text: "5478 g are too much" });
        assert!(text.starts_with("the error `TooHeavy` (\"5478 g are too much\") is retried"), "{text}");
        assert!(text.contains("the enum that has the variant `TooHeavy`, to `.error::<…>()`"), "{text}");
    }
}
