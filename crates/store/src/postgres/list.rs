//! Lists of jobs: performs what [`crate::list`] decides.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_model::{JobCounts, JobId, Location, State};

use super::{Postgres, SPAN, change_params::Param, conn::Conn, counts, errors::PgError, sql};
use crate::{
    Error, Filter, JobPage, MatchCount, Summary,
    columns::{self, CANCELLED, FAILED, class_in_json, is_selected},
    list::{Action, Ids, Lead, PERIODS, Sizes, Walk, key_range, period_of, ranges, span},
};

/// A list over one connection.
struct List<'a> {
    store: &'a Postgres,
    conn: &'a Conn,
    filter: &'a Filter,
    /// The lanes that the filter selects; `None` if it selects all.
    lanes: Option<Vec<i32>>,
}

impl Postgres {
    /// Reads a page of a list; see [`crate::Inspect::jobs`].
    pub(super) async fn list_jobs(&self, filter: &Filter) -> Result<JobPage, Error> {
        let conn = self.conn().await?;
        let list = List::new(self, &conn, filter).await?;
        let mut walk = Walk::list(filter, list.choose().await?);
        while let Some(ids) = list.next_ids(&mut walk).await? {
            walk.add_matching(list.matching(&ids).await?);
        }
        Ok(walk.page())
    }

    /// Counts matching jobs; see [`crate::Inspect::count_jobs`].
    pub(super) async fn count_jobs_matching(
        &self,
        filter: &Filter,
        most: usize,
    ) -> Result<MatchCount, Error> {
        if filter.has_maintained_counts() {
            let jobs = columns::count_selected(self.lane_counts().await?, filter);
            return Ok(MatchCount { jobs, at_least: false });
        }
        let conn = self.conn().await?;
        let all = Filter { before: None, ..filter.clone() };
        let list = List::new(self, &conn, &all).await?;
        let mut walk = Walk::count(&all, list.choose().await?, most);
        let mut jobs = BTreeMap::new();
        while let Some(ids) = list.next_ids(&mut walk).await? {
            list.count(&ids, &mut jobs).await?;
        }
        Ok(MatchCount { jobs, at_least: !walk.is_complete() })
    }
}

impl<'a> List<'a> {
    async fn new(store: &'a Postgres, conn: &'a Conn, filter: &'a Filter) -> Result<List<'a>, PgError> {
        let mut lanes = None;
        if filter.kind.is_some() || filter.queue.is_some() || filter.version.is_some() {
            // Another process may have added some.
            store.read_lanes(conn).await?;
            lanes = Some(store.shared.lanes.select(|lane| is_selected(filter, lane)));
        }
        Ok(List { store, conn, filter, lanes })
    }

    /// Chooses what the list walks.
    async fn choose(&self) -> Result<Lead, PgError> {
        let mut sizes = Sizes::default();
        loop {
            let unknown = match Lead::choose(self.filter, &sizes) {
                Ok(lead) => return Ok(lead),
                Err(unknown) => unknown,
            };
            if unknown.iter().any(|lead| Sizes::is_maintained(*lead)) {
                let rows = self.conn.read(sql::lists::COUNTS, &[]).await?;
                self.store.ensure_lanes(self.conn, rows.iter().map(|row| row.get(0))).await?;
                let lane = |row: &Row| Ok((self.store.lane(row.get(0))?, counts::read(row, 1)));
                let lanes: Vec<(_, JobCounts)> = rows.iter().map(lane).collect::<Result<_, PgError>>()?;
                sizes.add_maintained(self.filter, lanes.iter().map(|(lane, counts)| (lane, *counts)));
            }
            for lead in unknown.into_iter().filter(|lead| !Sizes::is_maintained(*lead)) {
                sizes.add(lead, self.size(lead).await?);
            }
        }
    }

    /// Counts the entries of an index.
    async fn size(&self, lead: Lead) -> Result<u64, PgError> {
        let most = i64::try_from(Sizes::COUNTED).unwrap_or(i64::MAX);
        let Filter { tag, key_prefix, error_class, stage, .. } = self.filter;
        let error_class = error_class.as_deref().map(class_in_json);
        let (prefix, end) = key_prefix.as_deref().and_then(key_range).unzip();
        let (sql, wanted): (_, Param<'_>) = match lead {
            Lead::Tag => (sql::lists::SIZE_OF_TAG, tag),
            Lead::ErrorClass => (sql::lists::SIZE_OF_ERROR_CLASS, &error_class),
            Lead::UnsuccessfulStage => (sql::lists::SIZE_OF_UNSUCCESSFUL_STAGE, stage),
            Lead::ParkedStage => (sql::lists::SIZE_OF_PARKED_STAGE, stage),
            Lead::KeyPrefix => (sql::lists::SIZE_OF_KEY_PREFIX, &prefix),
            _ => (sql::lists::SIZE_OF_TIMERS, &most),
        };
        let mut params: Vec<Param<'_>> = vec![&most];
        params.extend((lead != Lead::Timers).then_some(wanted));
        params.extend(end.as_ref().filter(|_| lead == Lead::KeyPrefix).map(|end| end as Param<'_>));
        let rows = self.conn.read(sql, &params).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0).unsigned_abs()))
    }

    /// Reads until there are ids to compare with the filter; `None` once the walk is finished.
    async fn next_ids(&self, walk: &mut Walk) -> Result<Option<Vec<Uuid>>, PgError> {
        loop {
            match walk.next() {
                Action::Read { before, limit } => {
                    let ids = match walk.lead() {
                        Lead::Periods => self.read_periods(before, limit).await?,
                        lead => self.read(lead, before, limit).await?,
                    };
                    walk.add_ids(ids);
                }
                Action::Match(ids) => return Ok(Some(ids.into_iter().map(|id| id.0).collect())),
                Action::Finish => return Ok(None),
            }
        }
    }

    /// Reads ids of a lead.
    async fn read(&self, lead: Lead, before: Option<JobId>, limit: usize) -> Result<Ids, PgError> {
        let (from, _) = self.filter.ids();
        let (before, from) = (before.map(|id| id.0), from.map(|id| id.0));
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let Filter { tag, key, key_prefix, error_class, stage, state, .. } = self.filter;
        let error_class = error_class.as_deref().map(class_in_json);
        let state = if *state == Some(State::Failed) { FAILED } else { CANCELLED };
        let (prefix, end) = key_prefix.as_deref().and_then(key_range).unzip();
        let mut params: Vec<Param<'_>> = vec![&before, &from, &most];
        let sql = match lead {
            Lead::All | Lead::Periods => sql::lists::ALL,
            Lead::Tag => sql::lists::TAG,
            Lead::Unsuccessful => sql::lists::UNSUCCESSFUL,
            Lead::ErrorClass => sql::lists::ERROR_CLASS,
            Lead::UnsuccessfulStage => sql::lists::UNSUCCESSFUL_STAGE,
            Lead::ParkedStage => sql::lists::PARKED_STAGE,
            Lead::Key => sql::lists::KEY,
            Lead::KeyPrefix => sql::lists::KEY_PREFIX,
            Lead::Ready => sql::lists::READY,
            Lead::Timers => sql::lists::TIMERS,
            Lead::Claims => sql::lists::CLAIMS,
            Lead::Parked => sql::lists::PARKED,
        };
        match lead {
            Lead::Tag => params.push(tag),
            Lead::Unsuccessful => params.push(&state),
            Lead::ErrorClass => params.push(&error_class),
            Lead::UnsuccessfulStage | Lead::ParkedStage => params.push(stage),
            Lead::Key => params.push(key),
            Lead::KeyPrefix => params.extend::<[Param<'_>; 2]>([&prefix, &end]),
            _ => {}
        }
        let rows = self.conn.read(sql, &params).await?;
        Ok(Ids::of(rows.iter().map(|row| JobId(row.get(0))).collect(), limit))
    }

    /// Reads ids of the periods in which jobs of the lanes were submitted.
    async fn read_periods(&self, before: Option<JobId>, limit: usize) -> Result<Ids, PgError> {
        let (from, _) = self.filter.ids();
        let oldest = from.map_or(0, period_of);
        let newest = before.map_or(i64::MAX, period_of);
        let rows =
            self.conn.read(sql::lists::PERIODS, &[&oldest, &newest, &(PERIODS as i64), &self.lanes]).await?;
        let periods: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let read: i64 = rows.iter().map(|row| row.get::<_, i64>(1)).sum();
        let ranges = ranges(&periods, from, before);
        let (high, low): (Vec<Uuid>, Vec<Uuid>) = ranges.iter().map(|(low, high)| (high.0, low.0)).unzip();
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.conn.read(sql::lists::RANGES, &[&high, &low, &most]).await?;
        let mut ids = Ids::of(rows.iter().map(|row| JobId(row.get(0))).collect(), limit);
        ids.read += periods.len();
        if ids.reached.is_none() && read >= PERIODS as i64 {
            ids.reached = periods.last().map(|period| span(*period).0);
        }
        Ok(ids)
    }

    /// Reads those of some jobs that match, newest first.
    async fn matching(&self, ids: &[Uuid]) -> Result<Vec<Summary>, Error> {
        let rows = self.compare(sql::lists::MATCHING, ids).await?;
        self.store.ensure_lanes(self.conn, rows.iter().map(|row| row.get(1))).await?;
        rows.iter().map(|row| self.store.summary(row)).collect()
    }

    /// Counts those of some jobs that match.
    async fn count(&self, ids: &[Uuid], sums: &mut BTreeMap<State, u64>) -> Result<(), PgError> {
        let rows = self.compare(sql::lists::COUNT_MATCHING, ids).await?;
        let count = |row: &Row| {
            let location = Location { is_ready: row.get(1), is_scheduled: row.get(2), is_parked: row.get(3) };
            (row.get(0), location, row.get::<_, i64>(4) as u64)
        };
        columns::add_by_state(sums, rows.iter().map(count));
        Ok(())
    }

    async fn compare(&self, sql: &'static str, ids: &[Uuid]) -> Result<Vec<Row>, PgError> {
        let (state, is_ready, is_scheduled, is_parked) = columns::state_filter(self.filter.state);
        let Filter { tag, key, key_prefix, error_class, stage, top, .. } = self.filter;
        let error_class = error_class.as_deref().map(class_in_json);
        let params: [Param<'_>; 13] = [
            &SPAN,
            &ids,
            &state,
            &is_ready,
            &is_scheduled,
            &self.lanes,
            tag,
            key,
            key_prefix,
            &error_class,
            stage,
            top,
            &is_parked,
        ];
        self.conn.read(sql, &params).await
    }
}
