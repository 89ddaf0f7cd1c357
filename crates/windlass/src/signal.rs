//! Sending signals to jobs.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
};

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, NewSignal};
use windlass_store::SignalOutcome;

use windlass_workflow::engine::OutgoingSignal;

use crate::{Engine, Error, handle::find_by_key};

/// Whether a signal was delivered. Both answers mean that the job has received it once; a signal that cannot be delivered is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// It is durably in the job's inbox.
    Delivered,
    /// A signal with its name and dedup id was delivered to the job before. Nothing was done.
    Duplicate,
}

/// A signal that is being described; `.await` sends it.
///
/// ```no_run
/// # use windlass::prelude::*;
/// # async fn example(engine: Engine, job: JobId) -> Result<(), Box<dyn std::error::Error>> {
/// engine.signal(job, "payment", 1_200).dedup("charge-77").await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a signal is not sent until it is awaited"]
pub struct SendSignal<'a> {
    engine: &'a Engine,
    to: Recipient,
    sent: Result<OutgoingSignal, Error>,
}

enum Recipient {
    Id(JobId),
    Key { kind: String, key: String },
}

impl<'a> SendSignal<'a> {
    pub(crate) fn to_id<T: Serialize>(
        engine: &'a Engine,
        job: JobId,
        name: &str,
        payload: &T,
    ) -> SendSignal<'a> {
        SendSignal { engine, to: Recipient::Id(job), sent: OutgoingSignal::new(name, None, payload) }
    }

    pub(crate) fn to_key<T: Serialize>(
        engine: &'a Engine,
        kind: &str,
        key: &str,
        name: &str,
        payload: &T,
    ) -> SendSignal<'a> {
        let to = Recipient::Key { kind: kind.to_owned(), key: key.to_owned() };
        SendSignal { engine, to, sent: OutgoingSignal::new(name, None, payload) }
    }

    /// Delivers it once: a signal with this name and dedup id that was sent to the job before is not delivered again, whether
    /// or not the first was consumed.
    pub fn dedup(mut self, id: impl Into<String>) -> SendSignal<'a> {
        if let Ok(sent) = &mut self.sent {
            sent.dedup = Some(id.into());
        }
        self
    }
}

impl<'a> IntoFuture for SendSignal<'a> {
    type Output = Result<Delivery, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let sent = self.sent?;
            let job = match self.to {
                Recipient::Id(id) => id,
                Recipient::Key { kind, key } => find_by_key(self.engine, kind, key).await?,
            };
            let delivery =
                send(self.engine, vec![sent.to(job, self.engine.codecs(), self.engine.ids())?]).await?;
            Ok(delivery.into_iter().next().unwrap_or(Delivery::Duplicate))
        })
    }
}

/// Delivers signals. One that cannot be delivered is an error.
pub(crate) async fn send(engine: &Engine, signals: Vec<NewSignal>) -> Result<Vec<Delivery>, Error> {
    if signals.is_empty() {
        return Ok(Vec::new());
    }
    let jobs: Vec<JobId> = signals.iter().map(|signal| signal.job).collect();
    let answers = engine.signaller().signal(signals).await?;
    let delivery = |(answer, job): (SignalOutcome, JobId)| match answer {
        SignalOutcome::Delivered { .. } => Ok(Delivery::Delivered),
        SignalOutcome::Duplicate => Ok(Delivery::Duplicate),
        SignalOutcome::Ended(state) => Err(Error::Ended { job, state }),
        SignalOutcome::Full => Err(Error::InboxFull { job, most: engine.store().limits().inbox }),
        SignalOutcome::Unknown => Err(Error::NoSuchJob(job)),
    };
    answers.into_iter().zip(jobs).map(delivery).collect()
}
