//! Errors of the server, sorted by what is to be done next.

use tokio_postgres::error::SqlState;

use crate::Error;

/// Sorts an error by what is to be done next.
pub(super) fn sorted(error: tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        // Not from the server: the connection could not be made or was lost, or a value does not fit its type.
        let text = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        return if error.to_string().contains("serializing") || error.to_string().contains("deserializing") {
            Error::Fault(text)
        } else {
            Error::Unavailable(text)
        };
    };
    let text = format!("{} ({})", db.message(), db.code().code());
    match db.code().code().get(..2).unwrap_or_default() {
        // Data exceptions, constraint violations, limits of the server, and what triggers raise.
        "22" | "23" | "54" | "P0" => Error::Refused(text),
        // Lost connections, rollbacks to be tried again, missing resources, shutdown, broken files.
        "08" | "40" | "53" | "57" | "58" => Error::Unavailable(text),
        _ if *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION => read_only(&text),
        _ if *db.code() == SqlState::LOCK_NOT_AVAILABLE => Error::Unavailable(text),
        // Statements that were prepared before a table changed, or in a session that is not this one: a new session
        // prepares them anew.
        _ if *db.code() == SqlState::FEATURE_NOT_SUPPORTED
            || *db.code() == SqlState::INVALID_SQL_STATEMENT_NAME
            || *db.code() == SqlState::DUPLICATE_PSTATEMENT =>
        {
            Error::Unavailable(text)
        }
        "28" | "3D" => Error::Config(format!("PostgreSQL refused the connection: {text}")),
        _ => Error::Fault(text),
    }
}

/// What is said of a server that only reads.
pub(super) fn read_only(text: &str) -> Error {
    Error::Unavailable(format!("the database is read-only: {text}; connect to the primary"))
}

/// Whether an error says that its session is of no more use: it is one of the wrong server (a standby), of one that is going
/// away, or it knows the schema, the rights or the statements as they were. Only what is about data, locks, limits or a
/// statement that was cancelled says nothing of the session. All else ends it: at worst a new one is opened needlessly.
pub(super) fn ends_session(code: &str) -> bool {
    // A statement after one that failed, in the same transaction: what that was is known from the first.
    const PASSING: [&str; 3] = ["25P02", "55P03", "57014"];
    const ABOUT_DATA: [&str; 8] = ["21", "22", "23", "40", "44", "53", "54", "P0"];
    let class = code.get(..2).unwrap_or_default();
    !PASSING.contains(&code) && !ABOUT_DATA.contains(&class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_with_what_says_that_they_are_of_no_more_use() {
        let ends = [
            ("25006", "a server that only reads"),
            ("0A000", "a plan of a table that has changed; a transaction that writes, on a standby"),
            ("26000", "a prepared statement that is not known"),
            ("42P05", "a prepared statement that another session has made"),
            ("08000", "a connection that is in trouble"),
            ("08003", "a connection that is not there"),
            ("08006", "a connection that failed"),
            ("08P01", "a protocol that was not kept"),
            ("57P01", "an administrator's shutdown"),
            ("57P02", "a crash"),
            ("57P03", "a server that is starting"),
            ("57P04", "a database that was dropped"),
            ("57P05", "a session that was idle for too long"),
            ("25P03", "a transaction that was idle for too long"),
            ("25001", "a transaction that is open already"),
            ("28000", "a role that may not connect"),
            ("3D000", "a database that is not there"),
            ("3F000", "a schema that is not there"),
            ("42P01", "a table that is not there"),
            ("42703", "a column that is not there"),
            ("42883", "a function that is not there"),
            ("42501", "rights that were taken away"),
            ("55000", "an object in another state than it was"),
            ("58030", "files that cannot be read"),
            ("XX000", "a server that is confused"),
            ("XX001", "data that are corrupt"),
            ("99999", "what nobody knows"),
        ];
        for (code, what) in ends {
            assert!(ends_session(code), "{code}: {what}");
        }
        let stays = [
            ("22001", "a value that is too long"),
            ("23505", "a key that is taken"),
            ("40001", "a transaction that met another"),
            ("40P01", "a deadlock"),
            ("53100", "a full disk"),
            ("53200", "no memory"),
            ("54000", "a limit"),
            ("55P03", "a lock that was not had in time"),
            ("57014", "a statement that was cancelled"),
            ("25P02", "what comes after a statement that failed"),
            ("P0001", "what a trigger raises"),
        ];
        for (code, what) in stays {
            assert!(!ends_session(code), "{code}: {what}");
        }
    }
}
