//! Errors whose type is hidden: by `Box<dyn Error>`, and with the feature `anyhow` by `anyhow::Error`.
//!
//! What hides the type of an error hides the conversion that its author wrote, too. Types that are registered are found again, and so
//! are those that have a conversion here. An error of any other type is worth another attempt, which is reported once per type.

use std::{
    any::TypeId,
    collections::BTreeSet,
    error::Error,
    fmt::{self, Write},
    sync::{Mutex, OnceLock, PoisonError, RwLock},
};

use super::Failure;

type Boxed = Box<dyn Error + Send + Sync>;

/// How a type is found again. Both take their error out of what hides it and convert it, and return other errors as they are.
#[derive(Clone, Copy)]
struct Conversion {
    of_box: fn(Boxed) -> Result<Failure, Boxed>,
    #[cfg(feature = "anyhow")]
    of_anyhow: contexts::Take,
}

/// The types that are registered, each once.
static REGISTERED: RwLock<Vec<(TypeId, Conversion)>> = RwLock::new(Vec::new());

/// The types that have a conversion here.
const OWN: &[Conversion] = &[
    conversion::<Failure>(),
    conversion::<crate::Invalid>(),
    conversion::<std::io::Error>(),
    conversion::<serde_json::Error>(),
    conversion::<std::char::ParseCharError>(),
    conversion::<std::env::VarError>(),
    conversion::<std::fmt::Error>(),
    conversion::<std::net::AddrParseError>(),
    conversion::<std::num::ParseFloatError>(),
    conversion::<std::num::ParseIntError>(),
    conversion::<std::num::TryFromIntError>(),
    conversion::<std::str::ParseBoolError>(),
    conversion::<std::str::Utf8Error>(),
    conversion::<std::string::FromUtf8Error>(),
    conversion::<std::time::SystemTimeError>(),
    #[cfg(feature = "postgres")]
    conversion::<tokio_postgres::Error>(),
    #[cfg(feature = "sqlite")]
    conversion::<rusqlite::Error>(),
];

const fn conversion<E: Into<Failure> + Error + Send + Sync + 'static>() -> Conversion {
    Conversion {
        of_box: |error| error.downcast::<E>().map(|error| (*error).into()),
        #[cfg(feature = "anyhow")]
        of_anyhow: contexts::take::<E>,
    }
}

/// Finds an error type again, in this process, that a box or `anyhow` hides: its own conversion then decides what follows.
pub fn register<E: Into<Failure> + Error + Send + Sync + 'static>() {
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    if !registered.iter().any(|(id, _)| *id == TypeId::of::<E>()) {
        registered.push((TypeId::of::<E>(), conversion::<E>()));
    }
}

/// All conversions. A copy, because one of them may convert another hidden error.
fn conversions() -> Vec<Conversion> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    OWN.iter().copied().chain(registered.iter().map(|(_, conversion)| *conversion)).collect()
}

impl From<Boxed> for Failure {
    /// A `Failure` inside, or an error of a registered type, decides what follows. Any other error is worth another attempt.
    fn from(mut error: Boxed) -> Failure {
        for conversion in conversions() {
            error = match (conversion.of_box)(error) {
                Ok(failure) => return failure,
                Err(other) => other,
            };
        }
        report(&*error);
        Failure::of_error(&*error)
    }
}

/// An error that is retried by default. Rust keeps no name of a type that is hidden, so this is what can be said of it.
#[derive(Clone, Copy, Debug)]
pub struct Unregistered<'a> {
    /// The first word of its debug text: the name of a struct, or of the variant of an enum.
    pub name: &'a str,
    /// Its text for people.
    pub text: &'a str,
}

/// Whom [`report`] calls.
static REPORTER: OnceLock<fn(Unregistered<'_>)> = OnceLock::new();
/// What was reported.
static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// The most types that are reported: an error whose debug text is made of its data would otherwise fill the memory.
const MAX_REPORTED: usize = 1_000;

/// Sets who is called, once per name, when an error is retried by default because its type is hidden and not registered. The first
/// reporter stays.
pub fn on_unregistered(reporter: fn(Unregistered<'_>)) {
    let _ = REPORTER.set(reporter);
}

/// Reports an error that is retried by default. A message without a type (`anyhow!("…")`) has no conversion that could be hidden.
fn report(error: &(dyn Error + 'static)) {
    let (Some(reporter), Some(name)) = (REPORTER.get(), debug_name(error)) else { return };
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.len() < MAX_REPORTED && reported.insert(name.clone()) {
        drop(reported);
        reporter(Unregistered { name: &name, text: &error.to_string() });
    }
}

/// The first word of an error's debug text, if that begins with a name.
fn debug_name(error: &dyn Error) -> Option<String> {
    /// Takes a name, and then fails to end the formatting.
    struct Name(String);
    impl Write for Name {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for letter in text.chars() {
                let is_name = letter.is_alphanumeric() || letter == '_';
                if !is_name || self.0.len() > 100 {
                    return Err(fmt::Error);
                }
                self.0.push(letter);
            }
            Ok(())
        }
    }
    let mut name = Name(String::new());
    let _ = write!(name, "{error:?}");
    name.0.starts_with(char::is_alphabetic).then_some(name.0)
}

#[cfg(feature = "anyhow")]
mod contexts {
    //! `anyhow::Error`, which also keeps contexts: they come before the message.

    use std::fmt::{Debug, Display};

    use super::{Boxed, Failure, conversions, report};

    /// What was inside of an `anyhow::Error`.
    pub(super) struct Inside {
        failure: Failure,
        /// The text of the error itself, which follows that of its contexts.
        text: String,
    }

    /// Takes an error of one type out of an `anyhow::Error`, or returns that.
    pub(super) type Take = fn(anyhow::Error) -> Result<Inside, anyhow::Error>;

    impl Inside {
        /// The failure, its message after the contexts in the text of the whole error.
        fn after_contexts(self, shown: &str) -> Failure {
            let contexts = shown.rfind(&self.text).map_or("", |at| &shown[..at]);
            Failure { message: format!("{contexts}{}", self.failure.message), ..self.failure }
        }
    }

    pub(super) fn take<E: Into<Failure> + Display + Debug + Send + Sync + 'static>(
        error: anyhow::Error,
    ) -> Result<Inside, anyhow::Error> {
        error.downcast::<E>().map(|error| Inside { text: error.to_string(), failure: error.into() })
    }

    impl From<anyhow::Error> for Failure {
        /// A `Failure` inside, or an error of a registered type, decides what follows; its message follows the contexts of the error.
        /// Any other error is worth another attempt.
        fn from(mut error: anyhow::Error) -> Failure {
            let shown = format!("{error:#}");
            let own = conversions().into_iter().map(|conversion| conversion.of_anyhow);
            for take in own.chain([take::<Boxed> as Take]) {
                error = match take(error) {
                    Ok(inside) => return inside.after_contexts(&shown),
                    Err(other) => other,
                };
            }
            // Below its contexts, which are errors to `anyhow`.
            let is_context = |cause: &&(dyn std::error::Error + 'static)| {
                format!("{cause:?}").starts_with("Error { context: ") && cause.source().is_some()
            };
            error.chain().find(|cause| !is_context(cause)).into_iter().for_each(report);
            Failure::of_error(error.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{OrFailure, class};

    /// Declares an error type whose conversion stops the job.
    macro_rules! stops {
        ($name:ident, $text:literal) => {
            #[derive(Debug)]
            struct $name;

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str($text)
                }
            }

            impl Error for $name {}

            impl From<$name> for Failure {
                fn from(error: $name) -> Failure {
                    Failure::stop(error).class("mine")
                }
            }
        };
    }

    stops!(Declined, "the card was declined");
    stops!(Closed, "the bank is closed");
    stops!(Forgotten, "forgotten");
    #[cfg(feature = "anyhow")]
    stops!(Lost, "lost");

    /// The names and texts that were reported.
    static REPORTS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

    fn reported(name: &str) -> usize {
        on_unregistered(|error| {
            REPORTS.lock().expect("not poisoned").push((error.name.to_owned(), error.text.to_owned()));
        });
        REPORTS.lock().expect("not poisoned").iter().filter(|(known, _)| known == name).count()
    }

    fn boxed(error: impl Into<Boxed>) -> Failure {
        Failure::from(error.into())
    }

    #[test]
    fn a_registered_error_in_a_box_decides() {
        register::<Closed>();
        register::<Closed>();
        assert_eq!(boxed(Closed), Failure::stop("the bank is closed").class("mine"));
        assert_eq!(boxed(Failure::stop("no").class("mine")), Failure::stop("no").class("mine"));
        assert_eq!(boxed(std::io::Error::other("no disk")).class, class::IO);
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(registered.iter().filter(|(id, _)| *id == TypeId::of::<Closed>()).count(), 1);
    }

    #[test]
    fn an_error_that_is_retried_by_default_is_reported_once_per_type() {
        assert_eq!(reported("Forgotten"), 0);
        for _ in 0..3 {
            assert_eq!(boxed(Forgotten), Failure::retry("forgotten"));
        }
        assert_eq!(reported("Forgotten"), 1);
        // The text finds the type if the name is that of a variant.
        let report = ("Forgotten".to_owned(), "forgotten".to_owned());
        assert!(REPORTS.lock().expect("not poisoned").contains(&report));
        // A message has no type, and for this one the call decides.
        assert_eq!(boxed("a message"), Failure::retry("a message"));
        assert_eq!(Err::<(), _>(Declined).or_retry(), Err(Failure::retry("the card was declined")));
        assert_eq!((reported("a"), reported("Declined")), (0, 0));
    }

    #[test]
    fn the_name_of_an_error_is_the_first_word_of_its_debug_text() {
        #[derive(Debug)]
        enum Payment {
            Declined { _limit: u32 },
        }
        impl fmt::Display for Payment {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("declined")
            }
        }
        impl Error for Payment {}
        assert_eq!(debug_name(&Payment::Declined { _limit: 3 }).as_deref(), Some("Declined"));
        assert_eq!(debug_name(&Declined).as_deref(), Some("Declined"));
        let message: Boxed = "a message".into();
        assert_eq!(debug_name(&*message), None);
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn a_failure_or_a_registered_error_inside_of_anyhow_decides_and_the_context_is_kept() {
        use anyhow::Context;

        let failure: Failure = anyhow::Error::new(Failure::stop("no").class("mine")).into();
        assert_eq!(failure, Failure::stop("no").class("mine"));
        // As often as it passes through `anyhow`.
        let nested = anyhow::Error::new(failure).context("paying").context("order 7");
        let again = anyhow::Error::new(Failure::from(nested));
        assert_eq!(Failure::from(again), Failure::stop("order 7: paying: no").class("mine"));
        let lost = || Err::<(), _>(Lost).context("paying").context("order 7").expect_err("lost");
        assert_eq!((Failure::from(lost()), reported("Error")), (Failure::retry("order 7: paying: lost"), 0));
        let _ = Failure::from(lost());
        assert_eq!(reported("Lost"), 1);
        register::<Lost>();
        assert_eq!(Failure::from(lost()), Failure::stop("order 7: paying: lost").class("mine"));
        // In a box in there, too.
        let boxed: Boxed = Box::new(Lost);
        assert_eq!(Failure::from(anyhow::Error::from_boxed(boxed)), Failure::stop("lost").class("mine"));
        assert_eq!(Failure::from(anyhow::anyhow!("a message")), Failure::retry("a message"));
    }
}
