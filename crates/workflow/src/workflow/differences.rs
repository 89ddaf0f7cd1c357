//! How the code of a workflow differs from what a job has recorded, by a replay that went as far as it could.

use windlass_model::{WaitCondition, journal::Op};

use super::{
    journal::RecordedCall,
    state::{Call, Phase, RunState, Start, source_location},
    undo_record::is_undo_try,
};

/// How code differs from a journal.
#[derive(Default)]
pub struct Differences {
    /// Recorded calls that it did not come to.
    pub not_reached: Vec<CallDifference>,
    /// Steps that it came to, and that were recorded with an undo and have none now.
    pub undo_removed: Vec<CallDifference>,
    /// Calls that are not recorded, and that it came to before it came to some that are.
    pub new: Vec<CallDifference>,
}

/// A call that differs.
pub struct CallDifference {
    /// What is called.
    pub op: Op,
    /// The name of the call.
    pub name: String,
    /// Where in the source it is called, or was when it was recorded.
    pub line: Option<String>,
    /// Whether it was recorded with an undo.
    pub undo: bool,
    /// Whether the journal has something that follows it.
    ahead: bool,
}

impl Differences {
    /// What a replay has left.
    pub(super) fn of(state: &RunState) -> Differences {
        let mut places = Vec::new();
        let mut ahead = false;
        for (name, key, known) in
            state.journal.calls.all().filter(|(name, key, known)| is_call(name, *key, known))
        {
            if known.made_at.is_some() || state.journal.undo.is_settled(&(name.into(), key.map(Into::into))) {
                continue;
            }
            let seq = known.end.as_ref().map(|(seq, _)| *seq).or(known.begun.as_ref().map(|(seq, _)| *seq));
            ahead |= seq.is_some_and(|seq| seq > state.last_delivered);
            let call = CallDifference {
                op: known.op,
                name: name.into(),
                line: known.line.clone(),
                undo: known.undo.is_some(),
                ahead: false,
            };
            places.push((seq, call));
        }
        places.sort_by_key(|(seq, _)| *seq);
        let differs = !places.is_empty();
        let not_reached = places.into_iter().map(|(_, call)| call).collect();
        let is_new = |call: &&Call| {
            let known = state.journal.calls.of(&call.ident);
            matches!(call.phase, Phase::New)
                && known.is_none_or(|known| known.begun.is_none() && known.tried.is_none())
        };
        let new =
            state.under_way().map(|(_, call)| call).filter(|call| differs && is_new(call)).map(|call| {
                // What tells a wait from others for the same signal is not what it waits for.
                let name = match &call.start {
                    Start::Signal { listen, .. } => listen.name.clone(),
                    _ => call.ident.0.to_string(),
                };
                CallDifference {
                    op: call.op,
                    name,
                    line: Some(source_location(call.line)),
                    undo: false,
                    ahead,
                }
            });
        Differences { not_reached, undo_removed: Vec::new(), new: new.collect() }
    }

    /// Adds the steps that have no undo any more. The code must be dropped by now: steps that it did not wait for have told
    /// by then what undoes them.
    pub(super) fn add_undo_removed(&mut self, state: &RunState) {
        for lost in state.missing_undos().into_iter().filter(|lost| lost.reached) {
            let made = state.journal.calls.of(&lost.ident).and_then(|known| known.made_at);
            let Some((op, line)) = made else { continue };
            let (name, line) = (lost.ident.0.to_string(), Some(source_location(line)));
            self.undo_removed.push(CallDifference { op, name, line, undo: true, ahead: false });
        }
    }

    /// Leaves out what is not recorded because the job stands there, with the old code as with the new: what it waits for, if
    /// it is parked, and a step that runs, if it is not.
    pub fn forget_where_it_stands(&mut self, waiting: Option<&WaitCondition>) {
        self.new.retain(|call| match waiting {
            Some(waiting) => match call.op {
                Op::Signal | Op::ContinueIf => !waiting.names().any(|name| name == call.name),
                op => op != Op::WaitUntil,
            },
            None => call.ahead,
        });
    }
}

/// Whether an entry is of a call that the code makes by name. The time and versions are found by where the code stands, ticks
/// by their repeat, and what is kept of undoing a step belongs to the step.
fn is_call(name: &str, key: Option<&str>, known: &RecordedCall) -> bool {
    let is_tick = known.op == Op::Repeat && key.is_some();
    !matches!(known.op, Op::Now | Op::Version) && !is_tick && !is_undo_try(name)
}
