//! The decisions of the driver, without a store.

use std::{panic::Location, sync::LazyLock, time::Duration};

use windlass_model::{
    JournalEntry, NewJob, Payload,
    journal::CallEvent,
    wait::{MAX_NAMES, SignalName},
};

use super::*;
use crate::{
    signal::can_read,
    workflow::{
        call::{AwaitedSignal, Moment, Start},
        journal::Journal,
    },
};

const POLLED: Event = Event::Polled { returned: None, foreign_wake: false, repoll: false };

fn inputs(now: i64) -> Inputs<'static> {
    static CODECS: LazyLock<Codecs> = LazyLock::new(Codecs::default);
    Inputs {
        now: Time(now),
        cancel_requested: false,
        replay: false,
        one_commit: false,
        job: JobId::from_parts(1, 1, 7),
        claimed_wait: None,
        codecs: &CODECS,
    }
}

fn state() -> RunState {
    RunState::new(Journal::default(), Vec::new())
}

fn call(state: &mut RunState, call_kind: CallKind, name: &str, start: Start) -> usize {
    let line = Location::caller();
    let ident = state.check_call(call_kind, name, None, line).expect("a new name");
    state.add(ident, call_kind, line, start)
}

fn step(state: &mut RunState, name: &str) -> usize {
    call(state, CallKind::Step, name, Start::Body { within: None })
}

/// A step whose body is running.
fn running(state: &mut RunState, name: &str) -> usize {
    let id = step(state, name);
    assert_eq!(woken(state.decide(POLLED, &inputs(0))), [id]);
    state.calls.get_mut(id).expect("open").phase = Phase::Running;
    id
}

fn signal_wait(state: &mut RunState, name: &str, timeout: Option<Duration>) -> usize {
    let awaited = AwaitedSignal { name: name.to_owned(), can_read: can_read::<u32> };
    call(state, CallKind::Signal, name, Start::Signal { awaited, timeout })
}

fn child(state: &mut RunState, name: &str, key: Option<&str>) -> JobId {
    let job = NewJob {
        key: key.map(Into::into),
        ..NewJob::new(JobId::from_parts(1, 1, 1), "kind", "queue", payload("1"))
    };
    let id = job.id;
    call(state, CallKind::Child, name, Start::Child(Box::new(job)));
    id
}

fn signal(number: i64, name: &str, text: &str) -> Signal {
    Signal { number, name: name.to_owned(), at: Time(0), payload: payload(text), unreadable: None }
}

fn payload(text: &str) -> Payload {
    Payload::json(text.as_bytes().to_vec())
}

fn woken(action: Action) -> Vec<usize> {
    match action {
        Action::Poll { wake } => wake,
        other => panic!("{other:?}"),
    }
}

/// Begins all new calls, and returns what follows.
fn begun(state: &mut RunState, inputs: &Inputs<'_>) -> Action {
    woken(state.decide(POLLED, inputs));
    state.decide(POLLED, inputs)
}

fn failure(action: Action) -> String {
    match action {
        Action::Fail(failure) => failure.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_of_a_step_is_committed_before_it_is_delivered() {
    let mut state = state();
    let id = running(&mut state, "charge");
    let action = state.decide(POLLED, &inputs(0));
    assert!(matches!(action, Action::Wait { until: None, reads_inbox: false }), "{action:?}");
    state.finish(id, CallEvent::Done, payload("1"), Time(1));
    assert!(matches!(state.decide(POLLED, &inputs(1)), Action::Commit));
    assert!(woken(state.decide(Event::Committed { children: false }, &inputs(1))).is_empty());
    assert_eq!(woken(state.decide(POLLED, &inputs(1))), [id]);
    assert!(matches!(state.calls.get(id).expect("open").phase, Phase::Ready(0, _)));
}

#[test]
fn recorded_ends_are_delivered_one_at_a_time_in_the_order_of_the_journal() {
    let entry = |seq, name: &str| JournalEntry {
        seq,
        call_kind: CallKind::Step,
        event: CallEvent::Done,
        name: name.to_owned(),
        key: None,
        line: None,
        at: Time(0),
        payload: payload("1"),
    };
    let journal = Journal::read(vec![entry(0, "b"), entry(1, "a")], &Codecs::default(), false);
    let mut state = RunState::new(journal, Vec::new());
    let (a, b) = (step(&mut state, "a"), step(&mut state, "b"));
    let replay = Inputs { replay: true, ..inputs(0) };
    assert_eq!(woken(state.decide(POLLED, &replay)), [b]);
    assert_eq!(woken(state.decide(POLLED, &replay)), [a]);
    step(&mut state, "new");
    assert!(matches!(state.decide(POLLED, &replay), Action::EndReplay), "a replay begins nothing");
}

#[test]
fn with_one_commit_ends_are_delivered_uncommitted_but_children_are_submitted() {
    let mut state = state();
    let one_commit = Inputs { one_commit: true, ..inputs(0) };
    let id = running(&mut state, "charge");
    state.finish(id, CallEvent::Done, payload("1"), Time(0));
    assert!(woken(state.decide(POLLED, &one_commit)).is_empty());
    assert_eq!(woken(state.decide(POLLED, &one_commit)), [id]);
    running(&mut state, "slow");
    child(&mut state, "ship", None);
    assert!(matches!(begun(&mut state, &one_commit), Action::Commit));
}

#[test]
fn a_transaction_begins_alone_after_everything_before_it_is_committed() {
    let mut state = state();
    let id = running(&mut state, "charge");
    state.finish(id, CallEvent::Done, payload("1"), Time(0));
    let start = || Start::Body { within: None };
    let first = call(&mut state, CallKind::Transaction, "book", start());
    let second = call(&mut state, CallKind::Transaction, "bill", start());
    assert!(matches!(state.decide(POLLED, &inputs(0)), Action::Commit));
    state.pending = Default::default();
    woken(state.decide(Event::Committed { children: false }, &inputs(0)));
    assert_eq!(woken(state.decide(POLLED, &inputs(0))), [id]);
    state.calls.remove(id);
    assert_eq!(woken(state.decide(POLLED, &inputs(0))), [first]);
    assert!(matches!(state.decide(POLLED, &inputs(0)), Action::Wait { .. }));
    assert!(matches!(state.calls.get(second).expect("open").phase, Phase::New));
}

#[test]
fn a_sleep_parks_the_job_and_ends_without_a_commit_of_its_own() {
    let mut state = state();
    let id = call(&mut state, CallKind::Sleep, "sleep", Start::At(Moment::In(Duration::from_micros(50))));
    let Action::Park(wait) = begun(&mut state, &inputs(10)) else { panic!("not parked") };
    assert_eq!(wait.timeout, Some(Duration::from_micros(50)));
    assert_eq!(wait.condition, WaitCondition::Signals { names: Vec::new(), needs: 1 });
    assert_eq!(state.pending.entries.len(), 1, "when it is due is recorded");
    assert_eq!(woken(state.decide(POLLED, &inputs(60))), [id]);
    assert_eq!(woken(state.decide(POLLED, &inputs(60))), [id], "delivered without a commit");
}

#[test]
fn the_inbox_is_read_before_parking_for_signals_that_did_not_come_with_the_claim() {
    let mut state = state();
    let id = signal_wait(&mut state, "go", None);
    assert!(matches!(begun(&mut state, &inputs(0)), Action::ReadInbox));
    let unreadable = Event::InboxRead(vec![signal(1, "go", "\"text\"")]);
    assert!(woken(state.decide(unreadable, &inputs(0))).is_empty());
    let Action::Park(wait) = state.decide(POLLED, &inputs(0)) else { panic!("not parked") };
    let names = vec![SignalName { name: "go".into(), every: false }];
    assert_eq!(wait.condition, WaitCondition::Signals { names: names.clone(), needs: 1 });
    assert_eq!(state.pending.unreadable.len(), 1);
    woken(state.decide(Event::InboxRead(vec![signal(2, "go", "3")]), &inputs(0)));
    assert_eq!(woken(state.decide(POLLED, &inputs(0))), [id]);
    assert_eq!(state.pending.consumed, [2]);
    assert!(matches!(state.decide(POLLED, &inputs(0)), Action::Commit));

    let mut state = super::tests::state();
    signal_wait(&mut state, "go", None);
    let claimed = WaitCondition::Signals { names, needs: 1 };
    let claimed = Inputs { claimed_wait: Some(&claimed), ..inputs(0) };
    assert!(matches!(begun(&mut state, &claimed), Action::Park(_)));
}

#[test]
fn only_the_next_of_several_ends_is_taken_from_the_inbox() {
    let mut state = state();
    let (first, second) = (signal_wait(&mut state, "a", None), signal_wait(&mut state, "b", None));
    assert!(matches!(begun(&mut state, &inputs(0)), Action::ReadInbox));
    let signals = vec![signal(1, "b", "1"), signal(2, "a", "1")];
    woken(state.decide(Event::InboxRead(signals), &inputs(0)));
    assert_eq!(woken(state.decide(POLLED, &inputs(0))), [first]);
    assert_eq!((state.inbox.signals.len(), &*state.pending.consumed), (1, &[2][..]));
    assert!(state.calls.get(second).expect("open").wait().is_some());
}

#[test]
fn a_wait_for_a_signal_fails_when_its_time_is_over() {
    let mut state = state();
    let id = signal_wait(&mut state, "go", Some(Duration::from_micros(5)));
    state.inbox.is_current = true;
    woken(state.decide(POLLED, &inputs(0)));
    assert_eq!(woken(state.decide(POLLED, &inputs(5))), [id]);
    assert_eq!(state.pending.entries.last().map(|entry| entry.event), Some(CallEvent::Failed));
}

#[test]
fn a_child_is_submitted_with_the_park_and_read_once_until_a_signal_hints_at_its_end() {
    let mut state = state();
    let id = child(&mut state, "ship", None);
    assert!(matches!(begun(&mut state, &inputs(0)), Action::Park(_)));
    assert_eq!(state.pending.children.len(), 1);
    state.pending = Default::default();
    woken(state.decide(Event::Committed { children: true }, &inputs(0)));
    let action = state.decide(POLLED, &inputs(0));
    assert!(matches!(&action, Action::ReadChildren(ids) if *ids == [id]), "{action:?}");
    assert!(matches!(state.decide(Event::ChildrenRead(vec![(id, None)]), &inputs(0)), Action::Park(_)));
    assert!(matches!(state.decide(POLLED, &inputs(0)), Action::Park(_)), "not read again");
    state.inbox.signals.push(signal(3, windlass_model::wait::CHILD_SIGNAL, "1"));
    assert!(matches!(state.decide(POLLED, &inputs(0)), Action::ReadChildren(_)));
    let ended = vec![(id, Some(JobEnd::Done(payload("1"))))];
    assert!(woken(state.decide(Event::ChildrenRead(ended), &inputs(0))).is_empty());
    assert!(matches!(state.decide(POLLED, &inputs(0)), Action::Commit));
    assert_eq!(state.pending.consumed, [3]);
}

#[test]
fn a_child_with_a_key_is_committed_before_the_job_parks() {
    let mut state = state();
    child(&mut state, "ship", Some("order-1"));
    assert!(matches!(begun(&mut state, &inputs(0)), Action::Commit));
}

#[test]
fn a_cancel_waits_for_running_bodies_until_its_grace_period_is_over() {
    let mut state = state();
    let cancel = Inputs { cancel_requested: true, ..inputs(0) };
    let id = running(&mut state, "charge");
    step(&mut state, "next");
    assert!(matches!(state.decide(POLLED, &cancel), Action::Wait { .. }), "nothing new begins");
    assert!(matches!(state.decide(Event::GracePeriodOver, &cancel), Action::Cancel));
    state.finish(id, CallEvent::Done, payload("1"), Time(0));
    assert!(matches!(state.decide(POLLED, &cancel), Action::Cancel));
}

#[test]
fn while_bodies_run_the_inbox_is_read_at_intervals_and_a_failed_read_is_ignored() {
    let mut state = state();
    running(&mut state, "charge");
    let id = signal_wait(&mut state, "go", Some(Duration::from_micros(9)));
    let action = begun(&mut state, &inputs(0));
    assert!(matches!(action, Action::Wait { until: Some(Time(9)), reads_inbox: true }), "{action:?}");
    assert!(matches!(state.decide(Event::TimeOver { read_inbox: true }, &inputs(1)), Action::ReadInbox));
    assert!(woken(state.decide(Event::ReadFailed(Failure::retry("away")), &inputs(1))).is_empty());
    assert_eq!(woken(state.decide(Event::InboxRead(vec![signal(1, "go", "1")]), &inputs(1))), [id]);

    let mut parked = super::tests::state();
    signal_wait(&mut parked, "go", None);
    assert!(matches!(begun(&mut parked, &inputs(0)), Action::ReadInbox));
    assert_eq!(failure(parked.decide(Event::ReadFailed(Failure::retry("away")), &inputs(0))), "away");
}

#[test]
fn faults_of_the_code_fail_the_job() {
    let mut stuck = state();
    assert!(failure(stuck.decide(POLLED, &inputs(0))).contains("is not durable"));
    let foreign = Event::Polled { returned: None, foreign_wake: true, repoll: false };
    assert!(failure(state().decide(foreign, &inputs(0))).contains("is not durable"));
    let mut faulty = state();
    faulty.code.fault = Some(misuse("wrong"));
    let returned = Event::Polled { returned: Some(Ok(Vec::new())), foreign_wake: false, repoll: false };
    assert_eq!(failure(faulty.decide(returned, &inputs(0))), "wrong");
    let mut endless = state();
    for _ in 0..MAX_REPOLLS {
        let repoll = Event::Polled { returned: None, foreign_wake: false, repoll: true };
        assert!(woken(endless.decide(repoll, &inputs(0))).is_empty());
    }
    let repoll = Event::Polled { returned: None, foreign_wake: false, repoll: true };
    assert!(failure(endless.decide(repoll, &inputs(0))).contains("is not durable"));
    let mut many = state();
    for n in 0..=MAX_NAMES {
        signal_wait(&mut many, &format!("signal-{n}"), None);
    }
    assert!(matches!(begun(&mut many, &inputs(0)), Action::ReadInbox));
    assert!(failure(many.decide(Event::InboxRead(Vec::new()), &inputs(0))).contains("33 signals at once"));
}

#[test]
fn continuing_as_new_needs_all_calls_ended_and_all_branches_merged() {
    let mut open = state();
    running(&mut open, "charge");
    open.code.continue_input = Some(Vec::new());
    assert!(failure(open.decide(POLLED, &inputs(0))).contains("step \"charge\" is under way"));
    let mut unmerged = state();
    unmerged.code.continue_input = Some(Vec::new());
    unmerged.branches.insert("items".into(), BranchState::Filling);
    assert!(failure(unmerged.decide(POLLED, &inputs(0))).contains("was not merged"));
    let mut state = state();
    state.code.continue_input = Some(b"1".to_vec());
    assert!(matches!(state.decide(POLLED, &inputs(0)), Action::ContinueAsNew(input) if input == b"1"));
}
