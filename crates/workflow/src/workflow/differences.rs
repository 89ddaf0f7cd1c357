//! How the code of a workflow differs from the journal of a job, found by a replay that went as far as it could.

use windlass_model::{WaitCondition, journal::CallKind};

use super::{
    call::{Call, Phase, Start},
    fault::source_location,
    journal::RecordedCall,
    state::RunState,
    undo_record::is_undo_try,
};

/// How code differs from a journal.
#[derive(Default)]
pub struct Differences {
    /// Recorded calls that the code did not reach.
    pub not_reached: Vec<CallDifference>,
    /// Steps that the code reached, that were recorded with an undo and have none now.
    pub undo_removed: Vec<CallDifference>,
    /// Calls that are not recorded, reached before calls that are.
    pub new: Vec<CallDifference>,
}

/// A call that differs.
pub struct CallDifference {
    /// The kind of the call.
    pub call_kind: CallKind,
    /// The name of the call.
    pub name: String,
    /// Where in the source it is called, or was when it was recorded.
    pub line: Option<String>,
    /// Whether it was recorded with an undo.
    pub undo: bool,
    /// Whether the journal has calls that follow it.
    ahead: bool,
}

impl Differences {
    /// Compares the code with the journal after a replay.
    pub(super) fn of(state: &RunState) -> Differences {
        let mut by_seq = Vec::new();
        let mut ahead = false;
        for (name, key, recorded) in
            state.journal.calls.all().filter(|(name, key, recorded)| is_call(name, *key, recorded))
        {
            if recorded.made_at.is_some()
                || state.journal.undo.is_settled(&(name.into(), key.map(Into::into)))
            {
                continue;
            }
            let seq =
                recorded.end.as_ref().map(|(seq, _)| *seq).or(recorded.begun.as_ref().map(|(seq, _)| *seq));
            ahead |= seq.is_some_and(|seq| seq > state.delivered.last);
            let call = CallDifference {
                call_kind: recorded.call_kind,
                name: name.into(),
                line: recorded.line.clone(),
                undo: recorded.undo.is_some(),
                ahead: false,
            };
            by_seq.push((seq, call));
        }
        by_seq.sort_by_key(|(seq, _)| *seq);
        let differs = !by_seq.is_empty();
        let not_reached = by_seq.into_iter().map(|(_, call)| call).collect();
        let is_new = |call: &&Call| {
            let recorded = state.journal.calls.of(&call.ident);
            matches!(call.phase, Phase::New)
                && recorded.is_none_or(|recorded| recorded.begun.is_none() && recorded.tried.is_none())
        };
        let new =
            state.calls.iter().map(|(_, call)| call).filter(|call| differs && is_new(call)).map(|call| {
                // The key distinguishes waits for the same signal; the signal's name is what the job waits for.
                let name = match &call.start {
                    Start::Signal { awaited, .. } => awaited.name.clone(),
                    _ => call.ident.0.to_string(),
                };
                CallDifference {
                    call_kind: call.call_kind,
                    name,
                    line: Some(source_location(call.line)),
                    undo: false,
                    ahead,
                }
            });
        Differences { not_reached, undo_removed: Vec::new(), new: new.collect() }
    }

    /// Adds the steps that no longer have an undo. The code must be dropped by now: steps that it did not await register their
    /// undos when they are dropped.
    pub(super) fn add_undo_removed(&mut self, state: &RunState) {
        for missing in state.missing_undos().into_iter().filter(|missing| missing.reached) {
            let made = state.journal.calls.of(&missing.ident).and_then(|recorded| recorded.made_at);
            let Some((call_kind, line)) = made else { continue };
            let (name, line) = (missing.ident.0.to_string(), Some(source_location(line)));
            self.undo_removed.push(CallDifference { call_kind, name, line, undo: true, ahead: false });
        }
    }

    /// Removes calls that are not recorded because the job is at them, with the old code as with the new: what it waits for, if
    /// it is parked, and a running step, if it is not.
    pub fn ignore_current_position(&mut self, waiting: Option<&WaitCondition>) {
        self.new.retain(|call| match waiting {
            Some(waiting) => match call.call_kind {
                CallKind::Signal | CallKind::ContinueIf => !waiting.names().any(|name| name == call.name),
                call_kind => call_kind != CallKind::WaitUntil,
            },
            None => call.ahead,
        });
    }
}

/// Whether an entry is of a call that the code makes by name. The time and versions are found by the position of the code,
/// ticks by their repeat, and attempts at undoing a step belong to the step.
fn is_call(name: &str, key: Option<&str>, recorded: &RecordedCall) -> bool {
    let is_tick = recorded.call_kind == CallKind::Repeat && key.is_some();
    !matches!(recorded.call_kind, CallKind::Now | CallKind::Version) && !is_tick && !is_undo_try(name)
}
