//! Encoding and decoding signals, and marking those that cannot be decoded.

use serde::{Serialize, de::DeserializeOwned};
use windlass_env::IdSource;
use windlass_model::{JobId, NewSignal, Payload, Signal as Received, UnreadableSignal};

use crate::{Error, codec::Codecs};

/// A message to a job, with its name: a type that both the sender and the job know.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass_workflow::Signal;
/// #[derive(Serialize, Deserialize)]
/// struct Approve {
///     by: String,
/// }
///
/// impl Signal for Approve {
///     const NAME: &'static str = "approve";
/// }
/// ```
///
/// A workflow waits for it with [`Flow::receive`](crate::Flow::receive), a machine with [`Next::receive`](crate::Next::receive) or
/// [`WaitFor::receive`](crate::WaitFor::receive), and reads it with [`MachineCx::receive`](crate::MachineCx::receive). Signals can also
/// be sent and received by a name and any type, without this trait.
pub trait Signal: Serialize + DeserializeOwned + Send + 'static {
    /// The signal's name in the store; it outlives the type's name.
    const NAME: &'static str;
}

/// A signal that is encoded as JSON and not yet addressed to a job.
#[derive(Clone)]
pub struct OutgoingSignal {
    name: String,
    /// See [`NewSignal::dedup`]; `None` draws a random one.
    pub dedup: Option<String>,
    payload: Vec<u8>,
}

impl OutgoingSignal {
    /// Makes a signal with this name and payload.
    pub fn new<T: Serialize>(
        name: &str,
        dedup: Option<String>,
        payload: &T,
    ) -> Result<OutgoingSignal, Error> {
        let payload = serde_json::to_vec(payload)
            .map_err(|source| Error::Encode { kind: format!("signal {name}"), source })?;
        Ok(OutgoingSignal { name: name.to_owned(), dedup, payload })
    }

    /// Addresses the signal to a job and encodes its payload.
    pub fn to(&self, job: JobId, codecs: &Codecs, ids: &IdSource) -> Result<NewSignal, Error> {
        let payload = codecs.encode(self.payload.clone());
        let payload =
            payload.map_err(|source| Error::Codec { kind: format!("signal {}", self.name), source })?;
        // A signal without a dedup id gets a random one, so that sending it can be repeated.
        let dedup = match self.dedup.as_deref() {
            // The check of every signal refuses it.
            Some("") => String::new(),
            Some(dedup) => format!("={dedup}"),
            None => ids.job().to_string(),
        };
        Ok(NewSignal { job, name: self.name.clone(), dedup, payload })
    }
}

/// Decodes the payload of a signal. The error says why it cannot be decoded.
pub(crate) fn read<T: DeserializeOwned>(codecs: &Codecs, payload: &Payload) -> Result<T, String> {
    let plain = codecs.decode(payload).map_err(|error| format!("its payload cannot be read: {error}"))?;
    serde_json::from_slice(&plain)
        .map_err(|error| format!("it does not decode as {}: {error}", std::any::type_name::<T>()))
}

/// Checks whether a signal can be decoded as the type a call waits for; the error says why not.
pub(crate) type CanRead = fn(&Codecs, &Payload) -> Result<(), String>;

/// Checks whether a signal can be decoded as `T`.
pub(crate) fn can_read<T: DeserializeOwned>(codecs: &Codecs, payload: &Payload) -> Result<(), String> {
    read::<T>(codecs, payload).map(drop)
}

/// Logs that a signal cannot be decoded, and returns the mark that the next commit writes.
pub(crate) fn mark_unreadable(job: JobId, signal: &Received, why: String) -> UnreadableSignal {
    let (name, number) = (&signal.name, signal.number);
    tracing::warn!(%job, name, number, error = why, "a signal cannot be read: it is marked unreadable, and the job continues to wait");
    UnreadableSignal::new(number, why)
}
