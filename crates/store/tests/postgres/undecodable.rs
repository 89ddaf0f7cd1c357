//! Columns that cannot be decoded.

use std::sync::Arc;

use windlass_model::JobId;
use windlass_store::{
    conformance::{kit::Handle, undecodable},
    postgres::Postgres,
};

use super::{named, sql};

/// Runs a case in a schema of its own.
macro_rules! cases {
    ($($case:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let schema = stringify!($case);
            let store: Handle = Arc::new(Postgres::open(named(schema)).await.expect("open"));
            let write = |column: &str, id: JobId, text: &str| {
                let written = sql(&format!("update {schema}.jobs set {column} = '{text}' where id = '{id}' returning 1"));
                assert!(written.contains('1'), "{column}: {written}");
            };
            undecodable::$case(store, &write).await;
        })*
    };
}

windlass_store::undecodable_cases!(cases);
