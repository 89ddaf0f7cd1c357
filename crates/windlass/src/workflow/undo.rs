//! Undoing what steps did, the last one first, when the workflow does not end well.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use windlass_model::{
    Awaited, Failure, Outcome, Payload, Reason, Wait,
    failure::class,
    journal::{Mark, Op},
    retry::Decision,
};
use windlass_runtime::{Policy, Turn};

use super::{
    driver::Driver,
    journal::{Ending, Tried, undo_of},
    state::Undo,
};

/// What became of an undo.
pub(super) enum Undone {
    Yes,
    No(Failure),
    /// The attempt ends here: it goes on later, or its claim is over.
    Turn(Turn),
}

impl Driver {
    /// Runs one undo, as a step of its own. What cannot be undone does not keep the others from it.
    pub(super) async fn undo(&mut self, mut undo: Undo) -> Result<Undone, Failure> {
        let tries = undo_of(&undo.ident);
        let tried = self.core.lock().journal.known.of(&tries).and_then(|known| known.tried.clone());
        if let Some(tried) = &tried
            && let left = tried.next_at.since(self.core.now())
            && !left.is_zero()
        {
            return Ok(Undone::Turn(self.rest(left)?));
        }
        // What is in there before its first `await` may panic as well.
        let run = AssertUnwindSafe(async { (undo.run)().await }).catch_unwind();
        let limit = Policy::default().timeout.unwrap_or(Duration::MAX);
        let result = match tokio::time::timeout(limit, run).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(Failure::retry(super::step::panic_text(&*panic)).class(class::PANIC)),
            Err(_) => {
                Err(Failure::retry(format!("the undo ran longer than {limit:?}")).class(class::TIMEOUT))
            }
        };
        let now = self.core.now();
        let (mark, payload, undone) = match result {
            Ok(()) => (Mark::Undone, Payload::json(b"null".to_vec()), Undone::Yes),
            Err(failure) => {
                let (spent, before) = tried.map_or((Vec::new(), 0), |tried| (tried.spent, tried.tries));
                match undo.retry.decide(&failure, &spent, self.core.chance()) {
                    Decision::Again { after, spent } => {
                        let tried = Tried { tries: before + 1, spent, next_at: now.plus(after), failure };
                        let payload = Payload::json(serde_json::to_vec(&tried).unwrap_or_default());
                        {
                            let state = &mut *self.core.lock();
                            let entry = state.entry_of(&tries, Op::Step, Mark::Tried, None, payload, now);
                            state.out.entries.push(entry);
                        }
                        return Ok(Undone::Turn(self.rest(after)?));
                    }
                    _ => {
                        let ending = Ending::Failed { failure: failure.clone(), reason: Reason::Stopped };
                        (Mark::NotUndone, ending.failed_payload(), Undone::No(failure))
                    }
                }
            }
        };
        {
            let state = &mut *self.core.lock();
            let entry = state.entry_of(&undo.ident, Op::Step, mark, None, payload, now);
            state.out.entries.push(entry);
        }
        match self.commit(None, true).await? {
            Some(turn) => Ok(Undone::Turn(turn)),
            None => Ok(undone),
        }
    }

    /// Parks the job for a while.
    fn rest(&mut self, span: Duration) -> Result<Turn, Failure> {
        let timeout = Some(span.max(Duration::from_micros(1)));
        let wait = Wait { what: Awaited::Signals { names: Vec::new(), needs: 1 }, timeout };
        Ok(Turn::Commit { step: Some(Box::new(self.step()?)), outcome: Outcome::Wait(wait) })
    }
}
