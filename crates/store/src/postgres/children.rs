//! Reads for people and for parents: branches, their children, and the positions of children.

use tokio_postgres::Row;
use windlass_model::{BranchNo, BranchPosition, JobId, Payload, Rev, Time};

use super::{
    Postgres, SPAN, branch::read_counts, change_params::Param, conn::Conn, inspect::payload, poll::PAGE,
    rollups::histogram, sql,
};
use crate::{
    Branch, BranchChild, BranchChildFilter, BranchChildPage, BranchItems, BranchRanges, BranchTimes,
    ChildBounds, ChildEnd, ChildGroup, ChildPosition, ChildRange, ChildStates, Error, ItemChild, JobEnd,
    OpenBranch, RangeChild, Summary,
    columns::{self, CANCELLED, DONE, FAILED, LIVE},
};

/// Reads the position of a job in a branch, from six columns.
pub(super) fn read_place(row: &Row, from: usize) -> Option<ChildPosition> {
    let branch = BranchNo(row.get::<_, Option<i64>>(from)?);
    let name = row.get::<_, Option<String>>(from + 4)?;
    let mut spawns = columns::spawns(row.get(from + 5));
    let spawn = row.get::<_, Option<i16>>(from + 1).and_then(|spawn| usize::try_from(spawn).ok());
    let spawn = spawn.filter(|spawn| *spawn < spawns.len()).map(|spawn| spawns.swap_remove(spawn));
    let item = row.get::<_, Option<String>>(from + 2).unwrap_or_default();
    let items = row.get::<_, i32>(from + 3) as u32;
    Some(ChildPosition { branch, name, spawn: spawn.unwrap_or_default(), item, items })
}

/// Reads a branch of a job, from a column on.
fn read_branch(row: &Row, from: usize, job: JobId) -> Branch {
    let merged_at = row.get::<_, Option<i64>>(from + 11).map(Time);
    Branch {
        job,
        number: BranchNo(row.get(from)),
        name: row.get(from + 1),
        spawns: columns::spawns(row.get(from + 2)),
        cursor: payload(row.get(from + 3), row.get(from + 4)),
        sealed: row.get(from + 5),
        merged: merged_at.is_some(),
        cancels_children: row.get(from + 6),
        spawned: row.get(from + 7),
        counts: read_counts(row, from + 14),
        watch: columns::watch(row.get(from + 8)),
        merge_record: row.get(from + 9),
        opened_at: Time(row.get(from + 10)),
        sealed_at: row.get::<_, Option<i64>>(from + 18).map(Time),
        merged_at,
        poll: columns::poll(row.get(from + 12), row.get::<_, Option<i64>>(from + 13).map(Time)),
    }
}

impl Postgres {
    pub(super) async fn read_children(
        &self,
        parent: JobId,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Summary>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let after = after.map(|id| id.0);
        let conn = self.conn().await?;
        let sql = sql::children::CHILDREN;
        let rows = conn.read(sql, &[&SPAN, &parent.0, &after, &limit]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
        rows.iter().map(|row| self.summary(row)).collect()
    }

    pub(super) async fn read_live_children(
        &self,
        parent: JobId,
        group: ChildGroup,
        among: usize,
    ) -> Result<Vec<Summary>, Error> {
        let among = i64::try_from(among).unwrap_or(i64::MAX);
        let conn = self.conn().await?;
        let rows = match group {
            ChildGroup::Change(rev) => {
                conn.read(sql::children::LIVE_CHILDREN, &[&SPAN, &parent.0, &rev.0, &among]).await?
            }
            ChildGroup::Branch(branch) => {
                conn.read(sql::children::LIVE_BRANCH_CHILDREN, &[&SPAN, &parent.0, &branch.0, &among]).await?
            }
        };
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
        rows.iter().map(|row| self.summary(row)).collect()
    }

    pub(super) async fn read_branch_ends(
        &self,
        job: JobId,
        branch: BranchNo,
    ) -> Result<Option<ChildRange>, Error> {
        let rows = self.conn().await?.read(sql::children::BRANCH_ENDS, &[&job.0, &branch.0]).await?;
        let id = |row: &Row, column: usize| row.get::<_, Option<uuid::Uuid>>(column).map(JobId);
        Ok(rows.first().and_then(|row| Some(ChildRange { first: id(row, 0)?, last: id(row, 1)? })))
    }

    pub(super) async fn read_branch_ranges(
        &self,
        of: BranchRanges<'_>,
    ) -> Result<Vec<Vec<RangeChild>>, Error> {
        let limit = i64::try_from(of.each).unwrap_or(i64::MAX);
        let firsts: Vec<uuid::Uuid> = of.ranges.iter().map(|range| range.first.0).collect();
        let lasts: Vec<uuid::Uuid> = of.ranges.iter().map(|range| range.last.0).collect();
        let conn = self.conn().await?;
        let params: [Param<'_>; 6] = [&SPAN, &of.job.0, &of.branch.0, &firsts, &lasts, &limit];
        let rows = conn.read(sql::children::BRANCH_RANGES, &params).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
        let mut ranges = vec![Vec::new(); of.ranges.len()];
        for row in &rows {
            let number = usize::try_from(row.get::<_, i64>(17)).unwrap_or_default();
            let (items, items_done) =
                (row.get::<_, i32>(15).max(0) as u32, row.get::<_, i32>(16).max(0) as u32);
            let item = row.get::<_, Option<String>>(14).unwrap_or_default();
            if let Some(range) = number.checked_sub(1).and_then(|number| ranges.get_mut(number)) {
                range.push(RangeChild { summary: self.summary(row)?, item, items, items_done });
            }
        }
        Ok(ranges)
    }

    pub(super) async fn read_child_ends(
        &self,
        parent: JobId,
        parent_rev: Rev,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<ChildEnd>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = sql::children::CHILD_ENDS;
        let params: [Param<'_>; 4] = [&parent.0, &parent_rev.0, &after.map(|id| id.0), &limit];
        let rows = self.conn().await?.read(sql, &params).await?;
        let child = |row: &Row| {
            let state = columns::final_state(row.get(3));
            let (reason, failure) = (columns::reason(row.get(4)), columns::failure(row.get(5)));
            let output = payload(row.get(6), row.get(7));
            ChildEnd {
                id: JobId(row.get(0)),
                kind: row.get(1),
                key: row.get(2),
                ended: state.and_then(|state| JobEnd::from_parts(state, reason, failure, output)),
            }
        };
        Ok(rows.iter().map(child).collect())
    }

    pub(super) async fn read_branches(&self, job: JobId) -> Result<Vec<Branch>, Error> {
        let rows = self.conn().await?.read(sql::children::BRANCHES, &[&job.0]).await?;
        Ok(rows.iter().map(|row| read_branch(row, 0, job)).collect())
    }

    pub(super) async fn read_open_branches(&self, limit: usize) -> Result<Vec<OpenBranch>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let conn = self.conn().await?;
        let rows = conn.read(sql::children::OPEN_BRANCHES, &[&SPAN, &limit]).await?;
        self.ensure_lanes(&conn, rows.iter().map(|row| row.get(1))).await?;
        let open = |row: &Row| {
            let parent = self.summary(row)?;
            let branch = read_branch(row, 14, parent.id);
            let histogram = |column: usize| row.get::<_, Option<&[u8]>>(column).map(histogram).transpose();
            let times = BranchTimes {
                branch: branch.number,
                first_start_at: row.get::<_, Option<i64>>(33).map(Time),
                last_end_at: row.get::<_, Option<i64>>(34).map(Time),
                wait_times: histogram(35)?.unwrap_or_default(),
                run_times: histogram(36)?.unwrap_or_default(),
            };
            Ok(OpenBranch { branch, parent, times })
        };
        rows.iter().map(open).collect()
    }

    pub(super) async fn read_branch_children(
        &self,
        filter: &BranchChildFilter,
    ) -> Result<Vec<BranchChild>, Error> {
        let states: Option<&[i16]> = match filter.states {
            ChildStates::All => None,
            ChildStates::Live => Some(&[LIVE]),
            ChildStates::Ended => Some(&[DONE, FAILED, CANCELLED]),
            ChildStates::Unsuccessful => return self.read_unsuccessful(filter).await,
        };
        let conn = self.conn().await?;
        let mut children = Vec::new();
        let mut after = filter.after.map(|id| id.0);
        // Mostly the first children match. If they do not, the pages grow.
        let mut page = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        while children.len() < filter.limit {
            let limit = i64::try_from(filter.limit - children.len()).unwrap_or(i64::MAX);
            let params: [Param<'_>; 7] =
                [&SPAN, &filter.job.0, &filter.branch.0, &after, &states, &limit, &page];
            let rows = conn.read(sql::children::BRANCH_CHILDREN, &params).await?;
            self.add_branch_children(&conn, filter.branch, &rows, &mut children).await?;
            after = rows.first().and_then(|row| row.get(25));
            if after.is_none() {
                break;
            }
            page = page.saturating_mul(4).clamp(1_000, PAGE);
        }
        Ok(children)
    }

    pub(super) async fn read_branch_children_page(
        &self,
        filter: &BranchChildFilter,
        bounds: ChildBounds,
    ) -> Result<BranchChildPage, Error> {
        let states: Option<&[i16]> = match filter.states {
            ChildStates::All | ChildStates::Unsuccessful => None,
            ChildStates::Live => Some(&[LIVE]),
            ChildStates::Ended => Some(&[DONE, FAILED, CANCELLED]),
        };
        let after = filter.after.map(|id| id.0);
        // Where all of them match, no more are needed.
        let examine = match filter.states {
            ChildStates::All | ChildStates::Unsuccessful => {
                bounds.examine.min(filter.limit.saturating_add(1))
            }
            ChildStates::Live | ChildStates::Ended => bounds.examine,
        };
        let [limit, examine] = [filter.limit, examine].map(|rows| i64::try_from(rows).unwrap_or(i64::MAX));
        let bytes = i64::try_from(bounds.bytes).unwrap_or(i64::MAX);
        let conn = self.conn().await?;
        let rows = match filter.states {
            ChildStates::Unsuccessful => {
                let params: [Param<'_>; 7] =
                    [&SPAN, &filter.job.0, &filter.branch.0, &after, &limit, &bytes, &examine];
                conn.read(sql::children::UNSUCCESSFUL_CHILDREN_PAGE, &params).await?
            }
            _ => {
                let params: [Param<'_>; 8] =
                    [&SPAN, &filter.job.0, &filter.branch.0, &after, &states, &limit, &examine, &bytes];
                conn.read(sql::children::BRANCH_CHILDREN_PAGE, &params).await?
            }
        };
        let mut children = Vec::with_capacity(rows.len());
        self.add_branch_children(&conn, filter.branch, &rows, &mut children).await?;
        let next = rows.first().and_then(|row| row.get::<_, Option<uuid::Uuid>>(25));
        let examined = rows.first().map_or(0, |row| row.get::<_, i64>(26)).unsigned_abs() as usize;
        Ok(BranchChildPage { children, next: next.map(JobId), examined })
    }

    pub(super) async fn read_branch_items(&self, of: BranchItems<'_>) -> Result<Vec<ItemChild>, Error> {
        let params: [Param<'_>; 4] = [&of.job.0, &of.branch.0, &of.spawn, &of.items];
        let rows = self.conn().await?.read(sql::children::BRANCH_ITEMS, &params).await?;
        let child = |row: &Row| ItemChild { id: JobId(row.get(0)), item: row.get(1), stage: row.get(2) };
        Ok(rows.iter().map(child).collect())
    }

    async fn read_unsuccessful(&self, filter: &BranchChildFilter) -> Result<Vec<BranchChild>, Error> {
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let after = filter.after.map(|id| id.0);
        let conn = self.conn().await?;
        let params: [Param<'_>; 5] = [&SPAN, &filter.job.0, &filter.branch.0, &after, &limit];
        let rows = conn.read(sql::children::UNSUCCESSFUL_CHILDREN, &params).await?;
        let mut children = Vec::with_capacity(rows.len());
        self.add_branch_children(&conn, filter.branch, &rows, &mut children).await?;
        Ok(children)
    }

    async fn add_branch_children(
        &self,
        conn: &Conn,
        branch: BranchNo,
        rows: &[Row],
        children: &mut Vec<BranchChild>,
    ) -> Result<(), Error> {
        let found = || rows.iter().filter(|row| row.get::<_, Option<i32>>(1).is_some());
        self.ensure_lanes(conn, found().map(|row| row.get(1))).await?;
        for row in found() {
            children.push(self.branch_child(branch, row)?);
        }
        Ok(())
    }

    fn branch_child(&self, branch: BranchNo, row: &Row) -> Result<BranchChild, Error> {
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
}
