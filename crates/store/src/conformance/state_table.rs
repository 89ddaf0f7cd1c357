//! Every pair of state and event of the one table of legal moves, through the verb that stands for it.
//!
//! In every state but a fresh one there was a claim before, so that each event can be tried with the epoch and
//! revision of the last claim anybody honestly had: the current one of a running job, an outdated one else.

use windlass_model::{
    Change, ClaimNo, ClaimedJob, Event, JobId, NewJob, Outcome, Reason, State, StepWrites, Wait, WorkerId,
    state::{MOVES, next},
};

use super::kit::*;
use crate::{Actor, ClaimRequest, JobAction, ReapRequest};

/// A job in some state, and what its last holder knows.
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

/// Brings a fresh job, alone in a queue of its own, into `state`. It has been claimed alone as a suspect, so
/// that [`Event::Poison`] can happen to it if anything at all can.
async fn bring(store: &Handle, n: u32, state: State, event: Event) -> Subject {
    let queue = format!("{state}-{event:?}");
    let new =
        NewJob { deadline_at: (event == Event::Expire).then(|| t(DEADLINE)), ..job_in(n, KIND, &queue) };
    submit(store, std::slice::from_ref(&new)).await;
    let (first, holder) =
        (worker(store, i64::from(n) * 10).await, worker(store, i64::from(n) * 10 + 1).await);
    let of_queue = |ask: ClaimRequest| ClaimRequest { queue: queue.clone(), ..ask };
    assert_eq!(claim(store, at(1), &of_queue(claim_request(first, 1, 1))).await.len(), 1);
    reap(store, 2, first).await;
    let mut last = claim(store, at(3), &of_queue(solo_claim_request(holder, 1))).await.remove(0);
    if event == Event::Unwind {
        // Only a job with something to undo is unwound.
        let step = StepWrites { has_undo: true, ..StepWrites::default() };
        let undoable = Change { step: Some(Box::new(step)), ..change(holder, &last, Outcome::Next) };
        commit(store, 4, undoable).await;
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
        commit(store, 4, change(holder, &last, outcome)).await;
    }
    Subject { job: new.id, holder, last }
}

/// Makes the event happen to the subject, as far as anyone can.
async fn happen(store: &Handle, subject: &Subject, event: Event, queue: String) {
    let write = async |outcome: Outcome| {
        // Another outcome than the one that brought it here, so a repeat cannot hide a second write.
        let mut change = change(subject.holder, &subject.last, outcome);
        change.started_at = t(5);
        store.commit(at(6), &[change]).await.expect("commit");
    };
    match event {
        Event::Due => drop(store.fire_timers(at(WAKE), 99).await.expect("due")),
        Event::Expire => drop(store.fire_timers(at(DEADLINE), 99).await.expect("due")),
        Event::Claim => {
            // Ordinary or suspect, repeated or not: whatever a claim can take, it takes.
            for number in 1..=3 {
                let wanted = ClaimRequest {
                    queue: queue.clone(),
                    solo: number == 2,
                    ..claim_request(subject.holder, number, 9)
                };
                store.claim(at(6), &wanted).await.expect("claim");
            }
        }
        Event::Release => {
            store.release(at(6), &[job_claim(subject.holder, &subject.last)]).await.expect("release");
        }
        Event::Reap | Event::Poison => {
            let crashes = if event == Event::Poison { 1 } else { MAX_CRASHES };
            let sweep = ReapRequest { dead: vec![subject.holder], lapsed: false, limit: 99, crashes };
            store.reap(at(6), &sweep).await.expect("reap");
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
            let act = JobAction::Cancel { grace: secs(0) };
            store
                .control()
                .act_on_jobs(at(6), &[subject.job], act, &Actor::new("someone"))
                .await
                .expect("act");
        }
        Event::Unwind => {
            let act = JobAction::Cancel { grace: secs(0) };
            store
                .control()
                .act_on_jobs(at(6), &[subject.job], act, &Actor::new("someone"))
                .await
                .expect("act");
            store.fire_timers(at(6), 99).await.expect("due");
        }
        Event::Revive => {
            store
                .control()
                .act_on_jobs(at(6), &[subject.job], JobAction::Retry, &Actor::new("someone"))
                .await
                .expect("act");
        }
    }
}

pub async fn every_pair_of_state_and_event(store: Handle) {
    let mut legal = 0;
    let mut n = 0;
    for event in Event::ALL {
        for state in State::ALL {
            n += 1;
            let subject = bring(&store, n, state, event).await;
            let before = (view(&store, subject.job).await, history(&store, subject.job).await);
            assert_eq!(before.0.summary.state, state, "brought there for {event:?}");
            happen(&store, &subject, event, before.0.summary.queue.clone()).await;
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
    assert_eq!(legal, MOVES.len(), "every legal move was made");
}

/// Leaves no timer behind that the next subject's `due` would fire first.
async fn settle(store: &Handle, subject: &Subject) {
    store.fire_timers(at(LATE_WAKE), 99).await.expect("due");
    let settling = crate::RenewRequest {
        settled: vec![ClaimNo(1), ClaimNo(2), ClaimNo(3)],
        ..renew_request(subject.holder)
    };
    store.renew(at(6), &settling).await.expect("renew");
}
