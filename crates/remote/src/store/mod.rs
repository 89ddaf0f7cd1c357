//! A store on the other side of a server.
//!
//! [`RemoteStore`] implements the traits of [`windlass_store`] by calls of the worker protocol, so that the runtime runs jobs on a host
//! without access to the database as it does on one with it. `calls` sends a request and reads its answer; `execution` has the verbs of a
//! worker, `replay` what running code reads, and `unavailable` what only people and servers do, which is an error here.
//!
//! What always holds: an answer that does not come, and one that says that the server or the proxy before it cannot answer now, is
//! [`Error::Unavailable`], which the runtime repeats; no call is repeated here. Timers, lost workers, branches and old jobs are the
//! server's own work, and their verbs do nothing here.

mod calls;
mod execution;
mod replay;
mod unavailable;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use windlass_model::{Limits, Time};
use windlass_store::{
    Backend, Error, Fut, Maintenance, Now, PollReport, Prune, Pruned, ReapReport, ReapRequest, RenewRequest,
    Renewal, RollUpReport, RollUpRequest, Store, TimerReport,
};

use windlass_http::{Client, Options};

use crate::protocol::{
    VERSION,
    calls::{Hello, ServerInfo},
};

/// The longest time that a call may take: longer than a server lets a request run.
const PATIENCE: Duration = Duration::from_secs(40);
/// The longest time that a call of the thread that renews the lease may take until its answer begins, the connection included, and
/// that the answer may pause: one that hangs must be given up well before the lease ends.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(3);
/// The shortest such time, of a short lease.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);
/// How long one read of gates waits for a change: less than proxies let a request be silent, and three calls a minute of an idle worker.
const GATE_WAIT: Duration = Duration::from_secs(20);

/// The store of a server, for a worker on another host.
pub struct RemoteStore {
    url: String,
    options: Options,
    client: Client,
    info: Arc<ServerInfo>,
    limits: Limits,
    patience: Duration,
    /// The worker that this handle or a sibling registered last.
    registered: Arc<AtomicI64>,
    /// The number of calls of this handle and its siblings.
    calls: Arc<AtomicU64>,
}

impl RemoteStore {
    /// Connects to the server at `url`, and checks that it accepts the token and speaks this version of the protocol.
    pub async fn open(url: &str, options: Options) -> Result<RemoteStore, Error> {
        let client = Client::new(url, options.clone()).map_err(|error| Error::Config(error.to_string()))?;
        let info = calls::open(&client, &Hello {}, PATIENCE).await?;
        if info.protocol != VERSION {
            return Err(Error::Config(format!(
                "{} speaks version {} of the worker protocol, and this program version {VERSION}; use versions of both that fit",
                client.url(),
                info.protocol
            )));
        }
        let limits = info.limits();
        Ok(RemoteStore {
            url: url.to_owned(),
            options,
            client,
            info: Arc::new(info),
            limits,
            patience: PATIENCE,
            registered: Arc::default(),
            calls: Arc::default(),
        })
    }
}

impl Maintenance for RemoteStore {
    fn renew<'a>(&'a self, now: Now, request: &'a RenewRequest) -> Fut<'a, Renewal> {
        Box::pin(self.send_renewal(now, request))
    }

    /// Nothing: the server's own worker returns the jobs of lost ones.
    fn reap<'a>(&'a self, _now: Now, _request: &'a ReapRequest) -> Fut<'a, ReapReport> {
        Box::pin(std::future::ready(Ok(ReapReport::default())))
    }

    /// Nothing: the server's own worker fires timers, admits arrivals and fires schedules. The gate of a queue tells this worker of jobs
    /// that became ready by it.
    fn fire_timers(&self, _now: Now, _limit: usize) -> Fut<'_, TimerReport> {
        Box::pin(std::future::ready(Ok(TimerReport::default())))
    }

    /// Nothing: the server's own worker repairs.
    fn repair(&self, _now: Now) -> Fut<'_, usize> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Nothing: the server's own worker polls branches.
    fn poll_branches(&self, _now: Now, _limit: usize) -> Fut<'_, PollReport> {
        Box::pin(std::future::ready(Ok(PollReport::default())))
    }

    /// Nothing: the server's own worker prunes, by its own settings.
    fn prune<'a>(&'a self, _now: Now, _prune: &'a Prune) -> Fut<'a, Pruned> {
        Box::pin(std::future::ready(Ok(Pruned::default())))
    }

    /// Nothing: the server's own worker sums up.
    fn roll_up<'a>(&'a self, _request: &'a RollUpRequest) -> Fut<'a, RollUpReport> {
        Box::pin(std::future::ready(Ok(RollUpReport::default())))
    }

    /// Nothing: the server's own worker prunes.
    fn prune_sessions(&self, _now: Now, _limit: usize) -> Fut<'_, usize> {
        Box::pin(std::future::ready(Ok(0)))
    }
}

impl Backend for RemoteStore {
    fn sibling(&self) -> Fut<'_, Arc<dyn Store>> {
        // Connections are driven by the runtime that opened them, so another thread needs its own.
        let idle_timeout = self.options.idle_timeout.min(RENEWAL_PATIENCE);
        let client = Client::new(&self.url, Options { idle_timeout, ..self.options.clone() });
        let sibling = client.map_err(|error| Error::Config(error.to_string())).map(|client| {
            Arc::new(RemoteStore {
                url: self.url.clone(),
                options: self.options.clone(),
                client,
                info: Arc::clone(&self.info),
                limits: self.limits.clone(),
                patience: RENEWAL_PATIENCE,
                registered: Arc::clone(&self.registered),
                calls: Arc::clone(&self.calls),
            }) as Arc<dyn Store>
        });
        Box::pin(std::future::ready(sibling))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// As many as pay off for the server's database.
    fn concurrent_commits(&self) -> usize {
        self.info.concurrent_commits.clamp(1, 8)
    }

    fn runs_transactions(&self) -> bool {
        false
    }

    /// The server waits on behalf of its workers.
    fn gate_wait(&self) -> Option<Duration> {
        Some(GATE_WAIT)
    }

    /// None: a lock file here tells other hosts nothing.
    fn liveness_dir(&self) -> Option<PathBuf> {
        None
    }

    /// Calls to the server.
    fn statements(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// The time of a call, which only tests give.
fn test_time(now: Now) -> Option<i64> {
    now.map(Time::micros)
}
