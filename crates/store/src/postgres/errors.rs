//! Errors of PostgreSQL and of the connections to it. Each is classified once, by [`Class::of`]; whether a transaction is run again
//! and whether a session is kept is decided by its class.

use std::{fmt, time::Duration};

use crate::Error;

/// What went wrong, as far as the store's decisions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The server rolled the transaction back to end a deadlock.
    Deadlock,
    /// The transaction cannot be serialized with another.
    Serialization,
    /// The transaction was rolled back for another reason, or its outcome is unknown.
    RolledBack,
    /// The server only reads: it is a standby, or was set so.
    ReadOnly,
    /// The connection could not be made, or was lost.
    ConnectionLost,
    /// The server did not answer in time.
    NoAnswer,
    /// The server is shutting down, starting, or cannot access its files.
    ServerDown,
    /// A lock was not acquired in time.
    LockTimeout,
    /// The statement was cancelled, by a timeout or a person.
    Cancelled,
    /// The server has no disk space, memory or connections left.
    OutOfResources,
    /// The data of the statement: a type, a constraint, a size, a trigger's error.
    Data,
    /// The result of a statement: too many rows, a row outside of its view.
    Result,
    /// A statement after one that failed, in the same transaction. The first error says why.
    Aborted,
    /// Not supported: a plan for a table that has changed, or, at its beginning, a transaction that writes on a standby.
    NotSupported,
    /// A prepared statement that the session does not have, or that it has from another client of its pooler.
    StaleStatement,
    /// The server refused the connection: the role or the database.
    AccessDenied,
    /// A value does not fit the type of its parameter or column. Found by this process.
    Conversion,
    /// Anything else that the server reports: a table that does not exist, a missing right, corrupt data.
    Other,
    /// The store itself refused or failed.
    Store,
}

impl Class {
    fn of(error: &tokio_postgres::Error) -> Class {
        match error.code() {
            Some(code) => Class::of_code(code.code()),
            None => {
                // Its text is all that an error of this process shows of its kind.
                let text = error.to_string();
                let is_conversion = text.starts_with("error serializing parameter")
                    || text.starts_with("error deserializing column");
                if is_conversion { Class::Conversion } else { Class::ConnectionLost }
            }
        }
    }

    /// Classifies an `SQLSTATE`.
    fn of_code(code: &str) -> Class {
        match code {
            "0A000" => Class::NotSupported,
            "25006" => Class::ReadOnly,
            "25P02" => Class::Aborted,
            "26000" | "42P05" => Class::StaleStatement,
            "40001" => Class::Serialization,
            "40P01" => Class::Deadlock,
            "55P03" => Class::LockTimeout,
            "57014" => Class::Cancelled,
            _ => match code.get(..2).unwrap_or_default() {
                "08" => Class::ConnectionLost,
                "21" | "44" => Class::Result,
                "22" | "23" | "54" | "P0" => Class::Data,
                "28" | "3D" => Class::AccessDenied,
                "40" => Class::RolledBack,
                "53" => Class::OutOfResources,
                "57" | "58" => Class::ServerDown,
                _ => Class::Other,
            },
        }
    }

    /// Whether the session is useless after such an error: it is one of the wrong server (a standby) or of one that is going away, or
    /// it knows the schema, the rights or the statements as they were. Only errors about data, locks, limits and cancelled statements
    /// say nothing about the session; after all others, at worst a connection is opened needlessly.
    pub(super) fn ends_session(self) -> bool {
        !matches!(
            self,
            Class::Deadlock
                | Class::Serialization
                | Class::RolledBack
                | Class::LockTimeout
                | Class::Cancelled
                | Class::OutOfResources
                | Class::Data
                | Class::Result
                | Class::Aborted
                | Class::Store
        )
    }

    /// Whether the defaults of the role may have caused such an error of a statement that was sent without a transaction: the isolation
    /// level, that it only reads, or a timeout. Nothing was written then.
    pub(super) fn may_need_settings(self) -> bool {
        matches!(self, Class::Serialization | Class::ReadOnly | Class::Cancelled | Class::LockTimeout)
    }

    /// The error that callers of the store get.
    fn error(self, text: String) -> Error {
        match self {
            Class::ReadOnly => {
                Error::Unavailable(format!("the database is read-only: {text}; connect to the primary"))
            }
            Class::Deadlock
            | Class::Serialization
            | Class::RolledBack
            | Class::ConnectionLost
            | Class::NoAnswer
            | Class::ServerDown
            | Class::LockTimeout
            | Class::Cancelled
            | Class::OutOfResources
            | Class::NotSupported
            | Class::StaleStatement => Error::Unavailable(text),
            Class::Data => Error::Refused(text),
            Class::AccessDenied => Error::Config(format!("PostgreSQL refused the connection: {text}")),
            Class::Result | Class::Aborted | Class::Conversion | Class::Other | Class::Store => {
                Error::Fault(text)
            }
        }
    }
}

/// An error within this backend. `?` converts it into the [`Error`] that callers of the store get.
#[derive(Debug)]
pub(super) struct PgError {
    pub(super) class: Class,
    error: Error,
}

impl PgError {
    /// The server did not answer within `patience`.
    pub(super) fn no_answer(patience: Duration) -> PgError {
        let error = Error::Unavailable(format!("PostgreSQL did not answer within {patience:?}"));
        PgError { class: Class::NoAnswer, error }
    }

    /// An error of the beginning of a transaction: a standby reports one that writes as not supported.
    pub(super) fn at_begin(error: tokio_postgres::Error) -> PgError {
        match Class::of(&error) {
            Class::NotSupported => PgError::new(Class::ReadOnly, &error),
            class => PgError::new(class, &error),
        }
    }

    fn new(class: Class, error: &tokio_postgres::Error) -> PgError {
        let text = match (error.as_db_error(), std::error::Error::source(error)) {
            (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
            (None, Some(source)) => format!("{error}: {source}"),
            (None, None) => error.to_string(),
        };
        PgError { class, error: class.error(text) }
    }
}

impl From<tokio_postgres::Error> for PgError {
    fn from(error: tokio_postgres::Error) -> PgError {
        PgError::new(Class::of(&error), &error)
    }
}

impl From<Error> for PgError {
    fn from(error: Error) -> PgError {
        PgError { class: Class::Store, error }
    }
}

impl From<windlass_model::Invalid> for PgError {
    fn from(invalid: windlass_model::Invalid) -> PgError {
        Error::from(invalid).into()
    }
}

impl From<PgError> for Error {
    fn from(error: PgError) -> Error {
        error.error
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_classified() {
        for (code, class) in [
            ("40P01", Class::Deadlock),
            ("40001", Class::Serialization),
            ("40003", Class::RolledBack),
            ("25006", Class::ReadOnly),
            ("25P02", Class::Aborted),
            ("08006", Class::ConnectionLost),
            ("57P01", Class::ServerDown),
            ("58030", Class::ServerDown),
            ("55P03", Class::LockTimeout),
            ("57014", Class::Cancelled),
            ("53100", Class::OutOfResources),
            ("53300", Class::OutOfResources),
            ("22001", Class::Data),
            ("23505", Class::Data),
            ("54000", Class::Data),
            ("P0001", Class::Data),
            ("21000", Class::Result),
            ("0A000", Class::NotSupported),
            ("26000", Class::StaleStatement),
            ("42P05", Class::StaleStatement),
            ("28000", Class::AccessDenied),
            ("3D000", Class::AccessDenied),
            ("42P01", Class::Other),
            ("99999", Class::Other),
            ("", Class::Other),
        ] {
            assert_eq!(Class::of_code(code), class, "{code}");
        }
    }

    #[test]
    fn a_class_decides_what_the_caller_does_next() {
        let error = |class: Class| class.error("why".into());
        for class in [Class::Deadlock, Class::ConnectionLost, Class::LockTimeout, Class::OutOfResources] {
            assert!(error(class).is_retryable(), "{class:?}");
        }
        assert!(matches!(error(Class::Data), Error::Refused(_)));
        assert!(matches!(error(Class::AccessDenied), Error::Config(_)));
        assert!(matches!(error(Class::Other), Error::Fault(_)));
        assert!(matches!(error(Class::Conversion), Error::Fault(_)));
        assert!(error(Class::ReadOnly).to_string().ends_with("connect to the primary"));
    }

    #[test]
    fn an_error_of_the_store_is_returned_as_it_is() {
        let error = PgError::from(Error::Dead);
        assert_eq!(error.class, Class::Store);
        assert!(matches!(Error::from(error), Error::Dead));
    }

    #[test]
    fn only_statements_that_settings_can_save_are_sent_again_with_settings() {
        for code in ["40001", "25006", "57014", "55P03"] {
            assert!(Class::of_code(code).may_need_settings(), "{code}");
        }
        for code in ["40P01", "40003", "23505", "57P01", "08006"] {
            assert!(!Class::of_code(code).may_need_settings(), "{code}");
        }
    }

    #[test]
    fn a_session_ends_with_an_error_that_makes_it_useless() {
        let ends = [
            ("25006", "a server that only reads"),
            ("0A000", "a plan for a table that has changed; a transaction that writes, on a standby"),
            ("26000", "an unknown prepared statement"),
            ("42P05", "a prepared statement of another client"),
            ("08000", "a connection error"),
            ("08003", "a connection that does not exist"),
            ("08006", "a connection that failed"),
            ("08P01", "a protocol violation"),
            ("57P01", "an administrator's shutdown"),
            ("57P02", "a crash"),
            ("57P03", "a server that is starting"),
            ("57P04", "a database that was dropped"),
            ("57P05", "a session that was idle for too long"),
            ("25P03", "a transaction that was idle for too long"),
            ("25001", "a transaction that is open already"),
            ("28000", "a role that may not connect"),
            ("3D000", "a database that does not exist"),
            ("3F000", "a schema that does not exist"),
            ("42P01", "a table that does not exist"),
            ("42703", "a column that does not exist"),
            ("42883", "a function that does not exist"),
            ("42501", "a revoked right"),
            ("55000", "an object in the wrong state"),
            ("58030", "files that cannot be read"),
            ("XX000", "an internal error"),
            ("XX001", "corrupt data"),
            ("99999", "an unknown code"),
        ];
        for (code, what) in ends {
            assert!(Class::of_code(code).ends_session(), "{code}: {what}");
        }
        let stays = [
            ("21000", "too many rows"),
            ("22001", "a value that is too long"),
            ("23505", "a key that is taken"),
            ("40001", "a transaction that cannot be serialized"),
            ("40P01", "a deadlock"),
            ("44000", "a row outside of its view"),
            ("53100", "a full disk"),
            ("53200", "no memory"),
            ("54000", "a limit"),
            ("55P03", "a lock that was not acquired in time"),
            ("57014", "a cancelled statement"),
            ("25P02", "a statement after one that failed"),
            ("P0001", "the error of a trigger"),
        ];
        for (code, what) in stays {
            assert!(!Class::of_code(code).ends_session(), "{code}: {what}");
        }
    }
}
