//! How the driver handles calls that wait: it begins them, ends those whose wait is over, and parks the job for the others.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use windlass_model::{
    Failure, JobId, Outcome, Payload, Reason, Signal, Time, Wait, WaitCondition,
    branch::BRANCH_SIGNAL,
    failure::{OnFailure, class},
    journal::{CallEvent, CallKind},
    wait::{CHILD_SIGNAL, MAX_NAMES, SignalName},
};
use windlass_runtime::StepResult;
use windlass_store::JobEnd;

use super::{
    driver::{Driver, record_finished},
    journal::CallEnd,
    state::{AwaitedSignal, Call, CallWait, Moment, Phase, RunState, Start, misuse},
};
use crate::{signal::mark_unreadable, store_retry::retry_unavailable};

/// How often the inbox is read while steps are running.
const INBOX_INTERVAL: Duration = Duration::from_millis(500);

impl Driver {
    /// Begins a call that is not recorded.
    pub(super) fn begin(&self, id: usize) -> Result<(), Failure> {
        let now = self.core.now();
        let mut state = self.core.lock();
        let state = &mut *state;
        let Some(call) = state.calls[id].as_mut() else { return Ok(()) };
        let recorded = state.journal.calls.of(&call.ident);
        let begun = recorded.and_then(|recorded| recorded.begun.as_ref()).map(|(_, payload)| payload.clone());
        let retried_at = recorded.and_then(|recorded| recorded.tried.as_ref()).map(|tried| tried.next_at);
        let time = |payload: &Payload| serde_json::from_slice::<Time>(&payload.bytes).ok();
        let mut begin = None;
        let phase = match &mut call.start {
            Start::Body { within } => {
                if let (Some(within), None) = (within, &begun) {
                    begin = Some(now.plus(*within));
                }
                match retried_at.filter(|at| *at > now) {
                    Some(at) => {
                        Phase::Waiting(CallWait { due_at: Some(at), runs_body: true, ..CallWait::default() })
                    }
                    None => {
                        if call.op == CallKind::Transaction {
                            state.transacting = Some(id);
                        }
                        Phase::CanStart
                    }
                }
            }
            Start::At(moment) => {
                let due = begun.as_ref().and_then(time).unwrap_or_else(|| {
                    let due = match *moment {
                        Moment::In(sleep_for) => now.plus(sleep_for),
                        Moment::At(at) => at,
                    };
                    *begin.insert(due)
                });
                Phase::Waiting(CallWait { due_at: Some(due), ..CallWait::default() })
            }
            Start::Unrecorded(due) => {
                Phase::Waiting(CallWait { due_at: Some(*due), unrecorded: true, ..CallWait::default() })
            }
            Start::Signal { awaited, timeout } => {
                let due = timeout.map(|timeout| {
                    begun.as_ref().and_then(time).unwrap_or_else(|| *begin.insert(now.plus(timeout)))
                });
                Phase::Waiting(CallWait { due_at: due, signal: Some(awaited.clone()), ..CallWait::default() })
            }
            Start::Child(job) => {
                let before =
                    begun.as_ref().and_then(|begun| serde_json::from_slice::<JobId>(&begun.bytes).ok());
                let child = before.unwrap_or(job.id);
                if before.is_none() {
                    state.pending.children.push((**job).clone());
                }
                let payload = serde_json::to_vec(&child).unwrap_or_default();
                call.phase = Phase::Waiting(CallWait { child: Some(child), ..CallWait::default() });
                if before.is_none() {
                    let payload = Payload::json(payload);
                    let entry = state.entry(id, CallEvent::Begun, payload.clone(), now);
                    let ident = state.calls[id].as_ref().expect("begun").ident.clone();
                    state.journal.recorded_mut(&ident).begun = Some((entry.seq, payload));
                    state.pending.entries.push(entry);
                }
                return Ok(());
            }
        };
        call.phase = phase;
        if let Some(due) = begin {
            let payload = Payload::json(serde_json::to_vec(&due).unwrap_or_default());
            let entry = state.entry(id, CallEvent::Begun, payload.clone(), now);
            let (ident, op) = (state.calls[id].as_ref().expect("begun").ident.clone(), entry.op);
            let recorded = state.journal.recorded_mut(&ident);
            (recorded.op, recorded.begun) = (op, Some((entry.seq, payload)));
            state.pending.entries.push(entry);
        }
        Ok(())
    }

    /// Ends the waits that are over. Returns whether there were any.
    pub(super) fn complete_waits(&self) -> bool {
        let now = self.core.now();
        let mut guard = self.core.lock();
        let state = &mut *guard;
        let alone = state.under_way().count() == 1;
        let waiting: Vec<(usize, CallWait)> = state
            .under_way()
            .filter_map(|(id, call)| match &call.phase {
                Phase::Waiting(wait) => Some((id, wait.clone())),
                _ => None,
            })
            .collect();
        let mut woken = Vec::new();
        // A signal of a branch only says that the branch must be read again.
        let branch_signals: Vec<i64> = state
            .inbox
            .iter()
            .filter(|signal| signal.name == BRANCH_SIGNAL)
            .map(|signal| signal.number)
            .collect();
        if waiting.iter().any(|(_, wait)| wait.branch) {
            state.inbox.retain(|signal| signal.name != BRANCH_SIGNAL);
            state.pending.consumed.extend(&branch_signals);
        }
        // Only the next end is taken: if the code then drops other calls, their signals must stay in the inbox.
        let mut ended = !state.finished.is_empty();
        let all_awaited: Vec<AwaitedSignal> =
            waiting.iter().filter_map(|(_, wait)| wait.signal.clone()).collect();
        for (id, wait) in waiting {
            if ended && !wait.runs_body {
                continue;
            }
            let signal =
                wait.signal.as_ref().and_then(|awaited| self.take_signal(state, awaited, &all_awaited));
            let due =
                wait.due_at.is_some_and(|due| due <= now) || (wait.branch && !branch_signals.is_empty());
            if let Some(signal) = signal {
                if wait.runs_body {
                    let call = state.calls[id].as_mut().expect("it waits");
                    (call.signal, call.phase) = (Some(signal), Phase::CanStart);
                } else {
                    state.pending.consumed.push(signal.number);
                    // The payload of a signal that came with the claim was decoded with it.
                    let kept = match signal.payload {
                        Payload { codec: 0, bytes } => self.core.encode(bytes),
                        encoded => Ok(encoded),
                    };
                    match kept {
                        Ok(payload) => _ = state.finish(id, CallEvent::Done, payload, now),
                        Err(failure) => state.fail(id, failure, Reason::Refused, now),
                    }
                }
            } else if !due {
                continue;
            } else if wait.runs_body {
                let call = state.calls[id].as_mut().expect("it waits");
                // Transactions run one after the other.
                call.phase = if call.op == CallKind::Transaction { Phase::New } else { Phase::CanStart };
            } else if wait.unrecorded {
                let seq = state.last_delivered;
                state.calls[id].as_mut().expect("it waits").phase =
                    Phase::Ready(seq, CallEnd::Done(Payload::json(b"null".to_vec())));
            } else if let Some(AwaitedSignal { name, .. }) = wait.signal {
                let text = format!("no signal {name:?} arrived in time");
                state.fail(id, Failure::stop(text).class(class::TIMEOUT), Reason::Timeout, now);
            } else {
                state.finish(id, CallEvent::Done, Payload::json(b"null".to_vec()), now);
                if alone {
                    // No other call can end before it: its end is written with whatever follows.
                    record_finished(state);
                }
            }
            ended |= !wait.runs_body;
            woken.push(id);
        }
        let any = !woken.is_empty();
        drop(guard);
        woken.into_iter().for_each(|id| self.core.wake_call(id));
        any
    }

    /// Takes the oldest signal out of the inbox that a call waits for and can decode. A signal that none of the calls waiting
    /// for its name can decode is marked unreadable.
    fn take_signal(
        &self,
        state: &mut RunState,
        awaited: &AwaitedSignal,
        all_awaited: &[AwaitedSignal],
    ) -> Option<Signal> {
        let codecs = &self.core.services.codecs;
        let mut index = 0;
        while let Some(signal) = state.inbox.get(index) {
            if signal.name != awaited.name {
                index += 1;
                continue;
            }
            let why = match (awaited.can_read)(codecs, &signal.payload) {
                Ok(()) => return Some(state.inbox.remove(index)),
                Err(why) => why,
            };
            let others = all_awaited.iter().filter(|other| other.name == awaited.name);
            if others.map(|other| (other.can_read)(codecs, &signal.payload)).any(|read| read.is_ok()) {
                index += 1;
                continue;
            }
            let signal = state.inbox.remove(index);
            state.pending.unreadable.push(mark_unreadable(self.core.job.id, &signal, why));
        }
        None
    }

    /// Reads signals and ends of children that calls wait for and that did not come with the claim. Returns whether there is
    /// anything new.
    pub(super) async fn refresh_waits(&mut self) -> Result<bool, Failure> {
        let (names, children, new_children) = {
            let state = self.core.lock();
            let waits = state.under_way().filter_map(|(_, call)| match &call.phase {
                Phase::Waiting(wait) => Some(wait),
                _ => None,
            });
            let (mut names, mut children) = (Vec::new(), Vec::new());
            for wait in waits {
                names.extend(wait.signal.as_ref().map(|awaited| awaited.name.clone()));
                names.extend(wait.branch.then(|| BRANCH_SIGNAL.to_owned()));
                children.extend(wait.child);
            }
            let new: Vec<JobId> = state.pending.children.iter().map(|child| child.id).collect();
            (names, children, new)
        };
        let mut any = false;
        let recorded =
            |name: &String| self.core.job.wait.as_ref().is_some_and(|wait| wait.wants(name).is_some());
        if !self.inbox_read && names.iter().any(|name| !recorded(name)) {
            self.read_inbox().await?;
            any |= {
                let state = self.core.lock();
                state.inbox.iter().any(|signal| names.contains(&signal.name))
            };
        }
        self.inbox_read = true;
        let hinted = {
            let mut state = self.core.lock();
            let (hints, rest): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.inbox).into_iter().partition(|signal| signal.name == CHILD_SIGNAL);
            state.inbox = rest;
            state.pending.consumed.extend(hints.iter().map(|hint| hint.number));
            !hints.is_empty()
        };
        let wanted: Vec<JobId> = children
            .into_iter()
            .filter(|id| !new_children.contains(id) && (hinted || !self.queried_children.contains(id)))
            .collect();
        if !wanted.is_empty() {
            any |= self.complete_children(&wanted).await?;
        }
        Ok(any)
    }

    pub(super) async fn read_inbox(&mut self) -> Result<(), Failure> {
        let store = Arc::clone(&self.core.services.store);
        let id = self.core.job.id;
        let inbox = retry_unavailable!(store.inspect().inbox(id, usize::MAX))?;
        let mut state = self.core.lock();
        let mut consumed = state.pending.consumed.clone();
        consumed.extend(state.pending.unreadable.iter().map(|signal| signal.number));
        let held_by_bodies: Vec<i64> = state
            .under_way()
            .filter_map(|(_, call)| call.signal.as_ref().map(|signal| signal.number))
            .collect();
        state.inbox = inbox
            .into_iter()
            .filter(|signal| signal.unreadable.is_none())
            .filter(|signal| !consumed.contains(&signal.number) && !held_by_bodies.contains(&signal.number))
            .collect();
        Ok(())
    }

    /// Ends the calls whose children have ended. Returns whether there were any.
    pub(super) async fn complete_children(&mut self, ids: &[JobId]) -> Result<bool, Failure> {
        let store = Arc::clone(&self.core.services.store);
        let ended = retry_unavailable!(store.job_ends(ids))?;
        self.queried_children.extend(ids);
        let now = self.core.now();
        let mut any = false;
        let mut state = self.core.lock();
        for (child, ended) in ids.iter().zip(ended) {
            let Some(ended) = ended else { continue };
            let waits_for = |(id, call): (usize, &Call)| match &call.phase {
                Phase::Waiting(wait) if wait.child == Some(*child) => Some(id),
                _ => None,
            };
            let Some(id) = state.under_way().find_map(waits_for) else { continue };
            any = true;
            match ended {
                JobEnd::Done(output) => _ = state.finish(id, CallEvent::Done, output, now),
                JobEnd::Failed { reason, failure } => {
                    let message = format!("the child {child} failed ({reason}): {}", failure.message);
                    let failure = Failure { message, then: OnFailure::Stop, ..failure };
                    state.fail(id, failure, reason, now);
                }
                JobEnd::Cancelled(failure) => {
                    let message = format!("the child {child} was cancelled: {}", failure.message);
                    let failure = Failure { message, then: OnFailure::Stop, ..failure };
                    state.fail(id, failure.class(class::CANCELLED), Reason::Stopped, now);
                }
                JobEnd::Gone => {
                    let text = format!(
                        "the child {child} does not exist: another job has its key or its unique name, or it was pruned"
                    );
                    state.fail(id, Failure::stop(text).class("child"), Reason::Stopped, now);
                }
            }
        }
        Ok(any)
    }

    /// Waits until a body can continue, a wait is over, or the job is being cancelled. Returns whether the grace period of a
    /// cancel is over.
    pub(super) async fn wait(&mut self) -> Result<bool, Failure> {
        let attempt = Arc::clone(self.attempt());
        let (due, polls_inbox) = {
            let state = self.core.lock();
            let waits = || {
                state.under_way().filter_map(|(_, call)| match &call.phase {
                    Phase::Waiting(wait) => Some(wait),
                    _ => None,
                })
            };
            let due = waits().filter_map(|wait| wait.due_at).min();
            (due, waits().any(|wait| wait.signal.is_some() || wait.child.is_some() || wait.branch))
        };
        let (now, env) = (self.core.now(), self.core.services.env.clone());
        let mut sleep_for = due.map(|due| due.since(now));
        if polls_inbox {
            // A fixed time, so that bodies that wake often cannot postpone it.
            let read_at = *self.next_inbox_read.get_or_insert_with(|| env.instant() + INBOX_INTERVAL);
            let remaining = read_at.saturating_duration_since(env.instant());
            sleep_for = Some(sleep_for.map_or(remaining, |sleep_for| sleep_for.min(remaining)));
        }
        let core = Arc::clone(&self.core);
        let mut first = true;
        let woken = poll_fn(move |cx: &mut Context<'_>| {
            core.register_driver(cx);
            // Wakes between the last poll and this one are served by polling the code once more.
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        });
        let sleep = async {
            match sleep_for {
                Some(sleep_for) => env.sleep(sleep_for).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = attempt.cancel_deadline() => {
                return Ok(true);
            }
            () = sleep => {
                if self.next_inbox_read.take_if(|at| *at <= env.instant()).is_some()
                    && let Err(failure) = self.refresh_inbox().await
                {
                    // Running bodies are not affected: the inbox is read again soon.
                    tracing::debug!(%failure, job = %self.core.job.id, "the inbox could not be read");
                }
                self.complete_waits();
            }
            () = woken => {}
        }
        Ok(false)
    }

    /// The same as [`Driver::refresh_waits`], without relying on earlier reads.
    pub(super) async fn refresh_inbox(&mut self) -> Result<(), Failure> {
        self.queried_children.clear();
        self.read_inbox().await?;
        self.inbox_read = true;
        self.refresh_waits().await.map(drop)
    }

    /// Parks the job until one of its waits is over.
    pub(super) fn park(&mut self) -> Result<StepResult, Failure> {
        let now = self.core.now();
        let (mut names, mut due): (Vec<SignalName>, Option<Time>) = (Vec::new(), None);
        {
            let state = self.core.lock();
            for (_, call) in state.under_way() {
                let Phase::Waiting(wait) = &call.phase else { continue };
                let child = wait.child.map(|_| SignalName { name: CHILD_SIGNAL.into(), every: true });
                let branch = wait.branch.then(|| SignalName { name: BRANCH_SIGNAL.into(), every: true });
                let signal =
                    wait.signal.clone().map(|awaited| SignalName { name: awaited.name, every: false });
                names.extend(child.into_iter().chain(branch).chain(signal));
                due = [due, wait.due_at].into_iter().flatten().min();
            }
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names.dedup_by(|a, b| a.name == b.name);
        if names.len() > MAX_NAMES {
            return Err(misuse(format!(
                "the workflow waits for {} signals at once, more than the {MAX_NAMES} allowed; use one name and distinguish them by \
                 their payload",
                names.len()
            )));
        }
        let timeout = due.map(|due| due.since(now).max(Duration::from_micros(1)));
        let wait = Wait { condition: WaitCondition::Signals { names, needs: 1 }, timeout };
        let step = self.take_step()?;
        Ok(StepResult::Commit { step: Some(Box::new(step)), outcome: Outcome::Wait(wait) })
    }
}
