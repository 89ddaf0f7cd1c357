//! Stage updates by people: a machine gets another version, stage and data.

use windlass_model::{CommitOutcome, Epoch, JobId, Outcome, Payload, Reason, Rev, State};

use super::kit::*;
use crate::{AuditFilter, ClaimRequest, ControlOutcome, Error, JobAction, StageUpdate};

/// An update of job `n` as it is now to another version and stage.
async fn current_update(store: &Handle, n: u32, version: i32, stage: &str) -> StageUpdate {
    let seen = view(store, id(n)).await;
    update_of(id(n), (seen.epoch, seen.rev), version, stage)
}

fn update_of(job: JobId, (epoch, rev): (Epoch, Rev), version: i32, stage: &str) -> StageUpdate {
    StageUpdate { job, epoch, rev, version, stage: stage.to_owned(), data: payload("given") }
}

async fn update(store: &Handle, now: u64, update: StageUpdate) -> ControlOutcome {
    let outcomes = store.control().update_stages(at(now), &[update], &actor()).await.expect("update stages");
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().next().expect("one")
}

/// A request for one version of the default kind.
fn of_version(request: ClaimRequest, version: i32) -> ClaimRequest {
    ClaimRequest { kinds: [kind(KIND, version)].into(), ..request }
}

pub async fn a_ready_machine_is_claimed_in_its_new_version(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &[machine(1, "Begin"), machine(2, "Begin")]).await;
    let before = gates(&store, &[QUEUE]).await;
    assert_eq!(update(&store, 1, current_update(&store, 1, 7, "Other").await).await, ControlOutcome::Done);
    assert_ne!(gates(&store, &[QUEUE]).await, before, "workers that serve the new version claim again");
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.version, seen.summary.stage.as_deref()), (7, Some("Other")));
    assert_eq!((seen.epoch, seen.rev, seen.summary.state), (Epoch(1), Rev(0), State::Ready));
    assert_eq!(ids(&claim(&store, at(2), &claim_request(me, 1, 9)).await), [id(2)]);
    let claimed = claim(&store, at(2), &of_version(claim_request(me, 2, 9), 7)).await;
    assert_eq!(ids(&claimed), [id(1)]);
    let job = &claimed[0];
    assert_eq!(
        (job.kind.version, job.stage.as_deref(), &job.data),
        (7, Some("Other"), &Some(payload("given")))
    );
    assert_eq!(commit(&store, 3, change(me, job, done("x"))).await, CommitOutcome::Committed);
}

pub async fn other_handles_claim_a_machine_in_its_new_version(store: Handle) {
    let other = store.sibling().await.expect("sibling");
    let me = worker(&store, 1).await;
    submit(&store, &[machine(1, "Begin")]).await;
    assert_eq!(claim(&other, at(0), &of_version(claim_request(me, 1, 9), 3)).await.len(), 0);
    assert_eq!(update(&store, 1, current_update(&store, 1, 3, "Other").await).await, ControlOutcome::Done);
    assert_eq!(claim(&other, at(1), &of_version(claim_request(me, 2, 9), 3)).await.len(), 1);
}

pub async fn a_parked_machine_stays_parked_and_wakes_in_its_new_version(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    apply(&store, 1, change(me, &job, wait_for_signal("go", Some(secs(50))))).await;
    assert_eq!(update(&store, 2, current_update(&store, 1, 2, "Other").await).await, ControlOutcome::Done);
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.summary.state, seen.wait_until), (State::Waiting, Some(t(51))));
    send(&store, 3, &[signal(id(1), "go", "1", "x")]).await;
    assert!(claim(&store, at(3), &claim_request(me, 2, 9)).await.is_empty());
    let claimed = claim(&store, at(3), &of_version(claim_request(me, 3, 9), 2)).await;
    assert_eq!((claimed.len(), texts(&selected_signals(&claimed[0]))), (1, vec!["x".to_owned()]));
}

pub async fn a_machine_that_is_in_line_paused_or_scheduled_stays_so(store: Handle) {
    let me = worker(&store, 1).await;
    let later = windlass_model::NewJob { when: windlass_model::When::At(t(20)), ..machine(4, "Begin") };
    submit(&store, &[serial_job(1, "k"), serial_job(2, "k"), machine(3, "Begin"), later]).await;
    must_act(&store, 0, 3, JobAction::Pause).await;
    let first = claim_one(&store, 0, me, 1).await;
    for (n, state) in [(2, State::Ready), (3, State::Ready), (4, State::Scheduled)] {
        assert_eq!(
            update(&store, 1, current_update(&store, n, 2, "Other").await).await,
            ControlOutcome::Done
        );
        assert_eq!(view(&store, id(n)).await.summary.state, state, "{n}");
    }
    let request = |number| of_version(claim_request(me, number, 9), 2);
    assert!(claim(&store, at(2), &request(2)).await.is_empty(), "they are in line, held and scheduled");
    apply(&store, 3, change(me, &first, done("x"))).await;
    assert_eq!(ids(&claim(&store, at(3), &request(3)).await), [id(2)]);
    must_act(&store, 4, 3, JobAction::Resume).await;
    assert_eq!(ids(&claim(&store, at(4), &request(4)).await), [id(3)]);
    fire_timers(&store, 20, 9).await;
    assert_eq!(ids(&claim(&store, at(20), &request(5)).await), [id(4)]);
}

pub async fn a_failed_machine_can_be_updated_and_retried(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    apply(&store, 1, change(me, &job, failed(Reason::Undecodable))).await;
    assert_eq!(update(&store, 2, current_update(&store, 1, 2, "Other").await).await, ControlOutcome::Done);
    assert_eq!(state(&store, id(1)).await, State::Failed, "its state is unchanged");
    assert_eq!(act_on_job(&store, 3, 1, JobAction::Retry).await, ControlOutcome::Done);
    let claimed = claim(&store, at(3), &of_version(claim_request(me, 2, 9), 2)).await;
    assert_eq!(claimed[0].stage.as_deref(), Some("Other"));
}

pub async fn a_running_done_or_changed_machine_is_not_updated(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let refused = |outcome: ControlOutcome, text: &str| {
        assert!(
            matches!(&outcome, ControlOutcome::Refused(why) if why.contains(text)),
            "{outcome:?} lacks {text:?}"
        );
    };
    refused(update(&store, 1, current_update(&store, 1, 2, "Other").await).await, "it runs");
    let seen = current_update(&store, 1, 2, "Other").await;
    apply(&store, 2, change(me, &job, Outcome::Wait(windlass_model::Wait::YIELD))).await;
    refused(update(&store, 3, seen).await, "read it again");
    assert_eq!(view(&store, id(1)).await.summary.version, 1);
    let again = claim_one(&store, 3, me, 2).await;
    apply(&store, 4, change(me, &again, done("x"))).await;
    refused(update(&store, 5, current_update(&store, 1, 2, "Other").await).await, "done");
    assert_eq!(
        update(&store, 5, update_of(id(9), (Epoch(0), Rev(0)), 2, "Other")).await,
        ControlOutcome::Unknown
    );
    let audit = store.inspect().audit(&AuditFilter::default()).await.expect("audit");
    assert!(audit.is_empty(), "refused updates are not in it");
}

pub async fn a_stage_update_is_in_the_audit_log(store: Handle) {
    submit(&store, &[machine(1, "Begin")]).await;
    let _ = update(&store, 7, current_update(&store, 1, 2, "Other").await).await;
    let audit = store.inspect().audit(&AuditFilter::default()).await.expect("audit");
    assert_eq!((audit.len(), audit[0].at, audit[0].author.as_str()), (1, t(7), "someone"));
    assert_eq!(
        (audit[0].action.as_str(), &audit[0].subject),
        ("update stage to Other of version 2", &id(1).to_string())
    );
}

pub async fn an_invalid_stage_update_refuses_the_call(store: Handle) {
    submit(&store, &[machine(1, "Begin"), machine(2, "Begin")]).await;
    let valid = current_update(&store, 1, 2, "Other").await;
    let large = Payload::json(vec![b'1'; store.limits().payload + 1]);
    for bad in [
        current_update(&store, 2, 0, "Other").await,
        current_update(&store, 2, 2, "").await,
        StageUpdate { data: large, ..current_update(&store, 2, 2, "Other").await },
    ] {
        let refused = store.control().update_stages(at(1), &[valid.clone(), bad], &actor()).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(view(&store, id(1)).await.summary.version, 1);
}
