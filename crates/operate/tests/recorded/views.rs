//! Lists that say why, failures in groups, jobs that wait, branches that are open.

use windlass_model::{
    BranchUpdate, JournalEntry, NewJob, Outcome, Reason, State, StepWrites, When,
    journal::{CallEvent, CallKind},
};
use windlass_operate::{
    Cause, Filter, JobAction,
    views::{Failures, JobRow, JobRows, OpenBranches, Situation, WaitingView, WaitsFor},
};
use windlass_store::{AdminAction, NewWorker, Serves, UnsuccessfulFilter, conformance::kit::*};

use crate::operator;

/// Registers a worker that serves the jobs of the cases.
async fn smith(store: &Handle) -> windlass_model::WorkerId {
    let serves = vec![Serves { queue: QUEUE.into(), slots: 9, kinds: vec![kind(KIND, 1)] }];
    let new = NewWorker { name: "smith".into(), serves, ..new_worker(1) };
    assert!(store.register_worker(at(0), &new).await.expect("register"));
    new.id
}

#[tokio::test]
async fn each_row_of_a_list_says_why_the_job_is_in_its_state() {
    let (operator, store, _) = operator();
    let me = smith(&store).await;
    submit(&store, &jobs(1, 4)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 4)).await;
    apply(&store, 1, change(me, &claimed[1], wait_for_signal("go", None))).await;
    apply(&store, 1, change(me, &claimed[2], failed(Reason::Stopped))).await;
    apply(&store, 1, change(me, &claimed[3], done("x"))).await;
    let later = NewJob { when: When::After(secs(90)), ..job(5) };
    submit(&store, &[later, job(6), job_in(7, "other", QUEUE), job_in(8, KIND, "bulk"), serial_job(9, "a")])
        .await;
    submit(&store, &[serial_job(10, "a")]).await;
    must_act(&store, 2, 6, JobAction::Pause).await;
    administer(&store, 3, AdminAction::PauseQueue("bulk".into())).await;
    let situation = Situation::read(&operator).await.expect("read");
    let page = JobRows::read(&operator, &Filter::default(), &situation).await.expect("read");
    assert_eq!(page.next_before, None);
    let causes: Vec<Cause> = page.rows.iter().rev().map(|row| row.because.cause()).collect();
    let expected = [
        Cause::Running,
        Cause::Signal,
        Cause::Stopped,
        Cause::Done,
        Cause::Scheduled,
        Cause::Paused,
        Cause::KindUnserved,
        Cause::QueuePaused,
        Cause::Behind,
        Cause::Serial,
    ];
    assert_eq!(causes, expected);
    for row in &page.rows {
        assert_eq!(row.why, row.because.words(page.now));
        let why = operator.why(row.job.id).await.expect("read").expect("it exists");
        let same = why.cause == row.because.cause()
            || (why.cause, row.because.cause()) == (Cause::Next, Cause::Behind);
        assert!(same, "{:?} and {:?}", why, row);
    }
    let of_ids = JobRow::of_ids(&operator, &[3, 99, 1].map(id), &situation).await.expect("read");
    let states: Vec<_> = of_ids.iter().map(|row| row.as_ref().map(|row| row.job.state)).collect();
    assert_eq!(states, [Some(State::Failed), None, Some(State::Running)]);
    let text = serde_json::to_string(&page).expect("plain data");
    assert_eq!(serde_json::from_str::<JobRows>(&text).expect("the same").rows, page.rows);
}

#[tokio::test]
async fn failures_are_grouped_with_what_attempts_say_about_a_retry() {
    let (operator, store, _) = operator();
    let me = smith(&store).await;
    submit(&store, &jobs(1, 30)).await;
    let now = store.inspect().clock().await.expect("clock");
    for job in claim(&store, at(0), &claim_request(me, 1, 30)).await {
        let failure = windlass_model::Failure::retry(format!("503 for order {}", job.id)).class("down");
        let outcome = Outcome::Failed { reason: Reason::Exhausted, failure };
        let outcomes = store.commit(Some(now), &[change(me, &job, outcome)]).await.expect("committed");
        assert_eq!(outcomes, [windlass_model::CommitOutcome::Committed]);
    }
    let failures = Failures::read(&operator, &UnsuccessfulFilter::default(), 1_000).await.expect("read");
    let [group] = &failures.groups[..] else { panic!("one group: {:?}", failures.groups) };
    assert_eq!((group.shape.as_str(), group.class.as_str(), group.count), ("{…} for order {…}", "down", 30));
    assert_eq!((group.advice.retry_helps(), failures.is_capped, group.hours[23]), (Some(false), false, 30));
    let text = group.advice.to_string();
    assert!(text.starts_with("Of the last 30 attempts of this kind, in 15m, 0 ended well."), "{text}");
    let few = Failures::read(&operator, &UnsuccessfulFilter::default(), 7).await.expect("read");
    assert_eq!((few.groups[0].count, few.is_capped, few.jobs), (7, true, 7));
}

#[tokio::test]
async fn waiting_jobs_are_grouped_and_repetitions_are_kept_apart_from_sleeps() {
    let (operator, store, _) = operator();
    let me = smith(&store).await;
    submit(&store, &jobs(1, 5)).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 5)).await;
    let sleep = |seconds| wait_for_signals(&[], 1, Some(secs(seconds)));
    let [first, second, third, fourth, fifth] = &claimed[..] else { panic!("five jobs") };
    apply(&store, 1, change(me, first, wait_for_signal("paid", None))).await;
    apply(&store, 2, change(me, second, wait_for_signal("paid", None))).await;
    apply(&store, 3, change(me, third, sleep(90))).await;
    apply(&store, 3, change(me, fourth, sleep(9_000))).await;
    let last = serde_json::to_value(t(40)).expect("a time");
    let progress = serde_json::json!({ "from": t(0), "last": last, "ticks": 7 }).to_string();
    let begun = JournalEntry {
        call_kind: CallKind::Repeat,
        event: CallEvent::Begun,
        ..entry(0, "report", &progress)
    };
    apply(&store, 4, with_step(change(me, fifth, sleep(60)), journal_writes(vec![begun]))).await;
    let view = WaitingView::read(&operator, 9).await.expect("read");
    assert_eq!((view.waiting, view.is_capped), (5, false));
    let paid = WaitsFor::Signals { names: vec!["paid".into()], needs: 1 };
    let heads: Vec<_> =
        view.groups.iter().map(|group| (&group.waits_for, group.count, group.oldest_since)).collect();
    assert_eq!(heads, [(&paid, 2, Some(t(1))), (&WaitsFor::Time, 3, Some(t(3)))]);
    assert_eq!(view.groups[0].rows.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 2].map(id));
    let sleeping: Vec<_> = view.sleeping.iter().map(|sleep| (sleep.row.id, sleep.row.until)).collect();
    assert_eq!(sleeping, [(id(4), Some(t(9_003))), (id(3), Some(t(93)))]);
    let [repeat] = &view.repeats[..] else { panic!("one repetition: {:?}", view.repeats) };
    assert_eq!((repeat.row.id, repeat.name.as_str()), (id(5), "report"));
    assert_eq!((repeat.ticks, repeat.last_tick, repeat.row.until), (Some(7), Some(t(40)), Some(t(64))));
}

#[tokio::test]
async fn open_branches_of_all_jobs_are_listed() {
    let (operator, store, _) = operator();
    let me = smith(&store).await;
    submit(&store, &[job(1), NewJob { key: Some("catalogue".into()), ..job(2) }]).await;
    for job in claim(&store, at(0), &claim_request(me, 1, 2)).await {
        let opened = BranchUpdate {
            opened_as: Some("pages".into()),
            spawns: Some(vec!["each".into()]),
            ..BranchUpdate::new(windlass_model::BranchNo(1))
        };
        let writes = StepWrites { branches: vec![opened], ..StepWrites::default() };
        apply(&store, 1, with_step(change(me, &job, Outcome::Next), writes)).await;
    }
    let open = OpenBranches::read(&operator, 9).await.expect("read");
    assert_eq!((open.branches.len(), open.has_more, open.totals.branches), (2, false, 2));
    let first = &open.branches[0];
    assert_eq!(
        (first.job, first.key.as_deref(), first.branch.name.as_str()),
        (id(2), Some("catalogue"), "pages")
    );
    assert_eq!(first.state, State::Running);
    let one = OpenBranches::read(&operator, 1).await.expect("read");
    assert!(one.has_more && one.branches.len() == 1);
}
