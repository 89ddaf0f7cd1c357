//! Reads for people and for parents: branches, their children, and the position of a child.

use rusqlite::{Row, params};
use windlass_model::{BranchNo, BranchPosition, Histogram, JobId, Payload, Rev, Time};

use super::{
    branch::read_counts,
    inspect::{SPAN, summary},
    rollups::histogram,
    sql,
    tx::{Tx, read_id},
    views::row_limit,
};
use crate::{
    Branch, BranchChild, BranchChildFilter, BranchChildPage, BranchItems, BranchRanges, BranchTimes,
    ChildBounds, ChildEnd, ChildGroup, ChildPosition, ChildRange, ChildStates, Error, ItemChild, JobEnd,
    OpenBranch, RangeChild, Summary,
    columns::{self, CANCELLED, FAILED},
};

pub(super) fn branches(tx: &Tx<'_>, job: JobId) -> Result<Vec<Branch>, Error> {
    tx.query_all(sql::children::BRANCHES, [job.as_bytes()], |row| read_branch(row, 0, job))
}

/// Reads a branch of a job, from a column on.
fn read_branch(row: &Row<'_>, from: usize, job: JobId) -> rusqlite::Result<Branch> {
    let cursor = row.get::<_, Option<u8>>(from + 3)?;
    let poll_at = row.get::<_, Option<i64>>(from + 17)?.map(Time);
    let merged_at = row.get::<_, Option<i64>>(from + 6)?.map(Time);
    Ok(Branch {
        job,
        number: BranchNo(row.get(from)?),
        name: row.get(from + 1)?,
        spawns: columns::spawns(row.get::<_, Option<String>>(from + 2)?.as_deref()),
        cursor: cursor.map(|codec| row.get(from + 4).map(|bytes| Payload { codec, bytes })).transpose()?,
        sealed: row.get(from + 5)?,
        merged: merged_at.is_some(),
        cancels_children: row.get(from + 7)?,
        spawned: row.get(from + 8)?,
        counts: read_counts(row, from + 9)?,
        watch: columns::watch(row.get::<_, Option<String>>(from + 13)?.as_deref()),
        merge_record: row.get(from + 14)?,
        opened_at: Time(row.get(from + 15)?),
        sealed_at: row.get::<_, Option<i64>>(from + 18)?.map(Time),
        merged_at,
        poll: columns::poll(row.get::<_, Option<String>>(from + 16)?.as_deref(), poll_at),
    })
}

/// Branches that are not merged, of all jobs.
pub(super) fn open_branches(tx: &Tx<'_>, limit: usize) -> Result<Vec<OpenBranch>, Error> {
    let mut statement = tx.prepare(sql::children::OPEN_BRANCHES)?;
    let mut rows = statement.query(params![SPAN, row_limit(limit)])?;
    let mut open = Vec::new();
    while let Some(row) = rows.next()? {
        let parent = summary(tx, row)?;
        let branch = read_branch(row, 14, parent.id)?;
        let histogram = |column: usize| match row.get::<_, Option<Vec<u8>>>(column)? {
            Some(bytes) => histogram(&bytes),
            None => Ok(Histogram::default()),
        };
        let times = BranchTimes {
            branch: branch.number,
            first_start_at: row.get::<_, Option<i64>>(33)?.map(Time),
            last_end_at: row.get::<_, Option<i64>>(34)?.map(Time),
            wait_times: histogram(35)?,
            run_times: histogram(36)?,
        };
        open.push(OpenBranch { branch, parent, times });
    }
    Ok(open)
}

/// The position of a job in a branch of its parent.
pub(super) fn place(tx: &Tx<'_>, id: JobId) -> Result<Option<ChildPosition>, Error> {
    tx.query_one(sql::children::CHILD_PLACE, [id.as_bytes()], |row| {
        let spawns = columns::spawns(row.get::<_, Option<String>>(2)?.as_deref());
        let spawn = usize::try_from(row.get::<_, i64>(3)?).ok().and_then(|spawn| spawns.get(spawn));
        Ok(ChildPosition {
            branch: BranchNo(row.get(0)?),
            name: row.get(1)?,
            spawn: spawn.cloned().unwrap_or_default(),
            item: row.get(4)?,
            items: row.get(5)?,
        })
    })
}

pub(super) fn branch_children(tx: &Tx<'_>, filter: &BranchChildFilter) -> Result<Vec<BranchChild>, Error> {
    let live = match filter.states {
        ChildStates::All => None,
        ChildStates::Live => Some(true),
        ChildStates::Ended => Some(false),
        ChildStates::Unsuccessful => return unsuccessful(tx, filter),
    };
    page(tx, sql::children::BRANCH_CHILDREN, filter, live.map(i16::from))
}

/// A page of the children of a branch, bounded in the children that it examines and in bytes.
pub(super) fn branch_children_page(
    tx: &Tx<'_>,
    filter: &BranchChildFilter,
    bounds: ChildBounds,
) -> Result<BranchChildPage, Error> {
    let live = match filter.states {
        ChildStates::All => None,
        ChildStates::Live => Some(true),
        ChildStates::Ended => Some(false),
        ChildStates::Unsuccessful => return unsuccessful_page(tx, filter, bounds),
    };
    let after = filter.after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    // All of them match: no more are needed.
    let examine = match filter.states {
        ChildStates::All => bounds.examine.min(filter.limit.saturating_add(1)),
        _ => bounds.examine,
    };
    let params = params![filter.job.as_bytes(), filter.branch.0, after, row_limit(examine)];
    let examined = tx.query_one(sql::children::EXAMINED_CHILDREN, params, |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 16]>>(1)?.map(JobId::from_bytes)))
    })?;
    let Some((count, Some(last))) = examined else {
        return Ok(BranchChildPage { children: Vec::new(), next: None, examined: 0 });
    };
    let examined = usize::try_from(count).unwrap_or(usize::MAX);
    let mut statement = tx.prepare(sql::children::BRANCH_CHILDREN_PAGE)?;
    let params =
        params![SPAN, filter.job.as_bytes(), filter.branch.0, after, last.as_bytes(), live.map(i16::from)];
    let mut rows = statement.query(params)?;
    let mut page = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let child = branch_child(tx, row)?;
        if !fits(&page, &child, &mut bytes, filter.limit, bounds) {
            let next = page.last().map(|child: &BranchChild| child.summary.id);
            return Ok(BranchChildPage { children: page, next, examined });
        }
        page.push(child);
    }
    Ok(BranchChildPage { children: page, next: (examined >= examine).then_some(last), examined })
}

/// Whether a page has room for another child; at least one it has.
fn fits(
    page: &[BranchChild],
    child: &BranchChild,
    bytes: &mut u64,
    limit: usize,
    bounds: ChildBounds,
) -> bool {
    *bytes += child.payload_bytes();
    page.is_empty() || (page.len() < limit && *bytes <= bounds.bytes)
}

/// The same of children that failed or were cancelled. All that are examined match.
fn unsuccessful_page(
    tx: &Tx<'_>,
    filter: &BranchChildFilter,
    bounds: ChildBounds,
) -> Result<BranchChildPage, Error> {
    let limit = filter.limit.min(bounds.examine);
    let one_more = BranchChildFilter { limit: limit.saturating_add(1), ..filter.clone() };
    let mut children = Vec::new();
    for state in [FAILED, CANCELLED] {
        children.extend(bounded(tx, &one_more, state, bounds.bytes)?);
    }
    children.sort_by_key(|child| child.summary.id);
    let (mut page, mut bytes) = (Vec::new(), 0);
    for child in children {
        if !fits(&page, &child, &mut bytes, limit, bounds) {
            let (next, examined) = (page.last().map(|child: &BranchChild| child.summary.id), page.len());
            return Ok(BranchChildPage { children: page, next, examined });
        }
        page.push(child);
    }
    let examined = page.len();
    Ok(BranchChildPage { children: page, next: None, examined })
}

/// The first children in an unsuccessful state: those of at most this many bytes, and one more.
fn bounded(
    tx: &Tx<'_>,
    filter: &BranchChildFilter,
    state: i16,
    most: u64,
) -> Result<Vec<BranchChild>, Error> {
    let after = filter.after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    let mut statement = tx.prepare(sql::children::UNSUCCESSFUL_CHILDREN)?;
    let limit = row_limit(filter.limit);
    let mut rows =
        statement.query(params![SPAN, filter.job.as_bytes(), filter.branch.0, after, limit, state])?;
    let (mut children, mut bytes) = (Vec::new(), 0);
    while bytes <= most
        && let Some(row) = rows.next()?
    {
        let child = branch_child(tx, row)?;
        bytes += child.payload_bytes();
        children.push(child);
    }
    Ok(children)
}

/// The children of a branch that have one of these items, or begin with one.
pub(super) fn branch_items(tx: &Tx<'_>, of: BranchItems<'_>) -> Result<Vec<ItemChild>, Error> {
    let mut found = Vec::new();
    for item in of.items {
        let params = params![of.job.as_bytes(), of.branch.0, of.spawn, item];
        found.extend(tx.query_all(sql::children::BRANCH_ITEM, params, |row| {
            Ok(ItemChild { id: read_id(row, 0)?, item: item.clone(), stage: row.get(1)? })
        })?);
    }
    Ok(found)
}

/// The bytes of the outputs that [`child_ends`] lists.
pub(super) fn child_output_sizes(
    tx: &Tx<'_>,
    parent: JobId,
    parent_rev: Rev,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<u64>, Error> {
    let after = after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    let params = params![parent.as_bytes(), parent_rev.0, after, row_limit(limit)];
    tx.query_all(sql::children::CHILD_OUTPUT_SIZES, params, |row| Ok(row.get::<_, i64>(0)?.unsigned_abs()))
}

/// Children that failed or were cancelled, from an index that holds these by state.
fn unsuccessful(tx: &Tx<'_>, filter: &BranchChildFilter) -> Result<Vec<BranchChild>, Error> {
    let mut unsuccessful = page(tx, sql::children::UNSUCCESSFUL_CHILDREN, filter, Some(FAILED))?;
    unsuccessful.extend(page(tx, sql::children::UNSUCCESSFUL_CHILDREN, filter, Some(CANCELLED))?);
    unsuccessful.sort_by_key(|child| child.summary.id);
    unsuccessful.truncate(filter.limit);
    Ok(unsuccessful)
}

fn page(
    tx: &Tx<'_>,
    sql: &str,
    filter: &BranchChildFilter,
    only: Option<i16>,
) -> Result<Vec<BranchChild>, Error> {
    let after = filter.after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    let mut statement = tx.prepare(sql)?;
    let params = params![SPAN, filter.job.as_bytes(), filter.branch.0, after, row_limit(filter.limit), only];
    let mut rows = statement.query(params)?;
    let mut branch_children = Vec::new();
    while let Some(row) = rows.next()? {
        branch_children.push(branch_child(tx, row)?);
    }
    Ok(branch_children)
}

fn branch_child(tx: &Tx<'_>, row: &Row<'_>) -> Result<BranchChild, Error> {
    let payload = |codec: usize| -> Result<Option<Payload>, Error> {
        let Some(bytes) = row.get::<_, Option<Vec<u8>>>(codec + 1)? else { return Ok(None) };
        Ok(Some(Payload { codec: row.get::<_, Option<u8>>(codec)?.unwrap_or_default(), bytes }))
    };
    let state = columns::final_state(row.get(3)?);
    let (reason, failure) =
        (columns::reason(row.get(4)?), columns::failure(row.get::<_, Option<String>>(19)?.as_deref()));
    let output = payload(20)?;
    Ok(BranchChild {
        summary: summary(tx, row)?,
        branch_position: BranchPosition {
            branch: BranchNo(row.get(14)?),
            spawn: row.get(15)?,
            item: row.get(16)?,
            items: row.get(17)?,
        },
        items_done: row.get(18)?,
        ended: state.and_then(|state| JobEnd::from_parts(state, reason, failure, output)),
        input: payload(22)?.unwrap_or_default(),
        data: payload(24)?,
    })
}

/// Children of a job, oldest first, those in branches included.
pub(super) fn children(
    tx: &Tx<'_>,
    parent: JobId,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<Summary>, Error> {
    let numbers =
        tx.query_all(sql::children::BRANCH_NUMBERS, [parent.as_bytes()], |row| row.get::<_, i64>(0))?;
    let after = after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    let mut children = Vec::new();
    for number in std::iter::once(None).chain(numbers.into_iter().map(Some)) {
        let mut statement = tx.prepare(sql::children::CHILDREN)?;
        let mut rows = statement.query(params![SPAN, parent.as_bytes(), after, row_limit(limit), number])?;
        while let Some(row) = rows.next()? {
            children.push(summary(tx, row)?);
        }
    }
    children.sort_by_key(|child| child.id);
    children.truncate(limit);
    Ok(children)
}

/// The children of a group that have not ended, newest first.
pub(super) fn live_children(
    tx: &Tx<'_>,
    parent: JobId,
    group: ChildGroup,
    among: usize,
) -> Result<Vec<Summary>, Error> {
    let (branch, rev) = match group {
        ChildGroup::Branch(branch) => (Some(branch.0), None),
        ChildGroup::Change(rev) => (None, Some(rev.0)),
    };
    let mut statement = tx.prepare(sql::children::LIVE_CHILDREN)?;
    let mut rows = statement.query(params![SPAN, parent.as_bytes(), branch, rev, row_limit(among)])?;
    let mut children = Vec::new();
    while let Some(row) = rows.next()? {
        children.push(summary(tx, row)?);
    }
    Ok(children)
}

/// The first and the last child of a branch.
pub(super) fn branch_ends(tx: &Tx<'_>, job: JobId, branch: BranchNo) -> Result<Option<ChildRange>, Error> {
    let params = params![job.as_bytes(), branch.0];
    let ends = tx.query_one(sql::children::BRANCH_ENDS, params, |row| {
        let (first, last) = (row.get::<_, Option<[u8; 16]>>(0)?, row.get::<_, Option<[u8; 16]>>(1)?);
        Ok((first.map(JobId::from_bytes), last.map(JobId::from_bytes)))
    })?;
    Ok(ends.and_then(|(first, last)| Some(ChildRange { first: first?, last: last? })))
}

/// The first children of ranges of a branch.
pub(super) fn branch_ranges(tx: &Tx<'_>, of: BranchRanges<'_>) -> Result<Vec<Vec<RangeChild>>, Error> {
    let mut statement = tx.prepare(sql::children::BRANCH_RANGE)?;
    let mut ranges = Vec::with_capacity(of.ranges.len());
    for ChildRange { first, last } in of.ranges {
        let (first, last) = (first.as_bytes(), last.as_bytes());
        let params = params![SPAN, of.job.as_bytes(), of.branch.0, first, last, row_limit(of.each)];
        let mut rows = statement.query(params)?;
        let mut children = Vec::new();
        while let Some(row) = rows.next()? {
            let (item, items, items_done) = (row.get(14)?, row.get(15)?, row.get(16)?);
            children.push(RangeChild { summary: summary(tx, row)?, item, items, items_done });
        }
        ranges.push(children);
    }
    Ok(ranges)
}

/// The children that one change of a job submitted, and how they ended.
pub(super) fn child_ends(
    tx: &Tx<'_>,
    parent: JobId,
    parent_rev: Rev,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<ChildEnd>, Error> {
    let after = after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    let mut statement = tx.prepare(sql::children::CHILD_ENDS)?;
    let mut rows = statement.query(params![parent.as_bytes(), parent_rev.0, after, row_limit(limit)])?;
    let mut child_ends = Vec::new();
    while let Some(row) = rows.next()? {
        let output: Option<Vec<u8>> = row.get(7)?;
        let output = output.map(|bytes| Ok::<_, Error>(Payload { codec: row.get(6)?, bytes })).transpose()?;
        let failure = columns::failure(row.get::<_, Option<String>>(5)?.as_deref());
        let reason = columns::reason(row.get(4)?);
        let state = columns::final_state(row.get(3)?);
        child_ends.push(ChildEnd {
            id: read_id(row, 0)?,
            kind: tx.store.lane(tx, row.get(1)?)?.kind.kind,
            key: row.get(2)?,
            ended: state.and_then(|state| JobEnd::from_parts(state, reason, failure, output)),
        });
    }
    Ok(child_ends)
}
