//! Many jobs at once: summaries and details by id, unsuccessful and parked jobs in short, last entries of journals.

use windlass_model::{
    Failure, JobId, JournalEntry, NewJob, Outcome, RateCharge, RateLimit, Reason, Retry, State, Wait, When,
    journal::{CallEvent, CallKind},
};

use super::{branch_kit::*, kit::*};
use crate::{
    AdminAction, FailureText, JobAction, JobDetails, LastCall, NewWorker, ParkedJob, Pause, RunningDetails,
    Unsuccessful, UnsuccessfulFilter, WaitDetails,
};

async fn details(store: &Handle, jobs: &[u32]) -> Vec<Option<JobDetails>> {
    let ids: Vec<_> = jobs.iter().copied().map(id).collect();
    store.inspect().details(&ids).await.expect("details")
}

async fn details_of(store: &Handle, n: u32) -> JobDetails {
    details(store, &[n]).await.remove(0).expect("the job exists")
}

pub async fn many_summaries_are_read_in_the_order_of_their_ids(store: Handle) {
    let me = worker(&store, 1).await;
    let keyed = NewJob { key: Some("a key".into()), ..job_in(3, "other", "bulk") };
    submit(&store, &[job(1), NewJob { when: When::After(secs(50)), ..machine(2, "Begin") }, keyed]).await;
    claim_one(&store, 0, me, 1).await;
    let ids = [3, 99, 1, 2, 1].map(id);
    let found = store.inspect().summaries(&ids).await.expect("summaries");
    for (id, found) in ids.iter().zip(&found) {
        let expected = store.inspect().job(*id).await.expect("read").map(|job| job.summary);
        assert_eq!(*found, expected);
    }
    assert!(found[1].is_none() && found.iter().flatten().count() == 4);
    assert!(store.inspect().summaries(&[]).await.expect("summaries").is_empty());
}

pub async fn details_say_why_a_job_is_in_its_state(store: Handle) {
    let one = NewWorker { name: "smith".into(), ..new_worker(1) };
    assert!(store.register_worker(at(0), &one).await.expect("register"));
    let me = one.id;
    submit(&store, &jobs(1, 8)).await;
    let [running, waiting, retried, failing, parent] = {
        let claimed = claim(&store, at(2), &claim_request(me, 1, 5)).await;
        <[_; 5]>::try_from(claimed).expect("five jobs")
    };
    let ready = details_of(&store, 6).await;
    assert_eq!(
        (ready.state, &ready.running, &ready.waiting, &ready.failure),
        (State::Ready, &None, &None, &None)
    );
    let seen = details_of(&store, 1).await;
    assert_eq!(running.id, id(1));
    let expected = RunningDetails { worker: me, name: Some("smith".into()), since: t(2) };
    assert_eq!((seen.state, seen.running), (State::Running, Some(expected)));
    apply(&store, 3, change(me, &waiting, wait_for_signal("go", Some(secs(90))))).await;
    let seen = details_of(&store, 2).await;
    let Outcome::Wait(Wait { condition, .. }) = wait_for_signal("go", None) else { unreachable!("a wait") };
    let expected = WaitDetails { condition, since: Some(t(3)), until: Some(t(93)), pending_children: 0 };
    assert_eq!((seen.state, seen.waiting), (State::Waiting, Some(expected)));
    apply(&store, 4, change(me, &retried, retry(secs(60), &[]))).await;
    let seen = details_of(&store, 3).await;
    let busy = FailureText { class: "busy".into(), message: "once more".into(), is_cut: false };
    assert_eq!((seen.state, seen.failure), (State::Scheduled, Some(busy)));
    let long = Failure::stop(format!("{}end", "é\n".repeat(200))).class("odd \"class\"");
    let outcome = Outcome::Failed { reason: Reason::Stopped, failure: long };
    apply(&store, 5, change(me, &failing, outcome)).await;
    let seen = details_of(&store, 4).await;
    let cut = FailureText { class: "odd \"class\"".into(), message: "é\n".repeat(100), is_cut: true };
    assert_eq!((seen.state, seen.failure), (State::Failed, Some(cut)));
    let spawns = spawn_children(&[job(20), job(21)]);
    apply(&store, 6, with_step(change(me, &parent, wait_for_children(&parent)), spawns)).await;
    let seen = details_of(&store, 5).await.waiting.expect("it waits");
    assert_eq!((seen.pending_children, seen.since, seen.until), (2, Some(t(6)), None));
    let child = details_of(&store, 20).await;
    assert_eq!((child.parent, child.branch), (Some(id(5)), None));
    must_act(&store, 7, 6, JobAction::Pause).await;
    let pause = Pause { at: t(7), author: "someone".into(), note: None };
    assert_eq!(details_of(&store, 6).await.paused, Some(pause));
    must_act(&store, 8, 1, cancel(30)).await;
    let seen = details_of(&store, 1).await.cancel_requested.expect("it is being cancelled");
    assert_eq!((seen.deadline_at, seen.author.as_str()), (t(38), "someone"));
    let all = details(&store, &[7, 99, 1, 7]).await;
    let states: Vec<Option<State>> = all.iter().map(|one| one.as_ref().map(|one| one.state)).collect();
    assert_eq!(states, [Some(State::Ready), None, Some(State::Running), Some(State::Ready)]);
    reap(&store, 9, me).await;
    let seen = details_of(&store, 1).await;
    assert!(seen.suspect || seen.state == State::Cancelled, "{seen:?}");
    assert!(details(&store, &[]).await.is_empty());
}

pub async fn details_have_the_settings_that_lists_show(store: Handle) {
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 5, secs(10)))).await;
    let mut charged = job(3);
    charged.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight: 2 }));
    charged.settings.retry = Some(Retry::times(6));
    let mut by_class = job(4);
    by_class.settings.retry = Some(Retry::rules().on("busy", 9).otherwise(2));
    submit(&store, &[serial_job(1, "account 7"), serial_job(2, "account 7"), charged, by_class]).await;
    let holder = details_of(&store, 1).await;
    assert_eq!((holder.serial_key.as_deref(), holder.waits_for_slot), (Some("account 7"), false));
    let in_line = details_of(&store, 2).await;
    assert_eq!((in_line.state, in_line.waits_for_slot), (State::Ready, true));
    let charged = details_of(&store, 3).await;
    assert_eq!((charged.rate, charged.max_attempts), (Some(("api".into(), 2)), Some(6)));
    assert_eq!(details_of(&store, 4).await.max_attempts, None, "it depends on the errors");
}

async fn unsuccessful(store: &Handle, filter: &UnsuccessfulFilter, limit: usize) -> Unsuccessful {
    store.inspect().unsuccessful(filter, limit).await.expect("unsuccessful jobs")
}

fn ids_of(found: &Unsuccessful) -> Vec<JobId> {
    found.jobs.iter().map(|job| job.id).collect()
}

pub async fn unsuccessful_jobs_are_read_newest_first(store: Handle) {
    let me = worker(&store, 1).await;
    let keyed = NewJob { key: Some("order 2".into()), ..job(2) };
    submit(&store, &[job(1), keyed, job(3), job(4), job_in(5, "other", "bulk"), job(6)]).await;
    let claimed = claim(&store, at(0), &claim_request(me, 1, 4)).await;
    let class = |class: &'static str| Outcome::Failed {
        reason: Reason::Exhausted,
        failure: Failure::retry(format!("{}!", "x".repeat(299))).class(class),
    };
    for (job, outcome) in claimed.iter().zip([class("busy"), class("down"), done("x"), cancelled()]) {
        apply(&store, 7, change(me, job, outcome)).await;
    }
    must_act(&store, 8, 5, cancel(0)).await;
    let all = UnsuccessfulFilter::default();
    let found = unsuccessful(&store, &all, 9).await;
    assert_eq!((ids_of(&found), found.examined, found.next), ([5, 4, 2, 1].map(id).into(), 4, None));
    let second = &found.jobs[2];
    assert_eq!((second.kind.as_str(), second.version, second.queue.as_str()), (KIND, 1, QUEUE));
    assert_eq!((second.key.as_deref(), second.state), (Some("order 2"), State::Failed));
    assert_eq!((second.reason, second.finished_at, second.parent), (Some(Reason::Exhausted), t(7), None));
    let failure = &second.failure;
    assert_eq!(
        (failure.class.as_str(), failure.message.chars().count(), failure.is_cut),
        ("down", 300, false)
    );
    assert_eq!(second.attempts, view(&store, id(2)).await.summary.attempts);
    let page = unsuccessful(&store, &all, 3).await;
    assert_eq!((ids_of(&page), page.next), ([5, 4, 2].map(id).into(), Some(id(2))));
    let rest = unsuccessful(&store, &UnsuccessfulFilter { before: page.next, ..all.clone() }, 3).await;
    assert_eq!((ids_of(&rest), rest.next), ([id(1)].into(), None));
    let of = async |filter: UnsuccessfulFilter| ids_of(&unsuccessful(&store, &filter, 9).await);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of(UnsuccessfulFilter { state: Some(State::Failed), ..all.clone() }).await, [2, 1].map(id));
    assert_eq!(of(UnsuccessfulFilter { state: Some(State::Cancelled), ..all.clone() }).await, [5, 4].map(id));
    assert!(of(UnsuccessfulFilter { state: Some(State::Done), ..all.clone() }).await.is_empty());
    assert_eq!(of(UnsuccessfulFilter { kind: some("other"), ..all.clone() }).await, [id(5)]);
    assert_eq!(of(UnsuccessfulFilter { queue: some(QUEUE), ..all.clone() }).await, [4, 2, 1].map(id));
    assert_eq!(of(UnsuccessfulFilter { error_class: some("busy"), ..all.clone() }).await, [id(1)]);
    let cancelled_busy =
        UnsuccessfulFilter { error_class: some("busy"), state: Some(State::Cancelled), ..all.clone() };
    assert!(of(cancelled_busy).await.is_empty());
    assert_eq!(of(UnsuccessfulFilter { since: Some(t(1)), ..all.clone() }).await, []);
    assert_eq!(of(UnsuccessfulFilter { since: Some(BEGIN), ..all.clone() }).await.len(), 4);
    must_act(&store, 9, 1, JobAction::Retry).await;
    assert_eq!(of(all).await, [5, 4, 2].map(id), "a job that is retried is no longer unsuccessful");
}

pub async fn an_unsuccessful_child_names_its_parent_and_its_branch(store: Handle) {
    let (me, _) = parent_with_children(&store, children(2, 2)).await;
    let child = claim_all(&store, 2, me, 2).await.remove(0);
    apply(&store, 3, change(me, &child, failed(Reason::Stopped))).await;
    let found = unsuccessful(&store, &UnsuccessfulFilter::default(), 9).await;
    assert_eq!((found.jobs[0].parent, found.jobs[0].branch), (Some(id(1)), Some(BRANCH)));
    let child = details_of(&store, 2).await;
    assert_eq!((child.parent, child.branch), (Some(id(1)), Some(BRANCH)));
}

async fn parked(store: &Handle, limit: usize) -> Vec<ParkedJob> {
    store.inspect().parked(limit).await.expect("parked jobs")
}

pub async fn parked_jobs_are_read_oldest_first_whatever_their_stage(store: Handle) {
    let me = worker(&store, 1).await;
    let stages = ["Pay", "Ship", "Ask"];
    let new = |n: u32| match n % 4 {
        0 => job(n),
        stage => NewJob { key: Some(format!("order {n}")), ..machine(n, stages[stage as usize - 1]) },
    };
    submit(&store, &(1..=12).map(new).collect::<Vec<_>>()).await;
    assert!(parked(&store, 99).await.is_empty());
    for job in claim(&store, at(0), &claim_request(me, 1, 10)).await {
        apply(&store, 5, change(me, &job, wait_for_signal("go", Some(secs(60))))).await;
    }
    let all = parked(&store, 99).await;
    let ids = |jobs: &[ParkedJob]| jobs.iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(ids(&all), (1..=10).map(id).collect::<Vec<_>>());
    assert_eq!(ids(&parked(&store, 3).await), [1, 2, 3].map(id));
    assert!(parked(&store, 0).await.is_empty());
    let first = &all[0];
    assert_eq!((first.kind.as_str(), first.version, first.queue.as_str()), (KIND, 1, QUEUE));
    assert_eq!((first.key.as_deref(), first.stage.as_deref()), (Some("order 1"), Some("Pay")));
    assert_eq!((first.wait.since, first.wait.until), (Some(t(5)), Some(t(65))));
    assert_eq!(first.wait.condition.names().collect::<Vec<_>>(), ["go"]);
    assert_eq!((all[3].stage.as_deref(), all[3].key.as_deref()), (None, None));
    send(&store, 6, &[signal(id(1), "go", "1", "x"), signal(id(4), "go", "1", "x")]).await;
    assert_eq!(ids(&parked(&store, 4).await), [2, 3, 5, 6].map(id));
    must_act(&store, 7, 2, cancel(0)).await;
    fire_timers(&store, 65, 99).await;
    assert!(parked(&store, 99).await.is_empty(), "their waits have timed out");
}

pub async fn the_last_entry_of_a_journal_is_read_without_its_payload(store: Handle) {
    let (me, first) = running_job(&store, 1).await;
    submit(&store, &jobs(2, 2)).await;
    let second = claim_one(&store, 0, me, 2).await;
    let writes = |entries: Vec<JournalEntry>| journal_writes(entries);
    let sleep = JournalEntry { call_kind: CallKind::Sleep, at: t(3), ..entry(1, "sleep", "9") };
    let step = with_step(change(me, &first, Outcome::Next), writes(vec![entry(0, "charge", "1"), sleep]));
    apply(&store, 1, step).await;
    let begun = JournalEntry {
        call_kind: CallKind::Repeat,
        event: CallEvent::Begun,
        ..entry(4, "report", "{\"ticks\":7}")
    };
    let step = with_step(change(me, &second, Outcome::Next), writes(vec![entry(0, "charge", "1"), begun]));
    apply(&store, 1, step).await;
    let calls = store.inspect().last_calls(&[2, 3, 99, 1].map(id)).await.expect("calls");
    let asleep = LastCall { call_kind: CallKind::Sleep, name: "sleep".into(), at: t(3), progress: None };
    let repeat = LastCall {
        call_kind: CallKind::Repeat,
        name: "report".into(),
        at: t(0),
        progress: Some(payload("{\"ticks\":7}")),
    };
    assert_eq!(calls, [Some(repeat), None, None, Some(asleep)]);
}

pub async fn branches_that_are_not_merged_are_read_newest_first(store: Handle) {
    let open = async |limit| store.inspect().open_branches(limit).await.expect("branches");
    assert!(open(9).await.is_empty());
    let keyed = NewJob { key: Some("catalogue".into()), ..job(30) };
    let parent = parent_with_children(&store, children(2, 3)).await;
    let me = parent.0;
    let other = windlass_model::BranchNo(9);
    let parent = update_branches(&store, 2, &parent, vec![open_branch(other, "more")], Vec::new()).await;
    submit(&store, &[keyed]).await;
    let later = claim(&store, at(3), &claim_request(me, 3, 9)).await;
    let (ended, later): (Vec<_>, Vec<_>) = later.into_iter().partition(|job| job.id != id(30));
    for (child, outcome) in ended.iter().zip([done("x"), failed(Reason::Stopped)]) {
        apply(&store, 4, change(me, child, outcome)).await;
    }
    let later = (me, later[0].clone());
    update_branches(&store, 5, &later, vec![open_branch(BRANCH, "pages")], Vec::new()).await;
    let found = open(9).await;
    let names: Vec<&str> = found.iter().map(|open| open.branch.name.as_str()).collect();
    assert_eq!(names, ["pages", "more", "all"]);
    assert_eq!((found[0].parent.key.as_deref(), found[0].parent.id), (Some("catalogue"), id(30)));
    let all = &found[2];
    assert_eq!(all.parent, view(&store, id(1)).await.summary);
    let whole = branch(&store, 1, BRANCH).await;
    assert_eq!(all.branch, crate::Branch { cursor: None, ..whole });
    assert_eq!((all.branch.counts.done, all.branch.counts.failed, all.branch.spawned), (1, 1, 3));
    assert_eq!(open(2).await.len(), 2);
    store
        .roll_up(&crate::RollUpRequest { limit: 99, hours_before: None, delete_before: None })
        .await
        .expect("rolled up");
    let summed = store.inspect().branch_times(id(1)).await.expect("times");
    assert_eq!(open(9).await[2].times, summed[0]);
    let merge = windlass_model::BranchUpdate { merged: true, ..windlass_model::BranchUpdate::new(BRANCH) };
    update_branches(&store, 6, &parent, vec![merge], Vec::new()).await;
    let names: Vec<String> = open(9).await.into_iter().map(|open| open.branch.name).collect();
    assert_eq!(names, ["pages", "more"]);
}
