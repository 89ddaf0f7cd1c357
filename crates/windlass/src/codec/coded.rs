//! Handlers behind codecs: whatever is kept, a handler sees plain JSON.

use std::{future::ready, sync::Arc};

use windlass_model::{Failure, Payload, failure::class};
use windlass_runtime::{Attempt, Handler, Policy, Registry, Running};

use super::Codecs;

/// The same handlers behind codecs.
pub(crate) fn coded(registry: &Registry, codecs: &Arc<Codecs>) -> Registry {
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
    fn run(&self, attempt: Arc<Attempt>) -> Running {
        let attempt = match self.plain(attempt) {
            Ok(attempt) => attempt,
            Err(failure) => return Box::pin(ready(Err(failure))),
        };
        let running = self.handler.run(attempt);
        if !self.codecs.encodes() {
            return running;
        }
        let codecs = Arc::clone(&self.codecs);
        Box::pin(async move { encoded(&codecs, running.await?) })
    }

    fn policy(&self) -> &Policy {
        self.handler.policy()
    }
}

impl Coded {
    /// The attempt with its input decoded.
    fn plain(&self, attempt: Arc<Attempt>) -> Result<Arc<Attempt>, Failure> {
        if attempt.job.input.codec == 0 {
            return Ok(attempt);
        }
        let input = self.codecs.decode(&attempt.job.input).map_err(|error| {
            Failure::stop(format!("the input cannot be read: {error}")).class(class::UNDECODABLE)
        })?;
        let mut plain = Attempt::clone(&attempt);
        plain.job.input = Payload::json(input.into_owned());
        Ok(Arc::new(plain))
    }
}

/// The output as it is kept. A handler that has encoded its own is left alone.
fn encoded(codecs: &Codecs, output: Payload) -> Result<Payload, Failure> {
    if output.codec != 0 {
        return Ok(output);
    }
    codecs.encode(output.bytes).map_err(|error| {
        Failure::stop(format!("the output cannot be written: {error}")).class(class::REFUSED)
    })
}
