//! The pulse: it differs after whatever people see has changed, and stays the same while nothing does.

use windlass_model::{
    Calendar, KindVersion, NewJob, Outcome, RateLimit, Rev, Schedule, State, When, calendar::Unit,
};

use super::kit::*;
use crate::{
    AdminAction, Error, JobAction, JobPulse, MAX_PULSE_JOBS, NewOperation, OperationEnd, OperationId,
    OperationProgress, Pulse, RollUpRequest,
};

async fn pulse(store: &Handle, jobs: &[u32]) -> Pulse {
    let ids: Vec<_> = jobs.iter().copied().map(id).collect();
    store.inspect().pulse(&ids).await.expect("pulse")
}

/// The digests of a store so far.
struct Beats(Vec<u64>);

impl Beats {
    async fn of(store: &Handle) -> Beats {
        Beats(vec![pulse(store, &[]).await.store])
    }

    /// Expects a digest that differs from the last one.
    async fn expect_move(&mut self, store: &Handle, what: &str) {
        let now = pulse(store, &[]).await.store;
        assert_ne!(Some(&now), self.0.last(), "{what}");
        assert_eq!(
            now,
            pulse(store, &[1, 2]).await.store,
            "the jobs that are asked for make no difference: {what}"
        );
        self.0.push(now);
    }

    /// Expects the last digest.
    async fn expect_rest(&self, store: &Handle, what: &str) {
        assert_eq!(Some(&pulse(store, &[]).await.store), self.0.last(), "{what}");
    }
}

pub async fn the_pulse_differs_after_whatever_jobs_do(store: Handle) {
    let mut beats = Beats::of(&store).await;
    let me = worker(&store, 1).await;
    beats.expect_move(&store, "a worker came").await;
    submit(&store, &[job(1)]).await;
    beats.expect_move(&store, "submitted").await;
    submit(&store, &[NewJob { when: When::After(secs(50)), ..job(2) }]).await;
    beats.expect_move(&store, "submitted for later").await;
    let claimed = claim_one(&store, 0, me, 1).await;
    beats.expect_move(&store, "claimed").await;
    store.release(at(1), &[job_claim(me, &claimed)]).await.expect("release");
    beats.expect_move(&store, "released").await;
    let claimed = claim_one(&store, 1, me, 2).await;
    beats.expect_move(&store, "claimed again").await;
    apply(&store, 2, change(me, &claimed, retry(secs(9), &[]))).await;
    beats.expect_move(&store, "backs off").await;
    fire_timers(&store, 12, 9).await;
    beats.expect_move(&store, "due").await;
    let claimed = claim_one(&store, 12, me, 3).await;
    beats.expect_move(&store, "claimed for another attempt").await;
    apply(&store, 13, change(me, &claimed, wait_for_signal("go", None))).await;
    beats.expect_move(&store, "parked").await;
    send(&store, 14, &[signal(id(1), "go", "1", "x")]).await;
    beats.expect_move(&store, "woken").await;
    let claimed = claim_one(&store, 15, me, 4).await;
    beats.expect_move(&store, "claimed after a wait").await;
    apply(&store, 16, change(me, &claimed, failed(windlass_model::Reason::Stopped))).await;
    beats.expect_move(&store, "failed").await;
    must_act(&store, 17, 1, JobAction::Retry).await;
    beats.expect_move(&store, "retried by hand").await;
    let claimed = claim_one(&store, 18, me, 5).await;
    beats.expect_move(&store, "claimed after a retry by hand").await;
    apply(&store, 19, change(me, &claimed, done("x"))).await;
    beats.expect_move(&store, "done").await;
    let outcomes = store.submit(at(20), &[job(3)], claim_on_submit(me, 6)).await.expect("submit");
    assert_eq!(outcomes.len(), 1);
    beats.expect_move(&store, "submitted and claimed").await;
    let next = NewJob { deadline_at: Some(t(30)), ..job(4) };
    store.submit(at(20), &[next], None).await.expect("submit");
    beats.expect_move(&store, "submitted with a deadline").await;
    fire_timers(&store, 30, 9).await;
    beats.expect_move(&store, "expired").await;
    reap(&store, 40, me).await;
    beats.expect_move(&store, "a worker died").await;
}

pub async fn the_pulse_differs_after_whatever_people_do(store: Handle) {
    submit(&store, &jobs(1, 4)).await;
    let mut beats = Beats::of(&store).await;
    must_act(&store, 1, 1, JobAction::Pause).await;
    beats.expect_move(&store, "a job was paused").await;
    must_act(&store, 1, 1, JobAction::Resume).await;
    beats.expect_move(&store, "a job was resumed").await;
    must_act(&store, 1, 2, JobAction::Priority(7)).await;
    beats.expect_move(&store, "the priority of a job was changed").await;
    must_act(&store, 1, 3, cancel(0)).await;
    beats.expect_move(&store, "a job was cancelled").await;
    let calendar = Calendar::every(10, Unit::Seconds).expect("a calendar");
    let kind = KindVersion { kind: KIND.into(), version: 1 };
    let schedule = Schedule::new("tick", calendar, kind, payload("7"));
    for action in [
        AdminAction::PauseQueue(QUEUE.into()),
        AdminAction::ResumeQueue(QUEUE.into()),
        AdminAction::Limit(RateLimit::per("api", 5, secs(10))),
        AdminAction::Lift("api".into()),
        AdminAction::Slots { key: "account".into(), slots: 3 },
        AdminAction::Schedule(Box::new(schedule)),
        AdminAction::PauseSchedule("tick".into()),
        AdminAction::ResumeSchedule("tick".into()),
    ] {
        administer(&store, 2, action.clone()).await;
        beats.expect_move(&store, &format!("{action:?}")).await;
    }
    fire_timers(&store, 15, 9).await;
    beats.expect_move(&store, "a schedule fired").await;
    store.control().record_audit(at(16), "note", "it", &actor()).await.expect("recorded");
    beats.expect_move(&store, "an entry in the audit log").await;
    let progress = OperationProgress::default();
    let (operation, none) = (OperationId(id(9)), serde_json::Value::Null);
    let new = NewOperation {
        id: operation,
        action: "bulk retry".into(),
        filter: none.clone(),
        parameters: none,
        progress: progress.clone(),
    };
    assert!(store.add_operation(at(17), &new, &actor()).await.expect("added"));
    beats.expect_move(&store, "an operation began").await;
    store.update_operation(at(18), operation, &progress, None).await.expect("updated");
    beats.expect_move(&store, "an operation went on").await;
    store.update_operation(at(19), operation, &progress, Some(&OperationEnd::Done)).await.expect("updated");
    beats.expect_move(&store, "an operation ended").await;
    store.retire_worker(at(20), worker(&store, 1).await).await.expect("retired");
    beats.expect_move(&store, "a worker came and went").await;
}

pub async fn the_pulse_rests_while_nothing_happens(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[machine(1, "Begin"), NewJob { when: When::After(secs(50)), ..job(2) }]).await;
    let claimed = claim_one(&store, 0, me, 1).await;
    let beats = Beats::of(&store).await;
    beats.expect_rest(&store, "a read").await;
    renew(&store, 1, me).await;
    beats.expect_rest(&store, "a renewal").await;
    fire_timers(&store, 2, 9).await;
    store.repair(at(2)).await.expect("repaired");
    store.poll_branches(at(2), 9).await.expect("polled");
    store
        .roll_up(&RollUpRequest { limit: 9, hours_before: None, delete_before: None })
        .await
        .expect("rolled up");
    beats.expect_rest(&store, "maintenance that finds nothing").await;
    list(&store, all_jobs()).await;
    apply(&store, 3, with_step(change(me, &claimed, Outcome::Next), step("Begin", "Ship", "1"))).await;
    beats.expect_rest(&store, "a step of a job that goes on running").await;
}

pub async fn the_pulse_has_the_jobs_that_are_asked_for_in_their_order(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[job(1), NewJob { when: When::After(secs(50)), ..job(2) }, job(3)]).await;
    let claimed = claim_one(&store, 0, me, 1).await;
    let beat = |rev, epoch, state| {
        Some(JobPulse { rev: Rev(rev), epoch: windlass_model::Epoch(epoch), state, newest_signal: 0 })
    };
    let seen = pulse(&store, &[3, 99, 1, 2, 3]).await.jobs;
    let ready = beat(0, 0, State::Ready);
    assert_eq!(seen, [ready, None, beat(0, 0, State::Running), beat(0, 0, State::Scheduled), ready]);
    apply(&store, 1, with_step(change(me, &claimed, Outcome::Next), step("a", "b", "1"))).await;
    assert_eq!(pulse(&store, &[1]).await.jobs, [beat(1, 0, State::Running)]);
    let claimed = after_step(&claimed);
    apply(&store, 2, change(me, &claimed, wait_for_signal("go", None))).await;
    let waiting = pulse(&store, &[1]).await.jobs[0].expect("it exists");
    assert_eq!((waiting.rev, waiting.state, waiting.newest_signal), (Rev(2), State::Waiting, 0));
    send(&store, 3, &[signal(id(1), "other", "1", "x")]).await;
    let delivered = pulse(&store, &[1]).await.jobs[0].expect("it exists");
    assert!(delivered.newest_signal > 0 && delivered.state == State::Waiting, "{delivered:?}");
    send(&store, 3, &[signal(id(1), "other", "2", "x")]).await;
    assert!(pulse(&store, &[1]).await.jobs[0].expect("it exists").newest_signal > delivered.newest_signal);
    must_act(&store, 4, 3, cancel(0)).await;
    assert_eq!(pulse(&store, &[3]).await.jobs[0].expect("it exists").state, State::Cancelled);
    assert!(pulse(&store, &[]).await.jobs.is_empty());
    let most = vec![id(1); MAX_PULSE_JOBS];
    assert_eq!(store.inspect().pulse(&most).await.expect("pulse").jobs.len(), MAX_PULSE_JOBS);
    let refused = store.inspect().pulse(&[most, vec![id(2)]].concat()).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}
