//! Bulk actions and redrives with a record.

use std::{future::Future, sync::Arc, time::Duration};

use windlass_env::VirtualClock;
use windlass_model::{Reason, State};
use windlass_operate::{
    Filter, JobAction, Operator,
    operation::{begin_bulk, begin_redrive, run_bulk},
    views::{OperationList, OperationView},
};
use windlass_store::{ControlOutcome, OperationId, OperationState, conformance::kit::*};

use crate::operator;

/// This many failed jobs, from number 1 on.
async fn failed_jobs(store: &Handle, count: u32) {
    let me = worker(store, 1).await;
    submit(store, &jobs(1, count)).await;
    for job in claim(store, at(0), &claim_request(me, 1, count as usize)).await {
        apply(store, 1, change(me, &job, failed(Reason::Stopped))).await;
    }
}

fn all_failed() -> Filter {
    Filter { state: Some(State::Failed), ..Filter::default() }
}

async fn view(operator: &Operator, id: OperationId) -> OperationView {
    OperationView::read(operator, id).await.expect("read").expect("a record")
}

/// Awaits something while the clock moves on.
async fn with_time<T>(clock: &Arc<VirtualClock>, work: impl Future<Output = T>) -> T {
    let ticking = async {
        for _ in 0..10_000 {
            clock.set(clock.now() + Duration::from_millis(50));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        result = work => result,
        () = ticking => panic!("it takes longer than 500 seconds"),
    }
}

#[tokio::test]
async fn a_bulk_action_is_recorded_to_its_end() {
    let (operator, store, _) = operator();
    failed_jobs(&store, 5).await;
    let bulk = operator.control("ada").note("OPS-7").bulk(all_failed(), JobAction::Retry).per_second(100);
    let preview = bulk.preview().await.expect("preview");
    let recorded = begin_bulk(bulk, Some((preview.matching as u64, preview.at_least))).await.expect("begun");
    let id = recorded.id();
    let begun = view(&operator, id).await.operation;
    assert_eq!((begun.action.as_str(), begun.author.as_str()), ("bulk retry", "ada"));
    assert_eq!((begun.note.as_deref(), begun.progress.matching), (Some("OPS-7"), Some(5)));
    assert_eq!(begun.filter, serde_json::json!({ "state": "failed" }));
    assert_eq!(begun.parameters, serde_json::json!({ "per_second": 100 }));
    let ended = recorded.run().await.expect("run");
    assert_eq!((ended.done, ended.interrupted), (5, false));
    let view = view(&operator, id).await;
    let progress = &view.operation.progress;
    assert_eq!((view.operation.state, view.share), (OperationState::Done, Some(1.0)));
    assert_eq!((progress.done, progress.left, progress.next_before), (5, Some(0), None));
    assert_eq!(count(&store, State::Ready).await, 5);
    let list = OperationList::read(&operator, None, 9).await.expect("listed");
    assert_eq!((list.operations.len(), list.next_before), (1, None));
}

#[tokio::test]
async fn a_bulk_action_stops_when_somebody_requests_it() {
    let (operator, store, clock) = operator();
    failed_jobs(&store, 60).await;
    let bulk = operator.control("ada").bulk(all_failed(), JobAction::Retry).per_second(2);
    let recorded = begin_bulk(bulk, Some((60, false))).await.expect("begun");
    let id = recorded.id();
    let stop = async {
        loop {
            let now = view(&operator, id).await.operation.progress;
            if now.done >= 4 {
                assert!(now.rate.is_some() && now.left.is_some_and(|left| left <= 56), "{now:?}");
                let actor = windlass_store::Actor::new("bob");
                let stopped = store.request_stop(None, id, &actor).await.expect("requested");
                assert_eq!(stopped, ControlOutcome::Done);
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (ended, ()) = with_time(&clock, async { tokio::join!(recorded.run(), stop) }).await;
    let ended = ended.expect("run");
    assert!(ended.interrupted && ended.done < 60, "{ended:?}");
    let view = view(&operator, id).await;
    assert_eq!((view.operation.state, view.can_stop), (OperationState::Stopped, false));
    let progress = view.operation.progress;
    assert_eq!((progress.done, progress.left), (ended.done as u64, Some(60 - ended.done as u64)));
    assert!(progress.next_before.is_none_or(|before| Some(before) == ended.next_before));
    assert_eq!(count(&store, State::Failed).await, 60 - ended.done);
}

#[tokio::test]
async fn an_operation_whose_server_stops_is_interrupted() {
    let (operator, store, _) = operator();
    failed_jobs(&store, 250).await;
    let bulk = operator.control("ada").bulk(all_failed(), JobAction::Retry);
    let recorded = begin_bulk(bulk, None).await.expect("begun");
    let id = recorded.id();
    let ended = recorded.run_while(|| false).await.expect("run");
    assert!(ended.interrupted && ended.done == 100, "{ended:?}");
    assert_eq!(view(&operator, id).await.operation.state, OperationState::Interrupted);
}

#[tokio::test]
async fn the_first_jobs_alone_are_changed_and_refusals_are_kept() {
    let (operator, store, _) = operator();
    failed_jobs(&store, 9).await;
    let bulk = operator.control("ada").bulk(all_failed(), JobAction::Retry).first(2);
    assert_eq!(run_bulk(bulk, Some((9, false))).await.expect("run").done, 2);
    let found = list(&store, all_failed()).await;
    assert_eq!(found, (1..=7).rev().map(id).collect::<Vec<_>>(), "the newest were retried");
    let list = OperationList::read(&operator, None, 9).await.expect("listed");
    let progress = &list.operations[0].operation.progress;
    assert_eq!((progress.matching, progress.done, progress.left), (Some(2), 2, Some(0)));
}

#[tokio::test]
async fn a_redrive_that_fails_says_so_in_its_record() {
    let (operator, _, _) = operator();
    let redrive = operator.control("ada").redrive(id(77), Some("pages"));
    let recorded = begin_redrive(redrive).await.expect("begun");
    let operation = recorded.id();
    let error = recorded.run().await.expect_err("there is no such job");
    let ended = view(&operator, operation).await.operation;
    assert_eq!(ended.state, OperationState::Failed);
    assert_eq!(ended.error, Some(error.to_string()));
    let target = serde_json::json!({ "job": id(77).to_string(), "branch": "pages" });
    assert_eq!((ended.action.as_str(), ended.filter), ("redrive", target));
}
