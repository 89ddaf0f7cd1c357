//! Signals that an attempt could not read: they are set aside by its commit, are there for people alone, and are dropped or
//! restored by them.

use windlass_model::{ClaimedJob, CommitOutcome, Outcome, State, StepWrites, UnreadableSignal, WorkerId};

use super::{
    kit::*,
    races::race,
    signal::{KEPT, WOKE, commit_and_consume, parked, to_first},
};
use crate::{AuditFilter, ControlOutcome, JobAction, SignalOutcome};

/// A step that sets aside what it was shown.
fn sets_aside(job: &ClaimedJob) -> StepWrites {
    let aside = selected_signals(job)
        .iter()
        .map(|signal| UnreadableSignal::new(signal.number, "it is no number"))
        .collect();
    StepWrites { unreadable: aside, ..StepWrites::default() }
}

/// Commits a job that could not read what it was shown.
async fn aside(store: &Handle, now: u64, me: WorkerId, job: &ClaimedJob, outcome: Outcome) -> CommitOutcome {
    commit(store, now, with_step(change(me, job, outcome), sets_aside(job))).await
}

/// What the signals say that were set aside, and why they were.
async fn kept(store: &Handle) -> Vec<(String, String)> {
    let inbox = store.inspect().inbox(id(1), 10_000).await.expect("inbox");
    let aside = inbox.iter().filter(|signal| signal.unreadable.is_some());
    aside
        .map(|signal| {
            (texts(std::slice::from_ref(signal)).remove(0), signal.unreadable.clone().unwrap_or_default())
        })
        .collect()
}

/// The number of the first job's signal that says this.
async fn number(store: &Handle, text: &str) -> i64 {
    let inbox = store.inspect().inbox(id(1), 10_000).await.expect("inbox");
    inbox.iter().find(|signal| texts(std::slice::from_ref(signal)) == [text]).expect("it is there").number
}

/// Parks the first job, sends it a signal, and has that set aside.
async fn with_one_aside(store: &Handle) -> WorkerId {
    let me = parked(store, 1, wait_for_signal("go", None)).await;
    assert_eq!(send(store, 2, &[to_first("go", "bad")]).await, [WOKE]);
    let job = claim_one(store, 3, me, 2).await;
    assert_eq!(aside(store, 4, me, &job, wait_for_signal("go", None)).await, CommitOutcome::Committed);
    me
}

pub async fn a_wait_goes_on_as_if_the_signal_had_not_come(store: Handle) {
    let me = with_one_aside(&store).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    assert!(claim(&store, at(5), &claim_request(me, 3, 9)).await.is_empty());
    assert_eq!(store.repair(at(5)).await.expect("sweep"), 0, "nothing was forgotten");
    assert_eq!(kept(&store).await, [("bad".to_owned(), "it is no number".to_owned())]);
    let waiting = holds(&store, 1).await.waiting.expect("it is parked");
    assert!(waiting.arrived.is_empty(), "{waiting:?}");
    let said: Vec<(&str, &str)> =
        waiting.aside.iter().map(|aside| (aside.name.as_str(), aside.why.as_str())).collect();
    assert_eq!(said, [("go", "it is no number")]);

    assert_eq!(send(&store, 6, &[to_first("go", "good")]).await, [WOKE]);
    let job = claim_one(&store, 7, me, 4).await;
    assert_eq!(
        (texts(&job.inbox), texts(&selected_signals(&job))),
        (vec!["good".to_owned()], vec!["good".to_owned()])
    );
    assert_eq!(commit_and_consume(&store, 8, me, &job, done("x")).await, CommitOutcome::Committed);
    assert_eq!(inbox(&store, 1).await, ["bad"], "it is kept for as long as the job is");
}

pub async fn the_next_of_its_name_ends_the_wait(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    send(&store, 2, &[to_first("go", "bad"), to_first("go", "good")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(aside(&store, 4, me, &job, wait_for_signal("go", None)).await, CommitOutcome::Committed);
    assert_eq!(state(&store, id(1)).await, State::Ready);
    assert_eq!(texts(&selected_signals(&claim_one(&store, 5, me, 3).await)), ["good"]);
}

pub async fn a_wait_for_several_needs_what_was_not_set_aside(store: Handle) {
    let me = parked(&store, 1, wait_for_signals(&["a*", "b"], 2, Some(secs(90)))).await;
    send(&store, 2, &[to_first("a", "1"), to_first("b", "2"), to_first("a", "3")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(texts(&selected_signals(&job)), ["1", "2", "3"]);
    let bad = UnreadableSignal::new(job.inbox[1].number, "it is no number");
    let step = StepWrites { unreadable: vec![bad], ..StepWrites::default() };
    let again = wait_for_signals(&["a*", "b"], 2, Some(secs(90)));
    commit(&store, 4, with_step(change(me, &job, again), step)).await;
    assert_eq!(state(&store, id(1)).await, State::Waiting, "there is no b");
    assert_eq!(holds(&store, 1).await.waiting.expect("it is parked").arrived, ["a"]);
    assert_eq!(send(&store, 5, &[to_first("a", "4")]).await, [KEPT]);
    assert_eq!(send(&store, 6, &[to_first("b", "5")]).await, [WOKE]);
    assert_eq!(texts(&selected_signals(&claim_one(&store, 7, me, 3).await)), ["1", "3", "4", "5"]);
}

pub async fn a_wait_ends_by_its_time_though_a_signal_was_set_aside(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", Some(secs(10)))).await;
    send(&store, 2, &[to_first("go", "bad")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    aside(&store, 4, me, &job, wait_for_signal("go", Some(secs(7)))).await;
    fire_timers(&store, 11, 9).await;
    let job = claim_one(&store, 11, me, 3).await;
    assert!(job.inbox.is_empty() && !job.wait_is_met(), "{job:?}");
}

pub async fn only_a_change_that_is_written_sets_aside(store: Handle) {
    let me = parked(&store, 1, wait_for_signal("go", None)).await;
    send(&store, 2, &[to_first("go", "bad")]).await;
    let job = claim_one(&store, 3, me, 2).await;
    let mut late = with_step(change(me, &job, wait_for_signal("go", None)), sets_aside(&job));
    late.rev.0 += 1;
    assert_eq!(commit(&store, 4, late.clone()).await, CommitOutcome::Fenced, "of another revision");
    (late.rev.0, late.epoch.0) = (late.rev.0 - 1, late.epoch.0 - 1);
    assert_eq!(commit(&store, 4, late).await, CommitOutcome::Fenced, "of another epoch");
    assert!(kept(&store).await.is_empty());

    let step = with_step(change(me, &job, Outcome::Next), sets_aside(&job));
    assert_eq!(commit(&store, 5, step.clone()).await, CommitOutcome::Committed, "with a step that goes on");
    assert_eq!(kept(&store).await.len(), 1);
    let number = number(&store, "bad").await;
    assert_eq!(act_on_job(&store, 6, 1, JobAction::RestoreSignal(number)).await, ControlOutcome::Done);
    assert_eq!(commit(&store, 7, step).await, CommitOutcome::Committed, "its answer was lost");
    assert!(kept(&store).await.is_empty(), "and nothing is written");
}

pub async fn what_was_set_aside_leaves_room_in_the_inbox(store: Handle) {
    let most = store.limits().inbox;
    let wait = wait_for_signal("go*", None);
    let me = parked(&store, 1, wait.clone()).await;
    let signals: Vec<_> = (0..most).map(|n| to_first("go", &n.to_string())).collect();
    send(&store, 2, &signals).await;
    assert_eq!(send(&store, 3, &[to_first("go", "more")]).await, [SignalOutcome::Full]);
    let job = claim_one(&store, 4, me, 2).await;
    let StepWrites { unreadable: mut aside, .. } = sets_aside(&job);
    assert_eq!(aside.len(), most);
    let last = aside.split_off(most - 1);
    let some = StepWrites { unreadable: aside, ..StepWrites::default() };
    commit(&store, 5, with_step(change(me, &job, wait.clone()), some)).await;
    assert_eq!(send(&store, 6, &[to_first("go", "more")]).await, [KEPT], "it was woken by the last one");
    let job = claim_one(&store, 7, me, 3).await;
    commit(
        &store,
        8,
        with_step(change(me, &job, wait), StepWrites { unreadable: last, ..StepWrites::default() }),
    )
    .await;
    assert_eq!(kept(&store).await.len(), most);
    let full = send(&store, 9, &[to_first("go", "even more")]).await;
    assert_eq!(full, [SignalOutcome::Full], "nor does what nobody reads grow for ever");
    assert_eq!(send(&store, 9, &[to_first("go", "0")]).await, [SignalOutcome::Duplicate]);
}

pub async fn a_signal_is_dropped_by_hand(store: Handle) {
    let me = with_one_aside(&store).await;
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
        "its id is remembered"
    );
    assert_eq!(send(&store, 8, &[to_first("go", "good")]).await, [WOKE]);
    let job = claim_one(&store, 9, me, 4).await;
    let did = act_on_job(&store, 10, 1, JobAction::DropSignal(other)).await;
    assert!(matches!(did, ControlOutcome::Refused(_)), "the attempt may have read it: {did:?}");
    commit_and_consume(&store, 11, me, &job, wait_for_signal("go", None)).await;
    assert_eq!(
        act_on_job(&store, 12, 1, JobAction::DropSignal(other)).await,
        ControlOutcome::Done,
        "one that was not set aside"
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
    let me = with_one_aside(&store).await;
    let bad = number(&store, "bad").await;
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(act_on_job(&store, 5, 1, JobAction::RestoreSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Ready, "it has what it waits for");
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    let did = act_on_job(&store, 6, 1, JobAction::RestoreSignal(bad)).await;
    assert!(matches!(did, ControlOutcome::Already(_)), "{did:?}");
    assert!(matches!(
        act_on_job(&store, 6, 1, JobAction::RestoreSignal(bad + 1_000)).await,
        ControlOutcome::Refused(_)
    ));
    send(&store, 6, &[to_first("go", "later")]).await;
    let job = claim_one(&store, 7, me, 4).await;
    assert_eq!(
        (texts(&selected_signals(&job)), job.due_at),
        (vec!["bad".to_owned()], t(5)),
        "it stands where it stood"
    );
    aside(&store, 8, me, &job, wait_for_signal("stop", None)).await;
    assert_eq!(act_on_job(&store, 9, 1, JobAction::RestoreSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Waiting, "it waits for another");
}

pub async fn signals_of_ended_jobs_are_restored_for_their_next_attempt(store: Handle) {
    let me = with_one_aside(&store).await;
    let bad = number(&store, "bad").await;
    send(&store, 5, &[to_first("go", "good")]).await;
    let job = claim_one(&store, 6, me, 4).await;
    commit(&store, 7, change(me, &job, failed(windlass_model::Reason::Stopped))).await;
    assert_eq!(act_on_job(&store, 8, 1, JobAction::RestoreSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(act_on_job(&store, 9, 1, JobAction::Retry).await, ControlOutcome::Done);
    assert_eq!(texts(&selected_signals(&claim_one(&store, 10, me, 5).await)), ["bad"]);
}

pub async fn the_number_of_a_signal_is_given_once(store: Handle) {
    let me = with_one_aside(&store).await;
    let bad = number(&store, "bad").await;
    assert_eq!(act_on_job(&store, 5, 1, JobAction::DropSignal(bad)).await, ControlOutcome::Done);
    assert_eq!(send(&store, 6, &[to_first("go", "good")]).await, [WOKE]);
    let again = act_on_job(&store, 7, 1, JobAction::DropSignal(bad)).await;
    assert!(matches!(again, ControlOutcome::Refused(_)), "{again:?}");
    let job = claim_one(&store, 8, me, 3).await;
    assert_eq!(texts(&selected_signals(&job)), ["good"]);
    // Nor when it was consumed.
    let good = number(&store, "good").await;
    commit_and_consume(&store, 9, me, &job, wait_for_signal("go", None)).await;
    send(&store, 10, &[to_first("go", "last")]).await;
    assert!(number(&store, "last").await > good && good > bad);
}

pub async fn a_signal_that_is_dropped_is_handed_to_nobody(store: Handle) {
    let me = worker(&store, 1).await;
    for n in 1..=30_u32 {
        submit(&store, &[machine(n, "Begin")]).await;
        let job = claim_one(&store, 0, me, i64::from(n) * 2).await;
        commit(&store, 1, change(me, &job, wait_for_signal("go", None))).await;
        send(&store, 2, &[signal(id(n), "go", "1", "x")]).await;
        let number = store.inspect().inbox(id(n), 9).await.expect("inbox")[0].number;
        let ask = claim_request(me, i64::from(n) * 2 + 1, 1);
        let taker = async move |store: Handle| store.claim(at(3), &ask).await.expect("claim").jobs;
        let dropper = async move |store: Handle| {
            let by = crate::Actor::new("someone");
            store
                .control()
                .act_on_jobs(at(3), &[id(n)], JobAction::DropSignal(number), &by)
                .await
                .expect("act")
                .remove(0)
        };
        let (taken, did) = race(&store, taker, dropper).await;
        let handed = taken.iter().any(|job| job.inbox.iter().any(|signal| signal.number == number));
        assert!(!handed || did != ControlOutcome::Done, "round {n}: {taken:?}, {did:?}");
        // Whoever comes later finds the job where it belongs.
        if taken.is_empty() {
            claim_one(&store, 4, me, i64::from(n) * 2 + 1).await;
        }
    }
}
