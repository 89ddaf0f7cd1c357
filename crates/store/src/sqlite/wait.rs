//! Parked jobs: parking, waking, and children whose end is waited for. One routine for all doors.
//!
//! A parked job is in no place but, with a timeout, among the timers. Whoever brings what it waits for (a signal, the end
//! of its last child, its timer) wakes it in the same transaction.

use rusqlite::params;
use windlass_model::{Awaited, JobId, NewJob, Rev, Time, Wait};

use super::{
    Sqlite,
    serial::Placement,
    sql,
    tx::{Tx, id_of},
};
use crate::{
    Error,
    columns::{self, WAKE},
};

/// Numbers in the `parked` column: for what a job is parked.
const SIGNALS: i16 = 1;
const CHILDREN: i16 = 2;

/// How many jobs one sweep wakes at most.
const BATCH: i64 = 1_000;

/// Which children are counted: those of a round, or of the round that a child is of.
pub(super) enum Of {
    Round(Rev),
    Child(JobId),
}

/// What is written of a wait.
pub(super) struct Parked {
    pub(super) wait: Option<String>,
    pub(super) until: Option<Time>,
    pub(super) due_at: Time,
    /// `None` if the job only lets others pass.
    pub(super) parked: Option<i16>,
}

impl Parked {
    pub(super) fn of(wait: &Wait, now: Time) -> Parked {
        let parked = match &wait.awaited {
            Awaited::Nothing => return Parked { wait: None, until: None, due_at: now, parked: None },
            Awaited::Signals { .. } => SIGNALS,
            Awaited::Children { .. } => CHILDREN,
        };
        let until = wait.timeout.map(|timeout| now.plus(timeout));
        let wait = Some(columns::wait_text(&wait.awaited));
        Parked { wait, until, due_at: until.unwrap_or(now), parked: Some(parked) }
    }
}

impl Tx<'_> {
    /// A job that was just parked waits, unless what it waits for is there: then it has not let go of its key.
    pub(super) fn park(
        &self,
        now: Time,
        spot: &Placement,
        wait: &Wait,
        keeps: bool,
        pending: i64,
    ) -> Result<(), Error> {
        if wait.timeout.is_some() {
            self.set_timer(spot.due_at, spot.id, WAKE)?;
        }
        if self.is_met(spot.id, &wait.awaited, pending)? {
            return self.wake(now, spot);
        }
        if keeps { Ok(()) } else { self.leave(spot) }
    }

    /// Whether what a job waits for has come.
    pub(super) fn is_met(&self, id: JobId, what: &Awaited, pending: i64) -> Result<bool, Error> {
        let names: Vec<String> = match what {
            Awaited::Signals { .. } => {
                self.all(sql::signals::INBOX_NAMES, [id.as_bytes()], |row| row.get(0))?
            }
            _ => Vec::new(),
        };
        Ok(what.is_met(names.iter().map(String::as_str), u32::try_from(pending).unwrap_or(0)))
    }

    /// A parked job is due now.
    pub(super) fn wake(&self, now: Time, spot: &Placement) -> Result<(), Error> {
        self.unset_timer(spot.due_at, spot.id, WAKE)?;
        self.rouse(&Placement { due_at: now, ..*spot })
    }

    /// A parked job whose timer has gone off is due when that was to be.
    pub(super) fn rouse(&self, spot: &Placement) -> Result<(), Error> {
        let params = params![spot.id.as_bytes(), spot.due_at.micros()];
        self.run(sql::waits::WAKE, params)?;
        self.enter(&Placement { parked: false, ..*spot })
    }

    /// So many more (or fewer) children of a job have not ended; the last one that ends wakes it.
    pub(super) fn count_children(&self, now: Time, parent: JobId, more: i64, of: Of) -> Result<(), Error> {
        let (round, child) = match &of {
            Of::Round(round) => (Some(round.0), None),
            Of::Child(id) => (None, Some(id.as_bytes())),
        };
        let params = params![parent.as_bytes(), more, round, child];
        let found = self.one(sql::commit::ADD_PENDING_CHILDREN, params, |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?, Placement::read(parent, row, 2)?))
        })?;
        let Some((pending, wait, spot)) = found.filter(|(.., spot)| spot.parked) else { return Ok(()) };
        match columns::wait(wait.as_deref()) {
            Some(Awaited::Children { .. }) if pending == 0 => self.wake(now, &spot),
            _ => Ok(()),
        }
    }

    /// Jobs that were put in count for the waits of their parents, if a commit submitted them that is not told of their ends.
    pub(super) fn count_new<'j>(
        &self,
        now: Time,
        jobs: impl Iterator<Item = &'j NewJob>,
    ) -> Result<(), Error> {
        let mut births: Vec<((JobId, Rev), i64)> = Vec::new();
        let families = jobs.filter_map(|job| Some((job.parent?, job.parent_rev?)));
        for family in families.filter(|(_, round)| *round != Rev::SIGNALLED) {
            match births.iter_mut().find(|(known, _)| *known == family) {
                Some((_, count)) => *count += 1,
                None => births.push((family, 1)),
            }
        }
        let mut births = births.into_iter();
        births.try_for_each(|((parent, round), count)| {
            self.count_children(now, parent, count, Of::Round(round))
        })
    }
}

/// Parked jobs that have what they wait for: there should be none.
pub(super) fn forgotten(tx: &Tx<'_>) -> Result<Vec<Placement>, Error> {
    tx.all(sql::repair::MET_WAITS, [BATCH], |row| Placement::read(id_of(row, 0)?, row, 1))
}

/// Wakes parked jobs that nobody woke. Looks without the write lock first.
pub(super) async fn sweep(store: &Sqlite, now: crate::Now) -> Result<usize, Error> {
    if store.read(|tx| Ok(forgotten(tx)?.is_empty()))? {
        return Ok(0);
    }
    store
        .write(super::pool::SMALL + 1, |tx| {
            let now = tx.now(now);
            let spots = forgotten(tx)?;
            for spot in &spots {
                tracing::warn!(job = %spot.id, "a parked job had what it waits for");
                tx.wake(now, spot)?;
            }
            Ok(spots.len())
        })
        .await
}
