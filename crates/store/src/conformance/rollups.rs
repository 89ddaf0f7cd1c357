//! What ends per minute and branch, and how long waits for signals take: exact whatever happens, and summed up without a trace.

use std::time::Duration;

use windlass_model::{
    Change, CommitOutcome, Ended, Histogram, Outcome, Reason, State, WorkerId, branch::BRANCH_SIGNAL,
    wait::CHILD_SIGNAL,
};

use super::{
    branch_kit::{BRANCH, children, claim_all, parent_with_children},
    kit::*,
    races::run_concurrently,
    signal::to_first,
};
use crate::{
    BranchTimes, JobAction, MAX_SIGNAL_NAMES, OTHER_SIGNALS, RollUpRequest, SignalWaitFilter, SignalWaits,
    Throughput, ThroughputBy, ThroughputFilter,
};

/// Everything that ended in the first hundred days.
fn all(by: ThroughputBy) -> ThroughputFilter {
    let (queues, kinds) = (Vec::new(), Vec::new());
    ThroughputFilter { queues, kinds, from: t(0), until: t(100 * 86_400), by }
}

async fn ended(store: &Handle, filter: &ThroughputFilter) -> Vec<Throughput> {
    store.inspect().throughput(filter).await.expect("throughput")
}

/// Done, failed, cancelled and retried.
fn counts(ended: &Ended) -> [u64; 4] {
    [ended.done, ended.failed, ended.cancelled, ended.retried]
}

/// The sum of everything.
async fn total(store: &Handle) -> Ended {
    let mut total = Ended::default();
    ended(store, &all(ThroughputBy::Minute)).await.iter().for_each(|row| total.merge(&row.ended));
    total
}

async fn waits(store: &Handle) -> Vec<SignalWaits> {
    store.inspect().signal_waits(&SignalWaitFilter::default()).await.expect("waits")
}

async fn roll_up(store: &Handle) {
    let request = RollUpRequest { limit: 3, hours_before: None, delete_before: None };
    while store.roll_up(&request).await.expect("rolled up").more {}
}

fn histogram(seconds: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    let bucket = |seconds: &u64| Histogram::bucket(Duration::from_secs(*seconds).as_micros() as i64);
    seconds.iter().for_each(|seconds| histogram.add(bucket(seconds), 1));
    histogram
}

/// A change of an attempt that started at a time.
fn started(change: Change, at: u64) -> Change {
    Change { started_at: t(at), ..change }
}

/// Parks the `n`th job, and returns its worker.
async fn park(store: &Handle, n: u32, now: u64, outcome: Outcome) -> WorkerId {
    let (me, job) = running_job(store, n).await;
    apply(store, now, change(me, &job, outcome)).await;
    me
}

pub async fn what_ends_is_counted_per_minute_queue_and_kind(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(0, 4)).await;
    submit(&store, &[job_in(10, "other", "aside")]).await;
    let mut claimed = claim(&store, at(2), &claim_request(me, 1, 9)).await;
    let request = crate::ClaimRequest {
        queue: "aside".into(),
        kinds: [kind("other", 1)].into(),
        ..claim_request(me, 2, 9)
    };
    claimed.extend(claim(&store, at(2), &request).await);
    let outcomes = [done("x"), failed(Reason::Stopped), cancelled(), retry(secs(50), &[]), done("y")];
    let changes = claimed.iter().zip(outcomes).map(|(job, outcome)| started(change(me, job, outcome), 3));
    store.commit(at(10), &changes.collect::<Vec<_>>()).await.expect("committed");
    fire_timers(&store, 60, 9).await;
    let again = claim_one(&store, 61, me, 3).await;
    apply(&store, 64, started(change(me, &again, done("z")), 62)).await;

    let minutes = ended(&store, &all(ThroughputBy::Minute)).await;
    let seen: Vec<_> = minutes.iter().map(|row| (row.starts_at, row.minutes, counts(&row.ended))).collect();
    assert_eq!(seen, [(Some(t(0)), 1, [2, 1, 1, 1]), (Some(t(60)), 1, [1, 0, 0, 0])]);
    let (first, second) = (&minutes[0].ended, &minutes[1].ended);
    assert_eq!((&first.wait_times, &first.run_times), (&histogram(&[3; 4]), &histogram(&[7; 4])));
    assert_eq!((&second.wait_times, &second.run_times), (&histogram(&[2]), &histogram(&[2])));

    let hours = ended(&store, &all(ThroughputBy::Hour)).await;
    assert_eq!((hours.len(), hours[0].minutes, counts(&hours[0].ended)), (1, 60, [3, 1, 1, 1]));
    let kinds = ended(&store, &all(ThroughputBy::Kind)).await;
    let seen: Vec<_> = kinds.iter().map(|row| (row.queue_and_kind.clone(), counts(&row.ended))).collect();
    let of = |queue: &str, kind: &str| Some((queue.to_owned(), kind.to_owned()));
    assert_eq!(seen, [(of("aside", "other"), [1, 0, 0, 0]), (of(QUEUE, KIND), [2, 1, 1, 1])]);

    let only = |queues: &[&str], kinds: &[&str]| ThroughputFilter {
        queues: queues.iter().map(ToString::to_string).collect(),
        kinds: kinds.iter().map(ToString::to_string).collect(),
        ..all(ThroughputBy::Minute)
    };
    assert_eq!(ended(&store, &only(&["aside"], &[])).await.len(), 1);
    assert_eq!(ended(&store, &only(&[QUEUE], &["other"])).await, []);
    let later = ThroughputFilter { from: t(1), ..all(ThroughputBy::Minute) };
    assert_eq!(ended(&store, &later).await[0].starts_at, Some(t(60)), "minutes that begin in the span");
}

pub async fn a_repeated_or_fenced_commit_counts_nothing(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(0, 3)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let changes = [
        change(me, &claimed[0], done("x")),
        change(me, &claimed[1], failed(Reason::Stopped)),
        change(me, &claimed[2], retry(secs(9), &[])),
    ];
    for _ in 0..3 {
        let outcomes = store.commit(at(1), &changes).await.expect("committed");
        assert_eq!(outcomes, [CommitOutcome::Committed, CommitOutcome::Committed, CommitOutcome::Committed]);
    }
    let late = change(me, &claimed[0], done("again"));
    assert_eq!(
        commit(&store, 2, Change { rev: windlass_model::Rev(7), ..late }).await,
        CommitOutcome::Fenced
    );
    let total = total(&store).await;
    assert_eq!((counts(&total), total.run_times.count()), ([1, 1, 0, 1], 2));
}

pub async fn a_refused_change_counts_nothing_and_its_batch_is_counted(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(0, 3)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let write =
        |job: &_, outcome| with_step(change(me, job, outcome), journal_writes(vec![entry(0, "charge", "1")]));
    apply(&store, 1, write(&claimed[1], Outcome::Next)).await;
    let changes = [
        change(me, &claimed[0], done("x")),
        // The entry exists: the database refuses it.
        write(&after_step(&claimed[1]), done("x")),
        change(me, &claimed[2], failed(Reason::Stopped)),
    ];
    let outcomes = store.commit(at(2), &changes).await.expect("committed");
    assert!(matches!(outcomes[1], CommitOutcome::Refused(_)), "{outcomes:?}");
    let total = total(&store).await;
    assert_eq!((counts(&total), total.run_times.count()), ([1, 1, 0, 0], 2));
}

pub async fn jobs_that_are_ended_from_outside_are_counted_without_times(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[job(1), windlass_model::NewJob { deadline_at: Some(t(5)), ..job(2) }]).await;
    must_act(&store, 1, 1, cancel(9)).await;
    fire_timers(&store, 5, 9).await;
    assert_eq!(counts(&total(&store).await), [0, 1, 1, 0]);
    // A job that kills its workers.
    submit(&store, &[job(3)]).await;
    claim_one(&store, 6, me, 1).await;
    reap(&store, 7, me).await;
    for n in 2..=i64::from(MAX_CRASHES) + 2 {
        let next = worker(&store, n).await;
        if claim(&store, at(8), &solo_claim_request(next, 1)).await.is_empty() {
            break;
        }
        reap(&store, 9, next).await;
    }
    assert_eq!(state(&store, id(3)).await, State::Failed);
    let total = total(&store).await;
    assert_eq!((counts(&total), total.run_times.count()), ([0, 2, 1, 0], 0));
    // A revival takes nothing back: the job has ended, and ends again.
    must_act(&store, 10, 1, JobAction::Retry).await;
    let again = worker(&store, 90).await;
    let job = claim_one(&store, 10, again, 1).await;
    apply(&store, 11, change(again, &job, done("x"))).await;
    assert_eq!(counts(&self::total(&store).await), [1, 2, 1, 0]);
}

pub async fn commits_of_many_workers_are_all_counted_while_they_are_summed_up(store: Handle) {
    const WORKERS: usize = 6;
    const JOBS: u32 = 40;
    submit(&store, &jobs(0, WORKERS as u32 * JOBS)).await;
    let work = |n: usize, store: Handle| async move {
        if n == WORKERS {
            for _ in 0..30 {
                roll_up(&store).await;
                tokio::task::yield_now().await;
            }
            return;
        }
        let me = worker(&store, n as i64 + 1).await;
        for number in 1..=i64::from(JOBS) {
            for job in claim(&store, at(1), &claim_request(me, number, 1)).await {
                apply(&store, 2, change(me, &job, done("x"))).await;
            }
        }
    };
    run_concurrently(&store, WORKERS + 1, work).await;
    let expected = count(&store, State::Done).await as u64;
    let before = total(&store).await;
    assert_eq!((before.done, before.run_times.count()), (expected, expected));
    roll_up(&store).await;
    assert_eq!(total(&store).await, before);
}

pub async fn a_roll_up_changes_nothing_that_is_read(store: Handle) {
    let parent = parent_with_children(&store, children(10, 6)).await;
    let claimed = claim_all(&store, 2, parent.0, 5).await;
    for (n, job) in claimed.iter().enumerate() {
        let now = 3 + 50 * n as u64;
        let outcome = if n % 3 == 2 { failed(Reason::Stopped) } else { done("x") };
        apply(&store, now, started(change(parent.0, job, outcome), now - 1)).await;
        let read = async || {
            let by_time = ended(&store, &all(ThroughputBy::Minute)).await;
            let times = store.inspect().branch_times(id(1)).await.expect("times");
            (by_time, ended(&store, &all(ThroughputBy::Kind)).await, times)
        };
        let before = read().await;
        if n % 2 == 1 {
            roll_up(&store).await;
        }
        assert_eq!(read().await, before);
    }
    assert_eq!(counts(&total(&store).await), [4, 2, 0, 0]);
}

pub async fn old_minutes_become_hours_and_old_hours_are_deleted(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(0, 6)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let minutes = [0, 1, 59, 60, 61, 120];
    for (job, minute) in claimed.iter().zip(minutes) {
        apply(&store, minute * 60 + 2, change(me, job, done("x"))).await;
    }
    let starts = async |store: &Handle| -> Vec<_> {
        let rows = ended(store, &all(ThroughputBy::Minute)).await;
        rows.into_iter()
            .filter_map(|row| Some(((row.starts_at? - t(0)).as_secs() / 60, row.minutes, row.ended.done)))
            .collect()
    };
    let one = |minute| (minute, 1, 1);
    assert_eq!(starts(&store).await, minutes.map(one));
    roll_up(&store).await;
    // In the middle of the second hour: only the first is complete.
    let request = RollUpRequest { limit: 2, hours_before: Some(t(90 * 60)), delete_before: None };
    while store.roll_up(&request).await.expect("rolled up").more {}
    assert_eq!(starts(&store).await, [(0, 60, 3), one(60), one(61), one(120)]);
    let request = RollUpRequest { hours_before: Some(t(120 * 60)), ..request };
    while store.roll_up(&request).await.expect("rolled up").more {}
    assert_eq!(starts(&store).await, [(0, 60, 3), (60, 60, 2), one(120)]);
    assert_eq!(counts(&ended(&store, &all(ThroughputBy::Hour)).await[1].ended), [2, 0, 0, 0]);
    let request = RollUpRequest { delete_before: Some(t(100 * 60)), ..request };
    assert_eq!(store.roll_up(&request).await.expect("rolled up").deleted, 1);
    assert_eq!(starts(&store).await, [(60, 60, 2), one(120)]);
}

pub async fn waits_are_counted_for_the_signals_that_ended_them(store: Handle) {
    park(&store, 1, 1, wait_for_signals(&["paid", "refused"], 1, Some(secs(500)))).await;
    send(&store, 101, &[to_first("other", "a")]).await;
    assert!(waits(&store).await.is_empty(), "it still waits");
    send(&store, 201, &[to_first("paid", "b"), to_first("refused", "c")]).await;
    let expected = |signal: &str, arrived: &[u64], timed_out: &[u64]| SignalWaits {
        kind: KIND.to_owned(),
        signal: signal.to_owned(),
        arrived: histogram(arrived),
        timed_out: histogram(timed_out),
    };
    assert_eq!(waits(&store).await, [expected("paid", &[200], &[])]);
    // Both of two; and of these the one that did not come in time.
    park(&store, 2, 1, wait_for_signals(&["one", "two"], 2, Some(secs(20)))).await;
    send(&store, 5, &[signal(id(2), "one", "a", "1")]).await;
    send(&store, 11, &[signal(id(2), "two", "a", "1")]).await;
    park(&store, 3, 1, wait_for_signals(&["one", "two"], 2, Some(secs(20)))).await;
    send(&store, 5, &[signal(id(3), "one", "a", "1")]).await;
    assert_eq!(fire_timers(&store, 31, 9).await.woken, 1);
    // A signal that came before the wait, ends of children, and sleeps.
    park(&store, 4, 1, wait_for_signals(&[], 1, Some(secs(9)))).await;
    fire_timers(&store, 31, 9).await;
    let (me, job) = running_job(&store, 5).await;
    send(&store, 2, &[signal(id(5), "early", "a", "1")]).await;
    apply(&store, 3, change(me, &job, wait_for_signals(&["early", CHILD_SIGNAL, BRANCH_SIGNAL], 1, None)))
        .await;
    let all = [
        expected("early", &[0], &[]),
        expected("one", &[10], &[]),
        expected("paid", &[200], &[]),
        expected("two", &[10], &[30]),
    ];
    assert_eq!(waits(&store).await, all);
    roll_up(&store).await;
    assert_eq!(waits(&store).await, all);
    let filter = |kinds: &[&str], signal: Option<&str>| SignalWaitFilter {
        kinds: kinds.iter().map(ToString::to_string).collect(),
        signal: signal.map(str::to_owned),
        from: t(0),
    };
    let read = async |filter| store.inspect().signal_waits(&filter).await.expect("waits");
    assert_eq!(read(filter(&[KIND], Some("two"))).await, all[3..]);
    assert_eq!(read(filter(&["other"], None)).await, []);
    assert_eq!(read(SignalWaitFilter { from: t(86_400), ..filter(&[], None) }).await, []);
    let request = RollUpRequest { limit: 99, hours_before: None, delete_before: Some(t(2 * 86_400)) };
    store.roll_up(&request).await.expect("rolled up");
    assert_eq!(waits(&store).await, []);
}

pub async fn names_of_signals_that_contain_ids_are_kept_together(store: Handle) {
    let me = worker(&store, 1).await;
    let all = MAX_SIGNAL_NAMES as u32 + 5;
    submit(&store, &jobs(0, all)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, all as usize)).await;
    let name = |n: usize| format!("order-{n}");
    let parks: Vec<Change> =
        claimed.iter().enumerate().map(|(n, job)| change(me, job, wait_for_signal(&name(n), None))).collect();
    store.commit(at(1), &parks).await.expect("parked");
    let signals: Vec<_> =
        claimed.iter().enumerate().map(|(n, job)| signal(job.id, &name(n), "a", "1")).collect();
    for half in signals.chunks(all as usize / 2) {
        send(&store, 2, half).await;
        roll_up(&store).await;
    }
    let waits = waits(&store).await;
    assert_eq!(waits.len(), MAX_SIGNAL_NAMES + 1);
    let others: Vec<_> = waits.iter().filter(|waits| waits.signal == OTHER_SIGNALS).collect();
    assert_eq!(others.iter().map(|waits| waits.arrived.count()).sum::<u64>(), 5);
    assert_eq!(waits.iter().map(|waits| waits.arrived.count()).sum::<u64>(), u64::from(all));
}

pub async fn a_branch_has_the_times_of_its_children(store: Handle) {
    let parent = parent_with_children(&store, children(10, 4)).await;
    assert_eq!(store.inspect().branch_times(id(1)).await.expect("times"), []);
    let claimed = claim_all(&store, 5, parent.0, 5).await;
    // Children are due since they were spawned, at 1.
    apply(&store, 30, started(change(parent.0, &claimed[0], done("x")), 21)).await;
    apply(&store, 100, started(change(parent.0, &claimed[1], failed(Reason::Stopped)), 11)).await;
    apply(&store, 120, started(change(parent.0, &claimed[2], retry(secs(9), &[])), 5)).await;
    let expected = BranchTimes {
        branch: BRANCH,
        first_start_at: Some(t(11)),
        last_end_at: Some(t(100)),
        wait_times: histogram(&[20, 10]),
        run_times: histogram(&[9, 89]),
    };
    assert_eq!(store.inspect().branch_times(id(1)).await.expect("times"), std::slice::from_ref(&expected));
    // A child that nobody runs any more ends without times of its own.
    roll_up(&store).await;
    must_act(&store, 125, 12, cancel(9)).await;
    let expected = BranchTimes { last_end_at: Some(t(125)), ..expected };
    assert_eq!(store.inspect().branch_times(id(1)).await.expect("times"), [expected]);
}
