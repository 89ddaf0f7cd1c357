//! Reads for people: filters, pages, counts, workers, queues.

use std::collections::BTreeMap;

use windlass_model::{Failure, NewJob, Reason, State, Time, When, WorkerId};

use super::kit::*;
use crate::{Backlog, Filter, JobEnd, NewWorker, PayloadsOf, SchemaState, Serves, StateCount};

/// Fourteen jobs, two in each state: the even ones of kind `work` in `main`, the odd ones of kind `other` in
/// `bulk`; the first of each pair is tagged `first`.
async fn two_in_each_state(store: &Handle) {
    let worker = worker(store, 1).await;
    let make = |n: u32| {
        let mut new = if n.is_multiple_of(2) { job(n) } else { job_in(n, "other", "bulk") };
        new.key = Some(format!("key {n}"));
        new.tags =
            if n.is_multiple_of(2) { vec!["first".into(), format!("n{n}")] } else { vec![format!("n{n}")] };
        new
    };
    let outcomes = [wait_for_signal("go", Some(secs(90))), done("x"), failed(Reason::Stopped), cancelled()];
    for (pair, outcome) in outcomes.into_iter().enumerate() {
        for n in [6 + pair as u32 * 2, 7 + pair as u32 * 2] {
            submit(store, &[make(n)]).await;
            let mut request = claim_request(worker, i64::from(n), 1);
            if n % 2 == 1 {
                (request.queue, request.kinds) = ("bulk".into(), [kind("other", 1)].into());
            }
            let claimed = claim(store, at(0), &request).await.remove(0);
            apply(store, 1, change(worker, &claimed, outcome.clone())).await;
        }
    }
    store.submit(at(0), &[make(4), make(5)], claim_on_submit(worker, 99)).await.expect("submit");
    submit(store, &[make(2), make(3)]).await;
    let waiting = |n| NewJob { when: When::After(secs(50)), ..make(n) };
    submit(store, &[waiting(0), waiting(1)]).await;
}

pub async fn every_filter_selects_jobs(store: Handle) {
    two_in_each_state(&store).await;
    assert_eq!(list(&store, all_jobs()).await, (0..14).rev().map(id).collect::<Vec<_>>());
    for (index, state) in State::ALL.into_iter().enumerate() {
        let first = index as u32 * 2;
        let found = list(&store, Filter { state: Some(state), ..all_jobs() }).await;
        assert_eq!(found, [id(first + 1), id(first)], "{state}");
        let by_tag = Filter { state: Some(state), tag: Some("first".into()), ..all_jobs() };
        assert_eq!(list(&store, by_tag).await, [id(first)], "{state}");
        let by_queue = Filter { state: Some(state), queue: Some("bulk".into()), ..all_jobs() };
        assert_eq!(list(&store, by_queue).await, [id(first + 1)], "{state}");
        let by_kind = Filter { state: Some(state), kind: Some("other".into()), ..all_jobs() };
        assert_eq!(list(&store, by_kind).await, [id(first + 1)], "{state}");
        let by_key = Filter { state: Some(state), key: Some(format!("key {first}")), ..all_jobs() };
        assert_eq!(list(&store, by_key).await, [id(first)], "{state}");
        let older = Filter { state: Some(state), before: Some(id(first + 1)), ..all_jobs() };
        assert_eq!(list(&store, older).await, [id(first)], "{state}");
        let summaries =
            store.inspect().jobs(&Filter { state: Some(state), ..all_jobs() }).await.expect("jobs");
        for summary in summaries.jobs {
            assert_eq!(summary, view(&store, summary.id).await.summary, "lists and reads of one job agree");
        }
    }
    assert_eq!(list(&store, Filter { tag: Some("n3".into()), ..all_jobs() }).await, [id(3)]);
    assert_eq!(list(&store, Filter { key: Some("key 8".into()), ..all_jobs() }).await, [id(8)]);
    let even: Vec<_> = (0..14).rev().filter(|n| n % 2 == 0).map(id).collect();
    assert_eq!(list(&store, Filter { kind: Some(KIND.into()), ..all_jobs() }).await, even);
    assert_eq!(list(&store, Filter { queue: Some(QUEUE.into()), ..all_jobs() }).await, even);
    let both = Filter { kind: Some(KIND.into()), queue: Some("bulk".into()), ..all_jobs() };
    assert!(list(&store, both).await.is_empty());
    for nothing in [
        Filter { kind: Some("unknown".into()), ..all_jobs() },
        Filter { queue: Some("unknown".into()), ..all_jobs() },
        Filter { tag: Some("unknown".into()), ..all_jobs() },
        Filter { key: Some("unknown".into()), ..all_jobs() },
        Filter { before: Some(id(0)), ..all_jobs() },
        Filter { limit: 0, ..all_jobs() },
    ] {
        assert!(list(&store, nothing.clone()).await.is_empty(), "{nothing:?}");
    }
}

pub async fn counts_obey_the_filter(store: Handle) {
    two_in_each_state(&store).await;
    submit(&store, &[NewJob { parent: Some(id(0)), stage: Some("Ship".into()), ..job(20) }]).await;
    let count = async |filter: Filter| {
        let counts = store.inspect().count_jobs(&filter, 1_000).await.expect("counted");
        assert!(!counts.at_least, "{filter:?}");
        let counts = counts.jobs;
        // What is counted is what is listed, whichever page.
        let mut listed: BTreeMap<State, u64> = BTreeMap::new();
        let page = store.inspect().jobs(&Filter { before: None, limit: 99, ..filter.clone() }).await;
        for job in page.expect("jobs").jobs {
            *listed.entry(job.state).or_default() += 1;
        }
        assert_eq!(counts, listed, "{filter:?}");
        counts.into_iter().collect::<Vec<_>>()
    };
    let mut all: Vec<(State, u64)> = State::ALL.map(|state| (state, 2)).into();
    all.iter_mut().filter(|(state, _)| *state == State::Ready).for_each(|(_, jobs)| *jobs = 3);
    all.sort_unstable();
    assert_eq!(count(Filter { before: Some(id(3)), limit: 1, ..all_jobs() }).await, all);
    for state in State::ALL {
        let jobs = if state == State::Ready { 3 } else { 2 };
        assert_eq!(count(Filter { state: Some(state), ..all_jobs() }).await, [(state, jobs)]);
        let tagged = Filter { state: Some(state), tag: Some("first".into()), ..all_jobs() };
        assert_eq!(count(tagged).await, [(state, 1)]);
        let first = State::ALL.iter().position(|other| *other == state).expect("listed") * 2;
        let by_key = Filter { state: Some(state), key: Some(format!("key {first}")), ..all_jobs() };
        assert_eq!(count(by_key).await, [(state, 1)]);
        assert_eq!(count(Filter { state: Some(state), top: true, ..all_jobs() }).await, [(state, 2)]);
    }
    assert_eq!(count(Filter { kind: Some("other".into()), ..all_jobs() }).await.len(), State::ALL.len());
    assert_eq!(
        count(Filter { queue: Some("bulk".into()), tag: Some("first".into()), ..all_jobs() }).await,
        []
    );
    assert_eq!(count(Filter { stage: Some("Ship".into()), ..all_jobs() }).await, [(State::Ready, 1)]);
    assert_eq!(count(Filter { version: Some(7), ..all_jobs() }).await, []);
    assert_eq!(count(Filter { key: Some("key 3".into()), ..all_jobs() }).await, [(State::Ready, 1)]);
    let at_top = Filter { top: true, ..all_jobs() };
    let some = store.inspect().count_jobs(&at_top, 3).await.expect("counted");
    assert!(some.at_least && some.jobs.values().sum::<u64>() <= 3, "{some:?}");
    let maintained = store.inspect().count_jobs(&all_jobs(), 1).await.expect("counted");
    assert!(!maintained.at_least && maintained.jobs.values().all(|jobs| *jobs >= 2), "{maintained:?}");
}

pub async fn machines_are_found_by_stage_and_version(store: Handle) {
    let me = worker(&store, 1).await;
    let new = |n, version, stage| NewJob { kind: kind(KIND, version), ..machine(n, stage) };
    submit(&store, &[new(1, 1, "Begin"), new(2, 1, "Charge"), new(3, 2, "Begin"), job(4)]).await;
    let find = async |stage: Option<&str>, version, state| {
        list(&store, Filter { stage: stage.map(str::to_owned), version, state, ..all_jobs() }).await
    };
    assert_eq!(find(Some("Begin"), None, None).await, [3, 1].map(id));
    assert_eq!(find(Some("Begin"), Some(2), None).await, [id(3)]);
    assert_eq!(find(None, Some(1), Some(State::Ready)).await, [4, 2, 1].map(id));
    assert!(find(Some("unknown"), None, None).await.is_empty() && find(None, Some(9), None).await.is_empty());
    for job in claim(&store, at(0), &claim_request(me, 1, 9)).await {
        let outcome = if job.id == id(4) { failed(Reason::Stopped) } else { wait_for_signal("go", None) };
        apply(&store, 1, with_step(change(me, &job, outcome), step("Begin", "Ship", "1"))).await;
    }
    assert_eq!(find(Some("Ship"), Some(1), Some(State::Waiting)).await, [2, 1].map(id));
    assert_eq!(find(Some("Ship"), None, Some(State::Failed)).await, [id(4)]);
    assert_eq!(find(Some("Begin"), None, Some(State::Waiting)).await, []);
    for summary in store.inspect().jobs(&all_jobs()).await.expect("jobs").jobs {
        assert_eq!(summary, view(&store, summary.id).await.summary, "lists and reads of one job agree");
    }
}

pub async fn jobs_without_a_parent_are_found(store: Handle) {
    let me = worker(&store, 1).await;
    let child = |n| NewJob { parent: Some(id(1)), ..job(n) };
    submit(&store, &[job(1), child(2), job(3), child(4), job_in(5, "other", QUEUE)]).await;
    let top = |filter| list(&store, Filter { top: true, ..filter });
    assert_eq!(top(all_jobs()).await, [5, 3, 1].map(id));
    assert_eq!(top(Filter { kind: Some(KIND.into()), ..all_jobs() }).await, [3, 1].map(id));
    assert_eq!(top(Filter { before: Some(id(3)), ..all_jobs() }).await, [id(1)]);
    let pages = list_pages(&store, Filter { top: true, limit: 2, ..all_jobs() }).await;
    assert_eq!(pages, [vec![id(5), id(3)], vec![id(1)]]);
    for job in claim(&store, at(0), &claim_request(me, 1, 9)).await {
        apply(&store, 1, change(me, &job, failed(Reason::Stopped))).await;
    }
    assert_eq!(top(Filter { state: Some(State::Failed), ..all_jobs() }).await, [3, 1].map(id));
    assert_eq!(top(Filter { state: Some(State::Ready), ..all_jobs() }).await, [id(5)]);
    assert_eq!(list(&store, all_jobs()).await.len(), 5, "without it, children are listed too");
}

pub async fn pages_are_newest_first_and_do_not_shift_with_new_jobs(store: Handle) {
    submit(&store, &jobs(0, 25)).await;
    let mut pages = Vec::new();
    let mut before = None;
    loop {
        let page = store.inspect().jobs(&Filter { before, limit: 10, ..all_jobs() }).await.expect("jobs");
        pages.push(page.jobs.len());
        // A job submitted meanwhile is newer, and shifts no page.
        submit(&store, &[job(100 + pages.len() as u32)]).await;
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(pages, [10, 10, 5]);
}

pub async fn state_counts_add_up(store: Handle) {
    two_in_each_state(&store).await;
    submit(&store, &jobs(100, 30)).await;
    let newer = |n| NewJob { kind: kind(KIND, 2), ..job(n) };
    submit(&store, &[newer(200), newer(201)]).await;
    let mut counts = store.inspect().state_counts().await.expect("state counts");
    counts.sort();
    let mut expected = Vec::new();
    for state in State::ALL {
        let jobs = if state == State::Ready { 33 } else { 1 };
        expected.push(StateCount { queue: QUEUE.into(), kind: KIND.into(), state, jobs });
        expected.push(StateCount { queue: "bulk".into(), kind: "other".into(), state, jobs: 1 });
    }
    expected.sort();
    assert_eq!(counts, expected, "versions of a kind are counted together");
    let total: u64 = counts.iter().map(|count| count.jobs).sum();
    assert_eq!(total, list(&store, all_jobs()).await.len() as u64);
}

pub async fn the_backlog_counts_jobs_and_reports_the_oldest(store: Handle) {
    two_in_each_state(&store).await;
    let backlog = async |cap| store.inspect().backlog(cap).await.expect("backlog");
    let expected = |queue: &str, ready: u64| Backlog {
        queue: queue.into(),
        ready,
        scheduled: 1,
        running: 1,
        oldest_at: Some(t(0)),
    };
    assert_eq!(backlog(100).await, [expected("bulk", 1), expected(QUEUE, 1)]);
    // The age is that of the first job in line; each kind has its own first job.
    let urgent = NewJob { priority: -100, ..job(100) };
    let newer = NewJob { kind: kind(KIND, 2), ..job(101) };
    store.submit(at(7), &[urgent], None).await.expect("submit");
    let first = |seconds| Backlog { oldest_at: Some(t(seconds)), ..expected(QUEUE, 2) };
    assert_eq!(backlog(100).await[1], first(7));
    store.submit(at(5), &[newer], None).await.expect("submit");
    assert_eq!(backlog(100).await[1], Backlog { ready: 3, ..first(5) });
    // Suspects count as ready.
    reap(&store, 8, WorkerId(1)).await;
    assert_eq!(backlog(100).await[1], Backlog { ready: 4, running: 0, ..first(0) });
    submit(&store, &jobs(200, 30)).await;
    assert_eq!(backlog(10).await[1].ready, 10);
}

pub async fn workers_are_listed(store: Handle) {
    let new = NewWorker {
        name: "host ü/7".into(),
        liveness_file: Some("/run/x".into()),
        lease: secs(5),
        ..new_worker(3)
    };
    assert!(store.register_worker(at(0), &new).await.expect("register"));
    worker(&store, 1).await;
    let workers = store.inspect().workers().await.expect("workers");
    assert_eq!(workers.len(), 2);
    let shown = workers.iter().find(|worker| worker.id == new.id).expect("listed");
    assert_eq!((shown.name.as_str(), shown.liveness_file.as_deref()), ("host ü/7", Some("/run/x")));
    assert_eq!((shown.alive, shown.lease_until, shown.claims), (true, t(5), 0));
}

pub async fn job_ends_are_returned_for_each_id(store: Handle) {
    two_in_each_state(&store).await;
    let ends = store.job_ends(&[12, 99, 8, 0, 10, 2, 4, 6, 8].map(id)).await.expect("ended");
    let output = Some(JobEnd::Done(payload("x")));
    let expected = [
        Some(JobEnd::Cancelled(Failure::cancel("no longer wanted"))),
        Some(JobEnd::Gone),
        output.clone(),
        None,
        Some(JobEnd::Failed { reason: Reason::Stopped, failure: Failure::stop("because stopped") }),
        None,
        None,
        None,
        output,
    ];
    assert_eq!(ends, expected);
    assert!(store.job_ends(&[]).await.expect("ended").is_empty());
    let ids = [12, 8, 99, 0, 8].map(id);
    let sizes =
        async |limit| store.inspect().payload_sizes(PayloadsOf::Outputs(&ids), limit).await.expect("sizes");
    assert_eq!((sizes(9).await, sizes(2).await), (vec![0, 1, 0, 0, 1], vec![0, 1]));
}

pub async fn reads_of_unknown_jobs_are_empty(store: Handle) {
    assert_eq!(store.inspect().job(id(1)).await.expect("job"), None);
    assert!(history(&store, id(1)).await.is_empty());
    assert!(list(&store, all_jobs()).await.is_empty());
    assert!(store.inspect().state_counts().await.expect("state counts").is_empty());
    assert!(store.inspect().workers().await.expect("workers").is_empty());
}

pub async fn a_running_job_names_its_worker(store: Handle) {
    let (one, two) = (worker(&store, 1).await, worker(&store, 2).await);
    submit(&store, &[job(1)]).await;
    let first = claim_one(&store, 3, one, 1).await;
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.worker, seen.started_at), (Some(one), Some(t(3))));
    apply(&store, 4, change(one, &first, retry(secs(0), &[]))).await;
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.worker, seen.started_at), (Some(one), Some(t(1))), "of the attempt that committed last");
    claim_one(&store, 5, two, 1).await;
    let seen = view(&store, id(1)).await;
    assert_eq!((seen.worker, seen.started_at), (Some(two), Some(t(5))));
}

pub async fn schema_clock_and_size_can_be_read(store: Handle) {
    assert_eq!(store.inspect().schema().await.expect("schema"), SchemaState::CURRENT);
    let clock = store.inspect().clock().await.expect("clock");
    assert!(clock > Time(1_700_000_000_000_000) && clock < Time::MAX);
    submit(&store, &jobs(1, 10)).await;
    store.inspect().bytes().await.expect("bytes");
}

pub async fn children_are_listed_oldest_first(store: Handle) {
    let worker = worker(&store, 1).await;
    let child = |n| NewJob { parent: Some(id(1)), ..job(n) };
    submit(&store, &[job(1), child(5), child(3), NewJob { parent: Some(id(3)), ..job(4) }, child(6)]).await;
    assert_eq!((view(&store, id(5)).await.parent, view(&store, id(1)).await.parent), (Some(id(1)), None));
    let children = async |after, limit| {
        let children = store.inspect().children(id(1), after, limit).await.expect("children");
        children.into_iter().map(|child| child.id).collect::<Vec<_>>()
    };
    assert_eq!(children(None, 9).await, [3, 5, 6].map(id));
    assert_eq!(children(Some(id(3)), 1).await, [id(5)]);
    assert!(store.inspect().children(id(99), None, 9).await.expect("children").is_empty());
    let outcomes = store.submit(at(0), &[child(7)], claim_on_submit(worker, 1)).await.expect("submit");
    assert_eq!(
        outcomes,
        [windlass_model::SubmitOutcome::New { claimed: None }],
        "a child is not claimed at submit"
    );
    for child in store.inspect().children(id(1), None, 9).await.expect("children") {
        assert_eq!(child, view(&store, child.id).await.summary, "lists and reads of one job agree");
    }
}

pub async fn workers_are_listed_with_what_they_serve(store: Handle) {
    let serves = vec![
        Serves { queue: "main".into(), slots: 3, kinds: vec![kind("a", 1), kind("b", 2)] },
        Serves { queue: "q \"ü\"".into(), slots: 0, kinds: Vec::new() },
    ];
    let new = NewWorker { serves: serves.clone(), ..new_worker(1) };
    assert!(store.register_worker(at(0), &new).await.expect("register"));
    worker(&store, 2).await;
    let shown = store.inspect().workers().await.expect("workers");
    let serves_of = |n: i64| shown.iter().find(|worker| worker.id.0 == n).expect("listed").serves.clone();
    assert_eq!((serves_of(1), serves_of(2)), (serves, Vec::new()));
}

pub async fn queues_report_their_oldest_ready_job(store: Handle) {
    let worker = worker(&store, 1).await;
    assert!(store.inspect().queues().await.expect("queues").is_empty());
    store.submit(at(7), &[job(1)], None).await.expect("submit");
    store.submit(at(5), &[job_in(2, "other", QUEUE), job_in(3, KIND, "bulk")], None).await.expect("submit");
    let oldest = async || {
        let queues = store.inspect().queues().await.expect("queues");
        queues.into_iter().map(|queue| (queue.name, queue.oldest_ready)).collect::<Vec<_>>()
    };
    assert_eq!(oldest().await, [("bulk".to_owned(), Some(t(5))), (QUEUE.to_owned(), Some(t(5)))]);
    let others = crate::ClaimRequest { kinds: [kind("other", 1)].into(), ..claim_request(worker, 1, 9) };
    claim(&store, at(8), &others).await;
    assert_eq!(oldest().await[1].1, Some(t(7)));
    reap(&store, 9, worker).await;
    assert_eq!(oldest().await[1].1, Some(t(5)), "suspects count as ready");
}
