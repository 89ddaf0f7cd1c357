//! Lanes and queues, and their numbers in the file.

use std::collections::BTreeSet;

use rusqlite::params;
use windlass_model::KindVersion;

use super::{Sqlite, sql, tx::Tx};
use crate::{Error, intern::Lane};

/// The name of a lane: queue, kind, and the number of its rate limit.
pub(super) type Name<'a> = (&'a str, &'a KindVersion, i32);

impl Sqlite {
    /// Gives numbers to lanes that have none. They are committed before they are cached.
    pub(super) async fn intern<'a>(&self, names: impl Iterator<Item = Name<'a>>) -> Result<(), Error> {
        let unknown: BTreeSet<_> =
            names.filter(|(q, k, b)| self.shared.lanes.get_in(q, k, *b).is_none()).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        self.write(1, |tx| unknown.iter().try_for_each(|name| tx.intern(*name))).await?;
        self.read_lanes()
    }

    /// Reads all lanes and queues into the cache.
    pub(super) fn read_lanes(&self) -> Result<(), Error> {
        self.read(|tx| tx.refresh_lanes())
    }

    /// The lane of a number, even if another process has added it.
    pub(super) fn lane(&self, tx: &Tx<'_>, id: i32) -> Result<Lane, Error> {
        if let Some(lane) = self.shared.lanes.by_id(id) {
            return Ok(lane);
        }
        tx.lanes()?
            .into_iter()
            .find(|lane| lane.id == id)
            .ok_or_else(|| Error::Fault(format!("a job is in lane {id}, which is not in the lanes table")))
    }
}

impl Tx<'_> {
    /// Gives a number to a lane. It must not be cached before the transaction has committed.
    pub(super) fn intern(&self, (queue, kind, bucket): Name<'_>) -> Result<(), Error> {
        self.execute(sql::names::ADD_QUEUE, [queue])?;
        self.execute(sql::names::ADD_KIND, [&kind.kind])?;
        let params = params![queue, kind.kind, kind.version, bucket];
        self.execute(sql::names::ADD_LANE, params)?;
        Ok(())
    }

    /// The lane of a name that has a number, even if this transaction has added it.
    pub(super) fn lane_for(&self, (queue, kind, bucket): Name<'_>) -> Result<Lane, Error> {
        if let Some(lane) = self.store.shared.lanes.get_in(queue, kind, bucket) {
            return Ok(lane);
        }
        let wanted = |lane: &Lane| (lane.queue.as_str(), &lane.kind, lane.bucket) == (queue, kind, bucket);
        self.lanes()?
            .into_iter()
            .find(wanted)
            .ok_or_else(|| Error::Fault(format!("no lane exists for {queue:?} and {kind:?}")))
    }

    /// The number of a lane's queue.
    pub(super) fn queue_of(&self, lane: i32) -> Result<i32, Error> {
        match self.store.shared.lanes.queue_of(lane) {
            Some(queue) => Ok(queue),
            None => Ok(self.store.lane(self, lane)?.queue_id),
        }
    }

    /// Reads all lanes and queues into the cache. The transaction must not have added one itself.
    pub(super) fn refresh_lanes(&self) -> Result<(), Error> {
        let lanes = self.lanes()?;
        let newest = lanes.iter().map(|lane| lane.id).max().unwrap_or(0);
        let known = &self.store.shared.lanes;
        lanes.into_iter().for_each(|lane| known.add(lane));
        known.known_to(newest);
        let queues = self
            .query_all(sql::names::QUEUES, [], |row| Ok((row.get::<_, i32>(0)?, row.get::<_, String>(1)?)))?;
        queues.into_iter().for_each(|(id, name)| known.add_queue(&name, id));
        Ok(())
    }

    fn lanes(&self) -> Result<Vec<Lane>, Error> {
        self.query_all(sql::names::LANES, [], |row| {
            let kind = KindVersion { kind: row.get(4)?, version: row.get(5)? };
            let (id, queue_id, kind_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Lane { id, queue_id, kind_id, bucket: row.get(6)?, queue: row.get(3)?, kind })
        })
    }
}
