//! Schedules: each tick fires once, and policies decide about missed and overlapping ticks.

use std::time::Duration;

use windlass_model::{
    Calendar, JobId, KindVersion, RateLimit, Schedule, State, Time,
    calendar::{CatchUp, Overlap, Unit},
};

use super::kit::*;
use crate::{Actor, AdminAction, ControlOutcome, JobAction};

/// A schedule that fires every ten seconds.
fn every_ten(name: &str) -> Schedule {
    let calendar = Calendar::every(10, Unit::Seconds).expect("a calendar");
    let kind = KindVersion { kind: KIND.into(), version: 1 };
    let mut schedule = Schedule::new(name, calendar, kind, payload("7"));
    schedule.queue = QUEUE.into();
    schedule.overlap = Overlap::Allow;
    schedule
}

async fn administer(store: &Handle, now: u64, action: AdminAction) -> ControlOutcome {
    store.control().administer(at(now), &action, &Actor::new("someone")).await.expect("administer")
}

async fn set_schedule(store: &Handle, now: u64, schedule: Schedule) -> ControlOutcome {
    administer(store, now, AdminAction::Schedule(Box::new(schedule))).await
}

async fn fire(store: &Handle, now: u64) -> usize {
    store.fire_timers(at(now), 1_000).await.expect("timers").fired
}

/// The ticks that fired, oldest first, in seconds after [`BEGIN`], with their jobs.
async fn firings(store: &Handle, name: &str) -> Vec<(u64, JobId)> {
    let mut firings = store.inspect().firings(name, 1_000).await.expect("firings");
    firings.reverse();
    firings.into_iter().map(|firing| ((firing.tick - BEGIN).as_secs(), firing.job)).collect()
}

async fn ticks(store: &Handle, name: &str) -> Vec<u64> {
    firings(store, name).await.into_iter().map(|(tick, _)| tick).collect()
}

pub async fn a_tick_fires_once_and_the_next_is_reported(store: Handle) {
    assert_eq!(set_schedule(&store, 1, every_ten("a")).await, ControlOutcome::Done);
    let due = store.fire_timers(at(9), 10).await.expect("timers");
    assert_eq!((due.fired, due.next_at), (0, Some(t(10))));
    let due = store.fire_timers(at(10), 10).await.expect("timers");
    assert_eq!((due.fired, due.next_at), (1, Some(t(20))));
    assert_eq!(fire(&store, 10).await, 0, "a tick fires once");
    assert_eq!(fire(&store, 21).await, 1);
    assert_eq!(ticks(&store, "a").await, [10, 20]);
    let (_, id) = firings(&store, "a").await[0];
    let job = view(&store, id).await;
    assert_eq!((job.summary.state, job.settings.tick), (State::Ready, Some(t(10))));
    assert_eq!(job.input, payload("7"));
    let view = &store.inspect().schedules().await.expect("schedules")[0];
    assert_eq!((view.next_at, view.last_job), (Some(t(30)), Some(firings(&store, "a").await[1].1)));
}

pub async fn missed_ticks_are_caught_up_according_to_the_policy(store: Handle) {
    let with_catch_up = |name: &str, catch_up| Schedule { catch_up, ..every_ten(name) };
    let window = |seconds| CatchUp::All { window: Duration::from_secs(seconds) };
    let _ = set_schedule(&store, 0, with_catch_up("all", window(3_600))).await;
    let _ = set_schedule(&store, 0, with_catch_up("some", window(100))).await;
    let _ = set_schedule(&store, 0, with_catch_up("one", CatchUp::One)).await;
    let _ = set_schedule(&store, 0, with_catch_up("skip", CatchUp::Skip)).await;
    assert_eq!(fire(&store, 305).await, 30 + 10 + 1 + 6);
    assert_eq!(ticks(&store, "all").await.len(), 30);
    assert_eq!(ticks(&store, "some").await, (21..=30).map(|n| n * 10).collect::<Vec<_>>());
    assert_eq!(ticks(&store, "one").await, [300]);
    assert_eq!(ticks(&store, "skip").await, [250, 260, 270, 280, 290, 300]);
    let missed = store.inspect().misses("one", 10).await.expect("misses");
    assert_eq!(missed.len(), 1, "one record for all");
    assert_eq!((missed[0].missed.from, missed[0].missed.to, missed[0].missed.count), (t(10), t(290), 29));
    assert!(store.inspect().misses("all", 10).await.expect("misses").is_empty());
    // After a year without workers, one call catches up, with one record of missed ticks.
    let year = 365 * 86_400;
    assert_eq!(fire(&store, year).await, 100 + 11 + 1 + 7, "at most 100 for the first");
    assert_eq!(store.inspect().misses("one", 10).await.expect("misses").len(), 2);
}

pub async fn overlap_skip_omits_ticks_while_the_last_job_is_live(store: Handle) {
    let holder = worker(&store, 1).await;
    let _ = set_schedule(&store, 0, Schedule { overlap: Overlap::Skip, ..every_ten("a") }).await;
    assert_eq!(fire(&store, 10).await, 1);
    assert_eq!((fire(&store, 20).await, fire(&store, 30).await), (0, 0));
    let missed = store.inspect().misses("a", 10).await.expect("misses");
    assert_eq!(missed.len(), 1, "both in one record");
    assert_eq!((missed[0].missed.from, missed[0].missed.to, missed[0].missed.count), (t(20), t(30), 2));
    assert!(missed[0].why.contains("had not ended"));
    let job = claim_one(&store, 31, holder, 1).await;
    apply(&store, 32, change(holder, &job, done("x"))).await;
    assert_eq!(fire(&store, 40).await, 1);
    assert_eq!(fire(&store, 50).await, 0);
    assert_eq!(
        store.inspect().misses("a", 10).await.expect("misses").len(),
        2,
        "another gap, another record"
    );
    assert_eq!(ticks(&store, "a").await, [10, 40]);
}

pub async fn overlap_queue_runs_jobs_one_after_the_other(store: Handle) {
    let holder = worker(&store, 1).await;
    let _ = set_schedule(&store, 0, Schedule { overlap: Overlap::Queue, ..every_ten("a") }).await;
    for now in [10, 20, 30] {
        assert_eq!(fire(&store, now).await, 1);
    }
    let mut order = Vec::new();
    for number in 1..=3 {
        let jobs = claim(&store, at(40), &claim_request(holder, number, 9)).await;
        assert_eq!(jobs.len(), 1, "one at a time");
        order.push(jobs[0].settings.tick.expect("a tick"));
        apply(&store, 41, change(holder, &jobs[0], done("x"))).await;
    }
    assert_eq!(order, [t(10), t(20), t(30)]);
}

pub async fn overlap_cancel_previous_cancels_the_previous_job(store: Handle) {
    let holder = worker(&store, 1).await;
    let _ = set_schedule(&store, 0, Schedule { overlap: Overlap::CancelPrevious, ..every_ten("a") }).await;
    fire(&store, 10).await;
    fire(&store, 20).await;
    let jobs = firings(&store, "a").await;
    assert_eq!(state(&store, jobs[0].1).await, State::Cancelled);
    assert_eq!(claim_one(&store, 21, holder, 1).await.id, jobs[1].1);
    fire(&store, 30).await;
    assert_eq!(state(&store, jobs[1].1).await, State::Running, "a cancel was requested, with a grace period");
    assert_eq!(store.cancel_requests(holder).await.expect("cancel requests").len(), 1);
    let due = store.fire_timers(at(41), 10).await.expect("timers");
    assert_eq!(due.cancelled, 1);
    assert_eq!(state(&store, jobs[1].1).await, State::Cancelled);
}

pub async fn a_paused_schedule_fires_nothing_and_catches_nothing_up(store: Handle) {
    let _ = set_schedule(
        &store,
        0,
        Schedule { catch_up: CatchUp::All { window: secs(3_600) }, ..every_ten("a") },
    )
    .await;
    assert_eq!(administer(&store, 5, AdminAction::PauseSchedule("a".into())).await, ControlOutcome::Done);
    assert!(matches!(
        administer(&store, 6, AdminAction::PauseSchedule("a".into())).await,
        ControlOutcome::Already(_)
    ));
    let due = store.fire_timers(at(50), 10).await.expect("timers");
    assert_eq!((due.fired, due.next_at), (0, None));
    let view = store.inspect().schedules().await.expect("schedules").remove(0);
    assert_eq!((view.next_at, view.paused.expect("paused").author.as_str()), (None, "someone"));
    assert_eq!(administer(&store, 55, AdminAction::ResumeSchedule("a".into())).await, ControlOutcome::Done);
    assert!(matches!(
        administer(&store, 55, AdminAction::ResumeSchedule("a".into())).await,
        ControlOutcome::Already(_)
    ));
    assert_eq!(fire(&store, 59).await, 0);
    assert_eq!(fire(&store, 60).await, 1);
    assert_eq!(ticks(&store, "a").await, [60]);
}

fn trigger(name: &str, id: Option<JobId>) -> AdminAction {
    AdminAction::Trigger { name: name.into(), id }
}

pub async fn a_repeated_trigger_with_an_id_submits_one_job(store: Handle) {
    let _ = set_schedule(&store, 0, Schedule { overlap: Overlap::Skip, ..every_ten("a") }).await;
    assert_eq!(administer(&store, 3, trigger("a", Some(id(77)))).await, ControlOutcome::Created(id(77)));
    let again = administer(&store, 4, trigger("a", Some(id(77)))).await;
    assert!(
        matches!(again, ControlOutcome::Already(_)),
        "not refused because its own job is live: {again:?}"
    );
    let refused = administer(&store, 4, trigger("a", Some(id(78)))).await;
    assert!(matches!(refused, ControlOutcome::Refused(_)), "{refused:?}");
    assert_eq!(view(&store, id(77)).await.settings.tick, Some(t(3)));
    assert_eq!(ticks(&store, "a").await, [3]);
    let audit = store.inspect().audit(&crate::AuditFilter::default()).await.expect("audit");
    let triggers = audit.iter().filter(|entry| entry.action == "trigger schedule").count();
    assert_eq!(triggers, 1, "a repeat does nothing");
}

pub async fn a_trigger_fires_now_and_keeps_the_next_tick(store: Handle) {
    let _ = set_schedule(&store, 0, Schedule { overlap: Overlap::Skip, ..every_ten("a") }).await;
    let ControlOutcome::Created(id) = administer(&store, 3, trigger("a", None)).await else {
        panic!("a job is created")
    };
    assert_eq!(state(&store, id).await, State::Ready);
    let ControlOutcome::Refused(why) = administer(&store, 4, trigger("a", None)).await else {
        panic!("the last job is live")
    };
    assert!(why.contains(&id.to_string()), "{why}");
    store
        .control()
        .act_on_jobs(at(5), &[id], JobAction::Cancel { grace: secs(0) }, &Actor::new("x"))
        .await
        .expect("act");
    assert_eq!(fire(&store, 10).await, 1, "the tick fires as planned");
    assert_eq!(administer(&store, 11, trigger("none", None)).await, ControlOutcome::Unknown);
    let audit =
        store.inspect().audit(&crate::AuditFilter { limit: 9, ..Default::default() }).await.expect("audit");
    assert!(audit.iter().any(|entry| entry.action == "trigger schedule" && entry.subject == "a"));
}

pub async fn a_changed_schedule_keeps_its_next_tick_unless_the_calendar_changed(store: Handle) {
    let _ = set_schedule(&store, 0, every_ten("a")).await;
    assert!(matches!(set_schedule(&store, 1, every_ten("a")).await, ControlOutcome::Already(_)));
    let next = async || store.inspect().schedules().await.expect("schedules")[0].next_at;
    assert_eq!(
        set_schedule(&store, 15, Schedule { priority: 3, ..every_ten("a") }).await,
        ControlOutcome::Done
    );
    assert_eq!(next().await, Some(t(10)), "a tick that is due is kept");
    let calendar = Calendar::every(60, Unit::Seconds).expect("a calendar");
    assert_eq!(set_schedule(&store, 15, Schedule { calendar, ..every_ten("a") }).await, ControlOutcome::Done);
    assert_eq!(next().await, Some(t(60)));
    assert_eq!(administer(&store, 16, AdminAction::DropSchedule("a".into())).await, ControlOutcome::Done);
    assert_eq!(administer(&store, 16, AdminAction::DropSchedule("a".into())).await, ControlOutcome::Unknown);
    assert_eq!(fire(&store, 100).await, 0);
}

pub async fn invalid_schedules_are_refused_with_a_reason(store: Handle) {
    let expect_refused = async |schedule: Schedule, text: &str| {
        let action = AdminAction::Schedule(Box::new(schedule));
        let error =
            store.control().administer(at(0), &action, &Actor::new("x")).await.expect_err(text).to_string();
        assert!(error.contains(text), "{error:?} lacks {text:?}");
    };
    expect_refused(Schedule { name: "a b".into(), ..every_ten("a") }, "schedule").await;
    expect_refused(Schedule { queue: String::new(), ..every_ten("a") }, "queue is empty").await;
    let mut limited = every_ten("a");
    limited.settings.rate = Some(Box::new(windlass_model::RateCharge::new("none")));
    expect_refused(limited.clone(), "does not exist").await;
    let limit = RateLimit::per_second("none", 1);
    assert_eq!(administer(&store, 0, AdminAction::Limit(limit)).await, ControlOutcome::Done);
    assert_eq!(set_schedule(&store, 0, limited).await, ControlOutcome::Done);
}

pub async fn eight_handles_fire_each_tick_once(store: Handle) {
    for n in 0..20 {
        let schedule =
            Schedule { catch_up: CatchUp::All { window: secs(3_600) }, ..every_ten(&format!("s{n}")) };
        let _ = set_schedule(&store, 0, schedule).await;
    }
    for round in 1..=5 {
        let now = round * 20;
        let mut calls = Vec::new();
        for _ in 0..8 {
            let store = store.sibling().await.expect("a handle");
            calls.push(tokio::spawn(async move {
                store.fire_timers(at(now), 1_000).await.expect("timers").fired
            }));
        }
        let mut sum = 0;
        for call in calls {
            sum += call.await.expect("joined");
        }
        // A schedule that one call skipped, because another had locked it, is fired by the other.
        assert_eq!(sum, 40, "round {round}");
    }
    for n in 0..20 {
        assert_eq!(ticks(&store, &format!("s{n}")).await, (1..=10).map(|n| n * 10).collect::<Vec<_>>());
    }
    let jobs: Vec<Time> =
        store.inspect().jobs(&all_jobs()).await.expect("jobs").jobs.iter().map(|job| job.due_at).collect();
    assert_eq!(jobs.len(), 200);
}
