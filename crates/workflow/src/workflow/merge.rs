//! Merging branches, and reducing the outputs of their children.

use std::{
    future::{Future, IntoFuture},
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use windlass_model::{
    BranchNo, BranchUpdate, BranchWatch, Failure, Merge, Payload,
    failure::class,
    journal::CallKind,
    limits::MAX_KEY_BYTES,
    merge::{BranchProgress, MergeDecision},
};

use windlass_store::Branch;

use super::{
    Boxed,
    call::{AfterCommit, CallWait},
    core::Core,
    fault::{misuse, source_location},
    made::Unawaited,
    parts::{Part, PartError, Parts, RawParts},
    state::BranchState,
    step::{RawStep, decode_result, encode_result},
};
use crate::{
    branch::{MergeRecord, Merged, Pages, ReadPosition, missing_children, unsuccessful_children},
    store_retry::retry_unavailable,
};

/// The name of every merge call; its key is the names of the branches.
pub(super) const MERGE: &str = "merge";

/// Returns the names of the branches in the key of a merge.
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
    pub(super) unawaited: Unawaited,
}

impl MergeCall {
    pub(super) fn new(
        core: &Arc<Core>,
        mut names: Vec<String>,
        line: &'static Location<'static>,
    ) -> MergeCall {
        names.sort();
        names.dedup();
        let unawaited = Unawaited::new(core, CallKind::Merge, line);
        MergeCall { core: Arc::clone(core), names, line, merge: Merge::all(), key: None, unawaited }
    }

    /// Sets the rules; by default all children must succeed.
    pub fn by(mut self, merge: Merge) -> MergeCall {
        self.merge = merge;
        self
    }

    /// Distinguishes it from an earlier merge of the same branches that was dropped.
    pub fn key(mut self, key: impl ToString) -> MergeCall {
        self.key = Some(key.to_string());
        self
    }

    /// Reduces the outputs of the children; see [`super::Merging::reduce`].
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
        let MergeCall { core, names, line, merge, key, mut unawaited } = self;
        unawaited.disarm();
        let fault = merge.check().err().map(|error| error.to_string());
        let reader = BranchReader { core: Arc::clone(&core), names: names.clone(), merge: merge.clone() };
        let reader = Arc::new(reader);
        let body = Box::new(move |_| {
            let reader = Arc::clone(&reader);
            Box::pin(async move { encode_result(&reader.read_branches().await?) }) as Boxed<'static, _>
        });
        let mut raw = RawStep::new(&core, CallKind::Merge, MERGE, line, body);
        let joined = names.join(",");
        raw.call.key = Some(key.map_or(joined.clone(), |key| format!("{joined}#{key}")));
        raw.call.within = merge.timeout;
        raw.timeout = None;
        raw.on_done = apply_report;
        MergeFuture { raw, names, fault, checked: false, merging: false }
    }
}

/// A merge that is running.
pub struct MergeFuture {
    raw: RawStep<'static>,
    names: Vec<String>,
    fault: Option<String>,
    checked: bool,
    /// Whether this call has marked the branches as being merged.
    merging: bool,
}

impl Drop for MergeFuture {
    fn drop(&mut self) {
        if self.merging {
            self.update_branches(|opened| match opened {
                BranchState::Merging { number } => BranchState::Open { number },
                other => other,
            });
        }
    }
}

impl MergeFuture {
    /// Marks the branches as being merged. Returns what is wrong, if something is.
    fn begin_merge(&mut self) -> Option<String> {
        let fault = self.fault();
        if fault.is_none() {
            self.merging = true;
            self.update_branches(|opened| match opened {
                BranchState::Open { number } => BranchState::Merging { number },
                other => other,
            });
        }
        fault
    }

    fn update_branches(&self, update: impl Fn(BranchState) -> BranchState) {
        let mut state = self.raw.call.core.lock();
        for name in &self.names {
            if let Some(opened) = state.branches.get_mut(name) {
                *opened = update(*opened);
            }
        }
    }

    fn fault(&mut self) -> Option<String> {
        if let Some(fault) = self.fault.take() {
            return Some(fault);
        }
        let bytes = self.raw.call.key.as_ref().map_or(0, String::len);
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
        let state = self.raw.call.core.lock();
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
            && let Some(fault) = this.begin_merge()
        {
            this.raw.call.core.fault(misuse(format!("{fault} ({})", source_location(this.raw.call.line))));
            return Poll::Pending;
        }
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        this.merging = false;
        {
            let mut state = this.raw.call.core.lock();
            for name in &this.names {
                state.branches.insert(name.clone(), BranchState::Merged);
            }
        }
        decode_result(&this.raw.call.core, MERGE, this.raw.call.line, ending)
    }
}

/// Reads the counts of branches and decides by the rules.
struct BranchReader {
    core: Arc<Core>,
    names: Vec<String>,
    merge: Merge,
}

/// What was read, and the decision.
#[derive(Serialize, Deserialize)]
struct BranchReport {
    numbers: Vec<BranchNo>,
    decision: ReportDecision,
    /// Whether children that have not ended are cancelled when the merge is over.
    cancel_children: bool,
    merge_record: String,
    merged: Merged,
}

#[derive(Serialize, Deserialize)]
enum ReportDecision {
    Met,
    Failed(String),
    Wait(Vec<Option<BranchWatch>>),
}

impl BranchReader {
    async fn read_branches(&self) -> Result<BranchReport, Failure> {
        let number = |name: &String| match self.core.lock().branches.get(name) {
            Some(BranchState::Merging { number }) => Ok(*number),
            _ => Err(misuse(format!("there is no branch {name:?} to be merged"))),
        };
        let numbers = self.names.iter().map(number).collect::<Result<Vec<BranchNo>, Failure>>()?;
        let (store, job) = (Arc::clone(&self.core.services.store), self.core.job.id);
        let branches = retry_unavailable!(store.inspect().branches(job))?;
        let progress_of = |number: &BranchNo| {
            let branch = branches.iter().find(|branch| branch.number == *number);
            branch.map_or(BranchProgress::default(), |branch| BranchProgress {
                spawned: branch.spawned,
                counts: branch.counts,
            })
        };
        let progress: Vec<BranchProgress> = numbers.iter().map(progress_of).collect();
        let all = BranchProgress::sum(&progress);
        let merged = Merged::new(job, self.names.iter().cloned().zip(numbers.iter().copied()), all);
        let live = all.counts.ended() < all.spawned;
        let merge_record =
            MergeRecord { merge: self.merge.clone(), of: self.names.clone(), verdict: None }.text();
        let decision = match self.merge.decide(&progress) {
            MergeDecision::Met => ReportDecision::Met,
            MergeDecision::Wait(watches) => {
                let merged = |branch: &&Branch| numbers.contains(&branch.number);
                let wanted: Vec<&Branch> = branches.iter().filter(merged).collect();
                match retry_unavailable!(missing_children(&*store, &wanted))? {
                    Some(why) => ReportDecision::Failed(format!(
                        "the merge of {} failed: {why}",
                        self.names.join(", ")
                    )),
                    None => ReportDecision::Wait(watches),
                }
            }
            MergeDecision::Failed(why) => {
                let first = retry_unavailable!(unsuccessful_children(&*store, job, &numbers, 3))?;
                let first = if first.is_empty() { String::new() } else { format!("; {first}") };
                ReportDecision::Failed(format!("the merge of {} failed: {why}{first}", self.names.join(", ")))
            }
        };
        Ok(BranchReport {
            numbers,
            decision,
            cancel_children: live && !self.merge.rest_runs,
            merge_record,
            merged,
        })
    }
}

/// Completes the merge, or lets it wait, as the report of its body says.
fn apply_report(step: &RawStep<'_>, id: usize, result: Vec<u8>) {
    let core = &step.call.core;
    let report: BranchReport = match serde_json::from_slice(&result) {
        Ok(report) => report,
        Err(error) => return core.fail_call(id, Failure::stop(error)),
    };
    let deadline = step.deadline(id);
    let update = |make: &dyn Fn(BranchNo, usize) -> BranchUpdate| {
        let updates = report.numbers.iter().enumerate().map(|(index, number)| make(*number, index));
        core.lock().pending.branches.extend(updates);
    };
    let merged = |number: BranchNo, _| BranchUpdate {
        seal: true,
        merged: true,
        cancel_children: report.cancel_children,
        merge_record: Some(report.merge_record.clone()),
        ..BranchUpdate::new(number)
    };
    match &report.decision {
        ReportDecision::Met => {
            update(&merged);
            core.complete_call(id, encode_result(&report.merged).unwrap_or_default(), false);
        }
        ReportDecision::Failed(why) => {
            update(&merged);
            core.fail_call(id, Failure::stop(why).class(class::MERGE));
        }
        ReportDecision::Wait(_) if deadline.is_some_and(|deadline| deadline <= core.now()) => {
            update(&merged);
            core.fail_call(id, Failure::stop(report.merged.timeout_text()).class(class::TIMEOUT));
        }
        ReportDecision::Wait(watches) => {
            update(&|number, index| BranchUpdate {
                seal: true,
                watch: watches[index].clone(),
                merge_record: Some(report.merge_record.clone()),
                ..BranchUpdate::new(number)
            });
            let mut state = core.lock();
            state.calls.mark_finished(
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

/// The state of a reduction, committed with each page of children.
#[derive(Serialize, Deserialize)]
struct ReductionState {
    /// How far the children were read.
    read: ReadPosition,
    value: serde_json::Value,
}

/// The value that the outputs of children are reduced to; `.await` returns it.
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
    /// Reduces the outputs of the children of branches once they are merged.
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
            let (services, add) = (Arc::clone(&core.services), Arc::new(std::sync::Mutex::new(add)));
            let make = Box::new(move |begun: Option<Payload>| -> Parts<'static> {
                let before = begun.and_then(|begun| {
                    let plain = services.codecs.decode(&begun).ok()?;
                    serde_json::from_slice::<ReductionState>(&plain).ok()
                });
                let state = before.unwrap_or_else(|| ReductionState {
                    read: ReadPosition::default(),
                    value: first.clone(),
                });
                let pages = Pages::new(Arc::clone(&services), merged.clone(), state.read);
                let state = (pages, Some(state.value), Arc::clone(&add));
                Box::pin(futures_util::stream::unfold(state, async |(mut pages, value, add)| {
                    let part = reduce_page::<A, T, F>(&mut pages, value?, &add).await;
                    match part {
                        Ok((part, value)) => Some((Ok(part), (pages, value, add))),
                        Err(failure) => Some((Err(PartError::of_engine(failure)), (pages, None, add))),
                    }
                }))
            });
            let mut raw = RawParts::new(&core, CallKind::Reduce, "reduce", line, make);
            raw.call.key = Some(key);
            let (_, ending) = (&mut raw).await;
            std::future::poll_fn(|_| decode_result(&core, "reduce", line, ending.clone())).await
        });
        Reducing { run }
    }
}

/// Adds the outputs of the next page. Returns the part to be committed, and the value if there are more.
async fn reduce_page<A, T, F>(
    pages: &mut Pages,
    value: serde_json::Value,
    add: &std::sync::Mutex<F>,
) -> Result<(Part, Option<serde_json::Value>), Failure>
where
    A: Serialize + DeserializeOwned,
    T: DeserializeOwned,
    F: FnMut(A, T) -> A,
{
    let unwritable = |error: serde_json::Error| {
        Failure::stop(format!("what was reduced cannot be written as JSON, and read again ({error})"))
            .class(class::REFUSED)
    };
    let Some(results) = pages.next::<T>().await? else {
        return Ok((Part::End(serde_json::to_vec(&value).map_err(unwritable)?), None));
    };
    let value: A = serde_json::from_value(value).map_err(unwritable)?;
    let value = {
        let mut add = add.lock().unwrap_or_else(|e| e.into_inner());
        results.into_iter().fold(value, &mut *add)
    };
    let value = serde_json::to_value(&value).map_err(unwritable)?;
    let state = serde_json::to_vec(&ReductionState { read: pages.read(), value: value.clone() })
        .map_err(unwritable)?;
    Ok((Part::Save(state), Some(value)))
}
