//! Undos of transactions, which run as those of steps do: the last call first, each until it has succeeded.

use std::sync::Arc;

use windlass::{
    JobError, State,
    model::journal::{CallEvent, CallKind},
    prelude::*,
    testing::{Lab, LabJob},
};

use super::{
    super::{On, ran, times},
    INSERT, booked, on_both_databases, store_with_table,
};

on_both_databases!(
    a_workflow_that_fails_undoes_its_transactions,
    a_cancelled_workflow_undoes_its_transactions,
    an_undo_survives_every_crash,
    a_retried_job_repeats_a_transaction_that_was_undone,
    a_transaction_that_is_not_awaited_to_its_end_is_undone_too,
);

/// Pays, books and fails or waits.
#[derive(Serialize, Deserialize)]
struct Trip {
    ends: String,
}

impl Workflow for Trip {
    const KIND: &'static str = "trip";
    type Output = i64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<i64, Failure> {
        let id = flow.id();
        flow.step("pay", async || Ok::<_, Failure>(100))
            .undo(move |cents: i64| async move {
                ran(format!("{id}/undo/pay/{cents}"));
                Ok::<_, Failure>(())
            })
            .await?;
        let failed = tokio::sync::Notify::new();
        let book = flow
            .transaction("book", async |tx| {
                tx.execute(INSERT, (id, &self.ends)).await?;
                if self.ends == "pair" {
                    failed.notified().await;
                }
                tx.query_one("select count(*) as count from bookings where job = $1", (id,))
                    .await?
                    .get("count")
            })
            .undo_with(async |cx: UndoCx, count: i64| {
                let undo = ran(format!("{}/undo/book/{count}", cx.id()));
                assert!(cx.step_id().ends_with("/book"), "{}", cx.step_id());
                if undo == 1 { Err(Failure::retry("nobody answers")) } else { Ok(()) }
            });
        if self.ends == "pair" {
            // The failure is in the journal before the end of the transaction, so that nobody awaits that.
            let fails = flow.step("fails", async || {
                failed.notify_one();
                Err::<i64, _>(Failure::stop("no trip"))
            });
            futures_util::future::try_join(fails, book).await?;
            return Ok(0);
        }
        let count = book.await?;
        match self.ends.as_str() {
            "waits" => _ = flow.signal::<()>("never").await,
            "once" if ran(format!("{id}/once")) > 1 => {}
            _ => return Err(Failure::stop("no trip")),
        }
        Ok(count)
    }
}

async fn trip(on: On, ends: &str) -> (crate::common::TestStore, Lab, LabJob<Trip>) {
    let store = store_with_table(on).await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Trip>()).await;
    let job = lab.submit(Trip { ends: ends.into() }).await;
    lab.run().await;
    (store, lab, job)
}

/// The calls that were undone, in order.
async fn undone(lab: &Lab, job: LabJob<Trip>) -> Vec<(CallKind, String)> {
    let journal = lab.journal(job).await;
    let undone = journal.into_iter().filter(|entry| entry.event == CallEvent::Undone);
    undone.map(|entry| (entry.call_kind, entry.name)).collect()
}

/// Each is undone once, the last one first.
async fn expect_undone(lab: &Lab, job: LabJob<Trip>) {
    let expected = [(CallKind::Transaction, "book".to_owned()), (CallKind::Step, "pay".to_owned())];
    assert_eq!(undone(lab, job).await, expected);
    let id = job.id();
    assert_eq!(times(format!("{id}/undo/book/1")), 2, "what it returned; the first try failed");
    assert_eq!(times(format!("{id}/undo/pay/100")), 1);
    let recorded = lab.journal(job).await.into_iter().find(|entry| entry.name == "book").expect("recorded");
    assert_eq!((recorded.call_kind, recorded.event), (CallKind::Transaction, CallEvent::DoneWithUndo));
}

async fn a_workflow_that_fails_undoes_its_transactions(on: On) {
    let (store, lab, job) = trip(on, "fails").await;
    match lab.result(job).await {
        Err(JobError::Failed { failure, .. }) => assert_eq!(failure.message, "no trip"),
        other => panic!("{other:?}"),
    }
    expect_undone(&lab, job).await;
    // The undo is not a transaction: what it leaves in the tables is up to it.
    assert_eq!(booked(&store.url, job.id()).await, ["fails"]);
}

async fn a_cancelled_workflow_undoes_its_transactions(on: On) {
    let (_store, lab, job) = trip(on, "waits").await;
    assert_eq!(undone(&lab, job).await, [], "it waits");
    lab.cancel(job).await.accepted().expect("accepted");
    lab.run().await;
    assert_eq!(lab.state(job).await, State::Cancelled);
    expect_undone(&lab, job).await;
}

async fn an_undo_survives_every_crash(on: On) {
    let store = store_with_table(on).await;
    let url: Arc<str> = store.url.as_str().into();
    let open = async || url.to_string();
    let scenario = async |lab: Arc<Lab>| {
        let job = lab.submit(Trip { ends: "fails".into() }).await;
        lab.run().await;
        let result = lab.result(job).await.map_err(|error| error.to_string());
        (result, booked(&url, job.id()).await, undone(&lab, job).await)
    };
    let setup = |engine: windlass::Builder| engine.workflow::<Trip>();
    let report = windlass::testing::crash_at_every_commit_on(open, setup, scenario).await;
    let undone = vec![(CallKind::Transaction, "book".to_owned()), (CallKind::Step, "pay".to_owned())];
    let error = "the job failed (stopped): no trip".to_owned();
    assert_eq!(report.outcome, (Err(error), vec!["fails".to_owned()], undone));
    assert!(report.crashes >= 8, "{report:?}");
}

async fn a_retried_job_repeats_a_transaction_that_was_undone(on: On) {
    let (store, lab, job) = trip(on, "once").await;
    expect_undone(&lab, job).await;
    let engine = lab.engine().await;
    engine.control("test").retry(job.id()).await.expect("retried").accepted().expect("accepted");
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), 2, "the rows of both runs");
    assert_eq!(booked(&store.url, job.id()).await, ["once", "once"]);
}

async fn a_transaction_that_is_not_awaited_to_its_end_is_undone_too(on: On) {
    let (store, lab, job) = trip(on, "pair").await;
    assert_eq!(booked(&store.url, job.id()).await, ["pair"]);
    expect_undone(&lab, job).await;
}
