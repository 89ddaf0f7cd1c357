//! Statements of a caller's transaction on SQLite, through a [`crate::Tx`].
//!
//! SQLite knows placeholders like `$1` as names, so that its own parser finds them: never in text, comments or quoted names.

use std::{
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use rusqlite::{
    Connection, ErrorCode, Statement, ToSql,
    types::{ToSqlOutput, ValueRef},
};
use tokio::sync::OwnedMutexGuard;
use windlass_model::{Failure, failure::class};

use super::{
    pool::run_blocking,
    transact::{Seen, statement_too_long},
};
use crate::tx::{Answer, Row, Statements, Value, ended};

/// The connection that writes, while a caller's transaction is open on it. The store takes it back when the transaction ends,
/// whoever still refers to it.
pub(super) struct LentWriter {
    writer: Mutex<Option<OwnedMutexGuard<Connection>>>,
    seen: Arc<Seen>,
    /// How long the transaction may take.
    limit: Duration,
}

impl LentWriter {
    pub(super) fn new(writer: OwnedMutexGuard<Connection>, seen: Arc<Seen>, limit: Duration) -> LentWriter {
        LentWriter { writer: Mutex::new(Some(writer)), seen, limit }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<OwnedMutexGuard<Connection>>> {
        self.writer.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The part of a transaction that its caller owns.
pub(super) struct CallerTx(Arc<LentWriter>);

impl CallerTx {
    pub(super) fn new(writer: Arc<LentWriter>) -> CallerTx {
        CallerTx(writer)
    }

    /// Runs a statement on the thread that sends it.
    fn run<T>(
        &self,
        sql: &str,
        params: &[Value],
        run: impl FnOnce(&Connection, &mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        run_blocking(true, || {
            let writer = self.0.lock();
            let connection: &Connection = writer.as_ref().ok_or_else(ended)?;
            let mut statement = connection.prepare(sql).map_err(|error| self.failure(error))?;
            bind(&mut statement, params)?;
            run(connection, &mut statement).map_err(|error| self.failure(error))
        })
    }

    fn failure(&self, error: rusqlite::Error) -> Failure {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) if self.0.seen.took_too_long.load(Ordering::Relaxed) => {
                Failure::retry(statement_too_long(self.0.limit)).class(class::TIMEOUT)
            }
            _ => error.into(),
        }
    }
}

impl Statements for CallerTx {
    fn execute<'a>(&'a self, sql: &'a str, params: Vec<Value>) -> Answer<'a, u64> {
        Box::pin(async move { self.run(sql, &params, execute) })
    }

    fn query<'a>(&'a self, sql: &'a str, params: Vec<Value>) -> Answer<'a, Vec<Row>> {
        Box::pin(async move { self.run(sql, &params, |_, statement| query(statement)) })
    }
}

/// Returns how many rows a statement changed; of one that changes none, how many it returned, as PostgreSQL does.
fn execute(connection: &Connection, statement: &mut Statement<'_>) -> rusqlite::Result<u64> {
    let before = connection.total_changes();
    let mut returned = 0;
    let mut rows = statement.raw_query();
    while rows.next()?.is_some() {
        returned += 1;
    }
    drop(rows);
    Ok(match statement.readonly() {
        true => returned,
        // A statement that changes the schema leaves the number of the statement before it.
        false if connection.total_changes() == before => 0,
        false => connection.changes(),
    })
}

fn query(statement: &mut Statement<'_>) -> rusqlite::Result<Vec<Row>> {
    let columns: Arc<[String]> = statement.column_names().into_iter().map(str::to_owned).collect();
    let mut rows = statement.raw_query();
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let value = |column| Ok(read(row.get_ref(column)?));
        let values = (0..columns.len()).map(value).collect::<rusqlite::Result<_>>()?;
        all.push(Row::new(&columns, values));
    }
    Ok(all)
}

fn read(value: ValueRef<'_>) -> Result<Value, String> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(int) => Value::Int(int),
        ValueRef::Real(float) => Value::Float(float),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(error) => return Err(format!("its text is not valid UTF-8 ({error})")),
        },
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    })
}

/// Binds the parameters by their numbers.
fn bind(statement: &mut Statement<'_>, params: &[Value]) -> Result<(), Failure> {
    let mut highest = 0;
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).unwrap_or("?");
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let Some(number) = number.filter(|number| *number > 0) else { return Err(unknown_placeholder(name)) };
        highest = highest.max(number);
        if let Some(param) = params.get(number - 1) {
            check(number, param)?;
            statement.raw_bind_parameter(index, Bound(param))?;
        }
    }
    if highest == params.len() {
        return Ok(());
    }
    let text = format!("the statement has {highest} parameters, and {} were given", params.len());
    Err(Failure::stop(text).class(class::DATA))
}

fn unknown_placeholder(name: &str) -> Failure {
    let text = match name.split_once("::") {
        Some((name, cast)) => {
            format!("`{name}::{cast}` is a cast that only PostgreSQL knows; write `cast({name} as {cast})`")
        }
        None => format!("`{name}` is not a placeholder of a transaction; write `$1`, `$2`, …"),
    };
    Failure::stop(text).class(class::DATA)
}

/// Refuses the one value that SQLite would silently make null.
fn check(number: usize, param: &Value) -> Result<(), Failure> {
    match param {
        Value::Float(float) if float.is_nan() => {
            let text = format!(
                "the parameter ${number} is not a number (NaN), which SQLite cannot store; send null"
            );
            Err(Failure::stop(text).class(class::DATA))
        }
        _ => Ok(()),
    }
}

/// A value as SQLite keeps it.
struct Bound<'a>(&'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Bool(bool) => ToSqlOutput::Borrowed(ValueRef::Integer(i64::from(*bool))),
            Value::Int(int) => ToSqlOutput::Borrowed(ValueRef::Integer(*int)),
            Value::Float(float) => ToSqlOutput::Borrowed(ValueRef::Real(*float)),
            Value::Text(text) | Value::Decimal(text) => {
                ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
            }
            Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Value::Time(time) => ToSqlOutput::Borrowed(ValueRef::Integer(time.micros())),
            Value::Json(json) => ToSqlOutput::from(json.to_string()),
        })
    }
}
