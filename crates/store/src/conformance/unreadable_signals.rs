//! Signals that an attempt could not read: its commit marks them unreadable, and people restore or drop them.

use windlass_model::{ClaimedJob, CommitOutcome, Outcome, State, StepWrites, UnreadableSignal, WorkerId};

use super::{
    kit::*,
    races::race,
    signal::{KEPT, WOKE, commit_and_consume, parked, to_first},
};
use crate::{AuditFilter, ControlOutcome, JobAction, SignalOutcome};

/// A step that marks the signals it was given as unreadable.
fn unreadable_writes(job: &ClaimedJob) -> StepWrites {
    let unreadable = selected_signals(job)
        .iter()
        .map(|signal| UnreadableSignal::new(signal.number, "it is no number"))
        .collect();
    StepWrites { unreadable, ..StepWrites::default() }
}

/// Commits an outcome and marks the signals that the step was given as unreadable.
async fn commit_unreadable(
    store: &Handle,
    now: u64,
    me: WorkerId,
    job: &ClaimedJob,
    outcome: Outcome,
) -> CommitOutcome {
    commit(store, now, with_step(change(me, job, outcome), unreadable_writes(job))).await
}

/// The payloads of job 1's unreadable signals, and why they are unreadable.
async fn unreadable(store: &Handle) -> Vec<(String, String)> {
    let inbox = store.inspect().inbox(id(1), 10_000).await.expect("inbox");
    let unreadable = inbox.iter().filter(|signal| signal.unreadable.is_some());
    unreadable
        .map(|signal| {
            (texts(std::slice::from_ref(signal)).remove(0), signal.unreadable.clone().unwrap_or_default())
        })
        .collect()
}

/// The number of job 1's signal with this payload.
async fn number(store: &Handle, text: &str) -> i64 {
    let inbox = store.inspect().inbox(id(1), 10_000).await.expect("inbox");
    inbox
        .iter()
        .find(|signal| texts(std::slice::from_ref(signal)) == [text])
        .expect("the signal exists")
        .number
}

/// Parks job 1, sends it a signal, and commits that it is unreadable.
async fn parked_with_unreadable(store: &Handle) -> WorkerId {
    let me = parked(store, 1, wait_for_signal("go", None)).await;
    assert_eq!(send(store, 2, &[to_first("go", "bad")]).await, [WOKE]);
    let job = claim_one(store, 3, me, 2).await;
    assert_eq!(
        commit_unreadable(store, 4, me, &job, wait_for_signal("go", None)).await,
        CommitOutcome::Committed
    );
    me
}

pub async fn an_unreadable_signal_does_not_end_a_wait(store: Handle) {
    let me = parked_with_unreadable(&store).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    assert!(claim(&store, at(5), &claim_request(me, 3, 9)).await.is_empty());
    assert_eq!(store.repair(at(5)).await.expect("repair"), 0, "no wake was missed");
    assert_eq!(unreadable(&store).await, [("bad".to_owned(), "it is no number".to_owned())]);
    let waiting = holds(&store, 1).await.waiting.expect("the job is parked");
    assert!(waiting.arrived.is_empty(), "{waiting:?}");
    let shown: Vec<(&str, &str)> =
        waiting.unreadable.iter().map(|signal| (signal.name.as_str(), signal.why.as_str())).collect();
    assert_eq!(shown, [("go", "it is no number")]);

    assert_eq!(send(&store, 6, &[to_first("go", "good")]).await, [WOKE]);
    let job = claim_one(&store, 7, me, 4).await;
    assert_eq!(
        (texts(&job.inbox), texts(&selected_signals(&job))),
        (vec!["good".to_owned()], vec!["good".to_owned()])
    );
    assert_eq!(commit_and_consume(&store, 8, me, &job, done("x")).await, CommitOutcome::Committed);
    assert_eq!(inbox(&store, 1).await, ["bad"], "an unreadable signal is kept as long as its job");
}

pub async fn the_next_signal_of_the_name_ends_the_wait(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    send(&store, 2, &[to_first("go", "bad"), to_first("go", "good")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(
        commit_unreadable(&store, 4, me, &job, wait_for_signal("go", None)).await,
        CommitOutcome::Committed
    );
    assert_eq!(state(&store, id(1)).await, State::Ready);
    assert_eq!(texts(&selected_signals(&claim_one(&store, 5, me, 3).await)), ["good"]);
}

pub async fn a_wait_for_several_signals_counts_readable_ones_only(store: Handle) {
    let me = parked(&store, 1, wait_for_signals(&["a*", "b"], 2, Some(secs(90)))).await;
    send(&store, 2, &[to_first("a", "1"), to_first("b", "2"), to_first("a", "3")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(texts(&selected_signals(&job)), ["1", "2", "3"]);
    let bad = UnreadableSignal::new(job.inbox[1].number, "it is no number");
    let step = StepWrites { unreadable: vec![bad], ..StepWrites::default() };
    let again = wait_for_signals(&["a*", "b"], 2, Some(secs(90)));
    apply(&store, 4, with_step(change(me, &job, again), step)).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting, "no readable signal b arrived");
    assert_eq!(holds(&store, 1).await.waiting.expect("the job is parked").arrived, ["a"]);
    assert_eq!(send(&store, 5, &[to_first("a", "4")]).await, [KEPT]);
    assert_eq!(send(&store, 6, &[to_first("b", "5")]).await, [WOKE]);
    assert_eq!(texts(&selected_signals(&claim_one(&store, 7, me, 3).await)), ["1", "3", "4", "5"]);
}

pub async fn a_wait_times_out_despite_an_unreadable_signal(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", Some(secs(10)))).await;
    send(&store, 2, &[to_first("go", "bad")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    let _ = commit_unreadable(&store, 4, me, &job, wait_for_signal("go", Some(secs(7)))).await;
    fire_timers(&store, 11, 9).await;
    let job = claim_one(&store, 11, me, 3).await;
    assert!(job.inbox.is_empty() && !job.wait_is_met(), "{job:?}");
}

pub async fn only_a_committed_change_marks_signals_unreadable(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    send(&store, 2, &[to_first("go", "bad")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    let mut late = with_step(change(me, &job, wait_for_signal("go", None)), unreadable_writes(&job));
    late.rev.0 += 1;
    assert_eq!(commit(&store, 4, late.clone()).await, CommitOutcome::Fenced, "the revision differs");
    (late.rev.0, late.epoch.0) = (late.rev.0 - 1, late.epoch.0 - 1);
    assert_eq!(commit(&store, 4, late).await, CommitOutcome::Fenced, "the epoch differs");
    assert!(unreadable(&store).await.is_empty());

    let step = with_step(change(me, &job, Outcome::Next), unreadable_writes(&job));
    assert_eq!(commit(&store, 5, step.clone()).await, CommitOutcome::Committed, "with a step that continues");
    assert_eq!(unreadable(&store).await.len(), 1);
    let number = number(&store, "bad").await;
    assert_eq!(act_on_job(&store, 6, 1, JobAction::RestoreSignal(number)).await, ControlOutcome::Done);
    assert_eq!(commit(&store, 7, step).await, CommitOutcome::Committed, "the commit is repeated");
    assert!(unreadable(&store).await.is_empty(), "the repeat writes nothing");
}

pub async fn unreadable_signals_do_not_fill_the_inbox(store: Handle) {
    let most = store.limits().inbox;
    let wait = wait_for_signal("go*", None);
    let me = parked(&store, 1, wait.clone()).await;
    let signals: Vec<_> = (0..most).map(|n| to_first("go", &n.to_string())).collect();
    send(&store, 2, &signals).await;
    assert_eq!(send(&store, 3, &[to_first("go", "more")]).await, [SignalOutcome::Full]);
    let job = claim_one(&store, 4, me, 2).await;
    let StepWrites { unreadable: mut signals, .. } = unreadable_writes(&job);
    assert_eq!(signals.len(), most);
    let last = signals.split_off(most - 1);
    let all_but_one = StepWrites { unreadable: signals, ..StepWrites::default() };
    apply(&store, 5, with_step(change(me, &job, wait.clone()), all_but_one)).await;
    assert_eq!(
        send(&store, 6, &[to_first("go", "more")]).await,
        [KEPT],
        "the readable one has woken the job"
    );
    let job = claim_one(&store, 7, me, 3).await;
    apply(
        &store,
        8,
        with_step(change(me, &job, wait), StepWrites { unreadable: last, ..StepWrites::default() }),
    )
    .await;
    assert_eq!(unreadable(&store).await.len(), most);
    let full = send(&store, 9, &[to_first("go", "even more")]).await;
    assert_eq!(full, [SignalOutcome::Full], "the number of unreadable signals is limited too");
    assert_eq!(send(&store, 9, &[to_first("go", "0")]).await, [SignalOutcome::Duplicate]);
}

pub async fn a_signal_is_dropped_by_hand(store: Handle) {
    let me = parked_with_unreadable(&store).await;
    send(&store, 5, &[to_first("other", "waits")]).await;
    let (bad, other) = (number(&store, "bad").await, number(&store, "waits").await);
    assert!(
        matches!(
            act_on_job(&store, 6, 1, JobAction::DropSignal(bad + 1_000)).await,
            ControlOutcome::Refused(_)
        ),
        "no such signal"
    );
    assert_eq!(
        act_on_job(&store, 6, 2, JobAction::DropSignal(bad)).await,
        ControlOutcome::Unknown,
        "no such job"
    );
    assert_eq!(act_on_job(&store, 7, 1, JobAction::DropSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(inbox(&store, 1).await, ["waits"]);
    assert_eq!(
        send(&store, 8, &[to_first("go", "bad")]).await,
        [SignalOutcome::Duplicate],
        "the dedup id of a dropped signal is kept"
    );
    assert_eq!(send(&store, 8, &[to_first("go", "good")]).await, [WOKE]);
    let job = claim_one(&store, 9, me, 4).await;
    let outcome = act_on_job(&store, 10, 1, JobAction::DropSignal(other)).await;
    assert!(matches!(outcome, ControlOutcome::Refused(_)), "the attempt may have read it: {outcome:?}");
    let _ = commit_and_consume(&store, 11, me, &job, wait_for_signal("go", None)).await;
    assert_eq!(
        act_on_job(&store, 12, 1, JobAction::DropSignal(other)).await,
        ControlOutcome::Done,
        "a readable signal"
    );
    assert!(inbox(&store, 1).await.is_empty());
    let log =
        store.inspect().audit(&AuditFilter { limit: 9, ..AuditFilter::default() }).await.expect("audit");
    let log: Vec<(&str, &str)> =
        log.iter().map(|entry| (entry.action.as_str(), entry.subject.as_str())).collect();
    let (first, last) = (format!("drop signal {bad}"), format!("drop signal {other}"));
    let subject = id(1).to_string();
    assert_eq!(log, [(last.as_str(), subject.as_str()), (first.as_str(), subject.as_str())]);
}

pub async fn a_signal_is_restored_by_hand(store: Handle) {
    let me = parked_with_unreadable(&store).await;
    let bad = number(&store, "bad").await;
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(act_on_job(&store, 5, 1, JobAction::RestoreSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Ready, "the restored signal ends the wait");
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    let outcome = act_on_job(&store, 6, 1, JobAction::RestoreSignal(bad)).await;
    assert!(matches!(outcome, ControlOutcome::Already(_)), "{outcome:?}");
    assert!(matches!(
        act_on_job(&store, 6, 1, JobAction::RestoreSignal(bad + 1_000)).await,
        ControlOutcome::Refused(_)
    ));
    send(&store, 6, &[to_first("go", "later")]).await;
    let job = claim_one(&store, 7, me, 4).await;
    assert_eq!(
        (texts(&selected_signals(&job)), job.due_at),
        (vec!["bad".to_owned()], t(5)),
        "the restored signal keeps its position"
    );
    let _ = commit_unreadable(&store, 8, me, &job, wait_for_signal("stop", None)).await;
    assert_eq!(act_on_job(&store, 9, 1, JobAction::RestoreSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Waiting, "the job waits for another signal");
}

pub async fn a_restored_signal_of_an_ended_job_is_given_to_its_retry(store: Handle) {
    let me = parked_with_unreadable(&store).await;
    let bad = number(&store, "bad").await;
    send(&store, 5, &[to_first("go", "good")]).await;
    let job = claim_one(&store, 6, me, 4).await;
    apply(&store, 7, change(me, &job, failed(windlass_model::Reason::Stopped))).await;
    assert_eq!(act_on_job(&store, 8, 1, JobAction::RestoreSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(act_on_job(&store, 9, 1, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(texts(&selected_signals(&claim_one(&store, 10, me, 5).await)), ["bad"]);
}

pub async fn the_number_of_a_signal_is_never_used_again(store: Handle) {
    let me = parked_with_unreadable(&store).await;
    let bad = number(&store, "bad").await;
    assert_eq!(act_on_job(&store, 5, 1, JobAction::DropSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(send(&store, 6, &[to_first("go", "good")]).await, [WOKE]);
    let again = act_on_job(&store, 7, 1, JobAction::DropSignal(bad)).await;
    assert!(matches!(again, ControlOutcome::Refused(_)), "{again:?}");
    let job = claim_one(&store, 8, me, 3).await;
    assert_eq!(texts(&selected_signals(&job)), ["good"]);
    // The number of a consumed signal is not used again either.
    let good = number(&store, "good").await;
    let _ = commit_and_consume(&store, 9, me, &job, wait_for_signal("go", None)).await;
    send(&store, 10, &[to_first("go", "last")]).await;
    assert!(number(&store, "last").await > good && good > bad);
}

pub async fn a_dropped_signal_is_delivered_to_no_claim(store: Handle) {
    let me = worker(&store, 1).await;
    for n in 1..=30_u32 {
        submit(&store, &[machine(n, "Begin")]).await;
        let job = claim_one(&store, 0, me, i64::from(n) * 2).await;
        apply(&store, 1, change(me, &job, wait_for_signal("go", None))).await;
        send(&store, 2, &[signal(id(n), "go", "1", "x")]).await;
        let number = store.inspect().inbox(id(n), 9).await.expect("inbox")[0].number;
        let request = claim_request(me, i64::from(n) * 2 + 1, 1);
        let claimer = async move |store: Handle| store.claim(at(3), &request).await.expect("claim").jobs;
        let dropper = async move |store: Handle| {
            let actor = crate::Actor::new("someone");
            store
                .control()
                .act_on_jobs(at(3), &[id(n)], JobAction::DropSignal(number), &actor)
                .await
                .expect("act")
                .remove(0)
        };
        let (taken, outcome) = race(&store, claimer, dropper).await;
        let delivered = taken.iter().any(|job| job.inbox.iter().any(|signal| signal.number == number));
        assert!(!delivered || outcome != ControlOutcome::Done, "round {n}: {taken:?}, {outcome:?}");
        // A later claim still finds the job.
        if taken.is_empty() {
            claim_one(&store, 4, me, i64::from(n) * 2 + 1).await;
        }
    }
}
