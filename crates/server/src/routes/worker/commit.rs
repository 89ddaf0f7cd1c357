//! Committing changes of attempts.
//!
//! A change is passed to the store with what this server knows of its job. If the claim that it names has the job no more, it can
//! only be a repeat of one that was written, and the revision of the job says whether it may be; otherwise it is fenced here.

use std::collections::{HashMap, HashSet};

use windlass::{
    model::{ClaimNo, ClaimedJob, CommitOutcome, JobId, Outcome, Rev, WorkerId},
    store::Store,
};
use windlass_remote::protocol::{
    MAX_BATCH,
    calls::{Commit, CommitAnswer},
    change::{Change, Committed, End, JobFacts, RetryState},
};

use super::{super::Route, check_count, route};
use crate::{
    call::Call,
    error::Error,
    worker::{Existence, KnownJob},
};

pub(super) fn routes() -> Vec<Route> {
    vec![route("/worker/v1/commit", "workerCommit", "Write what attempts did", commit)]
}

async fn commit(call: Call, request: Commit) -> Result<CommitAnswer, Error> {
    let Commit { worker, changes } = request;
    check_count("changes", changes.len(), MAX_BATCH)?;
    let unknown = unknown_workers(&call, worker, &changes).await?;
    let mut outcomes: Vec<Committed> = vec![CommitOutcome::Fenced.into(); changes.len()];
    let (mut seen, mut claims) = (HashSet::with_capacity(changes.len()), ReadClaims::default());
    let (mut built, mut indexes) = (Vec::with_capacity(changes.len()), Vec::with_capacity(changes.len()));
    for (index, change) in changes.into_iter().enumerate() {
        let (job, worker) = (change.job, change.worker.unwrap_or(worker));
        if !seen.insert(job) {
            let message = format!("the request has two changes of the job {job}");
            return Err(Error::invalid(message, "send the second when the first is answered"));
        }
        if unknown.contains(&worker) {
            continue;
        }
        let known = match claims.find(&call, worker, &change).await? {
            Found::Job(known) => known,
            Found::Repeat => KnownJob::written(&change),
            Found::Nothing => continue,
        };
        let is_error = change.outcome.error.is_some();
        let counts = if known.rev == change.rev { known.retry_counts.as_slice() } else { &[] };
        let retry = RetryState { own: known.retry.as_deref(), counts, random: call.engine().env().random() };
        let change = change.into_change(worker, &known.facts, &retry);
        let change = change
            .map_err(|why| Error::invalid(format!("the change of the job {job} is wrong: {why}"), ""))?;
        for child in change.submitted_jobs() {
            call.principal.check_new_job(&child.kind.kind, &child.queue)?;
        }
        outcomes[index].state = is_error.then(|| End::decided_state(&change.outcome));
        indexes.push(index);
        built.push(change);
    }
    let written = call.store().commit(call.now()?, &built).await?;
    for ((index, outcome), change) in indexes.into_iter().zip(written).zip(&built) {
        let stays = match outcome {
            CommitOutcome::Committed => change.outcome == Outcome::Next,
            CommitOutcome::Refused(_) => true,
            CommitOutcome::Halted | CommitOutcome::Fenced => false,
        };
        if !stays {
            call.workers().claims.note_left(change.worker, change.claim, change.job, change.epoch);
        }
        let state = outcomes[index].state.take().filter(|_| outcome == CommitOutcome::Committed);
        outcomes[index] = Committed { state, ..outcome.into() };
    }
    call.workers().gates.poke();
    call.engine().note_commit_elsewhere();
    Ok(CommitAnswer { outcomes })
}

/// The workers of a request that do not exist: their changes are fenced.
async fn unknown_workers(
    call: &Call,
    worker: WorkerId,
    changes: &[Change],
) -> Result<HashSet<WorkerId>, Error> {
    let mut workers: HashSet<WorkerId> = changes.iter().filter_map(|change| change.worker).collect();
    workers.insert(worker);
    let mut unknown = HashSet::new();
    for worker in workers {
        if call.workers().check(&call.principal, worker).await? == Existence::Unknown {
            unknown.insert(worker);
        }
    }
    Ok(unknown)
}

/// What is known of the job of a change.
enum Found {
    /// The claim has it.
    Job(KnownJob),
    /// The claim has it no more, and its revision is the one that this change made or another one did.
    Repeat,
    /// The change can never be written.
    Nothing,
}

/// The claims that were read from the store for one request.
#[derive(Default)]
struct ReadClaims(HashMap<(WorkerId, ClaimNo), HashMap<JobId, KnownJob>>);

impl ReadClaims {
    async fn find(&mut self, call: &Call, worker: WorkerId, change: &Change) -> Result<Found, Error> {
        let (job, claim) = (change.job, change.claim);
        let known = call.workers().claims.get(worker, claim, job, change.epoch);
        // What the server decides of an error depends on attempts that were made since the claim.
        let is_current = |known: &KnownJob| change.outcome.error.is_none() || known.rev == change.rev;
        if let Some(known) = known.filter(is_current) {
            return Ok(Found::Job(known));
        }
        if let std::collections::hash_map::Entry::Vacant(entry) = self.0.entry((worker, claim)) {
            let jobs: Vec<ClaimedJob> = call.store().claimed_jobs(worker, claim).await?;
            call.workers().claims.note(worker, claim, &jobs);
            entry.insert(jobs.iter().map(|job| (job.id, job.into())).collect());
        }
        let read = self.0.get(&(worker, claim)).and_then(|jobs| jobs.get(&job));
        if let Some(known) = read.filter(|known| known.epoch == change.epoch) {
            return Ok(Found::Job(known.clone()));
        }
        // The revision only rises. If it is not the one after the change now, it never is again, and the change was not the one that
        // made it; and if it is, the store can only find that the change was written before, or that it was not.
        let store: &dyn Store = call.store();
        let rev = store.inspect().job(job).await?.map(|job| job.rev);
        Ok(if rev == Some(Rev(change.rev.0.saturating_add(1))) { Found::Repeat } else { Found::Nothing })
    }
}

impl KnownJob {
    /// Of a change that can only be a repeat: the store compares it, and writes nothing of it.
    fn written(change: &Change) -> KnownJob {
        KnownJob {
            epoch: change.epoch,
            rev: change.rev,
            facts: JobFacts::default(),
            retry: None,
            retry_counts: Vec::new(),
            has_left: false,
        }
    }
}
