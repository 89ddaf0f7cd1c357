//! Rows of tables of the user, in the order of a key.

use bytes::BytesMut;
use tokio_postgres::{
    Row,
    types::{Format, IsNull, ToSql, Type, to_sql_checked},
};

use super::{
    Postgres,
    change_params::Param,
    errors::{Class, PgError},
    tx::Tx,
};
use crate::{Error, SourceRow, TableSource};

impl Postgres {
    /// Reads rows of a table of the user, with the settings that the user has by default, in a transaction that can only read. Every
    /// wait is limited: the caller has a slot that other jobs need.
    pub(super) async fn read_rows(
        &self,
        rows: &TableSource,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SourceRow>, Error> {
        let patience = self.shared.options.patience * ROWS_PATIENCE;
        let mut conn = self.shared.caller_pool.get_within(patience).await?;
        let tx = Tx::user_read(&mut conn).await?;
        let fetched = tokio::time::timeout(patience, fetch(&tx, rows, after, limit)).await;
        // A connection that has not answered is dropped in its transaction, and not reused.
        let late =
            |_| Error::Unavailable(format!("the rows of {} did not come within {patience:?}", rows.from));
        let fetched = fetched.map_err(late)?;
        tx.rollback().await;
        fetched
    }
}

/// How many times the store's patience a page of rows may take: the query is the user's, and may have to sort the table.
const ROWS_PATIENCE: u32 = 3;

async fn fetch(
    tx: &Tx<'_>,
    rows: &TableSource,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<SourceRow>, Error> {
    let bad = |error: tokio_postgres::Error| query_failed(rows, error);
    let TableSource { from, key, filter } = rows;
    // On lines of its own: the filter may end with a comment.
    let condition = filter.as_ref().map_or(String::new(), |filter| format!("where (\n{filter}\n)"));
    let source = format!("(select * from {from}\n{condition}) as picked");
    let next = if after.is_some() { format!("where {key} > $1") } else { String::new() };
    // One more than requested: the next row may have the same key as the last.
    let fetched = limit.saturating_add(1).min(i64::MAX as usize);
    // No column has these names, so a name in the key is a column of the table.
    let sql = format!(
        "select ({key})::text as \"the key\", row_to_json(picked)::text as \"the row\" from {source} {next} \
         order by {key} limit {fetched}"
    );
    let after = after.map(AsText);
    let params: Vec<Param<'_>> = after.iter().map(|after| after as Param<'_>).collect();
    let found = tx.client().query(&sql, &params).await.map_err(bad)?;
    // Rows without a key sort last, and no page after the first would find them.
    if after.is_none() {
        let sql = format!("select exists (select from {source} where {key} is null)");
        if tx.client().query_one(&sql, &[]).await.map_err(bad)?.get(0) {
            return Err(bad_key(
                rows,
                "is null in some rows; leave them out by the filter, or choose another key",
            ));
        }
    }
    let same = |pair: &[Row]| pair[0].get::<_, Option<&str>>(0) == pair[1].get::<_, Option<&str>>(0);
    if let Some(pair) = found.windows(2).find(|pair| same(pair)) {
        let key = pair[0].get::<_, Option<&str>>(0).unwrap_or_default();
        return Err(bad_key(rows, &format!("is {key:?} in two rows; choose one that is unique")));
    }
    let source_row = |row: &Row| {
        let key = row.get::<_, Option<String>>(0).unwrap_or_default();
        SourceRow { after: key.clone(), key, row: row.get(1) }
    };
    Ok(found.iter().take(limit).map(source_row).collect())
}

/// The error for a key that does not identify rows.
fn bad_key(rows: &TableSource, why: &str) -> Error {
    Error::Config(format!("the key {} of the rows of {} {why}", rows.key, rows.from))
}

/// The error for a query that the database refuses, unless it may succeed later.
fn query_failed(rows: &TableSource, error: tokio_postgres::Error) -> Error {
    let error = PgError::from(error);
    let writes = error.class == Class::ReadOnly;
    let why = match Error::from(error) {
        Error::Refused(why) | Error::Fault(why) | Error::Config(why) => why,
        Error::Unavailable(_) if writes => "it writes, and may only read".into(),
        error => return error,
    };
    let TableSource { from, key, filter } = rows;
    let condition = filter.as_ref().map_or(String::new(), |filter| format!(" where {filter}"));
    Error::Config(format!("the rows of {from}{condition} in the order of {key} cannot be read: {why}"))
}

/// A value as text, which the server converts to the type that it is compared with.
#[derive(Debug)]
struct AsText<'a>(&'a str);

impl ToSql for AsText<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}
