//! Performs the transaction of a call: runs its closure in the store, and settles whether it was committed if nobody knows.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use serde::Serialize;
use windlass_model::{
    Change, CommitOutcome, Failure, JournalEntry, Outcome, Payload, StepWrites, failure::class,
    journal::CallEvent,
};
use windlass_runtime::{StepResult, StepWriter};
#[cfg(feature = "sqlite")]
use windlass_store::rusqlite;
use windlass_store::{Error, Work, tx::TxStatus};

use super::{core::Core, journal::Ident, step::encode_result};

/// The sequence number and result of the entry, or why there is none.
type Recorded = Result<(i32, Payload), Failure>;

/// Makes the change that is committed with the user's writes.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) core: Arc<Core>,
    pub(super) call: usize,
    /// Whether the call has an undo.
    pub(super) has_undo: bool,
    pub(super) record: Arc<Mutex<Option<Recorded>>>,
}

impl Writer {
    /// Awaits what the user's closure makes, and returns the change for its result. `status` is of the transaction that the closure
    /// got, if its statements are known.
    pub(super) async fn answer<T: Serialize, Fut: Future<Output = Result<T, Failure>>>(
        self,
        status: Option<TxStatus>,
        run: impl FnOnce() -> Fut,
    ) -> Option<Change> {
        // Code before the first `await` may panic as well.
        let result = AssertUnwindSafe(async { encode_result(&run().await?) }).catch_unwind().await;
        let lost = status.and_then(|status| status.first_failure());
        let result = match (result, lost) {
            (Ok(Ok(_)), Some(failure)) => Ok(Err(swallowed(failure))),
            (result, _) => result,
        };
        self.change(result)
    }

    /// The same for a closure that is not async.
    #[cfg(feature = "sqlite")]
    pub(super) fn answer_sync<T: Serialize>(
        &self,
        connection: &rusqlite::Connection,
        run: &mut impl FnMut(&rusqlite::Connection) -> Result<T, Failure>,
    ) -> Option<Change> {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| encode_result(&run(connection)?)));
        self.change(result)
    }

    fn change(&self, result: std::thread::Result<Result<Vec<u8>, Failure>>) -> Option<Change> {
        let result = result
            .unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)))
            .and_then(|result| self.core.encode(result))
            .and_then(|payload| self.core.check_size(payload))
            // A durable call inside the closure: the job fails, and nothing of the closure is kept.
            .and_then(|payload| self.core.lock().code.fault.clone().map_or(Ok(payload), Err));
        let mut record = self.record.lock().unwrap_or_else(|e| e.into_inner());
        match result {
            Ok(payload) => {
                let now = self.core.now();
                let event = if self.has_undo { CallEvent::DoneWithUndo } else { CallEvent::Done };
                let mut state = self.core.lock();
                state.calls.get(self.call)?;
                let entry = state.entry(self.call, event, payload.clone(), now);
                drop(state);
                *record = Some(Ok((entry.seq, payload)));
                let step =
                    StepWrites { entries: vec![entry], has_undo: self.has_undo, ..StepWrites::default() };
                Some(self.core.attempt.as_ref()?.change(Outcome::Next, Some(step)))
            }
            Err(failure) => {
                *record = Some(Err(failure));
                None
            }
        }
    }

    fn record(&self) -> Option<Recorded> {
        self.record.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

/// The error for a closure that returned a value although one of its statements had failed.
fn swallowed(failure: Failure) -> Failure {
    let message = format!(
        "{}; the closure of the transaction returned a value all the same, but nothing of a transaction can be kept once one of \
         its statements has failed",
        failure.message
    );
    Failure { message, ..failure }
}

/// How a transaction ended.
pub(super) enum TransactionEnd {
    /// It is committed, with its entry at this sequence number.
    Committed(i32, Payload),
    Failed(Failure),
    /// The claim is over.
    ClaimOver(StepResult),
}

/// Runs a transaction.
pub(super) async fn transact(writer: Writer, work: Work<'_>, timeout: Duration) -> TransactionEnd {
    let core = Arc::clone(&writer.core);
    let Some(attempt) = &core.attempt else { return TransactionEnd::ClaimOver(StepResult::ClaimOver) };
    if !core.services.store.runs_transactions() {
        let name =
            core.lock().calls.get(writer.call).map(|call| call.ident.0.to_string()).unwrap_or_default();
        let text = format!(
            "the transaction {name:?} needs the store's database, and this worker runs jobs through a server, without access to it; run \
             the kind in a worker with the address of the database, and say `Needs::new().database()` in the kind, so that others do not \
             start with it"
        );
        return TransactionEnd::Failed(Failure::stop(text).class(class::REFUSED));
    }
    let answer = core.services.env.timeout(timeout, attempt.writer.transact(work)).await;
    let failure_in_doubt = match answer {
        Ok(Ok(outcome)) => {
            return match (outcome, writer.record()) {
                (Some(CommitOutcome::Committed), Some(Ok((seq, payload)))) => {
                    TransactionEnd::Committed(seq, payload)
                }
                (Some(CommitOutcome::Halted), _) => TransactionEnd::ClaimOver(StepResult::Halted),
                (Some(CommitOutcome::Refused(why)), _) => {
                    TransactionEnd::Failed(Failure::stop(why).class(class::REFUSED))
                }
                (None, Some(Err(failure))) => TransactionEnd::Failed(failure),
                _ => TransactionEnd::ClaimOver(StepResult::ClaimOver),
            };
        }
        Ok(Err(Error::Unavailable(why))) => Failure::retry(why).class(class::STORE),
        Ok(Err(error @ (Error::Config(_) | Error::Misuse(_)))) => {
            return TransactionEnd::Failed(Failure::stop(error).class(class::REFUSED));
        }
        Ok(Err(error)) => Failure::retry(error).class(class::STORE),
        Err(_) => {
            Failure::retry(format!("the transaction ran longer than {timeout:?}")).class(class::TIMEOUT)
        }
    };
    let failure = match writer.record() {
        Some(Err(failure)) => failure,
        _ => failure_in_doubt,
    };
    settle(&writer, failure).await
}

/// Ends a transaction that may have been committed and its answer lost. Another change under the same revision settles that: it is
/// applied only if the transaction was not, and then the transaction never can be. The journal shows which it was.
async fn settle(writer: &Writer, failure: Failure) -> TransactionEnd {
    let core = &writer.core;
    let Some(attempt) = &core.attempt else { return TransactionEnd::ClaimOver(StepResult::ClaimOver) };
    match StepWriter::settle_detached(attempt).await {
        CommitOutcome::Committed => {}
        CommitOutcome::Halted => return TransactionEnd::ClaimOver(StepResult::Halted),
        _ => return TransactionEnd::ClaimOver(StepResult::ClaimOver),
    }
    let name = core.lock().calls.get(writer.call).map(|call| call.ident.clone());
    let Some(ident) = name else { return TransactionEnd::ClaimOver(StepResult::ClaimOver) };
    let mut after = core.lock().journal.next_seq - 1;
    loop {
        let page = match core.services.store.inspect().journal(core.job.id, Some(after), 1_000).await {
            Ok(page) => page,
            Err(_) => {
                core.services.env.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(last) = page.last() else { return TransactionEnd::Failed(failure) };
        after = last.seq;
        if let Some(entry) = page.into_iter().find(|entry| is_end_of(entry, &ident)) {
            return TransactionEnd::Committed(entry.seq, entry.payload);
        }
    }
}

/// Whether an entry records that this call succeeded.
fn is_end_of(entry: &JournalEntry, ident: &Ident) -> bool {
    entry.event.is_done() && *entry.name == *ident.0 && entry.key.as_deref() == ident.1.as_deref()
}
