//! Unique names: one job of a kind at a time holds a name, while it is in a state of its scope.

use std::time::Duration;

use windlass_model::{CommitOutcome, Conflict, NewJob, Reason, State, States, SubmitOutcome, Unique, When};

use super::kit::*;
use crate::{CANCEL_GATE, ClaimRequest, ControlOutcome, JobAction, Prune};

const NEW: SubmitOutcome = SubmitOutcome::New { claimed: None };

/// Job `n` with the unique name `report`.
fn named(n: u32, scope: States, conflict: Conflict) -> NewJob {
    let mut new = job(n);
    new.settings.unique = Some(Box::new(Unique { key: "report".into(), scope, within: None, conflict }));
    new
}

fn within(mut job: NewJob, within: Duration) -> NewJob {
    job.settings.unique.as_mut().expect("it has a name").within = Some(within);
    job
}

/// Submits one job.
async fn submit_one(store: &Handle, now: u64, job: NewJob) -> SubmitOutcome {
    store.submit(at(now), &[job], None).await.expect("submit").remove(0)
}

pub async fn keep_returns_the_job_that_holds_the_name(store: Handle) {
    assert_eq!(submit_one(&store, 0, named(1, States::LIVE, Conflict::Keep)).await, NEW);
    let other = submit_one(&store, 1, named(2, States::LIVE, Conflict::Keep)).await;
    assert_eq!(other, SubmitOutcome::Existing { id: id(1), same_input: false });
    let mut same = named(3, States::LIVE, Conflict::Keep);
    (same.input, same.digest) = (job(1).input, job(1).digest);
    assert_eq!(submit_one(&store, 2, same).await, SubmitOutcome::Existing { id: id(1), same_input: true });
    let again = named(1, States::LIVE, Conflict::Keep);
    assert_eq!(
        submit_one(&store, 3, again).await,
        SubmitOutcome::Repeated,
        "a repeat does not conflict with its own name"
    );
    assert_eq!(list(&store, all_jobs()).await, [id(1)]);
}

pub async fn reject_writes_nothing(store: Handle) {
    assert_eq!(submit_one(&store, 0, named(1, States::LIVE, Conflict::Keep)).await, NEW);
    let outcome = submit_one(&store, 1, named(2, States::LIVE, Conflict::Reject)).await;
    assert_eq!(outcome, SubmitOutcome::Rejected { id: id(1) });
    assert_eq!((state(&store, id(1)).await, list(&store, all_jobs()).await), (State::Ready, vec![id(1)]));
}

pub async fn replace_cancels_a_job_that_does_not_run(store: Handle) {
    let worker = worker(&store, 1).await;
    let mut waiting = [
        named(1, States::LIVE, Conflict::Keep),
        NewJob { when: When::After(secs(60)), ..named(2, States::LIVE, Conflict::Replace) },
        named(3, States::LIVE, Conflict::Replace),
        named(4, States::LIVE, Conflict::Replace),
    ];
    waiting[2].settings.serial = serial_job(0, "line").settings.serial;
    submit(&store, &[serial_job(0, "line")]).await;
    for (n, job) in waiting.into_iter().enumerate() {
        let n = n as u32 + 1;
        let expected = if n == 1 { NEW } else { SubmitOutcome::Replaced { id: id(n - 1) } };
        assert_eq!(submit_one(&store, 1, job).await, expected, "job {n}");
    }
    for n in 1..=3 {
        let kept = view(&store, id(n)).await;
        assert_eq!((kept.summary.state, kept.summary.finished_at), (State::Cancelled, Some(t(1))));
        let message = kept.failure.expect("it has a failure").message;
        assert!(message.contains(&id(n + 1).to_string()), "{message}");
    }
    assert_eq!(ids(&claim(&store, at(2), &claim_request(worker, 1, 9)).await), [0, 4].map(id));
    assert_eq!(fire_timers(&store, 90, 9).await.woken, 0, "the timer of the second was removed");
}

pub async fn replace_does_not_cancel_a_running_job(store: Handle) {
    let worker = worker(&store, 1).await;
    let _ = submit_one(&store, 0, named(1, States::LIVE, Conflict::Keep)).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    let outcome = submit_one(&store, 1, named(2, States::LIVE, Conflict::Replace)).await;
    assert_eq!(outcome, SubmitOutcome::Rejected { id: id(1) });
    assert!(store.cancel_requests(worker).await.expect("cancel requests").is_empty());
    assert_eq!(commit(&store, 2, change(worker, &claimed, done("x"))).await, CommitOutcome::Committed);
}

pub async fn cancel_and_replace_requests_the_cancel_of_a_running_job(store: Handle) {
    let worker = worker(&store, 1).await;
    let _ = submit_one(&store, 0, named(1, States::LIVE, Conflict::Keep)).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    let before = gates(&store, &[CANCEL_GATE]).await;
    let outcome = submit_one(&store, 1, named(2, States::LIVE, Conflict::CancelAndReplace)).await;
    assert_eq!(outcome, SubmitOutcome::Replaced { id: id(1) });
    assert_ne!(gates(&store, &[CANCEL_GATE]).await, before);
    let request = holds(&store, 1).await.cancel_requested.expect("a cancel was requested");
    assert!(request.author.contains(&id(2).to_string()), "{request:?}");
    assert_eq!(store.cancel_requests(worker).await.expect("cancel requests")[0].job, id(1));
    assert_eq!(
        ids(&claim(&store, at(1), &claim_request(worker, 2, 9)).await),
        [id(2)],
        "the new job does not wait for the old one"
    );
    assert_eq!(commit(&store, 2, change(worker, &claimed, done("in time"))).await, CommitOutcome::Committed);
    let third = submit_one(&store, 3, named(3, States::LIVE, Conflict::CancelAndReplace)).await;
    assert_eq!(
        third,
        SubmitOutcome::Replaced { id: id(2) },
        "the second job holds the name, however the first ended"
    );
}

pub async fn a_name_belongs_to_a_kind(store: Handle) {
    let _ = submit_one(&store, 0, named(1, States::LIVE, Conflict::Reject)).await;
    let mut other = named(2, States::LIVE, Conflict::Reject);
    other.kind.kind = "other".into();
    assert_eq!(submit_one(&store, 0, other).await, NEW);
    let mut version = named(3, States::LIVE, Conflict::Reject);
    (version.kind.version, version.queue) = (2, "bulk".into());
    assert_eq!(
        submit_one(&store, 0, version).await,
        SubmitOutcome::Rejected { id: id(1) },
        "in all versions and queues"
    );
}

/// Submits a job with a unique name of its own and brings it into a state.
async fn job_in_state(store: &Handle, n: u32, scope: States, state: State) -> NewJob {
    let mut new = named(n, scope, Conflict::Keep);
    new.queue = format!("queue-{n}");
    new.settings.unique.as_mut().expect("it has a name").key = format!("name {n}");
    if state == State::Scheduled {
        new.when = When::At(t(500));
    }
    assert_eq!(submit_one(store, 0, new.clone()).await, NEW);
    let outcome = match state {
        State::Scheduled | State::Ready => return new,
        State::Running => None,
        State::Waiting => Some(wait_for_signal("go", None)),
        State::Done => Some(done("x")),
        State::Failed => Some(failed(Reason::Stopped)),
        State::Cancelled => Some(cancelled()),
    };
    let worker = worker(store, i64::from(n)).await;
    let request = ClaimRequest { queue: new.queue.clone(), ..claim_request(worker, 1, 1) };
    let claimed = claim(store, at(1), &request).await.remove(0);
    if let Some(outcome) = outcome {
        apply(store, 1, change(worker, &claimed, outcome)).await;
    }
    new
}

pub async fn the_scope_decides_in_which_states_a_job_holds_its_name(store: Handle) {
    let scopes = [States::LIVE, States::PENDING, States::KEPT, States::of([State::Running, State::Failed])];
    let mut n = 0;
    for scope in scopes {
        for job_state in State::ALL {
            n += 2;
            let first = job_in_state(&store, n, scope, job_state).await;
            assert_eq!(state(&store, id(n)).await, job_state);
            let second = NewJob { id: id(n + 1), ..first };
            let expected = match scope.contains(job_state) {
                true => SubmitOutcome::Existing { id: id(n), same_input: true },
                false => NEW,
            };
            assert_eq!(submit_one(&store, 2, second).await, expected, "{job_state} under {scope:?}");
        }
    }
}

pub async fn a_name_is_held_no_longer_than_its_time(store: Handle) {
    let first = within(named(1, States::KEPT, Conflict::Reject), secs(10));
    assert_eq!(submit_one(&store, 5, first).await, NEW);
    let second = |n| within(named(n, States::KEPT, Conflict::Reject), secs(1));
    assert_eq!(submit_one(&store, 14, second(2)).await, SubmitOutcome::Rejected { id: id(1) });
    assert_eq!(
        submit_one(&store, 15, second(3)).await,
        NEW,
        "the time of the job that holds the name counts"
    );
    assert_eq!(state(&store, id(1)).await, State::Ready, "the job itself is not affected");
    assert_eq!(submit_one(&store, 16, second(4)).await, NEW);
}

pub async fn ids_and_keys_are_checked_before_names(store: Handle) {
    let worker = worker(&store, 1).await;
    let with_key = NewJob { key: Some("k".into()), ..job(1) };
    submit(&store, &[with_key, named(2, States::LIVE, Conflict::Keep)]).await;
    let both = NewJob { key: Some("k".into()), ..named(3, States::LIVE, Conflict::CancelAndReplace) };
    assert_eq!(submit_one(&store, 1, both).await, SubmitOutcome::Existing { id: id(1), same_input: false });
    let other_input = NewJob { digest: [9; 16], ..named(1, States::LIVE, Conflict::CancelAndReplace) };
    assert_eq!(submit_one(&store, 1, other_input).await, SubmitOutcome::IdTaken);
    assert_eq!(
        claim(&store, at(1), &claim_request(worker, 1, 9)).await.len(),
        2,
        "no job was cancelled for them"
    );
}

pub async fn names_within_one_call_are_taken_in_order(store: Handle) {
    let batch = [
        named(1, States::LIVE, Conflict::Replace),
        named(2, States::LIVE, Conflict::Reject),
        job(3),
        named(4, States::LIVE, Conflict::Replace),
        named(4, States::LIVE, Conflict::Replace),
        named(5, States::LIVE, Conflict::Keep),
    ];
    let outcomes = store.submit(at(0), &batch, None).await.expect("submit");
    let expected = [
        NEW,
        SubmitOutcome::Rejected { id: id(1) },
        NEW,
        SubmitOutcome::Replaced { id: id(1) },
        SubmitOutcome::Repeated,
        SubmitOutcome::Existing { id: id(4), same_input: false },
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(list(&store, all_jobs()).await, [4, 3, 1].map(id));
}

pub async fn a_job_with_a_unique_name_is_not_claimed_at_submit(store: Handle) {
    let worker = worker(&store, 1).await;
    let batch = [named(1, States::LIVE, Conflict::Keep)];
    assert_eq!(store.submit(at(0), &batch, claim_on_submit(worker, 1)).await.expect("submit"), [NEW]);
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

pub async fn a_failed_job_is_not_retried_while_another_holds_its_name(store: Handle) {
    let worker = worker(&store, 1).await;
    let _ = submit_one(&store, 0, named(1, States::LIVE, Conflict::Keep)).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    apply(&store, 1, change(worker, &claimed, failed(Reason::Stopped))).await;
    assert_eq!(submit_one(&store, 2, named(2, States::LIVE, Conflict::Keep)).await, NEW);
    let ControlOutcome::Refused(why) = act_on_job(&store, 3, 1, JobAction::Retry).await else {
        panic!("refused")
    };
    assert!(why.contains(&id(2).to_string()), "{why}");
    assert_eq!(state(&store, id(1)).await, State::Failed);
    assert_eq!(act_on_job(&store, 4, 2, cancel(0)).await, ControlOutcome::Done);
    assert_eq!(act_on_job(&store, 5, 1, JobAction::Retry).await, ControlOutcome::Done);
    let third = submit_one(&store, 6, named(3, States::LIVE, Conflict::Reject)).await;
    assert_eq!(third, SubmitOutcome::Rejected { id: id(1) }, "it holds its name again");
}

pub async fn a_kept_job_is_pruned_only_after_it_no_longer_holds_its_name(store: Handle) {
    let worker = worker(&store, 1).await;
    let _ = submit_one(&store, 0, within(named(1, States::KEPT, Conflict::Keep), secs(100))).await;
    let claimed = claim_one(&store, 0, worker, 1).await;
    apply(&store, 1, change(worker, &claimed, done("x"))).await;
    let prune = Prune { state: State::Done, before: t(50), kind: None, after: None, limit: 99 };
    let early = store.prune(at(60), &prune).await.expect("prune");
    assert_eq!((early.jobs, early.kept), (0, 1));
    let existing = SubmitOutcome::Existing { id: id(1), same_input: false };
    assert_eq!(submit_one(&store, 60, named(2, States::KEPT, Conflict::Keep)).await, existing);
    let late = store.prune(at(100), &prune).await.expect("prune");
    assert_eq!((late.jobs, late.kept), (1, 0));
    assert_eq!(submit_one(&store, 60, named(3, States::KEPT, Conflict::Keep)).await, NEW);
}
