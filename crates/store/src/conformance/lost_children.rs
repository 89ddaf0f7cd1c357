//! Children that are neither ready, scheduled, waiting nor claimed. No call of the store makes one, so the caller deletes from its tables.

use windlass_model::{ClaimNo, Epoch, State, WorkerId};

use super::{branch_kit::*, kit::*};
use crate::ControlOutcome;

/// `delete_claim` deletes the record of a claim and keeps its jobs as they are.
pub async fn a_lost_child_is_found_although_others_end(
    store: Handle,
    delete_claim: impl AsyncFnOnce(WorkerId, ClaimNo),
) {
    let parent = parent_with_children(&store, children(2, 10)).await;
    let me = parent.0;
    wait_for_watch(&store, 2, &parent, watch_ended(10)).await;
    let lost = claim_one(&store, 3, me, 2).await;
    delete_claim(me, ClaimNo(2)).await;
    let others = claim_all(&store, 3, me, 3).await;
    assert_eq!(others.len(), 9);
    // All others have started, and one of them ends between any two polls.
    for other in &others {
        apply(&store, 4, change(me, other, wait_for_signal("go", None))).await;
    }
    let mut found = Vec::new();
    for n in 0..others.len() as u32 {
        let now = 10 + 300 * u64::from(n);
        found.push(poll_branches(&store, now).await.redelivered);
        // Job 2 is the lost one.
        assert_eq!(act_on_job(&store, now + 1, 3 + n, cancel(0)).await, ControlOutcome::Done);
    }
    assert_eq!(found, [0, 1, 0, 0, 0, 0, 0, 0, 0], "once, at the first poll that has one to compare with");
    assert_eq!(branch(&store, 1, BRANCH).await.poll.redelivered, 1);
    renew(&store, 3_999, me).await;
    let back = claim_one(&store, 4_000, me, 4).await;
    assert_eq!((back.id, back.epoch), (lost.id, Epoch(1)));
    apply(&store, 4_001, change(me, &back, done("x"))).await;
    assert_eq!(state(&store, id(1)).await, State::Ready, "its parent is woken");
}
