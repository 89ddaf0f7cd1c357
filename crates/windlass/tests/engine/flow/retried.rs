//! What a retried job does again: undos that failed.

use std::time::Duration;

use windlass::{
    JobError,
    prelude::*,
    store::{Act, Did},
    testing::Lab,
};

use super::{On, on_every_store, ran, times};

on_every_store!(what_was_not_undone_is_tried_again_by_a_cancel_that_nothing_ran_before,);

/// Books, and cannot undo the second booking at first. Whether it asks something in between is up to the test.
#[derive(Serialize, Deserialize)]
struct Books {
    asks: bool,
}

impl Workflow for Books {
    const KIND: &'static str = "retried_books";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        let book = async |name: &'static str| {
            let step = flow.step(name, move || async move {
                ran(format!("{id}/{name}"));
                Ok::<_, Failure>(())
            });
            let undo = move |()| async move {
                match (name, ran(format!("{id}/undo {name}"))) {
                    ("flight", 1) => Err(Failure::stop("nobody answers")),
                    _ => Ok(()),
                }
            };
            step.undo(undo).await
        };
        book("hotel").await?;
        let asked = match self.asks {
            true => flow.step("ask", || async { Err::<(), _>(Failure::stop("no")) }).await,
            false => Err(Failure::stop("no")),
        };
        book("flight").await?;
        asked
    }
}

async fn what_was_not_undone_is_tried_again_by_a_cancel_that_nothing_ran_before(on: On) {
    for asks in [false, true] {
        let place = on.fresh().await;
        let lab = Lab::on(&place.url, |engine| engine.workflow::<Books>()).await;
        let job = lab.submit(Books { asks }).await;
        lab.run().await;
        let failed = lab.result(job).await.expect_err("it fails").to_string();
        assert_eq!(failed, "the job failed (stopped): no; not undone: \"flight\" (nobody answers)");
        let (engine, id) = (lab.engine().await, job.id());
        let control = engine.control("test");
        control.pause_queue("default").await.expect("paused");
        control.retry(id).await.expect("retried");
        let did = control.act(id, Act::Cancel { grace: Duration::ZERO }).await.expect("acted");
        assert_eq!(did, Did::Told, "there is something to undo");
        control.resume_queue("default").await.expect("resumed");
        lab.run().await;
        assert_eq!(times(format!("{id}/undo flight")), 2, "asks: {asks}");
        assert_eq!(times(format!("{id}/undo hotel")), 1, "it was undone");
        assert_eq!((times(format!("{id}/hotel")), times(format!("{id}/flight"))), (1, 1));
        match lab.result(job).await {
            Err(JobError::Cancelled(failure)) => {
                assert!(!failure.message.contains("not undone"), "{failure}");
            }
            other => panic!("{other:?}"),
        }
        let why = engine.why(id).await.expect("asked").expect("there");
        assert!(!why.because.contains("not undone"), "{why:?}");
    }
}
