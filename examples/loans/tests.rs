//! Labs with virtual time. Every test runs on a SQLite file and on a private PostgreSQL server.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

use windlass::testing::{self, Lab};
use windlass_testpg::Cluster;

use super::*;

/// Where a test makes its stores. The folder is deleted when the test ends, and the server ends with the process.
enum Stores {
    Sqlite(tempfile::TempDir),
    Postgres(&'static Cluster),
}

impl Stores {
    fn sqlite() -> Stores {
        Stores::Sqlite(tempfile::tempdir().unwrap())
    }

    fn postgres() -> Stores {
        static SERVER: OnceLock<Cluster> = OnceLock::new();
        Stores::Postgres(SERVER.get_or_init(|| Cluster::start().unwrap()))
    }

    /// The address of a new file, or of a new schema for the tables of the engine (`schema`) and of the museum (`search_path`).
    fn fresh(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        match self {
            Stores::Sqlite(folder) => format!("sqlite://{}/{number}.db", folder.path().display()),
            Stores::Postgres(server) => {
                format!("{}?schema=loans_{number}&options=-c%20search_path%3Dloans_{number}", server.url())
            }
        }
    }
}

fn yes() -> Option<Decision> {
    Some(Decision { lend: true, because: "they lent us the globe".into() })
}

/// What became of a loan, how many objects the policies insure, and how many objects are lent.
type Outcome = (Result<String, String>, Vec<u64>, i64);

/// Lends the objects from 1 to `last`. Without a decision the director never answers.
async fn lend(lab: &Lab, museum: &Museum, last: i64, decision: Option<Decision>) -> Outcome {
    lab.submit(Inventory { objects: last }).await;
    lab.run().await;
    let loan = lab.submit(Loan { number: 7, borrower: "Delft".into(), first: 1, last }).await;
    lab.run().await;
    if let Some(decision) = decision {
        lab.send(loan, decision).await;
    }
    lab.run_past_timeouts().await;
    let lent = lab.submit(Inventory { objects: 0 }).await;
    lab.run().await;
    let insured = museum.policies.lock().unwrap().values().copied().collect();
    let result = lab.result(loan).await.map_err(|error| error.to_string());
    (result, insured, lab.result(lent).await.unwrap())
}

async fn outcome(stores: &Stores, lorry_grams: u64, last: i64, decision: Option<Decision>) -> Outcome {
    let museum = Museum::new(lorry_grams);
    let shared = Arc::clone(&museum);
    let lab = Lab::on(stores.fresh(), move |engine| serve(engine, &shared)).await;
    lend(&lab, &museum, last, decision).await
}

async fn hundreds_of_objects_are_lent(stores: Stores) {
    let (loan, insured, lent) = outcome(&stores, 1_000_000, 300, yes()).await;
    assert_eq!(loan.unwrap(), "300 objects, 180150 g, go to Delft in lorry 4");
    assert_eq!((insured, lent), (vec![300], 300));
}

async fn nothing_is_left_of_a_loan_that_comes_to_nothing(stores: Stores) {
    let no = Some(Decision { lend: false, because: "too fragile".into() });
    let cases = [
        (3, no, "the job was cancelled: the director says no: too fragile"),
        (3, None, "the job failed (timeout): no signal"),
        (601, None, "object 601 is too heavy to travel"),
    ];
    for (last, decision, expected) in cases {
        let (loan, insured, lent) = outcome(&stores, 1_000_000, last, decision).await;
        let error = loan.unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!((insured, lent), (vec![], 0), "{error}");
    }
}

/// One object is enough: each commit of the scenario is two more runs, and each run makes a store.
async fn no_crash_changes_what_is_undone(stores: Stores) {
    let museum = Museum::new(100);
    let shared = Arc::clone(&museum);
    let report = testing::crash_at_every_commit_on(
        // Before each run: a new store, and no policies.
        async || {
            museum.policies.lock().unwrap().clear();
            stores.fresh()
        },
        move |engine| serve(engine, &shared),
        async |lab| lend(&lab, &museum, 1, yes()).await,
    )
    .await;
    let (loan, insured, lent) = report.outcome;
    let error = "the job failed (stopped): too_heavy: no lorry to Delft: 451 g are too much for the lorry";
    assert_eq!((loan.unwrap_err().as_str(), insured, lent), (error, vec![], 0));
    assert!(report.crashes > 0, "{} commits", report.commits);
}

macro_rules! on_both_stores {
    ($($test:ident)*) => {
        mod sqlite { $(#[tokio::test] async fn $test() { super::$test(super::Stores::sqlite()).await })* }
        mod postgres { $(#[tokio::test] async fn $test() { super::$test(super::Stores::postgres()).await })* }
    };
}

on_both_stores! {
    hundreds_of_objects_are_lent
    nothing_is_left_of_a_loan_that_comes_to_nothing
    no_crash_changes_what_is_undone
}
