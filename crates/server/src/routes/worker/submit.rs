//! Submitting jobs, delivering signals, and reading how jobs ended.

use windlass::{
    model::{Epoch, NewJob, SubmitOutcome},
    store::{ClaimOnSubmit, JobEnd, PayloadsOf, SignalOutcome},
};
use windlass_remote::protocol::{
    MAX_BATCH, MAX_NAMED,
    calls::{Deliver, DeliverAnswer, Ends, EndsAnswer, Submit, SubmitAnswer},
};

use super::{super::Route, check_count, route};
use crate::{call::Call, error::Error, worker::Existence};

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("/worker/v1/submit", "workerSubmit", "Submit jobs, all in one transaction", submit),
        route("/worker/v1/signal", "workerSignal", "Deliver signals, all in one transaction", deliver),
        route("/worker/v1/ends", "workerEnds", "How jobs ended", ends),
    ]
}

async fn submit(call: Call, request: Submit) -> Result<SubmitAnswer, Error> {
    check_count("jobs", request.jobs.len(), MAX_BATCH)?;
    let wrong = |why: String| Error::invalid(why, "see docs/worker-protocol.md");
    let jobs =
        request.jobs.into_iter().map(NewJob::try_from).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    for job in &jobs {
        call.principal.check_new_job(&job.kind.kind, &job.queue)?;
        if let Some(parent) = job.parent {
            call.check_visible(parent).await?;
        }
    }
    let mut claim = request.claim.map(|claim| ClaimOnSubmit { worker: claim.worker, number: claim.number });
    if let Some(ClaimOnSubmit { worker, .. }) = claim
        && call.workers().check(&call.principal, worker).await? == Existence::Unknown
    {
        // As of one that was declared dead: the jobs are submitted, and not claimed.
        claim = None;
    }
    let outcomes = call.store().submit(call.now()?, &jobs, claim).await?;
    if let Some(ClaimOnSubmit { worker, number }) = claim {
        let claimed = jobs.iter().zip(&outcomes).filter_map(|(job, outcome)| match outcome {
            SubmitOutcome::New { claimed: Some(epoch) } => Some((job, *epoch)),
            _ => None,
        });
        let claimed: Vec<_> = claimed
            .map(|(job, epoch): (&NewJob, Epoch)| job.claimed_at_submit(number, epoch, Default::default()))
            .collect();
        call.workers().claims.note(worker, number, &claimed);
    }
    call.workers().gates.poke();
    Ok(SubmitAnswer { outcomes: outcomes.into_iter().map(Into::into).collect() })
}

async fn deliver(call: Call, request: Deliver) -> Result<DeliverAnswer, Error> {
    check_count("signals", request.signals.len(), MAX_BATCH)?;
    let mut outcomes: Vec<Option<SignalOutcome>> = Vec::with_capacity(request.signals.len());
    let mut signals = Vec::with_capacity(request.signals.len());
    for signal in request.signals {
        let sees = call.sees_job(signal.job).await?;
        outcomes.push((!sees).then_some(SignalOutcome::Unknown));
        if sees {
            signals.push(signal.into());
        }
    }
    let delivered = call.store().signal(call.now()?, &signals).await?;
    outcomes.iter_mut().filter(|outcome| outcome.is_none()).zip(delivered).for_each(
        |(outcome, delivered)| {
            *outcome = Some(delivered);
        },
    );
    call.workers().gates.poke();
    Ok(DeliverAnswer { outcomes: outcomes.into_iter().flatten().map(Into::into).collect() })
}

async fn ends(call: Call, Ends { jobs }: Ends) -> Result<EndsAnswer, Error> {
    check_count("jobs", jobs.len(), MAX_NAMED)?;
    // The client asks again for those that are missing.
    let fitting = call.fitting(PayloadsOf::Outputs(&jobs), jobs.len()).await?;
    let jobs = &jobs[..fitting];
    let mut ends = call.store().job_ends(jobs).await?;
    for (job, end) in jobs.iter().zip(&mut ends) {
        if !call.sees_job(*job).await? {
            *end = Some(JobEnd::Gone);
        }
    }
    Ok(EndsAnswer { ends: ends.into_iter().map(|end| end.map(Into::into)).collect() })
}
