//! How a workflow ends: well, badly and after its undos, or by starting anew.

use windlass_model::{
    Entry, Failure, Grow, Outcome, Payload, Reason, Step, Unwind, Wait,
    failure::{Follow, class},
    journal::{Mark, Op},
};
use windlass_runtime::Turn;

use super::{
    driver::{Driver, run_name, run_of},
    journal::EndedText,
    state::{ENDED, Opened, misuse, shown},
    undo::Undone,
};

impl Driver {
    /// The workflow wants to start anew with another input.
    pub(super) fn anew(&mut self) -> Result<Option<Turn>, Failure> {
        let (input, others) = {
            let mut state = self.core.lock();
            let Some(input) = state.anew.take() else { return Ok(None) };
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
        self.unmerged("`continue_as_new` is called")?;
        let runs = self.core.job.stage.as_deref().and_then(run_of).unwrap_or(1);
        let stage = Some((run_name(runs + 1), self.core.encode(input)?));
        let mut step = self.step()?;
        // Nothing of this run is needed by the next but the values of the context.
        step.forget.clear();
        step.entries = self.carried()?;
        let step = Step { stage, anew: true, ..step };
        Ok(Some(Turn::Commit { step: Some(Box::new(step)), outcome: Outcome::Wait(Wait::YIELD) }))
    }

    /// A branch that nobody merges is a mistake: its children would end unseen.
    fn unmerged(&self, when: &str) -> Result<(), Failure> {
        let state = self.core.lock();
        let open = state.branches.iter().filter(|(_, opened)| **opened != Opened::Merged);
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
    fn carried(&self) -> Result<Vec<Entry>, Failure> {
        let (values, now) = (self.core.lock().context.clone(), self.core.now());
        let entry = |(seq, (name, value)): (i32, (String, serde_json::Value))| {
            let payload = self.core.encode(serde_json::to_vec(&value).unwrap_or_default())?;
            let (op, mark) = (Op::Context, Mark::Done);
            Ok(Entry { seq, op, mark, name, key: None, line: None, at: now, payload })
        };
        (0..).zip(values).map(entry).collect()
    }

    /// The code has returned.
    pub(super) async fn finish(self, result: Result<Vec<u8>, Failure>) -> Result<Turn, Failure> {
        match result {
            Ok(output) => {
                self.unmerged("the workflow has returned")?;
                let output = self.core.encode(output)?;
                let step = self.step()?;
                let step = (step != Step { told: true, ..Step::default() }).then(|| Box::new(step));
                Ok(Turn::Commit { step, outcome: Outcome::Done(output) })
            }
            Err(failure) => {
                let unwind = self.end_of(failure);
                if self.core.lock().undos.is_empty() {
                    return self.end(unwind);
                }
                self.unwind(unwind, true).await
            }
        }
    }

    /// How a workflow ends that returned an error.
    pub(super) fn end_of(&self, failure: Failure) -> Unwind {
        let state = self.core.lock();
        let same = |(_, known, _): &&(i32, Failure, Reason)| known.message == failure.message;
        let reason = state.failures.iter().rev().find(same).map_or(Reason::Stopped, |(_, _, reason)| *reason);
        match failure.follow {
            Follow::Cancel => Unwind { reason: None, failure },
            _ => Unwind { reason: Some(reason), failure },
        }
    }

    /// Ends the job badly. What made it fail is void if it is retried.
    pub(super) fn end(&self, Unwind { reason, failure }: Unwind) -> Result<Turn, Failure> {
        let now = self.core.now();
        let voids: Vec<i32> = {
            let state = self.core.lock();
            let last_good = state.last_good;
            let voids = state.failures.iter().filter(|(seq, known, _)| {
                *seq > last_good || (known.message == failure.message && known.class == failure.class)
            });
            voids.map(|(seq, ..)| *seq).collect()
        };
        if !voids.is_empty() {
            let payload = Payload::json(serde_json::to_vec(&EndedText { voids }).unwrap_or_default());
            let state = &mut *self.core.lock();
            let entry = state.entry_of(&(ENDED.into(), None), Op::Life, Mark::Failed, None, payload, now);
            state.out.entries.push(entry);
        }
        let step = self.step()?;
        let outcome = match reason {
            Some(reason) => Outcome::Failed { reason, failure },
            None => Outcome::Cancelled(failure),
        };
        Ok(Turn::Commit { step: Some(Box::new(step)), outcome })
    }

    /// Runs the undos of the steps that ended well, the last one first, and ends the job as it was to end.
    pub(super) async fn unwind(mut self, mut unwind: Unwind, fresh: bool) -> Result<Turn, Failure> {
        {
            let mut state = self.core.lock();
            let state = &mut *state;
            state.finished.clear();
            // No child is born any more: what was to be said of a branch that is being filled goes with them.
            state.out.children.clear();
            state.out.branches.retain(|grow| grow.merge);
            state.out.entries.retain(|entry| entry.op != Op::Branch);
            // Who is cancelled does not wait for the undos to have its children cancelled.
            if fresh && unwind.reason.is_none() {
                let open = state.branches.values().filter_map(|opened| match opened {
                    Opened::Open { number } | Opened::Merging { number } => Some(*number),
                    Opened::Filling | Opened::Merged => None,
                });
                let cut = open.map(|number| Grow { cut: true, ..Grow::to(number) });
                state.out.branches.extend(cut.collect::<Vec<_>>());
            }
        }
        if fresh && let Some(turn) = self.commit(Some(unwind.clone()), true).await? {
            return Ok(turn);
        }
        let mut undos = std::mem::take(&mut self.core.lock().undos);
        undos.sort_by_key(|undo| undo.seq);
        let mut not_undone = Vec::new();
        while let Some(undo) = undos.pop() {
            if self.core.lock().journal.undone.contains(&undo.ident) {
                continue;
            }
            let name = shown(&undo.ident);
            match self.undo(undo).await? {
                Undone::Yes => {}
                Undone::No(failure) => not_undone.push(format!("{name} ({failure})")),
                Undone::Turn(turn) => return Ok(turn),
            }
        }
        if !not_undone.is_empty() {
            unwind.failure.message += &format!("; not undone: {}", not_undone.join(", "));
        }
        self.end(unwind)
    }

    /// The code did something wrong: the job fails, and nothing is undone, since it may go on once the code is mended.
    pub(super) fn fault(&self, failure: Failure) -> Result<Turn, Failure> {
        if &*failure.class == class::DIVERGED {
            let outcome = Outcome::Failed { reason: Reason::Diverged, failure };
            return Ok(Turn::Commit { step: None, outcome });
        }
        Err(failure)
    }
}
