//! What a dashboard reads and does, on a store in memory: views of jobs in every state, and operations with a record.

mod operations;
mod views;

use std::{collections::HashMap, sync::Arc};

use windlass_env::{Env, IdSource, VirtualClock};
use windlass_operate::Operator;
use windlass_store::{
    conformance::kit::{BEGIN, Handle, secs},
    memory::Memory,
};
use windlass_workflow::{
    Data,
    engine::{Codecs, Reader, Services},
};

/// An operator of a new store in memory, whose timers are those of a clock that the test moves.
fn operator() -> (Operator, Handle, Arc<VirtualClock>) {
    let store: Handle = Arc::new(Memory::new());
    // Later than the ids of the jobs that the cases submit: a bulk action leaves newer ones alone.
    let clock = Arc::new(VirtualClock::new(BEGIN + secs(1)));
    let env = Env::with_clock(Arc::clone(&clock));
    let services = Services {
        ids: IdSource::new(env.clone()),
        reader: Arc::new(Reader::new(env.clone(), Arc::clone(&store))),
        store: Arc::clone(&store),
        codecs: Arc::new(Codecs::default()),
        data: Data::default(),
        env,
    };
    let operator = Operator::new(Arc::new(services), Arc::new(HashMap::new()), || {});
    (operator, store, clock)
}
