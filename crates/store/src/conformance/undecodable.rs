//! Rows of jobs with columns that cannot be decoded: each is a fault of its own job, which says so, and of no other.
//!
//! A backend's own tests run these cases: only they can write to a column. [`WriteColumn`] does that.

use windlass_model::{NewJob, Reason, Retry, Settings, State, SubmitOutcome, Unique, WaitCondition};

use super::kit::*;
use crate::{ControlOutcome, Fork, JobAction, Prune, SignalOutcome};

/// Hands the names of all cases to the macro `$run`, which makes a test of each.
#[macro_export]
macro_rules! undecodable_cases {
    ($run:ident) => {
        $run! {
            a_claim_returns_the_fault_of_one_job
            a_wait_that_cannot_be_decoded_ends_with_the_next_signal
            a_job_keeps_its_unique_name_until_it_has_ended
            a_job_is_not_retried_or_forked_before_its_row_is_repaired
            a_job_that_cannot_be_decoded_is_pruned
        }
    };
}

/// Writes a text to a column of a job's row.
pub type WriteColumn<'a> = &'a (dyn Fn(&str, windlass_model::JobId, &str) + Sync);

/// What is written: cut off in the middle.
const BROKEN: &str = r#"{"retry":"#;

/// The fault of a job whose column `name` is [`BROKEN`] names that column.
fn names_column(fault: Option<&str>, name: &str) -> bool {
    fault.is_some_and(|fault| fault.starts_with(&format!("the column {name} of its row cannot be decoded: ")))
}

/// The `n`th job, with settings of its own.
fn with_settings(n: u32, settings: Settings) -> NewJob {
    NewJob { settings, ..job(n) }
}

fn unique_job(n: u32) -> NewJob {
    with_settings(n, Settings { unique: Some(Box::new(Unique::new("name"))), ..Settings::default() })
}

/// A claim returns the job with its fault, and other jobs without one; it fails by an ordinary change.
pub async fn a_claim_returns_the_fault_of_one_job(store: Handle, write: WriteColumn<'_>) {
    let retry = Settings { retry: Some(Retry::times(3)), ..Settings::default() };
    submit(&store, &(1..=5).map(|n| with_settings(n, retry.clone())).collect::<Vec<_>>()).await;
    for (n, column) in [(1, "settings"), (2, "retry_counts"), (3, "wait"), (4, "unwind")] {
        write(column, id(n), BROKEN);
        assert!(names_column(view(&store, id(n)).await.fault.as_deref(), column), "{column}");
    }
    let worker = worker(&store, 1).await;
    let claimed = claim(&store, at(1), &claim_request(worker, 1, 9)).await;
    assert_eq!(ids(&claimed), [1, 2, 3, 4, 5].map(id));
    for (job, column) in claimed.iter().zip(["settings", "retry_counts", "wait", "unwind"]) {
        assert!(names_column(job.fault.as_deref(), column), "{column}: {:?}", job.fault);
    }
    assert_eq!((&claimed[4].fault, &claimed[4].settings), (&None, &retry));
    let repeated = claim(&store, at(1), &claim_request(worker, 1, 9)).await;
    assert_eq!(repeated, claimed, "a repeat of the claim says the same");
    for job in &claimed[..4] {
        apply(&store, 2, change(worker, job, failed(Reason::Undecodable))).await;
        let job = view(&store, job.id).await;
        assert_eq!((job.summary.state, job.summary.reason), (State::Failed, Some(Reason::Undecodable)));
    }
}

/// A signal wakes a parked job whose wait cannot be decoded; those of other jobs are delivered, and waits are repaired.
pub async fn a_wait_that_cannot_be_decoded_ends_with_the_next_signal(store: Handle, write: WriteColumn<'_>) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 2)).await;
    for job in claim(&store, at(0), &claim_request(worker, 1, 9)).await {
        apply(&store, 1, change(worker, &job, wait_for_signal("go", None))).await;
    }
    write("wait", id(1), BROKEN);
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.wait), (State::Waiting, None::<WaitCondition>));
    assert!(names_column(kept.fault.as_deref(), "wait"));
    assert_eq!(holds(&store, 1).await.waiting, None);
    assert_eq!(store.repair(at(2)).await.expect("repair"), 0);
    let signals = [signal(id(1), "go", "a", "1"), signal(id(2), "go", "a", "2")];
    assert_eq!(send(&store, 2, &signals).await, [SignalOutcome::Delivered { woke: true }; 2]);
    let claimed = claim(&store, at(3), &claim_request(worker, 2, 9)).await;
    assert_eq!(ids(&claimed), [1, 2].map(id));
    assert!(names_column(claimed[0].fault.as_deref(), "wait"));
    assert_eq!((claimed[1].fault.as_deref(), texts(&claimed[1].inbox)), (None, vec!["2".to_owned()]));
}

/// Whoever cannot be asked whether it still holds its unique name holds it until it has ended.
pub async fn a_job_keeps_its_unique_name_until_it_has_ended(store: Handle, write: WriteColumn<'_>) {
    submit(&store, &[unique_job(1)]).await;
    write("settings", id(1), BROKEN);
    let outcomes = store.submit(at(1), &[unique_job(2)], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::Existing { id: id(1), same_input: false }]);
    assert_eq!(act_on_job(&store, 2, 1, cancel(0)).await, ControlOutcome::Done);
    let outcomes = store.submit(at(3), &[unique_job(2)], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::New { claimed: None }]);
}

/// The answer asks people to repair the row before they retry or fork the job; they can cancel it as it is.
pub async fn a_job_is_not_retried_or_forked_before_its_row_is_repaired(
    store: Handle,
    write: WriteColumn<'_>,
) {
    let (worker, job) = running_job(&store, 1).await;
    let entries = journal_writes(vec![entry(0, "step", "0")]);
    apply(&store, 1, with_step(change(worker, &job, failed(Reason::Stopped)), entries)).await;
    write("settings", id(1), BROKEN);
    let refused = |outcome: &ControlOutcome| {
        matches!(outcome, ControlOutcome::Refused(why) if names_column(Some(why), "settings")
            && why.ends_with("; repair the row first"))
    };
    let outcome = act_on_job(&store, 2, 1, JobAction::Retry).await;
    assert!(refused(&outcome), "{outcome:?}");
    let fork = Fork { from: id(1), id: id(2), before: 0, key: None };
    let outcomes = store.control().fork(at(2), &[fork], &actor()).await.expect("fork");
    assert!(outcomes.iter().all(refused), "{outcomes:?}");
    write("settings", id(1), "{}");
    assert_eq!(act_on_job(&store, 3, 1, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

/// Such a job is pruned like any other, and so are the jobs of its batch.
pub async fn a_job_that_cannot_be_decoded_is_pruned(store: Handle, write: WriteColumn<'_>) {
    let worker = worker(&store, 1).await;
    let tagged = |n| NewJob { tags: vec!["red".into()], ..unique_job(n) };
    submit(&store, &[tagged(1), NewJob { tags: vec!["red".into()], ..job(2) }, job(3)]).await;
    for job in claim(&store, at(0), &claim_request(worker, 1, 9)).await {
        apply(&store, 1, change(worker, &job, done("x"))).await;
    }
    write("settings", id(1), BROKEN);
    write("tags", id(2), BROKEN);
    let prune = Prune { state: State::Done, before: t(100), kind: None, after: None, limit: 10 };
    assert_eq!(store.prune(at(200), &prune).await.expect("prune").jobs, 3);
    assert_eq!(list(&store, all_jobs()).await, []);
    let outcomes = store.submit(at(201), &[tagged(4)], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::New { claimed: None }], "nobody has the name any more");
    let red = crate::Filter { tag: Some("red".into()), ..all_jobs() };
    assert_eq!(list(&store, red).await, [id(4)]);
}
