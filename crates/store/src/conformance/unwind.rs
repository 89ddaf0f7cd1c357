//! Jobs with steps to undo: a cancel, a deadline or a crash unwinds them before they end.

use windlass_model::{
    ClaimedJob, CommitOutcome, Epoch, Failure, NewJob, Outcome, Reason, Rev, State, StepWrites,
    SubmitOutcome, Unique, Unwind, When, WorkerId, wait::CHILD_SIGNAL,
};

use super::kit::*;
use crate::{ControlOutcome, JobAction, ReapRequest};

/// A step that has an undo.
fn undoable() -> StepWrites {
    StepWrites { has_undo: true, ..journal_writes(vec![entry(0, "charge", "x")]) }
}

/// Claims a ready job and commits a step that has an undo.
async fn claim_and_charge(store: &Handle, now: u64, me: WorkerId, number: i64) -> ClaimedJob {
    let job = claim_one(store, now, me, number).await;
    let step = with_step(change(me, &job, Outcome::Next), undoable());
    assert_eq!(commit(store, now, step).await, CommitOutcome::Committed);
    after_step(&job)
}

/// Submits a job, which then runs and has a step to undo.
async fn running_with_undo(store: &Handle, new: NewJob) -> (WorkerId, ClaimedJob) {
    let me = worker(store, 1).await;
    submit(store, &[new]).await;
    let job = claim_and_charge(store, 0, me, 1).await;
    (me, job)
}

/// Expects job 1 to be ready for its unwind, and claims it: the claim says how it ends after that.
async fn claim_unwind(store: &Handle, now: u64, me: WorkerId, reason: Option<Reason>) -> ClaimedJob {
    let seen = view(store, id(1)).await;
    assert_eq!((seen.summary.state, seen.summary.due_at), (State::Ready, t(now)));
    assert_eq!((seen.wait.clone(), seen.wait_until), (None, None));
    let counters = (seen.summary.attempts, seen.worker_deaths, seen.solo_crashes, seen.retry_counts.len());
    assert_eq!(counters, (0, 0, 0, 0), "its counters are reset");
    let unwind = seen.unwind.expect("the job is being unwound");
    assert_eq!(unwind.reason, reason);
    let job_holds = holds(store, 1).await;
    assert_eq!(
        (job_holds.paused, job_holds.cancel_requested, job_holds.waiting, job_holds.suspect),
        (None, None, None, false)
    );
    let job = claim_one(store, now, me, 90).await;
    assert_eq!((job.id, job.unwind.as_deref()), (id(1), Some(&*unwind)));
    assert_eq!(journal(store, 1).await.len(), 1, "the journal is kept for the undo");
    job
}

/// Ends job 1 after its unwind, as the claim says.
async fn end_unwind(store: &Handle, now: u64, me: WorkerId, job: &ClaimedJob) {
    let Unwind { reason, failure } = *job.unwind.clone().expect("the job is being unwound");
    let outcome = match reason {
        Some(reason) => Outcome::Failed { reason, failure },
        None => Outcome::Cancelled(failure),
    };
    let end = if reason.is_some() { State::Failed } else { State::Cancelled };
    assert_eq!(commit(store, now, change(me, job, outcome)).await, CommitOutcome::Committed);
    let seen = view(store, id(1)).await;
    assert_eq!((seen.summary.state, seen.summary.reason), (end, reason));
    assert_eq!(fire_timers(store, 100_000, 9).await.next_at, None, "no timer is left");
}

pub async fn a_job_that_is_not_running_is_unwound_when_it_is_cancelled(store: Handle) {
    let me = worker(&store, 1).await;
    let outcomes = [
        (Outcome::Wait(windlass_model::Wait::YIELD), State::Ready),
        (retry(secs(500), &[3]), State::Scheduled),
        (wait_for_signal("go", None), State::Waiting),
        (wait_for_signal("go", Some(secs(500))), State::Waiting),
    ];
    for (n, (outcome, before)) in (0u32..).zip(outcomes) {
        let number = i64::from(n) * 10;
        submit(&store, &[job(n)]).await;
        let job = claim_and_charge(&store, 0, me, number + 1).await;
        apply(&store, 1, change(me, &job, outcome)).await;
        assert_eq!(state(&store, id(n)).await, before);
        let epoch = view(&store, id(n)).await.epoch;
        let gate = gates(&store, &[QUEUE]).await;
        assert_eq!(act_on_job(&store, 2, n, cancel(0)).await, ControlOutcome::CancelRequested, "{before}");
        assert_ne!(gates(&store, &[QUEUE]).await, gate, "its queue has gained a job");
        let seen = view(&store, id(n)).await;
        assert_eq!((seen.summary.state, seen.summary.due_at), (State::Ready, t(2)));
        assert_eq!((seen.epoch, seen.rev), (Epoch(epoch.0 + 1), Rev(2)));
        assert_eq!(
            (seen.summary.attempts, seen.retry_counts, seen.wait, seen.wait_until),
            (0, vec![], None, None)
        );
        let unwind = seen.unwind.expect("the job is being unwound");
        assert_eq!((unwind.reason, unwind.failure.clone()), (None, actor().failure()));
        assert_eq!(fire_timers(&store, 1_000, 9).await.next_at, None, "no timer is left");
        let job = claim_one(&store, 2, me, number + 2).await;
        assert_eq!((job.id, job.unwind.as_ref()), (id(n), Some(&unwind)));
        let last = change(me, &job, Outcome::Cancelled(unwind.failure));
        assert_eq!(commit(&store, 3, last).await, CommitOutcome::Committed);
        assert_eq!(state(&store, id(n)).await, State::Cancelled);
    }
}

pub async fn a_job_with_nothing_to_undo_ends_at_once(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let step = journal_writes(vec![entry(0, "read", "x")]);
    apply(&store, 1, with_step(change(me, &job, wait_for_signal("go", None)), step)).await;
    assert_eq!(act_on_job(&store, 2, 1, cancel(0)).await, ControlOutcome::Done);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.unwind), (State::Cancelled, None));
}

pub async fn a_second_cancel_ends_a_job_without_its_unwind(store: Handle) {
    let (me, job) = running_with_undo(&store, job(1)).await;
    apply(&store, 1, change(me, &job, wait_for_signal("go", None))).await;
    assert_eq!(act_on_job(&store, 2, 1, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(act_on_job(&store, 3, 1, cancel(0)).await, ControlOutcome::Done);
    let seen = view(&store, id(1)).await;
    assert_eq!(seen.summary.state, State::Cancelled);
    assert!(seen.unwind.is_some(), "the job shows that its unwind was not finished");
    assert!(claim(&store, at(4), &claim_request(me, 5, 9)).await.is_empty());
}

pub async fn a_running_job_is_unwound_when_the_grace_period_is_over(store: Handle) {
    let (me, job) = running_with_undo(&store, job(1)).await;
    assert_eq!(act_on_job(&store, 1, 1, cancel(5)).await, ControlOutcome::CancelRequested);
    assert_eq!(view(&store, id(1)).await.unwind, None, "the attempt may still end");
    assert_eq!(fire_timers(&store, 6, 9).await.cancelled, 1);
    assert_eq!(
        commit(&store, 6, change(me, &job, done("x"))).await,
        CommitOutcome::Fenced,
        "the attempt is fenced"
    );
    assert_eq!(store.cancel_requests(me).await.expect("cancel requests"), []);
    let job = claim_unwind(&store, 6, me, None).await;
    assert_eq!(act_on_job(&store, 7, 1, cancel(5)).await, ControlOutcome::CancelRequested, "the unwind runs");
    assert_eq!(store.cancel_requests(me).await.expect("cancel requests").len(), 1);
    end_unwind(&store, 8, me, &job).await;
    assert_eq!(store.cancel_requests(me).await.expect("cancel requests"), []);
}

pub async fn a_cancel_during_the_unwind_ends_the_job_after_its_grace_period(store: Handle) {
    let (me, _) = running_with_undo(&store, job(1)).await;
    assert_eq!(act_on_job(&store, 1, 1, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(fire_timers(&store, 1, 9).await.cancelled, 1);
    claim_unwind(&store, 1, me, None).await;
    assert_eq!(act_on_job(&store, 2, 1, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(fire_timers(&store, 2, 9).await.cancelled, 1);
    assert_eq!(state(&store, id(1)).await, State::Cancelled);
}

pub async fn a_job_that_halts_for_a_cancel_is_unwound_after_the_grace_period(store: Handle) {
    let (me, job) = running_with_undo(&store, job(1)).await;
    assert_eq!(act_on_job(&store, 1, 1, cancel(5)).await, ControlOutcome::CancelRequested);
    assert_eq!(commit(&store, 2, change(me, &job, Outcome::Next)).await, CommitOutcome::Halted);
    assert!(
        claim(&store, at(3), &claim_request(me, 3, 9)).await.is_empty(),
        "it is not claimed until the grace period is over"
    );
    assert_eq!(fire_timers(&store, 6, 9).await.cancelled, 1);
    let job = claim_unwind(&store, 6, me, None).await;
    end_unwind(&store, 7, me, &job).await;
}

pub async fn a_deadline_unwinds_a_job_once(store: Handle) {
    for (n, outcome) in [
        (1u32, None),
        (2, Some(wait_for_signal("go", Some(secs(5_000))))),
        (3, Some(retry(secs(5_000), &[]))),
        (4, Some(retry(secs(0), &[]))),
    ] {
        let me = worker(&store, i64::from(n)).await;
        submit(&store, &[NewJob { deadline_at: Some(t(10)), ..job(n) }]).await;
        let job = claim_and_charge(&store, 0, me, 1).await;
        let is_running = outcome.is_none();
        if let Some(outcome) = outcome {
            apply(&store, 1, change(me, &job, outcome)).await;
        }
        assert_eq!(fire_timers(&store, 10, 9).await.expired, 1);
        let seen = view(&store, id(n)).await;
        assert_eq!((seen.summary.state, seen.deadline_at), (State::Ready, Some(t(10))), "{n}");
        assert_eq!(seen.unwind.map(|unwind| unwind.reason), Some(Some(Reason::Expired)));
        if is_running {
            assert_eq!(commit(&store, 11, change(me, &job, done("x"))).await, CommitOutcome::Fenced);
        }
        let fired = fire_timers(&store, 5_000, 9).await;
        assert_eq!((fired.expired, fired.woken, fired.next_at), (0, 0, None), "{n}");
        let job = claim_one(&store, 12, me, 9).await;
        let Unwind { failure, .. } = *job.unwind.clone().expect("the job is being unwound");
        assert!(failure.message.contains("deadline"), "{failure}");
        let last = change(me, &job, Outcome::Failed { reason: Reason::Expired, failure });
        assert_eq!(commit(&store, 13, last).await, CommitOutcome::Committed);
    }
}

pub async fn a_poisoned_job_is_unwound(store: Handle) {
    let (me, _) = running_with_undo(&store, job(1)).await;
    let (two, three) = (worker(&store, 2).await, worker(&store, 3).await);
    reap(&store, 1, me).await;
    let suspect = claim(&store, at(1), &solo_claim_request(two, 1)).await.remove(0);
    assert_eq!(suspect.id, id(1));
    let request = ReapRequest { dead: vec![two], lapsed: false, limit: 9, max_crashes: 1 };
    let report = store.reap(at(2), &request).await.expect("reap");
    assert_eq!((report.poisoned, report.returned), (1, 0));
    assert_eq!(history(&store, id(1)).await.len(), 2);
    assert_eq!(view(&store, id(1)).await.failure, Some(history(&store, id(1)).await.remove(1).failure));
    let job = claim_unwind(&store, 2, three, Some(Reason::Poison)).await;
    end_unwind(&store, 3, three, &job).await;
}

pub async fn a_job_that_is_poisoned_during_its_unwind_ends(store: Handle) {
    let (me, _) = running_with_undo(&store, job(1)).await;
    must_act(&store, 1, 1, cancel(0)).await;
    fire_timers(&store, 1, 9).await;
    claim_unwind(&store, 1, me, None).await;
    reap(&store, 2, me).await;
    let two = worker(&store, 2).await;
    let job = claim(&store, at(2), &solo_claim_request(two, 1)).await.remove(0);
    assert!(job.unwind.is_some(), "a suspect is still unwound");
    let request = ReapRequest { dead: vec![two], lapsed: false, limit: 9, max_crashes: 1 };
    assert_eq!(store.reap(at(3), &request).await.expect("reap").poisoned, 1);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.summary.reason), (State::Failed, Some(Reason::Poison)));
}

pub async fn a_replaced_job_is_unwound(store: Handle) {
    let named = |n: u32| {
        let mut job = job(n);
        job.settings.unique = Some(Box::new(Unique::new("name").or_replace()));
        job
    };
    let (me, first) = running_with_undo(&store, named(1)).await;
    apply(&store, 1, change(me, &first, wait_for_signal("go", None))).await;
    let outcomes = store.submit(at(2), &[named(2)], None).await.expect("submit");
    assert_eq!(outcomes, [SubmitOutcome::Replaced { id: id(1) }]);
    let first = claim_one(&store, 2, me, 2).await;
    assert!(first.id == id(1) && first.unwind.is_some_and(|unwind| unwind.reason.is_none()));
    let outcomes = store.submit(at(3), &[named(3)], None).await.expect("submit");
    assert_eq!(
        outcomes,
        [SubmitOutcome::Replaced { id: id(2) }],
        "the second job holds the name while the first is unwound"
    );
}

pub async fn a_cancel_unwinds_a_paused_job_and_ends_its_pause(store: Handle) {
    for (n, ready) in [(1u32, true), (2, false)] {
        let me = worker(&store, i64::from(n)).await;
        submit(&store, &[job(n)]).await;
        let job = claim_and_charge(&store, 0, me, 1).await;
        let outcome = if ready { retry(secs(0), &[]) } else { wait_for_signal("go", None) };
        apply(&store, 1, change(me, &job, outcome)).await;
        assert_eq!(act_on_job(&store, 2, n, JobAction::Pause).await, ControlOutcome::Done);
        assert_eq!(act_on_job(&store, 3, n, cancel(0)).await, ControlOutcome::CancelRequested);
        assert_eq!(holds(&store, n).await.paused, None);
        assert_eq!(
            act_on_job(&store, 3, n, JobAction::Resume).await,
            ControlOutcome::Already("it is not paused".into())
        );
        let job = claim_one(&store, 4, me, 2).await;
        assert!(job.id == id(n) && job.unwind.is_some());
    }
}

pub async fn a_job_is_unwound_when_its_serial_key_is_free(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[serial_job(1, "k")]).await;
    let job = claim_and_charge(&store, 0, me, 1).await;
    store.submit(at(1), &[serial_job(2, "k"), serial_job(3, "k")], None).await.expect("submit");
    apply(&store, 2, change(me, &job, wait_for_signal("go", None))).await;
    let second = claim_one(&store, 2, me, 2).await;
    assert_eq!(second.id, id(2), "the second job has the serial key that the first gave up");
    assert_eq!(act_on_job(&store, 3, 1, cancel(0)).await, ControlOutcome::CancelRequested);
    assert!(claim(&store, at(3), &claim_request(me, 3, 9)).await.is_empty(), "the serial key has one slot");
    apply(&store, 4, change(me, &second, done("x"))).await;
    let first = claim(&store, at(4), &claim_request(me, 4, 9)).await;
    assert_eq!(ids(&first), [id(1)], "the first job keeps its position before the third");
    assert!(first[0].unwind.is_some());
    assert_eq!(act_on_job(&store, 5, 1, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(fire_timers(&store, 5, 9).await.cancelled, 1);
    assert_eq!(claim_one(&store, 5, me, 5).await.id, id(3), "the end of the job frees the serial key");
    assert_eq!(store.repair(at(6)).await.expect("repair"), 0);
}

pub async fn a_running_job_keeps_its_serial_key_for_the_unwind(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[serial_job(1, "k")]).await;
    let job = claim_and_charge(&store, 0, me, 1).await;
    store.submit(at(1), &[serial_job(2, "k")], None).await.expect("submit");
    assert_eq!(act_on_job(&store, 2, 1, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!(fire_timers(&store, 2, 9).await.cancelled, 1);
    assert_eq!(commit(&store, 3, change(me, &job, done("x"))).await, CommitOutcome::Fenced);
    let first = claim(&store, at(3), &claim_request(me, 2, 9)).await;
    assert_eq!(ids(&first), [id(1)], "the first job keeps its serial key");
    apply(&store, 4, change(me, &first[0], cancelled())).await;
    assert_eq!(claim_one(&store, 4, me, 3).await.id, id(2));
}

pub async fn a_retried_job_may_be_unwound_again(store: Handle) {
    let (me, _) = running_with_undo(&store, job(1)).await;
    must_act(&store, 1, 1, cancel(0)).await;
    fire_timers(&store, 1, 9).await;
    let job = claim_unwind(&store, 1, me, None).await;
    end_unwind(&store, 2, me, &job).await;
    assert_eq!(act_on_job(&store, 3, 1, JobAction::Retry).await, ControlOutcome::Done);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.unwind), (State::Ready, None));
    let job = claim_one(&store, 3, me, 4).await;
    assert_eq!(job.unwind, None);
    apply(&store, 4, change(me, &job, wait_for_signal("go", None))).await;
    assert_eq!(
        act_on_job(&store, 5, 1, cancel(0)).await,
        ControlOutcome::CancelRequested,
        "the step is still to be undone"
    );
    assert!(view(&store, id(1)).await.unwind.is_some());
}

pub async fn an_attempt_may_start_its_own_unwind(store: Handle) {
    let (me, job) = running_with_undo(&store, job(1)).await;
    let failure = Failure::stop("no\0 money").class("bank");
    let unwind = Some(Box::new(Unwind { reason: Some(Reason::Stopped), failure }));
    let step = StepWrites { unwind, ..StepWrites::default() };
    apply(&store, 1, with_step(change(me, &job, Outcome::Next), step)).await;
    let unwind = view(&store, id(1)).await.unwind.expect("the job is being unwound");
    assert_eq!((unwind.reason, unwind.failure.class.as_ref()), (Some(Reason::Stopped), "bank"));
    assert!(!unwind.failure.message.contains('\0'), "errors are cleaned before they are kept");
    let job = after_step(&job);
    apply(&store, 2, change(me, &job, retry(secs(0), &[1]))).await;
    let job = claim_one(&store, 2, me, 2).await;
    assert_eq!((job.unwind.as_ref(), job.attempts), (Some(&unwind), 1), "a retry continues the unwind");
    apply(&store, 3, change(me, &job, wait_for_signal("go", None))).await;
    assert_eq!(
        act_on_job(&store, 4, 1, cancel(0)).await,
        ControlOutcome::Done,
        "a second unwind is not started"
    );
    assert_eq!(state(&store, id(1)).await, State::Cancelled);
}

pub async fn every_outcome_may_record_an_undo(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 4)).await;
    let taken = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let outcomes = [
        Outcome::Wait(windlass_model::Wait::YIELD),
        wait_for_signal("go", None),
        retry(secs(9), &[]),
        failed(Reason::Stopped),
    ];
    for ((n, job), outcome) in (1..).zip(&taken).zip(outcomes) {
        let ended = outcome.ends();
        apply(&store, 1, with_step(change(me, job, outcome), undoable())).await;
        if ended {
            assert_eq!(act_on_job(&store, 2, n, JobAction::Retry).await, ControlOutcome::Done);
        }
        assert_eq!(act_on_job(&store, 2, n, cancel(0)).await, ControlOutcome::CancelRequested, "job {n}");
    }
}

pub async fn a_parent_is_notified_after_the_unwind_of_its_child(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let children = vec![self::job(2), NewJob { when: When::At(t(500)), ..self::job(3) }];
    let step = StepWrites { signal_child_ends: true, children, ..StepWrites::default() };
    apply(&store, 1, with_step(change(me, &job, wait_for_signal(CHILD_SIGNAL, None)), step)).await;
    let child = claim_and_charge(&store, 1, me, 2).await;
    apply(&store, 2, change(me, &child, wait_for_signal("go", None))).await;
    assert_eq!(act_on_job(&store, 3, 2, cancel(0)).await, ControlOutcome::CancelRequested);
    assert_eq!((state(&store, id(1)).await, inbox(&store, 1).await.len()), (State::Waiting, 0));
    let child = claim_one(&store, 3, me, 3).await;
    apply(&store, 4, change(me, &child, cancelled())).await;
    assert_eq!((state(&store, id(1)).await, inbox(&store, 1).await.len()), (State::Ready, 1));
}

pub async fn an_unwind_is_not_ended_by_an_earlier_cancel_or_deadline(store: Handle) {
    let new = NewJob { deadline_at: Some(t(50)), ..job(1) };
    let (me, job) = running_with_undo(&store, new).await;
    assert_eq!(act_on_job(&store, 1, 1, cancel(100)).await, ControlOutcome::CancelRequested);
    let failure = Failure::stop("no money");
    let unwind = Unwind { reason: Some(Reason::Stopped), failure };
    let step = StepWrites { unwind: Some(Box::new(unwind.clone())), ..StepWrites::default() };
    let step = with_step(change(me, &job, Outcome::Next), step);
    assert_eq!(
        commit(&store, 2, step).await,
        CommitOutcome::Committed,
        "the unwind is not halted by the cancel request"
    );
    let after = fire_timers(&store, 1_000, 9).await;
    assert_eq!((after.expired, after.cancelled, after.next_at), (0, 0, None), "no timer is left");
    let job_holds = holds(&store, 1).await;
    assert_eq!((job_holds.cancel_requested, job_holds.paused), (None, None));
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.unwind.as_deref()), (State::Running, Some(&unwind)));
    let job = after_step(&job);
    assert_eq!(commit(&store, 3, change(me, &job, failed(Reason::Stopped))).await, CommitOutcome::Committed);
    assert_eq!(state(&store, id(1)).await, State::Failed);
}
