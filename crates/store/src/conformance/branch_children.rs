//! Children in branches: among other children of the same job, under flow control, listed, pruned and forked.

use windlass_model::{
    BranchMember, BranchNo, BranchPosition, BranchUpdate, BranchWatch, CommitOutcome, JobId, NewJob, Outcome,
    RateCharge, RateLimit, Reason, Serial, State, StepWrites, Unique, Wait, When, wait::CHILD_SIGNAL,
};

use super::{branch_kit::*, kit::*};
use crate::{
    AdminAction, BranchChildFilter, BranchItems, BranchRanges, ChildBounds, ChildGroup, ChildPosition,
    ChildRange, ChildStates, JobEnd, Prune, RangeChild, TIMER_GATE,
};

pub async fn branches_of_two_jobs_with_the_same_number_are_separate(store: Handle) {
    let (first, _) = parent_with_children(&store, children(2, 2)).await;
    let second = running_job(&store, 40).await;
    update_branches(&store, 1, &second, vec![open_branch(BRANCH, "all")], children(50, 3)).await;
    let taken = claim_all(&store, 2, first, 2).await;
    for child in &taken {
        let parent = if child.id < id(40) { id(1) } else { id(40) };
        assert_eq!(child.branch_member, Some(BranchMember { parent, branch: BRANCH, items: 1 }));
    }
    apply(&store, 3, change(first, &taken[4], done("x"))).await;
    assert_eq!(counts(&store).await, [0, 0, 0, 0]);
    assert_eq!(branch(&store, 40, BRANCH).await.counts.done, 1);
    let filter = |n: u32| BranchChildFilter {
        job: id(n),
        branch: BRANCH,
        states: ChildStates::All,
        after: None,
        limit: 99,
    };
    assert_eq!(store.inspect().branch_children(&filter(1)).await.expect("children").len(), 2);
    assert_eq!(store.inspect().branch_children(&filter(40)).await.expect("children").len(), 3);
    assert_eq!(store.inspect().branch_children(&filter(2)).await.expect("children"), []);
}

pub async fn children_in_and_outside_a_branch_are_counted_separately(store: Handle) {
    let (me, job) = parent_with_children(&store, children(2, 1)).await;
    let spawn = StepWrites {
        signal_child_ends: true,
        ..branch_writes(vec![], vec![self::job(3), branch_child(4, BRANCH)])
    };
    assert_eq!(
        commit(&store, 2, with_step(change(me, &job, Outcome::Next), spawn)).await,
        CommitOutcome::Committed
    );
    let job = after_step(&job);
    let mixed = spawn_children(&[self::job(5), branch_child(6, BRANCH)]);
    apply(&store, 3, with_step(change(me, &job, wait_for_children(&job)), mixed)).await;
    let parent = view(&store, id(1)).await;
    assert_eq!((parent.pending_children, branch(&store, 1, BRANCH).await.spawned), (1, 3));
    let taken = claim_all(&store, 4, me, 2).await;
    assert_eq!(ids(&taken), [2, 3, 4, 5, 6].map(id));
    let parents: Vec<Option<JobId>> = taken.iter().map(|child| child.parent).collect();
    assert_eq!(parents, [None, Some(id(1)), None, Some(id(1)), None]);
    let in_branch: Vec<bool> = taken.iter().map(|child| child.branch_member.is_some()).collect();
    assert_eq!(in_branch, [true, false, true, false, true]);
    for child in [0, 1, 2, 4] {
        apply(&store, 5, change(me, &taken[child], done("x"))).await;
    }
    assert_eq!(state(&store, id(1)).await, State::Waiting);
    let names: Vec<String> = store
        .inspect()
        .inbox(id(1), 99)
        .await
        .expect("inbox")
        .into_iter()
        .map(|signal| signal.name)
        .collect();
    assert_eq!(names, [CHILD_SIGNAL], "only the child outside the branch sends a signal");
    apply(&store, 6, change(me, &taken[3], done("x"))).await;
    assert_eq!((state(&store, id(1)).await, counts(&store).await), (State::Ready, [3, 3, 0, 0]));
    assert_eq!(store.inspect().children(id(1), None, 99).await.expect("children").len(), 5);
    let waited_for = store.inspect().child_ends(id(1), windlass_model::Rev(3), None, 9).await.expect("ends");
    assert_eq!(waited_for.len(), 1);
}

pub async fn a_child_in_a_branch_may_open_a_branch(store: Handle) {
    let (me, _) = parent_with_children(&store, children(2, 2)).await;
    let taken = claim_all(&store, 2, me, 2).await;
    let watch = BranchWatch { ended: Some(2), ..BranchWatch::default() };
    let inner = BranchUpdate { watch: Some(watch), seal: true, ..open_branch(BRANCH, "inner") };
    let step = branch_writes(vec![inner], children(20, 2));
    let wait = wait_for_signal(windlass_model::branch::BRANCH_SIGNAL, None);
    apply(&store, 3, with_step(change(me, &taken[0], wait), step)).await;
    let grandchildren = claim_all(&store, 4, me, 3).await;
    assert_eq!(grandchildren[0].branch_member.map(|member| member.parent), Some(id(2)));
    for child in &grandchildren {
        apply(&store, 5, change(me, child, done("x"))).await;
    }
    assert_eq!(counts(&store).await, [1, 0, 0, 0]);
    let woken = claim_one(&store, 6, me, 4).await;
    assert_eq!((woken.id, texts(&woken.inbox)), (id(2), vec!["7".to_owned()]));
    // One batch ends both children of the outer branch, one of which is the parent of the inner one.
    let batch = [change(me, &taken[1], done("x")), change(me, &woken, done("x"))];
    store.commit(at(7), &batch).await.expect("commit");
    assert_eq!(counts(&store).await, [2, 2, 0, 0]);
}

pub async fn flow_control_applies_to_children_in_a_branch(store: Handle) {
    administer(&store, 0, AdminAction::Limit(RateLimit::per("api", 1, secs(10)))).await;
    let mut all = children(2, 6);
    all[0].when = When::After(secs(10));
    for child in &mut all[1..3] {
        child.settings.serial = Some(Box::new(Serial::new("key")));
    }
    for child in &mut all[3..5] {
        child.settings.rate = Some(Box::new(RateCharge { limit: "api".into(), weight: 1 }));
    }
    all[5].settings.unique = Some(Box::new(Unique::new("name")));
    let timers = gates(&store, &[TIMER_GATE]).await;
    let (me, job) = parent_with_children(&store, all).await;
    assert_ne!(gates(&store, &[TIMER_GATE]).await, timers, "a timer was set");
    assert_eq!(branch(&store, 1, BRANCH).await.spawned, 6);
    let mut same = branch_child(10, BRANCH);
    same.settings.unique = Some(Box::new(Unique::new("name")));
    update_branches(&store, 2, &(me, job), vec![], vec![same]).await;
    assert_eq!(branch(&store, 1, BRANCH).await.spawned, 6, "its unique name is held, so it is not spawned");
    assert_eq!(state(&store, id(2)).await, State::Scheduled);
    let taken = claim_all(&store, 2, me, 2).await;
    assert_eq!(ids(&taken), [3, 5, 7].map(id));
    let batch: Vec<_> = taken.iter().map(|child| change(me, child, done("x"))).collect();
    store.commit(at(3), &batch).await.expect("commit");
    assert_eq!(counts(&store).await, [3, 3, 0, 0]);
    assert_eq!(fire_timers(&store, 12, 9).await.woken, 1);
    let taken = claim_all(&store, 12, me, 3).await;
    assert_eq!(ids(&taken), [4, 6, 2].map(id));
    for child in &taken {
        apply(&store, 13, change(me, child, done("x"))).await;
    }
    assert_eq!(counts(&store).await, [6, 6, 0, 0]);
}

pub async fn a_child_shows_its_position_in_its_branch(store: Handle) {
    let (me, job) = running_job(&store, 1).await;
    let spawns = Some(vec!["each".to_owned(), "sum".to_owned()]);
    let open = BranchUpdate { spawns, ..open_branch(BRANCH, "all") };
    let one = BranchPosition { branch: BRANCH, spawn: 1, item: String::new(), items: 1 };
    let single = NewJob { branch_position: Some(Box::new(one)), ..self::job(2) };
    let all = vec![single, branch_child(3, BRANCH), block(4, 9), self::job(5)];
    apply(&store, 1, with_step(change(me, &job, Outcome::Wait(Wait::YIELD)), branch_writes(vec![open], all)))
        .await;
    let position = |spawn: &str, item: &str, items| ChildPosition {
        branch: BRANCH,
        name: "all".into(),
        spawn: spawn.into(),
        item: item.into(),
        items,
    };
    let seen = view(&store, id(2)).await;
    assert_eq!((seen.parent, seen.position.clone()), (Some(id(1)), Some(position("sum", "", 1))));
    assert_eq!(seen.position.expect("compared above").key("order"), "order$all$sum");
    let seen = view(&store, id(3)).await.position.expect("a position in the branch");
    assert_eq!((seen.key("order").as_str(), &seen), ("order$all$each_3", &position("each", "3", 1)));
    assert_eq!(view(&store, id(4)).await.position, Some(position("each", "4..", 9)));
    assert_eq!(view(&store, id(5)).await.position, None);
    assert_eq!(view(&store, id(1)).await.position, None);
}

pub async fn children_in_a_branch_are_listed_in_pages(store: Handle) {
    let (me, _) = parent_with_children(&store, children(2, 12)).await;
    let taken = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &taken[0], done("out"))).await;
    apply(&store, 3, change(me, &taken[1], failed(Reason::Stopped))).await;
    apply(&store, 3, change(me, &taken[2], cancelled())).await;
    apply(&store, 3, with_step(change(me, &taken[3], Outcome::Next), step("A", "B", "data"))).await;
    let listed = async |states| {
        let all = list_children(&store, states).await;
        all.into_iter().map(|child| child.summary.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(ChildStates::All).await, (2..14).map(id).collect::<Vec<_>>());
    assert_eq!(listed(ChildStates::Live).await, (5..14).map(id).collect::<Vec<_>>());
    assert_eq!(listed(ChildStates::Ended).await, [2, 3, 4].map(id));
    assert_eq!(listed(ChildStates::Unsuccessful).await, [3, 4].map(id));
    for states in [ChildStates::All, ChildStates::Live, ChildStates::Ended, ChildStates::Unsuccessful] {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let filter = BranchChildFilter { job: id(1), branch: BRANCH, states, after, limit: 5 };
            let page = store.inspect().branch_children(&filter).await.expect("children");
            assert!(page.len() <= 5);
            let Some(last) = page.last() else { break };
            after = Some(last.summary.id);
            pages.extend(page);
        }
        assert_eq!(pages, list_children(&store, states).await);
    }
    let all = list_children(&store, ChildStates::All).await;
    let BranchPosition { branch, spawn, item, items } = all[0].branch_position.clone();
    assert_eq!((branch, spawn, item.as_str(), items), (BRANCH, 0, "2", 1));
    assert_eq!((&all[0].input, &all[0].data, all[0].items_done), (&payload("2"), &None, 0));
    assert_eq!(all[0].ended, Some(JobEnd::Done(payload("out"))));
    assert!(
        matches!(&all[1].ended, Some(JobEnd::Failed { reason: Reason::Stopped, .. })),
        "{:?}",
        all[1].ended
    );
    assert!(matches!(&all[2].ended, Some(JobEnd::Cancelled(_))), "{:?}", all[2].ended);
    assert_eq!((&all[3].ended, &all[3].data), (&None, &Some(payload("data"))));
    assert_eq!((all[3].summary.state, all[3].summary.kind.as_str()), (State::Running, KIND));
}

pub async fn a_page_of_children_is_bounded_in_what_it_examines_and_in_bytes(store: Handle) {
    // Every input has as many bytes as its number has digits.
    let (me, _) = parent_with_children(&store, children(10, 12)).await;
    let taken = claim_all(&store, 2, me, 2).await;
    for (index, end) in [(0, done("out")), (5, failed(Reason::Stopped)), (6, cancelled()), (11, done("out"))]
    {
        apply(&store, 3, change(me, &taken[index], end)).await;
    }
    let page = async |states, after: Option<u32>, limit, examine, bytes| {
        let filter = BranchChildFilter { job: id(1), branch: BRANCH, states, after: after.map(id), limit };
        let bounds = ChildBounds { examine, bytes };
        let page = store.inspect().branch_children_page(&filter, bounds).await.expect("a page");
        (page.children.iter().map(|child| child.summary.id).collect::<Vec<_>>(), page.next)
    };
    let ids = |numbers: &[u32]| numbers.iter().copied().map(id).collect::<Vec<_>>();
    let all = list_children(&store, ChildStates::All).await;
    let filter =
        BranchChildFilter { job: id(1), branch: BRANCH, states: ChildStates::All, after: None, limit: 99 };
    let bounds = ChildBounds { examine: 99, bytes: 9_999 };
    let read = store.inspect().branch_children_page(&filter, bounds).await.expect("a page");
    assert_eq!((read.children, read.next), (all, None));
    use ChildStates::{All, Ended, Live, Unsuccessful};
    assert_eq!(page(All, None, 3, 99, 9_999).await, (ids(&[10, 11, 12]), Some(id(12))));
    assert_eq!(page(All, Some(18), 3, 99, 9_999).await, (ids(&[19, 20, 21]), None));
    // Four children are examined, of which one has ended; then six.
    assert_eq!(page(Ended, None, 9, 4, 9_999).await, (ids(&[10]), Some(id(13))));
    assert_eq!(page(Ended, Some(10), 9, 4, 9_999).await, (vec![], Some(id(14))));
    assert_eq!(page(Ended, Some(10), 1, 6, 9_999).await, (ids(&[15]), Some(id(15))));
    assert_eq!(page(Ended, Some(16), 9, 99, 9_999).await, (ids(&[21]), None));
    assert_eq!(page(Live, None, 2, 99, 9_999).await, (ids(&[11, 12]), Some(id(12))));
    // Input and output of the first have five bytes, the input of each other one two.
    let inputs = (2 + 3) + 2 + 2;
    assert_eq!(page(All, None, 9, 99, inputs).await, (ids(&[10, 11, 12]), Some(id(12))));
    assert_eq!(page(All, None, 9, 99, inputs + 1).await, (ids(&[10, 11, 12]), Some(id(12))));
    assert_eq!(page(All, None, 9, 99, 0).await, (ids(&[10]), Some(id(10))), "one child is always in it");
    assert_eq!(page(Unsuccessful, None, 9, 99, 9_999).await, (ids(&[15, 16]), None));
    assert_eq!(page(Unsuccessful, None, 1, 99, 9_999).await, (ids(&[15]), Some(id(15))));
    assert_eq!(page(Unsuccessful, None, 9, 99, 3).await, (ids(&[15]), Some(id(15))));
    assert_eq!(page(Unsuccessful, Some(15), 9, 99, 0).await, (ids(&[16]), None));
    assert_eq!(page(All, Some(21), 9, 99, 99).await, (vec![], None));
    for states in [All, Live, Ended, Unsuccessful] {
        let (mut read, mut after) = (Vec::new(), None);
        loop {
            let filter = BranchChildFilter { job: id(1), branch: BRANCH, states, after, limit: 2 };
            let bounds = ChildBounds { examine: 3, bytes: 6 };
            let page = store.inspect().branch_children_page(&filter, bounds).await.expect("a page");
            read.extend(page.children);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(read, list_children(&store, states).await, "{states:?}");
    }
}

pub async fn children_are_found_by_their_items(store: Handle) {
    let one = BranchPosition { branch: BRANCH, spawn: 1, item: String::new(), items: 1 };
    let single = NewJob { branch_position: Some(Box::new(one)), ..self::job(30) };
    let same_item = BranchPosition { branch: BRANCH, spawn: 0, item: "3".into(), items: 4 };
    let same_place = NewJob { branch_position: Some(Box::new(same_item)), ..self::job(40) };
    let mut all = children(2, 12);
    all.extend([single, block(20, 9), same_place]);
    parent_with_children(&store, all).await;
    let second = running_job(&store, 50).await;
    update_branches(&store, 1, &second, vec![open_branch(BRANCH, "all")], children(60, 3)).await;
    let found = async |n, branch, spawn, items: &[&str]| {
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let of = BranchItems { job: id(n), branch, spawn, items: &items };
        let found = store.inspect().branch_items(of).await.expect("items");
        found.into_iter().map(|child| (child.id, child.item)).collect::<Vec<_>>()
    };
    let item = |n: u32, item: &str| (id(n), item.to_owned());
    assert_eq!(found(1, BRANCH, 0, &["5"]).await, [item(5, "5")]);
    assert_eq!(
        found(1, BRANCH, 0, &["12", "99", "3", "20.."]).await,
        [item(12, "12"), item(3, "3"), item(40, "3"), item(20, "20..")]
    );
    assert_eq!(found(1, BRANCH, 1, &[""]).await, [item(30, "")]);
    assert_eq!(found(50, BRANCH, 0, &["60", "5"]).await, [item(60, "60")], "of another job");
    assert!(found(1, BRANCH, 1, &["5"]).await.is_empty(), "of another spawn");
    assert!(found(1, BranchNo(8), 0, &["5"]).await.is_empty(), "of another branch");
    assert!(found(1, BRANCH, 0, &[]).await.is_empty());
}

pub async fn pruning_a_job_deletes_its_branches(store: Handle) {
    let parent = parent_with_children(&store, children(2, 2)).await;
    let (me, job) = parent;
    let taken = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &taken[0], done("x"))).await;
    let prune = async |now: u64| {
        let prune = Prune { state: State::Done, before: t(now), kind: None, after: None, limit: 99 };
        store.prune(at(now), &prune).await.expect("prune").jobs
    };
    assert_eq!(prune(50).await, 0, "its parent has not ended");
    apply(&store, 60, change(me, &job, done("x"))).await;
    assert_eq!(prune(70).await, 2);
    assert_eq!(store.inspect().branches(id(1)).await.expect("branches"), []);
    let seen = view(&store, id(3)).await;
    assert_eq!((seen.position, seen.parent), (None, Some(id(1))));
    assert_eq!(commit(&store, 80, change(me, &taken[1], done("x"))).await, CommitOutcome::Committed);
    assert_eq!(prune(90).await, 1, "its parent is pruned");
    submit(&store, &[self::job(1)]).await;
    assert_eq!(store.inspect().branches(id(1)).await.expect("branches"), []);
}

pub async fn a_fork_has_no_branches(store: Handle) {
    let (me, job) = parent_with_children(&store, children(2, 2)).await;
    apply(&store, 2, with_step(change(me, &job, Outcome::Next), journal_writes(vec![entry(0, "a", "x")])))
        .await;
    let fork = crate::Fork { from: id(1), id: id(90), before: 1, key: None };
    store.control().fork(at(3), &[fork], &actor()).await.expect("fork");
    assert_eq!(store.inspect().branches(id(90)).await.expect("branches"), []);
    let fork = crate::Fork { from: id(2), id: id(91), before: 0, key: None };
    store.control().fork(at(3), &[fork], &actor()).await.expect("fork");
    let seen = view(&store, id(91)).await;
    assert_eq!((seen.position, seen.parent), (None, None));
    assert_eq!(list_children(&store, ChildStates::All).await.len(), 2);
}

pub async fn live_children_of_a_branch_are_listed_newest_first(store: Handle) {
    let (me, parent) = parent_with_children(&store, children(2, 4)).await;
    let live = async |branch, among| {
        let group = ChildGroup::Branch(branch);
        let live = store.inspect().live_children(id(1), group, among).await.expect("live children");
        live.into_iter().map(|child| child.id).collect::<Vec<_>>()
    };
    assert_eq!(live(BRANCH, 99).await, [5, 4, 3, 2].map(id));
    let claimed = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &claimed[3], done("x"))).await;
    apply(&store, 3, change(me, &claimed[1], failed(Reason::Stopped))).await;
    assert_eq!(live(BRANCH, 99).await, [4, 2].map(id));
    assert_eq!(live(BRANCH, 2).await, [id(4)], "only the newest two are read");
    assert!(live(BranchNo(8), 99).await.is_empty());
    let of_a_step = ChildGroup::Change(parent.rev);
    assert!(store.inspect().live_children(id(1), of_a_step, 99).await.expect("live children").is_empty());
}

pub async fn ranges_of_a_branch_are_read(store: Handle) {
    let mut spawned = children(2, 6);
    spawned.push(block(8, 5));
    let (me, _) = parent_with_children(&store, spawned).await;
    let other = running_job(&store, 40).await;
    update_branches(&store, 1, &other, vec![open_branch(BRANCH, "all")], children(50, 3)).await;
    let inspect = store.inspect();
    let ends = inspect.branch_ends(id(1), BRANCH).await.expect("ends").expect("children");
    assert_eq!(ends, ChildRange { first: id(2), last: id(8) });
    assert_eq!(inspect.branch_ends(id(1), BranchNo(8)).await.expect("ends"), None);
    assert_eq!(inspect.branch_ends(id(2), BRANCH).await.expect("ends"), None);
    let claimed = claim_all(&store, 2, me, 2).await;
    apply(&store, 3, change(me, &claimed[1], done("x"))).await;
    apply(&store, 3, change(me, &claimed[3], failed(Reason::Stopped))).await;
    let read = async |ranges: &[(u32, u32)], each| {
        let range = |(first, last): &(u32, u32)| ChildRange { first: id(*first), last: id(*last) };
        let ranges: Vec<ChildRange> = ranges.iter().map(range).collect();
        let of = BranchRanges { job: id(1), branch: BRANCH, ranges: &ranges, each };
        let children = store.inspect().branch_ranges(of).await.expect("children");
        let child =
            |child: &RangeChild| (child.summary.id, child.summary.state, child.items, child.items_done);
        children.iter().map(|range| range.iter().map(child).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let running = |n| (id(n), State::Running, 1, 0);
    assert_eq!(
        read(&[(1, 3), (4, 4), (60, 70), (5, 99), (5, 2)], 2).await,
        [
            vec![running(2), (id(3), State::Done, 1, 0)],
            vec![running(4)],
            vec![],
            vec![(id(5), State::Failed, 1, 0), running(6)],
            vec![],
        ]
    );
    let parts = [ChildRange { first: id(7), last: id(8) }];
    let of = BranchRanges { job: id(1), branch: BRANCH, ranges: &parts, each: 9 };
    let items = store.inspect().branch_ranges(of).await.expect("children").concat();
    assert_eq!(items.iter().map(|child| child.item.as_str()).collect::<Vec<_>>(), ["7", "8.."]);
    assert_eq!(read(&[(8, 8)], 9).await, [vec![(id(8), State::Running, 5, 0)]]);
    assert!(read(&[], 9).await.is_empty());
    let parts = ends.divide(200);
    let of = BranchRanges { job: id(1), branch: BRANCH, ranges: &parts, each: 99 };
    let all = store.inspect().branch_ranges(of).await.expect("children");
    let all: Vec<JobId> = all.into_iter().flatten().map(|child| child.summary.id).collect();
    assert_eq!(all, [2, 3, 4, 5, 6, 7, 8].map(id), "parts of a branch are all of it");
}
