//! Payloads too large for a job's row.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_model::{NewJob, Outcome, Payload, State, Verdict};
use windlass_store::{
    Ended, Prune,
    conformance::kit::*,
    sqlite::{Options, Sqlite},
};

/// The largest that stays in the row.
const NEAR: usize = 32 << 10;

fn sized(len: usize, with: u8) -> Payload {
    Payload { codec: 2, bytes: vec![with; len] }
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).expect(sql)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_payload_leaves_the_row_small_and_is_read_back_everywhere() {
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let conn = Connection::open(&path).expect("open");
    let me = worker(&store, 1).await;
    let sizes = [0, 10, NEAR, NEAR + 1, 1 << 20];
    let new: Vec<NewJob> = sizes
        .iter()
        .enumerate()
        .map(|(n, len)| NewJob { input: sized(*len, b'i'), ..job(n as u32) })
        .collect();
    submit(&store, &new).await;
    assert_eq!(number(&conn, "select max(length(input)) from windlass_jobs"), NEAR as i64);
    assert_eq!(number(&conn, "select count(*) from windlass_jobs where far = 1 and input = x''"), 2);
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 2);

    let wanted = ask(me, 1, 9);
    let taken = claim(&store, at(1), &wanted).await;
    let again = claim(&store, at(1), &wanted).await;
    for (job, new) in taken.iter().chain(&again).zip(new.iter().cycle()) {
        assert_eq!(job.input, new.input, "claimed and claimed again");
    }
    let output = |n: usize| sized(sizes[sizes.len() - 1 - n], b'o');
    let changes: Vec<_> =
        taken.iter().enumerate().map(|(n, job)| change(me, job, Outcome::Done(output(n)))).collect();
    assert_eq!(store.commit(at(2), &changes).await.expect("commit"), vec![Verdict::Committed; 5]);
    assert_eq!(
        store.commit(at(2), &changes).await.expect("commit"),
        vec![Verdict::Committed; 5],
        "and again"
    );
    assert_eq!(number(&conn, "select max(length(output)) from windlass_jobs"), NEAR as i64);
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 4);
    assert_eq!(number(&conn, "select count(*) from windlass_jobs where far = 2"), 2);
    for (n, new) in new.iter().enumerate() {
        let kept = view(&store, id(n as u32)).await;
        assert_eq!((kept.input, kept.output), (new.input.clone(), Some(output(n))), "job {n}");
        let ended = store.ended(&[id(n as u32)]).await.expect("ended").remove(0);
        assert_eq!(ended, Some(Ended::Done(output(n))), "job {n}");
    }
    let prune = Prune { state: State::Done, before: t(9), kind: None, after: None, limit: 9 };
    assert_eq!(store.control().prune(at(10), &prune).await.expect("prune").jobs, 5);
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_or_repeated_write_leaves_no_payload() {
    let (_folder, path) = super::path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let conn = Connection::open(&path).expect("open");
    let me = worker(&store, 1).await;
    let new = NewJob { input: sized(NEAR + 1, b'i'), ..job(1) };
    submit(&store, std::slice::from_ref(&new)).await;
    let other = NewJob { input: sized(NEAR + 2, b'j'), digest: [9; 16], ..job(1) };
    store.submit(at(0), &[new.clone(), other], None).await.expect("submit");
    let first = claim_one(&store, 0, me, 1).await;
    store.release(at(0), &[(first.id, first.epoch)]).await.expect("release");
    let stale = change(me, &first, Outcome::Done(sized(NEAR + 3, b'o')));
    assert_eq!(commit(&store, 1, stale).await, Verdict::Fenced);
    assert_eq!(number(&conn, "select count(*) from windlass_payloads"), 1);
    let second = claim_one(&store, 1, me, 2).await;
    assert_eq!(second.input, new.input);
    let retried = change(me, &second, retry(secs(0), &[]));
    assert_eq!(commit(&store, 2, retried).await, Verdict::Committed);
    assert_eq!(claim_one(&store, 2, me, 3).await.input, new.input, "after a retry too");
}
