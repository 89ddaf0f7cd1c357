//! Branches of a workflow: opened and filled by one call, merged by the same or by another.

use std::{
    future::{Future, IntoFuture},
    panic::Location,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{BranchNo, Failure, Merge, journal::Op};

use super::{
    Boxed,
    core::Core,
    journal::CallEnd,
    merge::{MergeCall, Reduce, Reducing},
    parts::{Part, PartError, Parts, RawParts, number_of},
    state::{BranchState, misuse, source_location},
};
use crate::branch::{Chunk, IntoChild, Merged, Plan, Source, items_of, wait_for_room};

/// A branch that is being described; `.await` opens it, spawns its children and seals it. They start at once.
///
/// Nothing of a child is kept in the workflow: a branch is a row with a count, and may have millions of them. When the
/// workflow is taken up again before the branch is sealed, its sources go on where they were; afterwards they are not read
/// again. A branch must be merged, by [`Branch::merge`] here or by [`crate::Flow::merge`] later.
#[must_use = "a branch is not opened until it is awaited"]
pub struct Branch {
    core: Arc<Core>,
    line: &'static Location<'static>,
    plan: Plan,
}

impl Branch {
    pub(super) fn new(core: &Arc<Core>, name: &str, line: &'static Location<'static>) -> Branch {
        Branch { core: Arc::clone(core), line, plan: Plan::new(name) }
    }

    /// Spawns one child.
    pub fn spawn<C: IntoChild<M>, M>(mut self, name: &str, child: C) -> Branch {
        self.plan.spawn(name, child.into_child());
        self
    }

    /// Spawns a child for each item of a source: an iterator or range, a [`crate::stream`], or [`crate::Rows`] of a table of
    /// yours. What the closure returns is a job of any kind, a [`crate::Child`] with settings of its own, or a `Result` of
    /// either; the kinds may differ from item to item.
    pub fn spawn_each<S, F, C, M>(mut self, name: &str, source: S, child: F) -> Branch
    where
        S: Source,
        F: FnMut(S::Item) -> C + Send + 'static,
        C: IntoChild<M>,
    {
        self.plan.spawn_each(name, source, child);
        self
    }

    /// How many children are committed at once: 1,000, unless you say otherwise.
    pub fn chunk(mut self, children: usize) -> Branch {
        self.plan.chunk = children;
        self
    }

    /// How many children may be there that have not ended: when there are so many, no more are spawned until some have.
    pub fn in_flight(mut self, children: u64) -> Branch {
        self.plan.in_flight = Some(children);
        self
    }

    /// How many children become due per second: each is spawned with a due time of its own.
    pub fn per_second(mut self, children: f64) -> Branch {
        self.plan.per_second = Some(children);
        self
    }

    /// Packs the items into blocks of up to a thousand, each of which is one row and one commit: for huge sets of small tasks
    /// that may run again. An item that fails or takes long becomes a job of its own.
    pub fn packed(mut self) -> Branch {
        self.plan.packed = true;
        self
    }

    /// Opens the branch, and returns when it is merged by these rules.
    pub fn merge(self, merge: Merge) -> Merging {
        let names = vec![self.plan.name.clone()];
        let call = MergeCall::new(&self.core, names, self.line).by(merge);
        Merging { branch: self, call }
    }

    /// Opens the branch, and returns when all its children have ended well.
    pub fn automerge(self) -> Merging {
        self.merge(Merge::all())
    }
}

impl IntoFuture for Branch {
    type Output = Result<(), Failure>;
    type IntoFuture = Spawning;

    fn into_future(self) -> Spawning {
        let Branch { core, line, plan } = self;
        let (name, fault) = (plan.name.clone(), plan.check().err());
        let (limit, bound, job) = (plan.in_flight, Arc::clone(&core.bound), core.job.id);
        let mut plan = Some(plan);
        let number: Arc<OnceLock<BranchNo>> = Arc::default();
        let known = Arc::clone(&core);
        let call = name.clone();
        let make = Box::new(move |begun: Option<windlass_model::Payload>| -> Parts<'static> {
            let before = begun.as_ref().and_then(number_of);
            if let Some(before) = before {
                let _ = number.set(before);
            }
            let Some(plan) = plan.take() else {
                let failure = misuse("a branch was begun twice");
                return Box::pin(futures_util::stream::once(std::future::ready(Err(failure.into()))));
            };
            let producing = plan.start(Arc::clone(&bound), job, before);
            let filling = Filling {
                core: Arc::clone(&known),
                name: call.clone(),
                producing,
                limit,
                held: None,
                over: false,
            };
            Box::pin(futures_util::stream::unfold(filling, async |mut filling| {
                let part = filling.next().await?;
                Some((part, filling))
            }))
        });
        let raw = RawParts::new(&core, Op::Branch, &name, line, make);
        Spawning { raw, fault, opened: false }
    }
}

/// The children of a branch, as they are made.
struct Filling {
    core: Arc<Core>,
    name: String,
    producing: crate::branch::ChunkStream,
    limit: Option<u64>,
    /// What waits until there is room for it.
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
        let produced = match self.held.take() {
            Some(held) => held,
            None => self.producing.next().await?,
        };
        match produced {
            Chunk::Sealed => Ok(Part::End(Vec::new())),
            Chunk::Chunk { children, spawns, cursor } => {
                let more = children.iter().map(|child| u64::from(items_of(child))).sum();
                if let Some(watch) = self.full(more).await.map_err(PartError::of_engine)? {
                    self.held = Some(Chunk::Chunk { children, spawns, cursor });
                    return Ok(Part::Pause(watch));
                }
                Ok(Part::Children { children, spawns, cursor })
            }
        }
    }

    /// What is to be told before so many more children are spawned, if there is no room for them.
    async fn full(&self, more: u64) -> Result<Option<windlass_model::BranchWatch>, Failure> {
        let Some(limit) = self.limit else { return Ok(None) };
        let number = {
            let state = self.core.lock();
            let known = state.journal.calls.get(&self.name, None).and_then(|known| known.begun.as_ref());
            known.and_then(|(_, payload)| number_of(payload))
        };
        let Some(number) = number else { return Ok(None) };
        // Made anew it is skipped forward, which is worth as long a wait: then that takes no longer than the waits do.
        let linger = self.producing.skipped();
        wait_for_room(&self.core.bound, (self.core.job.id, number), limit, more, linger).await
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
            this.raw.core.fault(misuse(format!("{fault} ({})", source_location(this.raw.line))));
            return Poll::Pending;
        }
        if !std::mem::replace(&mut this.opened, true) {
            this.raw.core.lock().branches.entry(this.raw.name.clone()).or_insert(BranchState::Filling);
        }
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        let mut state = this.raw.core.lock();
        let begun = || {
            let known = state.journal.calls.get(&this.raw.name, None)?;
            known.begun.as_ref().and_then(|(_, payload)| number_of(payload))
        };
        let (number, result) = match ending {
            CallEnd::Done(payload) => {
                let plain = this.raw.core.bound.codecs.decode(&payload).ok();
                (plain.and_then(|plain| serde_json::from_slice(&plain).ok()), Ok(()))
            }
            CallEnd::Failed { failure, .. } => (begun(), Err(failure)),
        };
        match number {
            Some(number) => state.branches.insert(this.raw.name.clone(), BranchState::Open { number }),
            None => state.branches.remove(&this.raw.name),
        };
        Poll::Ready(result)
    }
}

impl Drop for Spawning {
    fn drop(&mut self) {
        if !self.opened {
            return;
        }
        let mut state = self.raw.core.lock();
        if state.branches.get(&self.raw.name) == Some(&BranchState::Filling) {
            let known = state.journal.calls.get(&self.raw.name, None);
            let number =
                known.and_then(|known| known.begun.as_ref()).and_then(|(_, payload)| number_of(payload));
            match number {
                Some(number) => state.branches.insert(self.raw.name.clone(), BranchState::Open { number }),
                None => state.branches.remove(&self.raw.name),
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
    /// Reduces what the children returned, in the order of their ids, to one value. What was reduced so far is committed with
    /// the children that it has absorbed, a thousand at a time: nothing is held in memory, and a crash costs one such chunk.
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
        let (spawning, merging) = (self.branch.into_future(), self.call.into_future());
        Box::pin(async move {
            spawning.await?;
            merging.await
        })
    }
}
