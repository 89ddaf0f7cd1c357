//! Every pair of state and event of [`windlass_model::state::TRANSITIONS`], tried through the call that causes the event.
//!
//! Each job was claimed before, so that every event can be tried with the epoch and revision of its last claim: the current
//! one of a running job, an outdated one otherwise.

use windlass_model::{
    Change, ClaimNo, ClaimedJob, Event, JobId, NewJob, Outcome, Reason, State, StepWrites, Wait, WorkerId,
    state::{TRANSITIONS, next},
};

use super::kit::*;
use crate::{ClaimRequest, JobAction, ReapRequest};

/// A job in some state, and its last claim.
struct Subject {
    job: JobId,
    holder: WorkerId,
    last: ClaimedJob,
}

/// When a waiting subject is due: before [`DEADLINE`], or after it if the deadline is what is tried.
const WAKE: u64 = 300;
const LATE_WAKE: u64 = 900;
/// When the subject's deadline passes, if it has one.
const DEADLINE: u64 = 500;

/// Brings a new job, in a queue of its own, into `state`. It was claimed alone as a suspect, so that
/// [`Event::Poison`] is possible.
async fn bring_to(store: &Handle, n: u32, state: State, event: Event) -> Subject {
    let queue = format!("{state}-{event:?}");
    let new =
        NewJob { deadline_at: (event == Event::Expire).then(|| t(DEADLINE)), ..job_in(n, KIND, &queue) };
    submit(store, std::slice::from_ref(&new)).await;
    let (first, holder) =
        (worker(store, i64::from(n) * 10).await, worker(store, i64::from(n) * 10 + 1).await);
    let in_queue = |request: ClaimRequest| ClaimRequest { queue: queue.clone(), ..request };
    assert_eq!(claim(store, at(1), &in_queue(claim_request(first, 1, 1))).await.len(), 1);
    reap(store, 2, first).await;
    let mut last = claim(store, at(3), &in_queue(solo_claim_request(holder, 1))).await.remove(0);
    if event == Event::Unwind {
        // Only a job with steps to undo is unwound.
        let step = StepWrites { has_undo: true, ..StepWrites::default() };
        let undoable = Change { writes: Some(Box::new(step)), ..change(holder, &last, Outcome::Next) };
        apply(store, 4, undoable).await;
        last.rev.0 += 1;
    }
    let outcome = match state {
        State::Running => None,
        State::Ready => {
            assert_eq!(store.release(at(4), &[job_claim(holder, &last)]).await.expect("release"), 1);
            None
        }
        State::Scheduled if event == Event::Expire => Some(retry(secs(LATE_WAKE - 4), &[1])),
        State::Scheduled => Some(retry(secs(WAKE - 4), &[1])),
        State::Waiting if event == Event::Expire => Some(wait_for_signal("go", Some(secs(LATE_WAKE - 4)))),
        State::Waiting => Some(wait_for_signal("go", Some(secs(WAKE - 4)))),
        State::Done => Some(done("x")),
        State::Failed => Some(failed(Reason::Stopped)),
        State::Cancelled => Some(cancelled()),
    };
    if let Some(outcome) = outcome {
        apply(store, 4, change(holder, &last, outcome)).await;
    }
    Subject { job: new.id, holder, last }
}

/// Makes every call that can cause the event.
async fn cause(store: &Handle, subject: &Subject, event: Event, queue: String) {
    let write = async |outcome: Outcome| {
        // It differs from the change that brought the job here, so it is not taken for a repeat of that.
        let mut change = change(subject.holder, &subject.last, outcome);
        change.started_at = t(5);
        store.commit(at(6), &[change]).await.expect("commit");
    };
    match event {
        Event::Due => drop(store.fire_timers(at(WAKE), 99).await.expect("timers")),
        Event::Expire => drop(store.fire_timers(at(DEADLINE), 99).await.expect("timers")),
        Event::Claim => {
            // A repeated claim, a claim of a suspect, and a new one.
            for number in 1..=3 {
                let request = ClaimRequest {
                    queue: queue.clone(),
                    solo: number == 2,
                    ..claim_request(subject.holder, number, 9)
                };
                store.claim(at(6), &request).await.expect("claim");
            }
        }
        Event::Release => {
            store.release(at(6), &[job_claim(subject.holder, &subject.last)]).await.expect("release");
        }
        Event::Reap | Event::Poison => {
            let crashes = if event == Event::Poison { 1 } else { MAX_CRASHES };
            let request =
                ReapRequest { dead: vec![subject.holder], lapsed: false, limit: 99, max_crashes: crashes };
            store.reap(at(6), &request).await.expect("reap");
        }
        Event::Finish => write(done("y")).await,
        Event::Retry => write(retry(secs(40), &[7])).await,
        Event::Step => write(Outcome::Next).await,
        Event::Yield => write(Outcome::Wait(Wait::YIELD)).await,
        Event::Park => write(wait_for_signal("other", None)).await,
        Event::Wake => {
            store.signal(at(6), &[signal(subject.job, "go", "1", "x")]).await.expect("signal");
        }
        Event::Fail => write(failed(Reason::Exhausted)).await,
        Event::Cancel => {
            write(cancelled()).await;
            let action = JobAction::Cancel { grace: secs(0) };
            store.control().act_on_jobs(at(6), &[subject.job], action, &actor()).await.expect("act");
        }
        Event::Unwind => {
            let action = JobAction::Cancel { grace: secs(0) };
            store.control().act_on_jobs(at(6), &[subject.job], action, &actor()).await.expect("act");
            store.fire_timers(at(6), 99).await.expect("timers");
        }
        Event::Revive => {
            store
                .control()
                .act_on_jobs(at(6), &[subject.job], JobAction::Retry, &actor())
                .await
                .expect("act");
        }
    }
}

pub async fn every_event_in_every_state(store: Handle) {
    let mut legal = 0;
    let mut n = 0;
    for event in Event::ALL {
        for state in State::ALL {
            n += 1;
            let subject = bring_to(&store, n, state, event).await;
            let before = (view(&store, subject.job).await, history(&store, subject.job).await);
            assert_eq!(before.0.summary.state, state, "the state before {event:?}");
            cause(&store, &subject, event, before.0.summary.queue.clone()).await;
            let after = (view(&store, subject.job).await, history(&store, subject.job).await);
            match next(state, event) {
                Some(to) => {
                    assert_eq!(after.0.summary.state, to, "{state} + {event:?}");
                    legal += 1;
                }
                None => assert_eq!(after, before, "{state} + {event:?} must change nothing"),
            }
            settle(&store, &subject).await;
        }
    }
    assert_eq!(legal, TRANSITIONS.len(), "every legal move was tried");
}

/// Fires the job's remaining timers, so that they do not fire with the next job's, and settles its claims.
async fn settle(store: &Handle, subject: &Subject) {
    store.fire_timers(at(LATE_WAKE), 99).await.expect("timers");
    let request = crate::RenewRequest {
        settled: vec![ClaimNo(1), ClaimNo(2), ClaimNo(3)],
        ..renew_request(subject.holder)
    };
    store.renew(at(6), &request).await.expect("renew");
}
