//! Wraps handlers in codecs: a handler sees plain JSON, whatever the store keeps.

use std::{future::ready, sync::Arc, time::Duration};

use windlass_model::{Failure, Payload, Retry, failure::class};
use windlass_runtime::{Attempt, Handler, Policy, Registry, Running, Started, StepResult};

use super::Codecs;

/// Wraps every handler of a registry in codecs.
pub fn coded(registry: &Registry, codecs: &Arc<Codecs>) -> Registry {
    let mut coded = registry.without_handlers();
    for kind in registry.kinds() {
        if let Some(handler) = registry.get(&kind) {
            let handler = Coded { handler: Arc::clone(handler), codecs: Arc::clone(codecs) };
            coded.add(kind, Arc::new(handler));
        }
    }
    coded
}

struct Coded {
    handler: Arc<dyn Handler>,
    codecs: Arc<Codecs>,
}

impl Handler for Coded {
    fn start(&self, attempt: Arc<Attempt>) -> Started {
        match self.plain(attempt) {
            Ok(attempt) => {
                let started = self.handler.start(attempt);
                Started { running: self.encode_result(started.running), ..started }
            }
            Err(undecodable) => {
                let (failure, stage) = *undecodable;
                let running = Box::pin(ready(Err(failure)));
                Started { running, timeout: None, stage, handles_own_end: false }
            }
        }
    }

    fn retry(&self, attempt: &Attempt) -> Retry {
        match self.plain(Arc::new(attempt.clone())) {
            Ok(attempt) => self.handler.retry(&attempt),
            Err(_) => Policy::default().retry,
        }
    }

    fn backoff(&self, attempt: &Attempt, failure: &Failure, nth: u32) -> Option<Duration> {
        let plain = self.plain(Arc::new(attempt.clone())).ok()?;
        self.handler.backoff(&plain, failure, nth)
    }

    fn rescue(&self, attempt: Arc<Attempt>, failure: &Failure) -> Option<Running> {
        let running = self.handler.rescue(self.plain(attempt).ok()?, failure)?;
        Some(self.encode_result(running))
    }
}

impl Coded {
    /// Decodes all payloads of an attempt. The error has the stage of the job.
    fn plain(&self, attempt: Arc<Attempt>) -> Result<Arc<Attempt>, Box<(Failure, Option<String>)>> {
        let job = &attempt.job;
        let payloads = [Some(&job.input), job.data.as_ref()];
        let visible: Vec<i64> = job.visible_signals().iter().map(|signal| signal.number).collect();
        let inbox = job.inbox.iter().map(|signal| &signal.payload);
        if payloads.into_iter().flatten().chain(inbox).all(|payload| payload.codec == 0) {
            return Ok(attempt);
        }
        let mut plain = Attempt::clone(&attempt);
        let job = Arc::make_mut(&mut plain.job);
        let decode = |what: &str, payload: &mut Payload| {
            let decoded = self.codecs.decode(payload).map_err(|error| {
                Failure::stop(format!("the {what} cannot be read: {error}")).class(class::UNDECODABLE)
            })?;
            *payload = Payload::json(decoded.into_owned());
            Ok(())
        };
        let mut all = || {
            decode("input", &mut job.input)?;
            job.data.as_mut().map_or(Ok(()), |data| decode("data of the stage", data))
        };
        if let Err(failure) = all() {
            return Err(Box::new((failure, attempt.job.stage.clone())));
        }
        // A signal that cannot be decoded stays as it is: the code that reads it marks it unreadable.
        for signal in job.inbox.iter_mut().filter(|signal| visible.contains(&signal.number)) {
            let _ = decode("signal", &mut signal.payload);
        }
        Ok(Arc::new(plain))
    }

    /// Encodes the payloads that the handler wants written.
    fn encode_result(&self, running: Running) -> Running {
        if !self.codecs.encodes() {
            return running;
        }
        let codecs = Arc::clone(&self.codecs);
        Box::pin(async move {
            let mut result = running.await?;
            match &mut result {
                StepResult::Done(output) => encode(&codecs, "output", output)?,
                StepResult::Next(stage) | StepResult::Wait(stage, _) | StepResult::Again { stage, .. } => {
                    encode(&codecs, "data of the stage", &mut stage.data)?;
                }
                StepResult::Children { stage, children, .. } => {
                    encode(&codecs, "data of the stage", &mut stage.data)?;
                    children
                        .iter_mut()
                        .try_for_each(|child| encode(&codecs, "input of a child", &mut child.input))?;
                }
                // A workflow encodes its own writes.
                StepResult::Commit { .. } | StepResult::MarkUnreadable(_) => {}
                StepResult::Failed(_) | StepResult::Stop(_) | StepResult::Halted | StepResult::ClaimOver => {}
            }
            Ok(result)
        })
    }
}

/// Encodes a payload, unless the handler has done so.
fn encode(codecs: &Codecs, what: &str, payload: &mut Payload) -> Result<(), Failure> {
    if payload.codec == 0 {
        *payload = codecs.encode(std::mem::take(&mut payload.bytes)).map_err(|error| {
            Failure::stop(format!("the {what} cannot be written: {error}")).class(class::REFUSED)
        })?;
    }
    Ok(())
}
