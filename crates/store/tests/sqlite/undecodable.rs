//! Columns that cannot be decoded.

use windlass_model::JobId;
use windlass_store::conformance::{kit::Handle, undecodable};

use super::open;

/// Runs a case on a new file.
macro_rules! cases {
    ($($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            let (folder, store) = open().await;
            let conn = rusqlite::Connection::open(folder.path().join("work.db")).expect("open");
            let conn = std::sync::Mutex::new(conn);
            let write = |column: &str, id: JobId, text: &str| {
                let sql = format!("update windlass_jobs set {column} = ?2 where id = ?1");
                let rows = conn.lock().expect("unlocked").execute(&sql, rusqlite::params![id.as_bytes(), text]);
                assert_eq!(rows, Ok(1), "{column}");
            };
            let store: Handle = store;
            undecodable::$case(store, &write).await;
        })*
    };
}

cases! {
    a_claim_returns_the_fault_of_one_job
    a_wait_that_cannot_be_decoded_ends_with_the_next_signal
    a_job_keeps_its_unique_name_until_it_has_ended
    a_job_is_not_retried_or_forked_before_its_row_is_repaired
    a_job_that_cannot_be_decoded_is_pruned
}
