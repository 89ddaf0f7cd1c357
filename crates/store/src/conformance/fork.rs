//! Forks: jobs that continue from an entry in the journal of another.

use windlass_model::{
    ClaimedJob, CommitOutcome, Epoch, NewJob, Outcome, Payload, RateCharge, RateLimit, Reason, Rev, Serial,
    State, StepWrites, Unique, WorkerId,
    journal::{CallEvent, CallKind},
};

use super::kit::*;
use crate::{AdminAction, AuditFilter, ClaimRequest, ControlOutcome, Error, Fork, JobAction};

/// A fork of job 1 before an entry, as job `n`.
fn before(seq: i32, n: u32) -> Fork {
    Fork { from: id(1), id: id(n), before: seq, key: None }
}

async fn fork(store: &Handle, now: u64, fork: Fork) -> ControlOutcome {
    let mut outcome = store.control().fork(at(now), &[fork], &actor()).await.expect("fork");
    assert_eq!(outcome.len(), 1);
    outcome.remove(0)
}

/// Submits and claims job 1, and commits a step with four entries.
async fn running_with_entries(store: &Handle, new: NewJob) -> (WorkerId, ClaimedJob) {
    let me = worker(store, 1).await;
    submit(store, &[new]).await;
    let job = claim_one(store, 0, me, 1).await;
    let entries = (0..4).map(|seq| entry(seq, "step", &seq.to_string())).collect();
    let step = with_step(change(me, &job, Outcome::Next), journal_writes(entries));
    assert_eq!(commit(store, 1, step).await, CommitOutcome::Committed);
    (me, after_step(&job))
}

/// The numbers of a job's entries, and whether the last entry records a fork of job 1.
async fn entries_of_fork(store: &Handle, n: u32) -> (Vec<i32>, bool) {
    let entries = journal(store, n).await;
    let last = entries.last().expect("not empty");
    let records_fork = (last.call_kind, last.event, last.name.as_str(), &last.payload)
        == (CallKind::Lifecycle, CallEvent::Begun, Fork::ENTRY, &payload(&format!("\"{}\"", id(1))));
    (entries.iter().map(|entry| entry.seq).collect(), records_fork)
}

pub async fn a_fork_continues_from_an_entry_or_the_end(store: Handle) {
    let (me, job) = running_with_entries(&store, job(1)).await;
    for (n, seq) in [(10, 0), (11, 2), (12, 4)] {
        assert_eq!(fork(&store, 5, before(seq, n)).await, ControlOutcome::Created(id(n)));
        assert_eq!(entries_of_fork(&store, n).await, ((0..=seq).collect(), true));
        assert_eq!(journal(&store, n).await[..seq as usize], journal(&store, 1).await[..seq as usize]);
        let seen = view(&store, id(n)).await;
        assert_eq!((seen.summary.state, seen.epoch, seen.rev), (State::Ready, Epoch(0), Rev(1)));
        assert_eq!((seen.summary.submitted_at, seen.summary.due_at), (t(5), t(5)));
    }
    assert_eq!(journal(&store, 1).await.len(), 4, "the journal of the original is not changed");
    assert_eq!(commit(&store, 6, change(me, &job, done("x"))).await, CommitOutcome::Committed);
    let claimed = claim(&store, at(6), &claim_request(me, 2, 9)).await;
    assert_eq!(ids(&claimed), [10, 11, 12].map(id));
    let step = journal_writes(vec![entry(3, "other", "x")]);
    let next = with_step(change(me, &claimed[1], Outcome::Next), step);
    assert_eq!(commit(&store, 7, next.clone()).await, CommitOutcome::Committed);
    assert_eq!(commit(&store, 7, next).await, CommitOutcome::Committed, "the same when repeated");
    assert_eq!(journal(&store, 11).await.len(), 4);
    assert_eq!(journal(&store, 1).await[3], entry(3, "step", "3"));
}

pub async fn a_job_without_a_journal_is_forked_from_its_beginning(store: Handle) {
    submit(&store, &[job(1)]).await;
    assert_eq!(fork(&store, 1, before(0, 2)).await, ControlOutcome::Created(id(2)));
    assert_eq!(entries_of_fork(&store, 2).await, (vec![0], true));
    assert!(matches!(fork(&store, 1, before(1, 3)).await, ControlOutcome::Refused(_)));
}

pub async fn a_fork_before_an_entry_that_does_not_exist_is_refused(store: Handle) {
    let (me, job) = running_with_entries(&store, job(1)).await;
    let forget = StepWrites { forget_entries: vec![2], ..StepWrites::default() };
    apply(&store, 2, with_step(change(me, &job, Outcome::Next), forget)).await;
    for seq in [-1, 2, 5, 99] {
        let outcome = fork(&store, 3, before(seq, 10)).await;
        assert!(
            matches!(&outcome, ControlOutcome::Refused(why) if why.contains(&seq.to_string())),
            "{outcome:?}"
        );
    }
    let unknown = Fork { from: id(77), ..before(0, 10) };
    assert_eq!(fork(&store, 3, unknown).await, ControlOutcome::Unknown);
    assert!(store.inspect().job(id(10)).await.expect("job").is_none());
    assert_eq!(fork(&store, 3, before(3, 10)).await, ControlOutcome::Created(id(10)));
    assert_eq!(entries_of_fork(&store, 10).await, (vec![0, 1, 3], true));
}

pub async fn a_repeated_fork_creates_one_job(store: Handle) {
    let (me, _) = running_with_entries(&store, job(1)).await;
    for now in 2..5 {
        assert_eq!(fork(&store, now, before(2, 10)).await, ControlOutcome::Created(id(10)));
    }
    assert_eq!(entries_of_fork(&store, 10).await, (vec![0, 1, 2], true));
    assert_eq!(view(&store, id(10)).await.summary.submitted_at, t(2));
    assert_eq!(claim(&store, at(5), &claim_request(me, 2, 9)).await.len(), 1);
    let audit =
        store.inspect().audit(&AuditFilter { limit: 9, ..AuditFilter::default() }).await.expect("audit");
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert_eq!(
        (audit[0].subject.as_str(), audit[0].author.as_str()),
        (id(1).to_string().as_str(), "someone")
    );
    assert_eq!(audit[0].action, format!("fork before entry 2 as {}", id(10)));
}

pub async fn a_fork_with_a_taken_key_is_refused(store: Handle) {
    running_with_entries(&store, NewJob { key: Some("k".into()), ..job(1) }).await;
    let with_key = |key: &str, n| Fork { key: Some(key.into()), ..before(2, n) };
    let outcome = fork(&store, 2, with_key("k", 10)).await;
    assert!(
        matches!(&outcome, ControlOutcome::Refused(why) if why.contains(&id(1).to_string())),
        "{outcome:?}"
    );
    assert_eq!(fork(&store, 2, with_key("other", 10)).await, ControlOutcome::Created(id(10)));
    assert_eq!(view(&store, id(10)).await.summary.key.as_deref(), Some("other"));
    assert!(matches!(fork(&store, 2, with_key("other", 11)).await, ControlOutcome::Refused(_)));
    assert_eq!(fork(&store, 2, before(2, 12)).await, ControlOutcome::Created(id(12)));
    assert_eq!(view(&store, id(12)).await.summary.key, None);
    for key in ["", "windlass.x"] {
        let forks = [with_key(key, 13)];
        let refused = store.control().fork(at(3), &forks, &actor()).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}

pub async fn a_fork_copies_the_job_without_key_name_deadline_signals_and_context(store: Handle) {
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 5, secs(10)))).await;
    let mut new = job_in(1, "other", "bulk");
    new.kind.version = 7;
    new.stage = Some("Begin".into());
    new.priority = 3;
    new.tags = vec!["red".into(), "blue".into()];
    new.options = Some("{\"a\":1}".into());
    new.deadline_at = Some(t(600));
    new.input = Payload { codec: 2, bytes: vec![1; 60_000] };
    new.digest = [9; 16];
    new.key = Some("k".into());
    new.signals = vec![signal(id(1), "go", "1", "x")];
    new.settings.timeout = Some(secs(77));
    new.settings.unique = Some(Box::new(Unique::new("name")));
    new.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight: 2 }));
    submit(&store, &[new]).await;
    let me = worker(&store, 1).await;
    let request = |number| ClaimRequest {
        queue: "bulk".into(),
        kinds: [kind("other", 7)].into(),
        ..claim_request(me, number, 9)
    };
    let job = claim(&store, at(1), &request(1)).await.remove(0);
    let large = Payload { codec: 3, bytes: vec![4; 50_000] };
    let step = StepWrites {
        stage: Some(("Second".into(), large.clone())),
        context: vec![("name".into(), payload("value"))],
        has_undo: true,
        ..journal_writes(vec![entry(0, "charge", "x")])
    };
    apply(&store, 2, with_step(change(me, &job, Outcome::Wait(windlass_model::Wait::YIELD)), step)).await;
    assert_eq!(act_on_job(&store, 2, 1, JobAction::Priority(5)).await, ControlOutcome::Done);
    assert_eq!(
        act_on_job(&store, 3, 1, cancel(0)).await,
        ControlOutcome::CancelRequested,
        "it is being unwound"
    );
    administer(&store, 3, AdminAction::Limit(RateLimit::per("api", 1, secs(10)))).await;
    assert_eq!(fork(&store, 4, before(1, 10)).await, ControlOutcome::Created(id(10)));
    let (original, seen) = (view(&store, id(1)).await, view(&store, id(10)).await);
    assert_eq!((seen.summary.kind.as_str(), seen.summary.version), ("other", 7));
    assert_eq!((seen.summary.queue.as_str(), seen.summary.priority), ("bulk", 5));
    assert_eq!(
        (&seen.tags, &seen.options, &seen.input),
        (&original.tags, &original.options, &original.input)
    );
    assert_eq!((seen.summary.stage.as_deref(), &seen.data), (Some("Second"), &Some(large)));
    assert_eq!((seen.settings.timeout, &seen.settings.rate), (Some(secs(77)), &original.settings.rate));
    assert_eq!((seen.settings.unique, seen.deadline_at, seen.parent), (None, None, None));
    assert_eq!((seen.unwind, seen.summary.key, seen.failure), (None, None, None));
    assert_eq!((inbox(&store, 10).await.len(), context(&store, 10).await.len()), (0, 0));
    assert_eq!(fire_timers(&store, 700, 9).await.expired, 0, "it has no timer");
    let tagged = crate::Filter { tag: Some("red".into()), ..all_jobs() };
    assert_eq!(list(&store, tagged).await, [id(10), id(1)]);
    let claimed = claim(&store, at(800), &request(2)).await;
    assert_eq!(ids(&claimed), [id(1)], "both are charged to the limit");
    let fork = claim(&store, at(900), &request(3)).await.remove(0);
    assert_eq!((fork.id, fork.stage.as_deref(), fork.stage_rev), (id(10), Some("Second"), Rev(0)));
    apply(&store, 901, change(me, &fork, wait_for_signal("go", None))).await;
    assert_eq!(
        act_on_job(&store, 902, 10, cancel(0)).await,
        ControlOutcome::CancelRequested,
        "it has to undo what its entries record"
    );
}

pub async fn a_job_in_any_state_can_be_forked(store: Handle) {
    let outcomes =
        [done("x"), failed(Reason::Diverged), cancelled(), wait_for_signal("go", None), retry(secs(9), &[])];
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 5)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    for (job, outcome) in claimed.iter().zip(outcomes) {
        apply(&store, 1, with_step(change(me, job, outcome), journal_writes(vec![entry(0, "a", "x")]))).await;
    }
    let forks: Vec<Fork> =
        (1..=5).map(|n| Fork { from: id(n), id: id(n + 20), before: 1, key: None }).collect();
    let outcome = store.control().fork(at(2), &forks, &actor()).await.expect("fork");
    assert_eq!(outcome, (21..=25).map(|n| ControlOutcome::Created(id(n))).collect::<Vec<_>>());
    let claimed = claim(&store, at(2), &claim_request(me, 2, 9)).await;
    assert_eq!(ids(&claimed), [21, 22, 23, 24, 25].map(id));
    assert!(claimed.iter().all(|job| job.wait.is_none() && job.attempts == 0 && job.unwind.is_none()));
}

pub async fn a_fork_of_a_job_with_a_serial_key_waits_in_line(store: Handle) {
    let mut new = job(1);
    new.settings.serial = Some(Box::new(Serial::new("k")));
    let (me, job) = running_with_entries(&store, new).await;
    assert_eq!(fork(&store, 2, before(4, 10)).await, ControlOutcome::Created(id(10)));
    assert!(claim(&store, at(2), &claim_request(me, 2, 9)).await.is_empty(), "its original holds the slot");
    apply(&store, 3, change(me, &job, done("x"))).await;
    assert_eq!(claim_one(&store, 3, me, 3).await.id, id(10));
}

pub async fn a_fork_moves_the_gate_and_other_handles_find_it(store: Handle) {
    let other = store.sibling().await.expect("sibling");
    let (me, _) = running_with_entries(&store, job(1)).await;
    let gate = gates(&store, &[QUEUE]).await;
    assert_eq!(fork(&other, 2, before(4, 10)).await, ControlOutcome::Created(id(10)));
    assert_ne!(gates(&store, &[QUEUE]).await, gate);
    assert_eq!(claim_one(&store, 2, me, 2).await.id, id(10));
}
