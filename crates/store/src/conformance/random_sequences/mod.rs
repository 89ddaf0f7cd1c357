//! Random sequences of calls on a store and on the memory store: every result and everything visible must be the same.
//!
//! [`ops`] says what a sequence consists of, `strategies` how it is drawn, `pair` makes its calls on both stores, and
//! `compare` compares what they show. `regressions` keeps the sequences that a store once failed.

mod build;
mod compare;
pub mod ops;
mod pair;
mod regressions;
mod requests;
mod strategies;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner},
};

use self::{
    build::limit,
    ops::Op,
    pair::Pair,
    strategies::{branch_sequence, sequence},
};
use super::kit::{BEGIN, Handle};
use crate::{Actor, AdminAction, memory::Memory};

/// The length of the longest random sequence.
const MAX_OPS: usize = 60;
/// After how many ops every job is compared in detail; lists and counts are compared after each op.
const DETAIL_EVERY: usize = 8;

/// Runs the regressions and then `cases` random sequences, each on a new store and on a new memory store, and panics with the
/// shortest sequence on which they differ. PROPTEST_CASES overrides the number, and PROPTEST_RNG_SEED the seed, which is printed.
pub fn run<K>(cases: u32, open: impl AsyncFn() -> (K, Handle)) {
    let runtime = runtime();
    let regressions = regressions::sequences().into_iter();
    let failed =
        regressions.filter_map(|(name, ops)| Some((name, runtime.block_on(run_once(&open, &ops)).err()?)));
    let failed: Vec<String> = failed.map(|(name, why)| format!("{name}: {why}")).collect();
    assert!(failed.is_empty(), "regressions that fail again:\n{}", failed.join("\n"));
    run_random(config(cases), &sequence(MAX_OPS), &runtime, &open);
}

/// The same with random sequences that are mostly about branches, half as many as PROPTEST_CASES says: each takes longer.
pub fn run_with_branches<K>(cases: u32, open: impl AsyncFn() -> (K, Handle)) {
    let all = config(cases * 2);
    let config = Config { cases: all.cases.div_ceil(2), ..all };
    run_random(config, &branch_sequence(MAX_OPS), &runtime(), &open);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn config(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 1_000, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if let RngSeed::Random = config.rng_seed {
        config.rng_seed = RngSeed::Fixed(RandomState::new().build_hasher().finish());
    }
    config
}

fn run_random<K>(
    config: Config,
    sequences: &impl Strategy<Value = Vec<Op>>,
    runtime: &tokio::runtime::Runtime,
    open: &impl AsyncFn() -> (K, Handle),
) {
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => format!("PROPTEST_RNG_SEED={seed}"),
        RngSeed::Random => unreachable!("config() sets a seed"),
    };
    println!("{} random sequences; to run the same ones again, set {seed}", config.cases);
    let outcome = TestRunner::new(config)
        .run(sequences, |ops| runtime.block_on(run_once(open, &ops)).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, ops)) => panic!(
            "{why}\nfound with {seed}; the shortest sequence, to be added to random_sequences/regressions.rs:\n{}",
            regressions::source(&ops)
        ),
        Err(error) => panic!("{error} (with {seed})"),
    }
}

/// Runs one sequence on a new store and on a new memory store.
async fn run_once<K>(open: &impl AsyncFn() -> (K, Handle), ops: &[Op]) -> Result<(), String> {
    let (_keep, subject) = open().await;
    let reference: Handle = Arc::new(Memory::with_limits(subject.limits().clone()));
    compare_stores(&reference, &subject, ops).await
}

/// Makes the calls of `ops` on both stores, which must be empty. The error says where they first differ.
pub async fn compare_stores(reference: &Handle, subject: &Handle, ops: &[Op]) -> Result<(), String> {
    let mut pair = Pair::new(reference, subject);
    for worker in 0..3 {
        pair.call(&Op::Register { worker, again: false }).await?;
    }
    for store in [reference, subject] {
        let action = AdminAction::Limit(limit(3));
        let _ = store
            .control()
            .administer(Some(BEGIN), &action, &Actor::new("setup"))
            .await
            .map_err(|error| error.to_string())?;
    }
    pair.compare_gates().await?;
    for (n, op) in ops.iter().enumerate() {
        let detail = n % DETAIL_EVERY == DETAIL_EVERY - 1 || n + 1 == ops.len();
        let mut outcome = pair.call(op).await;
        if outcome.is_ok() {
            outcome = pair.compare(detail).await;
        }
        outcome.map_err(|why| format!("at {}, op {n}, {op:?}: {why}", pair.now))?;
    }
    Ok(())
}
