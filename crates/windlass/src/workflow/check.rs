//! Replaying open workflows against this build, before it is deployed: which of them would diverge, and why.

use std::{marker::PhantomData, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use windlass_model::{Claimed, Entry, Failure, JobId, KindVersion, State, failure::class};
use windlass_store::{Filter, Job};

use super::{Boxed, Workflow, core::Core, handler, journal::Journal, step::panic_text};
use crate::{Engine, Error, machine::Bound};

/// How many jobs are looked at in one read.
const PAGE: usize = 500;
/// How long the replay of one job may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A check that is being described. It writes nothing; [`Check::run`] does it.
#[must_use = "a check does nothing until it is run"]
pub struct Check<'a> {
    engine: &'a Engine,
    kind: Option<String>,
}

/// What a check has found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Checked {
    /// Open workflows that were replayed.
    pub jobs: usize,
    /// How many recorded calls that were, in all.
    pub calls: usize,
    /// Those that this build would break.
    pub broken: Vec<Broken>,
    /// Those that record calls which this build no longer makes. That is no fault: a removed step is passed over.
    pub skipping: usize,
    /// Open workflows of these kinds in versions that this build does not serve.
    pub unserved: usize,
    /// Whether it was ended before all were replayed.
    pub cut_short: bool,
}

/// An open workflow that this build would break.
#[derive(Clone, PartialEq, Debug)]
pub struct Broken {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: KindVersion,
    /// The caller's name for it.
    pub key: Option<String>,
    /// What would happen to it.
    pub why: Failure,
}

impl<'a> Check<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Check<'a> {
        Check { engine, kind: None }
    }

    /// Only jobs of this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> Check<'a> {
        self.kind = Some(kind.into());
        self
    }

    /// Replays every open workflow of the kinds that this engine serves. `seen` is told how far it is after every page, and
    /// may end it by answering `false`.
    pub async fn run(self, mut seen: impl FnMut(&Checked) -> bool) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        let mut kinds: Vec<String> = self.engine.replayers().keys().map(|kind| kind.kind.clone()).collect();
        kinds.sort();
        kinds.dedup();
        if let Some(kind) = &self.kind {
            if !kinds.contains(kind) {
                return Err(Error::Setup(format!(
                    "this program serves no workflow {kind:?}; it serves {}",
                    if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
                )));
            }
            kinds = vec![kind.clone()];
        }
        for kind in kinds {
            let mut filter = Filter { kind: Some(kind), limit: PAGE, ..Filter::default() };
            loop {
                let page = self.engine.inspect().jobs(&filter).await?;
                filter.before = page.last().map(|job| job.id);
                for summary in page.iter().filter(|job| !job.state.is_final()) {
                    self.one(summary.id, &mut checked).await?;
                }
                let last = page.len() < PAGE;
                if !seen(&checked) && !last {
                    checked.cut_short = true;
                    return Ok(checked);
                }
                if last {
                    break;
                }
            }
        }
        Ok(checked)
    }

    async fn one(&self, id: JobId, checked: &mut Checked) -> Result<(), Error> {
        let Some(job) = self.engine.inspect().job(id).await? else { return Ok(()) };
        let kind = KindVersion { kind: job.summary.kind.clone(), version: job.summary.version };
        let Some(replayer) = self.engine.replayers().get(&kind).cloned() else {
            checked.unserved += 1;
            return Ok(());
        };
        let entries = self.engine.inspect().journal(id, None, usize::MAX).await?;
        if job.summary.state == State::Done {
            return Ok(());
        }
        checked.jobs += 1;
        checked.calls += entries.len();
        let key = job.summary.key.clone();
        let claimed = match self.claimed(job) {
            Ok(claimed) => claimed,
            Err(why) => {
                checked.broken.push(Broken { job: id, kind, key, why });
                return Ok(());
            }
        };
        let replay = replayer.replay(claimed, entries, self.engine.bound());
        // In a task of its own: code that runs on and on must not hold up the others.
        let replay = tokio::spawn(AssertUnwindSafe(replay).catch_unwind());
        let why = match tokio::time::timeout(LIMIT, replay).await {
            Ok(Ok(Ok(Ok(skips)))) => {
                checked.skipping += usize::from(skips);
                return Ok(());
            }
            Ok(Ok(Ok(Err(failure)))) => failure,
            Ok(Ok(Err(panic))) => Failure::retry(panic_text(&*panic)).class(class::PANIC),
            Ok(Err(error)) => Failure::retry(error).class(class::PANIC),
            Err(_) => Failure::retry(format!("its code ran on and on for {LIMIT:?}")).class(class::TIMEOUT),
        };
        checked.broken.push(Broken { job: id, kind, key, why });
        Ok(())
    }

    /// The job as a worker would be handed it, decoded.
    fn claimed(&self, job: Job) -> Result<Claimed, Failure> {
        let decode = |payload: &windlass_model::Payload| {
            let plain = self.engine.codecs().decode(payload).map_err(|error| {
                Failure::stop(format!("the input cannot be read: {error}")).class(class::UNDECODABLE)
            })?;
            Ok::<_, Failure>(windlass_model::Payload::json(plain.into_owned()))
        };
        let (input, data) = (decode(&job.input)?, job.data.as_ref().map(decode).transpose()?);
        let kind = KindVersion { kind: job.summary.kind, version: job.summary.version };
        let mut new = windlass_model::NewJob::new(job.summary.id, &kind.kind, &job.summary.queue, input);
        (new.kind, new.key, new.settings, new.stage) =
            (kind, job.summary.key, job.settings, job.summary.stage);
        let claimed = new.claimed(windlass_model::ClaimNo(0), job.epoch, job.summary.due_at);
        Ok(Claimed { rev: job.rev, data, unwind: job.unwind, ..claimed })
    }
}

/// Replays jobs of one kind.
pub(crate) trait Replayer: Send + Sync {
    /// Replays a job as far as its journal goes. Whether it records calls that the code does not make.
    fn replay(
        &self,
        job: Claimed,
        entries: Vec<Entry>,
        bound: Arc<Bound>,
    ) -> Boxed<'static, Result<bool, Failure>>;
}

/// Replays jobs of a workflow.
pub(crate) struct Replays<W>(pub(crate) PhantomData<fn() -> W>);

impl<W: Workflow> Replayer for Replays<W> {
    fn replay(
        &self,
        job: Claimed,
        entries: Vec<Entry>,
        bound: Arc<Bound>,
    ) -> Boxed<'static, Result<bool, Failure>> {
        Box::pin(async move {
            let workflow = handler::input::<W>(&job)?;
            let journal = Journal::read(entries, &bound.codecs, job.unwind.is_some());
            let core = Arc::new(Core::new(Arc::new(job), None, bound, W::ONE_COMMIT, journal));
            handler::driver(Arc::clone(&core), workflow).replay().await?;
            let skips = !core.lock().is_live();
            Ok(skips)
        })
    }
}
