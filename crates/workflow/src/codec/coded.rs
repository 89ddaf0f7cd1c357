//! Handlers behind codecs: whatever is kept, a handler sees plain JSON.

use std::{future::ready, sync::Arc};

use windlass_model::{Failure, Payload, Retry, failure::class};
use windlass_runtime::{Attempt, Handler, Policy, Registry, Running, Started, StepResult};

use super::Codecs;

/// The same handlers behind codecs.
pub fn coded(registry: &Registry, codecs: &Arc<Codecs>) -> Registry {
    let mut behind = Registry::default();
    for kind in registry.kinds() {
        if let Some(handler) = registry.get(&kind) {
            let handler = Coded { handler: Arc::clone(handler), codecs: Arc::clone(codecs) };
            behind.add(kind, Arc::new(handler));
        }
    }
    behind
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
                Started { running: self.encoding(started.running), ..started }
            }
            Err((failure, stage)) => Started {
                running: Box::pin(ready(Err(failure))),
                timeout: None,
                stage,
                handles_own_end: false,
            },
        }
    }

    fn retry(&self, attempt: &Attempt) -> Retry {
        match self.plain(Arc::new(attempt.clone())) {
            Ok(attempt) => self.handler.retry(&attempt),
            Err(_) => Policy::default().retry,
        }
    }

    fn rescue(&self, attempt: Arc<Attempt>, failure: &Failure) -> Option<Running> {
        let running = self.handler.rescue(self.plain(attempt).ok()?, failure)?;
        Some(self.encoding(running))
    }
}

impl Coded {
    /// The attempt with all its payloads decoded; or what is wrong with them, and the stage it is in.
    fn plain(&self, attempt: Arc<Attempt>) -> Result<Arc<Attempt>, (Failure, Option<String>)> {
        let job = &attempt.job;
        let payloads = [Some(&job.input), job.data.as_ref()];
        let shown: Vec<i64> = job.visible_signals().iter().map(|signal| signal.number).collect();
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
            job.data.as_mut().map_or(Ok(()), |data| decode("state", data))
        };
        if let Err(failure) = all() {
            return Err((failure, attempt.job.stage.clone()));
        }
        // One that cannot be decoded stays as it is: whoever reads it sets it aside.
        for signal in job.inbox.iter_mut().filter(|signal| shown.contains(&signal.number)) {
            let _ = decode("signal", &mut signal.payload);
        }
        Ok(Arc::new(plain))
    }

    /// The same future with everything encoded that is to be kept.
    fn encoding(&self, running: Running) -> Running {
        if !self.codecs.encodes() {
            return running;
        }
        let codecs = Arc::clone(&self.codecs);
        Box::pin(async move {
            let mut turn = running.await?;
            match &mut turn {
                StepResult::Done(output) => encode(&codecs, "output", output)?,
                StepResult::Next(stage) | StepResult::Wait(stage, _) | StepResult::Again { stage, .. } => {
                    encode(&codecs, "state", &mut stage.data)?;
                }
                StepResult::Children { stage, children, .. } => {
                    encode(&codecs, "state", &mut stage.data)?;
                    children
                        .iter_mut()
                        .try_for_each(|child| encode(&codecs, "input of a child", &mut child.input))?;
                }
                // A workflow encodes what it writes itself.
                StepResult::Commit { .. } | StepResult::MarkUnreadable(_) => {}
                StepResult::Failed(_) | StepResult::Stop(_) | StepResult::Halted | StepResult::ClaimOver => {}
            }
            Ok(turn)
        })
    }
}

/// A payload as it is kept. What a handler has encoded itself is left alone.
fn encode(codecs: &Codecs, what: &str, payload: &mut Payload) -> Result<(), Failure> {
    if payload.codec == 0 {
        *payload = codecs.encode(std::mem::take(&mut payload.bytes)).map_err(|error| {
            Failure::stop(format!("the {what} cannot be written: {error}")).class(class::REFUSED)
        })?;
    }
    Ok(())
}
