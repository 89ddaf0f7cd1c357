//! Errors of databases as failures, so that `?` works in steps and transactions: which of them are worth another attempt.

#[cfg(any(feature = "sqlite", feature = "postgres", test))]
use super::{Failure, class};

/// What an error of a database says about the next attempt.
#[cfg(any(feature = "sqlite", feature = "postgres", test))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// A row violates a constraint.
    Constraint,
    /// A value does not fit.
    Data,
    /// Another transaction was in the way.
    Conflict,
    /// Anything else.
    Other,
}

#[cfg(any(feature = "sqlite", feature = "postgres", test))]
impl Cause {
    /// The same row and the same value would be refused again; whatever else was in the way may be gone at the next attempt.
    fn failure(self, text: String) -> Failure {
        match self {
            Cause::Constraint => Failure::stop(text).class(class::CONSTRAINT),
            Cause::Data => Failure::stop(text).class(class::DATA),
            Cause::Conflict => Failure::retry(text).class(class::CONFLICT),
            Cause::Other => Failure::retry(text).class(class::DATABASE),
        }
    }
}

/// A constraint or a value that PostgreSQL refuses stops the job. Everything else is retried: a deadlock, a lost connection, a
/// table that a migration has not created yet.
#[cfg(feature = "postgres")]
impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        let text = match (error.as_db_error(), std::error::Error::source(&error)) {
            (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
            (None, Some(source)) => format!("{error}: {source}"),
            (None, None) => error.to_string(),
        };
        let cause = match error.code() {
            Some(code) => cause_of_sqlstate(code.code()),
            None => cause_of_driver_text(&error.to_string()),
        };
        cause.failure(text)
    }
}

/// A constraint or a value that SQLite or rusqlite refuses stops the job. Everything else is retried: a locked file, a full disk.
#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        use rusqlite::ErrorCode;
        let cause = match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation) => Cause::Constraint,
            Some(ErrorCode::TypeMismatch | ErrorCode::TooBig | ErrorCode::ParameterOutOfRange) => Cause::Data,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Cause::Conflict,
            Some(_) => Cause::Other,
            // Of rusqlite itself: a conversion, a missing column, a number of rows or parameters.
            None => Cause::Data,
        };
        cause.failure(error.to_string())
    }
}

/// The cause that an `SQLSTATE` stands for.
#[cfg(any(feature = "postgres", test))]
fn cause_of_sqlstate(code: &str) -> Cause {
    match code.get(..2).unwrap_or_default() {
        "23" => Cause::Constraint,
        // Values, numbers of rows, views, limits of the server, errors that triggers and functions raise.
        "21" | "22" | "44" | "54" | "P0" => Cause::Data,
        "40" => Cause::Conflict,
        _ if code == "55P03" => Cause::Conflict,
        _ => Cause::Other,
    }
}

/// The cause of an error that tokio-postgres found by itself: its text is all that it shows of its kind.
#[cfg(any(feature = "postgres", test))]
fn cause_of_driver_text(text: &str) -> Cause {
    let about_values = [
        "error serializing parameter",
        "error deserializing column",
        "invalid column",
        "query returned an unexpected number of",
    ];
    let is_count = text.starts_with("expected ") && text.contains(" parameters but got ");
    match is_count || about_values.iter().any(|start| text.starts_with(start)) {
        true => Cause::Data,
        false => Cause::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::OnFailure;

    #[test]
    fn only_what_would_fail_again_stops_the_job() {
        let ends = |cause: Cause| cause.failure("why".into()).then;
        assert_eq!([Cause::Constraint, Cause::Data].map(ends), [OnFailure::Stop; 2]);
        assert_eq!([Cause::Conflict, Cause::Other].map(ends), [OnFailure::Retry; 2]);
    }

    #[test]
    fn codes_of_postgres_are_classified() {
        for (code, cause) in [
            ("23505", Cause::Constraint),
            ("23503", Cause::Constraint),
            ("22003", Cause::Data),
            ("P0001", Cause::Data),
            ("54000", Cause::Data),
            ("40P01", Cause::Conflict),
            ("40001", Cause::Conflict),
            ("55P03", Cause::Conflict),
            ("57P01", Cause::Other),
            ("08006", Cause::Other),
            ("42P01", Cause::Other),
            ("", Cause::Other),
        ] {
            assert_eq!(cause_of_sqlstate(code), cause, "{code}");
        }
    }

    #[test]
    fn errors_of_the_driver_about_values_differ_from_those_of_the_connection() {
        for text in [
            "error serializing parameter 0",
            "error deserializing column 1",
            "invalid column `total`",
            "query returned an unexpected number of rows",
            "expected 2 parameters but got 1",
        ] {
            assert_eq!(cause_of_driver_text(text), Cause::Data, "{text}");
        }
        for text in ["connection closed", "error communicating with the server"] {
            assert_eq!(cause_of_driver_text(text), Cause::Other, "{text}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn errors_of_sqlite_are_classified() {
        let failure =
            |code: i32| Failure::from(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None));
        for (code, class, then) in [
            (rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE, class::CONSTRAINT, OnFailure::Stop),
            (rusqlite::ffi::SQLITE_MISMATCH, class::DATA, OnFailure::Stop),
            (rusqlite::ffi::SQLITE_BUSY, class::CONFLICT, OnFailure::Retry),
            (rusqlite::ffi::SQLITE_FULL, class::DATABASE, OnFailure::Retry),
            (rusqlite::ffi::SQLITE_ERROR, class::DATABASE, OnFailure::Retry),
        ] {
            let failure = failure(code);
            assert_eq!((&*failure.class, failure.then), (class, then), "{code}");
        }
        let failure = Failure::from(rusqlite::Error::QueryReturnedNoRows);
        assert_eq!((&*failure.class, failure.then), (class::DATA, OnFailure::Stop));
    }
}
