//! The operator: a store, and what is needed to read its payloads. Everything in this crate starts from it.

use std::{collections::HashMap, sync::Arc};

use windlass_env::Env;
use windlass_model::{JobId, KindVersion, Payload, Scope};
use windlass_store::{Inspect, Store};
use windlass_workflow::{
    codec,
    engine::{Codecs, Replayer, Services},
};

use crate::{Check, Control};

/// Reads and changes the jobs of one store on behalf of people. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    services: Arc<Services>,
    replayers: Arc<HashMap<KindVersion, Arc<dyn Replayer>>>,
    default_queues: Arc<HashMap<String, &'static str>>,
    /// On whose behalf it reads: see [`Operator::limited_to`].
    scope: Scope,
    poke: Arc<dyn Fn() + Send + Sync>,
    #[cfg(feature = "users")]
    passwords: crate::passwords::Passwords,
}

impl Operator {
    /// An operator of the store in `services`. `replayers` are the workflows that [`Operator::check`] can replay. `poke` is called
    /// after every change that may have made jobs ready, so that a worker in this process claims them at once.
    pub fn new(
        services: Arc<Services>,
        replayers: Arc<HashMap<KindVersion, Arc<dyn Replayer>>>,
        poke: impl Fn() + Send + Sync + 'static,
    ) -> Operator {
        Operator {
            services,
            replayers,
            default_queues: Arc::default(),
            scope: Scope::default(),
            poke: Arc::new(poke),
            #[cfg(feature = "users")]
            passwords: crate::passwords::Passwords::default(),
        }
    }

    /// Names the default queue of each kind that this program registers, so that the doctor can say which of them nobody serves.
    pub fn with_default_queues(mut self, default_queues: HashMap<String, &'static str>) -> Operator {
        self.default_queues = Arc::new(default_queues);
        self
    }

    /// The same operator on behalf of somebody who may see only the jobs of a scope: [`Operator::why`] and [`JobView`](crate::views::JobView)
    /// name no others. Which job may be asked about is for the caller to check.
    pub fn limited_to(&self, scope: &Scope) -> Operator {
        Operator { scope: scope.clone(), ..self.clone() }
    }

    /// Changes jobs, queues, limits and schedules in the name of `author`.
    pub fn control(&self, author: impl Into<String>) -> Control {
        Control::new(self.clone(), author.into())
    }

    /// Replays every open workflow against the code of this program; see [`Check`].
    pub fn check(&self) -> Check {
        Check::new(self.clone())
    }

    /// Reads for people.
    pub fn inspect(&self) -> &dyn Inspect {
        self.services.store.inspect()
    }

    /// Decodes a payload. Returns its plain JSON.
    pub fn decode(&self, payload: &Payload) -> Result<Vec<u8>, codec::Error> {
        Ok(self.codecs().decode(payload)?.into_owned())
    }

    #[cfg(feature = "users")]
    pub(crate) fn passwords(&self) -> &crate::passwords::Passwords {
        &self.passwords
    }

    /// Makes hashes of passwords otherwise, for tests.
    #[cfg(all(test, feature = "users"))]
    pub(crate) fn with_passwords(self, passwords: crate::passwords::Passwords) -> Operator {
        Operator { passwords, ..self }
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.services.store
    }

    pub(crate) fn env(&self) -> &Env {
        &self.services.env
    }

    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }

    pub(crate) fn codecs(&self) -> &Codecs {
        &self.services.codecs
    }

    pub(crate) fn new_id(&self) -> JobId {
        self.services.ids.job()
    }

    pub(crate) fn replayers(&self) -> &HashMap<KindVersion, Arc<dyn Replayer>> {
        &self.replayers
    }

    pub(crate) fn default_queues(&self) -> &HashMap<String, &'static str> {
        &self.default_queues
    }

    pub(crate) fn poke(&self) {
        (self.poke)();
    }
}
