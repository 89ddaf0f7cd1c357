//! Replays a job without an attempt: nothing can be written.

use std::{marker::PhantomData, sync::Arc};

use windlass_model::{ClaimedJob, Failure, JournalEntry};

use super::{Boxed, Workflow, core::Core, differences::Differences, handler, journal::Journal};
use crate::machine::Services;

/// Replays jobs of one kind.
pub trait Replayer: Send + Sync {
    /// Replays a job as far as its journal goes. Returns how the code differs from the journal.
    fn replay(
        &self,
        job: ClaimedJob,
        entries: Vec<JournalEntry>,
        services: Arc<Services>,
    ) -> Boxed<'static, Result<Differences, Failure>>;
}

/// Replays jobs of a workflow.
pub struct Replays<W>(PhantomData<fn() -> W>);

impl<W> Default for Replays<W> {
    fn default() -> Replays<W> {
        Replays(PhantomData)
    }
}

impl<W: Workflow> Replayer for Replays<W> {
    fn replay(
        &self,
        job: ClaimedJob,
        entries: Vec<JournalEntry>,
        services: Arc<Services>,
    ) -> Boxed<'static, Result<Differences, Failure>> {
        Box::pin(async move {
            let workflow = handler::input::<W>(&job)?;
            let journal = Journal::read(entries, &services.codecs, job.unwind.is_some());
            let core =
                Arc::new(Core::new(Arc::new(job), None, services, (W::ONE_COMMIT, W::backoff), journal));
            handler::driver(core, workflow).replay().await
        })
    }
}
