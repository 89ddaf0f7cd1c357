//! Machines: steps under one claim, their transitions, and what halts a machine between two steps.

use windlass_model::{
    ClaimedJob, CommitOutcome, Epoch, NewJob, Outcome, Payload, Reason, Rev, State, StepWrites, Wait,
    WorkerId,
};

use super::kit::*;
use crate::{ControlOutcome, JobAction, ReapRequest, TransitionCount};

/// Submits job `n` as a machine in its first stage and claims it for a worker of the same number.
async fn running_machine(store: &Handle, n: u32) -> (WorkerId, ClaimedJob) {
    let holder = worker(store, i64::from(n)).await;
    submit(store, &[machine(n, "Begin")]).await;
    (holder, claim_one(store, 0, holder, 1).await)
}

fn next(worker: WorkerId, job: &ClaimedJob, step: StepWrites) -> windlass_model::Change {
    with_step(change(worker, job, Outcome::Next), step)
}

pub async fn a_step_continues_under_the_same_claim(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    assert_eq!((first.stage.as_deref(), &first.data, first.rev), (Some("Begin"), &None, Rev(0)));
    let before = gates(&store, &[QUEUE, crate::TIMER_GATE]).await;
    assert_eq!(
        commit(&store, 2, next(me, &first, step("Begin", "Charge", "1"))).await,
        CommitOutcome::Committed
    );
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.epoch, seen.rev), (State::Running, first.epoch, Rev(1)));
    assert_eq!((seen.summary.stage.as_deref(), seen.data), (Some("Charge"), Some(payload("1"))));
    assert_eq!((seen.worker, claim_count(&store, me).await), (Some(me), 1));
    assert_eq!(gates(&store, &[QUEUE, crate::TIMER_GATE]).await, before, "no queue gained anything");
    let second = after_step(&first);
    assert_eq!(
        commit(&store, 3, next(me, &second, step("Charge", "Ship", "2"))).await,
        CommitOutcome::Committed
    );
    assert_eq!(commit(&store, 3, next(me, &first, step("Begin", "Other", "9"))).await, CommitOutcome::Fenced);
    let third = after_step(&second);
    let end = with_step(
        change(me, &third, done("x")),
        StepWrites { from_stage: Some("Ship".into()), ..StepWrites::default() },
    );
    assert_eq!(commit(&store, 4, end).await, CommitOutcome::Committed);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.rev, seen.epoch), (State::Done, Rev(3), Epoch(0)));
    assert_eq!(seen.summary.stage.as_deref(), Some("Ship"), "the stage it ended in");
    assert!(history(&store, id(1)).await.is_empty());
}

pub async fn every_claim_of_a_machine_continues_after_its_last_step(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    apply(&store, 2, next(me, &first, step("Begin", "Charge", "1"))).await;
    let again = claim(&store, at(2), &claim_request(me, 1, 1)).await.remove(0);
    assert_eq!((again.rev, again.epoch), (Rev(1), first.epoch), "the claim is the same");
    assert_eq!((again.stage.as_deref(), again.data), (Some("Charge"), Some(payload("1"))));
    let two = worker(&store, 2).await;
    reap(&store, 3, me).await;
    let other = claim(&store, at(3), &solo_claim_request(two, 1)).await.remove(0);
    let claim_of_two = job_claim(two, &other);
    assert_eq!((other.rev, other.stage.as_deref(), other.data), (Rev(1), Some("Charge"), Some(payload("1"))));
    assert_eq!(other.input, job(1).input, "its input is unchanged");
    assert_eq!(
        commit(&store, 4, next(me, &after_step(&first), step("Charge", "Ship", "2"))).await,
        CommitOutcome::Fenced
    );
    assert_eq!(transitions(&store, 1).await.len(), 1, "the fenced change wrote nothing");
    store.release(at(5), &[claim_of_two]).await.expect("release");
    let third = claim(&store, at(5), &solo_claim_request(two, 2)).await.remove(0);
    assert_eq!((third.stage.as_deref(), third.data), (Some("Charge"), Some(payload("1"))));
}

pub async fn transitions_are_recorded_with_next_stage_and_outcome(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    let stay = |ran: &str| StepWrites { from_stage: Some(ran.into()), ..StepWrites::default() };
    apply(&store, 2, next(me, &first, step("Begin", "Charge", "1"))).await;
    let job = after_step(&first);
    apply(&store, 3, next(me, &job, stay("Charge"))).await;
    let job = after_step(&job);
    apply(&store, 4, next(me, &job, StepWrites { from_stage: None, ..step("", "Ship", "2") })).await;
    let job = after_step(&job);
    apply(&store, 5, with_step(change(me, &job, Outcome::Wait(Wait::YIELD)), stay("Ship"))).await;
    let job = claim_one(&store, 5, me, 2).await;
    apply(&store, 6, with_step(change(me, &job, wait_for_signal("go", Some(secs(4)))), stay("Ship"))).await;
    fire_timers(&store, 10, 9).await;
    let job = claim_one(&store, 10, me, 3).await;
    apply(&store, 11, with_step(change(me, &job, retry(secs(0), &[])), stay("Ship"))).await;
    let job = claim_one(&store, 11, me, 4).await;
    apply(&store, 12, with_step(change(me, &job, wait_for_children(&job)), step("Ship", "Last", "3"))).await;
    let job = claim_one(&store, 12, me, 5).await;
    apply(&store, 13, with_step(change(me, &job, failed(Reason::Stopped)), stay("Last"))).await;
    let all = transitions(&store, 1).await;
    let recorded: Vec<_> = all
        .iter()
        .map(|step| (step.rev.0, step.stage.as_str(), step.next.as_deref(), step.outcome.as_str()))
        .collect();
    let expected = [
        (1, "Begin", Some("Charge"), "next"),
        (2, "Charge", Some("Charge"), "next"),
        (4, "Ship", Some("Ship"), "next"),
        (5, "Ship", Some("Ship"), "wait"),
        (6, "Ship", Some("Ship"), "retry"),
        (7, "Ship", Some("Last"), "children"),
        (8, "Last", None, "failed"),
    ];
    assert_eq!(recorded, expected);
    assert!(all.iter().all(|step| step.worker == me) && all[0].at == t(2) && all[6].at == t(13));
    let page = store.inspect().transitions(id(1), Some(Rev(2)), 2).await.expect("transitions");
    assert_eq!(page, all[2..4]);
    assert!(store.inspect().transitions(id(9), None, 9).await.expect("transitions").is_empty());
}

pub async fn transition_counts_cover_the_newest_jobs(store: Handle) {
    let me = worker(&store, 1).await;
    let newer = NewJob { kind: kind(KIND, 2), ..machine(3, "Begin") };
    submit(&store, &[machine(1, "Begin"), machine(2, "Begin"), newer, job_in(4, "other", QUEUE)]).await;
    let request =
        crate::ClaimRequest { kinds: [kind(KIND, 1), kind(KIND, 2)].into(), ..claim_request(me, 1, 9) };
    for job in claim(&store, at(0), &request).await {
        apply(&store, 1, next(me, &job, step("Begin", "Charge", "1"))).await;
        let end = StepWrites { from_stage: Some("Charge".into()), ..StepWrites::default() };
        apply(&store, 2, with_step(change(me, &after_step(&job), done("x")), end)).await;
    }
    let transition = |version, stage: &str, next: Option<&str>, how: &str, times| TransitionCount {
        version,
        stage: stage.into(),
        next: next.map(str::to_owned),
        outcome: how.into(),
        times,
    };
    let counts = async |kind, limit| store.inspect().transition_counts(kind, limit).await.expect("counts");
    let expected = |version, times| {
        [
            transition(version, "Begin", Some("Charge"), "next", times),
            transition(version, "Charge", None, "done", times),
        ]
    };
    assert_eq!(counts(KIND, 9).await, [expected(1, 2), expected(2, 1)].concat());
    assert_eq!(counts(KIND, 2).await, [expected(1, 1), expected(2, 1)].concat(), "the newest two");
    assert!(counts("other", 9).await.is_empty() && counts("unknown", 9).await.is_empty());
}

pub async fn every_step_resets_attempts_and_retry_counts(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    apply(&store, 1, change(me, &first, retry(secs(0), &[3, 4]))).await;
    let second = claim_one(&store, 1, me, 2).await;
    assert_eq!((second.attempts, second.retry_counts.as_slice()), (1, [3, 4].as_slice()));
    reap(&store, 2, me).await;
    let two = worker(&store, 2).await;
    let third = claim(&store, at(2), &solo_claim_request(two, 1)).await.remove(0);
    assert_eq!((third.attempts, third.worker_deaths), (1, 1));
    apply(&store, 3, next(two, &third, step("Begin", "Charge", "1"))).await;
    let seen = view(&store, id(1)).await;
    assert_eq!(
        (seen.summary.attempts, seen.worker_deaths, seen.solo_crashes, seen.retry_counts),
        (0, 0, 0, vec![])
    );
    assert!(!holds(&store, 1).await.suspect);
    assert_eq!(history(&store, id(1)).await.len(), 2, "the history is kept");
    let mut job = after_step(&third);
    for attempts in 1..=3 {
        let same = StepWrites { unchanged: true, ..step("Charge", "Charge", "1") };
        apply(&store, 4, next(two, &job, same)).await;
        assert_eq!(view(&store, id(1)).await.summary.attempts, attempts, "its stage is unchanged");
        job = after_step(&job);
    }
    apply(&store, 5, with_step(change(two, &job, wait_for_signal("go", None)), step("Charge", "Ship", "2")))
        .await;
    assert_eq!(view(&store, id(1)).await.summary.attempts, 0);
}

pub async fn a_retry_keeps_the_data_that_the_step_saved(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    let saved = StepWrites { from_stage: None, ..step("", "Begin", "so far") };
    apply(&store, 1, with_step(change(me, &first, retry(secs(0), &[])), saved)).await;
    let second = claim_one(&store, 1, me, 2).await;
    assert_eq!(
        (second.stage.as_deref(), second.data, second.attempts),
        (Some("Begin"), Some(payload("so far")), 1)
    );
    assert!(transitions(&store, 1).await.is_empty(), "nothing was recorded");
}

pub async fn a_retry_without_a_failure_adds_no_history(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    apply(&store, 1, change(me, &first, retry(secs(0), &[1]))).await;
    let second = claim_one(&store, 1, me, 2).await;
    let again = Outcome::Retry { after: secs(5), retry_counts: vec![2], failure: None };
    assert_eq!(commit(&store, 2, change(me, &second, again)).await, CommitOutcome::Committed);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.summary.due_at), (State::Scheduled, t(7)));
    assert_eq!((seen.summary.attempts, seen.retry_counts), (2, vec![2]), "it counts as an attempt");
    assert_eq!(history(&store, id(1)).await.len(), 1, "only of the first");
    assert_eq!(seen.failure.expect("of the first").message, "once more");
}

pub async fn a_paused_machine_halts_after_its_step(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    assert_eq!(act_on_job(&store, 1, 1, JobAction::Pause).await, ControlOutcome::Done);
    let go = next(me, &first, step("Begin", "Charge", "1"));
    assert_eq!(commit(&store, 2, go.clone()).await, CommitOutcome::Halted);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.rev, seen.epoch), (State::Ready, Rev(1), Epoch(1)));
    assert_eq!(seen.summary.stage.as_deref(), Some("Charge"), "the step is written");
    assert_eq!(transitions(&store, 1).await.len(), 1);
    assert_eq!(commit(&store, 2, go).await, CommitOutcome::Halted, "the same when repeated");
    assert_eq!(transitions(&store, 1).await.len(), 1);
    assert_eq!(
        commit(&store, 3, next(me, &after_step(&first), step("Charge", "Ship", "2"))).await,
        CommitOutcome::Fenced
    );
    assert!(claim(&store, at(3), &claim_request(me, 2, 9)).await.is_empty());
    assert_eq!(act_on_job(&store, 4, 1, JobAction::Resume).await, ControlOutcome::Done);
    let second = claim_one(&store, 4, me, 3).await;
    assert_eq!((second.stage.as_deref(), second.due_at), (Some("Charge"), t(2)));
}

pub async fn a_machine_being_cancelled_halts_after_its_step(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    assert_eq!(act_on_job(&store, 1, 1, cancel(60)).await, ControlOutcome::CancelRequested);
    assert_eq!(
        commit(&store, 2, next(me, &first, step("Begin", "Charge", "1"))).await,
        CommitOutcome::Halted
    );
    assert!(claim(&store, at(3), &claim_request(me, 2, 9)).await.is_empty(), "it is not claimed again");
    assert_eq!(fire_timers(&store, 61, 9).await.cancelled, 1);
    assert_eq!(state(&store, id(1)).await, State::Cancelled);
    assert!(store.cancel_requests(me).await.expect("cancel requests").is_empty());
}

pub async fn a_resumed_machine_does_not_halt(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    must_act(&store, 1, 1, JobAction::Pause).await;
    must_act(&store, 1, 1, JobAction::Resume).await;
    assert_eq!(
        commit(&store, 2, next(me, &first, step("Begin", "Charge", "1"))).await,
        CommitOutcome::Committed
    );
    assert_eq!(state(&store, id(1)).await, State::Running);
}

pub async fn a_yield_lets_other_jobs_run_first(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    submit(&store, &[job(2)]).await;
    let before = gates(&store, &[QUEUE]).await;
    let yields = with_step(change(me, &first, Outcome::Wait(Wait::YIELD)), step("Begin", "Charge", "1"));
    assert_eq!(commit(&store, 5, yields.clone()).await, CommitOutcome::Committed);
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.epoch, seen.wait), (State::Ready, Epoch(1), None));
    assert_eq!(commit(&store, 5, yields).await, CommitOutcome::Committed, "the same when repeated");
    let claimed = claim(&store, at(6), &claim_request(me, 2, 9)).await;
    assert_eq!(ids(&claimed), [id(2), id(1)], "behind jobs that were ready before");
    assert_eq!(claimed[1].due_at, t(5));
}

pub async fn a_repeated_step_returns_the_same_outcome(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    let go = next(me, &first, step("Begin", "Charge", "1"));
    for _ in 0..3 {
        assert_eq!(commit(&store, 1, go.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!((view(&store, id(1)).await.rev, transitions(&store, 1).await.len()), (Rev(1), 1));
    reap(&store, 2, me).await;
    assert_eq!(
        commit(&store, 3, go.clone()).await,
        CommitOutcome::Halted,
        "it is committed, and the claim has ended"
    );
    let two = worker(&store, 2).await;
    let second = claim(&store, at(3), &solo_claim_request(two, 1)).await.remove(0);
    apply(&store, 4, next(two, &second, step("Charge", "Ship", "2"))).await;
    assert_eq!(commit(&store, 5, go).await, CommitOutcome::Fenced, "another step followed");
    let third = after_step(&second);
    let parks = with_step(change(two, &third, wait_for_signal("go", None)), step("Ship", "Last", "3"));
    for _ in 0..2 {
        assert_eq!(commit(&store, 6, parks.clone()).await, CommitOutcome::Committed);
    }
    assert_eq!((state(&store, id(1)).await, transitions(&store, 1).await.len()), (State::Waiting, 3));
    send(&store, 7, &[signal(id(1), "go", "1", "x")]).await;
    claim_one(&store, 7, two, 2).await;
    assert_eq!(commit(&store, 8, parks).await, CommitOutcome::Committed, "until the next change");
    assert_eq!(state(&store, id(1)).await, State::Running);
}

pub async fn large_data_is_stored_and_replaced(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    let sized = |len: usize| Payload { codec: 5, bytes: vec![len as u8; len] };
    let to = |len| StepWrites { stage: Some(("Big".into(), sized(len))), ..StepWrites::default() };
    let mut job = first;
    for len in [40_000, 300_000, 10, 0, 100_000, 20] {
        assert_eq!(commit(&store, 1, next(me, &job, to(len))).await, CommitOutcome::Committed, "{len}");
        assert_eq!(view(&store, id(1)).await.data, Some(sized(len)));
        job = after_step(&job);
    }
    apply(&store, 2, with_step(change(me, &job, retry(secs(0), &[])), to(50_000))).await;
    let job = claim_one(&store, 2, me, 2).await;
    assert_eq!(job.data, Some(sized(50_000)));
    apply(&store, 3, with_step(change(me, &job, wait_for_signal("go", None)), to(60_000))).await;
    send(&store, 4, &[signal(id(1), "go", "1", "x")]).await;
    let job = claim_one(&store, 4, me, 3).await;
    assert_eq!(job.data, Some(sized(60_000)));
    apply(&store, 5, with_step(change(me, &job, Outcome::Wait(Wait::YIELD)), to(7))).await;
    assert_eq!(claim_one(&store, 5, me, 4).await.data, Some(sized(7)));
}

pub async fn an_invalid_step_is_refused_alone(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 6)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let large = Payload::json(vec![b'1'; store.limits().payload + 1]);
    let mut charged = job(50);
    charged.settings.rate = Some(Box::new(windlass_model::RateCharge { limit: "unknown".into(), weight: 1 }));
    let changes = [
        next(me, &claimed[0], StepWrites { stage: Some(("Begin".into(), large)), ..StepWrites::default() }),
        next(me, &claimed[1], step("Begin", "", "1")),
        change(me, &claimed[2], wait_for_signals(&[], 1, None)),
        change(me, &claimed[3], wait_for_signal("go", Some(secs(0)))),
        with_step(
            change(me, &claimed[4], wait_for_children(&claimed[4])),
            spawn_children(&[job(51), charged]),
        ),
        next(me, &claimed[5], step("Begin", "Charge", "1")),
    ];
    let results = store.commit(at(1), &changes).await.expect("commit");
    for (n, text) in ["allowed", "empty", "names no signal", "is zero", "does not exist"].iter().enumerate() {
        assert!(matches!(&results[n], CommitOutcome::Refused(why) if why.contains(text)), "{:?}", results[n]);
        let seen = view(&store, claimed[n].id).await;
        assert_eq!((seen.rev, seen.summary.state), (Rev(0), State::Running));
    }
    assert_eq!(results[5], CommitOutcome::Committed);
    assert_eq!(list(&store, all_jobs()).await.len(), 6, "no child was submitted");
}

pub async fn a_suspect_that_completes_a_step_is_an_ordinary_job(store: Handle) {
    let (me, first) = running_machine(&store, 1).await;
    reap(&store, 1, me).await;
    let two = worker(&store, 2).await;
    let job = claim(&store, at(1), &solo_claim_request(two, 1)).await.remove(0);
    assert_eq!(
        commit(&store, 2, next(two, &job, step("Begin", "Charge", "1"))).await,
        CommitOutcome::Committed
    );
    // Deaths and crashes are counted from the last step on.
    let request = ReapRequest { dead: vec![two], lapsed: false, limit: 9, max_crashes: 2 };
    assert_eq!(store.reap(at(3), &request).await.expect("reap").returned, 1);
    let seen = view(&store, first.id).await;
    assert_eq!((seen.worker_deaths, seen.solo_crashes), (1, 1));
}
