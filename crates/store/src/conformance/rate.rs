//! Rate limits: claims take what the bucket pays for, by rank, and report when to claim again.

use std::time::Duration;

use windlass_model::{ClaimedJob, NewJob, RateCharge, RateLimit, Time, WorkerId, rate::BucketLevel};

use super::kit::*;
use crate::{AdminAction, ClaimBatch, ClaimRequest, ControlOutcome, Error, JobAction};

/// Job `n`, charged to the limit `api`.
fn charged(n: u32, weight: u32) -> NewJob {
    let mut new = job(n);
    new.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight }));
    new
}

/// Jobs numbered from `from` that cost one token each.
fn charged_jobs(from: u32, count: u32) -> Vec<NewJob> {
    (from..from + count).map(|n| charged(n, 1)).collect()
}

/// The limit `api`: this many tokens in ten seconds, with a burst of the same size.
fn limit(tokens: u32) -> RateLimit {
    RateLimit::per("api", tokens, secs(10))
}

async fn claim_batch(store: &Handle, now: Time, worker: WorkerId, number: i64) -> ClaimBatch {
    store.claim(Some(now), &claim_request(worker, number, 99)).await.expect("claim")
}

async fn claim_jobs(store: &Handle, now: u64, worker: WorkerId, number: i64) -> Vec<ClaimedJob> {
    claim_batch(store, t(now), worker, number).await.jobs
}

pub async fn no_more_jobs_start_than_the_bucket_pays_for(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(5))).await;
    submit(&store, &charged_jobs(0, 60)).await;
    let mut starts = Vec::new();
    for second in 0..60 {
        let jobs = claim_jobs(&store, second, worker, second as i64 + 1).await;
        starts.extend(jobs.iter().map(|_| second));
    }
    for from in 0..60 {
        let window = starts.iter().filter(|at| (from..from + 10).contains(*at)).count();
        assert!(window <= 10, "{window} in the ten seconds from {from}: more than the burst and the refill");
    }
    assert_eq!(starts.len(), 5 + 59 / 2, "the refill is used completely");
}

pub async fn jobs_are_claimed_by_rank_and_heavy_ones_are_not_overtaken(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(4))).await;
    submit(&store, &[charged(1, 3), charged(2, 4), charged(3, 1), charged(4, 1)]).await;
    let urgent = NewJob { priority: -1, ..charged(9, 1) };
    submit(&store, &[urgent]).await;
    assert_eq!(ids(&claim_jobs(&store, 0, worker, 1).await), [9, 1].map(id));
    assert!(
        claim_jobs(&store, 9, worker, 2).await.is_empty(),
        "3.6 tokens do not pay for 4, and no later job overtakes"
    );
    assert_eq!(ids(&claim_jobs(&store, 10, worker, 3).await), [id(2)]);
    assert_eq!(ids(&claim_jobs(&store, 15, worker, 4).await), [3, 4].map(id));
}

pub async fn an_idle_bucket_fills_up_to_its_burst(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(5).burst(3))).await;
    submit(&store, &charged_jobs(0, 20)).await;
    assert_eq!(claim_jobs(&store, 0, worker, 1).await.len(), 3);
    assert_eq!(claim_jobs(&store, 900, worker, 2).await.len(), 3);
    assert!(claim_jobs(&store, 900, worker, 3).await.is_empty());
}

pub async fn refill_at_is_exact(store: Handle) {
    let worker = worker(&store, 1).await;
    let seven = RateLimit::per("api", 7, secs(10)).burst(4);
    administer(&store, 0, AdminAction::Limit(seven.clone())).await;
    submit(&store, &charged_jobs(0, 20)).await;
    let first = claim_batch(&store, t(0), worker, 1).await;
    assert_eq!(first.jobs.len(), 4);
    let empty = BucketLevel { units: 0, at: t(0) };
    let at = first.refill_at.expect("more wait");
    assert_eq!(at, empty.next_claim_at(&seven, 1), "half a bucket");
    assert_eq!(
        claim_batch(&store, Time(at.0 - 1), worker, 2).await.jobs.len(),
        1,
        "two only from that time on"
    );
    let second = claim_batch(&store, at, worker, 3).await;
    assert_eq!(second.jobs.len(), 1);
    let empty_bucket = claim_batch(&store, at, worker, 4).await;
    assert!(
        empty_bucket.jobs.is_empty() && empty_bucket.refill_at.is_some_and(|next| next > at),
        "{empty_bucket:?}"
    );
    let limited = store
        .claim(Some(at), &ClaimRequest { limit: 0, ..claim_request(worker, 5, 0) })
        .await
        .expect("claim");
    assert_eq!(limited.refill_at, None, "a request for no jobs waits for no tokens");
}

pub async fn jobs_without_a_limit_are_claimed_while_a_bucket_is_empty(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(2))).await;
    submit(&store, &[charged(1, 1), job(2), charged(3, 1), charged(4, 1), job(5), job(6)]).await;
    let first = claim_batch(&store, t(0), worker, 1).await;
    assert_eq!(ids(&first.jobs), [1, 2, 3, 5, 6].map(id));
    assert!(first.refill_at.is_some() && !first.suspects);
    submit(&store, &[job(7)]).await;
    let four = store.claim(at(0), &claim_request(worker, 2, 1)).await.expect("claim");
    assert_eq!(ids(&four.jobs), [id(7)]);
    assert_eq!(ids(&claim_jobs(&store, 5, worker, 3).await), [id(4)]);
    assert_eq!(claim_batch(&store, t(5), worker, 4).await.refill_at, None, "nothing waits");
}

pub async fn a_bucket_is_shared_by_queues_and_kinds(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(3))).await;
    let in_other_queue = NewJob { queue: "bulk".into(), ..charged(2, 1) };
    let other = NewJob { kind: kind("other", 2), ..charged(3, 2) };
    submit(&store, &[charged(1, 1), in_other_queue, other, charged(4, 1)]).await;
    let both =
        ClaimRequest { kinds: [kind(KIND, 1), kind("other", 2)].into(), ..claim_request(worker, 1, 9) };
    assert_eq!(ids(&claim(&store, at(0), &both).await), [1, 3].map(id), "by rank over both kinds");
    let other_queue = ClaimRequest { queue: "bulk".into(), ..claim_request(worker, 2, 9) };
    let empty_bucket = store.claim(at(0), &other_queue).await.expect("claim");
    assert!(empty_bucket.jobs.is_empty() && empty_bucket.refill_at.is_some());
    let only_other = ClaimRequest { kinds: [kind("other", 2)].into(), ..claim_request(worker, 3, 9) };
    assert_eq!(
        store.claim(at(0), &only_other).await.expect("claim").refill_at,
        None,
        "no job of this kind waits"
    );
}

pub async fn a_changed_limit_applies_at_once(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(2))).await;
    submit(&store, &charged_jobs(0, 20)).await;
    assert_eq!(claim_jobs(&store, 0, worker, 1).await.len(), 2);
    let before = gates(&store, &[QUEUE, "bulk"]).await;
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 4, secs(1)).burst(8))).await;
    let after = gates(&store, &[QUEUE, "bulk"]).await;
    assert!(after[0] != before[0] && after[1] == before[1], "workers that wait may claim again");
    assert!(claim_jobs(&store, 0, worker, 2).await.is_empty(), "as many tokens as before");
    assert_eq!(claim_jobs(&store, 1, worker, 3).await.len(), 4);
    administer(&store, 3, AdminAction::Limit(limit(1))).await;
    assert_eq!(claim_jobs(&store, 3, worker, 4).await.len(), 1, "no more than the new burst");
}

pub async fn a_lifted_limit_charges_nothing_until_it_is_set_again(store: Handle) {
    let worker = worker(&store, 1).await;
    let lift = AdminAction::Lift("api".into());
    let outcome = store.control().administer(at(0), &lift, &actor()).await.expect("administer");
    assert_eq!(outcome, ControlOutcome::Unknown);
    administer(&store, 0, AdminAction::Limit(limit(1))).await;
    submit(&store, &charged_jobs(0, 5)).await;
    assert_eq!(claim_jobs(&store, 0, worker, 1).await.len(), 1);
    let before = gates(&store, &[QUEUE]).await;
    administer(&store, 1, lift.clone()).await;
    assert_ne!(gates(&store, &[QUEUE]).await, before);
    let again = store.control().administer(at(1), &lift, &actor()).await.expect("administer");
    assert!(matches!(again, ControlOutcome::Already(_)), "{again:?}");
    let hold = holds(&store, 4).await.rate.expect("it is charged");
    assert_eq!((hold.limit, hold.name.as_str(), hold.weight), (None, "api", 1));
    assert_eq!(claim_jobs(&store, 1, worker, 2).await.len(), 4);
    submit(&store, &[charged(10, 900)]).await;
    assert_eq!(claim_jobs(&store, 1, worker, 3).await.len(), 1, "whatever its weight");
    administer(&store, 2, AdminAction::Limit(limit(1))).await;
    submit(&store, &charged_jobs(20, 3)).await;
    assert_eq!(claim_jobs(&store, 100, worker, 4).await.len(), 1);
    let shown = store.inspect().rate_limits().await.expect("limits");
    assert_eq!((shown.len(), &shown[0].limit, shown[0].lifted, shown[0].waiting), (1, &limit(1), false, 2));
}

pub async fn an_unknown_limit_and_a_weight_above_the_burst_are_refused(store: Handle) {
    let refused = async |job: NewJob, text: &str| {
        let error = store.submit(at(0), &[super::kit::job(9), job], None).await.expect_err(text);
        assert!(matches!(&error, Error::Invalid(_)) && error.to_string().contains(text), "{error}");
    };
    refused(charged(1, 1), "does not exist").await;
    administer(&store, 0, AdminAction::Limit(limit(5))).await;
    refused(charged(1, 6), "burst of 5").await;
    assert!(list(&store, all_jobs()).await.is_empty(), "one refused job refuses the call");
    submit(&store, &[charged(1, 5)]).await;
}

pub async fn a_job_heavier_than_a_lowered_burst_starts_when_the_bucket_is_full(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(5))).await;
    submit(&store, &[charged(1, 5), charged(2, 5)]).await;
    administer(&store, 0, AdminAction::Limit(limit(5).burst(2))).await;
    assert_eq!(ids(&claim_jobs(&store, 0, worker, 1).await), [id(1)]);
    assert!(claim_jobs(&store, 3, worker, 2).await.is_empty());
    assert_eq!(ids(&claim_jobs(&store, 4, worker, 3).await), [id(2)]);
}

pub async fn a_repeated_claim_is_charged_once_and_every_new_start_again(store: Handle) {
    let worker = worker(&store, 1).await;
    administer(&store, 0, AdminAction::Limit(limit(2))).await;
    submit(&store, &charged_jobs(1, 2)).await;
    let one = ClaimRequest { limit: 1, ..claim_request(worker, 1, 1) };
    let first = claim(&store, at(0), &one).await;
    assert_eq!(ids(&claim(&store, at(0), &one).await), ids(&first));
    store.release(at(0), &[job_claim(worker, &first[0])]).await.expect("release");
    assert_eq!(claim_jobs(&store, 0, worker, 2).await.len(), 1, "one token was left");
    assert_eq!(claim_jobs(&store, 5, worker, 3).await.len(), 1);
}

pub async fn suspects_are_charged_too(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    administer(&store, 0, AdminAction::Limit(limit(1))).await;
    submit(&store, &charged_jobs(1, 1)).await;
    assert_eq!(claim_jobs(&store, 0, one, 1).await.len(), 1);
    reap(&store, 1, one).await;
    let batch = claim_batch(&store, t(1), two, 1).await;
    assert!(batch.suspects && batch.jobs.is_empty(), "{batch:?}");
    let empty_bucket = store.claim(at(1), &solo_claim_request(two, 2)).await.expect("claim");
    assert!(empty_bucket.jobs.is_empty() && empty_bucket.refill_at == Some(t(10)), "{empty_bucket:?}");
    assert_eq!(ids(&claim(&store, at(10), &solo_claim_request(two, 3)).await), [id(1)]);
}

pub async fn limits_set_by_one_handle_apply_to_others(store: Handle) {
    let worker = worker(&store, 1).await;
    let other = store.sibling().await.expect("sibling");
    assert!(
        claim_jobs(&store, 0, worker, 1).await.is_empty(),
        "this handle now knows the lane of the kind without a limit"
    );
    administer(&other, 0, AdminAction::Limit(limit(3))).await;
    submit(&other, &charged_jobs(1, 2)).await;
    assert_eq!(claim_jobs(&store, 0, worker, 2).await.len(), 2);
    let another = RateLimit { name: "mail".into(), ..limit(1) };
    administer(&other, 0, AdminAction::Limit(another)).await;
    let mut mail = charged(5, 1);
    mail.settings.rate.as_mut().expect("it is charged").limit = "mail".into();
    submit(&other, &[mail]).await;
    assert_eq!(ids(&claim_jobs(&store, 0, worker, 3).await), [id(5)]);
}

pub async fn holds_report_the_limit_of_a_throttled_job(store: Handle) {
    administer(&store, 0, AdminAction::Limit(limit(3))).await;
    submit(&store, &[charged(1, 2), job(2)]).await;
    let hold = holds(&store, 1).await.rate.expect("it is charged");
    assert_eq!((hold.limit, hold.name.as_str(), hold.weight), (Some(limit(3)), "api", 2));
    assert_eq!(holds(&store, 2).await.rate, None);
    assert_eq!(act_on_job(&store, 1, 1, JobAction::Pause).await, ControlOutcome::Done);
    let shown = store.inspect().rate_limits().await.expect("limits");
    assert_eq!(shown[0].waiting, 0, "it is held by the pause, not by the limit");
    assert_eq!(shown[0].limit.per, Duration::from_secs(10));
}
