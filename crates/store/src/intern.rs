//! Names as numbers: a lane stands for a queue, a kind, a version and, if there is one, a rate limit.
//!
//! Lanes are never renumbered or removed, so what was read once stays true until the database is restored to an
//! earlier state. They are cached only after they are committed.

use std::{collections::HashMap, sync::RwLock};

use windlass_model::KindVersion;

/// What a lane's number stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lane {
    pub(crate) id: i32,
    pub(crate) queue_id: i32,
    pub(crate) kind_id: i32,
    /// The number of its jobs' rate limit; 0 is none.
    pub(crate) bucket: i32,
    pub(crate) queue: String,
    pub(crate) kind: KindVersion,
}

/// The cache of lanes and queues.
#[derive(Default)]
pub(crate) struct Lanes {
    maps: RwLock<Maps>,
}

#[derive(Default)]
struct Maps {
    by_id: HashMap<i32, Lane>,
    /// queue → kind → version → lane, of lanes without a limit: a lookup builds no key.
    by_name: HashMap<String, HashMap<String, HashMap<i32, Lane>>>,
    /// queue → its lanes with a limit.
    throttled: HashMap<String, Vec<Lane>>,
    queues: HashMap<String, i32>,
    /// All lanes up to this number are cached.
    newest: i32,
}

/// What was cached at one moment.
pub(crate) struct Known {
    lanes: Vec<Lane>,
    queues: HashMap<String, i32>,
}

impl Lanes {
    /// The lane of jobs without a rate limit.
    pub(crate) fn get(&self, queue: &str, kind: &KindVersion) -> Option<Lane> {
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        maps.by_name.get(queue)?.get(&kind.kind)?.get(&kind.version).cloned()
    }

    /// The lane of jobs with a rate limit; bucket 0 is none.
    pub(crate) fn get_in(&self, queue: &str, kind: &KindVersion, bucket: i32) -> Option<Lane> {
        if bucket == 0 {
            return self.get(queue, kind);
        }
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        maps.throttled.get(queue)?.iter().find(|lane| lane.bucket == bucket && lane.kind == *kind).cloned()
    }

    /// The lanes of these kinds that have a rate limit.
    pub(crate) fn throttled(&self, queue: &str, kinds: &[KindVersion]) -> Vec<Lane> {
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        let Some(lanes) = maps.throttled.get(queue) else { return Vec::new() };
        lanes.iter().filter(|lane| kinds.contains(&lane.kind)).cloned().collect()
    }

    /// All lanes of these kinds, with and without a rate limit.
    pub(crate) fn all(&self, queue: &str, kinds: &[KindVersion]) -> Vec<Lane> {
        let plain = kinds.iter().filter_map(|kind| self.get(queue, kind));
        plain.chain(self.throttled(queue, kinds)).collect()
    }

    pub(crate) fn by_id(&self, id: i32) -> Option<Lane> {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).by_id.get(&id).cloned()
    }

    /// The numbers of the cached lanes that a condition selects.
    pub(crate) fn select(&self, is_selected: impl Fn(&Lane) -> bool) -> Vec<i32> {
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        maps.by_id.values().filter(|lane| is_selected(lane)).map(|lane| lane.id).collect()
    }

    pub(crate) fn queue(&self, queue: &str) -> Option<i32> {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).queues.get(queue).copied()
    }

    /// The number of a lane's queue.
    pub(crate) fn queue_of(&self, id: i32) -> Option<i32> {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).by_id.get(&id).map(|lane| lane.queue_id)
    }

    /// How many lanes are cached: if there are more in the database, another process has added one. Their numbers do
    /// not tell, because they may be committed in another order than they are drawn.
    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.maps.read().unwrap_or_else(|e| e.into_inner()).by_id.len()).unwrap_or(i32::MAX)
    }

    /// The number up to which all lanes are cached: a higher one was added by another process.
    pub(crate) fn newest(&self) -> i32 {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).newest
    }

    pub(crate) fn add(&self, lane: Lane) {
        let mut maps = self.maps.write().unwrap_or_else(|e| e.into_inner());
        maps.queues.insert(lane.queue.clone(), lane.queue_id);
        let known = maps.by_id.insert(lane.id, lane.clone()).is_some();
        if lane.bucket == 0 {
            let kinds = maps.by_name.entry(lane.queue.clone()).or_default();
            kinds.entry(lane.kind.kind.clone()).or_default().insert(lane.kind.version, lane);
        } else if !known {
            maps.throttled.entry(lane.queue.clone()).or_default().push(lane);
        }
    }

    /// Notes that all lanes up to this number are cached.
    pub(crate) fn known_to(&self, newest: i32) {
        let mut maps = self.maps.write().unwrap_or_else(|e| e.into_inner());
        maps.newest = maps.newest.max(newest);
    }

    /// What is cached now.
    pub(crate) fn snapshot(&self) -> Known {
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        Known { lanes: maps.by_id.values().cloned().collect(), queues: maps.queues.clone() }
    }

    /// Empties the cache unless all that was cached before a read is among what was read. Returns whether it is.
    pub(crate) fn keep_if_among(
        &self,
        before: &Known,
        lanes: &[Lane],
        queues: &HashMap<String, i32>,
    ) -> bool {
        let read: HashMap<i32, &Lane> = lanes.iter().map(|lane| (lane.id, lane)).collect();
        let among = before.lanes.iter().all(|lane| read.get(&lane.id) == Some(&lane))
            && before.queues.iter().all(|(name, id)| queues.get(name) == Some(id));
        if !among {
            *self.maps.write().unwrap_or_else(|e| e.into_inner()) = Maps::default();
        }
        among
    }

    pub(crate) fn add_queue(&self, name: &str, id: i32) {
        self.maps.write().unwrap_or_else(|e| e.into_inner()).queues.insert(name.to_owned(), id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(id: i32) -> Lane {
        let kind = KindVersion { kind: format!("kind-{id}"), version: 1 };
        Lane { id, queue_id: 1, kind_id: id, bucket: 0, queue: "default".into(), kind }
    }

    #[test]
    fn lanes_added_during_a_read_do_not_empty_the_cache() {
        let (known, queues) = (Lanes::default(), HashMap::from([("default".to_owned(), 1)]));
        known.add(lane(1));
        let before = known.snapshot();
        // Another connection adds a lane after the read of this one.
        known.add(lane(2));
        assert!(known.keep_if_among(&before, &[lane(1)], &queues));
        assert_eq!(known.count(), 2);
        // A database that was restored has something else under a number, or nothing.
        let before = known.snapshot();
        assert!(!known.keep_if_among(&before, &[lane(1)], &queues));
        assert_eq!(known.count(), 0);
    }
}
