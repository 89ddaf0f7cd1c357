//! Rows of the user's own tables, in the order of a key.

use rusqlite::{
    Statement,
    types::{Value, ValueRef},
};
use serde_json::{Map, Value as Json};

use crate::{Error, SourceRow, TableSource};

/// Reads a page of rows. The connection cannot write, whatever the query says.
pub(super) fn rows(
    conn: &rusqlite::Connection,
    rows: &TableSource,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<SourceRow>, Error> {
    let after = after.map(|text| key_of(rows, text)).transpose()?;
    let sql = query(rows, after.is_some());
    let sql_error = |error: rusqlite::Error| unreadable(rows, &format!("SQLite reports: {error}"));
    let mut statement = conn.prepare(&sql).map_err(sql_error)?;
    // One more than requested shows whether the last key of the page occurs twice.
    let row_limit = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut params = vec![Value::Integer(row_limit)];
    params.extend(after);
    // By number: what `column_names` returns differs between the versions of rusqlite that are supported.
    let name = |column| statement.column_name(column).map(str::to_owned);
    let names =
        (1..statement.column_count()).map(name).collect::<Result<Vec<String>, _>>().map_err(sql_error)?;
    let mut read_rows = read(&mut statement, params, rows, &names).map_err(|error| match error {
        FetchError::Sql(error) => sql_error(error),
        FetchError::Key(error) => error,
    })?;
    if let Some(duplicate) = read_rows.windows(2).find(|pair| pair[0].after == pair[1].after) {
        let why = format!("the key {} occurs twice, and keys must be unique", duplicate[0].key);
        return Err(unreadable(rows, &why));
    }
    read_rows.truncate(limit);
    Ok(read_rows)
}

fn query(rows: &TableSource, is_after: bool) -> String {
    let TableSource { from, key, filter } = rows;
    let mut wheres: Vec<String> = filter.iter().map(|filter| format!("({filter}\n)")).collect();
    if is_after {
        wheres.push(format!("({key}) > ?2"));
    }
    let wheres = if wheres.is_empty() { String::new() } else { format!("where {}", wheres.join(" and ")) };
    format!("select ({key}), * from {from}\n{wheres}\norder by ({key}) limit ?1")
}

/// What can go wrong while rows are read.
enum FetchError {
    Sql(rusqlite::Error),
    Key(Error),
}

impl From<rusqlite::Error> for FetchError {
    fn from(error: rusqlite::Error) -> FetchError {
        FetchError::Sql(error)
    }
}

fn read(
    statement: &mut Statement<'_>,
    params: Vec<Value>,
    source: &TableSource,
    names: &[String],
) -> Result<Vec<SourceRow>, FetchError> {
    let mut rows = statement.query(rusqlite::params_from_iter(params))?;
    let mut read_rows = Vec::new();
    while let Some(row) = rows.next()? {
        let (after, key) = keys(row.get_ref(0)?).ok_or_else(|| {
            FetchError::Key(unreadable(
                source,
                "there is a row whose key is null; leave such rows out with a filter",
            ))
        })?;
        let mut object = Map::new();
        for (column, name) in names.iter().enumerate() {
            object.insert(name.clone(), json(row.get_ref(column + 1)?));
        }
        read_rows.push(SourceRow { after, key, row: Json::Object(object).to_string() });
    }
    Ok(read_rows)
}

/// A key as the store reads it back, with a letter for its type, and as people read it; `None` if it is null.
fn keys(value: ValueRef<'_>) -> Option<(String, String)> {
    Some(match value {
        ValueRef::Null => return None,
        ValueRef::Integer(number) => (format!("i{number}"), number.to_string()),
        ValueRef::Real(number) => (format!("r{number:?}"), number.to_string()),
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            (format!("t{text}"), text.into_owned())
        }
        ValueRef::Blob(bytes) => (format!("b{}", hex(bytes)), readable(bytes)),
    })
}

/// Decodes a key that was returned before.
fn key_of(rows: &TableSource, text: &str) -> Result<Value, Error> {
    let value = match text.split_at_checked(1) {
        Some(("i", number)) => number.parse().ok().map(Value::Integer),
        Some(("r", number)) => number.parse().ok().map(Value::Real),
        Some(("t", text)) => Some(Value::Text(text.to_owned())),
        Some(("b", digits)) => unhex(digits).map(Value::Blob),
        _ => None,
    };
    value.ok_or_else(|| unreadable(rows, &format!("{text:?} is no key that was returned before")))
}

/// A value as JSON; bytes as PostgreSQL writes them.
fn json(value: ValueRef<'_>) -> Json {
    match value {
        ValueRef::Null => Json::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        ValueRef::Blob(bytes) => format!("\\x{}", hex(bytes)).into(),
    }
}

/// Bytes as people read them: sixteen are most likely a UUID.
fn readable(bytes: &[u8]) -> String {
    let digits = hex(bytes);
    match bytes.len() {
        16 => {
            let part = |from: usize, to: usize| &digits[from..to];
            [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
        }
        _ => digits,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.as_bytes().chunks(2).map(byte).collect())?
}

fn unreadable(rows: &TableSource, why: &str) -> Error {
    let TableSource { from, key, filter } = rows;
    let filter = filter.as_ref().map(|filter| format!(" where {filter}")).unwrap_or_default();
    Error::Config(format!("the rows of {from}{filter} in the order of {key} cannot be read: {why}"))
}
