//! Lists of jobs: performs what [`crate::list`] decides.

use std::collections::BTreeMap;

use rusqlite::{CachedStatement, params, types::ToSql};
use windlass_model::{JobId, Location, State};

use super::{
    counts,
    inspect::{SPAN, lane_counts, summary},
    sql,
    tx::{Tx, read_id, unpack},
};
use crate::{
    Error, Filter, JobPage, MatchCount,
    columns::{self, CANCELLED, FAILED},
    list::{Action, Ids, Lead, PERIODS, Sizes, Walk, key_range, period_of, ranges, span},
};

/// Reads a page of a list; see [`crate::Inspect::jobs`].
pub(super) fn jobs(tx: &Tx<'_>, filter: &Filter) -> Result<JobPage, Error> {
    let list = List::new(tx, filter)?;
    let mut walk = Walk::list(filter, list.choose()?);
    let mut compare = list.compare(sql::lists::MATCHING)?;
    while let Some(ids) = list.next_ids(&mut walk)? {
        let mut matching = Vec::new();
        for id in ids {
            compare.raw_bind_parameter(JOB, id.as_bytes())?;
            if let Some(row) = compare.raw_query().next()? {
                matching.push(summary(tx, row)?);
            }
        }
        walk.add_matching(matching);
    }
    Ok(walk.page())
}

/// Counts matching jobs; see [`crate::Inspect::count_jobs`].
pub(super) fn count_jobs(tx: &Tx<'_>, filter: &Filter, most: usize) -> Result<MatchCount, Error> {
    if filter.has_maintained_counts() {
        return Ok(MatchCount { jobs: columns::count_selected(lane_counts(tx)?, filter), at_least: false });
    }
    let all = Filter { before: None, ..filter.clone() };
    let list = List::new(tx, &all)?;
    let mut walk = Walk::count(&all, list.choose()?, most);
    let mut compare = list.compare(sql::lists::STATE_IF_MATCHING)?;
    let mut jobs = BTreeMap::new();
    while let Some(ids) = list.next_ids(&mut walk)? {
        for id in ids {
            compare.raw_bind_parameter(JOB, id.as_bytes())?;
            if let Some(row) = compare.raw_query().next()? {
                let location =
                    Location { is_ready: row.get(1)?, is_scheduled: row.get(2)?, is_parked: row.get(3)? };
                columns::add_by_state(&mut jobs, [(row.get(0)?, location, 1)]);
            }
        }
    }
    Ok(MatchCount { jobs, at_least: !walk.is_complete() })
}

/// Which parameter of the statements that compare is the job.
const JOB: usize = 2;

/// A list within a transaction.
struct List<'a> {
    tx: &'a Tx<'a>,
    filter: &'a Filter,
    /// The lanes that the filter selects; `None` if it selects all.
    lanes: Option<Vec<i32>>,
}

impl<'a> List<'a> {
    fn new(tx: &'a Tx<'a>, filter: &'a Filter) -> Result<List<'a>, Error> {
        let Filter { kind, queue, version, .. } = filter;
        let mut lanes = None;
        if kind.is_some() || queue.is_some() || version.is_some() {
            lanes = Some(tx.query_all(sql::lists::LANES, params![kind, queue, version], |row| row.get(0))?);
        }
        Ok(List { tx, filter, lanes })
    }

    /// Chooses what the list walks.
    fn choose(&self) -> Result<Lead, Error> {
        let mut sizes = Sizes::default();
        loop {
            let unknown = match Lead::choose(self.filter, &sizes) {
                Ok(lead) => return Ok(lead),
                Err(unknown) => unknown,
            };
            if unknown.iter().any(|lead| Sizes::is_maintained(*lead)) {
                let name = |(lane, counts)| Ok((self.tx.store.lane(self.tx, lane)?, counts));
                let lanes: Vec<_> =
                    counts::read_all(self.tx)?.into_iter().map(name).collect::<Result<_, Error>>()?;
                sizes.add_maintained(self.filter, lanes.iter().map(|(lane, counts)| (lane, *counts)));
            }
            for lead in unknown.into_iter().filter(|lead| !Sizes::is_maintained(*lead)) {
                sizes.add(lead, self.size(lead)?);
            }
        }
    }

    /// Counts the entries of an index.
    fn size(&self, lead: Lead) -> Result<u64, Error> {
        let most = usize::try_from(Sizes::COUNTED).unwrap_or(usize::MAX);
        let (prefix, end) = self.filter.key_prefix.as_deref().and_then(key_range).unzip();
        let count = match lead {
            Lead::KeyPrefix => self.count(sql::lists::SIZE_OF_KEY_PREFIX, &[&prefix, &end], most)?,
            Lead::Timers => self.count(sql::lists::SIZE_OF_TIMERS, &[], most)?,
            lead => self.read(lead, None, most)?.read,
        };
        Ok(count as u64)
    }

    /// Counts the rows of a statement, up to `most`.
    fn count(&self, sql: &str, params: &[&dyn ToSql], most: usize) -> Result<usize, Error> {
        let mut statement = self.tx.prepare(sql)?;
        let mut rows = statement.query(params)?;
        let mut count = 0;
        while count < most && rows.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Reads until there are ids to compare with the filter; `None` once the walk is finished.
    fn next_ids(&self, walk: &mut Walk) -> Result<Option<Vec<JobId>>, Error> {
        loop {
            match walk.next() {
                Action::Read { before, limit } => {
                    let ids = match walk.lead() {
                        Lead::Periods => self.read_periods(before, limit)?,
                        Lead::Claims => self.read_claims(before, limit)?,
                        lead => self.read(lead, before, limit)?,
                    };
                    walk.add_ids(ids);
                }
                Action::Match(ids) => return Ok(Some(ids)),
                Action::Finish => return Ok(None),
            }
        }
    }

    /// Reads ids of a lead.
    fn read(&self, lead: Lead, before: Option<JobId>, limit: usize) -> Result<Ids, Error> {
        let Filter { tag, key, key_prefix, error_class, stage, state, .. } = self.filter;
        let state = if *state == Some(State::Failed) { FAILED } else { CANCELLED };
        let (prefix, end) = key_prefix.as_deref().and_then(key_range).unzip();
        let sql = match lead {
            Lead::All | Lead::Periods | Lead::Claims => sql::lists::ALL,
            Lead::Tag => sql::lists::TAG,
            Lead::Unsuccessful => sql::lists::UNSUCCESSFUL,
            Lead::ErrorClass => sql::lists::ERROR_CLASS,
            Lead::UnsuccessfulStage => sql::lists::UNSUCCESSFUL_STAGE,
            Lead::ParkedStage => sql::lists::PARKED_STAGE,
            Lead::Key => sql::lists::KEY,
            Lead::KeyPrefix => sql::lists::KEY_PREFIX,
            Lead::Ready => sql::lists::READY,
            Lead::Timers => sql::lists::TIMERS,
            Lead::Parked => sql::lists::PARKED,
        };
        let (from, _) = self.filter.ids();
        let (before, from) = (before.map(|id| *id.as_bytes()), from.map(|id| *id.as_bytes()));
        let mut params: Vec<&dyn ToSql> = vec![&before, &from];
        match lead {
            Lead::Tag => params.push(tag),
            Lead::Unsuccessful => params.push(&state),
            Lead::ErrorClass => params.push(error_class),
            Lead::UnsuccessfulStage | Lead::ParkedStage => params.push(stage),
            Lead::Key => params.push(key),
            Lead::KeyPrefix => params.extend::<[&dyn ToSql; 2]>([&prefix, &end]),
            _ => {}
        }
        Ok(Ids::of(self.ids(sql, &params, limit)?, limit))
    }

    /// Reads at most `limit` ids.
    fn ids(&self, sql: &str, params: &[&dyn ToSql], limit: usize) -> Result<Vec<JobId>, Error> {
        let mut statement = self.tx.prepare(sql)?;
        let mut rows = statement.query(params)?;
        let mut ids = Vec::new();
        while ids.len() < limit
            && let Some(row) = rows.next()?
        {
            ids.push(read_id(row, 0)?);
        }
        Ok(ids)
    }

    /// Reads the ids of all claimed jobs.
    fn read_claims(&self, before: Option<JobId>, limit: usize) -> Result<Ids, Error> {
        let (from, _) = self.filter.ids();
        let is_within =
            |id: &JobId| before.is_none_or(|before| *id < before) && from.is_none_or(|from| *id >= from);
        let mut ids = Vec::new();
        let mut statement = self.tx.prepare(sql::inspect::CLAIMS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let pairs = unpack(&row.get::<_, Vec<u8>>(2)?)?;
            ids.extend(pairs.into_iter().map(|(id, _)| id).filter(is_within));
        }
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.truncate(limit);
        Ok(Ids::of(ids, limit))
    }

    /// Reads ids of the periods in which jobs of the lanes were submitted.
    fn read_periods(&self, before: Option<JobId>, limit: usize) -> Result<Ids, Error> {
        let (from, _) = self.filter.ids();
        let (oldest, newest) = (from.map_or(0, period_of), before.map_or(i64::MAX, period_of));
        let mut periods: Vec<i64> = Vec::new();
        for lane in self.lanes.iter().flatten() {
            let mut statement = self.tx.prepare(sql::lists::PERIODS)?;
            let mut rows = statement.query(params![oldest, newest, lane])?;
            let mut of_lane = 0;
            while of_lane < PERIODS
                && let Some(row) = rows.next()?
            {
                periods.push(row.get(0)?);
                of_lane += 1;
            }
        }
        periods.sort_unstable_by(|a, b| b.cmp(a));
        periods.truncate(PERIODS);
        let has_more = periods.len() == PERIODS;
        periods.dedup();
        let mut ids = Vec::new();
        for (low, high) in ranges(&periods, from, before) {
            let params: [&dyn ToSql; 2] = [high.as_bytes(), low.as_bytes()];
            ids.extend(self.ids(sql::lists::ALL, &params, limit - ids.len())?);
            if ids.len() >= limit {
                break;
            }
        }
        let mut ids = Ids::of(ids, limit);
        ids.read += periods.len();
        if ids.reached.is_none() && has_more {
            ids.reached = periods.last().map(|period| span(*period).0);
        }
        Ok(ids)
    }

    /// Prepares the comparison of one job with the filter.
    fn compare(&self, sql: &str) -> Result<CachedStatement<'a>, Error> {
        let (state, is_ready, is_scheduled, is_parked) = columns::state_filter(self.filter.state);
        let Filter { tag, key, key_prefix, error_class, stage, top, .. } = self.filter;
        let lanes = self.lanes.as_ref().map(|lanes| {
            let numbers: Vec<String> = lanes.iter().map(ToString::to_string).collect();
            format!(",{},", numbers.join(","))
        });
        let mut statement = self.tx.prepare(sql)?;
        let params: [&dyn ToSql; 13] = [
            &SPAN,
            &None::<i64>,
            &state,
            &is_ready,
            &is_scheduled,
            &lanes,
            tag,
            key,
            key_prefix,
            error_class,
            stage,
            top,
            &is_parked,
        ];
        for (number, value) in (1..).zip(params) {
            statement.raw_bind_parameter(number, value)?;
        }
        Ok(statement)
    }
}
