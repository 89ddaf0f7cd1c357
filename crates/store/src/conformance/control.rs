//! Actions of people on jobs and queues, and their audit log.

use windlass_model::{
    ClaimedJob, CommitOutcome, Epoch, Failure, NewJob, RateLimit, Reason, State, SubmitOutcome, Time, When,
    WorkerId, failure::class,
};

use super::kit::*;
use crate::{
    Actor, AdminAction, AuditFilter, AuditRecord, CANCEL_GATE, CancelRequest, ClaimRequest, ControlOutcome,
    Error, JobAction, JobEnd, Prune, TIMER_GATE,
};

/// Expects that nothing was done, for a reason that contains `text`.
fn expect_reason(outcome: &ControlOutcome, text: &str) {
    match outcome {
        ControlOutcome::Already(why) | ControlOutcome::Refused(why) => {
            assert!(why.contains(text), "{why:?} lacks {text:?}")
        }
        outcome => panic!("{outcome:?} has no reason {text:?}"),
    }
}

/// Claims all jobs that can be claimed.
async fn claim_all(store: &Handle, now: u64, worker: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim(store, at(now), &claim_request(worker, number, 99)).await
}

pub async fn a_paused_job_is_not_claimed_until_it_is_resumed(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 2)).await;
    assert_eq!(act_on_job(&store, 1, 1, JobAction::Pause).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Ready);
    let pause = holds(&store, 1).await.paused.expect("it is paused");
    assert_eq!((pause.at, pause.author.as_str()), (t(1), "someone"));
    assert_eq!(ids(&claim_all(&store, 2, worker, 1).await), [id(2)]);
    expect_reason(&act_on_job(&store, 2, 1, JobAction::Pause).await, "paused by someone before");
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(act_on_job(&store, 3, 1, JobAction::Resume).await, ControlOutcome::Done);
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    expect_reason(&act_on_job(&store, 3, 1, JobAction::Resume).await, "not paused");
    assert_eq!(view(&store, id(1)).await.summary.due_at, t(0), "it keeps its rank");
    assert_eq!(ids(&claim_all(&store, 4, worker, 2).await), [id(1)]);
}

pub async fn a_paused_scheduled_job_is_held_when_it_is_due(store: Handle) {
    let worker = worker(&store, 1).await;
    let later = |n| NewJob { when: When::At(t(10)), ..job(n) };
    submit(&store, &[later(1), later(2)]).await;
    for n in [1, 2] {
        assert_eq!(act_on_job(&store, 1, n, JobAction::Pause).await, ControlOutcome::Done);
    }
    assert_eq!(act_on_job(&store, 5, 2, JobAction::Resume).await, ControlOutcome::Done);
    assert_eq!((state(&store, id(1)).await, count(&store, State::Scheduled).await), (State::Scheduled, 2));
    assert_eq!(fire_timers(&store, 10, 9).await.woken, 2);
    assert_eq!(count(&store, State::Ready).await, 2);
    assert_eq!(ids(&claim_all(&store, 10, worker, 1).await), [id(2)], "it was resumed in time");
    assert_eq!(act_on_job(&store, 11, 1, JobAction::Resume).await, ControlOutcome::Done);
    assert_eq!(ids(&claim_all(&store, 11, worker, 2).await), [id(1)]);
}

pub async fn a_paused_running_job_continues_and_is_held_when_it_is_returned(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 4)).await;
    let claimed = claim_all(&store, 0, worker, 1).await;
    for n in 1..=4 {
        assert_eq!(act_on_job(&store, 1, n, JobAction::Pause).await, ControlOutcome::Done);
        assert_eq!(state(&store, id(n)).await, State::Running);
    }
    assert_eq!(commit(&store, 2, change(worker, &claimed[0], done("x"))).await, CommitOutcome::Committed);
    assert_eq!(
        commit(&store, 2, change(worker, &claimed[1], retry(secs(0), &[]))).await,
        CommitOutcome::Committed
    );
    assert_eq!(
        commit(&store, 2, change(worker, &claimed[2], retry(secs(5), &[]))).await,
        CommitOutcome::Committed
    );
    reap(&store, 3, worker).await;
    assert_eq!(fire_timers(&store, 7, 9).await.woken, 1);
    let other = super::kit::worker(&store, 2).await;
    assert!(claim_all(&store, 8, other, 1).await.is_empty());
    assert!(claim(&store, at(8), &solo_claim_request(other, 2)).await.is_empty(), "also not the suspect");
    assert_eq!((count(&store, State::Ready).await, state(&store, id(1)).await), (3, State::Done));
    assert_eq!(store.inspect().holds(id(1)).await.expect("holds"), None, "an ended job is not held");
    for n in 2..=4 {
        assert_eq!(act_on_job(&store, 9, n, JobAction::Resume).await, ControlOutcome::Done, "job {n}");
    }
    assert_eq!(ids(&claim_all(&store, 9, other, 3).await), [2, 3].map(id));
    assert_eq!(ids(&claim(&store, at(9), &solo_claim_request(other, 4)).await), [id(4)]);
}

pub async fn a_paused_job_leaves_its_line_and_resumes_at_its_position(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[serial_job(1, "k"), serial_job(2, "k"), serial_job(3, "k")]).await;
    let first = claim_all(&store, 0, worker, 1).await.remove(0);
    assert_eq!(act_on_job(&store, 1, 2, JobAction::Pause).await, ControlOutcome::Done);
    assert_eq!(holds(&store, 3).await.serial.expect("it has a key").ahead, 0);
    assert_eq!(act_on_job(&store, 2, 2, JobAction::Resume).await, ControlOutcome::Done);
    assert_eq!(holds(&store, 3).await.serial.expect("it has a key").ahead, 1);
    apply(&store, 3, change(worker, &first, done("x"))).await;
    assert_eq!(ids(&claim_all(&store, 3, worker, 2).await), [id(2)]);
}

pub async fn paused_jobs_expire_and_can_be_cancelled(store: Handle) {
    submit(&store, &[NewJob { deadline_at: Some(t(5)), ..job(1) }, job(2)]).await;
    for n in [1, 2] {
        assert_eq!(act_on_job(&store, 1, n, JobAction::Pause).await, ControlOutcome::Done);
    }
    assert_eq!(act_on_job(&store, 2, 2, cancel(9)).await, ControlOutcome::Done);
    assert_eq!(fire_timers(&store, 5, 9).await.expired, 1);
    for (n, state) in [(1, "failed"), (2, "cancelled")] {
        expect_reason(&act_on_job(&store, 6, n, JobAction::Pause).await, state);
        expect_reason(&act_on_job(&store, 6, n, JobAction::Resume).await, "not paused");
    }
}

pub async fn nothing_is_claimed_from_a_paused_queue(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 2)).await;
    claim_one(&store, 0, one, 1).await;
    let earlier = claim_one(&store, 0, two, 1).await;
    reap(&store, 0, one).await;
    let pause = AdminAction::PauseQueue(QUEUE.into());
    administer(&store, 1, pause.clone()).await;
    expect_reason(
        &store.control().administer(at(1), &pause, &actor()).await.expect("administer"),
        "paused by someone before",
    );
    submit(&store, &[job(3), job_in(4, KIND, "bulk")]).await;
    let batch = store.claim(at(2), &claim_request(two, 2, 9)).await.expect("claim");
    assert!(batch.jobs.is_empty() && !batch.suspects && !batch.more, "{batch:?}");
    assert!(claim(&store, at(2), &solo_claim_request(two, 3)).await.is_empty());
    assert_eq!(
        ids(&claim(&store, at(2), &claim_request(two, 1, 1)).await),
        [earlier.id],
        "a repeated claim returns its jobs"
    );
    let other_queue = ClaimRequest { queue: "bulk".into(), ..claim_request(two, 4, 9) };
    assert_eq!(claim(&store, at(2), &other_queue).await.len(), 1, "another queue is not paused");
    let pause = holds(&store, 3).await.queue_paused.expect("its queue is paused");
    assert_eq!((pause.at, pause.author.as_str()), (t(1), "someone"));
    let queues = store.inspect().queues().await.expect("queues");
    let shown: Vec<_> = queues.iter().map(|queue| (queue.name.as_str(), queue.paused.is_some())).collect();
    assert_eq!(shown, [("bulk", false), (QUEUE, true)]);
    let before = gates(&store, &[QUEUE]).await;
    administer(&store, 3, AdminAction::ResumeQueue(QUEUE.into())).await;
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    let resume = AdminAction::ResumeQueue(QUEUE.into());
    expect_reason(
        &store.control().administer(at(3), &resume, &actor()).await.expect("administer"),
        "not paused",
    );
    let batch = store.claim(at(3), &claim_request(two, 5, 9)).await.expect("claim");
    assert!(batch.suspects && ids(&batch.jobs) == [id(3)], "{batch:?}");
}

pub async fn a_queue_may_be_paused_before_it_is_used(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::PauseQueue(QUEUE.into())).await;
    submit(&store, &[job(1)]).await;
    assert!(claim_all(&store, 1, worker, 1).await.is_empty());
    let unknown = AdminAction::ResumeQueue("unknown".into());
    expect_reason(
        &store.control().administer(at(1), &unknown, &actor()).await.expect("administer"),
        "not paused",
    );
    administer(&store, 2, AdminAction::ResumeQueue(QUEUE.into())).await;
    assert_eq!(claim_all(&store, 2, worker, 2).await.len(), 1);
}

pub async fn jobs_that_do_not_run_are_cancelled_at_once(store: Handle) {
    let worker = worker(&store, 1).await;
    let waiting = NewJob { when: When::At(t(10)), deadline_at: Some(t(20)), ..job(1) };
    submit(&store, &[waiting, job(2), serial_job(3, "k"), serial_job(4, "k"), job(5)]).await;
    assert_eq!(act_on_job(&store, 1, 5, JobAction::Pause).await, ControlOutcome::Done);
    let ops = Actor::new("ops").note("wrong input");
    let ids: Vec<_> = (1..=5).map(id).collect();
    let outcome = store.control().act_on_jobs(at(2), &ids, cancel(9), &ops).await.expect("act");
    assert_eq!(outcome, vec![ControlOutcome::Done; 5]);
    for id in ids {
        let kept = view(&store, id).await;
        assert_eq!((kept.summary.state, kept.summary.finished_at), (State::Cancelled, Some(t(2))));
        assert_eq!(kept.epoch, Epoch(1), "earlier claims are fenced");
        let expected = Failure::cancel("cancelled by ops: wrong input").class(class::CANCELLED);
        let ended = store.job_ends(&[id]).await.expect("ended").remove(0);
        assert_eq!(ended, Some(JobEnd::Cancelled(expected)));
    }
    let rest = fire_timers(&store, 30, 9).await;
    assert_eq!((rest.woken, rest.expired, rest.next_at), (0, 0, None), "all timers were removed");
    assert!(claim_all(&store, 30, worker, 1).await.is_empty());
    expect_reason(&act_on_job(&store, 31, 2, cancel(0)).await, "cancelled already");
}

pub async fn a_running_job_gets_a_cancel_request_and_may_finish_in_time(store: Handle) {
    let (worker, claimed) = running_job(&store, 1).await;
    let before = gates(&store, &[CANCEL_GATE, TIMER_GATE, QUEUE]).await;
    assert_eq!(act_on_job(&store, 5, 1, cancel(10)).await, ControlOutcome::CancelRequested);
    let after = gates(&store, &[CANCEL_GATE, TIMER_GATE, QUEUE]).await;
    assert!(after[0] != before[0] && after[1] != before[1] && after[2] == before[2]);
    let request =
        CancelRequest { job: id(1), epoch: claimed.epoch, deadline_at: t(15), actor: Actor::new("someone") };
    assert_eq!(store.cancel_requests(worker).await.expect("cancel requests"), [request]);
    assert!(store.cancel_requests(WorkerId(99)).await.expect("cancel requests").is_empty());
    let request = holds(&store, 1).await.cancel_requested.expect("a cancel was requested");
    assert_eq!((request.deadline_at, request.author.as_str()), (t(15), "someone"));
    expect_reason(&act_on_job(&store, 6, 1, cancel(10)).await, "cancel was requested before");
    expect_reason(&act_on_job(&store, 6, 1, JobAction::Pause).await, "being cancelled");
    assert_eq!(state(&store, id(1)).await, State::Running);
    assert_eq!(commit(&store, 7, change(worker, &claimed, done("in time"))).await, CommitOutcome::Committed);
    assert_eq!(state(&store, id(1)).await, State::Done);
    assert!(store.cancel_requests(worker).await.expect("cancel requests").is_empty());
    assert_eq!(fire_timers(&store, 20, 9).await.next_at, None, "no timer is left");
}

pub async fn a_job_that_ignores_its_cancel_request_is_ended(store: Handle) {
    let (worker, claimed) = running_job(&store, 1).await;
    let ops = Actor::new("ops").note("stuck");
    let outcomes = store.control().act_on_jobs(at(5), &[id(1)], cancel(10), &ops).await.expect("act");
    assert_eq!(
        (outcomes, fire_timers(&store, 14, 9).await.next_at),
        (vec![ControlOutcome::CancelRequested], Some(t(15)))
    );
    let fired = fire_timers(&store, 15, 9).await;
    assert_eq!((fired.cancelled, fired.expired, fired.woken, fired.next_at), (1, 0, 0, None));
    let kept = view(&store, id(1)).await;
    assert_eq!((kept.summary.state, kept.epoch), (State::Cancelled, Epoch(1)));
    assert_eq!(kept.failure.expect("it has a failure").message, "cancelled by ops: stuck");
    assert_eq!(commit(&store, 16, change(worker, &claimed, done("late"))).await, CommitOutcome::Fenced);
    assert!(store.cancel_requests(worker).await.expect("cancel requests").is_empty());
    assert!(history(&store, id(1)).await.is_empty());
}

pub async fn a_job_being_cancelled_is_not_claimed_again(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &jobs(1, 4)).await;
    let claimed = claim_all(&store, 0, worker, 1).await;
    for n in 1..=4 {
        assert_eq!(act_on_job(&store, 1, n, cancel(30)).await, ControlOutcome::CancelRequested);
    }
    store.release(at(2), &[job_claim(worker, &claimed[0])]).await.expect("release");
    apply(&store, 2, change(worker, &claimed[1], retry(secs(0), &[]))).await;
    apply(&store, 2, change(worker, &claimed[2], retry(secs(3), &[]))).await;
    assert_eq!(commit(&store, 2, change(worker, &claimed[3], cancelled())).await, CommitOutcome::Committed);
    assert_eq!(fire_timers(&store, 5, 9).await.woken, 1);
    assert!(claim_all(&store, 6, worker, 2).await.is_empty());
    expect_reason(&act_on_job(&store, 6, 2, JobAction::Resume).await, "not paused");
    assert_eq!(act_on_job(&store, 7, 1, cancel(0)).await, ControlOutcome::Done, "it does not run any more");
    assert_eq!(fire_timers(&store, 31, 9).await.cancelled, 2);
    assert_eq!(count(&store, State::Cancelled).await, 4);
    assert_eq!(fire_timers(&store, 99, 9).await.next_at, None);
}

pub async fn a_deadline_ends_a_job_being_cancelled(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[NewJob { deadline_at: Some(t(10)), ..job(1) }]).await;
    claim_one(&store, 0, worker, 1).await;
    assert_eq!(act_on_job(&store, 1, 1, JobAction::Pause).await, ControlOutcome::Done);
    assert_eq!(act_on_job(&store, 1, 1, cancel(60)).await, ControlOutcome::CancelRequested);
    let fired = fire_timers(&store, 10, 9).await;
    assert_eq!((fired.expired, fired.cancelled, fired.next_at), (1, 0, None));
    assert!(store.cancel_requests(worker).await.expect("cancel requests").is_empty());
    assert_eq!(view(&store, id(1)).await.summary.reason, Some(Reason::Expired));
}

pub async fn a_retry_by_hand_resets_the_job(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[NewJob { deadline_at: Some(t(50)), ..job(1) }, job(2)]).await;
    let claimed = claim_all(&store, 0, worker, 1).await;
    apply(&store, 1, change(worker, &claimed[0], retry(secs(0), &[3]))).await;
    reap(&store, 2, worker).await;
    let other = super::kit::worker(&store, 2).await;
    let again = claim_one(&store, 3, other, 1).await;
    assert_eq!(again.id, id(1), "the other is a suspect");
    apply(&store, 4, change(other, &again, failed(Reason::Stopped))).await;
    assert_eq!(act_on_job(&store, 4, 2, cancel(0)).await, ControlOutcome::Done);
    let before = gates(&store, &[QUEUE, TIMER_GATE]).await;
    for n in [1, 2] {
        assert_eq!(act_on_job(&store, 100, n, JobAction::Retry).await, ControlOutcome::Done);
        expect_reason(&act_on_job(&store, 100, n, JobAction::Retry).await, "ready");
        let kept = view(&store, id(n)).await;
        let summary = &kept.summary;
        assert_eq!((summary.state, summary.reason, summary.finished_at), (State::Ready, None, None));
        assert_eq!(
            (summary.attempts, kept.worker_deaths, kept.solo_crashes, summary.due_at),
            (0, 0, 0, t(100))
        );
        assert!(kept.retry_counts.is_empty());
        assert_eq!(
            kept.deadline_at,
            (n == 1).then(|| t(150)),
            "as long after the retry as it was after the submit"
        );
    }
    assert!(gates(&store, &[QUEUE, TIMER_GATE]).await.iter().zip(before).all(|(now, before)| *now != before));
    assert_eq!(commit(&store, 101, change(worker, &claimed[1], done("late"))).await, CommitOutcome::Fenced);
    assert_eq!(history(&store, id(1)).await.len(), 2, "the history is kept");
    assert_eq!(ids(&claim_all(&store, 101, other, 2).await), [1, 2].map(id), "it is not a suspect any more");
    assert_eq!(fire_timers(&store, 150, 9).await.expired, 1);
}

pub async fn a_retried_job_goes_to_the_end_of_its_line(store: Handle) {
    let worker = worker(&store, 1).await;
    submit(&store, &[serial_job(1, "k"), serial_job(2, "k"), serial_job(3, "k")]).await;
    assert_eq!(act_on_job(&store, 1, 2, cancel(0)).await, ControlOutcome::Done);
    assert_eq!(act_on_job(&store, 2, 2, JobAction::Retry).await, ControlOutcome::Done);
    for (number, n) in [(1, 1), (2, 3), (3, 2)] {
        let claimed = claim_all(&store, 3, worker, number).await;
        assert_eq!(ids(&claimed), [id(n)]);
        apply(&store, 3, change(worker, &claimed[0], done("x"))).await;
    }
}

pub async fn done_and_live_jobs_are_not_retried(store: Handle) {
    let (worker, claimed) = running_job(&store, 1).await;
    expect_reason(&act_on_job(&store, 1, 1, JobAction::Retry).await, "running");
    apply(&store, 1, change(worker, &claimed, done("x"))).await;
    expect_reason(&act_on_job(&store, 2, 1, JobAction::Retry).await, "done");
    assert!(matches!(act_on_job(&store, 2, 1, JobAction::Retry).await, ControlOutcome::Refused(_)));
    assert_eq!(act_on_job(&store, 2, 99, JobAction::Retry).await, ControlOutcome::Unknown);
}

pub async fn a_new_priority_reorders_ready_jobs_and_is_kept_for_others(store: Handle) {
    let worker = worker(&store, 1).await;
    let later = NewJob { when: When::At(t(10)), ..job(4) };
    submit(&store, &[job(1), job(2), job(3), later]).await;
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(act_on_job(&store, 1, 3, JobAction::Priority(-5)).await, ControlOutcome::Done);
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    assert_eq!(act_on_job(&store, 1, 1, JobAction::Priority(7)).await, ControlOutcome::Done);
    assert_eq!(act_on_job(&store, 1, 4, JobAction::Priority(-100)).await, ControlOutcome::Done);
    expect_reason(&act_on_job(&store, 1, 4, JobAction::Priority(-100)).await, "its priority is -100");
    let first = claim_one(&store, 2, worker, 1).await;
    assert_eq!(first.id, id(3));
    assert_eq!(act_on_job(&store, 2, 3, JobAction::Priority(9)).await, ControlOutcome::Done, "while it runs");
    store.release(at(2), &[job_claim(worker, &first)]).await.expect("release");
    fire_timers(&store, 10, 9).await;
    assert_eq!(ids(&claim_all(&store, 10, worker, 2).await), [4, 2, 1, 3].map(id));
    assert_eq!(view(&store, id(1)).await.summary.priority, 7);
    assert_eq!(act_on_job(&store, 11, 4, cancel(0)).await, ControlOutcome::CancelRequested);
    fire_timers(&store, 11, 9).await;
    expect_reason(&act_on_job(&store, 12, 4, JobAction::Priority(1)).await, "retry it first");
}

pub async fn every_action_is_in_the_audit_log(store: Handle) {
    submit(&store, &jobs(1, 2)).await;
    let ops = Actor::new("ops").note("ticket 9");
    let both = [id(1), id(2), id(1), id(99)];
    let outcome = store.control().act_on_jobs(at(1), &both, JobAction::Pause, &ops).await.expect("act");
    assert_eq!(
        (&outcome[0], &outcome[1], &outcome[3]),
        (&ControlOutcome::Done, &ControlOutcome::Done, &ControlOutcome::Unknown)
    );
    expect_reason(&outcome[2], "paused by ops before");
    must_act(&store, 2, 1, JobAction::Priority(-3)).await;
    administer(&store, 3, AdminAction::PauseQueue(QUEUE.into())).await;
    administer(&store, 4, AdminAction::Limit(RateLimit::per_second("api", 7))).await;
    administer(&store, 5, AdminAction::Slots { key: "k".into(), slots: 2 }).await;
    store.control().record_audit(at(6), "inspected", "the weather", &ops).await.expect("audit");
    let audit = async |filter: AuditFilter| store.inspect().audit(&filter).await.expect("audit");
    let all = audit(AuditFilter { limit: 99, ..AuditFilter::default() }).await;
    let shown: Vec<_> =
        all.iter().map(|entry| (entry.action.clone(), entry.subject.clone(), entry.at)).collect();
    let entry = |action: &str, subject: &str, at: Time| (action.to_owned(), subject.to_owned(), at);
    let expected = [
        entry("inspected", "the weather", t(6)),
        entry("slots 2", "k", t(5)),
        entry("limit to 7 per 1s, burst 7", "api", t(4)),
        entry("pause queue", QUEUE, t(3)),
        entry("priority -3", &id(1).to_string(), t(2)),
        entry("pause", &id(2).to_string(), t(1)),
        entry("pause", &id(1).to_string(), t(1)),
    ];
    assert_eq!(shown, expected, "refused actions are not in it");
    assert_eq!((all[0].author.as_str(), all[0].note.as_deref()), ("ops", Some("ticket 9")));
    let record = |action: &str, actor: &Actor| AuditRecord {
        action: action.into(),
        subject: "the weather".into(),
        actor: actor.clone(),
    };
    let records = [record("first", &ops), record("second", &Actor::new("dev"))];
    store.control().record_audits(at(7), &records).await.expect("audits");
    store.control().record_audits(at(8), &[]).await.expect("none");
    let two =
        audit(AuditFilter { subject: Some("the weather".into()), limit: 2, ..AuditFilter::default() }).await;
    let shown: Vec<_> = two
        .iter()
        .map(|entry| (entry.action.as_str(), entry.author.as_str(), entry.note.as_deref(), entry.at))
        .collect();
    assert_eq!(shown, [("second", "dev", None, t(7)), ("first", "ops", Some("ticket 9"), t(7))]);
    let subject = Some(id(1).to_string());
    assert_eq!(audit(AuditFilter { subject, limit: 9, ..AuditFilter::default() }).await.len(), 2);
    let page = audit(AuditFilter { before: Some(all[2].number), limit: 2, ..AuditFilter::default() }).await;
    assert_eq!(page, all[3..5]);
}

pub async fn invalid_actions_are_refused_before_anything_is_written(store: Handle) {
    submit(&store, &[job(1)]).await;
    let invalid = |error: Error, text: &str| {
        assert!(matches!(&error, Error::Invalid(_)) && error.to_string().contains(text), "{error}");
    };
    let control = store.control();
    for (action, text) in [
        (JobAction::Priority(101), "from -100 (urgent) to 100"),
        (JobAction::Cancel { grace: secs(4_000_000_000) }, "longer than 100 years"),
    ] {
        invalid(control.act_on_jobs(at(0), &[id(1)], action, &actor()).await.expect_err(text), text);
    }
    let actions = [
        (AdminAction::PauseQueue(String::new()), "is empty"),
        (AdminAction::ResumeQueue("windlass.x".into()), "reserved"),
        (AdminAction::Limit(RateLimit::per_second("api", 0)), "is 0"),
        (AdminAction::Limit(RateLimit::per("api", 1, secs(0))), "1 ms to 31 days"),
        (AdminAction::Lift("a b".into()), "contains"),
        (AdminAction::Slots { key: "k".into(), slots: 0 }, "are 0"),
        (AdminAction::Slots { key: String::new(), slots: 1 }, "is empty"),
    ];
    for (action, text) in actions {
        invalid(control.administer(at(0), &action, &actor()).await.expect_err(text), text);
    }
    for actor in [Actor::new("a\0"), Actor::new("ops").note("n".repeat(2_001))] {
        invalid(
            control.act_on_jobs(at(0), &[id(1)], JobAction::Pause, &actor).await.expect_err("invalid"),
            "the ",
        );
        invalid(control.record_audit(at(0), "x", "y", &actor).await.expect_err("invalid"), "the ");
        let good = AuditRecord { action: "x".into(), subject: "y".into(), actor: Actor::new("ops") };
        let records = [good.clone(), AuditRecord { actor, ..good }];
        invalid(control.record_audits(at(0), &records).await.expect_err("invalid"), "the ");
    }
    let live = Prune { state: State::Ready, before: t(9), kind: None, after: None, limit: 9 };
    invalid(store.prune(at(0), &live).await.expect_err("prune"), "unfinished work");
    let audit = AuditFilter { limit: 9, ..AuditFilter::default() };
    assert!(store.inspect().audit(&audit).await.expect("audit").is_empty());
    assert_eq!(state(&store, id(1)).await, State::Ready);
}

pub async fn no_job_of_a_paused_queue_is_claimed_at_submit(store: Handle) {
    let me = worker(&store, 1).await;
    let pause = AdminAction::PauseQueue(QUEUE.into());
    let _ = store.control().administer(at(0), &pause, &Actor::new("ops")).await.expect("administer");
    let batch = [job(1), job_in(2, KIND, "open")];
    let outcomes = store.submit(at(1), &batch, claim_on_submit(me, 1)).await.expect("submit");
    let claimed = |outcome: &SubmitOutcome| matches!(outcome, SubmitOutcome::New { claimed: Some(_) });
    assert_eq!(outcomes.iter().map(claimed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(state(&store, id(1)).await, State::Ready);
    assert_eq!(state(&store, id(2)).await, State::Running);
}
