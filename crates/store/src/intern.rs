//! Names kept as numbers: a lane stands for a queue, a kind and a version.
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
    /// queue → kind → version → lane: looked up without building a key.
    by_name: HashMap<String, HashMap<String, HashMap<i32, Lane>>>,
    queues: HashMap<String, i32>,
}

impl Lanes {
    pub(crate) fn get(&self, queue: &str, kind: &KindVersion) -> Option<Lane> {
        let maps = self.maps.read().unwrap_or_else(|e| e.into_inner());
        maps.by_name.get(queue)?.get(&kind.kind)?.get(&kind.version).cloned()
    }

    pub(crate) fn by_id(&self, id: i32) -> Option<Lane> {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).by_id.get(&id).cloned()
    }

    pub(crate) fn queue(&self, queue: &str) -> Option<i32> {
        self.maps.read().unwrap_or_else(|e| e.into_inner()).queues.get(queue).copied()
    }

    pub(crate) fn add(&self, lane: Lane) {
        let mut maps = self.maps.write().unwrap_or_else(|e| e.into_inner());
        maps.queues.insert(lane.queue.clone(), lane.queue_id);
        maps.by_id.insert(lane.id, lane.clone());
        let kinds = maps.by_name.entry(lane.queue.clone()).or_default();
        kinds.entry(lane.kind.kind.clone()).or_default().insert(lane.kind.version, lane);
    }

    pub(crate) fn add_queue(&self, name: &str, id: i32) {
        self.maps.write().unwrap_or_else(|e| e.into_inner()).queues.insert(name.to_owned(), id);
    }
}
