//! Reading the journals of workflows that are taken up: those that are wanted at the same time are read together.
//!
//! A thousand sleepers that wake at once want a thousand journals, mostly short ones. While one read is under way the
//! others gather, and the next read brings all of them; a lone one is read at once.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use windlass_env::Env;
use windlass_model::{ClaimedJob, JobId, JournalEntry};
use windlass_store::{Error, Store};

/// The most journals in one read.
const JOBS: usize = 100;
/// The most entries in one read, as far as revisions tell: long journals are read one by one.
const ENTRIES: usize = 5_000;

/// Reads journals of claimed workflows, those that are wanted at the same time in one query.
pub struct Reader {
    env: Env,
    store: Arc<dyn Store>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Wanted>,
    /// How many reads are under way.
    reading: usize,
}

struct Wanted {
    job: JobId,
    /// About how many entries it has.
    entries: usize,
    reply: oneshot::Sender<Result<Vec<JournalEntry>, Error>>,
}

/// How many reads may be under way.
const READS: usize = 2;

impl Reader {
    /// A reader of this store.
    pub fn new(env: Env, store: Arc<dyn Store>) -> Reader {
        Reader { env, store, state: Mutex::default() }
    }

    /// The journal of a job.
    pub(super) async fn read(self: &Arc<Self>, job: &ClaimedJob) -> Result<Vec<JournalEntry>, Error> {
        let entries = usize::try_from(job.rev.0).unwrap_or(0);
        let answer = {
            let mut state = self.lock();
            if state.reading < READS {
                state.reading += 1;
                None
            } else {
                let (reply, answer) = oneshot::channel();
                state.waiting.push(Wanted { job: job.id, entries, reply });
                Some(answer)
            }
        };
        if let Some(answer) = answer {
            return answer.await.unwrap_or_else(|_| Err(Error::Unavailable("the read was given up".into())));
        }
        // If this is given up in the middle, those who wait are read all the same.
        let _turn = Turn(self);
        self.store.inspect().journal(job.id, None, usize::MAX).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A read is over: the next one is of whatever was wanted meanwhile.
    fn next(self: &Arc<Self>) {
        let batch = {
            let mut state = self.lock();
            let batch = state.batch();
            if batch.is_empty() {
                state.reading -= 1;
                return;
            }
            batch
        };
        let reader = Arc::clone(self);
        self.env.spawn(async move {
            let _turn = Turn(&reader);
            reader.read_all(batch).await;
        });
    }

    async fn read_all(&self, batch: Vec<Wanted>) {
        let ids: Vec<JobId> = batch.iter().map(|wanted| wanted.job).collect();
        match self.store.inspect().journals(&ids).await {
            Ok(journals) => {
                for (wanted, journal) in batch.into_iter().zip(journals) {
                    let _ = wanted.reply.send(Ok(journal));
                }
            }
            Err(error) => {
                for wanted in batch {
                    let _ = wanted.reply.send(Err(error.again()));
                }
            }
        }
    }
}

impl State {
    /// Takes as much as goes in one read.
    fn batch(&mut self) -> Vec<Wanted> {
        let mut entries = 0;
        let fits = |wanted: &Wanted| {
            entries += wanted.entries;
            entries <= ENTRIES
        };
        let count = self.waiting.iter().take(JOBS).map(fits).take_while(|fits| *fits).count();
        let rest = self.waiting.split_off(count.max(1).min(self.waiting.len()));
        std::mem::replace(&mut self.waiting, rest)
    }
}

/// A read under way; the next begins when it is over.
struct Turn<'a>(&'a Arc<Reader>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.next();
    }
}
