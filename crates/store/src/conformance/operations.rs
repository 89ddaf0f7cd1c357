//! Records of operations: their progress, requests to stop, and what is left of a server that stopped.

use serde_json::json;
use windlass_model::Time;

use super::kit::*;
use crate::{
    Actor, AuditFilter, ControlOutcome, Error, MAX_REFUSALS, NewOperation, Operation, OperationEnd,
    OperationId, OperationProgress, OperationState, Refusal,
};

fn operation_id(n: u32) -> OperationId {
    OperationId(id(n))
}

fn new_operation(n: u32) -> NewOperation {
    NewOperation {
        id: operation_id(n),
        action: "bulk retry".into(),
        filter: json!({ "state": "failed", "kind": "mail \"ü\"\u{0}" }),
        parameters: json!({ "per_second": 2 }),
        progress: OperationProgress {
            matching: Some(61),
            matching_at_least: true,
            left: Some(61),
            ..progress(0)
        },
    }
}

fn progress(done: u64) -> OperationProgress {
    OperationProgress { done, ..OperationProgress::default() }
}

async fn add(store: &Handle, seconds: u64, new: &NewOperation) -> bool {
    let actor = Actor::new("ada").note("OPS-7");
    store.add_operation(at(seconds), new, &actor).await.expect("added")
}

async fn update(store: &Handle, seconds: u64, n: u32, done: u64) -> bool {
    store.update_operation(at(seconds), operation_id(n), &progress(done), None).await.expect("updated")
}

async fn end(store: &Handle, seconds: u64, n: u32, how: OperationEnd) -> bool {
    store.update_operation(at(seconds), operation_id(n), &progress(9), Some(&how)).await.expect("ended")
}

async fn read(store: &Handle, seconds: u64, n: u32) -> Operation {
    store.operation(at(seconds), operation_id(n)).await.expect("read").expect("a record")
}

async fn request_stop(store: &Handle, seconds: u64, n: u32) -> ControlOutcome {
    store
        .request_stop(at(seconds), operation_id(n), &Actor::new("bob").note("enough"))
        .await
        .expect("requested")
}

pub async fn an_operation_is_recorded_from_its_beginning_to_its_end(store: Handle) {
    assert_eq!(store.operation(at(0), operation_id(1)).await.expect("read"), None);
    let new = new_operation(1);
    assert!(add(&store, 5, &new).await);
    let begun = Operation {
        id: operation_id(1),
        action: "bulk retry".into(),
        filter: new.filter.clone(),
        parameters: new.parameters.clone(),
        author: "ada".into(),
        note: Some("OPS-7".into()),
        started_at: t(5),
        updated_at: t(5),
        ended_at: None,
        state: OperationState::Running,
        progress: new.progress.clone(),
        stop_requested: false,
        error: None,
    };
    assert_eq!(read(&store, 6, 1).await, begun);
    let refusals: Vec<Refusal> =
        (0..30).map(|n| Refusal { job: id(n), why: format!("its name \"{n}\" is taken") }).collect();
    let later = OperationProgress {
        done: 25,
        already: 2,
        refused: 30,
        left: Some(4),
        rate: Some(1.75),
        next_before: Some(id(77)),
        refusals: refusals.clone(),
        ..new.progress.clone()
    };
    let stop = store.update_operation(at(7), operation_id(1), &later, None).await.expect("updated");
    assert!(!stop);
    let kept = OperationProgress { refusals: refusals[..MAX_REFUSALS].to_vec(), ..later };
    assert_eq!(
        read(&store, 8, 1).await,
        Operation { updated_at: t(7), progress: kept.clone(), ..begun.clone() }
    );
    assert!(!add(&store, 9, &NewOperation { action: "other".into(), ..new }).await, "the id exists");
    let ended = store.update_operation(at(9), operation_id(1), &kept, Some(&OperationEnd::Done)).await;
    assert!(!ended.expect("ended"));
    let expected = Operation {
        updated_at: t(9),
        ended_at: Some(t(9)),
        state: OperationState::Done,
        progress: kept,
        ..begun
    };
    assert_eq!(read(&store, 10, 1).await, expected);
    assert!(!update(&store, 11, 1, 1).await && !end(&store, 12, 1, OperationEnd::Stopped).await);
    assert_eq!(read(&store, 13, 1).await, expected, "what has ended stays as it is");
}

pub async fn a_request_to_stop_is_returned_by_the_next_update_and_audited(store: Handle) {
    assert_eq!(request_stop(&store, 0, 1).await, ControlOutcome::Unknown);
    assert!(add(&store, 1, &new_operation(1)).await);
    assert!(!update(&store, 2, 1, 1).await);
    assert_eq!(request_stop(&store, 3, 1).await, ControlOutcome::Done);
    assert!(read(&store, 3, 1).await.stop_requested);
    assert!(matches!(request_stop(&store, 4, 1).await, ControlOutcome::Already(_)));
    assert!(update(&store, 5, 1, 2).await);
    assert!(end(&store, 6, 1, OperationEnd::Stopped).await);
    assert_eq!(read(&store, 7, 1).await.state, OperationState::Stopped);
    let ControlOutcome::Already(why) = request_stop(&store, 8, 1).await else { panic!("it has ended") };
    assert_eq!(why, "it is stopped already");
    let audit = store.inspect().audit(&AuditFilter::default()).await.expect("audit");
    let [entry] = &audit[..] else { panic!("one entry: {audit:?}") };
    assert_eq!((entry.author.as_str(), entry.action.as_str()), ("bob", "stop operation"));
    assert_eq!((&entry.subject, entry.note.as_deref()), (&operation_id(1).to_string(), Some("enough")));
    assert!(update(&store, 9, 99, 1).await, "an operation without a record stops");
}

pub async fn an_operation_that_records_nothing_for_a_minute_is_interrupted(store: Handle) {
    assert!(add(&store, 0, &new_operation(1)).await);
    assert_eq!(read(&store, 60, 1).await.state, OperationState::Running);
    assert_eq!(read(&store, 61, 1).await.state, OperationState::Interrupted);
    let listed = store.operations(at(61), None, 9).await.expect("listed");
    assert_eq!(listed[0].state, OperationState::Interrupted);
    assert!(!update(&store, 70, 1, 5).await);
    assert_eq!(read(&store, 71, 1).await.state, OperationState::Running, "its server was only slow");
    assert!(!end(&store, 72, 1, OperationEnd::Interrupted).await);
    assert_eq!(read(&store, 73, 1).await.state, OperationState::Interrupted);
    assert!(add(&store, 80, &new_operation(2)).await);
    end(&store, 81, 2, OperationEnd::Failed("the disk\0 is full".into())).await;
    let failed = read(&store, 500, 2).await;
    assert_eq!(failed.state, OperationState::Failed);
    assert_eq!(failed.error.as_deref(), Some("the disk\u{fffd} is full"));
}

pub async fn operations_are_listed_newest_first_and_pruned(store: Handle) {
    for n in [3, 1, 2, 4] {
        assert!(add(&store, u64::from(n) * 10, &new_operation(n)).await);
    }
    let list = async |before: Option<u32>, limit| {
        let listed = store.operations(at(99), before.map(operation_id), limit).await.expect("listed");
        listed.into_iter().map(|operation| operation.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 9).await, [4, 3, 2, 1].map(operation_id));
    assert_eq!(list(None, 2).await, [4, 3].map(operation_id));
    assert_eq!(list(Some(3), 9).await, [2, 1].map(operation_id));
    assert!(!update(&store, 50, 1, 1).await);
    assert_eq!(store.prune_operations(t(30)).await.expect("pruned"), 1);
    assert_eq!(list(None, 9).await, [4, 3, 1].map(operation_id));
    assert_eq!(store.prune_operations(Time::MAX).await.expect("pruned"), 3);
    assert!(list(None, 9).await.is_empty());
}

pub async fn invalid_operations_are_refused(store: Handle) {
    for new in [
        NewOperation { action: "x".repeat(201), ..new_operation(1) },
        NewOperation { action: "a\0b".into(), ..new_operation(1) },
        NewOperation { filter: "x".repeat(20_000).into(), ..new_operation(1) },
        NewOperation { parameters: "x".repeat(20_000).into(), ..new_operation(1) },
    ] {
        let refused = store.add_operation(at(0), &new, &actor()).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let nobody = Actor::new("a\0b");
    assert!(store.add_operation(at(0), &new_operation(1), &nobody).await.is_err());
    assert!(store.request_stop(at(0), operation_id(1), &nobody).await.is_err());
    assert!(store.operations(at(0), None, 9).await.expect("listed").is_empty());
}
