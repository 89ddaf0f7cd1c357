//! The conformance suite on the memory store.

use std::sync::Arc;

use windlass_store::{Store, memory::Memory};

async fn open() -> ((), Arc<dyn Store>) {
    ((), Arc::new(Memory::new()))
}

windlass_store::conformance!(open);
windlass_store::conformance_of_transactions!(open);

/// The memory store against itself: the sequences themselves must be deterministic.
#[test]
fn random_sequences_agree_with_the_reference() {
    windlass_store::conformance::random_sequences::run(256, open);
}

#[test]
fn random_sequences_with_branches_agree_with_the_reference() {
    windlass_store::conformance::random_sequences::run_with_branches(128, open);
}
