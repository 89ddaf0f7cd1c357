//! The store as callers pass it around: all traits together.

use std::{future::Future, pin::Pin};

use windlass_model::Time;

use crate::{
    Alerts, Backend, Control, Diagnose, Error, Execution, Inspect, Maintenance, Operations, Tokens, Users,
};

/// The future of a call to the store.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The time at which a call takes place: `None` is the database's own clock, which everything but a test passes.
pub type Now = Option<Time>;

/// Everything that a store can do, cut by caller:
///
/// | trait | caller |
/// |---|---|
/// | [`Execution`] | workers and submitting programs: submit, claim, commit, signal, release |
/// | [`Maintenance`] | the loops of every worker: renew, reap, fire timers, poll branches, prune |
/// | [`crate::Replay`] | code of machines and workflows while it runs: journals, inboxes, branches |
/// | [`Inspect`] | people who read: the command line, a dashboard, tests |
/// | [`Control`] | people who act: cancel, pause, retry, fork, change rules |
/// | [`Diagnose`] | the doctor: health of the database, work that does not progress |
/// | [`Tokens`] | the server and `windlass tokens`: who may send requests |
/// | [`Users`] | the server and `windlass users`: who may log in |
/// | [`Operations`] | the server: records of what it does to many jobs |
/// | [`Alerts`] | the server and `windlass alerts`: what rules find wrong |
/// | [`Backend`] | whoever opens the store: connections, limits, properties of the database |
///
/// `Arc<dyn Store>` is what programs pass around; a function that needs one part only takes `&dyn Inspect` and so on, which
/// a `&dyn Store` coerces to. Every type that implements all parts is a `Store`; see [`crate::Wrapper`] for a store
/// that changes a few verbs of another.
pub trait Store:
    Execution + Maintenance + Inspect + Control + Diagnose + Tokens + Alerts + Operations + Users + Backend
{
    /// The part for people who read.
    fn inspect(&self) -> &dyn Inspect;

    /// The part for people who act.
    fn control(&self) -> &dyn Control;

    /// The part for the doctor.
    fn diagnose(&self) -> &dyn Diagnose;
}

impl<
    T: Execution + Maintenance + Inspect + Control + Diagnose + Tokens + Alerts + Operations + Users + Backend,
> Store for T
{
    fn inspect(&self) -> &dyn Inspect {
        self
    }

    fn control(&self) -> &dyn Control {
        self
    }

    fn diagnose(&self) -> &dyn Diagnose {
        self
    }
}
