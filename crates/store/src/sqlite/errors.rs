//! Errors of SQLite, classified by what the caller does next.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::Error;

/// The one error that a verb waits for by itself; the caller decides how long to wait for other causes of
/// unavailability.
pub(super) const BUSY: &str = "another process is writing to the file";

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Unavailable(BUSY.into()),
            Some(ErrorCode::DiskFull) => Error::Unavailable("the disk is full; free some space".into()),
            Some(ErrorCode::ReadOnly) => Error::Unavailable(
                "the file or its folder is read-only; allow this user to write there".into(),
            ),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory) => {
                Error::Unavailable(error.to_string())
            }
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
                Error::Refused(error.to_string())
            }
            _ => Error::Fault(error.to_string()),
        }
    }
}

/// Explains why a file cannot be opened, and what to do.
pub(super) fn explain(path: &Path, error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::*;
    let path = path.display();
    match error.sqlite_error_code() {
        Some(CannotOpen) => Error::Config(format!(
            "{path} cannot be opened ({error}); check that its folder exists and this user may write there"
        )),
        Some(NotADatabase) => Error::Config(format!(
            "{path} is not a SQLite database; choose another file, or move this one away"
        )),
        Some(ReadOnly) => {
            Error::Config(format!("{path} is read-only; allow this user to write to the file and its folder"))
        }
        _ => error.into(),
    }
}
