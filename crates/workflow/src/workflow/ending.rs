//! How a workflow ends: well, badly and after its undos, or by starting anew.

use windlass_model::{
    BranchUpdate, Failure, JournalEntry, Outcome, Payload, Reason, Step, Unwind, Wait,
    failure::{OnFailure, class},
    journal::{Mark, Op},
};
use windlass_runtime::StepResult;

use super::{
    context::Value,
    driver::{Driver, run_name, run_of},
    journal::EndRecord,
    state::{BranchState, ENDED, MissingUndo, Undo, display_ident, misuse},
    undo::UndoOutcome,
};

impl Driver {
    /// The workflow wants to start anew with another input.
    pub(super) fn continue_as_new(&mut self) -> Result<Option<StepResult>, Failure> {
        let (input, others) = {
            let mut state = self.core.lock();
            let Some(input) = state.continue_input.take() else { return Ok(None) };
            let names: Vec<String> =
                state.under_way().map(|(_, call)| format!("{} {:?}", call.op, call.ident.0)).collect();
            (input, names)
        };
        if !others.is_empty() {
            return Err(misuse(format!(
                "`continue_as_new` is called while {} under way; await it first, outside of any branch",
                match others.as_slice() {
                    [one] => format!("{one} is"),
                    many => format!("{} are", many.join(", ")),
                }
            )));
        }
        self.check_all_merged("`continue_as_new` is called")?;
        let runs = self.core.job.stage.as_deref().and_then(run_of).unwrap_or(1);
        let stage = Some((run_name(runs + 1), self.core.encode(input)?));
        let mut step = self.take_step()?;
        // Nothing of this run is needed by the next but the values of the context.
        step.forget_entries.clear();
        step.entries = self.carried_context()?;
        let step = Step { stage, continue_as_new: true, ..step };
        Ok(Some(StepResult::Commit { step: Some(Box::new(step)), outcome: Outcome::Wait(Wait::YIELD) }))
    }

    /// A branch that nobody merges is a mistake: its children would end unseen.
    fn check_all_merged(&self, when: &str) -> Result<(), Failure> {
        let state = self.core.lock();
        let open = state.branches.iter().filter(|(_, opened)| **opened != BranchState::Merged);
        let names: Vec<String> = open.map(|(name, _)| format!("{name:?}")).collect();
        match names.as_slice() {
            [] => Ok(()),
            [one] => Err(misuse(format!(
                "{when}, and the branch {one} was not merged: nobody would know how its children end. Merge it, with \
                 `Merge::settled()` if that does not matter"
            ))),
            many => Err(misuse(format!(
                "{when}, and the branches {} were not merged: nobody would know how their children end. Merge them, with \
                 `Merge::settled()` if that does not matter",
                many.join(", ")
            ))),
        }
    }

    /// The context, as the journal of the next run begins with it.
    fn carried_context(&self) -> Result<Vec<JournalEntry>, Failure> {
        let (values, now) = (self.core.lock().context.clone(), self.core.now());
        let entry = |(seq, (name, value)): (i32, (String, Value))| {
            let payload = value.payload(&self.core)?;
            let (op, mark) = (Op::Context, Mark::Done);
            Ok(JournalEntry { seq, op, mark, name, key: None, line: None, at: now, payload })
        };
        (0..).zip(values).map(entry).collect()
    }

    /// The code has returned.
    pub(super) async fn finish(self, result: Result<Vec<u8>, Failure>) -> Result<StepResult, Failure> {
        match result {
            Ok(output) => {
                self.check_all_merged("the workflow has returned")?;
                let mut lost = self.core.lock().missing_undos();
                lost.retain(|lost| !lost.reached);
                if !lost.is_empty() {
                    // Nothing is to be undone; but what this code did in their place may have been done twice.
                    let steps: Vec<String> = lost.iter().map(|lost| display_ident(&lost.ident)).collect();
                    let steps = steps.join(", ");
                    tracing::warn!(job = %self.core.job.id, steps, "the workflow ended well and did not come to recorded steps");
                }
                let output = self.core.encode(output)?;
                let step = self.take_step()?;
                let step =
                    (step != Step { signal_child_ends: true, ..Step::default() }).then(|| Box::new(step));
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

    /// Whether there is something to undo, or something that cannot be and has to be named.
    pub(super) fn has_undos(&self) -> bool {
        let state = self.core.lock();
        !state.undos.is_empty() || !state.missing_undos().is_empty()
    }

    /// How a workflow ends that returned an error.
    pub(super) fn unwind_for(&self, failure: Failure) -> Unwind {
        let state = self.core.lock();
        let same = |(_, known, _): &&(i32, Failure, Reason)| known.message == failure.message;
        let reason = state.failures.iter().rev().find(same).map_or(Reason::Stopped, |(_, _, reason)| *reason);
        match failure.then {
            OnFailure::Cancel => Unwind { reason: None, failure },
            _ => Unwind { reason: Some(reason), failure },
        }
    }

    /// Ends the job badly. What made it fail is void if it is retried, and an unwinding ends with it: what that could not
    /// undo is for the next one.
    pub(super) fn end(
        &self,
        Unwind { reason, failure }: Unwind,
        unwound: bool,
    ) -> Result<StepResult, Failure> {
        let now = self.core.now();
        let voids: Vec<i32> = {
            let state = self.core.lock();
            let last_good = state.last_success;
            let voids = state.failures.iter().filter(|(seq, known, _)| {
                *seq > last_good || (known.message == failure.message && known.class == failure.class)
            });
            voids.map(|(seq, ..)| *seq).collect()
        };
        if unwound || !voids.is_empty() {
            let payload = Payload::json(serde_json::to_vec(&EndRecord { voids }).unwrap_or_default());
            let state = &mut *self.core.lock();
            let entry = state.entry_of(&(ENDED.into(), None), Op::Life, Mark::Failed, None, payload, now);
            state.pending.entries.push(entry);
        }
        let step = self.take_step()?;
        let outcome = match reason {
            Some(reason) => Outcome::Failed { reason, failure },
            None => Outcome::Cancelled(failure),
        };
        Ok(StepResult::Commit { step: Some(Box::new(step)), outcome })
    }

    /// Runs the undos of the steps that ended well, the last one first, and ends the job as it was to end.
    pub(super) async fn unwind(mut self, mut unwind: Unwind, fresh: bool) -> Result<StepResult, Failure> {
        {
            let mut state = self.core.lock();
            let state = &mut *state;
            state.finished.clear();
            // No child is born any more: what was to be said of a branch that is being filled goes with them.
            state.pending.children.clear();
            state.pending.branches.retain(|grow| grow.merged);
            state.pending.entries.retain(|entry| entry.op != Op::Branch);
            // Who is cancelled does not wait for the undos to have its children cancelled.
            if fresh && unwind.reason.is_none() {
                let open = state.branches.values().filter_map(|opened| match opened {
                    BranchState::Open { number } | BranchState::Merging { number } => Some(*number),
                    BranchState::Filling | BranchState::Merged => None,
                });
                let cut =
                    open.map(|number| BranchUpdate { cancel_children: true, ..BranchUpdate::new(number) });
                state.pending.branches.extend(cut.collect::<Vec<_>>());
            }
        }
        if fresh && let Some(turn) = self.commit(Some(unwind.clone()), true).await? {
            return Ok(turn);
        }
        // All that is to be undone, by place, be there an undo or not.
        let mut undos: Vec<(i32, Result<Undo, MissingUndo>)> = {
            let state = &mut *self.core.lock();
            let lost = state.missing_undos().into_iter().map(|lost| (lost.seq, Err(lost)));
            let undos = std::mem::take(&mut state.undos).into_iter().map(|undo| (undo.seq, Ok(undo)));
            undos.chain(lost).collect()
        };
        undos.sort_by_key(|(seq, _)| *seq);
        while let Some((_, undo)) = undos.pop() {
            match undo {
                Ok(undo) if self.core.lock().journal.undo.is_settled(&undo.ident) => {}
                Ok(undo) => match self.undo(undo).await? {
                    UndoOutcome::Settled => {}
                    UndoOutcome::Turn(turn) => return Ok(turn),
                },
                Err(MissingUndo { ident, reached, .. }) => self.not_undone(ident, missing_undo(reached)),
            }
        }
        // However many attempts the unwinding took: the journal knows what all of them could not undo.
        let left: Vec<String> = {
            let state = self.core.lock();
            let failed = state.journal.undo.failed().iter();
            failed.map(|(ident, why)| format!("{} ({why})", display_ident(ident))).collect()
        };
        if !left.is_empty() {
            unwind.failure.message += &format!("; not undone: {}", left.join(", "));
        }
        self.end(unwind, true)
    }

    /// The code did something wrong: the job fails, and nothing is undone, since it may go on once the code is mended.
    pub(super) fn fault(&self, failure: Failure) -> Result<StepResult, Failure> {
        if &*failure.class == class::DIVERGED {
            let outcome = Outcome::Failed { reason: Reason::Diverged, failure };
            return Ok(StepResult::Commit { step: None, outcome });
        }
        Err(failure)
    }
}

/// Why a step is not undone for which the code has no undo.
fn missing_undo(reached: bool) -> Failure {
    let text = match reached {
        true => {
            "the code has no undo for this step any more; undo it by hand, or serve code that has one, then retry the job \
             and cancel it"
        }
        false => {
            "the code does not come to this step any more, so its undo could not run; undo it by hand, or serve code that \
             calls it, then retry the job and cancel it"
        }
    };
    Failure::stop(text).class(class::DIVERGED)
}
