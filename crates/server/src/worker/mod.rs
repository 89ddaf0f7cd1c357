//! What a server knows of workers on other hosts: to whom they belong, what they have claimed, and when a queue changes.
//!
//! All of it can be read from the store again, so that any server behind a load balancer answers any call, and a restart loses nothing.

mod claims;
mod gates;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use windlass::{
    Engine,
    model::{WorkerId, limits::MAX_BATCH_BYTES},
    store::{Registrant, Store},
};

pub(crate) use self::{
    claims::{Claims, KnownJob},
    gates::GateWatch,
};
use crate::{
    access::{Principal, forbidden},
    error::Error,
    settings::Settings,
};

/// What stands for the token of workers that were registered without one, on a loopback address.
const LOOPBACK: &str = "loopback";
/// How many workers are remembered: more than one server has.
const MAX_WORKERS: usize = 20_000;
/// What a request may have besides payloads.
const OVERHEAD: usize = 4 << 20;

/// What the server knows of workers on other hosts.
pub(crate) struct Workers {
    store: Arc<dyn Store>,
    /// By which token each was registered, which never changes.
    registrants: Mutex<HashMap<WorkerId, String>>,
    pub(crate) claims: Claims,
    pub(crate) gates: GateWatch,
    /// The most bytes of a worker's request: a full batch whose payloads are base64, with one step of the largest size.
    pub(crate) body_limit: usize,
}

/// Whether a worker that a request names exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existence {
    /// It was registered with the token of the request.
    Own,
    /// It never was, or is long gone: whatever it did is fenced.
    Unknown,
}

impl Workers {
    pub(crate) fn new(engine: &Engine, settings: &Settings, stopping: watch::Receiver<bool>) -> Workers {
        let store = Arc::clone(engine.store());
        let batch = (MAX_BATCH_BYTES + store.limits().step) / 3 * 4 + OVERHEAD;
        Workers {
            gates: GateWatch::new(Arc::clone(&store), stopping),
            store,
            registrants: Mutex::default(),
            claims: Claims::default(),
            body_limit: batch.max(settings.body_limit),
        }
    }

    /// The token that a request's worker is registered with.
    pub(crate) fn token(principal: &Principal) -> String {
        principal.token.clone().unwrap_or_else(|| LOOPBACK.to_owned())
    }

    /// Notes that a worker was registered.
    pub(crate) fn registered(&self, worker: WorkerId, token: String) {
        let mut registrants = lock(&self.registrants);
        if registrants.len() >= MAX_WORKERS {
            registrants.clear();
        }
        registrants.insert(worker, token);
    }

    /// Refuses a worker that belongs to another token, or to a process with access to the database.
    pub(crate) async fn check(&self, principal: &Principal, worker: WorkerId) -> Result<Existence, Error> {
        let token = Workers::token(principal);
        let known = lock(&self.registrants).get(&worker).cloned();
        let owner = match known {
            Some(owner) => owner,
            None => match self.store.registrant(worker).await? {
                Registrant::Unknown => return Ok(Existence::Unknown),
                Registrant::Process => return Err(not_own(worker)),
                Registrant::Token(owner) => {
                    self.registered(worker, owner.clone());
                    owner
                }
            },
        };
        if owner == token { Ok(Existence::Own) } else { Err(not_own(worker)) }
    }
}

fn not_own(worker: WorkerId) -> Error {
    forbidden(
        format!("the worker {worker} was not registered with this token"),
        "register one with it; the id of a worker is of use to its own token alone",
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
