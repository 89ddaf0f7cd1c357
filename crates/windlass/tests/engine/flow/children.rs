//! What people see of the children of branches, and how they retry those that have not ended well.

use std::{collections::BTreeSet, sync::Mutex};

use windlass::{
    Error, Item, RedriveProgress, Skipped, State,
    prelude::*,
    store::ChildStates,
    testing::{Lab, LabJob},
};

use super::{On, on_every_store};

on_every_store!(
    what_failed_is_redriven,
    what_is_merged_is_redriven_only_by_name,
    packed_children_are_listed_one_by_one,
    children_are_found_by_what_they_are_called,
    a_merge_that_failed_is_judged_anew,
);

/// What was mended: what fails does not, from then on.
static MENDED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn mend(what: &str) {
    MENDED.lock().expect("mended").insert(what.to_owned());
}

/// Fails for some until that is mended. Returns nothing for others.
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
            Some(what) if !MENDED.lock().expect("mended").contains(what) => {
                Err(Failure::stop(format!("piece {} is broken", self.n)))
            }
            _ => Ok(self.n.is_multiple_of(2).then_some(self.n)),
        }
    }
}

/// Pieces, of which every tenth is broken, and one beside them.
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

fn kinds(engine: Engine) -> Engine {
    engine.task::<Piece>().workflow::<Pieces>()
}

async fn lab(on: On) -> (Lab, crate::common::TestStore) {
    let place = on.fresh().await;
    (Lab::on(&place.url, kinds).await, place)
}

/// Submits pieces and lets them run as far as they come.
async fn pieces(lab: &Lab, count: u64, packed: bool, broken: &str, merge: Merge) -> LabJob<(u64, u64)> {
    let job = Pieces { count, packed, broken: broken.into(), merge };
    let handle = lab.engine().await.submit(job).key(broken).await.expect("submitted");
    lab.run().await;
    lab.job(handle.id())
}

async fn redrive(lab: &Lab, job: LabJob<(u64, u64)>, branch: Option<&str>) -> (RedriveProgress, Vec<u64>) {
    let engine = lab.engine().await;
    let mut told = Vec::new();
    let redriven = engine.control("test").redrive(job.id(), branch).run(|so_far| {
        told.push(so_far.seen());
        true
    });
    (redriven.await.expect("redriven"), told)
}

async fn what_failed_is_redriven(on: On) {
    let (lab, _place) = lab(on).await;
    for packed in [false, true] {
        let broken = format!("{on:?} {packed}");
        let job = pieces(&lab, 300, packed, &broken, Merge::all()).await;
        assert_eq!(lab.state(job).await, State::Waiting);
        // Nothing is mended, so it comes to the same.
        let (redriven, told) = redrive(&lab, job, None).await;
        assert_eq!((redriven.bad, redriven.retried, redriven.refused), (30, 30, 0), "{redriven:?}");
        assert!(told.is_sorted() && told.last() == Some(&30), "{told:?}");
        lab.run().await;
        assert_eq!(lab.state(job).await, State::Waiting);
        mend(&broken);
        assert_eq!(redrive(&lab, job, Some("pieces")).await.0.retried, 30);
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), (301, 0));
        let (redriven, _) = redrive(&lab, job, None).await;
        assert_eq!(redriven, RedriveProgress::default());
        let engine = lab.engine().await;
        let filter = windlass::AuditFilter { subject: Some(job.id().to_string()), ..Default::default() };
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

async fn what_is_merged_is_redriven_only_by_name(on: On) {
    let (lab, _place) = lab(on).await;
    let broken = format!("{on:?} merged");
    let job = pieces(&lab, 20, false, &broken, Merge::settled()).await;
    assert_eq!(lab.result(job).await.expect("done"), (19, 2));
    let (redriven, _) = redrive(&lab, job, None).await;
    assert_eq!(redriven.passed, [("pieces".to_owned(), Skipped::Merged)]);
    assert_eq!(redriven.retried, 0);
    mend(&broken);
    let (redriven, _) = redrive(&lab, job, Some("pieces")).await;
    assert_eq!((redriven.retried, redriven.passed.len()), (2, 0));
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

/// All children that match, read in pages of so many.
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
        mark = items.mark();
    }
}

async fn packed_children_are_listed_one_by_one(on: On) {
    let (lab, _place) = lab(on).await;
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
        assert_eq!((nine.state, nine.block), (State::Failed, None), "it was moved out");
        assert_eq!(nine.failure.as_ref().expect("an error").message, "piece 9 is broken");
        assert_eq!(listed(&engine, job.id(), ChildStates::Bad, page).await.len(), 9);
        assert_eq!(listed(&engine, job.id(), ChildStates::Ended, page).await.len(), 96);
        assert_eq!(listed(&engine, job.id(), ChildStates::Live, page).await.len(), 0);
    }
    let wrong = engine.items(job.id(), None, ChildStates::All).await.expect("children").after("1/2/3");
    assert!(wrong.err().expect("no position").to_string().contains("is not a position among children"));
}

async fn children_are_found_by_what_they_are_called(on: On) {
    let (lab, _place) = lab(on).await;
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
                assert_eq!(job.is_some(), !is_packed, "its id is that of a job, once it is one");
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
            let said = wrong(&key).await;
            assert!(said.contains(why), "{said}");
        }
    }
}

/// What was not merged well can be: its children are redriven, and its parent is retried, whichever comes first.
async fn a_merge_that_failed_is_judged_anew(on: On) {
    let (lab, _place) = lab(on).await;
    for redriven_first in [true, false] {
        let broken = format!("{on:?} anew {redriven_first}");
        let job = pieces(&lab, 30, false, &broken, Merge::tolerate(2)).await;
        let error = lab.result(job).await.expect_err("three failed").to_string();
        assert!(error.contains("of 31 children 3 failed, and 2 are tolerated"), "{error}");
        mend(&broken);
        let engine = lab.engine().await;
        let control = engine.control("test");
        if redriven_first {
            assert_eq!(redrive(&lab, job, Some("pieces")).await.0.retried, 3);
            lab.run().await;
            control.retry(job.id()).await.expect("retried");
        } else {
            control.pause_queue("default").await.expect("paused");
            assert_eq!(redrive(&lab, job, Some("pieces")).await.0.retried, 3);
            control.retry(job.id()).await.expect("retried");
            control.resume_queue("default").await.expect("resumed");
        }
        lab.run().await;
        assert_eq!(lab.result(job).await.expect("done"), (31, 0), "{redriven_first}");
    }
}
