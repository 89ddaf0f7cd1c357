//! Helpers that the tests of the engine share.

mod codec;
mod faulty;
mod jobs;
mod stores;
mod until;

pub(crate) use codec::Reversed;
pub(crate) use faulty::{Call, Faults, faulty};
pub(crate) use jobs::{gate, make_suspects, reaches, state};
pub(crate) use stores::{TestStore, postgres, postgres_on, sqlite};
pub(crate) use until::until;
