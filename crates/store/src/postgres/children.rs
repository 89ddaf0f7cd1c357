//! Reads for people: branches and their children, and rows of tables of the user's own.

use bytes::BytesMut;
use tokio_postgres::{
    Row,
    error::SqlState,
    types::{Format, IsNull, ToSql, Type, to_sql_checked},
};
use windlass_model::{BranchNo, BranchPosition, JobId, Payload, Time};

use super::{
    Postgres, SPAN, branch::sum, errors::sorted, params::Param, poll::PAGE, pool::Guard, rows::payload, sql,
};
use crate::{
    Branch, BranchChild, BranchChildFilter, ChildPlace, ChildStates, Error, JobEnd, SourceRow, TableSource,
    columns::{self, CANCELLED, DONE, FAILED, LIVE},
};

/// The names of a branch's spawns, read back.
fn spawns(text: Option<&str>) -> Vec<String> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Where a job stands in a branch, out of six columns.
pub(super) fn place(row: &Row, first: usize) -> Option<ChildPlace> {
    let branch = BranchNo(row.get::<_, Option<i64>>(first)?);
    let name = row.get::<_, Option<String>>(first + 4)?;
    let mut spawns = spawns(row.get(first + 5));
    let spawn = row.get::<_, Option<i16>>(first + 1).and_then(|spawn| usize::try_from(spawn).ok());
    let spawn = spawn.filter(|spawn| *spawn < spawns.len()).map(|spawn| spawns.swap_remove(spawn));
    let item = row.get::<_, Option<String>>(first + 2).unwrap_or_default();
    let items = row.get::<_, i32>(first + 3) as u32;
    Some(ChildPlace { branch, name, spawn: spawn.unwrap_or_default(), item, items })
}

impl Postgres {
    pub(super) async fn read_branches(&self, job: JobId) -> Result<Vec<Branch>, Error> {
        let rows = self.conn().await?.read(sql::children::BRANCHES, &[&job.0]).await?;
        let branch = |row: &Row| Branch {
            job,
            number: BranchNo(row.get(0)),
            name: row.get(1),
            spawns: spawns(row.get(2)),
            cursor: payload(row.get(3), row.get(4)),
            sealed: row.get(5),
            merged: row.get::<_, Option<i64>>(11).is_some(),
            cancels_children: row.get(6),
            spawned: row.get(7),
            tally: sum(row, 14),
            watch: columns::watch(row.get(8)),
            goal: row.get(9),
            opened_at: Time(row.get(10)),
            merged_at: row.get::<_, Option<i64>>(11).map(Time),
            poll: columns::poll(row.get(12), row.get::<_, Option<i64>>(13).map(Time)),
        };
        Ok(rows.iter().map(branch).collect())
    }

    pub(super) async fn read_leaves(&self, of: &BranchChildFilter) -> Result<Vec<BranchChild>, Error> {
        let states: Option<&[i16]> = match of.only {
            ChildStates::All => None,
            ChildStates::Live => Some(&[LIVE]),
            ChildStates::Ended => Some(&[DONE, FAILED, CANCELLED]),
            ChildStates::Bad => return self.read_bad(of).await,
        };
        let conn = self.conn().await?;
        let mut leaves = Vec::new();
        let mut after = of.after.map(|id| id.0);
        // All of the first children may be meant. If they are not, more and more of the others are looked at.
        let mut page = i64::try_from(of.limit).unwrap_or(i64::MAX);
        while leaves.len() < of.limit {
            let limit = i64::try_from(of.limit - leaves.len()).unwrap_or(i64::MAX);
            let params: [Param<'_>; 7] = [&SPAN, &of.job.0, &of.branch.0, &after, &states, &limit, &page];
            let rows = conn.read(sql::children::BRANCH_CHILDREN, &params).await?;
            self.read_leaf_rows(&conn, of.branch, &rows, &mut leaves).await?;
            after = rows.first().and_then(|row| row.get(25));
            if after.is_none() {
                break;
            }
            page = page.saturating_mul(4).clamp(1_000, PAGE);
        }
        Ok(leaves)
    }

    async fn read_bad(&self, of: &BranchChildFilter) -> Result<Vec<BranchChild>, Error> {
        let limit = i64::try_from(of.limit).unwrap_or(i64::MAX);
        let after = of.after.map(|id| id.0);
        let conn = self.conn().await?;
        let params: [Param<'_>; 5] = [&SPAN, &of.job.0, &of.branch.0, &after, &limit];
        let rows = conn.read(sql::children::UNSUCCESSFUL_CHILDREN, &params).await?;
        let mut leaves = Vec::with_capacity(rows.len());
        self.read_leaf_rows(&conn, of.branch, &rows, &mut leaves).await?;
        Ok(leaves)
    }

    async fn read_leaf_rows(
        &self,
        conn: &Guard<'_>,
        branch: BranchNo,
        rows: &[Row],
        leaves: &mut Vec<BranchChild>,
    ) -> Result<(), Error> {
        let there = || rows.iter().filter(|row| row.get::<_, Option<i32>>(1).is_some());
        self.know_lanes(conn, there().map(|row| row.get(1))).await?;
        for row in there() {
            leaves.push(self.leaf(branch, row)?);
        }
        Ok(())
    }

    fn leaf(&self, branch: BranchNo, row: &Row) -> Result<BranchChild, Error> {
        let summary = self.summary(row)?;
        let (failure, output) = (columns::failure(row.get(18)), payload(row.get(19), row.get(20)));
        Ok(BranchChild {
            branch_position: BranchPosition {
                branch,
                spawn: row.get::<_, Option<i16>>(14).unwrap_or_default(),
                item: row.get::<_, Option<String>>(15).unwrap_or_default(),
                items: row.get::<_, i32>(16).max(0) as u32,
            },
            items_done: row.get::<_, i32>(17).max(0) as u32,
            ended: JobEnd::from_parts(summary.state, summary.reason, failure, output),
            input: Payload { codec: row.get::<_, i16>(21) as u8, bytes: row.get(22) },
            data: payload(row.get(23), row.get(24)),
            summary,
        })
    }

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
