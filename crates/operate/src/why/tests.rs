//! Every cause, from made-up reads.

use windlass_model::{
    BranchCounts, BranchNo, BranchPoll, BranchWatch, Epoch, Failure, JournalEntry, KindVersion, Merge,
    Payload, Progress, Rev, Settings, WaitCondition, WorkerId,
    branch::BRANCH_SIGNAL,
    journal::{CallEvent, CallKind},
};
use windlass_store::{CancelHold, JournalHead, Serves, Summary};

use super::*;

const NOW: Time = Time(1_800_000_000_000_000);

fn later(seconds: u64) -> Time {
    NOW + Duration::from_secs(seconds)
}

fn id(number: u64) -> JobId {
    JobId::from_parts(number, 0, 0)
}

fn job(state: State) -> Job {
    let summary = Summary {
        id: id(1),
        kind: "resize".into(),
        version: 2,
        queue: "images".into(),
        key: None,
        state,
        stage: None,
        reason: None,
        priority: 0,
        attempts: 0,
        submitted_at: NOW,
        due_at: NOW,
        finished_at: state.is_final().then_some(NOW),
    };
    Job {
        summary,
        epoch: Epoch(0),
        rev: Rev(0),
        worker_deaths: 0,
        solo_crashes: 0,
        worker: (state == State::Running).then_some(WorkerId(7)),
        started_at: (state == State::Running).then_some(NOW - Duration::from_secs(90)),
        deadline_at: None,
        parent: None,
        position: None,
        tags: Vec::new(),
        options: None,
        settings: Settings::default(),
        retry_counts: Vec::new(),
        input: Payload::default(),
        data: None,
        wait: None,
        wait_until: None,
        pending_children: 0,
        unwind: None,
        fault: None,
        progress: None,
        output: None,
        failure: None,
    }
}

fn worker(queue: &str, kind: &str, version: i32) -> WorkerView {
    let kinds = vec![KindVersion { kind: kind.into(), version }];
    WorkerView {
        id: WorkerId(7),
        name: "smith".into(),
        liveness_file: None,
        alive: true,
        lease_until: later(10),
        lost_at: None,
        claims: 0,
        serves: vec![Serves { queue: queue.into(), slots: 4, kinds }],
    }
}

fn serving() -> Vec<WorkerView> {
    vec![worker("images", "resize", 2)]
}

fn pause(note: Option<&str>) -> Option<Pause> {
    Some(Pause { at: NOW, author: "ada".into(), note: note.map(Into::into) })
}

/// What is why, and that it reads like what people say.
fn explained(job: &Job, holds: &Holds, workers: &[WorkerView]) -> Why {
    explained_with(job, holds, &[], workers)
}

fn explained_with(job: &Job, holds: &Holds, branches: &[Branch], workers: &[WorkerView]) -> Why {
    let why = explain(job, holds, branches, &JournalEnd::default(), workers, NOW);
    for text in [&why.because, &why.hint].into_iter().chain(&why.also) {
        assert!(text.ends_with('.') && !text.ends_with("..") && !text.contains("  "), "{text:?}");
        assert!(text.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()), "{text:?}");
    }
    assert_eq!((why.job, why.state), (job.summary.id, Some(job.summary.state)));
    why
}

fn ready(holds: Holds, workers: &[WorkerView]) -> Why {
    explained(&job(State::Ready), &holds, workers)
}

#[test]
fn a_done_job_has_its_time() {
    let why = explained(&job(State::Done), &Holds::default(), &[]);
    assert_eq!(
        (why.cause, why.because.as_str()),
        (Cause::Done, "It was done at 2027-01-15T08:00:00.000000Z.")
    );
}

#[test]
fn a_cancelled_job_names_its_actor() {
    let mut job = job(State::Cancelled);
    job.failure = Some(windlass_store::Actor::new("ada").note("not needed").failure());
    let why = explained(&job, &Holds::default(), &[]);
    assert_eq!(why.cause, Cause::Cancelled);
    assert_eq!(why.because, "It was cancelled at 2027-01-15T08:00:00.000000Z by ada: not needed.");
    assert!(why.hint.contains(&format!("`windlass retry {}`", id(1))));
    job.failure = Some(Failure::cancel("nothing to do."));
    assert!(explained(&job, &Holds::default(), &[]).because.ends_with("Z: nothing to do."));
    job.failure = None;
    assert_eq!(
        explained(&job, &Holds::default(), &[]).because,
        "It was cancelled at 2027-01-15T08:00:00.000000Z."
    );
}

#[test]
fn every_failure_reason_has_its_cause_and_a_retry_hint() {
    for reason in Reason::ALL {
        let mut job = job(State::Failed);
        (job.summary.reason, job.summary.attempts, job.solo_crashes) = (Some(reason), 3, 1);
        job.failure = Some(Failure::retry("no route to host.").class("net"));
        let why = explained(&job, &Holds::default(), &[]);
        assert_eq!(why.cause.as_str(), reason.to_string());
        assert!(why.because.starts_with("It failed at 2027-01-15T08:00:00.000000Z because "), "{why:?}");
        assert!(why.because.ends_with(". The last error: net: no route to host."), "{why:?}");
        assert!(why.hint.ends_with(&format!(", then `windlass retry {}`.", id(1))), "{why:?}");
        let part = match reason {
            Reason::Exhausted => "its 3 attempts are used up.",
            Reason::Stopped => "a retry cannot help",
            Reason::Timeout => "its 3 attempts are used up and the last ran too long",
            Reason::Poison => "1 worker died while it ran alone",
            Reason::Undecodable => "its input does not decode",
            Reason::Expired => "its deadline passed",
            Reason::Refused => "the store refused",
            Reason::Diverged => "no longer matches its journal",
        };
        assert!(why.because.contains(part), "{why:?}");
    }
}

#[test]
fn an_arrival_waits_for_a_worker_to_admit_it() {
    let why = arriving(id(1));
    assert_eq!((why.cause, why.state), (Cause::Arriving, None));
    assert!(why.because.contains("in a transaction") && why.hint.contains("`windlass worker`"));
}

#[test]
fn a_running_job_names_its_worker_and_duration() {
    let why = explained(&job(State::Running), &Holds::default(), &serving());
    assert_eq!(
        (why.cause, why.because.as_str()),
        (Cause::Running, "It has been running on worker smith for 90 s.")
    );
    assert!(why.hint.contains("`windlass cancel") && why.also.is_empty());
    let progress = Some(Progress::new(3, Some(12), "page 3", NOW - Duration::from_secs(2)));
    let why = explained(&Job { progress, ..job(State::Running) }, &Holds::default(), &serving());
    assert_eq!(
        why.because,
        "It has been running on worker smith for 90 s. Its progress: 3 of 12 (25 %), page 3, 2s ago."
    );
    let holds = Holds { paused: pause(None), ..Holds::default() };
    let why = explained(&job(State::Running), &holds, &serving());
    assert_eq!(why.cause, Cause::Running);
    assert!(why.also[0].ends_with("That applies if it is retried."), "{why:?}");
}

#[test]
fn a_cancel_request_names_its_actor_and_deadline() {
    let cancel =
        |seconds| CancelHold { deadline_at: later(seconds), author: "ada".into(), note: Some("old".into()) };
    let holds = Holds { cancel_requested: Some(cancel(8)), ..Holds::default() };
    let why = explained(&job(State::Running), &holds, &serving());
    assert_eq!(why.cause, Cause::CancelRequested);
    assert_eq!(
        why.because,
        "It runs on worker smith, and ada (old) requested its cancel; it ends in 8 s at the latest."
    );
    let holds = Holds { cancel_requested: Some(cancel(0)), ..Holds::default() };
    let why = explained(&job(State::Running), &holds, &serving());
    assert!(why.because.ends_with("it ends at the next poll of a worker."), "{why:?}");
    assert_eq!(ready(holds, &serving()).cause, Cause::CancelRequested);
}

#[test]
fn a_worker_that_stopped_renewing_is_lost() {
    let mut lapsed = worker("images", "resize", 2);
    lapsed.lease_until = NOW - Duration::from_secs(1);
    let mut dead = worker("images", "resize", 2);
    dead.alive = false;
    for workers in [vec![lapsed], vec![dead]] {
        let why = explained(&job(State::Running), &Holds::default(), &workers);
        assert_eq!(why.cause, Cause::WorkerLost);
        assert!(why.because.contains("claimed by worker smith") && why.also.is_empty(), "{why:?}");
    }
    let why = explained(&job(State::Running), &Holds::default(), &[]);
    assert!(why.because.contains("claimed by a worker that is gone"), "{why:?}");
}

#[test]
fn a_pause_names_its_author_and_comes_first() {
    let holds =
        Holds { paused: pause(Some("db down")), queue_paused: pause(None), ahead: 3, ..Holds::default() };
    let why = ready(holds, &[]);
    assert_eq!(why.cause, Cause::Paused);
    assert_eq!(why.because, "It was paused by ada at 2027-01-15T08:00:00.000000Z (db down).");
    assert_eq!(why.hint, format!("To resume it: `windlass resume {}`.", id(1)));
    assert_eq!(
        why.also,
        [
            "Its queue \"images\" was paused by ada at 2027-01-15T08:00:00.000000Z.",
            "No worker is running on this store."
        ]
    );
}

#[test]
fn a_paused_queue_is_named() {
    let why = ready(Holds { queue_paused: pause(None), ..Holds::default() }, &serving());
    assert_eq!(why.cause, Cause::QueuePaused);
    assert_eq!(why.hint, "To resume it: `windlass queues resume images`.");
}

#[test]
fn a_scheduled_job_has_its_due_time() {
    let mut job = job(State::Scheduled);
    job.summary.due_at = later(600);
    let why = explained(&job, &Holds::default(), &[]);
    assert_eq!(why.cause, Cause::Scheduled);
    assert_eq!(why.because, "It is due at 2027-01-15T08:10:00.000000Z, in 10 min.");
    let holds = Holds { paused: pause(None), queue_paused: pause(None), ..Holds::default() };
    let why = explained(&job, &holds, &[]);
    assert_eq!((why.cause, why.also.len()), (Cause::Paused, 2));
    job.summary.due_at = NOW;
    assert_eq!(explained(&job, &Holds::default(), &[]).cause, Cause::NoWorker, "no worker fires its timer");
    assert_eq!(explained(&job, &Holds::default(), &serving()).cause, Cause::Scheduled);
}

#[test]
fn a_backoff_names_the_last_error() {
    let mut job = job(State::Scheduled);
    (job.summary.attempts, job.summary.due_at) = (2, later(30));
    job.failure = Some(Failure::retry("refused").class("net"));
    let why = explained(&job, &Holds::default(), &serving());
    assert_eq!(why.cause, Cause::BackingOff);
    assert_eq!(
        why.because,
        "Attempt 2 failed (net: refused); the next is due at 2027-01-15T08:00:30.000000Z, in 30 s."
    );
}

#[test]
fn missing_workers_queues_kinds_and_versions_are_different_causes() {
    let cause = |workers: &[WorkerView]| ready(Holds::default(), workers).cause;
    assert_eq!(cause(&[]), Cause::NoWorker);
    let mut lapsed = worker("images", "resize", 2);
    lapsed.lease_until = NOW;
    assert_eq!(cause(&[lapsed]), Cause::NoWorker);
    assert_eq!(cause(&[worker("mail", "resize", 2)]), Cause::QueueUnserved);
    assert_eq!(cause(&[worker("images", "crop", 2), worker("mail", "resize", 2)]), Cause::KindUnserved);
    assert_eq!(cause(&[worker("images", "resize", 3)]), Cause::VersionUnserved);
    assert_eq!(cause(&[worker("images", "resize", 3), worker("images", "resize", 2)]), Cause::Next);
    let why = ready(Holds::default(), &[worker("mail", "resize", 2)]);
    assert!(why.hint.contains("`windlass worker --queue images`"), "{why:?}");
    let why = ready(Holds::default(), &[worker("images", "resize", 3)]);
    assert_eq!(why.because, "No worker that serves queue \"images\" knows version 2 of the kind \"resize\".");
}

#[test]
fn a_serial_hold_names_the_job_with_the_slot() {
    let serial = |slots, holders: &[u64], ahead| Holds {
        serial: Some(SerialHold {
            key: "user 9".into(),
            slots,
            held: false,
            holders: holders.iter().copied().map(id).collect(),
            hidden_holders: 0,
            ahead,
        }),
        ..Holds::default()
    };
    let why = ready(serial(1, &[5], 0), &serving());
    assert_eq!(why.cause, Cause::Serial);
    assert_eq!(
        why.because,
        format!(
            "Jobs with its serial key \"user 9\" run one at a time: job {} has the slot, and it is next.",
            id(5)
        )
    );
    assert!(why.hint.contains(&format!("`windlass why {}`", id(5))));
    let why = ready(serial(2, &[5, 6], 3), &serving());
    assert!(why.because.ends_with("and 1 more have slots, and 3 jobs are before it in line."), "{why:?}");
    assert!(ready(serial(1, &[], 1), &serving()).because.contains("no job has a slot"));
    let hidden = |holders: &[u64], hidden| {
        let mut holds = serial(2, holders, 0);
        holds.serial.as_mut().expect("set").hidden_holders = hidden;
        ready(holds, &serving())
    };
    let why = hidden(&[], 1);
    assert!(why.because.contains("2 at a time: another job has the slot, and it is next"), "{why:?}");
    assert!(why.hint.starts_with("Wait, or ask whoever may see"), "{why:?}");
    assert!(hidden(&[], 2).because.contains("2 other jobs have slots"));
    assert!(hidden(&[5], 1).because.contains("and 1 more have slots"));
    let mut held = serial(1, &[1], 0);
    held.serial.as_mut().expect("set").held = true;
    assert_eq!(ready(held, &serving()).cause, Cause::Next);
}

#[test]
fn a_rate_hold_has_the_time_of_enough_tokens() {
    let rate = |weight, seconds, lifted: bool| Holds {
        rate: Some(RateHold {
            limit: (!lifted).then(|| RateLimit::per("api", 5, Duration::from_secs(60))),
            name: "api".into(),
            weight,
            affordable_at: later(seconds),
        }),
        ..Holds::default()
    };
    let why = ready(rate(1, 12, false), &serving());
    assert_eq!(why.cause, Cause::Rate);
    assert_eq!(
        why.because,
        "Its rate limit \"api\" (5 per 60 s, burst 5) has no token left for it until \
         2027-01-15T08:00:12.000000Z, in 12 s."
    );
    assert!(why.hint.contains("`windlass limits set api 10 …`"));
    assert!(ready(rate(3, 12, false), &serving()).because.contains("too few tokens for its weight of 3"));
    assert_eq!(ready(rate(1, 0, false), &serving()).cause, Cause::Next);
    assert_eq!(ready(rate(1, 12, true), &serving()).cause, Cause::Next, "a lifted limit holds nobody");
}

#[test]
fn a_job_without_holds_has_its_position() {
    let why = ready(Holds::default(), &serving());
    assert_eq!(why.cause, Cause::Next);
    assert!(why.because.starts_with("It is the next of its kind in queue \"images\""), "{why:?}");
    let behind = |ahead| ready(Holds { ahead, ..Holds::default() }, &serving());
    assert_eq!(
        (behind(4).cause, behind(4).because.as_str()),
        (Cause::Behind, "4 jobs of its kind are before it in queue \"images\".")
    );
    assert!(behind(4).hint.contains("`windlass priority -10"));
    assert!(behind(1).because.starts_with("1 job of its kind is"));
    assert!(behind(1_000).because.starts_with("1,000 jobs of its kind or more"));
    let mut job = job(State::Ready);
    job.worker_deaths = 2;
    let why = explained(&job, &Holds { suspect: true, ahead: 4, ..Holds::default() }, &serving());
    assert_eq!(why.cause, Cause::Suspect);
    assert!(why.because.starts_with("2 workers died while it was claimed"), "{why:?}");
}

fn parked(condition: WaitCondition, arrived: &[&str], until: Option<Time>, pending: u32) -> Why {
    let mut job = job(State::Waiting);
    job.summary.stage = Some("AwaitPayment".into());
    let arrived = arrived.iter().map(|name| (*name).to_owned()).collect();
    let waiting = Some(windlass_store::Waiting {
        condition,
        since: None,
        wait_until: until,
        arrived,
        pending_children: pending,
        unreadable: Vec::new(),
    });
    explained(&job, &Holds { waiting, ..Holds::default() }, &serving())
}

fn signals(needs: u32, names: &[&str]) -> WaitCondition {
    let name = |name: &&str| windlass_model::wait::SignalName { name: (*name).to_owned(), every: false };
    WaitCondition::Signals { names: names.iter().map(name).collect(), needs }
}

#[test]
fn a_parked_job_names_what_it_waits_for_and_how_to_send_it() {
    let one = parked(signals(1, &["payment"]), &[], Some(later(3_600)), 0);
    assert_eq!(one.cause, Cause::Signal);
    assert_eq!(
        one.because,
        "In AwaitPayment, it waits for the signal \"payment\" until 2027-01-15T09:00:00.000000Z, in 60 min."
    );
    assert_eq!(one.hint, format!("Wait, or send it: `windlass signal {} payment JSON`.", id(1)));
    let any = parked(signals(1, &["a", "b"]), &[], None, 0);
    assert!(any.because.contains("any of the signals \"a\", \"b\", without a time limit"), "{any:?}");
    let all = parked(signals(2, &["a", "b"]), &["a"], None, 0);
    assert!(all.because.contains("of which \"b\" is missing") && all.hint.contains(" b JSON"), "{all:?}");
    assert!(
        parked(signals(2, &["a", "b"]), &[], None, 0).because.contains("all of the signals \"a\", \"b\",")
    );
    let late = parked(signals(1, &["a"]), &[], Some(NOW), 0);
    assert!(late.because.contains("which has passed"), "{late:?}");
}

#[test]
fn a_parked_job_lists_its_unreadable_signals() {
    let unreadable = |number| windlass_store::UnreadableSignalView {
        number,
        name: "payment".into(),
        at: NOW,
        why: "it does not decode as u32".into(),
    };
    let with = |unreadable| {
        let condition = signals(1, &["payment"]);
        let waiting = windlass_store::Waiting {
            condition,
            since: None,
            wait_until: None,
            arrived: Vec::new(),
            pending_children: 0,
            unreadable,
        };
        explained(&job(State::Waiting), &Holds { waiting: Some(waiting), ..Holds::default() }, &serving())
    };
    let one = with(vec![unreadable(7)]);
    assert_eq!(one.cause, Cause::Signal);
    let text = &one.also[0];
    assert!(text.contains("is unreadable: it does not decode as u32."), "{text}");
    assert!(text.contains(&format!("`windlass signal --drop {} 7` drops it", id(1))), "{text}");
    assert!(text.contains(&format!("`windlass signal --restore {} 7`", id(1))), "{text}");
    assert!(
        with(vec![unreadable(7), unreadable(8), unreadable(9)]).also[0].contains("So are 2 signals after it")
    );
}

#[test]
fn a_parent_counts_the_children_it_waits_for() {
    let children = |pending| parked(WaitCondition::Children { rev: Rev(1) }, &[], None, pending);
    assert_eq!(children(1).cause, Cause::Children);
    assert!(children(1).because.contains("of which one has not ended,"), "{:?}", children(1));
    assert!(children(3).because.contains("of which 3 jobs have not ended,"), "{:?}", children(3));
}

#[test]
fn a_parked_job_also_lists_that_nobody_serves_it() {
    let mut job = job(State::Waiting);
    let waiting = Some(windlass_store::Waiting {
        condition: signals(1, &["a"]),
        since: None,
        wait_until: Some(NOW),
        arrived: Vec::new(),
        pending_children: 0,
        unreadable: Vec::new(),
    });
    let holds = Holds { waiting, paused: pause(None), ..Holds::default() };
    let why = explained(&job, &holds, &[worker("images", "resize", 1)]);
    assert_eq!(why.cause, Cause::Signal);
    assert!(why.also.iter().any(|also| also.contains("knows version 2")), "{why:?}");
    assert!(why.also.iter().any(|also| also.contains("paused by ada")), "{why:?}");
    assert_eq!(
        explained(&job, &holds, &[]).cause,
        Cause::NoWorker,
        "its wait has timed out, and no worker runs"
    );
    job.summary.state = State::Ready;
    job.summary.stage = Some("A".into());
    let why = explained(&job, &Holds::default(), &[worker("images", "resize", 1)]);
    assert!(why.hint.contains("migrate their stages"), "{why:?}");
}

#[test]
fn an_unwinding_job_has_its_final_state() {
    let mut waits = job(State::Ready);
    let failure = windlass_model::Failure::stop("no money");
    waits.unwind = Some(Box::new(windlass_model::Unwind { reason: Some(Reason::Stopped), failure }));
    let why = explained(&waits, &Holds::default(), &[]);
    assert!(
        why.also.iter().any(|also| also == "It undoes its steps, and then it fails (stopped): no money."),
        "{why:?}"
    );
}

/// A branch of a hundred children that is waited for.
fn branch(name: &str, (done, failed, cancelled): (i64, i64, i64), merge: Option<Merge>) -> Branch {
    Branch {
        job: id(1),
        number: BranchNo(1),
        name: name.into(),
        spawns: vec!["item".into()],
        cursor: None,
        sealed: merge.is_some(),
        merged: false,
        cancels_children: false,
        spawned: 1_100,
        counts: BranchCounts { started: 0, done, failed, cancelled },
        watch: Some(BranchWatch::default()),
        merge_record: merge.map(|merge| serde_json::to_string(&merge).expect("JSON")),
        opened_at: NOW,
        sealed_at: None,
        merged_at: None,
        poll: BranchPoll::default(),
    }
}

#[test]
fn a_parent_has_the_progress_of_its_branches_and_what_blocks_them() {
    let merging = |names: &[&str], branches: &[Branch]| {
        let mut job = job(State::Waiting);
        let condition = signals(1, names);
        job.wait = Some(condition.clone());
        let waiting = windlass_store::Waiting {
            condition,
            since: None,
            wait_until: None,
            arrived: Vec::new(),
            pending_children: 0,
            unreadable: Vec::new(),
        };
        explained_with(&job, &Holds { waiting: Some(waiting), ..Holds::default() }, branches, &serving())
    };
    let far = branch("far", (1_000, 1, 0), Some(Merge::settled()));
    let why = merging(&[BRANCH_SIGNAL], std::slice::from_ref(&far));
    assert_eq!(
        (why.cause, why.because.as_str()),
        (
            Cause::Branches,
            "It waits for the merge of its branch \"far\": of its 1,100 children 1,000 are done, 1 failed, and 99 have not \
             ended. It is merged when all children have ended, in any state."
        )
    );
    assert!(why.hint.contains(&format!("`windlass branches {}`", id(1))), "{}", why.hint);
    // A blocked merge comes first: only a person can help.
    let blocked = branch("stuck", (1_097, 2, 1), Some(Merge::all()));
    let why = merging(&[BRANCH_SIGNAL, "stop"], &[far, blocked]);
    assert_eq!(why.cause, Cause::Blocked);
    let parts = "1,097 are done, 2 failed, 1 was cancelled, and all have ended. It is merged when all";
    assert!(why.because.contains(parts), "{}", why.because);
    assert!(why.hint.contains(&format!("`windlass redrive {} --branch stuck`", id(1))), "{}", why.hint);
    assert_eq!(why.also.len(), 2, "{:?}", why.also);
    assert!(why.also[1].contains("the signal \"stop\""), "{:?}", why.also);
    let both = [branch("a", (1_100, 0, 0), Some(Merge::all())), branch("b", (99, 1, 0), Some(Merge::all()))];
    let why = merging(&[BRANCH_SIGNAL], &both);
    let parts = "the merge of its branches \"a\", \"b\": of its 2,200 children 1,199 are done, 1 failed, and 1,000 have not";
    assert!(why.because.contains(parts), "{}", why.because);
    assert!(why.hint.ends_with(&format!("`windlass redrive {}`.", id(1))), "{}", why.hint);
    let full = merging(&[BRANCH_SIGNAL], &[branch("full", (99, 0, 0), None)]);
    assert!(full.because.contains("room in its branch \"full\": 1,001 have not ended"), "{}", full.because);
    assert_eq!(merging(&[BRANCH_SIGNAL], &[]).hint, "Run this command again.");
}

/// The end of a journal with these entries, numbered from 0. Of a call's result only the size is read.
fn journal(entries: &[(CallKind, CallEvent, &str, &str)]) -> JournalEnd {
    let head = |(seq, (call_kind, event, name, text)): (usize, &(CallKind, CallEvent, &str, &str))| {
        let text = if *call_kind == CallKind::Lifecycle { text } else { "" };
        let entry = JournalEntry {
            seq: seq as i32,
            call_kind: *call_kind,
            event: *event,
            name: (*name).into(),
            key: None,
            line: None,
            at: NOW,
            payload: Payload::json(text.as_bytes().to_vec()),
        };
        JournalHead { entry, bytes: 0 }
    };
    JournalEnd { entries: entries.iter().enumerate().map(head).collect(), before: 0 }
}

fn hint(job: &Job, entries: &[(CallKind, CallEvent, &str, &str)]) -> String {
    let hint = explain(job, &Holds::default(), &[], &journal(entries), &[], NOW).hint;
    assert!(hint.ends_with('.') && !hint.contains("  "), "{hint:?}");
    hint.replace(&id(1).to_string(), "JOB")
}

#[test]
fn an_end_that_a_recorded_result_decided_needs_a_fork() {
    let mut stopped = job(State::Failed);
    (stopped.summary.reason, stopped.failure) = (Some(Reason::Stopped), Some(Failure::stop("declined")));
    let (check, pay) = (
        (CallKind::Step, CallEvent::Done, "check", "1"),
        (CallKind::Step, CallEvent::DoneWithUndo, "pay", "1"),
    );
    let (refund, sleep) = (
        (CallKind::Step, CallEvent::Undone, "pay", "null"),
        (CallKind::Sleep, CallEvent::Done, "sleep", "null"),
    );
    let fork = |name: &str, before: &str| {
        format!(
            "A retry cannot help, because it replays the recorded result of the step {name:?}; so run that again in a new \
                 job{before}: `windlass fork JOB --before "
        )
    };
    // The last result that it received.
    assert_eq!(hint(&stopped, &[check, sleep]), fork("check", "") + "check`.");
    // A failure that the code handled, and no call that a retry would run again.
    let failed = (CallKind::Step, CallEvent::Failed, "ask", "{}");
    assert_eq!(
        hint(&stopped, &[check, failed, (CallKind::Step, CallEvent::Done, "sorry", "1")]),
        fork("ask", "") + "ask`."
    );
    // A fork would take an undone step over as done.
    let before = ", starting from the step \"pay\", which was undone";
    assert_eq!(hint(&stopped, &[pay, check, refund]), fork("check", before) + "pay`.");
    // A retry runs undone steps, voided calls and unrecorded calls again.
    let retry = "Fix the cause, then `windlass retry JOB`.";
    let ended = (CallKind::Lifecycle, CallEvent::Failed, "windlass.ended", r#"{"voids": [1]}"#);
    for entries in [&[check, pay, refund][..], &[check, failed, ended], &[sleep], &[]] {
        assert_eq!(hint(&stopped, entries), retry, "{entries:?}");
    }
    // No recorded result decided about a deadline.
    stopped.summary.reason = Some(Reason::Expired);
    assert!(hint(&stopped, &[check]).ends_with("`windlass retry JOB`."));

    let mut cancelled = job(State::Cancelled);
    cancelled.failure = Some(Failure::cancel("nothing to do"));
    assert_eq!(hint(&cancelled, &[check]), fork("check", "") + "check`.");
    for entries in [&[sleep][..], &[]] {
        assert!(
            hint(&cancelled, entries).starts_with("Nothing to do: its own code cancelled it"),
            "{entries:?}"
        );
    }
    cancelled.failure = Some(windlass_store::Actor::new("ada").failure());
    let wanted = "To run it after all: `windlass retry JOB`.";
    assert_eq!(hint(&cancelled, &[check]), wanted);
    // What was not undone comes first, and only that of the last unwind.
    let left = (CallKind::Step, CallEvent::NotUndone, "pay", "{}");
    let why = format!("First take care of what was not undone: step \"pay\". {wanted}");
    assert_eq!(hint(&cancelled, &[pay, left]), why);
    assert_eq!(
        hint(
            &cancelled,
            &[pay, left, (CallKind::Lifecycle, CallEvent::Done, "windlass.resumed", "null"), refund]
        ),
        wanted
    );
}

#[test]
fn of_a_journal_that_is_too_long_to_read_no_fork_is_recommended() {
    let mut stopped = job(State::Failed);
    stopped.summary.reason = Some(Reason::Stopped);
    let end = JournalEnd { before: 3, ..journal(&[(CallKind::Step, CallEvent::Done, "check", "1")]) };
    let hint = explain(&stopped, &Holds::default(), &[], &end, &[], NOW).hint;
    assert!(hint.contains("`windlass retry") && hint.contains("more than the 10000 entries"), "{hint}");
    assert!(!hint.contains("fork"), "{hint}");
}

#[test]
fn a_row_that_cannot_be_decoded_comes_first() {
    let fault = "the column settings of its row cannot be decoded: EOF while parsing a value";
    let broken = |state| Job { fault: Some(fault.into()), ..job(state) };
    let why = explained(&broken(State::Ready), &Holds { paused: pause(None), ..Holds::default() }, &[]);
    assert_eq!(why.cause, Cause::Undecodable);
    assert_eq!(why.because, format!("It fails when it is claimed next, because {fault}."));
    assert_eq!(why.also.len(), 2, "what else holds it: {:?}", why.also);
    let why = explained(&broken(State::Failed), &Holds::default(), &[]);
    assert_eq!(
        (why.cause, why.because),
        (Cause::Undecodable, format!("It cannot be retried, because {fault}."))
    );
    assert!(why.hint.ends_with(&format!("`windlass retry {}`.", id(1))));
    assert_eq!(explained(&broken(State::Done), &Holds::default(), &[]).cause, Cause::Done);
}

#[test]
fn every_cause_has_one_word_which_json_has_too() {
    let mut words = std::collections::BTreeSet::new();
    for cause in Cause::ALL {
        assert_eq!(serde_json::to_value(cause).expect("JSON"), cause.to_string());
        assert!(words.insert(cause.as_str()), "{cause} twice");
    }
}
