//! Branches of a workflow: one call opens and fills a branch, the same or another one merges it.

use std::{
    future::{Future, IntoFuture},
    panic::Location,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{BranchNo, Failure, Merge, journal::CallKind};

use super::{
    Boxed,
    core::Core,
    fault::{misuse, source_location},
    journal::CallEnd,
    made::Unawaited,
    merge::{MergeCall, Reduce, Reducing},
    parts::{Part, PartError, Parts, RawParts, number_of},
    state::BranchState,
};
use crate::branch::{Chunk, Merged, Plan, branch_settings, items_of, wait_for_room};

/// A branch that is being described; `.await` opens it, spawns its children and seals it. The children start at once.
///
/// The workflow keeps nothing of a child: a branch is a row with counts, and may have millions of children. If the workflow is
/// replayed before the branch is sealed, its sources continue from their position; afterwards they are not read again. A branch
/// must be merged, by [`Branch::merge`] here or by [`crate::Flow::merge`] later.
#[must_use = "a branch is not opened until it is awaited"]
pub struct Branch {
    core: Arc<Core>,
    line: &'static Location<'static>,
    plan: Plan,
    unawaited: Unawaited,
}

impl Branch {
    pub(super) fn new(core: &Arc<Core>, name: &str, line: &'static Location<'static>) -> Branch {
        let unawaited = Unawaited::new(core, CallKind::Branch, line);
        Branch { core: Arc::clone(core), line, plan: Plan::new(name), unawaited }
    }

    branch_settings!("While the branch is full, no more are spawned.");

    /// Opens the branch, and returns when its merge by these rules is over.
    pub fn merge(self, merge: Merge) -> Merging {
        let names = vec![self.plan.name.clone()];
        let call = MergeCall::new(&self.core, names, self.line).by(merge);
        Merging { branch: self, call }
    }

    /// Opens the branch, and returns when all its children have succeeded.
    pub fn automerge(self) -> Merging {
        self.merge(Merge::all())
    }
}

impl IntoFuture for Branch {
    type Output = Result<(), Failure>;
    type IntoFuture = Spawning;

    fn into_future(self) -> Spawning {
        let Branch { core, line, plan, mut unawaited } = self;
        unawaited.disarm();
        let (name, fault) = (plan.name.clone(), plan.check().err());
        let (limit, services, job) = (plan.in_flight, Arc::clone(&core.services), core.job.id);
        let mut plan = Some(plan);
        let number: Arc<OnceLock<BranchNo>> = Arc::default();
        let shared = Arc::clone(&core);
        let call = name.clone();
        let make = Box::new(move |begun: Option<windlass_model::Payload>| -> Parts<'static> {
            let before = begun.as_ref().and_then(number_of);
            if let Some(before) = before {
                let _ = number.set(before);
            }
            let Some(plan) = plan.take() else {
                let failure = misuse("a branch was opened twice");
                return Box::pin(futures_util::stream::once(std::future::ready(Err(failure.into()))));
            };
            let chunks = plan.start(Arc::clone(&services), job, before);
            let filling = Filling {
                core: Arc::clone(&shared),
                name: call.clone(),
                chunks,
                limit,
                held: None,
                over: false,
            };
            Box::pin(futures_util::stream::unfold(filling, async |mut filling| {
                let part = filling.next().await?;
                Some((part, filling))
            }))
        });
        let raw = RawParts::new(&core, CallKind::Branch, &name, line, make);
        Spawning { raw, fault, opened: false }
    }
}

/// The parts of a call that fills a branch.
struct Filling {
    core: Arc<Core>,
    name: String,
    chunks: crate::branch::ChunkStream,
    limit: Option<u64>,
    /// A chunk that waits for room.
    held: Option<Chunk>,
    over: bool,
}

impl Filling {
    async fn next(&mut self) -> Option<Result<Part, PartError>> {
        if self.over {
            return None;
        }
        let part = self.part().await;
        self.over = matches!(part, Ok(Part::End(_)) | Err(_));
        Some(part)
    }

    async fn part(&mut self) -> Result<Part, PartError> {
        let chunk = match self.held.take() {
            Some(held) => held,
            None => self.chunks.next().await?,
        };
        match chunk {
            Chunk::Sealed => Ok(Part::End(Vec::new())),
            Chunk::Chunk { children, spawns, cursor } => {
                let more = children.iter().map(|child| u64::from(items_of(child))).sum();
                if let Some(watch) = self.wait_for_room(more).await.map_err(PartError::of_engine)? {
                    self.held = Some(Chunk::Chunk { children, spawns, cursor });
                    return Ok(Part::Pause(watch));
                }
                Ok(Part::Children { children, spawns, cursor })
            }
        }
    }

    /// Waits for room for `more` children. Returns the watch to park with, if there is none.
    async fn wait_for_room(&self, more: u64) -> Result<Option<windlass_model::BranchWatch>, Failure> {
        let Some(limit) = self.limit else { return Ok(None) };
        let number = {
            let state = self.core.lock();
            let recorded =
                state.journal.calls.get(&self.name, None).and_then(|recorded| recorded.begun.as_ref());
            recorded.and_then(|(_, payload)| number_of(payload))
        };
        let Some(number) = number else { return Ok(None) };
        // After a park the sources are skipped forward again, so waiting here as long as that took costs at most as much.
        let max_wait = self.chunks.skipped();
        wait_for_room(&self.core.services, (self.core.job.id, number), limit, more, max_wait).await
    }
}

/// A branch that is being opened and filled.
pub struct Spawning {
    raw: RawParts<'static>,
    fault: Option<String>,
    opened: bool,
}

impl Future for Spawning {
    type Output = Result<(), Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let this = self.get_mut();
        if let Some(fault) = this.fault.take() {
            this.raw.call.core.fault(misuse(format!("{fault} ({})", source_location(this.raw.call.line))));
            return Poll::Pending;
        }
        if !std::mem::replace(&mut this.opened, true) {
            this.raw
                .call
                .core
                .lock()
                .branches
                .entry(this.raw.call.name.clone())
                .or_insert(BranchState::Filling);
        }
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        let mut state = this.raw.call.core.lock();
        let begun = || {
            let recorded = state.journal.calls.get(&this.raw.call.name, None)?;
            recorded.begun.as_ref().and_then(|(_, payload)| number_of(payload))
        };
        let (number, result) = match ending {
            CallEnd::Done(payload) => {
                let plain = this.raw.call.core.services.codecs.decode(&payload).ok();
                (plain.and_then(|plain| serde_json::from_slice(&plain).ok()), Ok(()))
            }
            CallEnd::Failed { failure, .. } => (begun(), Err(failure)),
        };
        match number {
            Some(number) => state.branches.insert(this.raw.call.name.clone(), BranchState::Open { number }),
            None => state.branches.remove(&this.raw.call.name),
        };
        Poll::Ready(result)
    }
}

impl Drop for Spawning {
    fn drop(&mut self) {
        if !self.opened {
            return;
        }
        let mut state = self.raw.call.core.lock();
        if state.branches.get(&self.raw.call.name) == Some(&BranchState::Filling) {
            let recorded = state.journal.calls.get(&self.raw.call.name, None);
            let number = recorded
                .and_then(|recorded| recorded.begun.as_ref())
                .and_then(|(_, payload)| number_of(payload));
            match number {
                Some(number) => {
                    state.branches.insert(self.raw.call.name.clone(), BranchState::Open { number })
                }
                None => state.branches.remove(&self.raw.call.name),
            };
        }
    }
}

/// A branch that is opened and then merged; `.await` returns how its children ended.
#[must_use = "a branch is not opened until it is awaited"]
pub struct Merging {
    branch: Branch,
    call: MergeCall,
}

impl Merging {
    /// Reduces the outputs of the children, in the order of their ids, to one value. The value so far is committed every
    /// thousand children: nothing is held in memory, and a crash costs at most that many.
    pub fn reduce<A, T, F>(self, first: A, add: F) -> Reducing<A>
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        T: DeserializeOwned + Send + 'static,
        F: FnMut(A, T) -> A + Send + 'static,
    {
        let (core, line) = (Arc::clone(&self.branch.core), self.branch.line);
        let merged: Boxed<'static, Result<Merged, Failure>> = self.into_future();
        Reduce::after(core, line, merged, first, add)
    }
}

impl IntoFuture for Merging {
    type Output = Result<Merged, Failure>;
    type IntoFuture = Boxed<'static, Result<Merged, Failure>>;

    fn into_future(self) -> Self::IntoFuture {
        let Merging { branch, mut call } = self;
        // Not awaited if the branch cannot be filled.
        call.unawaited.disarm();
        let spawning = branch.into_future();
        Box::pin(async move {
            spawning.await?;
            call.await
        })
    }
}
