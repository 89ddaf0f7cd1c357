//! Transactions: the user's writes and the record of the call, committed together.

use std::{
    future::Future,
    marker::PhantomData,
    panic::Location,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{Failure, Payload, Retry, journal::CallKind};
#[cfg(feature = "sqlite")]
use windlass_store::rusqlite;
#[cfg(feature = "postgres")]
use windlass_store::tx::PostgresTx;
use windlass_store::{AsyncWork, Tx, Work};

use super::{
    Boxed,
    body_call::BodyCall,
    call::CallStatus,
    call_retry::{CallRetry, retry_settings},
    core::Core,
    journal::CallEnd,
    step::decode_result,
    transact::{TransactionEnd, Writer, transact},
    undo::UndoCx,
    undo_body::{UndoBody, register_undo, undo_body},
};

/// How long a transaction may take by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes what the store runs in one attempt.
type MakeWork<'f> = Box<dyn FnMut(Writer) -> Work<'f> + Send + 'f>;

/// A transaction that is being described; `.await` runs it, or returns what it returned before.
///
/// Its writes to your own tables are committed if, and only if, the workflow has recorded that: they happen exactly once. Your
/// tables must be in the database of the store. An error, a panic and a timeout roll everything back, and are retried as the retry
/// policy says; the last error is recorded as the result.
#[must_use = "a transaction does nothing until it is awaited"]
pub struct Transaction<'f, T> {
    call: BodyCall,
    retry: CallRetry,
    timeout: Duration,
    undo: Option<UndoBody>,
    work: MakeWork<'f>,
    running: Option<Boxed<'f, TransactionEnd>>,
    result: PhantomData<fn() -> T>,
}

impl<'f, T> Transaction<'f, T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    fn new(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        work: MakeWork<'f>,
    ) -> Transaction<'f, T> {
        Transaction {
            call: BodyCall::new(core, CallKind::Transaction, name, line),
            retry: CallRetry::new(core.backoff),
            timeout: DEFAULT_TIMEOUT,
            undo: None,
            work,
            running: None,
            result: PhantomData,
        }
    }

    /// On either database.
    pub(super) fn on_either<F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        run: F,
    ) -> Transaction<'f, T>
    where
        F: FnMut(Tx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, Failure>> + Send + 'f,
    {
        let run = Arc::new(Mutex::new(run));
        let work = Box::new(move |writer: Writer| -> Work<'f> {
            let run = Arc::clone(&run);
            Work::Tx(AsyncWork::new(move |tx: Tx| {
                let status = tx.status();
                writer.answer(Some(status), move || run.lock().unwrap_or_else(|e| e.into_inner())(tx))
            }))
        });
        Transaction::new(core, name, line, work)
    }

    /// On PostgreSQL, by the driver itself.
    #[cfg(feature = "postgres")]
    pub(super) fn on_postgres<F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        run: F,
    ) -> Transaction<'f, T>
    where
        F: FnMut(PostgresTx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, Failure>> + Send + 'f,
    {
        let run = Arc::new(Mutex::new(run));
        let work = Box::new(move |writer: Writer| -> Work<'f> {
            let run = Arc::clone(&run);
            Work::Postgres(AsyncWork::new(move |tx| {
                writer.answer(None, move || run.lock().unwrap_or_else(|e| e.into_inner())(tx))
            }))
        });
        Transaction::new(core, name, line, work)
    }

    /// On SQLite, by the driver itself.
    #[cfg(feature = "sqlite")]
    pub(super) fn on_sqlite<F>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        run: F,
    ) -> Transaction<'f, T>
    where
        F: FnMut(&rusqlite::Connection) -> Result<T, Failure> + Send + 'f,
    {
        let run = Arc::new(Mutex::new(run));
        let work = Box::new(move |writer: Writer| -> Work<'f> {
            let run = Arc::clone(&run);
            Work::Sqlite(Box::new(move |connection| {
                let mut run = run.lock().unwrap_or_else(|e| e.into_inner());
                writer.answer_sync(connection, &mut *run)
            }))
        });
        Transaction::new(core, name, line, work)
    }

    /// Gives it another name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.call.name = name.into();
        self
    }

    /// Distinguishes it from other calls of the same name, e.g. in a loop.
    pub fn key(mut self, key: impl ToString) -> Self {
        self.call.key = Some(key.to_string());
        self
    }

    retry_settings!("the transaction", retry);

    /// How long it may take, including the commit: by default 30 seconds. On SQLite, where nobody else can write meanwhile, the
    /// closure may take five seconds at most.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the undo, which gets what the transaction returned. It runs as the undo of a step does: see [`super::Step::undo`]. It is
    /// not a transaction itself, and may run more than once.
    pub fn undo<U, Fut>(self, mut undo: U) -> Self
    where
        U: FnMut(T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.undo_with(move |_, result| undo(result))
    }

    /// The same, for an undo that needs the number of its attempt or an idempotency key; see [`UndoCx`].
    pub fn undo_with<U, Fut>(mut self, undo: U) -> Self
    where
        U: FnMut(UndoCx, T) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.undo = Some(undo_body(undo));
        self
    }
}

impl<T> Transaction<'_, T> {
    fn start(&mut self, id: usize) {
        let (core, has_undo) = (Arc::clone(&self.call.core), self.undo.is_some());
        let writer = Writer { core, call: id, has_undo, record: Arc::default() };
        let work = (self.work)(writer.clone());
        self.running = Some(Box::pin(transact(writer, work, self.timeout)));
    }

    /// Notes how the transaction ended.
    fn ended(&mut self, id: usize, end: TransactionEnd) {
        match end {
            TransactionEnd::Committed(seq, payload) => {
                let ident = self.call.ident();
                let mut state = self.call.core.lock();
                state.calls.transacting = None;
                state.end(id, seq, CallEnd::Done(payload));
                if self.undo.is_some() {
                    state.journal.recorded_mut(&ident).undo = Some(seq);
                }
            }
            TransactionEnd::Failed(failure) => {
                self.call.core.lock().calls.transacting = None;
                self.call.core.fail_or_retry_call(id, failure, &self.retry);
            }
            TransactionEnd::ClaimOver(result) => self.call.core.lock().code.claim_ended = Some(result),
        }
    }

    /// Registers the undo of a transaction that has succeeded.
    fn register_undo(&mut self, seq: i32, payload: Payload) {
        if let Some(undo) = self.undo.take() {
            let (ident, retry) = (self.call.ident(), self.retry.clone());
            register_undo(&self.call.core, CallKind::Transaction, ident, retry, undo, (seq, payload));
        }
    }
}

impl<T> Unpin for Transaction<'_, T> {}

impl<T: DeserializeOwned> Future for Transaction<'_, T> {
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let this = self.get_mut();
        let Some(id) = this.call.register() else { return Poll::Pending };
        loop {
            match this.call.core.poll_call(id, cx) {
                CallStatus::Ready(seq, ending) => {
                    this.call.end();
                    if let CallEnd::Done(payload) = &ending {
                        this.register_undo(seq, payload.clone());
                    }
                    return decode_result(&this.call.core, &this.call.name, this.call.line, ending);
                }
                CallStatus::Go => this.start(id),
                CallStatus::Running if this.running.is_some() => {
                    let core = Arc::clone(&this.call.core);
                    let running = this.running.as_mut().expect("checked above");
                    let limit = Some(this.timeout);
                    let polled = core.poll_body(id, &this.call.name, limit, |cx| running.as_mut().poll(cx));
                    let Poll::Ready(end) = polled else { return Poll::Pending };
                    this.running = None;
                    this.ended(id, end);
                }
                CallStatus::Running | CallStatus::Pending => return Poll::Pending,
            }
        }
    }
}

impl<T> Drop for Transaction<'_, T> {
    fn drop(&mut self) {
        // The closure is dropped first: it may still use the call.
        self.running = None;
        // The transaction has succeeded, although nobody awaits it.
        if let Some(id) = self.call.id()
            && self.undo.is_some()
            && let Some((seq, payload)) = self.call.core.success_of(id)
        {
            self.register_undo(seq, payload);
        }
    }
}
