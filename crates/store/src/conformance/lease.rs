//! Workers: registering, renewing leases, releasing jobs, retiring.

use windlass_model::{
    ClaimNo, CommitOutcome, Epoch, JobClaim, NewJob, Progress, ProgressReport, Rev, State, WorkerId,
};

use super::kit::*;
use crate::{Error, RenewRequest, Renewal};

pub async fn a_worker_is_registered_once(store: Handle) {
    let one = worker(&store, 1).await;
    assert!(!store.register_worker(at(5), &new_worker(1)).await.expect("register"));
    let workers = store.inspect().workers().await.expect("workers");
    assert_eq!((workers.len(), workers[0].lease_until), (1, t(0) + LEASE), "the first keeps its lease");
    reap(&store, 6, one).await;
    assert!(
        !store.register_worker(at(7), &new_worker(1)).await.expect("register"),
        "also not after its death"
    );
    assert_eq!(renew(&store, 8, one).await, Renewal::Lost);
}

pub async fn a_renewal_extends_the_lease(store: Handle) {
    let one = worker(&store, 1).await;
    assert_eq!(reports_lapsed(&renew(&store, 100, one).await), Some(false));
    let workers = store.inspect().workers().await.expect("workers");
    assert_eq!((workers[0].lease_until, workers[0].alive), (t(100) + LEASE, true));
    let short = RenewRequest { lease: secs(3), ..renew_request(one) };
    assert_eq!(reports_lapsed(&store.renew(at(101), &short).await.expect("renew")), Some(false));
    let workers = store.inspect().workers().await.expect("workers");
    assert_eq!(workers[0].lease_until, t(104), "the lease that the worker requests");
    assert_eq!(reports_lapsed(&renew(&store, 500, one).await), Some(false), "late, but it was not reaped");
    assert_eq!(renew(&store, 500, WorkerId(99)).await, Renewal::Lost);
}

pub async fn a_renewal_keeps_what_attempts_report(store: Handle) {
    let (one, job) = running_job(&store, 1).await;
    let shown = async || store.inspect().job(job.id).await.expect("read").expect("a job").progress;
    assert_eq!(shown().await, None);
    let progress = Progress::new(412, Some(5_000), "page 3 of \"a\u{0}b\"", t(1));
    let report = ProgressReport { job: job.id, epoch: job.epoch, progress: progress.clone() };
    let reporting = RenewRequest { progress: Some(vec![report.clone()]), ..renew_request(one) };
    store.renew(at(1), &reporting).await.expect("renew");
    assert_eq!(shown().await, Some(progress.clone()));
    renew(&store, 2, one).await;
    assert_eq!(shown().await, Some(progress), "a renewal without reports changes nothing");
    let outdated = ProgressReport { epoch: Epoch(job.epoch.0 - 1), ..report };
    let reporting = RenewRequest { progress: Some(vec![outdated]), ..renew_request(one) };
    store.renew(at(3), &reporting).await.expect("renew");
    assert_eq!(shown().await, None, "the report of another claim says nothing about this one");
    store
        .renew(at(4), &RenewRequest { progress: Some(Vec::new()), ..renew_request(one) })
        .await
        .expect("renew");
    assert_eq!(shown().await, None);
}

pub async fn a_renewal_reports_that_other_leases_have_lapsed(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    assert_eq!(reports_lapsed(&renew(&store, 500, one).await), Some(false));
    let end = LEASE.as_secs();
    assert_eq!(reports_lapsed(&renew(&store, end - 1, one).await), Some(false));
    assert_eq!(reports_lapsed(&renew(&store, end, one).await), Some(true));
    reap(&store, end, two).await;
    assert_eq!(reports_lapsed(&renew(&store, end, one).await), Some(false), "no lapsed worker is left");
    let three = worker(&store, 3).await;
    store.retire_worker(at(end), three).await.expect("retire");
    assert_eq!(
        reports_lapsed(&renew(&store, end + 1, one).await),
        Some(false),
        "a retired worker does not count"
    );
}

pub async fn a_dead_worker_stays_dead(store: Handle) {
    let (one, job) = running_job(&store, 1).await;
    reap(&store, 1, one).await;
    for now in [1, 2, 3] {
        assert_eq!(renew(&store, now, one).await, Renewal::Lost);
        assert!(matches!(store.claim(at(now), &claim_request(one, 2, 1)).await, Err(Error::Dead)));
    }
    assert_eq!(commit(&store, 4, change(one, &job, done("x"))).await, CommitOutcome::Fenced);
    let workers = store.inspect().workers().await.expect("workers");
    assert!(!workers[0].alive);
}

pub async fn a_released_job_keeps_its_rank(store: Handle) {
    let one = worker(&store, 1).await;
    let batch = [job(1), NewJob { priority: -2, ..job(2) }, job(3)];
    submit(&store, &batch).await;
    let claimed = claim(&store, at(1), &claim_request(one, 1, 2)).await;
    assert_eq!(ids(&claimed), [id(2), id(1)]);
    let claims: Vec<_> = claimed.iter().map(|job| job_claim(one, job)).collect();
    assert_eq!(store.release(at(50), &claims).await.expect("release"), 2);
    let kept = view(&store, id(2)).await;
    assert_eq!((kept.summary.state, kept.epoch, kept.rev), (State::Ready, Epoch(1), Rev(0)));
    assert_eq!((kept.summary.due_at, kept.summary.attempts, kept.worker_deaths), (t(0), 0, 0));
    assert!(history(&store, id(2)).await.is_empty());
    let batch = store.claim(at(51), &claim_request(one, 2, 9)).await.expect("claim");
    assert_eq!((ids(&batch.jobs), batch.suspects), (vec![id(2), id(1), id(3)], false));
}

pub async fn a_release_skips_outdated_claims(store: Handle) {
    let one = worker(&store, 1).await;
    submit(&store, &jobs(1, 4)).await;
    let claimed = claim(&store, at(0), &claim_request(one, 1, 4)).await;
    apply(&store, 1, change(one, &claimed[0], done("x"))).await;
    apply(&store, 1, change(one, &claimed[1], retry(secs(50), &[]))).await;
    let mut claims: Vec<_> = claimed.iter().map(|job| job_claim(one, job)).collect();
    claims.push(JobClaim { job: id(99), ..claims[0] });
    assert_eq!(store.release(at(2), &claims).await.expect("release"), 2);
    assert_eq!(store.release(at(3), &claims).await.expect("release"), 0, "none when repeated");
    let mut states = Vec::new();
    for n in 1..=4 {
        states.push(state(&store, id(n)).await);
    }
    assert_eq!(states, [State::Done, State::Scheduled, State::Ready, State::Ready]);
    assert_eq!(view(&store, id(3)).await.epoch, Epoch(1));
    let later_epoch = [JobClaim { epoch: Epoch(9), ..claims[2] }];
    assert_eq!(store.release(at(3), &later_epoch).await.expect("release"), 0);
    assert_eq!(store.release(at(3), &[]).await.expect("release"), 0);
}

pub async fn a_released_suspect_stays_a_suspect(store: Handle) {
    let (one, _) = running_job(&store, 1).await;
    reap(&store, 1, one).await;
    let two = worker(&store, 2).await;
    let suspect = claim(&store, at(1), &solo_claim_request(two, 1)).await.remove(0);
    store.release(at(2), &[job_claim(two, &suspect)]).await.expect("release");
    let batch = store.claim(at(2), &claim_request(two, 2, 9)).await.expect("claim");
    assert!(batch.jobs.is_empty() && batch.suspects);
    assert_eq!(view(&store, id(1)).await.worker_deaths, 1);
}

pub async fn retiring_a_worker_returns_its_jobs_without_counting_attempts(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &jobs(1, 6)).await;
    let first = claim(&store, at(0), &claim_request(one, 1, 2)).await;
    claim(&store, at(0), &claim_request(one, 2, 2)).await;
    claim(&store, at(0), &claim_request(two, 1, 1)).await;
    apply(&store, 1, change(one, &first[0], done("x"))).await;
    assert_eq!(store.retire_worker(at(2), one).await.expect("retire"), 3);
    for n in 2..=4 {
        let kept = view(&store, id(n)).await;
        assert_eq!((kept.summary.state, kept.epoch), (State::Ready, Epoch(1)), "job {n}");
        assert_eq!((kept.summary.attempts, kept.worker_deaths, kept.worker), (0, 0, None), "job {n}");
        assert!(history(&store, id(n)).await.is_empty());
    }
    assert_eq!((state(&store, id(1)).await, state(&store, id(5)).await), (State::Done, State::Running));
    assert_eq!(claim_count(&store, one).await, 0);
    let batch = store.claim(at(3), &claim_request(two, 2, 9)).await.expect("claim");
    assert_eq!((ids(&batch.jobs), batch.suspects), ([2, 3, 4, 6].map(id).to_vec(), false));
    assert!(matches!(store.claim(at(3), &claim_request(one, 3, 1)).await, Err(Error::Dead)));
    assert_eq!(renew(&store, 3, one).await, Renewal::Lost);
}

pub async fn retiring_twice_or_an_unknown_worker_returns_no_jobs(store: Handle) {
    let (one, _) = running_job(&store, 1).await;
    assert_eq!(store.retire_worker(at(1), one).await.expect("retire"), 1);
    assert_eq!(store.retire_worker(at(1), one).await.expect("retire"), 0);
    assert_eq!(store.retire_worker(at(1), WorkerId(99)).await.expect("retire"), 0);
    let two = worker(&store, 2).await;
    claim_one(&store, 1, two, 1).await;
    reap(&store, 2, two).await;
    assert_eq!(store.retire_worker(at(3), two).await.expect("retire"), 0, "it was reaped before");
    assert_eq!(view(&store, id(1)).await.epoch, Epoch(2));
}

pub async fn a_renewal_settles_claims(store: Handle) {
    let one = worker(&store, 1).await;
    submit(&store, &jobs(1, 3)).await;
    for number in 1..=3 {
        let job = claim_one(&store, 0, one, number).await;
        apply(&store, 1, change(one, &job, done("x"))).await;
    }
    assert_eq!(claim_count(&store, one).await, 3);
    let settling = RenewRequest { settled: vec![ClaimNo(1), ClaimNo(3), ClaimNo(9)], ..renew_request(one) };
    assert_eq!(reports_lapsed(&store.renew(at(2), &settling).await.expect("renew")), Some(false));
    assert_eq!(claim_count(&store, one).await, 1);
}

pub async fn a_renewal_lists_open_claims_which_can_be_released_by_number(store: Handle) {
    let one = worker(&store, 1).await;
    submit(&store, &jobs(1, 3)).await;
    for number in 1..=3 {
        claim_one(&store, 0, one, number).await;
    }
    let Renewal::Held { claims, .. } = renew(&store, 1, one).await else { panic!("the lease is held") };
    assert_eq!(claims, [ClaimNo(1), ClaimNo(2), ClaimNo(3)]);
    let unknown = [ClaimNo(2), ClaimNo(3), ClaimNo(9)];
    assert_eq!(store.release_claims(at(2), one, &unknown).await.expect("release"), 2);
    assert_eq!(store.release_claims(at(2), one, &unknown).await.expect("release"), 0);
    let states = [view(&store, id(1)).await, view(&store, id(2)).await, view(&store, id(3)).await];
    let states = states.map(|job| (job.summary.state, job.epoch.0, job.summary.attempts));
    assert_eq!(states, [(State::Running, 0, 0), (State::Ready, 1, 0), (State::Ready, 1, 0)]);
    let Renewal::Held { claims, .. } = renew(&store, 3, one).await else { panic!("the lease is held") };
    assert_eq!(claims, [ClaimNo(1)]);
}

pub async fn a_renewal_can_end_the_solo_run_of_a_claim(store: Handle) {
    let (one, _) = running_job(&store, 1).await;
    reap(&store, 1, one).await;
    let two = worker(&store, 2).await;
    claim(&store, at(1), &solo_claim_request(two, 7)).await;
    let ended = RenewRequest { solo_ended: vec![ClaimNo(7)], ..renew_request(two) };
    assert_eq!(reports_lapsed(&store.renew(at(2), &ended).await.expect("renew")), Some(false));
    reap(&store, 3, two).await;
    let kept = view(&store, id(1)).await;
    assert_eq!(
        (kept.worker_deaths, kept.solo_crashes),
        (2, 0),
        "its solo run had ended, so the death counts as no crash"
    );
}
