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
            let schema = concat!("undecodable_", line!());
            let schema = format!("{schema}_{}", stringify!($case).len());
            let store: Handle = Arc::new(Postgres::open(named(&schema)).await.expect("open"));
            let write = |column: &str, id: JobId, text: &str| {
                let written = sql(&format!("update {schema}.jobs set {column} = '{text}' where id = '{id}' returning 1"));
                assert!(written.contains('1'), "{column}: {written}");
            };
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
