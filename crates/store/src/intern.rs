//! Names kept as numbers: a lane stands for a queue, a kind, a version and, if its jobs are under a rate limit, a bucket.
//!
//! Lanes are never renumbered or removed, so what was read once holds for good. They are cached only after
//! they are committed.

use std::{collections::HashMap, sync::RwLock};

use windlass_model::KindVersion;

/// What a lane's number stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lane {
    pub(crate) id: i32,
    pub(crate) queue_id: i32,
    pub(crate) kind_id: i32,
    /// The rate limit of its jobs; 0 is none.
    pub(crate) bucket: i32,
    pub(crate) queue: String,
    pub(crate) kind: KindVersion,
}

#[derive(Default)]
pub(crate) struct Lanes {
    maps: RwLock<Maps>,
}

#[derive(Default)]
struct Maps {
    by_id: HashMap<i32, Lane>,
    /// queue → kind → version → lanes, the one without a bucket first: looked up without building a key.
    by_name: HashMap<String, HashMap<String, HashMap<i32, Vec<Lane>>>>,
    queues: HashMap<String, i32>,
    newest: i32,
}

impl Maps {
    fn of(&self, queue: &str, kind: &KindVersion) -> &[Lane] {
        let lanes = || self.by_name.get(queue)?.get(&kind.kind)?.get(&kind.version);
        lanes().map(Vec::as_slice).unwrap_or_default()
    }
}

impl Lanes {
    /// The lane of jobs without a rate limit.
    pub(crate) fn get(&self, queue: &str, kind: &KindVersion) -> Option<Lane> {
        self.get_in(queue, kind, 0)
    }

    /// The lane of jobs under a rate limit; bucket 0 is none.
    pub(crate) fn get_in(&self, queue: &str, kind: &KindVersion, bucket: i32) -> Option<Lane> {
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        maps.of(queue, kind).iter().find(|lane| lane.bucket == bucket).cloned()
    }

    /// All lanes of some kinds in a queue.
    pub(crate) fn all(&self, queue: &str, kinds: &[KindVersion]) -> Vec<Lane> {
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        kinds.iter().flat_map(|kind| maps.of(queue, kind)).cloned().collect()
    }

    pub(crate) fn by_id(&self, id: i32) -> Option<Lane> {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).by_id.get(&id).cloned()
    }

    pub(crate) fn queue(&self, queue: &str) -> Option<i32> {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).queues.get(queue).copied()
    }

    /// The largest number known; a larger one in the store is a lane that another process made.
    pub(crate) fn newest(&self) -> i32 {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).newest
    }

    pub(crate) fn add(&self, lane: Lane) {
        let mut maps = self.maps.write().unwrap_or_else(|e| e.into_inner());
        maps.newest = maps.newest.max(lane.id);
        maps.queues.insert(lane.queue.clone(), lane.queue_id);
        if maps.by_id.insert(lane.id, lane.clone()).is_some() {
            return;
        }
        let kinds = maps.by_name.entry(lane.queue.clone()).or_default();
        let lanes = kinds.entry(lane.kind.kind.clone()).or_default().entry(lane.kind.version).or_default();
        lanes.push(lane);
        lanes.sort_by_key(|lane| lane.bucket);
    }

    pub(crate) fn add_queue(&self, name: &str, id: i32) {
        self.maps.write().unwrap_or_else(|e| e.into_inner()).queues.insert(name.to_owned(), id);
    }
}
