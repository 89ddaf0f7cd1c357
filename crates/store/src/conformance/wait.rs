//! Parked jobs: timeouts, and what pauses, cancels, deadlines, serial keys and unique names do to them.

use windlass_model::{NewJob, Outcome, Reason, Serial, State, States, SubmitOutcome, Unique};

use super::{
    kit::*,
    signal::{KEPT, WOKE, commit_and_consume, parked, to_first},
};
use crate::{ControlOutcome, JobAction, SignalOutcome, TIMER_GATE, Waiting};

pub async fn a_job_paused_while_parked_is_held_when_it_wakes(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", Some(secs(9)))).await;
    assert_eq!(act_on_job(&store, 2, 1, JobAction::Pause).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    assert_eq!(send(&store, 3, &[to_first("go", "a")]).await, [WOKE]);
    assert_eq!(state(&store, id(1)).await, State::Ready, "it is held");
    assert!(claim(&store, at(3), &claim_request(me, 2, 9)).await.is_empty());
    assert_eq!(act_on_job(&store, 4, 1, JobAction::Resume).await, ControlOutcome::Done);
    assert_eq!(claim_one(&store, 4, me, 3).await.due_at, t(3));
    // The same with a timeout; a job that is resumed before it wakes stays parked.
    let me = parked(&store, 2, wait_for_signal("go", Some(secs(9)))).await;
    must_act(&store, 2, 2, JobAction::Pause).await;
    must_act(&store, 3, 2, JobAction::Resume).await;
    assert_eq!(state(&store, id(2)).await, State::Waiting);
    must_act(&store, 4, 2, JobAction::Pause).await;
    assert_eq!(fire_timers(&store, 10, 9).await.woken, 1);
    assert!(claim(&store, at(10), &claim_request(me, 2, 9)).await.is_empty());
    must_act(&store, 11, 2, JobAction::Resume).await;
    assert_eq!(claim_one(&store, 11, me, 3).await.id, id(2));
}

pub async fn a_parked_job_can_be_cancelled_and_retried(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", Some(secs(9)))).await;
    assert_eq!(act_on_job(&store, 2, 1, cancel(9)).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Cancelled);
    assert_eq!(fire_timers(&store, 2, 9).await.next_at, None, "its timer was removed");
    assert_eq!(send(&store, 3, &[to_first("go", "a")]).await, [SignalOutcome::Ended(State::Cancelled)]);
    assert_eq!(store.inspect().holds(id(1)).await.expect("holds"), None);
    assert_eq!(act_on_job(&store, 4, 1, JobAction::Retry).await, ControlOutcome::Done);
    let job = claim_one(&store, 4, me, 2).await;
    assert!(job.wait.is_some() && job.inbox.is_empty(), "it continues as after a timeout");
    let _ = commit_and_consume(&store, 5, me, &job, wait_for_signal("go", None)).await;
    assert_eq!(send(&store, 6, &[to_first("go", "a")]).await, [WOKE]);
}

pub async fn a_parked_job_expires(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[NewJob { deadline_at: Some(t(5)), ..job(1) }]).await;
    let job = claim_one(&store, 0, me, 1).await;
    apply(&store, 1, change(me, &job, wait_for_signal("go", Some(secs(9))))).await;
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.summary.reason), (State::Failed, Some(Reason::Expired)));
    assert_eq!(
        fire_timers(&store, 20, 9).await,
        crate::TimerReport { now: t(20), ..crate::TimerReport::default() }
    );
}

pub async fn a_job_that_parks_while_being_cancelled_is_ended(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    assert_eq!(act_on_job(&store, 1, 1, cancel(5)).await, ControlOutcome::CancelRequested);
    apply(&store, 2, change(me, &job, wait_for_signal("go", Some(secs(50))))).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    assert_eq!(send(&store, 3, &[to_first("stop", "a")]).await, [KEPT]);
    assert_eq!(fire_timers(&store, 6, 9).await.cancelled, 1);
    assert_eq!(fire_timers(&store, 99, 9).await.woken, 0);
    assert_eq!(state(&store, id(1)).await, State::Cancelled);
}

pub async fn a_parked_job_frees_its_serial_slot(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[serial_job(1, "k"), serial_job(2, "k"), serial_job(3, "k")]).await;
    let first = claim_one(&store, 0, me, 1).await;
    apply(&store, 1, change(me, &first, wait_for_signal("go", None))).await;
    let second = claim_one(&store, 1, me, 2).await;
    assert_eq!(second.id, id(2));
    send(&store, 2, &[to_first("go", "a")]).await;
    assert_eq!(state(&store, id(1)).await, State::Ready);
    assert!(claim(&store, at(2), &claim_request(me, 3, 9)).await.is_empty(), "it waits in line");
    apply(&store, 3, change(me, &second, done("x"))).await;
    assert_eq!(claim_one(&store, 3, me, 4).await.id, id(1), "at its position in line");
}

pub async fn a_parked_job_with_keep_slot_keeps_its_serial_slot(store: Handle) {
    let me = worker(&store, 1).await;
    let mut with_keep_slot = job(1);
    with_keep_slot.settings.serial = Some(Box::new(Serial::new("k").keep_slot()));
    submit(&store, &[with_keep_slot, serial_job(2, "k")]).await;
    let first = claim_one(&store, 0, me, 1).await;
    apply(&store, 1, change(me, &first, wait_for_signal("go", None))).await;
    assert!(claim(&store, at(1), &claim_request(me, 2, 9)).await.is_empty());
    assert_eq!(store.repair(at(1)).await.expect("repair"), 0);
    send(&store, 2, &[to_first("go", "a")]).await;
    assert_eq!(claim_one(&store, 2, me, 3).await.id, id(1));
}

pub async fn a_wait_that_ends_at_once_keeps_the_serial_slot(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[serial_job(1, "k"), serial_job(2, "k")]).await;
    let first = claim_one(&store, 0, me, 1).await;
    send(&store, 1, &[to_first("go", "a")]).await;
    apply(&store, 2, change(me, &first, wait_for_signal("go", None))).await;
    let again = claim(&store, at(2), &claim_request(me, 2, 9)).await;
    assert_eq!(ids(&again), [id(1)]);
    apply(&store, 3, change(me, &again[0], Outcome::Wait(windlass_model::Wait::YIELD))).await;
    assert_eq!(ids(&claim(&store, at(3), &claim_request(me, 3, 9)).await), [id(1)], "and so does a yield");
}

pub async fn a_parked_job_keeps_its_unique_name(store: Handle) {
    let me = worker(&store, 1).await;
    let named = |n, unique: Unique| {
        let mut new = job(n);
        new.settings.unique = Some(Box::new(unique));
        new
    };
    submit(&store, &[named(1, Unique::new("a"))]).await;
    let first = claim_one(&store, 0, me, 1).await;
    apply(&store, 1, change(me, &first, wait_for_signal("go", Some(secs(9))))).await;
    let submit_one = async |job| store.submit(at(2), &[job], None).await.expect("submit").remove(0);
    assert!(
        matches!(submit_one(named(2, Unique::new("a"))).await, SubmitOutcome::Existing { id, .. } if id == first.id)
    );
    let replaced = submit_one(named(3, Unique::new("a").or_replace())).await;
    assert_eq!(replaced, SubmitOutcome::Replaced { id: id(1) }, "it does not run");
    assert_eq!(state(&store, id(1)).await, State::Cancelled);
    assert_eq!(fire_timers(&store, 30, 9).await.woken, 0);
    let third = claim_one(&store, 30, me, 2).await;
    assert_eq!(third.id, id(3));
    apply(&store, 31, change(me, &third, wait_for_signal("go", None))).await;
    let scoped = Unique::new("a").scope(States::of([State::Waiting]));
    assert!(matches!(submit_one(named(4, scoped)).await, SubmitOutcome::Existing { .. }));
}

pub async fn holds_report_what_a_parked_job_waits_for(store: Handle) {
    let names = ["a", "b*"];
    parked(&store, 1, wait_for_signals(&names, 2, Some(secs(9)))).await;
    send(&store, 2, &[to_first("z", "1"), to_first("b", "2"), to_first("b", "3")]).await;
    let waiting = holds(&store, 1).await.waiting.expect("it is parked");
    let Outcome::Wait(wait) = wait_for_signals(&names, 2, None) else { unreachable!("it is a wait") };
    let arrived = vec!["b".to_owned(), "z".to_owned()];
    assert_eq!(
        waiting,
        Waiting {
            condition: wait.condition.clone(),
            since: Some(t(1)),
            wait_until: Some(t(10)),
            arrived,
            pending_children: 0,
            unreadable: Vec::new()
        }
    );
    let seen = view(&store, id(1)).await;
    assert_eq!(
        (seen.wait, seen.wait_until, seen.summary.state),
        (Some(wait.condition), Some(t(10)), State::Waiting)
    );
    fire_timers(&store, 10, 9).await;
    assert_eq!(holds(&store, 1).await.waiting, None, "it is no longer parked");
    let first = store.inspect().inbox(id(1), 2).await.expect("inbox");
    assert_eq!(
        (texts(&first), first[0].name.as_str(), first[0].at),
        (vec!["1".into(), "2".into()], "z", t(2))
    );
}

pub async fn a_priority_set_while_parked_applies_when_the_job_wakes(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    assert_eq!(act_on_job(&store, 2, 1, JobAction::Priority(-50)).await, ControlOutcome::Done);
    submit(&store, &[job(2)]).await;
    send(&store, 3, &[to_first("go", "a")]).await;
    assert_eq!(ids(&claim(&store, at(3), &claim_request(me, 2, 9)).await), [1, 2].map(id));
}

pub async fn a_repair_finds_no_parked_job_to_wake(store: Handle) {
    let me = parked(&store, 1, wait_for_signals(&["a", "b"], 2, None)).await;
    send(&store, 2, &[to_first("a", "1"), to_first("c", "2")]).await;
    assert_eq!(store.repair(at(2)).await.expect("repair"), 0);
    send(&store, 3, &[to_first("b", "3")]).await;
    assert_eq!(store.repair(at(3)).await.expect("repair"), 0);
    claim_one(&store, 3, me, 2).await;
    assert_eq!(store.repair(at(3)).await.expect("repair"), 0, "a running job is not woken");
}

pub async fn a_timeout_wakes_a_parked_job(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let before = gates(&store, &[TIMER_GATE]).await;
    apply(&store, 1, change(me, &job, wait_for_signal("go", Some(secs(9))))).await;
    assert_ne!(gates(&store, &[TIMER_GATE]).await, before);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.wait_until, seen.summary.due_at), (Some(t(10)), t(10)));
    assert_eq!(fire_timers(&store, 9, 9).await.next_at, Some(t(10)));
    assert_eq!(fire_timers(&store, 10, 9).await.woken, 1);
    let job = claim_one(&store, 10, me, 2).await;
    assert_eq!((job.wait_until, job.due_at, job.inbox.len(), job.attempts), (Some(t(10)), t(10), 0, 0));
    assert!(job.wait.is_some() && history(&store, id(1)).await.is_empty(), "a timeout is not a failure");
    // A signal that comes after the timeout is in the inbox of the next claim.
    send(&store, 11, &[to_first("go", "a")]).await;
    apply(&store, 12, change(me, &job, retry(secs(0), &[]))).await;
    assert_eq!(texts(&selected_signals(&claim_one(&store, 12, me, 3).await)), ["a"]);
}

pub async fn a_signal_before_the_timeout_removes_the_timer(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", Some(secs(9)))).await;
    assert_eq!(send(&store, 2, &[to_first("go", "a")]).await, [WOKE]);
    assert_eq!(fire_timers(&store, 2, 9).await.next_at, None);
    let job = claim_one(&store, 2, me, 2).await;
    assert_eq!(fire_timers(&store, 30, 9).await.woken, 0);
    let _ = commit_and_consume(&store, 31, me, &job, wait_for_signal("go", Some(secs(9)))).await;
    assert_eq!(fire_timers(&store, 31, 9).await.next_at, Some(t(40)));
    // A signal that was sent before the wait also leaves no timer.
    let (other, job) = running_job(&store, 2).await;
    send(&store, 32, &[signal(id(2), "go", "a", "a")]).await;
    apply(&store, 33, change(other, &job, wait_for_signal("go", Some(secs(1))))).await;
    assert_eq!(fire_timers(&store, 39, 9).await.woken, 0);
}
