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

windlass_store::undecodable_cases!(cases);
