//! The open calls of a workflow: those whose future exists and has not returned.

use std::{panic::Location, task::Waker, time::Duration};

use windlass_model::{JobId, NewJob, Signal, Time, journal::CallKind};

use super::{
    context::Value,
    journal::{CallEnd, Ident},
};
use crate::signal::CanRead;

/// A durable call that is open.
pub(super) struct Call {
    pub(super) ident: Ident,
    pub(super) call_kind: CallKind,
    pub(super) line: &'static Location<'static>,
    /// The number of the call among those that the code has made.
    pub(super) made: u64,
    pub(super) phase: Phase,
    pub(super) start: Start,
    pub(super) waker: Option<Waker>,
    /// Values of the context that its body has set.
    pub(super) context_sets: Vec<(String, Value)>,
    /// The signal that its body was started with.
    pub(super) signal: Option<Signal>,
    /// Whether nobody waits for its end: it is a child, and ends when it is submitted.
    pub(super) detached: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The driver has not seen it yet.
    New,
    /// Its end is recorded with this sequence number, and will be delivered.
    Recorded(i32),
    /// Its body may start.
    CanStart,
    /// Its body is running.
    Running,
    /// Its body has ended; that is not committed.
    Finished,
    /// It waits for a time, a signal or a child.
    Waiting(CallWait),
    /// Its end was delivered.
    Ready(i32, CallEnd),
}

impl Call {
    pub(super) fn wait(&self) -> Option<&CallWait> {
        match &self.phase {
            Phase::Waiting(wait) => Some(wait),
            _ => None,
        }
    }

    /// Whether its body runs, or may start.
    pub(super) fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::CanStart)
    }
}

/// The signal that a call waits for.
#[derive(Clone, Debug)]
pub(super) struct AwaitedSignal {
    pub(super) name: String,
    /// Checks whether the call can decode one.
    pub(super) can_read: CanRead,
}

/// What a call waits for.
#[derive(Clone, Default, Debug)]
pub(super) struct CallWait {
    pub(super) due_at: Option<Time>,
    pub(super) signal: Option<AwaitedSignal>,
    pub(super) child: Option<JobId>,
    /// Whether it waits for a watch on a branch.
    pub(super) branch: bool,
    /// Whether its body runs (again) when the wait is over; otherwise the call ends then.
    pub(super) runs_body: bool,
    /// Whether nothing is written when the wait is over.
    pub(super) unrecorded: bool,
}

/// How a call begins that is not recorded.
pub(super) enum Start {
    /// Runs its body. With a limit, the call fails if it has not succeeded by then.
    Body { within: Option<Duration> },
    /// Waits for a time.
    At(Moment),
    /// Waits for a time without recording that.
    Unrecorded(Time),
    /// Waits for a signal.
    Signal { awaited: AwaitedSignal, timeout: Option<Duration> },
    /// Submits a job.
    Child(Box<NewJob>),
    /// Waits for nothing: a cancel request ends it.
    CancelScope,
}

#[derive(Clone, Copy)]
pub(super) enum Moment {
    In(Duration),
    At(Time),
}

/// A call that changes with the next commit.
pub(super) struct FinishedCall {
    pub(super) call: usize,
    pub(super) then: AfterCommit,
}

pub(super) enum AfterCommit {
    /// It has ended; its entry has this sequence number.
    End(i32),
    /// It waits.
    Wait(CallWait),
    /// It continues at once: a part of it is committed.
    Part,
}

/// What a call's future does next.
pub(super) enum CallStatus {
    Ready(i32, CallEnd),
    Go,
    Running,
    Pending,
}

/// The description of a call that registers.
pub(super) struct CallSpec<'a> {
    pub(super) call_kind: CallKind,
    pub(super) name: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) line: &'static Location<'static>,
    pub(super) start: Start,
    /// Whether nobody waits for its end.
    pub(super) detached: bool,
}

/// The open calls, by index. An index is used again after its call was removed.
#[derive(Default)]
pub(super) struct OpenCalls {
    slots: Vec<Option<Call>>,
    free: Vec<usize>,
    /// Calls that have ended, or wait, or have a part committed, with the next commit.
    pub(super) finished: Vec<FinishedCall>,
    /// The number of calls that the code has made.
    pub(super) made: u64,
    /// The transaction that is running: until it has ended nothing else is committed.
    pub(super) transacting: Option<usize>,
}

impl OpenCalls {
    pub(super) fn get(&self, id: usize) -> Option<&Call> {
        self.slots.get(id)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut Call> {
        self.slots.get_mut(id)?.as_mut()
    }

    /// Returns all open calls, in the order of their indexes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Call)> {
        self.slots.iter().enumerate().filter_map(|(id, call)| Some((id, call.as_ref()?)))
    }

    /// Returns what calls wait for.
    pub(super) fn waits(&self) -> impl Iterator<Item = &CallWait> {
        self.iter().filter_map(|(_, call)| call.wait())
    }

    /// Whether any call is open that can end by itself: all but scopes.
    pub(super) fn any_ends(&self) -> bool {
        self.iter().any(|(_, call)| call.call_kind != CallKind::CancelScope)
    }

    /// Whether the body of any call runs, or may start.
    pub(super) fn any_runs(&self) -> bool {
        self.iter().any(|(_, call)| call.runs())
    }

    /// Returns the index that the next call gets.
    pub(super) fn next_id(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    pub(super) fn insert(&mut self, call: Call) {
        match self.free.pop() {
            Some(id) => self.slots[id] = Some(call),
            None => self.slots.push(Some(call)),
        }
    }

    pub(super) fn remove(&mut self, id: usize) {
        if self.slots[id].take().is_some() {
            self.free.push(id);
        }
    }

    /// Changes a call with the next commit.
    pub(super) fn mark_finished(&mut self, id: usize, then: AfterCommit) {
        if let Some(call) = self.get_mut(id) {
            call.phase = Phase::Finished;
            self.finished.push(FinishedCall { call: id, then });
        }
    }
}
