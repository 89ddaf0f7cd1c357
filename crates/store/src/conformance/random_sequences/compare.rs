//! Compares what the two stores return and show.

use std::fmt::Debug;

use windlass_model::{JobId, Rev, Signal, State, Time, branch::BRANCH_SIGNAL};

use super::{
    super::kit::{BEGIN, Handle, all_jobs},
    build::{QUEUES, STAGES},
    pair::Pair,
};
use crate::{
    AuditFilter, BranchChild, BranchChildFilter, BranchTimes, CANCEL_GATE, ChildBounds, ChildStates, Error,
    Filter, Fut, Holds, JobPulse, LimitView, OpenBranch, PayloadsOf, RateHold, ReapReport, RollUpRequest,
    SignalWaitFilter, StateCount, TIMER_GATE, ThroughputBy, ThroughputFilter, UnsuccessfulFilter, WorkerView,
};

/// Makes one call on both stores and compares the results.
macro_rules! on_both {
    ($pair:expr, |$store:ident| $call:expr) => {{
        let results = {
            let $store = &$pair.stores[0];
            let reference = $call.await;
            let $store = &$pair.stores[1];
            [reference, $call.await]
        };
        $crate::conformance::random_sequences::compare::same(results)?
    }};
}
pub(super) use on_both;

impl Pair {
    /// Compares lists, counts and gates; with `detail`, everything about every job.
    pub(super) async fn compare(&mut self, detail: bool) -> Result<(), String> {
        let jobs = on_both!(self, |store| store.inspect().jobs(&all_jobs())).unwrap_or_default().jobs;
        on_both!(self, |store| sorted(store.inspect().state_counts()));
        on_both!(self, |store| sorted(store.inspect().workers()));
        self.compare_gates().await?;
        self.compare_sums().await?;
        if detail {
            let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
            on_both!(self, |store| store.job_ends(&ids));
            self.compare_many(&ids).await?;
            for id in ids {
                self.compare_job(id).await?;
            }
            self.compare_settings().await?;
            // What is read next is summed up, and must be the same.
            let request = RollUpRequest { limit: 4, hours_before: None, delete_before: None };
            for store in &self.stores {
                store.roll_up(&request).await.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Compares what ended and how long waits for signals took.
    async fn compare_sums(&self) -> Result<(), String> {
        for by in [ThroughputBy::Minute, ThroughputBy::Kind] {
            let (queues, kinds) = (Vec::new(), Vec::new());
            let filter = ThroughputFilter { queues, kinds, from: BEGIN, until: Time::MAX, by };
            on_both!(self, |store| store.inspect().throughput(&filter));
        }
        on_both!(self, |store| store.inspect().signal_waits(&SignalWaitFilter::default()));
        Ok(())
    }

    /// Compares what is read of many jobs at once.
    async fn compare_many(&self, ids: &[JobId]) -> Result<(), String> {
        on_both!(self, |store| store.inspect().summaries(ids));
        on_both!(self, |store| store.inspect().details(ids));
        on_both!(self, |store| store.inspect().last_calls(ids));
        on_both!(self, |store| job_pulses(store, ids));
        on_both!(self, |store| store.inspect().parked(7));
        on_both!(self, |store| store.inspect().unsuccessful(&UnsuccessfulFilter::default(), 5));
        let busy = UnsuccessfulFilter { error_class: Some("error".into()), ..UnsuccessfulFilter::default() };
        on_both!(self, |store| store.inspect().unsuccessful(&busy, 5));
        on_both!(self, |store| open_branches(store));
        Ok(())
    }

    async fn compare_job(&self, id: JobId) -> Result<(), String> {
        on_both!(self, |store| store.inspect().job(id));
        on_both!(self, |store| store.inspect().history(id));
        on_both!(self, |store| holds(store, id));
        on_both!(self, |store| store.inspect().children(id, None, 5));
        on_both!(self, |store| inbox(store, id));
        on_both!(self, |store| store.inspect().transitions(id, Some(Rev(1)), 5));
        on_both!(self, |store| store.inspect().journal(id, None, usize::MAX));
        on_both!(self, |store| store.inspect().journal(id, Some(4), 2));
        on_both!(self, |store| store.inspect().journal_end(id, 2));
        let of = PayloadsOf::Journal { job: id, after: Some(0) };
        on_both!(self, |store| store.inspect().payload_sizes(of, 9));
        on_both!(self, |store| store.inspect().context(id));
        for rev in 1..4 {
            on_both!(self, |store| store.inspect().child_ends(id, Rev(rev), None, 5));
        }
        let branches = on_both!(self, |store| store.inspect().branches(id));
        on_both!(self, |store| store.inspect().branch_times(id));
        for branch in branches.iter().flatten() {
            for states in [ChildStates::All, ChildStates::Live, ChildStates::Ended, ChildStates::Unsuccessful]
            {
                let filter =
                    BranchChildFilter { job: id, branch: branch.number, states, after: None, limit: 9 };
                on_both!(self, |store| store.inspect().branch_children(&filter));
                on_both!(self, |store| page_of_children(store, &filter));
            }
        }
        Ok(())
    }

    /// Compares filtered lists, and what does not belong to one job.
    async fn compare_settings(&self) -> Result<(), String> {
        for kind in ["a", "b"] {
            on_both!(self, |store| store.inspect().transition_counts(kind, 5));
        }
        for state in State::ALL {
            let filter =
                Filter { state: Some(state), stage: Some(STAGES[0].into()), version: Some(2), ..all_jobs() };
            on_both!(self, |store| store.inspect().jobs(&filter));
            on_both!(self, |store| store.inspect().jobs(&Filter { stage: None, ..filter.clone() }));
            on_both!(self, |store| store.inspect().jobs(&Filter { version: None, ..filter.clone() }));
        }
        let text = |text: &str| Some(text.to_owned());
        for filter in [
            Filter { kind: text("a"), ..all_jobs() },
            Filter { queue: text(QUEUES[1]), version: Some(1), ..all_jobs() },
            Filter { tag: text("tag 1"), kind: text("b"), ..all_jobs() },
            Filter { key_prefix: text("key"), ..all_jobs() },
            Filter { key_prefix: text("key 1"), state: Some(State::Done), ..all_jobs() },
            Filter { error_class: text("error"), ..all_jobs() },
            Filter { error_class: text("expired"), queue: text(QUEUES[0]), ..all_jobs() },
            Filter { error_class: text("cancelled"), state: Some(State::Cancelled), ..all_jobs() },
        ] {
            on_both!(self, |store| store.inspect().jobs(&filter));
            on_both!(self, |store| store.inspect().count_jobs(&filter, usize::MAX));
        }
        let audit = AuditFilter { limit: 100, ..AuditFilter::default() };
        on_both!(self, |store| store.inspect().audit(&audit));
        on_both!(self, |store| store.inspect().queues());
        on_both!(self, |store| store.inspect().serial_keys(None, 100));
        on_both!(self, |store| rate_limits(store));
        on_both!(self, |store| store.repair(Some(self.now)));
        for worker in self.workers {
            on_both!(self, |store| store.cancel_requests(worker.0));
        }
        Ok(())
    }

    /// Compares which gates moved since the last comparison; their values may differ.
    pub(super) async fn compare_gates(&mut self) -> Result<(), String> {
        let queues =
            [QUEUES[0].to_owned(), QUEUES[1].to_owned(), TIMER_GATE.to_owned(), CANCEL_GATE.to_owned()];
        let mut moved = Vec::new();
        for (store, last) in self.stores.iter().zip(&mut self.gates) {
            let now = store.gates(&queues).await.map_err(|error| error.to_string())?;
            moved.push(now.iter().zip(last.iter()).map(|(now, last)| now != last).collect::<Vec<_>>());
            *last = now;
        }
        let extra = std::mem::take(&mut self.extra_gate_moves);
        if moved[0].iter().zip(&moved[1]).all(|(one, other)| one == other || (extra && *other)) {
            return Ok(());
        }
        Err(format!(
            "of the gates {queues:?} moved {:?} in the reference and {:?} in the subject",
            moved[0], moved[1]
        ))
    }
}

/// The result that both stores returned; `None` if both returned the same error.
pub(super) fn same<T: Debug>(results: [Result<T, Error>; 2]) -> Result<Option<T>, String> {
    let text = |result: &Result<T, Error>| match result {
        Ok(value) => format!("{value:?}"),
        Err(Error::Unavailable(_)) => "not available".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    let texts = results.each_ref().map(text);
    if texts[0] != texts[1] {
        return Err(format!("the reference returned\n  {}\nand the subject\n  {}", texts[0], texts[1]));
    }
    let [reference, _] = results;
    Ok(reference.ok())
}

/// Removes what may differ between stores: the numbers, and the order of signals of branches among those of the same time (see
/// decision 0008).
pub(super) fn clear_signal_numbers(signals: &mut [Signal]) {
    signals.iter_mut().for_each(|signal| signal.number = 0);
    for same_time in signals.chunk_by_mut(|one, next| one.at == next.at) {
        // The sort is stable, so the others keep their order.
        same_time.sort_by_key(|signal| (signal.name == BRANCH_SIGNAL).then(|| signal.payload.bytes.clone()));
    }
}

/// The signals in an inbox, without their numbers.
async fn inbox(store: &Handle, id: JobId) -> Result<Vec<Signal>, Error> {
    let mut inbox = store.inspect().inbox(id, 100).await?;
    clear_signal_numbers(&mut inbox);
    Ok(inbox)
}

/// Where jobs are, without the numbers of their signals.
async fn job_pulses(store: &Handle, ids: &[JobId]) -> Result<Vec<Option<JobPulse>>, Error> {
    let mut jobs = store.inspect().pulse(ids).await?.jobs;
    for job in jobs.iter_mut().flatten() {
        job.newest_signal = job.newest_signal.min(1);
    }
    Ok(jobs)
}

/// Branches that are not merged, without the times that not every store has summed up.
async fn open_branches(store: &Handle) -> Result<Vec<OpenBranch>, Error> {
    let mut open = store.inspect().open_branches(9).await?;
    open.iter_mut().for_each(|open| open.times = BranchTimes::default());
    Ok(open)
}

/// What keeps a job from being claimed, without what depends on the real clock.
async fn holds(store: &Handle, id: JobId) -> Result<Option<Holds>, Error> {
    let mut holds = store.inspect().holds(id).await?;
    if let Some(RateHold { affordable_at, .. }) = holds.as_mut().and_then(|holds| holds.rate.as_mut()) {
        *affordable_at = BEGIN;
    }
    let waiting = holds.iter_mut().filter_map(|holds| holds.waiting.as_mut());
    waiting.flat_map(|waiting| &mut waiting.unreadable).for_each(|signal| signal.number = 0);
    Ok(holds)
}

/// The first page of children of a branch that examines few of them, without how many those were: the stores may examine more than they need.
async fn page_of_children(
    store: &Handle,
    filter: &BranchChildFilter,
) -> Result<(Vec<BranchChild>, Option<JobId>), Error> {
    let few = BranchChildFilter { limit: 2, ..filter.clone() };
    // All unsuccessful ones match: how many are examined says nothing.
    let examine = if filter.states == ChildStates::Unsuccessful { 99 } else { 3 };
    let page = store.inspect().branch_children_page(&few, ChildBounds { examine, bytes: 40 }).await?;
    Ok((page.children, page.next))
}

/// The rate limits, without what depends on the real clock.
async fn rate_limits(store: &Handle) -> Result<Vec<LimitView>, Error> {
    let mut limits = store.inspect().rate_limits().await?;
    limits.iter_mut().for_each(|limit| limit.tokens = 0);
    Ok(limits)
}

/// Puts a result that stores return in any order into one order.
pub(super) trait Sorted {
    fn sorted(self) -> Self;
}

impl Sorted for ReapReport {
    fn sorted(mut self) -> Self {
        self.workers.sort();
        self
    }
}

impl Sorted for Vec<StateCount> {
    fn sorted(mut self) -> Self {
        self.sort();
        self
    }
}

impl Sorted for Vec<WorkerView> {
    fn sorted(mut self) -> Self {
        self.sort_by_key(|worker| worker.id);
        self
    }
}

pub(super) async fn sorted<T: Sorted>(call: Fut<'_, T>) -> Result<T, Error> {
    call.await.map(Sorted::sorted)
}
