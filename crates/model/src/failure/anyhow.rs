//! Conversion of `anyhow::Error` into failures.
//!
//! `anyhow` hides the type of an error, and with it the conversion that its author wrote. Types that are registered are found again.

use std::{
    any::TypeId,
    fmt::{Debug, Display},
    sync::{PoisonError, RwLock},
};

use super::Failure;

/// Takes its error out of an `anyhow::Error` and converts it; returns other errors as they are.
type Convert = fn(anyhow::Error) -> Result<Inside, anyhow::Error>;

/// What was inside of an `anyhow::Error`.
struct Inside {
    failure: Failure,
    /// The text of the error itself, which follows that of its contexts.
    text: String,
}

/// The types that are registered, each once.
static KNOWN: RwLock<Vec<(TypeId, Convert)>> = RwLock::new(Vec::new());

/// Makes failures of an error type that is inside an `anyhow::Error`, in this process, by its own conversion.
pub fn register<E: Into<Failure> + Display + Debug + Send + Sync + 'static>() {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if !known.iter().any(|(id, _)| *id == TypeId::of::<E>()) {
        known.push((TypeId::of::<E>(), take::<E>));
    }
}

fn take<E: Into<Failure> + Display + Debug + Send + Sync + 'static>(
    error: anyhow::Error,
) -> Result<Inside, anyhow::Error> {
    error.downcast::<E>().map(|error| Inside { text: error.to_string(), failure: error.into() })
}

impl From<anyhow::Error> for Failure {
    /// A `Failure` inside, or an error of a registered type, decides what follows; its message follows the contexts of the error.
    /// Any other error is worth another attempt.
    fn from(error: anyhow::Error) -> Failure {
        let shown = format!("{error:#}");
        // Copied, because a conversion may convert another `anyhow::Error`.
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).clone();
        let inside = known.iter().fold(take::<Failure>(error), |result, (_, take)| result.or_else(take));
        match inside {
            Ok(Inside { failure, text }) => {
                let contexts = shown.rfind(&text).map_or("", |at| &shown[..at]);
                Failure { message: format!("{contexts}{}", failure.message), ..failure }
            }
            Err(error) => Failure::of_error(error.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[derive(Debug)]
    struct Declined;

    impl Display for Declined {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the card was declined")
        }
    }

    impl std::error::Error for Declined {}

    impl From<Declined> for Failure {
        fn from(error: Declined) -> Failure {
            Failure::stop(error).class("declined")
        }
    }

    #[test]
    fn a_failure_or_a_registered_error_inside_decides_and_the_context_is_kept() {
        let failure: Failure = anyhow::Error::new(Failure::stop("no").class("mine")).into();
        assert_eq!(failure, Failure::stop("no").class("mine"));
        // As often as it passes through `anyhow`.
        let nested = anyhow::Error::new(failure).context("paying").context("order 7");
        let again = anyhow::Error::new(Failure::from(nested));
        assert_eq!(Failure::from(again), Failure::stop("order 7: paying: no").class("mine"));
        let declined = || Err::<(), _>(Declined).context("paying order 7").expect_err("declined");
        assert_eq!(Failure::from(declined()), Failure::retry("paying order 7: the card was declined"));
        register::<Declined>();
        register::<Declined>();
        let expected = Failure::stop("paying order 7: the card was declined").class("declined");
        assert_eq!(Failure::from(declined()), expected);
        let mine = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(mine.iter().filter(|(id, _)| *id == TypeId::of::<Declined>()).count(), 1);
    }
}
