//! Merging branches, and reducing what their children returned.

use std::{
    future::{Future, IntoFuture},
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use windlass_model::{
    BranchNo, BranchUpdate, BranchWatch, Failure, Merge, Payload, Retry,
    failure::class,
    journal::Op,
    limits::MAX_KEY_BYTES,
    merge::{BranchProgress, MergeDecision},
};

use windlass_store::Branch;

use super::{
    Boxed,
    core::Core,
    parts::{Part, PartError, Parts, RawParts},
    state::{AfterCommit, BranchState, CallWait, misuse, source_location},
    step::{RawStep, decode_result, encode_result},
};
use crate::{
    branch::{MergeRecord, Merged, Pages, ReadPosition, missing_children, unsuccessful_children},
    store_retry::retry_unavailable,
};

/// The name of every merge; its key is the names of the branches.
pub(super) const MERGE: &str = "merge";

/// The names of the branches that a merge with this key is of.
pub(super) fn names_of(key: &str) -> impl Iterator<Item = &str> {
    key.split('#').next().unwrap_or_default().split(',')
}

/// The merge of branches that were opened before; `.await` returns how their children ended.
#[must_use = "branches are not merged until this is awaited"]
pub struct MergeCall {
    core: Arc<Core>,
    names: Vec<String>,
    line: &'static Location<'static>,
    merge: Merge,
    key: Option<String>,
}

impl MergeCall {
    pub(super) fn new(
        core: &Arc<Core>,
        mut names: Vec<String>,
        line: &'static Location<'static>,
    ) -> MergeCall {
        names.sort();
        names.dedup();
        MergeCall { core: Arc::clone(core), names, line, merge: Merge::all(), key: None }
    }

    /// By these rules; when all children have ended well, unless you say otherwise.
    pub fn by(mut self, merge: Merge) -> MergeCall {
        self.merge = merge;
        self
    }

    /// What tells it from another merge of the same branches that was given up.
    pub fn key(mut self, key: impl ToString) -> MergeCall {
        self.key = Some(key.to_string());
        self
    }

    /// Reduces what the children returned; see [`super::Merging::reduce`].
    pub fn reduce<A, T, F>(self, first: A, add: F) -> Reducing<A>
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        T: DeserializeOwned + Send + 'static,
        F: FnMut(A, T) -> A + Send + 'static,
    {
        let (core, line) = (Arc::clone(&self.core), self.line);
        Reduce::after(core, line, Box::pin(self.into_future()), first, add)
    }
}

impl IntoFuture for MergeCall {
    type Output = Result<Merged, Failure>;
    type IntoFuture = MergeFuture;

    fn into_future(self) -> MergeFuture {
        let MergeCall { core, names, line, merge, key } = self;
        let fault = merge.check().err().map(|error| error.to_string());
        let looking = BranchRead { core: Arc::clone(&core), names: names.clone(), merge: merge.clone() };
        let looking = Arc::new(looking);
        let body = Box::new(move |_| {
            let looking = Arc::clone(&looking);
            Box::pin(async move { encode_result(&looking.read_branches().await?) }) as Boxed<'static, _>
        });
        let mut raw = RawStep::new(&core, Op::Merge, MERGE, line, body);
        let joined = names.join(",");
        raw.key = Some(key.map_or(joined.clone(), |key| format!("{joined}#{key}")));
        raw.within = merge.timeout;
        raw.timeout = None;
        raw.on_done = decide;
        MergeFuture { raw, names, fault, checked: false, merging: false }
    }
}

/// A merge that is under way.
pub struct MergeFuture {
    raw: RawStep<'static>,
    names: Vec<String>,
    fault: Option<String>,
    checked: bool,
    /// Whether the branches are known to be merged by this call.
    merging: bool,
}

impl Drop for MergeFuture {
    fn drop(&mut self) {
        if self.merging {
            self.each(|opened| match opened {
                BranchState::Merging { number } => BranchState::Open { number },
                other => other,
            });
        }
    }
}

impl MergeFuture {
    /// Says that the branches are being merged; or what is wrong with that.
    fn claim(&mut self) -> Option<String> {
        let fault = self.fault();
        if fault.is_none() {
            self.merging = true;
            self.each(|opened| match opened {
                BranchState::Open { number } => BranchState::Merging { number },
                other => other,
            });
        }
        fault
    }

    fn each(&self, now: impl Fn(BranchState) -> BranchState) {
        let mut state = self.raw.core.lock();
        for name in &self.names {
            if let Some(opened) = state.branches.get_mut(name) {
                *opened = now(*opened);
            }
        }
    }

    fn fault(&mut self) -> Option<String> {
        if let Some(fault) = self.fault.take() {
            return Some(fault);
        }
        let bytes = self.raw.key.as_ref().map_or(0, String::len);
        if bytes > MAX_KEY_BYTES {
            return Some(format!(
                "the names of the {} branches to be merged are {bytes} bytes together, more than the {MAX_KEY_BYTES} allowed; merge \
                 fewer at once, or give them shorter names",
                self.names.len()
            ));
        }
        if self.names.is_empty() {
            return Some("no branch is named to be merged; name those that were opened".into());
        }
        let state = self.raw.core.lock();
        let opened = || match state.branches.is_empty() {
            true => "none was opened".to_owned(),
            false => format!("opened are {}", state.branches.keys().cloned().collect::<Vec<_>>().join(", ")),
        };
        self.names.iter().find_map(|name| match state.branches.get(name) {
            Some(BranchState::Open { .. }) => None,
            Some(BranchState::Merging { .. }) => Some(format!(
                "the branch {name:?} is being merged already; merge it once, with all it is merged with"
            )),
            Some(BranchState::Filling) => {
                Some(format!("the branch {name:?} is still being filled; await that before it is merged"))
            }
            Some(BranchState::Merged) => {
                Some(format!("the branch {name:?} was merged before; keep what that returned"))
            }
            None => Some(format!("there is no branch {name:?} to be merged: {}", opened())),
        })
    }
}

impl Future for MergeFuture {
    type Output = Result<Merged, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Merged, Failure>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.checked, true)
            && let Some(fault) = this.claim()
        {
            this.raw.core.fault(misuse(format!("{fault} ({})", source_location(this.raw.line))));
            return Poll::Pending;
        }
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        this.merging = false;
        {
            let mut state = this.raw.core.lock();
            for name in &this.names {
                state.branches.insert(name.clone(), BranchState::Merged);
            }
        }
        decode_result(&this.raw.core, MERGE, this.raw.line, ending)
    }
}

/// Looks how branches stand.
struct BranchRead {
    core: Arc<Core>,
    names: Vec<String>,
    merge: Merge,
}

/// What was seen, and what follows from it.
#[derive(Serialize, Deserialize)]
struct BranchReport {
    numbers: Vec<BranchNo>,
    follows: AfterPoll,
    /// Whether children that have not ended are to be cancelled when it is over.
    cut: bool,
    goal: String,
    merged: Merged,
}

#[derive(Serialize, Deserialize)]
enum AfterPoll {
    Met,
    Failed(String),
    Wait(Vec<Option<BranchWatch>>),
}

impl BranchRead {
    async fn read_branches(&self) -> Result<BranchReport, Failure> {
        let number = |name: &String| match self.core.lock().branches.get(name) {
            Some(BranchState::Merging { number }) => Ok(*number),
            _ => Err(misuse(format!("there is no branch {name:?} to be merged"))),
        };
        let numbers = self.names.iter().map(number).collect::<Result<Vec<BranchNo>, Failure>>()?;
        let (store, job) = (Arc::clone(&self.core.bound.store), self.core.job.id);
        let branches = retry_unavailable!(store.inspect().branches(job))?;
        let stand = |number: &BranchNo| {
            let branch = branches.iter().find(|branch| branch.number == *number);
            branch.map_or(BranchProgress::default(), |branch| BranchProgress {
                spawned: branch.spawned,
                counts: branch.counts,
            })
        };
        let stands: Vec<BranchProgress> = numbers.iter().map(stand).collect();
        let all = BranchProgress::sum(&stands);
        let merged = Merged::new(job, self.names.iter().cloned().zip(numbers.iter().copied()), all);
        let live = all.counts.ended() < all.spawned;
        let goal = MergeRecord { merge: self.merge.clone(), of: self.names.clone(), verdict: None }.text();
        let follows = match self.merge.decide(&stands) {
            MergeDecision::Met => AfterPoll::Met,
            MergeDecision::Wait(watches) => {
                let merged = |branch: &&Branch| numbers.contains(&branch.number);
                let of: Vec<&Branch> = branches.iter().filter(merged).collect();
                match retry_unavailable!(missing_children(&*store, &of))? {
                    Some(why) => {
                        AfterPoll::Failed(format!("the merge of {} failed: {why}", self.names.join(", ")))
                    }
                    None => AfterPoll::Wait(watches),
                }
            }
            MergeDecision::Failed(why) => {
                let first = retry_unavailable!(unsuccessful_children(&*store, job, &numbers, 3))?;
                let first = if first.is_empty() { String::new() } else { format!("; {first}") };
                AfterPoll::Failed(format!("the merge of {} failed: {why}{first}", self.names.join(", ")))
            }
        };
        Ok(BranchReport { numbers, follows, cut: live && !self.merge.rest_runs, goal, merged })
    }
}

/// What follows from a look at branches.
fn decide(step: &RawStep<'_>, id: usize, result: Vec<u8>) {
    let core = &step.core;
    let looked: BranchReport = match serde_json::from_slice(&result) {
        Ok(looked) => looked,
        Err(error) => return core.fail_or_retry_call(id, Failure::stop(error), &Retry::never()),
    };
    let deadline = step.deadline(id);
    let grow = |make: &dyn Fn(BranchNo, usize) -> BranchUpdate| {
        let grown = looked.numbers.iter().enumerate().map(|(place, number)| make(*number, place));
        core.lock().pending.branches.extend(grown);
    };
    let over = |number: BranchNo, _| BranchUpdate {
        seal: true,
        merged: true,
        cancel_children: looked.cut,
        merge_record: Some(looked.goal.clone()),
        ..BranchUpdate::new(number)
    };
    match &looked.follows {
        AfterPoll::Met => {
            grow(&over);
            core.complete_call(id, encode_result(&looked.merged).unwrap_or_default(), false);
        }
        AfterPoll::Failed(why) => {
            grow(&over);
            core.fail_or_retry_call(id, Failure::stop(why).class("merge"), &Retry::never());
        }
        AfterPoll::Wait(_) if deadline.is_some_and(|deadline| deadline <= core.now()) => {
            grow(&over);
            core.fail_or_retry_call(
                id,
                Failure::stop(looked.merged.timeout_text()).class(class::TIMEOUT),
                &Retry::never(),
            );
        }
        AfterPoll::Wait(watches) => {
            grow(&|number, place| BranchUpdate {
                seal: true,
                watch: watches[place].clone(),
                merge_record: Some(looked.goal.clone()),
                ..BranchUpdate::new(number)
            });
            let mut state = core.lock();
            state.mark_finished(
                id,
                AfterCommit::Wait(CallWait {
                    due_at: deadline,
                    branch: true,
                    runs_body: true,
                    ..CallWait::default()
                }),
            );
        }
    }
}

/// What is kept of reducing.
#[derive(Serialize, Deserialize)]
struct KeptReduction {
    /// How far the children were read.
    read: ReadPosition,
    value: serde_json::Value,
}

/// What the results of children are reduced to; `.await` returns it.
#[must_use = "nothing is reduced until this is awaited"]
pub struct Reducing<A> {
    run: Boxed<'static, Result<A, Failure>>,
}

impl<A> Future for Reducing<A> {
    type Output = Result<A, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<A, Failure>> {
        self.run.as_mut().poll(cx)
    }
}

pub(super) struct Reduce;

impl Reduce {
    /// Reduces the results of the children of branches once they are merged.
    pub(super) fn after<A, T, F>(
        core: Arc<Core>,
        line: &'static Location<'static>,
        merged: Boxed<'static, Result<Merged, Failure>>,
        first: A,
        add: F,
    ) -> Reducing<A>
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        T: DeserializeOwned + Send + 'static,
        F: FnMut(A, T) -> A + Send + 'static,
    {
        let run = Box::pin(async move {
            let merged = merged.await?;
            let key = merged.names().join(",");
            let first = serde_json::to_value(&first).map_err(|error| {
                Failure::stop(format!("what is to be reduced to cannot be written as JSON ({error})"))
                    .class(class::REFUSED)
            })?;
            let (bound, add) = (Arc::clone(&core.bound), Arc::new(std::sync::Mutex::new(add)));
            let make = Box::new(move |begun: Option<Payload>| -> Parts<'static> {
                let before = begun.and_then(|begun| {
                    let plain = bound.codecs.decode(&begun).ok()?;
                    serde_json::from_slice::<KeptReduction>(&plain).ok()
                });
                let kept = before
                    .unwrap_or_else(|| KeptReduction { read: ReadPosition::default(), value: first.clone() });
                let pages = Pages::new(Arc::clone(&bound), merged.clone(), kept.read);
                let state = (pages, Some(kept.value), Arc::clone(&add));
                Box::pin(futures_util::stream::unfold(state, async |(mut pages, value, add)| {
                    let part = reduced::<A, T, F>(&mut pages, value?, &add).await;
                    match part {
                        Ok((part, value)) => Some((Ok(part), (pages, value, add))),
                        Err(failure) => Some((Err(PartError::of_engine(failure)), (pages, None, add))),
                    }
                }))
            });
            let mut raw = RawParts::new(&core, Op::Reduce, "reduce", line, make);
            raw.key = Some(key);
            let (_, ending) = (&mut raw).await;
            std::future::poll_fn(|_| decode_result(&core, "reduce", line, ending.clone())).await
        });
        Reducing { run }
    }
}

/// Absorbs the next children: the part to be committed, and the value that it has if there are more.
async fn reduced<A, T, F>(
    pages: &mut Pages,
    value: serde_json::Value,
    add: &std::sync::Mutex<F>,
) -> Result<(Part, Option<serde_json::Value>), Failure>
where
    A: Serialize + DeserializeOwned,
    T: DeserializeOwned,
    F: FnMut(A, T) -> A,
{
    let written = |error: serde_json::Error| {
        Failure::stop(format!("what was reduced cannot be written as JSON, and read again ({error})"))
            .class(class::REFUSED)
    };
    let Some(results) = pages.next::<T>().await? else {
        return Ok((Part::End(serde_json::to_vec(&value).map_err(written)?), None));
    };
    let value: A = serde_json::from_value(value).map_err(written)?;
    let value = {
        let mut add = add.lock().unwrap_or_else(|e| e.into_inner());
        results.into_iter().fold(value, &mut *add)
    };
    let value = serde_json::to_value(&value).map_err(written)?;
    let kept =
        serde_json::to_vec(&KeptReduction { read: pages.read(), value: value.clone() }).map_err(written)?;
    Ok((Part::Keep(kept), Some(value)))
}
