//! Signals as they are written and read: their payloads, and what is done with those that cannot be read.

use serde::{Serialize, de::DeserializeOwned};
use windlass_env::IdSource;
use windlass_model::{JobId, NewSignal, Payload, Signal as Received, UnreadableSignal};

use crate::{Error, codec::Codecs};

/// A signal on its way, not yet addressed.
#[derive(Clone)]
pub struct OutgoingSignal {
    name: String,
    /// See [`NewSignal::dedup`]; one is made if there is none.
    pub dedup: Option<String>,
    payload: Vec<u8>,
}

impl OutgoingSignal {
    /// A signal with this name and payload.
    pub fn new<T: Serialize>(
        name: &str,
        dedup: Option<String>,
        payload: &T,
    ) -> Result<OutgoingSignal, Error> {
        let payload = serde_json::to_vec(payload)
            .map_err(|source| Error::Encode { kind: format!("signal {name}"), source })?;
        Ok(OutgoingSignal { name: name.to_owned(), dedup, payload })
    }

    /// The signal as it is delivered to a job.
    pub fn to(&self, job: JobId, codecs: &Codecs, ids: &IdSource) -> Result<NewSignal, Error> {
        let payload = codecs.encode(self.payload.clone());
        let payload =
            payload.map_err(|source| Error::Codec { kind: format!("signal {}", self.name), source })?;
        // One that nobody named is told from others by an id of its own, so that sending it can be repeated.
        let dedup = match self.dedup.as_deref() {
            // Refused by the check of every signal.
            Some("") => String::new(),
            Some(dedup) => format!("={dedup}"),
            None => ids.job().to_string(),
        };
        Ok(NewSignal { job, name: self.name.clone(), dedup, payload })
    }
}

/// Reads what a signal says. The error is why it cannot be read.
pub(crate) fn read<T: DeserializeOwned>(codecs: &Codecs, payload: &Payload) -> Result<T, String> {
    let plain = codecs.decode(payload).map_err(|error| format!("its payload cannot be read: {error}"))?;
    serde_json::from_slice(&plain)
        .map_err(|error| format!("it does not decode as {}: {error}", std::any::type_name::<T>()))
}

/// Whether a signal can be read as what a call waits for; the error is why not.
pub(crate) type Reads = fn(&Codecs, &Payload) -> Result<(), String>;

/// Whether a signal can be read as `T`.
pub(crate) fn reads<T: DeserializeOwned>(codecs: &Codecs, payload: &Payload) -> Result<(), String> {
    read::<T>(codecs, payload).map(drop)
}

/// A signal that a job sets aside because it cannot read it.
pub(crate) fn mark_unreadable(job: JobId, signal: &Received, why: String) -> UnreadableSignal {
    let (name, number) = (&signal.name, signal.number);
    tracing::warn!(%job, name, number, error = why, "a signal cannot be read: it is set aside, and the job waits on");
    UnreadableSignal::new(number, why)
}
