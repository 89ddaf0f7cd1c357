//! Registering workers, renewing their leases, and ending their service.

use std::{collections::HashSet, time::Duration};

use windlass::{
    env::IdSource,
    model::{
        ClaimNo, WorkerId,
        limits::{MAX_KEY_BYTES, MAX_NAME_BYTES, check_text},
    },
    store::{JobAction, NewWorker, RenewRequest, Renewal},
};
use windlass_remote::protocol::{
    MAX_BATCH, MAX_NAMED, MAX_QUEUES, VERSION,
    calls::{
        Cancels, CancelsAnswer, EndCancelled, EndCancelledAnswer, Hello, Register, Registered, Released,
        Renew, Renewed, Retire, ServerInfo,
    },
};

use super::{super::Route, check_count, route};
use crate::{
    call::Call,
    error::{Error, ErrorKind},
    worker::{Existence, Workers},
};

/// The longest lease: the jobs of a worker that dies are stuck for as long.
const MAX_LEASE: Duration = Duration::from_secs(3_600);

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("/worker/v1/hello", "workerHello", "What this server is; a check of address and token", hello),
        route("/worker/v1/register", "workerRegister", "Register a worker with a lease", register),
        route("/worker/v1/renew", "workerRenew", "Extend the lease of a worker, and read cancels", renew),
        route(
            "/worker/v1/retire",
            "workerRetire",
            "End the service of a worker; its jobs are released",
            retire,
        ),
        route("/worker/v1/cancels", "workerCancels", "The cancel requests for jobs of a worker", cancels),
        route(
            "/worker/v1/end-cancelled",
            "workerEndCancelled",
            "End jobs that stopped between two steps because they are being cancelled",
            end_cancelled,
        ),
    ]
}

async fn hello(call: Call, _: Hello) -> Result<ServerInfo, Error> {
    let store = call.store();
    Ok(ServerInfo {
        protocol: VERSION,
        now: store.clock().await?,
        body_limit: call.workers().body_limit,
        concurrent_commits: store.concurrent_commits(),
        limits: ServerInfo::limits_of(store.limits()),
    })
}

fn lease(lease: Duration) -> Result<Duration, Error> {
    if lease.is_zero() || lease > MAX_LEASE {
        let message = format!("the lease of {lease:?} is not from 1 ms to {} s", MAX_LEASE.as_secs());
        return Err(Error::invalid(message, "15 seconds are usual"));
    }
    Ok(lease)
}

async fn register(call: Call, request: Register) -> Result<Registered, Error> {
    let Register { worker, name, lease_ms, serves } = request;
    check_text("name of the worker", &name, MAX_KEY_BYTES).map_err(windlass::Error::from)?;
    check_count("queues", serves.len(), MAX_QUEUES)?;
    for served in &serves {
        check_text("queue", &served.queue, MAX_NAME_BYTES).map_err(windlass::Error::from)?;
        check_count("kinds of a queue", served.kinds.len(), MAX_NAMED)?;
        for kind in &served.kinds {
            check_text("kind", &kind.kind, MAX_NAME_BYTES).map_err(windlass::Error::from)?;
            call.principal.check_new_job(&kind.kind, &served.queue)?;
        }
    }
    let (token, now) = (Workers::token(&call.principal), call.now()?);
    let ids = IdSource::new(call.engine().env().clone());
    let mut new = NewWorker {
        id: worker.unwrap_or_else(|| ids.worker()),
        name,
        liveness_file: None,
        lease: lease(lease_ms.0)?,
        serves: serves.into_iter().map(Into::into).collect(),
        token: Some(token.clone()),
    };
    while !call.store().register_worker(now, &new).await? {
        if worker.is_some() {
            return Err(Error::new(
                ErrorKind::WorkerTaken,
                format!("there is a worker {}, or was one", new.id),
                "draw another id, or leave it out",
            ));
        }
        new.id = ids.worker();
    }
    call.workers().registered(new.id, token);
    let store = call.store();
    Ok(Registered { worker: new.id, now: store.clock().await?, payload_limit: store.limits().payload })
}

/// The claims that a request settles: those that it names, and the known ones up to a number. One that still has a job is left out,
/// whatever the worker says: without its claim, nobody would ever find the job again.
pub(super) async fn settled(
    call: &Call,
    worker: WorkerId,
    up_to: Option<ClaimNo>,
    mut named: Vec<ClaimNo>,
) -> Result<Vec<ClaimNo>, Error> {
    check_count("settled claims", named.len(), MAX_BATCH)?;
    if let Some(up_to) = up_to {
        named.extend(call.workers().claims.up_to(worker, up_to));
        named.sort_unstable();
        named.dedup();
    }
    let (mut settled, open): (Vec<ClaimNo>, Vec<ClaimNo>) =
        named.into_iter().partition(|number| call.workers().claims.is_over(worker, *number));
    if !open.is_empty() {
        // Their jobs may have been committed through another server.
        let kept: HashSet<ClaimNo> =
            call.store().claims_with_jobs(worker, &open).await?.into_iter().collect();
        settled.extend(open.into_iter().filter(|number| !kept.contains(number)));
        settled.sort_unstable();
    }
    Ok(settled)
}

async fn renew(call: Call, request: Renew) -> Result<Renewed, Error> {
    let Renew { worker, lease_ms, settled: up_to, settled_claims, solo_ended, progress } = request;
    let lost = Renewed { held: false, lapsed: false, claims: Vec::new(), cancels: Vec::new() };
    if call.workers().check(&call.principal, worker).await? == Existence::Unknown {
        return Ok(lost);
    }
    check_count("claims that ran alone", solo_ended.len(), MAX_BATCH)?;
    check_count("reports", progress.as_ref().map_or(0, Vec::len), MAX_BATCH)?;
    let now = call.now()?;
    let mut renewal = RenewRequest {
        worker,
        lease: lease(lease_ms.0)?,
        settled: settled(&call, worker, up_to, settled_claims).await?,
        solo_ended,
        progress: progress
            .map(|reports| windlass::model::progress::newest(reports.into_iter().map(Into::into).collect())),
    };
    let mut held = call.store().renew(now, &renewal).await?;
    if let (Renewal::Held { claims, .. }, Some(up_to)) = (&held, up_to) {
        // Claims that another server made, and this one did not know.
        let unknown: Vec<ClaimNo> = claims.iter().copied().filter(|number| *number <= up_to).collect();
        if !unknown.is_empty() {
            renewal = RenewRequest { settled: unknown, solo_ended: Vec::new(), progress: None, ..renewal };
            held = call.store().renew(now, &renewal).await?;
        }
    }
    match held {
        Renewal::Held { lapsed, claims } => {
            let known = call.workers().claims.up_to(worker, ClaimNo(i64::MAX));
            let gone: Vec<ClaimNo> = known.into_iter().filter(|number| !claims.contains(number)).collect();
            call.workers().claims.forget(worker, &gone);
            let cancels = call.store().cancel_requests(worker).await?;
            Ok(Renewed { held: true, lapsed, claims, cancels: cancels.into_iter().map(Into::into).collect() })
        }
        Renewal::Lost => {
            call.workers().claims.forget_all(worker);
            Ok(lost)
        }
    }
}

async fn retire(call: Call, Retire { worker }: Retire) -> Result<Released, Error> {
    if call.workers().check(&call.principal, worker).await? == Existence::Unknown {
        return Ok(Released { released: 0 });
    }
    let released = call.store().retire_worker(call.now()?, worker).await?;
    call.workers().claims.forget_all(worker);
    call.workers().gates.poke();
    Ok(Released { released })
}

async fn cancels(call: Call, Cancels { worker }: Cancels) -> Result<CancelsAnswer, Error> {
    if call.workers().check(&call.principal, worker).await? == Existence::Unknown {
        return Ok(CancelsAnswer { cancels: Vec::new() });
    }
    let cancels = call.store().cancel_requests(worker).await?;
    Ok(CancelsAnswer { cancels: cancels.into_iter().map(Into::into).collect() })
}

async fn end_cancelled(call: Call, request: EndCancelled) -> Result<EndCancelledAnswer, Error> {
    let EndCancelled { worker, jobs } = request;
    check_count("jobs", jobs.len(), MAX_NAMED)?;
    if call.workers().check(&call.principal, worker).await? == Existence::Unknown {
        return Ok(EndCancelledAnswer { ended: 0 });
    }
    let now = call.now()?;
    let mut requests = call.store().cancel_requests(worker).await?;
    requests.retain(|request| jobs.contains(&request.job));
    for request in &requests {
        // In the name of whoever cancelled the job: the worker only says that no attempt is left to wait for.
        let cancel = JobAction::Cancel { grace: Duration::ZERO };
        call.store().control().act_on_jobs(now, &[request.job], cancel, &request.actor).await?;
    }
    Ok(EndCancelledAnswer { ended: requests.len() })
}
