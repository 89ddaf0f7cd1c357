//! Journals and contexts: written with a change, completely or not at all, and read as they were written.

use windlass_model::{
    Change, ClaimedJob, CommitOutcome, Epoch, JournalEntry, Outcome, Payload, Reason, Rev, State, StepWrites,
    Time, Wait, WorkerId,
    journal::{CallEvent, CallKind},
};

use super::kit::*;
use crate::{JobAction, JournalEnd, PayloadsOf, Prune};

/// The numbers of entries.
fn numbers(entries: &[JournalEntry]) -> Vec<i32> {
    entries.iter().map(|entry| entry.seq).collect()
}

/// Submits and claims job 1, and commits a step with entries of these numbers.
async fn with_entries(store: &Handle, entries: std::ops::Range<i32>) -> (WorkerId, ClaimedJob) {
    let (me, job) = running_job(store, 1).await;
    let step = journal_writes(entries.map(|seq| entry(seq, "step", "x")).collect());
    assert_eq!(
        commit(store, 1, with_step(change(me, &job, Outcome::Next), step)).await,
        CommitOutcome::Committed
    );
    (me, after_step(&job))
}

pub async fn sizes_are_read_without_payloads_and_the_end_without_results(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let lifecycle = JournalEntry { call_kind: CallKind::Lifecycle, ..entry(2, "resumed", "voided") };
    let entries =
        vec![entry(0, "a", "1"), entry(1, "b", &"x".repeat(100_000)), lifecycle, entry(3, "c", "333")];
    let bytes: Vec<u64> = entries.iter().map(|entry| entry.payload.bytes.len() as u64).collect();
    apply(&store, 1, with_step(change(me, &job, Outcome::Next), journal_writes(entries.clone()))).await;
    let sizes = async |after, limit| {
        let of = PayloadsOf::Journal { job: id(1), after };
        store.inspect().payload_sizes(of, limit).await.expect("sizes")
    };
    assert_eq!(sizes(None, 99).await, bytes);
    assert_eq!(sizes(Some(0), 2).await, bytes[1..3]);
    assert_eq!(sizes(Some(3), 9).await, [0; 0]);
    let end = async |n, limit| store.inspect().journal_end(id(n), limit).await.expect("the end");
    let all = end(1, 9).await;
    assert_eq!((all.entries.len(), all.before), (4, 0));
    for (head, (entry, bytes)) in all.entries.iter().zip(entries.iter().zip(bytes)) {
        assert_eq!(head.bytes, bytes);
        let payload = match entry.call_kind {
            CallKind::Lifecycle => entry.payload.clone(),
            _ => Payload { bytes: Vec::new(), ..entry.payload.clone() },
        };
        assert_eq!(head.entry, JournalEntry { payload, ..entry.clone() });
    }
    let two = end(1, 2).await;
    assert_eq!((two.entries.as_slice(), two.before), (&all.entries[2..], 2));
    assert_eq!(end(9, 2).await, JournalEnd::default(), "there is no such job");
}

/// A step that writes an entry, a context value, and that there is something to undo.
fn full_step(job: &ClaimedJob) -> StepWrites {
    let context = vec![("name".to_owned(), payload("value"))];
    StepWrites { context, has_undo: true, ..journal_writes(vec![entry(job.rev.0, "full", "x")]) }
}

pub async fn every_outcome_writes_its_entries(store: Handle) {
    let outcomes = [
        Outcome::Next,
        Outcome::Wait(Wait::YIELD),
        wait_for_signal("go", None),
        retry(secs(0), &[1]),
        retry(secs(9), &[1]),
        done("x"),
        failed(Reason::Diverged),
        cancelled(),
    ];
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 8)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let changes: Vec<Change> = claimed
        .iter()
        .zip(outcomes)
        .map(|(job, outcome)| with_step(change(me, job, outcome), full_step(job)))
        .collect();
    let results = store.commit(at(1), &changes).await.expect("commit");
    assert_eq!(results, vec![CommitOutcome::Committed; 8]);
    for n in 1..=8 {
        assert_eq!(journal(&store, n).await, [entry(0, "full", "x")], "job {n}");
        assert_eq!(context(&store, n).await, [("name".to_owned(), payload("value"))], "job {n}");
    }
    assert_eq!(view(&store, id(7)).await.summary.reason, Some(Reason::Diverged));
}

pub async fn a_step_without_a_stage_keeps_the_stage(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[machine(1, "Begin")]).await;
    let job = claim_one(&store, 0, me, 1).await;
    apply(&store, 1, with_step(change(me, &job, Outcome::Next), step("Begin", "Second", "data"))).await;
    let job = after_step(&job);
    let one = journal_writes(vec![entry(0, "one", "1")]);
    assert_eq!(
        commit(&store, 2, with_step(change(me, &job, Outcome::Next), one)).await,
        CommitOutcome::Committed
    );
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.rev, seen.summary.stage.as_deref()), (Rev(2), Some("Second")));
    assert_eq!(seen.data, Some(payload("data")));
    assert_eq!(transitions(&store, 1).await.len(), 1, "an entry is not a transition");
    store.release(at(3), &[job_claim(me, &job)]).await.expect("release");
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!(
        (job.stage_rev, job.steps_since_wait),
        (Rev(1), 2),
        "it is in the stage that its first step led to"
    );
}

pub async fn a_partial_step_keeps_attempts_and_retry_counts(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 2)).await;
    let mut claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    // Alone and in a batch, with one entry and with two: stores write these by different statements.
    for (round, entries) in [1, 2].into_iter().enumerate() {
        for job in &claimed {
            let result = commit(&store, 1, change(me, job, retry(secs(0), &[1]))).await;
            assert_eq!(result, CommitOutcome::Committed);
        }
        claimed = claim(&store, at(2), &claim_request(me, round as i64 + 2, 9)).await;
        let before = claimed.iter().map(|job| (job.attempts, job.retry_counts.clone())).collect::<Vec<_>>();
        assert!(before.iter().all(|(attempts, spent)| *attempts > 0 && *spent == [1]), "{before:?}");
        for batch in [1, 2] {
            let part = |job: &ClaimedJob| {
                let first = job.rev.0 * 10;
                let entries = (first..first + entries).map(|seq| entry(seq, "part", "x")).collect();
                with_step(
                    change(me, job, Outcome::Next),
                    StepWrites { partial: true, ..journal_writes(entries) },
                )
            };
            let changes: Vec<Change> = claimed[..batch].iter().map(part).collect();
            let results = store.commit(at(3), &changes).await.expect("commit");
            assert_eq!(results, vec![CommitOutcome::Committed; batch]);
            claimed[..batch].iter_mut().for_each(|job| *job = after_step(job));
        }
        let claims: Vec<_> = claimed.iter().map(|job| job_claim(me, job)).collect();
        assert_eq!(store.release(at(4), &claims).await.expect("release"), 2);
        claimed = claim(&store, at(5), &claim_request(me, round as i64 + 10, 9)).await;
        let after = claimed.iter().map(|job| (job.attempts, job.retry_counts.clone())).collect::<Vec<_>>();
        assert_eq!(after, before, "{entries} entries");
    }
}

pub async fn entries_are_read_in_order_and_in_pages(store: Handle) {
    let (me, job) = with_entries(&store, 0..10).await;
    submit(&store, &[job_in(2, KIND, "bulk")]).await;
    let step = journal_writes((10..25).map(|seq| entry(seq, "step", "x")).collect());
    apply(&store, 2, with_step(change(me, &job, Outcome::Next), step)).await;
    assert_eq!(numbers(&journal(&store, 1).await), (0..25).collect::<Vec<_>>());
    let read =
        async |after, limit| numbers(&store.inspect().journal(id(1), after, limit).await.expect("journal"));
    assert_eq!(read(None, 3).await, [0, 1, 2]);
    assert_eq!(read(Some(2), 3).await, [3, 4, 5]);
    assert_eq!(read(Some(22), 9).await, [23, 24]);
    assert_eq!(read(Some(24), 9).await, [] as [i32; 0]);
    assert_eq!(read(None, 0).await, [] as [i32; 0]);
    assert_eq!((journal(&store, 2).await, journal(&store, 99).await), (vec![], vec![]));
    assert_eq!((context(&store, 2).await, context(&store, 99).await), (vec![], vec![]));
}

pub async fn a_thousand_entries_are_written_and_read_at_once(store: Handle) {
    let (_, job) = with_entries(&store, 0..1_000).await;
    let read = async |after, limit| store.inspect().journal(job.id, after, limit).await.expect("journal");
    let all = read(None, usize::MAX).await;
    assert_eq!(numbers(&all), (0..1_000).collect::<Vec<i32>>());
    assert!(all.iter().all(|kept| *kept == entry(kept.seq, "step", "x")));
    assert_eq!(numbers(&read(Some(99), 600).await), (100..700).collect::<Vec<i32>>());
    assert_eq!(numbers(&read(Some(799), 1_000).await), (800..1_000).collect::<Vec<i32>>());
    assert_eq!(numbers(&read(None, 200).await), (0..200).collect::<Vec<i32>>());
    assert_eq!(numbers(&read(None, 201).await), (0..201).collect::<Vec<i32>>());
}

pub async fn every_field_of_an_entry_is_kept(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let most = store.limits().payload;
    let mut entries = Vec::new();
    for (seq, call_kind) in (1..).zip(CallKind::ALL) {
        let event = CallEvent::ALL[seq as usize % CallEvent::ALL.len()];
        let payload = Payload { codec: seq as u8, bytes: vec![0, 255, seq as u8] };
        let key = Some(format!("ключ '\"\\ {seq}"));
        let at = Time(-5 + i64::from(seq));
        let line = Some(format!("src/main.rs:{seq}"));
        entries.push(JournalEntry {
            seq,
            call_kind: *call_kind,
            event,
            name: format!("é {seq}"),
            key,
            line,
            at,
            payload,
        });
    }
    entries.push(JournalEntry { payload: Payload::default(), ..entry(50, "", "") });
    entries
        .push(JournalEntry { payload: Payload { codec: 3, bytes: vec![7; most] }, ..entry(51, "large", "") });
    entries.push(entry(i32::MAX, "last", "x"));
    let step = journal_writes(entries.clone());
    assert_eq!(
        commit(&store, 1, with_step(change(me, &job, Outcome::Next), step)).await,
        CommitOutcome::Committed
    );
    assert_eq!(journal(&store, 1).await, entries);
}

pub async fn a_step_may_forget_entries(store: Handle) {
    let (me, job) = with_entries(&store, 0..6).await;
    let forget = StepWrites { forget_entries: vec![1, 4, 77], ..journal_writes(vec![entry(6, "step", "x")]) };
    apply(&store, 2, with_step(change(me, &job, Outcome::Next), forget)).await;
    assert_eq!(numbers(&journal(&store, 1).await), [0, 2, 3, 5, 6]);
    let forget = StepWrites { forget_entries: vec![0, 6], ..StepWrites::default() };
    apply(&store, 3, with_step(change(me, &after_step(&job), retry(secs(1), &[])), forget)).await;
    assert_eq!(numbers(&journal(&store, 1).await), [2, 3, 5]);
}

pub async fn continue_as_new_clears_the_journal(store: Handle) {
    let (me, job) = with_entries(&store, 0..3).await;
    let context = vec![("name".to_owned(), payload("kept"))];
    let clear = StepWrites {
        continue_as_new: true,
        context,
        stage: Some(("again".to_owned(), payload("input"))),
        ..journal_writes(vec![entry(0, "first", "again")])
    };
    apply(&store, 2, with_step(change(me, &job, Outcome::Wait(Wait::YIELD)), clear)).await;
    assert_eq!(journal(&store, 1).await, [entry(0, "first", "again")]);
    assert_eq!(context_names(&store, 1).await, ["name"]);
    let job = claim_one(&store, 3, me, 2).await;
    assert_eq!((job.stage.as_deref(), &job.data), (Some("again"), &Some(payload("input"))));
    let clear = StepWrites { continue_as_new: true, ..StepWrites::default() };
    apply(&store, 4, with_step(change(me, &job, Outcome::Next), clear)).await;
    assert_eq!(journal(&store, 1).await, []);
}

async fn context_names(store: &Handle, n: u32) -> Vec<String> {
    context(store, n).await.into_iter().map(|(name, _)| name).collect()
}

pub async fn a_fenced_change_writes_no_entries(store: Handle) {
    let (me, job) = with_entries(&store, 0..2).await;
    let outcomes = [Outcome::Next, wait_for_signal("go", None), retry(secs(0), &[]), done("x"), cancelled()];
    for outcome in outcomes {
        let stale = ClaimedJob { rev: Rev(job.rev.0 + 1), ..job.clone() };
        let step = StepWrites {
            forget_entries: vec![0],
            continue_as_new: true,
            ..full_step(&ClaimedJob { rev: Rev(9), ..job.clone() })
        };
        for other in [stale, ClaimedJob { epoch: Epoch(7), ..job.clone() }] {
            let result =
                commit(&store, 2, with_step(change(me, &other, outcome.clone()), step.clone())).await;
            assert_eq!(result, CommitOutcome::Fenced, "{outcome:?}");
        }
    }
    assert_eq!(numbers(&journal(&store, 1).await), [0, 1]);
    assert_eq!(context(&store, 1).await, []);
    store.release(at(3), &[job_claim(me, &job)]).await.expect("release");
    assert_eq!(
        act_on_job(&store, 3, 1, cancel(0)).await,
        crate::ControlOutcome::Done,
        "there is nothing to undo"
    );
}

pub async fn a_repeated_change_writes_its_entries_once(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &jobs(1, 4)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 9)).await;
    let outcomes = [Outcome::Next, wait_for_signal("go", None), retry(secs(5), &[]), done("x")];
    for (job, outcome) in claimed.iter().zip(outcomes) {
        let first = with_step(change(me, job, outcome), full_step(job));
        assert_eq!(commit(&store, 1, first.clone()).await, CommitOutcome::Committed);
        assert_eq!(
            commit(&store, 2, first.clone()).await,
            CommitOutcome::Committed,
            "the same when repeated"
        );
        // Another step for the same revision counts as the same change: the store has committed that revision already.
        let other = StepWrites {
            context: vec![("other".into(), payload("x"))],
            ..journal_writes(vec![entry(5, "b", "y")])
        };
        assert_eq!(commit(&store, 3, with_step(first, other)).await, CommitOutcome::Committed);
    }
    for n in 1..=4 {
        assert_eq!(journal(&store, n).await, [entry(0, "full", "x")]);
        assert_eq!(context_names(&store, n).await, ["name"]);
    }
}

pub async fn an_entry_number_is_used_once(store: Handle) {
    let (me, job) = with_entries(&store, 0..2).await;
    submit(&store, &[self::job(2)]).await;
    let other = claim_one(&store, 1, me, 2).await;
    let duplicate = StepWrites {
        context: vec![("a".into(), payload("b"))],
        ..journal_writes(vec![entry(1, "again", "y")])
    };
    let twice = journal_writes(vec![entry(5, "a", "x"), entry(5, "b", "y")]);
    for step in [duplicate, twice] {
        let changes = [
            with_step(change(me, &job, Outcome::Next), step),
            with_step(change(me, &other, Outcome::Next), journal_writes(vec![entry(1, "mine", "z")])),
        ];
        let results = store.commit(at(2), &changes).await.expect("commit");
        assert!(matches!(&results[..], [CommitOutcome::Refused(_), CommitOutcome::Committed]), "{results:?}");
    }
    assert_eq!(view(&store, id(1)).await.rev, Rev(1));
    assert_eq!((numbers(&journal(&store, 1).await), context(&store, 1).await), (vec![0, 1], vec![]));
    assert_eq!(journal(&store, 2).await, [entry(1, "mine", "z")], "numbers are per job");
    let corrected = StepWrites { forget_entries: vec![1], ..journal_writes(vec![entry(1, "again", "y")]) };
    assert_eq!(
        commit(&store, 3, with_step(change(me, &job, Outcome::Next), corrected)).await,
        CommitOutcome::Committed
    );
}

pub async fn a_context_keeps_the_last_value_of_each_name(store: Handle) {
    let (me, mut job) = running_job(&store, 1).await;
    let large = Payload { codec: 2, bytes: vec![9; 50_000] };
    let values = [
        vec![("b".to_owned(), payload("1")), ("a".to_owned(), payload("2"))],
        vec![("b".to_owned(), large.clone()), ("é".to_owned(), Payload::default())],
        vec![("a".to_owned(), payload("3")), ("a".to_owned(), payload("4"))],
    ];
    for context in values {
        let step = StepWrites { context, ..StepWrites::default() };
        apply(&store, 1, with_step(change(me, &job, Outcome::Next), step)).await;
        job = after_step(&job);
    }
    let names =
        [("a".to_owned(), payload("4")), ("b".to_owned(), large), ("é".to_owned(), Payload::default())];
    assert_eq!(context(&store, 1).await, names);
}

pub async fn an_invalid_entry_or_context_is_refused_alone(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    submit(&store, &[self::job(2)]).await;
    let other = claim_one(&store, 1, me, 2).await;
    let large = Payload::json(vec![b'1'; store.limits().payload + 1]);
    let named = |name: &str, value: &Payload| StepWrites {
        context: vec![(name.to_owned(), value.clone())],
        ..StepWrites::default()
    };
    let bad = [
        journal_writes(vec![
            entry(0, "fine", "x"),
            JournalEntry { payload: large.clone(), ..entry(1, "large", "") },
        ]),
        journal_writes(vec![entry(0, &"n".repeat(300), "x")]),
        journal_writes(vec![entry(0, "with a \0", "x")]),
        journal_writes(vec![JournalEntry { key: Some("k".repeat(3_000)), ..entry(0, "a", "x") }]),
        named("", &payload("x")),
        named("windlass.own", &payload("x")),
        named("fine", &large),
    ];
    for (n, step) in bad.into_iter().enumerate() {
        let fine = journal_writes(vec![entry(n as i32, "fine", "x")]);
        let other = ClaimedJob { rev: Rev(n as i32), ..other.clone() };
        let changes = [
            with_step(change(me, &job, Outcome::Next), step),
            with_step(change(me, &other, Outcome::Next), fine),
        ];
        let results = store.commit(at(1), &changes).await.expect("commit");
        assert!(
            matches!(&results[..], [CommitOutcome::Refused(_), CommitOutcome::Committed]),
            "{n}: {results:?}"
        );
    }
    assert_eq!((journal(&store, 1).await, context(&store, 1).await), (vec![], vec![]));
    assert_eq!(journal(&store, 2).await.len(), 7);
}

pub async fn a_step_that_halts_writes_its_entries(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    must_act(&store, 1, 1, JobAction::Pause).await;
    let step = with_step(change(me, &job, Outcome::Next), full_step(&job));
    assert_eq!(commit(&store, 2, step.clone()).await, CommitOutcome::Halted);
    assert_eq!(commit(&store, 2, step).await, CommitOutcome::Halted, "the same when repeated");
    assert_eq!((journal(&store, 1).await.len(), context(&store, 1).await.len()), (1, 1));
}

pub async fn later_claims_find_the_journal(store: Handle) {
    let (me, job) = with_entries(&store, 0..2).await;
    let two = worker(&store, 2).await;
    apply(
        &store,
        2,
        with_step(change(me, &job, retry(secs(0), &[])), journal_writes(vec![entry(2, "tried", "x")])),
    )
    .await;
    let job = claim_one(&store, 3, two, 1).await;
    assert_eq!((job.rev, numbers(&journal(&store, 1).await)), (Rev(2), vec![0, 1, 2]));
    reap(&store, 4, two).await;
    let job = claim(&store, at(5), &solo_claim_request(me, 2)).await.remove(0);
    let step = journal_writes(vec![entry(3, "end", "x")]);
    assert_eq!(
        commit(&store, 6, with_step(change(me, &job, failed(Reason::Stopped)), step)).await,
        CommitOutcome::Committed
    );
    assert_eq!(act_on_job(&store, 7, 1, JobAction::Retry).await, crate::ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Ready);
    assert_eq!(numbers(&journal(&store, 1).await), [0, 1, 2, 3], "a retry by hand keeps the journal");
}

pub async fn pruning_a_job_deletes_its_journal(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    apply(&store, 1, with_step(change(me, &job, done("x")), full_step(&job))).await;
    let prune = Prune { state: State::Done, before: t(5), kind: None, after: None, limit: 9 };
    assert_eq!(store.prune(at(6), &prune).await.expect("prune").jobs, 1);
    assert_eq!((journal(&store, 1).await, context(&store, 1).await), (vec![], vec![]));
    submit(&store, &[self::job(1)]).await;
    assert_eq!((journal(&store, 1).await, context(&store, 1).await), (vec![], vec![]));
}
