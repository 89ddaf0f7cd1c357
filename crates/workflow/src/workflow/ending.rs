//! How a workflow ends: it succeeds, fails or is cancelled after its undos have run, or continues as new.

use windlass_model::{
    BranchUpdate, Failure, JournalEntry, Outcome, Payload, Reason, Rev, StepWrites, Unwind, Wait,
    failure::{OnFailure, class},
    journal::{CallEvent, CallKind},
};
use windlass_runtime::StepResult;

use super::{
    context::Value,
    driver::{Driver, run_name, run_of},
    fault::display_ident,
    journal::EndRecord,
    state::{BranchState, ENDED, MissingUndo, Undo},
    undo::UndoOutcome,
};

impl Driver {
    /// Starts a new run with another input.
    pub(super) fn continue_as_new(&self, input: Vec<u8>) -> Result<StepResult, Failure> {
        let runs = self.core.job.stage.as_deref().and_then(run_of).unwrap_or(1);
        let stage = Some((run_name(runs + 1), self.core.encode(input)?));
        let mut step = self.take_step()?;
        // The next run needs nothing of this one but the values of the context.
        step.forget_entries.clear();
        step.entries = self.carried_context()?;
        let step = StepWrites { stage, continue_as_new: true, ..step };
        Ok(StepResult::Commit { step: Some(Box::new(step)), outcome: Outcome::Wait(Wait::YIELD) })
    }

    /// Returns the context as entries that begin the journal of the next run.
    fn carried_context(&self) -> Result<Vec<JournalEntry>, Failure> {
        let (values, now) = (self.core.lock().context.values.clone(), self.core.now());
        let entry = |(seq, (name, value)): (i32, (String, Value))| {
            let payload = value.payload(&self.core)?;
            let (call_kind, event) = (CallKind::Context, CallEvent::Done);
            Ok(JournalEntry { seq, call_kind, event, name, key: None, line: None, at: now, payload })
        };
        (0..).zip(values).map(entry).collect()
    }

    /// Ends the job after its code has returned.
    pub(super) async fn finish(self, result: Result<Vec<u8>, Failure>) -> Result<StepResult, Failure> {
        match result {
            Ok(output) => {
                self.core.lock().check_all_merged("the workflow has returned")?;
                let mut missing = self.core.lock().missing_undos();
                missing.retain(|missing| !missing.reached);
                if !missing.is_empty() {
                    // Nothing is undone; but what this code did instead of them may have been done twice.
                    let steps: Vec<String> =
                        missing.iter().map(|missing| display_ident(&missing.ident)).collect();
                    let steps = steps.join(", ");
                    tracing::warn!(job = %self.core.job.id, steps, "the workflow succeeded without reaching recorded steps");
                }
                let output = self.core.encode(output)?;
                let step = self.take_step()?;
                let step = (step != StepWrites { signal_child_ends: true, ..StepWrites::default() })
                    .then(|| Box::new(step));
                Ok(StepResult::Commit { step, outcome: Outcome::Done(output) })
            }
            Err(failure) => {
                let unwind = self.unwind_for(failure);
                if !self.has_undos() {
                    return self.end(unwind, false);
                }
                self.unwind(unwind, true).await
            }
        }
    }

    /// Whether there is something to undo, or something that cannot be undone and must be reported.
    pub(super) fn has_undos(&self) -> bool {
        let state = self.core.lock();
        !state.undos.is_empty() || !state.missing_undos().is_empty()
    }

    /// Returns how a workflow ends whose code returned an error.
    pub(super) fn unwind_for(&self, failure: Failure) -> Unwind {
        let state = self.core.lock();
        let same = |(_, recorded, _): &&(i32, Failure, Reason)| recorded.message == failure.message;
        let reason = match state.delivered.failures.iter().rev().find(same) {
            Some((_, _, reason)) => *reason,
            // It is not the error of a call: the code itself was refused something, or returned an error of its own.
            None if failure.class == class::REFUSED => Reason::Refused,
            None => Reason::Stopped,
        };
        match failure.then {
            OnFailure::Cancel => Unwind { reason: None, failure },
            _ => Unwind { reason: Some(reason), failure },
        }
    }

    /// Fails or cancels the job. If it is retried, the ends that made it fail are void. An unwinding is over with it: the next
    /// one tries again what this one could not undo.
    pub(super) fn end(
        &self,
        Unwind { reason, failure }: Unwind,
        unwound: bool,
    ) -> Result<StepResult, Failure> {
        let now = self.core.now();
        let voids: Vec<i32> = {
            let state = self.core.lock();
            let last_good = state.delivered.last_success;
            let voids = state.delivered.failures.iter().filter(|(seq, recorded, _)| {
                *seq > last_good || (recorded.message == failure.message && recorded.class == failure.class)
            });
            // A job that is retried is not cancelled any more.
            voids.map(|(seq, ..)| *seq).chain(state.caught_at).collect()
        };
        if unwound || !voids.is_empty() {
            let payload = Payload::json(serde_json::to_vec(&EndRecord { voids }).unwrap_or_default());
            let state = &mut *self.core.lock();
            let entry = state.entry_of(
                &(ENDED.into(), None),
                CallKind::Lifecycle,
                CallEvent::Failed,
                None,
                payload,
                now,
            );
            state.pending.push(entry);
        }
        let step = self.take_step()?;
        let outcome = match reason {
            Some(reason) => Outcome::Failed { reason, failure },
            None => Outcome::Cancelled(failure),
        };
        Ok(StepResult::Commit { step: Some(Box::new(step)), outcome })
    }

    /// Runs the undos of the steps that succeeded, the last step first, and then ends the job as `unwind` says.
    pub(super) async fn unwind(mut self, mut unwind: Unwind, is_new: bool) -> Result<StepResult, Failure> {
        {
            let mut state = self.core.lock();
            let state = &mut *state;
            state.calls.finished.clear();
            // No more children are submitted but detached ones: the updates of branches that were being filled go with them.
            state.pending.children.retain(|child| child.parent_rev == Some(Rev::DETACHED));
            state.pending.branches.retain(|update| update.merged);
            state.pending.entries.retain(|entry| entry.call_kind != CallKind::Branch);
            // The children of a cancelled job are cancelled before its undos run.
            if is_new && unwind.reason.is_none() {
                let open = state.branches.values().filter_map(|opened| match opened {
                    BranchState::Open { number } | BranchState::Merging { number } => Some(*number),
                    BranchState::Filling | BranchState::Merged => None,
                });
                let cancels =
                    open.map(|number| BranchUpdate { cancel_children: true, ..BranchUpdate::new(number) });
                state.pending.branches.extend(cancels.collect::<Vec<_>>());
            }
        }
        if is_new && let Some(result) = self.commit(Some(unwind.clone())).await? {
            return Ok(result);
        }
        // Everything to be undone, by sequence number, whether the code has an undo for it or not.
        let mut undos: Vec<(i32, Result<Undo, MissingUndo>)> = {
            let state = &mut *self.core.lock();
            let missing = state.missing_undos().into_iter().map(|missing| (missing.seq, Err(missing)));
            let undos = std::mem::take(&mut state.undos).into_iter().map(|undo| (undo.seq, Ok(undo)));
            undos.chain(missing).collect()
        };
        undos.sort_by_key(|(seq, _)| *seq);
        while let Some((_, undo)) = undos.pop() {
            match undo {
                Ok(undo) if self.core.lock().journal.undo.is_settled(&undo.ident) => {}
                Ok(undo) => match self.undo(undo).await? {
                    UndoOutcome::Settled => {}
                    UndoOutcome::AttemptOver(result) => return Ok(result),
                },
                Err(MissingUndo { call_kind, ident, reached, .. }) => {
                    self.not_undone(call_kind, ident, missing_undo(reached))
                }
            }
        }
        // The journal has what could not be undone by all attempts of this unwinding.
        let not_undone: Vec<String> = {
            let state = self.core.lock();
            let failed = state.journal.undo.failed().iter();
            failed.map(|(ident, why)| format!("{} ({why})", display_ident(ident))).collect()
        };
        if !not_undone.is_empty() {
            unwind.failure.message += &format!("; not undone: {}", not_undone.join(", "));
        }
        self.end(unwind, true)
    }

    /// Fails the job because of a fault of its code. Nothing is undone, since the job can continue with fixed code.
    pub(super) fn fault(&self, failure: Failure) -> Result<StepResult, Failure> {
        if &*failure.class == class::DIVERGED {
            let outcome = Outcome::Failed { reason: Reason::Diverged, failure };
            return Ok(StepResult::Commit { step: None, outcome });
        }
        Err(failure)
    }
}

/// The error for a step that the code has no undo for.
fn missing_undo(reached: bool) -> Failure {
    let text = match reached {
        true => {
            "the code has no undo for this step any more; undo it by hand, or serve code that has one, then retry the job \
             and cancel it"
        }
        false => {
            "the code does not reach this step any more, so its undo could not run; undo it by hand, or serve code that \
             calls it, then retry the job and cancel it"
        }
    };
    Failure::stop(text).class(class::DIVERGED)
}
