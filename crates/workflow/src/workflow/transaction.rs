//! Transactions: the user's writes and the record of the step, committed together.

use std::{
    future::Future,
    marker::PhantomData,
    panic::{AssertUnwindSafe, Location},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

#[cfg(feature = "postgres")]
use futures_util::FutureExt;
use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{
    Change, CommitOutcome, Failure, Outcome, Payload, Retry, StepWrites,
    failure::class,
    journal::{CallEvent, CallKind},
};
use windlass_runtime::{StepResult, StepWriter};
#[cfg(feature = "sqlite")]
use windlass_store::rusqlite;
#[cfg(feature = "postgres")]
use windlass_store::tokio_postgres;
use windlass_store::{Error, Work};

use super::{
    Boxed,
    backoff::{Backoff, backoff_setting},
    call::{CallSpec, CallStatus, Start},
    core::Core,
    journal::CallEnd,
    step::{decode_result, encode_result},
};

/// How long a transaction may take by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A transaction that is being described: choose the store with [`Transaction::in_postgres`] or [`Transaction::in_sqlite`].
///
/// Its writes to your own tables are committed if, and only if, the workflow has recorded that: they happen exactly once. Your
/// tables must be in the database of the store.
#[must_use = "a transaction does nothing until its store is chosen and it is awaited"]
pub struct Transaction {
    core: Arc<Core>,
    name: String,
    key: Option<String>,
    line: &'static Location<'static>,
    retry: Retry,
    backoff: Option<Backoff>,
    timeout: Duration,
}

impl Transaction {
    pub(super) fn new(core: &Arc<Core>, name: &str, line: &'static Location<'static>) -> Transaction {
        let retry = windlass_runtime::Policy::default().retry;
        Transaction {
            core: Arc::clone(core),
            name: name.to_owned(),
            key: None,
            line,
            retry,
            backoff: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Distinguishes it from other calls of the same name, e.g. in a loop.
    pub fn key(mut self, key: impl ToString) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// When to retry: by default 20 tries with growing delays.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    backoff_setting!(backoff);

    /// How long it may take, including the commit: by default 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// On PostgreSQL: `run` gets a transaction on the store's database. An error rolls it back.
    ///
    /// ```ignore
    /// flow.transaction("book").in_postgres(move |tx| Box::pin(async move {
    ///     tx.execute("insert into bookings (id) values ($1)", &[&id]).await?;
    ///     Ok(())
    /// })).await?;
    /// ```
    #[cfg(feature = "postgres")]
    pub fn in_postgres<'f, F, T>(self, run: F) -> TransactionCall<'f, T>
    where
        F: for<'t> FnMut(
                &'t tokio_postgres::Transaction<'t>,
            ) -> Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 't>>
            + Send
            + 'f,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let run = Arc::new(Mutex::new(run));
        let work = Box::new(move |writer: Writer| -> Work<'f> {
            let run = Arc::clone(&run);
            Work::Postgres(Box::new(move |tx| {
                let work = (run.lock().unwrap_or_else(|e| e.into_inner()))(tx);
                Box::pin(async move {
                    let result = AssertUnwindSafe(work).catch_unwind().await;
                    writer.change(result.map(|result| encode_result(&result?)))
                })
            }))
        });
        TransactionCall::new(self, work)
    }

    /// On SQLite: `run` gets a connection to the store's file with an open transaction. An error rolls it back. Nobody else can
    /// write to the file meanwhile: keep it short.
    #[cfg(feature = "sqlite")]
    pub fn in_sqlite<'f, F, T>(self, run: F) -> TransactionCall<'f, T>
    where
        F: FnMut(&rusqlite::Connection) -> Result<T, Failure> + Send + 'f,
        T: Serialize + DeserializeOwned + Send,
    {
        let run = Arc::new(Mutex::new(run));
        let work = Box::new(move |writer: Writer| -> Work<'f> {
            let run = Arc::clone(&run);
            Work::Sqlite(Box::new(move |connection| {
                let mut run = run.lock().unwrap_or_else(|e| e.into_inner());
                let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(connection)));
                writer.change(result.map(|result| encode_result(&result?)))
            }))
        });
        TransactionCall::new(self, work)
    }
}

type MakeWork<'f> = Box<dyn FnMut(Writer) -> Work<'f> + Send + 'f>;

/// The sequence number and result of the entry, or why there is none.
type Recorded = Result<(i32, Payload), Failure>;

/// Makes the change that is committed with the user's writes.
#[derive(Clone)]
struct Writer {
    core: Arc<Core>,
    call: usize,
    record: Arc<Mutex<Option<Recorded>>>,
}

impl Writer {
    fn change(&self, result: std::thread::Result<Result<Vec<u8>, Failure>>) -> Option<Change> {
        let result = result
            .unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)))
            .and_then(|result| self.core.encode(result))
            .and_then(|payload| self.core.check_size(payload));
        let mut record = self.record.lock().unwrap_or_else(|e| e.into_inner());
        match result {
            Ok(payload) => {
                let now = self.core.now();
                let mut state = self.core.lock();
                state.calls.get(self.call)?;
                let entry = state.entry(self.call, CallEvent::Done, payload.clone(), now);
                drop(state);
                *record = Some(Ok((entry.seq, payload)));
                let step = StepWrites { entries: vec![entry], ..StepWrites::default() };
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

/// How a transaction ended.
enum TransactionEnd {
    /// It is committed, with its entry at this sequence number.
    Committed(i32, Payload),
    Failed(Failure),
    /// The claim is over.
    ClaimOver(StepResult),
}

/// A transaction; `.await` runs it, or returns what it returned before.
#[must_use = "a transaction does nothing until it is awaited"]
pub struct TransactionCall<'f, T> {
    spec: Transaction,
    work: MakeWork<'f>,
    running: Option<Boxed<'f, TransactionEnd>>,
    call: Option<usize>,
    registered: bool,
    result: PhantomData<fn() -> T>,
}

impl<'f, T> TransactionCall<'f, T> {
    fn new(spec: Transaction, work: MakeWork<'f>) -> TransactionCall<'f, T> {
        TransactionCall { spec, work, running: None, call: None, registered: false, result: PhantomData }
    }

    fn start(&mut self, id: usize) {
        let core = Arc::clone(&self.spec.core);
        let record = Arc::default();
        let writer = Writer { core, call: id, record };
        let work = (self.work)(writer.clone());
        let timeout = self.spec.timeout;
        self.running = Some(Box::pin(transact(writer, work, timeout)));
    }
}

async fn transact(writer: Writer, work: Work<'_>, timeout: Duration) -> TransactionEnd {
    let core = Arc::clone(&writer.core);
    let Some(attempt) = &core.attempt else { return TransactionEnd::ClaimOver(StepResult::ClaimOver) };
    let answer = core.services.env.timeout(timeout, attempt.writer.transact(work)).await;
    let failure_in_doubt = match answer {
        Ok(Ok(verdict)) => {
            return match (verdict, writer.record()) {
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
        Ok(Err(error @ Error::Config(_))) => {
            return TransactionEnd::Failed(Failure::stop(error).class(class::REFUSED));
        }
        Ok(Err(error)) => Failure::retry(error).class(class::STORE),
        Err(_) => {
            Failure::retry(format!("the transaction ran longer than {timeout:?}")).class(class::TIMEOUT)
        }
    };
    // It may have been committed and its answer lost. Another change under the same revision settles that: it is applied only
    // if the transaction was not, and then the transaction never can be.
    let failure = match writer.record() {
        Some(Err(failure)) => failure,
        _ => failure_in_doubt,
    };
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
        let found = page.into_iter().find(|entry| {
            entry.event == CallEvent::Done
                && *entry.name == *ident.0
                && entry.key.as_deref() == ident.1.as_deref()
        });
        if let Some(entry) = found {
            return TransactionEnd::Committed(entry.seq, entry.payload);
        }
    }
}

impl<T> Unpin for TransactionCall<'_, T> {}

impl<T: DeserializeOwned> Future for TransactionCall<'_, T> {
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let this = self.get_mut();
        let spec = &this.spec;
        if !this.registered {
            this.registered = true;
            this.call = spec.core.register(CallSpec {
                call_kind: CallKind::Transaction,
                name: &spec.name,
                key: spec.key.as_deref(),
                line: spec.line,
                start: Start::Body { within: None },
                detached: false,
            });
        }
        let Some(id) = this.call else { return Poll::Pending };
        loop {
            match this.spec.core.poll_call(id, cx) {
                CallStatus::Ready(_, ending) => {
                    this.call = None;
                    return decode_result(&this.spec.core, &this.spec.name, this.spec.line, ending);
                }
                CallStatus::Go => this.start(id),
                CallStatus::Running if this.running.is_some() => {
                    let core = Arc::clone(&this.spec.core);
                    let running = this.running.as_mut().expect("checked above");
                    let limit = Some(this.spec.timeout);
                    let polled = core.poll_body(id, &this.spec.name, limit, |cx| running.as_mut().poll(cx));
                    let Poll::Ready(ended) = polled else { return Poll::Pending };
                    this.running = None;
                    match ended {
                        TransactionEnd::Committed(seq, payload) => {
                            let mut state = core.lock();
                            state.calls.transacting = None;
                            state.end(id, seq, CallEnd::Done(payload));
                        }
                        TransactionEnd::Failed(failure) => {
                            core.lock().calls.transacting = None;
                            core.fail_or_retry_with(
                                id,
                                failure,
                                &this.spec.retry,
                                this.spec.backoff.as_ref(),
                            );
                        }
                        TransactionEnd::ClaimOver(result) => core.lock().code.claim_ended = Some(result),
                    }
                }
                CallStatus::Running | CallStatus::Pending => return Poll::Pending,
            }
        }
    }
}

impl<T> Drop for TransactionCall<'_, T> {
    fn drop(&mut self) {
        self.running = None;
        if let Some(id) = self.call.take() {
            self.spec.core.abandon_call(id);
        }
    }
}
