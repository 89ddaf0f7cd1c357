//! What a driver does about calls that wait: begins them, ends those that have what they wait for, and parks the job for
//! the others.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use windlass_model::{
    Awaited, Failure, JobId, Outcome, Payload, Reason, Signal, Time, Wait,
    branch::BRANCH,
    failure::{Follow, class},
    journal::{Mark, Op},
    wait::{CHILD, NAMES, Name},
};
use windlass_runtime::Turn;
use windlass_store::Ended;

use super::{
    driver::{Driver, land},
    journal::Ending,
    state::{Call, For, Listen, Moment, Phase, Start, State, misuse},
};
use crate::{patience::patiently, signal::set_aside};

/// How often signals are looked for while steps are under way.
const LOOK: Duration = Duration::from_millis(500);

impl Driver {
    /// Begins a call that is not in the journal.
    pub(super) fn begin(&self, id: usize) -> Result<(), Failure> {
        let now = self.core.now();
        let mut state = self.core.lock();
        let state = &mut *state;
        let Some(call) = state.calls[id].as_mut() else { return Ok(()) };
        let known = state.journal.known.of(&call.ident);
        let begun = known.and_then(|known| known.begun.as_ref()).map(|(_, payload)| payload.clone());
        let retried_at = known.and_then(|known| known.tried.as_ref()).map(|tried| tried.next_at);
        let time = |payload: &Payload| serde_json::from_slice::<Time>(&payload.bytes).ok();
        let mut begin = None;
        let phase = match &mut call.start {
            Start::Body { within } => {
                if let (Some(within), None) = (within, &begun) {
                    begin = Some(now.plus(*within));
                }
                match retried_at.filter(|at| *at > now) {
                    Some(at) => Phase::Waiting(For { due: Some(at), body: true, ..For::default() }),
                    None => {
                        if call.op == Op::Transaction {
                            state.transacting = Some(id);
                        }
                        Phase::Go
                    }
                }
            }
            Start::At(moment) => {
                let due = begun.as_ref().and_then(time).unwrap_or_else(|| {
                    let due = match *moment {
                        Moment::In(span) => now.plus(span),
                        Moment::At(at) => at,
                    };
                    *begin.insert(due)
                });
                Phase::Waiting(For { due: Some(due), ..For::default() })
            }
            Start::Quietly(due) => Phase::Waiting(For { due: Some(*due), quiet: true, ..For::default() }),
            Start::Signal { listen, timeout } => {
                let due = timeout.map(|timeout| {
                    begun.as_ref().and_then(time).unwrap_or_else(|| *begin.insert(now.plus(timeout)))
                });
                Phase::Waiting(For { due, signal: Some(listen.clone()), ..For::default() })
            }
            Start::Child(job) => {
                let before =
                    begun.as_ref().and_then(|begun| serde_json::from_slice::<JobId>(&begun.bytes).ok());
                let child = before.unwrap_or(job.id);
                if before.is_none() {
                    state.out.children.push((**job).clone());
                }
                let payload = serde_json::to_vec(&child).unwrap_or_default();
                call.phase = Phase::Waiting(For { child: Some(child), ..For::default() });
                if before.is_none() {
                    let payload = Payload::json(payload);
                    let entry = state.entry(id, Mark::Begun, payload.clone(), now);
                    let ident = state.calls[id].as_ref().expect("begun").ident.clone();
                    state.journal.known_mut(&ident).begun = Some((entry.seq, payload));
                    state.out.entries.push(entry);
                }
                return Ok(());
            }
        };
        call.phase = phase;
        if let Some(due) = begin {
            let payload = Payload::json(serde_json::to_vec(&due).unwrap_or_default());
            let entry = state.entry(id, Mark::Begun, payload.clone(), now);
            let (ident, op) = (state.calls[id].as_ref().expect("begun").ident.clone(), entry.op);
            let known = state.journal.known_mut(&ident);
            (known.op, known.begun) = (op, Some((entry.seq, payload)));
            state.out.entries.push(entry);
        }
        Ok(())
    }

    /// Ends the waits that have what they wait for. Whether there were any.
    pub(super) fn satisfy(&self) -> bool {
        let now = self.core.now();
        let mut guard = self.core.lock();
        let state = &mut *guard;
        let alone = state.under_way().count() == 1;
        let waiting: Vec<(usize, For)> = state
            .under_way()
            .filter_map(|(id, call)| match &call.phase {
                Phase::Waiting(wait) => Some((id, wait.clone())),
                _ => None,
            })
            .collect();
        let mut woken = Vec::new();
        // What is told of branches says that they are to be looked at, and nothing else.
        let told: Vec<i64> =
            state.inbox.iter().filter(|signal| signal.name == BRANCH).map(|signal| signal.number).collect();
        if waiting.iter().any(|(_, wait)| wait.branch) {
            state.inbox.retain(|signal| signal.name != BRANCH);
            state.out.consumed.extend(&told);
        }
        // Only what the code is told next is taken: what it does not come to, because something else came first, must stay
        // where it is.
        let mut ended = !state.finished.is_empty();
        let listening: Vec<Listen> = waiting.iter().filter_map(|(_, wait)| wait.signal.clone()).collect();
        for (id, wait) in waiting {
            if ended && !wait.body {
                continue;
            }
            let heard = wait.signal.as_ref().and_then(|listen| self.hear(state, listen, &listening));
            let due = wait.due.is_some_and(|due| due <= now) || (wait.branch && !told.is_empty());
            if let Some(signal) = heard {
                if wait.body {
                    let call = state.calls[id].as_mut().expect("it waits");
                    (call.given, call.phase) = (Some(signal), Phase::Go);
                } else {
                    state.out.consumed.push(signal.number);
                    // What came with the claim was decoded on its way.
                    let kept = match signal.payload {
                        Payload { codec: 0, bytes } => self.core.encode(bytes),
                        encoded => Ok(encoded),
                    };
                    match kept {
                        Ok(payload) => _ = state.finish(id, Mark::Done, payload, now),
                        Err(failure) => state.fail(id, failure, Reason::Refused, now),
                    }
                }
            } else if !due {
                continue;
            } else if wait.body {
                let call = state.calls[id].as_mut().expect("it waits");
                // A transaction waits for its turn again.
                call.phase = if call.op == Op::Transaction { Phase::New } else { Phase::Go };
            } else if wait.quiet {
                let seq = state.last;
                state.calls[id].as_mut().expect("it waits").phase =
                    Phase::Ready(seq, Ending::Done(Payload::json(b"null".to_vec())));
            } else if let Some(Listen { name, .. }) = wait.signal {
                let text = format!("no signal {name:?} came in time");
                state.fail(id, Failure::stop(text).class(class::TIMEOUT), Reason::Timeout, now);
            } else {
                state.finish(id, Mark::Done, Payload::json(b"null".to_vec()), now);
                if alone {
                    // Nothing else could have come first: its end is written with whatever follows.
                    land(state);
                }
            }
            ended |= !wait.body;
            woken.push(id);
        }
        let any = !woken.is_empty();
        drop(guard);
        woken.into_iter().for_each(|id| self.core.wake_call(id));
        any
    }

    /// Takes the oldest signal out of the inbox that a call waits for and can read. What nobody can read of those who wait for
    /// it is set aside.
    fn hear(&self, state: &mut State, listen: &Listen, listening: &[Listen]) -> Option<Signal> {
        let codecs = &self.core.bound.codecs;
        let mut place = 0;
        while let Some(signal) = state.inbox.get(place) {
            if signal.name != listen.name {
                place += 1;
                continue;
            }
            let why = match (listen.reads)(codecs, &signal.payload) {
                Ok(()) => return Some(state.inbox.remove(place)),
                Err(why) => why,
            };
            let others = listening.iter().filter(|other| other.name == listen.name);
            if others.map(|other| (other.reads)(codecs, &signal.payload)).any(|read| read.is_ok()) {
                place += 1;
                continue;
            }
            let signal = state.inbox.remove(place);
            state.out.aside.push(set_aside(self.core.job.id, &signal, why));
        }
        None
    }

    /// Looks for signals and ends of children that are waited for and that the claim did not bring. Whether there is
    /// anything new.
    pub(super) async fn look(&mut self) -> Result<bool, Failure> {
        let (names, children, new_children) = {
            let state = self.core.lock();
            let waits = state.under_way().filter_map(|(_, call)| match &call.phase {
                Phase::Waiting(wait) => Some(wait),
                _ => None,
            });
            let (mut names, mut children) = (Vec::new(), Vec::new());
            for wait in waits {
                names.extend(wait.signal.as_ref().map(|listen| listen.name.clone()));
                names.extend(wait.branch.then(|| BRANCH.to_owned()));
                children.extend(wait.child);
            }
            let new: Vec<JobId> = state.out.children.iter().map(|child| child.id).collect();
            (names, children, new)
        };
        let mut any = false;
        let known =
            |name: &String| self.core.job.wait.as_ref().is_some_and(|wait| wait.wants(name).is_some());
        if !self.looked && names.iter().any(|name| !known(name)) {
            self.read_inbox().await?;
            any |= {
                let state = self.core.lock();
                state.inbox.iter().any(|signal| names.contains(&signal.name))
            };
        }
        self.looked = true;
        let hinted = {
            let mut state = self.core.lock();
            let (hints, rest): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.inbox).into_iter().partition(|signal| signal.name == CHILD);
            state.inbox = rest;
            state.out.consumed.extend(hints.iter().map(|hint| hint.number));
            !hints.is_empty()
        };
        let wanted: Vec<JobId> = children
            .into_iter()
            .filter(|id| !new_children.contains(id) && (hinted || !self.asked.contains(id)))
            .collect();
        if !wanted.is_empty() {
            any |= self.children(&wanted).await?;
        }
        Ok(any)
    }

    pub(super) async fn read_inbox(&mut self) -> Result<(), Failure> {
        let store = Arc::clone(&self.core.bound.store);
        let id = self.core.job.id;
        let inbox = patiently!(store.inspect().inbox(id, usize::MAX))?;
        let mut state = self.core.lock();
        let mut consumed = state.out.consumed.clone();
        consumed.extend(state.out.aside.iter().map(|aside| aside.number));
        let given: Vec<i64> = state
            .under_way()
            .filter_map(|(_, call)| call.given.as_ref().map(|signal| signal.number))
            .collect();
        state.inbox = inbox
            .into_iter()
            .filter(|signal| signal.aside.is_none())
            .filter(|signal| !consumed.contains(&signal.number) && !given.contains(&signal.number))
            .collect();
        Ok(())
    }

    /// Ends the calls whose children have ended. Whether there were any.
    pub(super) async fn children(&mut self, ids: &[JobId]) -> Result<bool, Failure> {
        let store = Arc::clone(&self.core.bound.store);
        let ended = patiently!(store.ended(ids))?;
        self.asked.extend(ids);
        let now = self.core.now();
        let mut any = false;
        let mut state = self.core.lock();
        for (child, ended) in ids.iter().zip(ended) {
            let Some(ended) = ended else { continue };
            let of = |(id, call): (usize, &Call)| match &call.phase {
                Phase::Waiting(wait) if wait.child == Some(*child) => Some(id),
                _ => None,
            };
            let Some(id) = state.under_way().find_map(of) else { continue };
            any = true;
            match ended {
                Ended::Done(output) => _ = state.finish(id, Mark::Done, output, now),
                Ended::Failed { reason, failure } => {
                    let message = format!("the child {child} failed ({reason}): {}", failure.message);
                    let failure = Failure { message, follow: Follow::Stop, ..failure };
                    state.fail(id, failure, reason, now);
                }
                Ended::Cancelled(failure) => {
                    let message = format!("the child {child} was cancelled: {}", failure.message);
                    let failure = Failure { message, follow: Follow::Stop, ..failure };
                    state.fail(id, failure.class(class::CANCELLED), Reason::Stopped, now);
                }
                Ended::Gone => {
                    let text = format!(
                        "the child {child} is not there: another job has its key or its unique name, or it was pruned"
                    );
                    state.fail(id, Failure::stop(text).class("child"), Reason::Stopped, now);
                }
            }
        }
        Ok(any)
    }

    /// Waits until a body has something to do, a wait is over, or someone wants the job to end. Whether that is so and the
    /// time for it is over.
    pub(super) async fn wait(&mut self) -> Result<bool, Failure> {
        let attempt = Arc::clone(self.attempt());
        let (due, listens) = {
            let state = self.core.lock();
            let waits = || {
                state.under_way().filter_map(|(_, call)| match &call.phase {
                    Phase::Waiting(wait) => Some(wait),
                    _ => None,
                })
            };
            let due = waits().filter_map(|wait| wait.due).min();
            (due, waits().any(|wait| wait.signal.is_some() || wait.child.is_some() || wait.branch))
        };
        let now = self.core.now();
        let mut span = due.map(|due| due.since(now));
        if listens {
            // A moment, and not a span: bodies that wake often must not put it off.
            let look_at = *self.look_at.get_or_insert_with(|| Instant::now() + LOOK);
            let left = look_at.saturating_duration_since(Instant::now());
            span = Some(span.map_or(left, |span| span.min(left)));
        }
        let core = Arc::clone(&self.core);
        let mut first = true;
        let woken = poll_fn(move |cx: &mut Context<'_>| {
            core.drives(cx);
            // Whatever was woken between the last poll and now is seen by polling once more.
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        });
        let sleep = async {
            match span {
                Some(span) => tokio::time::sleep(span).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = attempt.told_and_over() => {
                return Ok(true);
            }
            () = sleep => {
                if self.look_at.take_if(|at| *at <= Instant::now()).is_some()
                    && let Err(failure) = self.relook().await
                {
                    // Nothing that runs is given up for it: it is looked at again soon.
                    tracing::debug!(%failure, job = %self.core.job.id, "signals could not be looked for");
                }
                self.satisfy();
            }
            () = woken => {}
        }
        Ok(false)
    }

    /// The same as [`Driver::look`], whatever was known before.
    pub(super) async fn relook(&mut self) -> Result<(), Failure> {
        self.asked.clear();
        self.read_inbox().await?;
        self.looked = true;
        self.look().await.map(drop)
    }

    /// Parks the job until one of its waits is over.
    pub(super) fn park(&mut self) -> Result<Turn, Failure> {
        let now = self.core.now();
        let (mut names, mut due): (Vec<Name>, Option<Time>) = (Vec::new(), None);
        {
            let state = self.core.lock();
            for (_, call) in state.under_way() {
                let Phase::Waiting(wait) = &call.phase else { continue };
                let child = wait.child.map(|_| Name { name: CHILD.into(), every: true });
                let branch = wait.branch.then(|| Name { name: BRANCH.into(), every: true });
                let signal = wait.signal.clone().map(|listen| Name { name: listen.name, every: false });
                names.extend(child.into_iter().chain(branch).chain(signal));
                due = [due, wait.due].into_iter().flatten().min();
            }
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names.dedup_by(|a, b| a.name == b.name);
        if names.len() > NAMES {
            return Err(misuse(format!(
                "the workflow waits for {} signals at once, more than the {NAMES} allowed; use one name and tell them apart by \
                 their payload",
                names.len()
            )));
        }
        let timeout = due.map(|due| due.since(now).max(Duration::from_micros(1)));
        let wait = Wait { what: Awaited::Signals { names, needs: 1 }, timeout };
        let step = self.step()?;
        Ok(Turn::Commit { step: Some(Box::new(step)), outcome: Outcome::Wait(wait) })
    }
}
