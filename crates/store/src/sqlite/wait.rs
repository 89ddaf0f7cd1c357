//! Parked jobs: parking, waking, and counting the children that are waited for. One routine for all verbs.
//!
//! A parked job is nowhere but, with a timeout, in the timers. A signal, the end of its last child, or its timer
//! wakes it in the same transaction.

use rusqlite::params;
use windlass_model::{JobId, NewJob, Rev, State, Time, Wait, WaitCondition};

use super::{
    Sqlite,
    serial::Placement,
    sql,
    tx::{Tx, read_id},
};
use crate::{
    Error,
    columns::{self, WAKE},
};

/// Numbers in the column `parked`: what a job is parked for.
const PARKED_FOR_SIGNALS: i16 = 1;
const PARKED_FOR_CHILDREN: i16 = 2;

/// How many jobs one repair wakes at most.
const BATCH: i64 = 1_000;

/// Which children are counted: those of a revision, or of the revision that submitted a child.
pub(super) enum ChildrenOf {
    Revision(Rev),
    Child(JobId),
}

/// The columns of a wait.
pub(super) struct Parked {
    pub(super) wait: Option<String>,
    pub(super) wait_until: Option<Time>,
    pub(super) due_at: Time,
    /// `None` if the job only yields.
    pub(super) parked: Option<i16>,
}

impl Parked {
    pub(super) fn of(wait: &Wait, now: Time) -> Parked {
        let parked = match &wait.condition {
            WaitCondition::Nothing => {
                return Parked { wait: None, wait_until: None, due_at: now, parked: None };
            }
            WaitCondition::Signals { .. } => PARKED_FOR_SIGNALS,
            WaitCondition::Children { .. } => PARKED_FOR_CHILDREN,
        };
        let wait_until = wait.until(now);
        let wait = Some(columns::wait_text(&wait.condition));
        Parked { wait, wait_until, due_at: wait_until.unwrap_or(now), parked: Some(parked) }
    }
}

impl Tx<'_> {
    /// Parks a job whose row says so, or wakes it if its wait is met already: then it keeps its serial slot.
    pub(super) fn park(
        &self,
        now: Time,
        placement: &Placement,
        wait: &Wait,
        keeps_slot: bool,
        pending_children: i64,
    ) -> Result<(), Error> {
        self.count_moved(placement.lane, State::Running, State::Waiting);
        if wait.timeout.is_some() {
            self.set_timer(placement.due_at, placement.id, WAKE)?;
        }
        if self.is_met(placement.id, &wait.condition, pending_children)? {
            self.record_wait(now, placement, false)?;
            return self.wake(now, placement);
        }
        if keeps_slot { Ok(()) } else { self.leave_serial_key(placement) }
    }

    /// Whether a job has what it waits for.
    pub(super) fn is_met(
        &self,
        id: JobId,
        condition: &WaitCondition,
        pending_children: i64,
    ) -> Result<bool, Error> {
        let names: Vec<String> = match condition {
            WaitCondition::Signals { .. } => {
                self.query_all(sql::signals::INBOX_NAMES, [id.as_bytes()], |row| row.get(0))?
            }
            _ => Vec::new(),
        };
        Ok(condition.is_met(names.iter().map(String::as_str), u32::try_from(pending_children).unwrap_or(0)))
    }

    /// Wakes a parked job, which is due now, and deletes its timer.
    pub(super) fn wake(&self, now: Time, placement: &Placement) -> Result<(), Error> {
        self.delete_timer(placement.due_at, placement.id, WAKE)?;
        self.end_wait(&Placement { due_at: now, ..*placement })
    }

    /// Ends the wait of a parked job, which is due at the time in its placement, and makes it ready.
    pub(super) fn end_wait(&self, placement: &Placement) -> Result<(), Error> {
        let params = params![placement.id.as_bytes(), placement.due_at.micros()];
        self.execute(sql::waits::WAKE, params)?;
        self.count_moved(placement.lane, State::Waiting, State::Ready);
        self.enter(&Placement { parked: false, ..*placement })
    }

    /// Adds to the number of children that a job waits for; the end of the last one wakes it.
    pub(super) fn add_pending_children(
        &self,
        now: Time,
        parent: JobId,
        difference: i64,
        children: ChildrenOf,
    ) -> Result<(), Error> {
        let (revision, child) = match &children {
            ChildrenOf::Revision(revision) => (Some(revision.0), None),
            ChildrenOf::Child(id) => (None, Some(id.as_bytes())),
        };
        let params = params![parent.as_bytes(), difference, revision, child];
        let found = self.query_one(sql::commit::ADD_PENDING_CHILDREN, params, |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?, Placement::read(parent, row, 2)?))
        })?;
        let Some((pending_children, wait, placement)) = found.filter(|(.., placement)| placement.parked)
        else {
            return Ok(());
        };
        let mut decoder = columns::Decoder::default();
        let wait = decoder.wait(wait.as_deref());
        // A job whose wait cannot be decoded is woken, and fails for that when it is claimed.
        let waits_for_children =
            decoder.fault().is_some() || matches!(wait, Some(WaitCondition::Children { .. }));
        if waits_for_children && pending_children == 0 { self.wake(now, &placement) } else { Ok(()) }
    }

    /// Counts new jobs for the waits of their parents, unless their ends are signals.
    pub(super) fn count_new_children<'j>(
        &self,
        now: Time,
        jobs: impl Iterator<Item = &'j NewJob>,
    ) -> Result<(), Error> {
        let mut counts: Vec<((JobId, Rev), i64)> = Vec::new();
        for parent in jobs.filter_map(NewJob::counting_parent) {
            match counts.iter_mut().find(|(known, _)| *known == parent) {
                Some((_, count)) => *count += 1,
                None => counts.push((parent, 1)),
            }
        }
        let mut counts = counts.into_iter();
        counts.try_for_each(|((parent, revision), count)| {
            self.add_pending_children(now, parent, count, ChildrenOf::Revision(revision))
        })
    }
}

/// Parked jobs that have what they wait for: there should be none.
pub(super) fn find_met_waits(tx: &Tx<'_>) -> Result<Vec<Placement>, Error> {
    tx.query_all(sql::repair::MET_WAITS, [BATCH], |row| Placement::read(read_id(row, 0)?, row, 1))
}

/// Wakes parked jobs that were not woken. Checks without the write lock first.
pub(super) async fn repair(store: &Sqlite, now: crate::Now) -> Result<usize, Error> {
    if store.read(|tx| Ok(find_met_waits(tx)?.is_empty()))? {
        return Ok(0);
    }
    store
        .write(super::pool::SMALL + 1, |tx| {
            let now = tx.now(now);
            let placements = find_met_waits(tx)?;
            for placement in &placements {
                tracing::warn!(job = %placement.id, "a parked job had what it waits for, and was not woken; it is woken now");
                tx.record_wait(now, placement, false)?;
                tx.wake(now, placement)?;
            }
            Ok(placements.len())
        })
        .await
}
