//! Payloads that are too large for a job's row: they are kept in rows of their own.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_model::{CommitOutcome, NewJob, Outcome, Payload, State, StepWrites};
use windlass_store::{
    JobEnd, Prune,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

/// The size of the largest payload that is kept in the job's row.
const INLINE_LIMIT: usize = 32 << 10;

fn sized(len: usize, with: u8) -> Payload {
    Payload { codec: 2, bytes: vec![with; len] }
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).expect(sql)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_payload_is_kept_outside_the_row_and_returned_by_every_read() {
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let conn = Connection::open(&path).expect("open");
    let me = worker(&store, 1).await;
    let sizes = [0, 10, INLINE_LIMIT, INLINE_LIMIT + 1, 1 << 20];
    let new: Vec<NewJob> = sizes
        .iter()
        .enumerate()
        .map(|(n, len)| NewJob { input: sized(*len, b'i'), ..job(n as u32) })
        .collect();
    submit(&store, &new).await;
    assert_eq!(number(&conn, "select max(length(input)) from windlass_jobs"), INLINE_LIMIT as i64);
    assert_eq!(
        number(&conn, "select count(*) from windlass_jobs where external_payloads = 1 and input = x''"),
        2
    );
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 2);

    let request = claim_request(me, 1, 9);
    let claimed = claim(&store, at(1), &request).await;
    let again = claim(&store, at(1), &request).await;
    for (job, new) in claimed.iter().chain(&again).zip(new.iter().cycle()) {
        assert_eq!(job.input, new.input, "by the claim and by its repeat");
    }
    let output = |n: usize| sized(sizes[sizes.len() - 1 - n], b'o');
    let changes: Vec<_> =
        claimed.iter().enumerate().map(|(n, job)| change(me, job, Outcome::Done(output(n)))).collect();
    assert_eq!(store.commit(at(2), &changes).await.expect("commit"), vec![CommitOutcome::Committed; 5]);
    assert_eq!(
        store.commit(at(2), &changes).await.expect("commit"),
        vec![CommitOutcome::Committed; 5],
        "the same when repeated"
    );
    assert_eq!(number(&conn, "select max(length(output)) from windlass_jobs"), INLINE_LIMIT as i64);
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 4);
    assert_eq!(number(&conn, "select count(*) from windlass_jobs where external_payloads = 2"), 2);
    for (n, new) in new.iter().enumerate() {
        let kept = view(&store, id(n as u32)).await;
        assert_eq!((kept.input, kept.output), (new.input.clone(), Some(output(n))), "job {n}");
        let ended = store.job_ends(&[id(n as u32)]).await.expect("ended").remove(0);
        assert_eq!(ended, Some(JobEnd::Done(output(n))), "job {n}");
    }
    let prune = Prune { state: State::Done, before: t(9), kind: None, after: None, limit: 9 };
    assert_eq!(store.prune(at(10), &prune).await.expect("prune").jobs, 5);
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_or_repeated_write_stores_no_payload() {
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let conn = Connection::open(&path).expect("open");
    let me = worker(&store, 1).await;
    let new = NewJob { input: sized(INLINE_LIMIT + 1, b'i'), ..job(1) };
    submit(&store, std::slice::from_ref(&new)).await;
    let other = NewJob { input: sized(INLINE_LIMIT + 2, b'j'), digest: [9; 16], ..job(1) };
    store.submit(at(0), &[new.clone(), other], None).await.expect("submit");
    let first = claim_one(&store, 0, me, 1).await;
    store.release(at(0), &[job_claim(me, &first)]).await.expect("release");
    let stale = change(me, &first, Outcome::Done(sized(INLINE_LIMIT + 3, b'o')));
    assert_eq!(commit(&store, 1, stale).await, CommitOutcome::Fenced);
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 1);
    let second = claim_one(&store, 1, me, 2).await;
    assert_eq!(second.input, new.input);
    let retried = change(me, &second, retry(secs(0), &[]));
    assert_eq!(commit(&store, 2, retried).await, CommitOutcome::Committed);
    assert_eq!(claim_one(&store, 2, me, 3).await.input, new.input, "after a retry too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_data_of_a_machine_is_deleted_when_it_changes() {
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let conn = Connection::open(&path).expect("open");
    let me = worker(&store, 1).await;
    submit(&store, &[NewJob { input: sized(INLINE_LIMIT + 1, b'i'), ..machine(1, "Begin") }]).await;
    let to = |len| StepWrites { stage: Some(("Next".into(), sized(len, b'd'))), ..StepWrites::default() };
    let data_size =
        || number(&conn, "select coalesce(sum(length(bytes)), 0) from windlass_payloads where part = 4");
    let mut job = claim_one(&store, 0, me, 1).await;
    let mut claim_number = 1;
    let waits = wait_for_signal("go", Some(secs(9)));
    let outcomes = [Outcome::Next, retry(secs(0), &[]), Outcome::Wait(windlass_model::Wait::YIELD), waits];
    for outcome in outcomes {
        for len in [INLINE_LIMIT + 5, INLINE_LIMIT + 7, INLINE_LIMIT, INLINE_LIMIT + 9, 0] {
            let stepped = with_step(change(me, &job, outcome.clone()), to(len));
            assert_eq!(commit(&store, 1, stepped).await, CommitOutcome::Committed);
            let external = if len > INLINE_LIMIT { len as i64 } else { 0 };
            assert_eq!(data_size(), external, "{outcome:?} {len}");
            assert_eq!(view(&store, id(1)).await.data, Some(sized(len, b'd')));
            job = after_step(&job);
            if outcome != Outcome::Next {
                fire_timers(&store, 10, 9).await;
                claim_number += 1;
                job = claim_one(&store, 10, me, claim_number).await;
            }
            assert_eq!(job.input.bytes.len(), INLINE_LIMIT + 1, "its input is kept");
        }
    }
    store.release(at(11), &[job_claim(me, &job)]).await.expect("release");
    for len in [INLINE_LIMIT + 3, 3] {
        let current = view(&store, id(1)).await;
        let (epoch, rev, stage, data) = (current.epoch, current.rev, "Other".to_owned(), sized(len, b'r'));
        let update = windlass_store::StageUpdate { job: id(1), epoch, rev, version: 1, stage, data };
        store.control().update_stages(at(11), &[update], &actor()).await.expect("update");
        assert_eq!(data_size(), if len > INLINE_LIMIT { len as i64 } else { 0 });
        assert_eq!(view(&store, id(1)).await.data, Some(sized(len, b'r')));
    }
    assert_eq!(number(&conn, "select external_payloads from windlass_jobs"), 1, "only the input");
}
