//! How people list and find the children of branches, and redrive those that did not succeed.

use std::{collections::BTreeSet, sync::Mutex};

use windlass::{
    Error, State,
    operate::{Item, RedriveProgress, SkipReason, SkippedBranch},
    prelude::*,
    store::ChildStates,
    testing::{Lab, LabJob},
};

use super::{On, on_every_store};

on_every_store!(
    failed_children_are_redriven,
    a_merged_branch_is_redriven_only_by_name,
    packed_children_are_listed_one_by_one,
    children_are_found_by_their_keys,
    a_merge_that_failed_is_decided_again_after_a_redrive,
);

/// What was fixed: pieces that were broken by it no longer fail.
static FIXED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn fix(what: &str) {
    FIXED.lock().expect("fixed").insert(what.to_owned());
}

/// Fails if it is broken, until that is fixed. Returns its number if that is even.
#[derive(Serialize, Deserialize)]
struct Piece {
    n: u64,
    broken: Option<String>,
}

impl Task for Piece {
    const KIND: &'static str = "children_piece";
    type Output = Option<u64>;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<Option<u64>, Failure> {
        match &self.broken {
            Some(what) if !FIXED.lock().expect("fixed").contains(what) => {
                Err(Failure::stop(format!("piece {} is broken", self.n)))
            }
            _ => Ok(self.n.is_multiple_of(2).then_some(self.n)),
        }
    }
}

/// Pieces, of which every tenth is broken, and one more.
#[derive(Serialize, Deserialize)]
struct Pieces {
    count: u64,
    packed: bool,
    broken: String,
    merge: Merge,
}

impl Workflow for Pieces {
    const KIND: &'static str = "children_pieces";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        let Pieces { count, packed, broken, merge } = self;
        let branch = flow.branch("pieces").chunk(50);
        let branch = if packed { branch.packed() } else { branch };
        let merging = branch
            .spawn("first", Piece { n: 1_000, broken: None })
            .spawn_each("piece", 0..count, move |n| Piece {
                n,
                broken: (n % 10 == 9).then(|| broken.clone()),
            })
            .merge(merge);
        let merged = merging.await?;
        Ok((merged.done, merged.failed))
    }
}

fn kinds(engine: windlass::Builder) -> windlass::Builder {
    engine.task::<Piece>().workflow::<Pieces>()
}

async fn lab(on: On) -> (Lab, crate::common::TestStore) {
    let store = on.fresh().await;
    (Lab::on(&store.url, kinds).await, store)
}

/// Submits pieces and runs the lab.
async fn pieces(lab: &Lab, count: u64, packed: bool, broken: &str, merge: Merge) -> LabJob<Pieces> {
    let job = Pieces { count, packed, broken: broken.into(), merge };
    let handle = lab.engine().await.submit(job).key(broken).await.expect("submitted");
    lab.run().await;
    lab.job(handle.id())
}

async fn redrive(lab: &Lab, job: LabJob<Pieces>, branch: Option<&str>) -> (RedriveProgress, Vec<u64>) {
    let engine = lab.engine().await;
    let mut progress = Vec::new();
    let redriven = engine.control("test").redrive(job.id(), branch).run(|so_far| {
        progress.push(so_far.seen());
        true
    });
    (redriven.await.expect("redriven"), progress)
}

async fn failed_children_are_redriven(on: On) {
    let (lab, _store) = lab(on).await;
    for packed in [false, true] {
        let broken = format!("{on:?} {packed}");
        let job = pieces(&lab, 300, packed, &broken, Merge::all()).await;
        assert_eq!(lab.state(job).await, State::Waiting);
        // Nothing is fixed, so they fail again.
        let (redriven, progress) = redrive(&lab, job, None).await;
        assert_eq!((redriven.unsuccessful, redriven.retried, redriven.refused), (30, 30, 0), "{redriven:?}");
        assert!(progress.is_sorted() && progress.last() == Some(&30), "{progress:?}");
        lab.run().await;
        assert_eq!(lab.state(job).await, State::Waiting);
        fix(&broken);
        assert_eq!(redrive(&lab, job, Some("pieces")).await.0.retried, 30);
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), (301, 0));
        let (redriven, _) = redrive(&lab, job, None).await;
        assert_eq!(redriven, RedriveProgress::default());
        let engine = lab.engine().await;
        let filter =
            windlass::operate::AuditFilter { subject: Some(job.id().to_string()), ..Default::default() };
        let audit = engine.inspect().audit(&filter).await.expect("audit");
        let actions: Vec<&str> = audit.iter().rev().map(|entry| entry.action.as_str()).collect();
        assert_eq!(
            actions,
            [
                "redrive",
                "redrive ended: 30 retried, 0 not",
                "redrive branch pieces",
                "redrive branch pieces ended: 30 retried, 0 not"
            ]
        );
    }
}

async fn a_merged_branch_is_redriven_only_by_name(on: On) {
    let (lab, _store) = lab(on).await;
    let broken = format!("{on:?} merged");
    let job = pieces(&lab, 20, false, &broken, Merge::settled()).await;
    assert_eq!(lab.result(job).await.expect("done"), (19, 2));
    let (redriven, _) = redrive(&lab, job, None).await;
    let merged = SkippedBranch { branch: "pieces".into(), why: SkipReason::Merged };
    assert_eq!(redriven.skipped, [merged]);
    assert_eq!(redriven.retried, 0);
    fix(&broken);
    let (redriven, _) = redrive(&lab, job, Some("pieces")).await;
    assert_eq!((redriven.retried, redriven.skipped.len()), (2, 0));
    lab.run().await;
    let engine = lab.engine().await;
    let branches = engine.inspect().branches(job.id()).await.expect("branches");
    assert_eq!(branches[0].counts.ends(), (21, 0, 0));
    let control = engine.control("test");
    let wrong = control.redrive(job.id(), Some("peaces")).run(|_| true).await.expect_err("no such branch");
    assert_eq!(wrong.to_string(), format!("job {} has no branch \"peaces\"; it has pieces", job.id()));
    let wrong = control.redrive(engine.new_id(), None).run(|_| true).await;
    assert!(matches!(wrong, Err(Error::NoSuchJob(_))), "{wrong:?}");
}

/// All children that match, read in pages of `page`.
async fn listed(engine: &Engine, job: JobId, only: ChildStates, page: usize) -> Vec<Item> {
    let mut found = Vec::new();
    let mut mark: Option<String> = None;
    loop {
        let items = engine.items(job, Some("pieces"), only).await.expect("children");
        let mut items = match &mark {
            Some(mark) => items.after(mark).expect("a place"),
            None => items,
        };
        for _ in 0..page {
            match items.next().await.expect("read") {
                Some(item) => found.push(item),
                None => return found,
            }
        }
        mark = items.position();
    }
}

async fn packed_children_are_listed_one_by_one(on: On) {
    let (lab, _store) = lab(on).await;
    let broken = format!("{on:?} listed");
    let job = pieces(&lab, 95, true, &broken, Merge::all()).await;
    let engine = lab.engine().await;
    for page in [7, 1_000] {
        let all = listed(&engine, job.id(), ChildStates::All, page).await;
        let names: BTreeSet<&str> = all.iter().map(|item| item.place.item.as_str()).collect();
        assert_eq!((all.len(), names.len()), (96, 96), "each one once");
        let item = |n: &str| all.iter().find(|item| item.place.item == n).expect(n);
        let four = item("4");
        assert_eq!((four.state, &four.result), (State::Done, &Some(4.into())));
        assert_eq!(four.input, Some(serde_json::json!({ "n": 4, "broken": null })));
        assert!(four.block.is_some() && four.failure.is_none());
        assert_eq!(item("5").result, Some(serde_json::Value::Null));
        let nine = item("9");
        assert_eq!((nine.state, nine.block), (State::Failed, None), "it was promoted");
        assert_eq!(nine.failure.as_ref().expect("an error").message, "piece 9 is broken");
        assert_eq!(listed(&engine, job.id(), ChildStates::Unsuccessful, page).await.len(), 9);
        assert_eq!(listed(&engine, job.id(), ChildStates::Ended, page).await.len(), 96);
        assert_eq!(listed(&engine, job.id(), ChildStates::Live, page).await.len(), 0);
    }
    let wrong = engine.items(job.id(), None, ChildStates::All).await.expect("children").after("1/2/3");
    assert!(wrong.err().expect("no position").to_string().contains("is not a position among children"));
}

async fn children_are_found_by_their_keys(on: On) {
    let (lab, _store) = lab(on).await;
    for packed in [false, true] {
        let broken = format!("{on:?}-found-{packed}");
        let job = pieces(&lab, 70, packed, &broken, Merge::all()).await;
        let engine = lab.engine().await;
        for parent in [broken.clone(), job.id().to_string()] {
            for (child, state) in
                [("piece_0", State::Done), ("piece_69", State::Failed), ("first", State::Done)]
            {
                let found = engine.item(&format!("{parent}$pieces${child}")).await.expect(child);
                assert_eq!((found.state, &found.key), (state, &format!("{broken}$pieces${child}")));
                let is_packed = packed && state == State::Done;
                assert_eq!(found.block.is_some(), is_packed, "{child}");
                let job = engine.inspect().job(found.id).await.expect("read");
                assert_eq!(job.is_some(), !is_packed, "its id is that of a job once it is promoted");
            }
        }
        let wrong = async |key: &str| engine.item(key).await.expect_err(key).to_string();
        for (key, why) in [
            ("piece_0".to_owned(), "are named parent$branch$spawn_item"),
            ("nobody$pieces$piece_0".to_owned(), "no job has the id or the key \"nobody\""),
            (format!("{broken}$peaces$piece_0"), "has only the branches pieces"),
            (format!("{broken}$pieces$peace_0"), "the spawns of that branch are first, piece"),
            (format!("{broken}$pieces$piece_70"), "has no child for the item \"70\""),
            (format!("{broken}$pieces$piece"), "has an item for each child: name one"),
        ] {
            let error = wrong(&key).await;
            assert!(error.contains(why), "{error}");
        }
    }
}

/// The children are redriven and the parent is retried, in either order.
async fn a_merge_that_failed_is_decided_again_after_a_redrive(on: On) {
    let (lab, _store) = lab(on).await;
    for redriven_first in [true, false] {
        let broken = format!("{on:?} again {redriven_first}");
        let job = pieces(&lab, 30, false, &broken, Merge::tolerate(2)).await;
        let error = lab.result(job).await.expect_err("three failed").to_string();
        assert!(error.contains("of 31 children 3 failed, and 2 are tolerated"), "{error}");
        fix(&broken);
        let engine = lab.engine().await;
        let control = engine.control("test");
        if redriven_first {
            assert_eq!(redrive(&lab, job, Some("pieces")).await.0.retried, 3);
            lab.run().await;
            control.retry(job.id()).await.expect("retried").accepted().expect("retried");
        } else {
            control.pause_queue("default").await.expect("paused");
            assert_eq!(redrive(&lab, job, Some("pieces")).await.0.retried, 3);
            control.retry(job.id()).await.expect("retried").accepted().expect("retried");
            control.resume_queue("default").await.expect("resumed");
        }
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), (31, 0), "{redriven_first}");
    }
}
