//! Conversions of other errors into failures.
//!
//! `?` uses them in functions that return a [`Failure`]. An error type that is not here has no conversion, so that no error is retried
//! without somebody having decided that: its own crate writes `impl From<MyError> for Failure`, and for the types of other crates
//! [`OrFailure`] says at the call whether a retry can help.

use std::error::Error;

use super::{Failure, class};

/// Turns the errors of other crates into failures, for `?`.
///
/// ```
/// use windlass_model::{Failure, failure::OrFailure};
///
/// fn port(text: &str) -> Result<u16, Failure> {
///     // A retry cannot help: the text stays the same.
///     text.parse::<u16>().or_stop()
/// }
/// assert_eq!(port("80"), Ok(80));
/// ```
pub trait OrFailure<T> {
    /// An error is worth another attempt.
    fn or_retry(self) -> Result<T, Failure>;

    /// An error fails the job: no further attempt can help.
    fn or_stop(self) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrFailure<T> for Result<T, E> {
    fn or_retry(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::of_error(&*error.into()))
    }

    fn or_stop(self) -> Result<T, Failure> {
        self.or_retry().map_err(Failure::without_retry)
    }
}

impl Failure {
    /// Makes a failure that is worth another attempt from an error and its sources.
    pub fn of_error(error: &(dyn Error + 'static)) -> Failure {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return failure.clone();
        }
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors repeat their source.
            if !text.ends_with(&cause_text) {
                text += &format!(": {cause_text}");
            }
            source = cause.source();
        }
        Failure::retry(text)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::retry(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Failure {
        Failure::retry(message)
    }
}

impl From<std::convert::Infallible> for Failure {
    fn from(never: std::convert::Infallible) -> Failure {
        match never {}
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::of_error(&error).class(class::IO)
    }
}

/// Errors of the standard library and of JSON that are retried by default.
macro_rules! retried {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::of_error(&error)
            }
        })+
    };
}

retried!(
    serde_json::Error,
    std::char::ParseCharError,
    std::env::VarError,
    std::fmt::Error,
    std::net::AddrParseError,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::str::ParseBoolError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::time::SystemTimeError,
);

impl From<crate::Invalid> for Failure {
    fn from(error: crate::Invalid) -> Failure {
        Failure::stop(error).class(class::REFUSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::OnFailure;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the port is no number")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    fn outer() -> Result<u16, Outer> {
        "eighty".parse().map_err(Outer)
    }

    #[test]
    fn a_failure_of_an_error_names_its_sources() {
        let failure = outer().or_retry().expect_err("not a number");
        assert_eq!(failure, Failure::retry("the port is no number: invalid digit found in string"));
        assert_eq!(outer().or_stop().expect_err("not a number").then, OnFailure::Stop);
    }

    #[test]
    fn a_failure_stays_itself_in_a_box() {
        let failure = Failure::stop("no").class("mine");
        let boxed: Box<dyn Error + Send + Sync> = failure.clone().into();
        assert_eq!(Failure::from(boxed), failure);
        assert_eq!(Err::<(), _>(failure.clone()).or_retry(), Err(failure));
    }
}
