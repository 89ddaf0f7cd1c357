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
    Change, Failure, Outcome, Payload, Retry, Step, Verdict,
    failure::class,
    journal::{Mark, Op},
};
use windlass_runtime::{StepResult, StepWriter};
#[cfg(feature = "sqlite")]
use windlass_store::rusqlite;
#[cfg(feature = "postgres")]
use windlass_store::tokio_postgres;
use windlass_store::{Error, Work};

use super::{
    Boxed,
    core::Core,
    journal::CallEnd,
    state::{CallSpec, CallStatus, Start},
    step::{decode_result, encode_result, panic_text},
};
use crate::store_retry;

/// How long a transaction may take, unless the user says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A transaction that is being described: say on which store with [`Transaction::in_postgres`] or
/// [`Transaction::in_sqlite`].
///
/// Whatever it writes to your own tables is committed if, and only if, the workflow has recorded that: it happens exactly
/// once. The store must be in the database of your tables.
#[must_use = "a transaction does nothing until it is said where, and awaited"]
pub struct Transaction {
    core: Arc<Core>,
    name: String,
    key: Option<String>,
    line: &'static Location<'static>,
    retry: Retry,
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
            timeout: TIMEOUT,
        }
    }

    /// What tells it from other calls of its name, e.g. in a loop.
    pub fn key(mut self, key: impl ToString) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// When to try again: 20 tries with growing waits, unless you say otherwise.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long it may take, the commit included: 30 seconds, unless you say otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// On PostgreSQL: `run` is given a transaction on the store's database. An error rolls it back.
    ///
    /// ```ignore
    /// flow.transaction("book").in_postgres(move |tx| Box::pin(async move {
    ///     tx.execute("insert into bookings (id) values ($1)", &[&id]).await?;
    ///     Ok::<_, AnyError>(())
    /// })).await?;
    /// ```
    #[cfg(feature = "postgres")]
    pub fn in_postgres<'f, F, T, E>(self, run: F) -> TransactionCall<'f, T, E>
    where
        F: for<'t> FnMut(
                &'t tokio_postgres::Transaction<'t>,
            ) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>
            + Send
            + 'f,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Into<Failure> + From<Failure> + 'static,
    {
        let run = Arc::new(Mutex::new(run));
        let work = Box::new(move |writer: Writer| -> Work<'f> {
            let run = Arc::clone(&run);
            Work::Postgres(Box::new(move |tx| {
                let work = (run.lock().unwrap_or_else(|e| e.into_inner()))(tx);
                Box::pin(async move {
                    let result = AssertUnwindSafe(work).catch_unwind().await;
                    writer.change(result.map(|result| encode_result(&result.map_err(Into::into)?)))
                })
            }))
        });
        TransactionCall::new(self, work)
    }

    /// On SQLite: `run` is given a connection to the store's file with a transaction open. An error rolls it back. Nobody
    /// else writes to the file meanwhile: do nothing else in there.
    #[cfg(feature = "sqlite")]
    pub fn in_sqlite<'f, F, T, E>(self, run: F) -> TransactionCall<'f, T, E>
    where
        F: FnMut(&rusqlite::Connection) -> Result<T, E> + Send + 'f,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure> + From<Failure>,
    {
        let run = Arc::new(Mutex::new(run));
        let work = Box::new(move |writer: Writer| -> Work<'f> {
            let run = Arc::clone(&run);
            Work::Sqlite(Box::new(move |connection| {
                let mut run = run.lock().unwrap_or_else(|e| e.into_inner());
                let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(connection)));
                writer.change(result.map(|result| encode_result(&result.map_err(Into::into)?)))
            }))
        });
        TransactionCall::new(self, work)
    }
}

type MakeWork<'f> = Box<dyn FnMut(Writer) -> Work<'f> + Send + 'f>;

/// What the user's code returned, and where the entry that says so is to stand.
type Recorded = Result<(i32, Payload), Failure>;

/// Makes the change that is committed with the user's writes.
#[derive(Clone)]
struct Writer {
    core: Arc<Core>,
    call: usize,
    wrote: Arc<Mutex<Option<Recorded>>>,
}

impl Writer {
    fn change(&self, result: std::thread::Result<Result<Vec<u8>, Failure>>) -> Option<Change> {
        let result = result
            .unwrap_or_else(|panic| Err(Failure::retry(panic_text(&*panic)).class(class::PANIC)))
            .and_then(|result| self.core.encode(result))
            .and_then(|payload| self.core.check_size(payload));
        let mut wrote = self.wrote.lock().unwrap_or_else(|e| e.into_inner());
        match result {
            Ok(payload) => {
                let now = self.core.now();
                let mut state = self.core.lock();
                state.calls[self.call].as_ref()?;
                let entry = state.entry(self.call, Mark::Done, payload.clone(), now);
                drop(state);
                *wrote = Some(Ok((entry.seq, payload)));
                let step = Step { entries: vec![entry], ..Step::default() };
                Some(self.core.attempt.as_ref()?.change(Outcome::Next, Some(step)))
            }
            Err(failure) => {
                *wrote = Some(Err(failure));
                None
            }
        }
    }

    fn wrote(&self) -> Option<Recorded> {
        self.wrote.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

/// What became of a transaction.
enum TransactionEnd {
    /// It is committed, with its entry at this place.
    Committed(i32, Payload),
    Failed(Failure),
    /// The claim is over.
    Over(StepResult),
}

/// A transaction; `.await` makes it, or returns what it returned before.
#[must_use = "a transaction does nothing until it is awaited"]
pub struct TransactionCall<'f, T, E> {
    about: Transaction,
    work: MakeWork<'f>,
    running: Option<Boxed<'f, TransactionEnd>>,
    call: Option<usize>,
    registered: bool,
    result: PhantomData<fn() -> Result<T, E>>,
}

impl<'f, T, E> TransactionCall<'f, T, E> {
    fn new(about: Transaction, work: MakeWork<'f>) -> TransactionCall<'f, T, E> {
        TransactionCall { about, work, running: None, call: None, registered: false, result: PhantomData }
    }

    fn start(&mut self, id: usize) {
        let core = Arc::clone(&self.about.core);
        let wrote = Arc::default();
        let writer = Writer { core, call: id, wrote };
        let work = (self.work)(writer.clone());
        let timeout = self.about.timeout;
        self.running = Some(Box::pin(transact(writer, work, timeout)));
    }
}

async fn transact(writer: Writer, work: Work<'_>, timeout: Duration) -> TransactionEnd {
    let core = Arc::clone(&writer.core);
    let Some(attempt) = &core.attempt else { return TransactionEnd::Over(StepResult::ClaimOver) };
    let answer = core.bound.env.timeout(timeout, attempt.writer.transact(work)).await;
    let doubt = match answer {
        Ok(Ok(verdict)) => {
            return match (verdict, writer.wrote()) {
                (Some(Verdict::Committed), Some(Ok((seq, payload)))) => {
                    TransactionEnd::Committed(seq, payload)
                }
                (Some(Verdict::Halted), _) => TransactionEnd::Over(StepResult::Halted),
                (Some(Verdict::Refused(why)), _) => {
                    TransactionEnd::Failed(Failure::stop(why).class(class::REFUSED))
                }
                (None, Some(Err(failure))) => TransactionEnd::Failed(failure),
                _ => TransactionEnd::Over(StepResult::ClaimOver),
            };
        }
        Ok(Err(Error::Unavailable(why))) => Failure::retry(why).class(store_retry::STORE),
        Ok(Err(error @ Error::Config(_))) => {
            return TransactionEnd::Failed(Failure::stop(error).class(class::REFUSED));
        }
        Ok(Err(error)) => Failure::retry(error).class(store_retry::STORE),
        Err(_) => {
            Failure::retry(format!("the transaction ran longer than {timeout:?}")).class(class::TIMEOUT)
        }
    };
    // It may have been committed and its answer lost. Another change under the same revision settles it: it is applied
    // only if the transaction was not, which can then never be.
    let failure = match writer.wrote() {
        Some(Err(failure)) => failure,
        _ => doubt,
    };
    match StepWriter::settle_detached(attempt).await {
        Verdict::Committed => {}
        Verdict::Halted => return TransactionEnd::Over(StepResult::Halted),
        _ => return TransactionEnd::Over(StepResult::ClaimOver),
    }
    let name = core.lock().calls.get(writer.call).and_then(|call| Some(call.as_ref()?.ident.clone()));
    let Some(ident) = name else { return TransactionEnd::Over(StepResult::ClaimOver) };
    let mut after = core.lock().journal.next_seq - 1;
    loop {
        let page = match core.bound.store.inspect().journal(core.job.id, Some(after), 1_000).await {
            Ok(page) => page,
            Err(_) => {
                core.bound.env.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(last) = page.last() else { return TransactionEnd::Failed(failure) };
        after = last.seq;
        let found = page.into_iter().find(|entry| {
            entry.mark == Mark::Done && *entry.name == *ident.0 && entry.key.as_deref() == ident.1.as_deref()
        });
        if let Some(entry) = found {
            return TransactionEnd::Committed(entry.seq, entry.payload);
        }
    }
}

impl<T, E> Unpin for TransactionCall<'_, T, E> {}

impl<T: DeserializeOwned, E: From<Failure>> Future for TransactionCall<'_, T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let this = self.get_mut();
        let about = &this.about;
        if !this.registered {
            this.registered = true;
            this.call = about.core.register(CallSpec {
                op: Op::Transaction,
                name: &about.name,
                key: about.key.as_deref(),
                line: about.line,
                start: Start::Body { within: None },
            });
        }
        let Some(id) = this.call else { return Poll::Pending };
        loop {
            match this.about.core.poll_call(id, cx) {
                CallStatus::Ready(_, ending) => {
                    this.call = None;
                    return decode_result(&this.about.core, &this.about.name, this.about.line, ending);
                }
                CallStatus::Go => this.start(id),
                CallStatus::Running if this.running.is_some() => {
                    let core = Arc::clone(&this.about.core);
                    let running = this.running.as_mut().expect("looked at above");
                    let limit = Some(this.about.timeout);
                    let polled = core.poll_body(id, &this.about.name, limit, |cx| running.as_mut().poll(cx));
                    let Poll::Ready(ended) = polled else { return Poll::Pending };
                    this.running = None;
                    match ended {
                        TransactionEnd::Committed(seq, payload) => {
                            let mut state = core.lock();
                            state.transacting = None;
                            state.end(id, seq, CallEnd::Done(payload));
                        }
                        TransactionEnd::Failed(failure) => {
                            core.lock().transacting = None;
                            core.fail_or_retry_call(id, failure, &this.about.retry);
                        }
                        TransactionEnd::Over(turn) => core.lock().claim_ended = Some(turn),
                    }
                }
                CallStatus::Running | CallStatus::Pending => return Poll::Pending,
            }
        }
    }
}

impl<T, E> Drop for TransactionCall<'_, T, E> {
    fn drop(&mut self) {
        self.running = None;
        if let Some(id) = self.call.take() {
            self.about.core.abandon_call(id);
        }
    }
}
