//! Where claims start: at the rank that the last claim of a lane reached.
//!
//! Claimed rows leave dead entries at the head of the lane's index until they are vacuumed, which an old snapshot may delay. A claim
//! that starts after them costs the same however many there are. A job that is added before the floor (because it is urgent, or was
//! returned) lowers it at once if it was added through this handle. For jobs that others add, the claim after one that was not full,
//! and one every [`MAX_AGE`], start at the beginning.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};

/// How long a floor is used: an urgent job that another process adds waits at most this long.
const MAX_AGE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Floors {
    lanes: Mutex<HashMap<i32, Floor>>,
    /// Lanes whose last claim found nothing.
    idle: Mutex<HashSet<i32>>,
}

#[derive(Clone, Copy)]
struct Floor {
    rank: i64,
    /// When a claim last started at the beginning.
    since: Instant,
}

impl Floors {
    /// The ranks at which a claim of these lanes may start, and whether any is not the beginning.
    pub(super) fn of(&self, lanes: &[i32]) -> (Vec<i64>, bool) {
        let known = self.lanes.lock().unwrap_or_else(|e| e.into_inner());
        let floor = |lane: &i32| {
            known.get(lane).filter(|floor| floor.since.elapsed() < MAX_AGE).map(|floor| floor.rank)
        };
        let floors: Vec<Option<i64>> = lanes.iter().map(floor).collect();
        let raised = floors.iter().any(Option::is_some);
        (floors.into_iter().map(|floor| floor.unwrap_or(i64::MIN)).collect(), raised)
    }

    /// Whether the last claims of these lanes found nothing.
    pub(super) fn are_idle(&self, lanes: &[i32]) -> bool {
        let idle = self.idle.lock().unwrap_or_else(|e| e.into_inner());
        lanes.iter().all(|lane| idle.contains(lane))
    }

    /// Notes whether a claim found nothing.
    pub(super) fn set_idle(&self, lanes: &[i32], found_nothing: bool) {
        let mut idle = self.idle.lock().unwrap_or_else(|e| e.into_inner());
        for lane in lanes {
            match found_nothing {
                true => idle.insert(*lane),
                false => idle.remove(lane),
            };
        }
    }

    /// Notes that a job was added to the ready set at `rank`, in any lane: drops the floors above it.
    pub(super) fn lowered(&self, rank: i64) {
        self.lanes.lock().unwrap_or_else(|e| e.into_inner()).retain(|_, floor| floor.rank < rank);
    }

    /// Notes the last rank of each lane that a claim reached if it was `full`; otherwise drops the floors of its lanes.
    pub(super) fn reached(
        &self,
        lanes: &[i32],
        raised: bool,
        full: bool,
        last: impl Iterator<Item = (i32, i64)>,
    ) {
        let mut known = self.lanes.lock().unwrap_or_else(|e| e.into_inner());
        if !full {
            lanes.iter().for_each(|lane| {
                known.remove(lane);
            });
            return;
        }
        for (lane, rank) in last {
            let since = known.get(&lane).filter(|_| raised).map_or_else(Instant::now, |floor| floor.since);
            known.insert(lane, Floor { rank, since });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_used_while_claims_are_full_and_not_for_long() {
        let floors = Floors::default();
        assert_eq!(floors.of(&[1, 2]), (vec![i64::MIN, i64::MIN], false));
        floors.reached(&[1, 2], false, true, [(1, 10), (1, 20)].into_iter());
        assert_eq!(floors.of(&[1, 2]), (vec![20, i64::MIN], true));
        floors.reached(&[1, 2], true, false, std::iter::empty());
        assert!(!floors.of(&[1, 2]).1);
        floors.reached(&[1], false, true, [(1, 30)].into_iter());
        floors.lowered(31);
        assert!(floors.of(&[1]).1);
        floors.lowered(30);
        assert!(!floors.of(&[1]).1);
        floors.reached(&[1], false, true, [(1, 30)].into_iter());
        let started = Instant::now().checked_sub(MAX_AGE).expect("the clock started earlier");
        floors.lanes.lock().expect("not poisoned").get_mut(&1).expect("noted").since = started;
        assert_eq!(floors.of(&[1]), (vec![i64::MIN], false));
    }

    #[test]
    fn a_lane_is_idle_once_a_claim_found_nothing() {
        let floors = Floors::default();
        assert!(!floors.are_idle(&[1]));
        floors.set_idle(&[1, 2], true);
        assert!(floors.are_idle(&[1, 2]));
        assert!(!floors.are_idle(&[1, 3]));
        floors.set_idle(&[2], false);
        assert!(floors.are_idle(&[1]) && !floors.are_idle(&[2]));
    }
}
