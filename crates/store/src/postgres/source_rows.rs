//! Rows of tables of the user's own, in the order of a key.

use bytes::BytesMut;
use tokio_postgres::{
    Row,
    error::SqlState,
    types::{Format, IsNull, ToSql, Type, to_sql_checked},
};

use super::{Postgres, change_params::Param, errors::sorted, pool::Guard};
use crate::{Error, SourceRow, TableSource};

impl Postgres {
    /// Rows of a table of the user's own. They are read over a connection of others, with what their user sets by default, in a
    /// transaction that can only read. Nothing is waited for without end: whoever asks has a slot that others wait for.
    pub(super) async fn read_rows(
        &self,
        rows: &TableSource,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SourceRow>, Error> {
        let patience = self.shared.options.patience * ROWS_PATIENCE;
        let conn = self.shared.guests.get_within(patience).await?;
        conn.begin_guest_read().await?;
        let picked = tokio::time::timeout(patience, pick_rows(&conn, rows, after, limit)).await;
        // One that has not answered is not used again: it is dropped in the middle of its transaction.
        let late =
            |_| Error::Unavailable(format!("the rows of {} did not come within {patience:?}", rows.from));
        let picked = picked.map_err(late)?;
        conn.rollback().await;
        picked
    }
}

/// How many times the store's patience a page of rows may take: their query is the user's, and may have to sort them.
const ROWS_PATIENCE: u32 = 3;

async fn pick_rows(
    conn: &Guard<'_>,
    rows: &TableSource,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<SourceRow>, Error> {
    let bad = |error: tokio_postgres::Error| wrong(rows, error);
    let TableSource { from, key, filter } = rows;
    // On lines of their own: what is written there may end with a comment.
    let kept = filter.as_ref().map_or(String::new(), |filter| format!("where (\n{filter}\n)"));
    let source = format!("(select * from {from}\n{kept}) as picked");
    let next = if after.is_some() { format!("where {key} > $1") } else { String::new() };
    // One more than asked for: the next one may have the same key as the last.
    let most = limit.saturating_add(1).min(i64::MAX as usize);
    // Their names are no column's: a key that is named is that of the rows.
    let sql = format!(
        "select ({key})::text as \"the key\", row_to_json(picked)::text as \"the row\" from {source} {next} \
         order by {key} limit {most}"
    );
    let after = after.map(AsText);
    let params: Vec<Param<'_>> = after.iter().map(|after| after as Param<'_>).collect();
    let found = conn.client.query(&sql, &params).await.map_err(bad)?;
    // Those without a key come last, and behind none that has one.
    if after.is_none() {
        let sql = format!("select exists (select from {source} where {key} is null)");
        if conn.client.query_one(&sql, &[]).await.map_err(bad)?.get(0) {
            return Err(unfit(
                rows,
                "is null in some rows; leave them out by the filter, or choose another key",
            ));
        }
    }
    let same = |pair: &[Row]| pair[0].get::<_, Option<&str>>(0) == pair[1].get::<_, Option<&str>>(0);
    if let Some(pair) = found.windows(2).find(|pair| same(pair)) {
        let key = pair[0].get::<_, Option<&str>>(0).unwrap_or_default();
        return Err(unfit(rows, &format!("is {key:?} in two rows; choose one that is unique")));
    }
    let picked = |row: &Row| {
        let key = row.get::<_, Option<String>>(0).unwrap_or_default();
        SourceRow { after: key.clone(), key, row: row.get(1) }
    };
    Ok(found.iter().take(limit).map(picked).collect())
}

/// What is said of a key by which rows cannot be told apart.
fn unfit(rows: &TableSource, why: &str) -> Error {
    Error::Config(format!("the key {} of the rows of {} {why}", rows.key, rows.from))
}

/// What is said of a query that the database does not take, unless that may pass.
fn wrong(rows: &TableSource, error: tokio_postgres::Error) -> Error {
    let writes = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
    let why = match sorted(error) {
        Error::Refused(why) | Error::Fault(why) | Error::Config(why) => why,
        Error::Unavailable(_) if writes => "it writes, and may only read".into(),
        error => return error,
    };
    let TableSource { from, key, filter } = rows;
    let kept = filter.as_ref().map_or(String::new(), |filter| format!(" where {filter}"));
    Error::Config(format!("the rows of {from}{kept} in the order of {key} cannot be read: {why}"))
}

/// A value as text, which the server reads as whatever type it is compared with.
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
