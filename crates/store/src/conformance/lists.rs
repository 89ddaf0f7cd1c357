//! Lists of jobs: every condition, several together, and pages.

use std::time::Duration;

use windlass_model::{Failure, JobId, NewJob, Outcome, Reason, State, Time, When};

use super::{kit::*, prune::watch_ended};
use crate::{Filter, Job, JobAction, StageUpdate};

/// A text of a filter.
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// The id of a job that was submitted `millis` after the first ones.
fn id_after(millis: u64, n: u32) -> JobId {
    JobId::from_parts(1_800_000_000_000 + millis, n, u64::from(n))
}

/// An end with an error of a class.
fn failed_with(class: &'static str) -> Outcome {
    Outcome::Failed { reason: Reason::Stopped, failure: Failure::stop("broken").class(class) }
}

pub async fn jobs_are_found_by_the_beginning_of_their_key(store: Handle) {
    let keyed = |n: u32, key: &str| NewJob { key: text(key), ..job(n) };
    let other = NewJob { key: text("order-1"), ..job_in(6, "other", "bulk") };
    let keys = ["order-1", "order-2", "order", "Order-1", "orders"];
    let mut new: Vec<NewJob> = (1..).zip(keys).map(|(n, key)| keyed(n, key)).collect();
    new.extend([other, keyed(7, "ö-%_1"), keyed(8, "ö"), job(9)]);
    submit(&store, &new).await;
    let found = async |prefix: &str| list(&store, Filter { key_prefix: text(prefix), ..all_jobs() }).await;
    assert_eq!(found("order-").await, [6, 2, 1].map(id));
    assert_eq!(found("order").await, [6, 5, 3, 2, 1].map(id));
    assert_eq!(found("order-2").await, [id(2)]);
    assert_eq!(found("ö").await, [8, 7].map(id));
    assert_eq!((found("%").await, found("_").await), (vec![], vec![]));
    assert_eq!(found("").await, (1..9).rev().map(id).collect::<Vec<_>>(), "all jobs with a key");
    let both = Filter { key_prefix: text("order"), kind: text("other"), ..all_jobs() };
    assert_eq!(list(&store, both).await, [id(6)]);
    let short = Filter { key_prefix: text("order"), limit: 2, ..all_jobs() };
    assert_eq!(list_pages(&store, short).await, [vec![id(6), id(5)], vec![id(3), id(2)], vec![id(1)]]);
}

pub async fn unsuccessful_jobs_are_found_by_the_class_of_their_error(store: Handle) {
    let me = worker(&store, 1).await;
    let expiring = NewJob { deadline_at: Some(t(9)), when: When::After(secs(50)), ..job(6) };
    submit(&store, &[job(1), job(2), job(3), machine(4, "Begin"), job(5)]).await;
    for (number, outcome) in (1..).zip([
        failed_with("busy"),
        failed_with("a \"quoted\\ class\""),
        cancelled(),
        failed_with("busy"),
        retry(secs(60), &[1]),
    ]) {
        let claimed = claim_one(&store, 0, me, number).await;
        apply(&store, 1, change(me, &claimed, outcome)).await;
    }
    submit(&store, &[expiring, job(7)]).await;
    fire_timers(&store, 10, 9).await;
    must_act(&store, 10, 7, JobAction::Cancel { grace: secs(1) }).await;
    let found = async |class: &str| list(&store, Filter { error_class: text(class), ..all_jobs() }).await;
    assert_eq!(found("busy").await, [4, 1].map(id), "a job that waits for another attempt has not failed");
    assert_eq!(found("a \"quoted\\ class\"").await, [id(2)]);
    assert_eq!(found("unknown").await, []);
    for n in [3, 6, 7] {
        let class = view(&store, id(n)).await.failure.expect("an error").class;
        assert!(found(&class).await.contains(&id(n)), "{n}: {class}");
    }
    let both = Filter { error_class: text("busy"), stage: text("Begin"), ..all_jobs() };
    assert_eq!(list(&store, both).await, [id(4)]);
    must_act(&store, 11, 1, JobAction::Retry).await;
    assert_eq!(found("busy").await, [id(4)], "it lives again");
}

pub async fn jobs_are_found_by_the_time_in_their_ids(store: Handle) {
    let of = |n: u32| NewJob { id: id_after(u64::from(n) * 1_000, n), ..job(n) };
    submit(&store, &(0..6).map(of).collect::<Vec<_>>()).await;
    let found = async |since: Option<u64>, until: Option<u64>| {
        let filter = Filter { since: since.map(t), until: until.map(t), ..all_jobs() };
        let ids = list(&store, filter.clone()).await;
        let of_kind = Filter { kind: text(KIND), ..filter };
        assert_eq!(list(&store, of_kind).await, ids);
        ids.iter().map(|id| (id.made_at() - BEGIN).as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(found(Some(2), None).await, [5, 4, 3, 2]);
    assert_eq!(found(None, Some(2)).await, [1, 0]);
    assert_eq!(found(Some(1), Some(4)).await, [3, 2, 1]);
    assert_eq!(found(Some(4), Some(4)).await, [0; 0]);
    let page = Filter { since: Some(t(1)), until: Some(t(5)), before: Some(of(3).id), ..all_jobs() };
    assert_eq!(list(&store, page).await, [of(2).id, of(1).id]);
    let all =
        store.inspect().count_jobs(&Filter { since: Some(t(2)), ..all_jobs() }, 99).await.expect("counted");
    assert_eq!((all.jobs.into_iter().collect::<Vec<_>>(), all.at_least), (vec![(State::Ready, 4)], false));
}

pub async fn machines_that_wait_or_failed_are_found_by_stage(store: Handle) {
    let me = worker(&store, 1).await;
    submit(&store, &(1..6).map(|n| machine(n, "Begin")).collect::<Vec<_>>()).await;
    let wait = || wait_for_signal("go", None);
    for (number, (stage, outcome)) in (1..).zip([
        ("Paying", wait()),
        ("Paying", wait()),
        ("Shipping", wait()),
        ("Paying", failed_with("declined")),
        ("Shipping", cancelled()),
    ]) {
        let claimed = claim_one(&store, 0, me, number).await;
        let writes = step("Begin", stage, "x");
        apply(&store, 1, with_step(change(me, &claimed, outcome), writes)).await;
    }
    let found = async |stage: &str, state: Option<State>| {
        list(&store, Filter { stage: text(stage), state, ..all_jobs() }).await
    };
    let waiting = Some(State::Waiting);
    assert_eq!(found("Paying", waiting).await, [2, 1].map(id));
    assert_eq!(found("Shipping", waiting).await, [id(3)]);
    assert_eq!(found("Begin", waiting).await, []);
    assert_eq!(found("Paying", None).await, found_of_all(&store, "Paying").await);
    for state in [State::Failed, State::Cancelled] {
        let mut of_stages = found("Paying", Some(state)).await;
        of_stages.extend(found("Shipping", Some(state)).await);
        of_stages.extend(found("Begin", Some(state)).await);
        assert_eq!(of_stages, list(&store, Filter { state: Some(state), ..all_jobs() }).await, "{state}");
    }
    let update = async |n: u32| {
        let Job { epoch, rev, .. } = view(&store, id(n)).await;
        let (stage, data) = ("Moved".to_owned(), payload("x"));
        let update = StageUpdate { job: id(n), epoch, rev, version: 1, stage, data };
        store.control().update_stages(at(2), &[update], &actor()).await.expect("updated");
    };
    update(1).await;
    update(4).await;
    assert_eq!((found("Paying", waiting).await, found("Moved", waiting).await), (vec![id(2)], vec![id(1)]));
    assert_eq!(found("Moved", Some(State::Failed)).await, [id(4)]);
}

/// The jobs in a stage, found by reading all.
async fn found_of_all(store: &Handle, stage: &str) -> Vec<JobId> {
    let all = store.inspect().jobs(&all_jobs()).await.expect("jobs").jobs;
    all.into_iter().filter(|job| job.stage.as_deref() == Some(stage)).map(|job| job.id).collect()
}

pub async fn a_job_that_stops_waiting_is_no_longer_listed_as_waiting(store: Handle) {
    let me = worker(&store, 1).await;
    let with_deadline = |n| NewJob { deadline_at: Some(t(100)), ..machine(n, "Begin") };
    submit(
        &store,
        &[machine(1, "Begin"), machine(2, "Begin"), with_deadline(3), machine(4, "Begin"), job(5)],
    )
    .await;
    for number in 1..6 {
        let claimed = claim_one(&store, 0, me, number).await;
        let timeout = (claimed.id == id(2)).then(|| secs(50));
        apply(&store, 1, change(me, &claimed, wait_for_signal("go", timeout))).await;
    }
    let waiting = Filter { state: Some(State::Waiting), ..all_jobs() };
    let in_stage = Filter { stage: text("Begin"), ..waiting.clone() };
    assert_eq!(list(&store, waiting.clone()).await, (1..6).rev().map(id).collect::<Vec<_>>());
    assert_eq!(list(&store, in_stage.clone()).await, (1..5).rev().map(id).collect::<Vec<_>>());
    send(&store, 2, &[signal(id(1), "go", "1", "x")]).await;
    assert_eq!(list(&store, in_stage.clone()).await, [4, 3, 2].map(id), "a signal wakes");
    fire_timers(&store, 60, 9).await;
    assert_eq!(list(&store, in_stage.clone()).await, [4, 3].map(id), "a timeout wakes");
    fire_timers(&store, 110, 9).await;
    assert_eq!(list(&store, in_stage.clone()).await, [id(4)], "a deadline ends");
    must_act(&store, 120, 4, JobAction::Cancel { grace: secs(1) }).await;
    assert_eq!(list(&store, in_stage).await, [], "a cancel ends");
    assert_eq!(list(&store, waiting).await, [id(5)]);
}

/// Sixty jobs in all states, of two kinds in two queues, with keys and tags, submitted over three seconds.
async fn mixed_jobs(store: &Handle) -> Vec<Job> {
    let me = worker(store, 1).await;
    let outcomes = [
        done("x"),
        failed_with("busy"),
        failed_with("broken"),
        cancelled(),
        retry(secs(9), &[1]),
        wait_for_signal("go", None),
        wait_for_signal("go", Some(secs(90))),
    ];
    let make = |n: u32| {
        let (kind, queue) = (["mail", "sms"][n as usize % 2], ["main", "bulk"][n as usize / 2 % 2]);
        let mut new = NewJob { id: id_after(u64::from(n) * 50, n), ..job_in(n, kind, queue) };
        new.key = (!n.is_multiple_of(3)).then(|| format!("{}-{n}", ["order", "bill"][n as usize % 5 / 3]));
        new.tags =
            if n.is_multiple_of(4) { vec!["red".into(), format!("n{n}")] } else { vec!["blue".into()] };
        new.stage = (n % 7 < 3).then(|| ["Begin", "Pay"][n as usize % 3 / 2].to_owned());
        new.parent = n.is_multiple_of(6).then(|| id_after(0, 0)).filter(|_| n > 0);
        new
    };
    for n in 0..60 {
        let mut new = make(n);
        match n % 11 {
            9 => new.when = When::After(secs(500)),
            10 => {}
            other => {
                let queue = new.queue.clone();
                let kinds = [new.kind.clone()].into();
                submit(store, &[new]).await;
                let mut request = claim_request(me, i64::from(n) + 1, 1);
                (request.queue, request.kinds) = (queue, kinds);
                let claimed = claim(store, at(0), &request).await.remove(0);
                if let Some(outcome) = outcomes.get(other as usize) {
                    apply(store, 1, change(me, &claimed, outcome.clone())).await;
                }
                continue;
            }
        }
        submit(store, &[new]).await;
        if n % 11 == 10 {
            // Others would claim it.
            store
                .control()
                .act_on_jobs(at(0), &[make(n).id], JobAction::Pause, &actor())
                .await
                .expect("paused");
        }
    }
    let mut all = Vec::new();
    for summary in store.inspect().jobs(&all_jobs()).await.expect("jobs").jobs {
        all.push(view(store, summary.id).await);
    }
    assert_eq!(all.len(), 60);
    all
}

/// Whether a job matches, as the fields of a filter say.
fn matches(filter: &Filter, job: &Job) -> bool {
    let Job { summary, tags, failure, parent, .. } = job;
    let key = summary.key.as_deref();
    let is = |wanted: &Option<String>, actual: Option<&str>| wanted.is_none() || wanted.as_deref() == actual;
    let has_class = |class: &String| {
        matches!(summary.state, State::Failed | State::Cancelled)
            && failure.as_ref().is_some_and(|failure| failure.class == *class)
    };
    let prefix_is_there = |prefix: &String| key.is_some_and(|key| key.starts_with(prefix.as_str()));
    filter.state.is_none_or(|state| state == summary.state)
        && is(&filter.kind, Some(&summary.kind))
        && is(&filter.queue, Some(&summary.queue))
        && filter.tag.as_ref().is_none_or(|tag| tags.contains(tag))
        && is(&filter.key, key)
        && filter.key_prefix.as_ref().is_none_or(prefix_is_there)
        && filter.error_class.as_ref().is_none_or(has_class)
        && is(&filter.stage, summary.stage.as_deref())
        && filter.version.is_none_or(|version| version == summary.version)
        && (!filter.top || parent.is_none())
        && filter.since.is_none_or(|since| summary.id.made_at() >= since)
        && filter.until.is_none_or(|until| summary.id.made_at() < until)
}

/// Filters with a few conditions each, the same ones in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// One of some texts, once in `one_in` times.
    fn text(&mut self, one_in: usize, texts: &[&str]) -> Option<String> {
        let chosen = texts[self.below(texts.len())];
        (self.below(one_in) == 0).then(|| chosen.to_owned())
    }

    fn time(&mut self) -> Option<Time> {
        let millis = self.below(3_000) as u64;
        (self.below(4) == 0).then(|| BEGIN + Duration::from_millis(millis))
    }

    fn filter(&mut self) -> Filter {
        Filter {
            kind: self.text(4, &["mail", "sms", "unknown"]),
            queue: self.text(4, &["main", "bulk"]),
            tag: self.text(4, &["red", "blue", "n8", "unknown"]),
            key: self.text(12, &["order-1", "bill-4", "unknown"]),
            key_prefix: self.text(4, &["order", "bill-", "order-1", ""]),
            error_class: self.text(8, &["busy", "broken", "error"]),
            stage: self.text(4, &["Begin", "Pay"]),
            state: (self.below(2) == 0).then(|| State::ALL[self.below(State::ALL.len())]),
            version: (self.below(6) == 0).then(|| self.below(2) as i32 + 1),
            top: self.below(6) == 0,
            since: self.time(),
            until: self.time(),
            ..all_jobs()
        }
    }
}

pub async fn any_filter_finds_what_a_comparison_of_all_jobs_finds(store: Handle) {
    let all = mixed_jobs(&store).await;
    let mut random = Random(7);
    for _ in 0..400 {
        let filter = random.filter();
        let expected: Vec<&Job> = all.iter().filter(|job| matches(&filter, job)).collect();
        let ids: Vec<JobId> = expected.iter().map(|job| job.summary.id).collect();
        assert_eq!(list(&store, filter.clone()).await, ids, "{filter:?}");
        let limit = random.below(5) + 1;
        let pages = list_pages(&store, Filter { limit, ..filter.clone() }).await;
        assert_eq!(pages, pages_of(&ids, limit), "{filter:?}");
        let counted = store.inspect().count_jobs(&filter, 1_000).await.expect("counted");
        let count = |state: State| expected.iter().filter(|job| job.summary.state == state).count() as u64;
        assert!(
            State::ALL.iter().all(|state| counted.jobs.get(state).copied().unwrap_or(0) == count(*state))
        );
    }
}

/// Ids as pages: one that is empty if there are none.
fn pages_of(ids: &[JobId], limit: usize) -> Vec<Vec<JobId>> {
    match ids {
        [] => vec![vec![]],
        ids => ids.chunks(limit).map(<[JobId]>::to_vec).collect(),
    }
}

pub async fn pages_go_on_where_the_last_one_ended_while_jobs_are_submitted(store: Handle) {
    let new = |n: u32| NewJob {
        id: id_after(u64::from(n) * 10, n),
        tags: vec!["red".into()],
        key: Some(format!("order-{n}")),
        ..job_in(n, ["mail", "sms"][n as usize % 2], QUEUE)
    };
    submit(&store, &(0..20).map(new).collect::<Vec<_>>()).await;
    let mut next = 20;
    for filter in [
        Filter { tag: text("red"), ..all_jobs() },
        Filter { kind: text("mail"), ..all_jobs() },
        Filter { key_prefix: text("order-"), ..all_jobs() },
        Filter { state: Some(State::Ready), ..all_jobs() },
        all_jobs(),
    ] {
        let before = list(&store, filter.clone()).await;
        let mut page = Filter { limit: 3, ..filter };
        let mut found = Vec::new();
        loop {
            let read = store.inspect().jobs(&page).await.expect("jobs");
            found.extend(read.jobs.iter().map(|job| job.id));
            submit(&store, &[new(next), new(next + 1)]).await;
            next += 2;
            page.before = read.next;
            if read.next.is_none() {
                break;
            }
        }
        assert_eq!(found, before, "{page:?}");
    }
}

/// 12,000 jobs of one kind, and an older one of another kind with a key, a tag and a parent.
async fn one_among_many(store: &Handle) -> JobId {
    let parent = Some(id_after(0, 77));
    let (key, tags) = (text("rare-1"), vec!["rare".to_owned()]);
    let rare = NewJob { id: id_after(5, 1), key, tags, parent, ..job_in(1, "rare", QUEUE) };
    submit(store, std::slice::from_ref(&rare)).await;
    for chunk in (0..12_000).collect::<Vec<u32>>().chunks(4_000) {
        let new = |n: &u32| NewJob {
            id: id_after(100 + u64::from(n / 10), *n),
            tags: if n.is_multiple_of(100) { vec!["some".into()] } else { Vec::new() },
            ..job(*n)
        };
        submit(store, &chunk.iter().map(new).collect::<Vec<_>>()).await;
    }
    rare.id
}

pub async fn a_rare_job_among_many_is_found_by_its_kind_tag_or_key(store: Handle) {
    let rare = one_among_many(&store).await;
    for filter in [
        Filter { kind: text("rare"), ..Filter::default() },
        Filter { tag: text("rare"), ..Filter::default() },
        Filter { key_prefix: text("rare"), ..Filter::default() },
        Filter { kind: text("rare"), queue: text(QUEUE), state: Some(State::Ready), ..Filter::default() },
        Filter { tag: text("rare"), kind: text("rare"), ..Filter::default() },
    ] {
        let page = store.inspect().jobs(&filter).await.expect("jobs");
        let ids: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
        assert_eq!((ids, page.next), (vec![rare], None), "{filter:?}");
    }
    let many = Filter { kind: text(KIND), limit: 50, ..Filter::default() };
    let page = store.inspect().jobs(&many).await.expect("jobs");
    assert_eq!((page.jobs.len(), page.next), (50, page.jobs.last().map(|job| job.id)));
    let some = Filter { tag: text("some"), kind: text(KIND), limit: 50, ..Filter::default() };
    let pages = list_pages(&store, some).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50, 20]);
}

pub async fn a_page_that_finds_nothing_says_where_to_go_on(store: Handle) {
    let rare = one_among_many(&store).await;
    // No index has the jobs with a parent, or those in a stage.
    let no_stage = Filter { stage: text("Begin"), ..Filter::default() };
    assert_eq!(list(&store, no_stage.clone()).await, []);
    let until = Some(rare.made_at() + Duration::from_millis(1));
    assert_eq!(list(&store, Filter { until, ..Filter::default() }).await, [rare]);
    let counted = store.inspect().count_jobs(&Filter { top: true, ..Filter::default() }, 100).await;
    let counted = counted.expect("counted");
    assert!(counted.at_least && counted.jobs.values().sum::<u64>() <= 100, "{counted:?}");
}

pub async fn a_kind_is_listed_after_some_of_its_jobs_were_pruned(store: Handle) {
    let me = worker(&store, 1).await;
    let new = |n: u32| NewJob {
        id: id_after(u64::from(n / 2) * 16, n),
        ..job_in(n, ["a", "b"][n as usize % 2], QUEUE)
    };
    submit(&store, &(0..12).map(new).collect::<Vec<_>>()).await;
    let mut request = claim_request(me, 1, 9);
    request.kinds = [kind("a", 1)].into();
    let claimed = claim(&store, at(0), &request).await;
    for job in &claimed[..4] {
        apply(&store, 1, change(me, job, done("x"))).await;
    }
    let pruned = store.prune(at(900), &watch_ended(State::Done, 99)).await.expect("pruned");
    assert_eq!(pruned.jobs, 4);
    let of_kind = async |kind: &str| list(&store, Filter { kind: text(kind), ..all_jobs() }).await;
    assert_eq!(of_kind("a").await, [new(10).id, new(8).id]);
    assert_eq!(of_kind("b").await, [11, 9, 7, 5, 3, 1].map(|n| new(n).id));
    // A job with an old id comes late.
    submit(&store, &[NewJob { id: id_after(0, 40), ..job_in(40, "a", QUEUE) }]).await;
    assert_eq!(of_kind("a").await, [new(10).id, new(8).id, id_after(0, 40)]);
}

pub async fn a_machine_is_listed_in_its_new_version(store: Handle) {
    submit(&store, &[machine(1, "Begin"), machine(2, "Begin")]).await;
    let Job { epoch, rev, .. } = view(&store, id(1)).await;
    let update =
        StageUpdate { job: id(1), epoch, rev, version: 3, stage: "Other".into(), data: payload("x") };
    store.control().update_stages(at(1), &[update], &actor()).await.expect("updated");
    let of = async |version: i32| list(&store, Filter { version: Some(version), ..all_jobs() }).await;
    assert_eq!((of(1).await, of(3).await), (vec![id(2)], vec![id(1)]));
}
