//! Reads the journals of claimed workflows: those requested at the same time are read together.
//!
//! A thousand sleepers that wake at once need a thousand journals, most of them short. While reads are running, further
//! requests gather, and the next read serves all of them; a single one is read at once.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use windlass_env::Env;
use windlass_model::{ClaimedJob, JobId, JournalEntry};
use windlass_store::{Error, Store};

/// The most journals in one read.
const MAX_JOBS: usize = 100;
/// The most entries in one read, estimated by revisions: long journals are read one by one.
const MAX_ENTRIES: usize = 5_000;

/// Reads journals of claimed workflows, those requested at the same time in one query.
pub struct Reader {
    env: Env,
    store: Arc<dyn Store>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Request>,
    /// The number of reads that are running.
    reading: usize,
}

struct Request {
    job: JobId,
    /// About how many entries it has.
    entries: usize,
    reply: oneshot::Sender<Result<Vec<JournalEntry>, Error>>,
}

/// The most reads that run at the same time.
const MAX_READS: usize = 2;

impl Reader {
    /// Makes a reader of this store.
    pub fn new(env: Env, store: Arc<dyn Store>) -> Reader {
        Reader { env, store, state: Mutex::default() }
    }

    /// Returns the journal of a job.
    pub(super) async fn read(self: &Arc<Self>, job: &ClaimedJob) -> Result<Vec<JournalEntry>, Error> {
        let entries = usize::try_from(job.rev.0).unwrap_or(0);
        let answer = {
            let mut state = self.lock();
            if state.reading < MAX_READS {
                state.reading += 1;
                None
            } else {
                let (reply, answer) = oneshot::channel();
                state.waiting.push(Request { job: job.id, entries, reply });
                Some(answer)
            }
        };
        if let Some(answer) = answer {
            return answer.await.unwrap_or_else(|_| Err(Error::Unavailable("the read was given up".into())));
        }
        // If this future is dropped while it reads, the requests that wait are served all the same.
        let _active = ActiveRead(self);
        self.store.inspect().journal(job.id, None, usize::MAX).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Starts the next read when one is over: of everything that was requested meanwhile.
    fn start_next(self: &Arc<Self>) {
        let batch = {
            let mut state = self.lock();
            let batch = state.take_batch();
            if batch.is_empty() {
                state.reading -= 1;
                return;
            }
            batch
        };
        let reader = Arc::clone(self);
        self.env.spawn(async move {
            let _active = ActiveRead(&reader);
            reader.read_all(batch).await;
        });
    }

    async fn read_all(&self, batch: Vec<Request>) {
        let ids: Vec<JobId> = batch.iter().map(|request| request.job).collect();
        match self.store.inspect().journals(&ids).await {
            Ok(journals) => {
                for (request, journal) in batch.into_iter().zip(journals) {
                    let _ = request.reply.send(Ok(journal));
                }
            }
            Err(error) => {
                for request in batch {
                    let _ = request.reply.send(Err(error.again()));
                }
            }
        }
    }
}

impl State {
    /// Takes as many requests as fit into one read.
    fn take_batch(&mut self) -> Vec<Request> {
        let mut entries = 0;
        let fits = |request: &Request| {
            entries += request.entries;
            entries <= MAX_ENTRIES
        };
        let count = self.waiting.iter().take(MAX_JOBS).map(fits).take_while(|fits| *fits).count();
        let rest = self.waiting.split_off(count.max(1).min(self.waiting.len()));
        std::mem::replace(&mut self.waiting, rest)
    }
}

/// A read that is running; the next one starts when it is dropped.
struct ActiveRead<'a>(&'a Arc<Reader>);

impl Drop for ActiveRead<'_> {
    fn drop(&mut self) {
        self.0.start_next();
    }
}
