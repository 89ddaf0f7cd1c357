//! Workflows that ended by what is recorded: a retry ends alike, and `why` says what does not.

use windlass::{JobError, State, prelude::*, testing::Lab};

use super::{On, on_every_store, ran, times};

on_every_store!(
    a_decision_that_is_recorded_is_forked_before,
    what_was_undone_is_done_again_by_the_fork,
    what_a_retry_runs_again_is_retried,
);

/// Asks whether it may, and ends by the answer in one way or another.
#[derive(Serialize, Deserialize)]
struct Asking {
    how: String,
}

impl Workflow for Asking {
    const KIND: &'static str = "asking";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let (id, how) = (flow.id(), self.how.as_str());
        flow.step("prepare", || async { Ok::<_, Failure>(()) }).await?;
        if how == "undone" {
            let reserved =
                flow.step("reserve", move || async move { Ok::<_, Failure>(ran(format!("{id}/reserve"))) });
            reserved.undo(|_: u32| async { Ok::<_, Failure>(()) }).await?;
        }
        let ask = flow.step_with("ask", |cx| async move {
            // Every job is told no, but for forks.
            match (times(format!("{}/fork", cx.id())) > 0, how) {
                (true, _) => Ok("yes".to_owned()),
                (false, "handled" | "failed") => Err(Failure::stop("nobody answers")),
                (false, _) => Ok("no".to_owned()),
            }
        });
        match (ask.key("may I?").await, how) {
            (Ok(answer), _) if answer == "yes" => Ok(answer),
            (Err(_), "handled") => {
                flow.step("apologise", || async { Ok::<_, Failure>(()) }).await?;
                Err(Failure::stop("no answer, no deal"))
            }
            (Err(failure), _) => Err(failure),
            (Ok(_), "cancel") => Err(Failure::cancel("nothing to do")),
            (Ok(_), _) => Err(Failure::stop("declined")),
        }
    }
}

/// The command that `why` suggests, without the program's name.
async fn suggested(lab: &Lab, job: JobId) -> String {
    let why = lab.engine().await.why(job).await.expect("asked").expect("there");
    let command = why.hint.rsplit_once("`windlass ").map(|(_, rest)| rest.split('`').next().unwrap_or(""));
    command.unwrap_or_else(|| panic!("{why:?} names no command")).replace(&job.to_string(), "JOB")
}

/// Forks a job and lets the fork, which is told yes, run to its end.
async fn forked(lab: &Lab, fork: windlass::Fork, job: JobId) -> JobId {
    let engine = lab.engine().await;
    engine.control("test").pause_queue("default").await.expect("paused");
    let id = fork.run(job).await.expect("forked");
    ran(format!("{id}/fork"));
    engine.control("test").resume_queue("default").await.expect("resumed");
    lab.run().await;
    id
}

async fn a_decision_that_is_recorded_is_forked_before(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Asking>()).await;
    for (how, ends) in [("value", State::Failed), ("handled", State::Failed), ("cancel", State::Cancelled)] {
        let job = lab.submit(Asking { how: how.into() }).await;
        for _ in 0..2 {
            lab.run().await;
            assert_eq!(lab.state(job).await, ends, "{how}: a retry changes nothing");
            // Its key has a blank in it: the place in the journal is easier to type.
            assert_eq!(suggested(&lab, job.id()).await, "fork JOB --before-entry 1", "{how}");
            lab.engine().await.control("test").retry(job.id()).await.expect("retried");
        }
        lab.run().await;
        let engine = lab.engine().await;
        let control = engine.control("test");
        let fork = forked(&lab, control.fork().before_entry(1), job.id()).await;
        assert_eq!(engine.result::<String>(fork).await.expect("it may"), "yes", "{how}");
    }
}

async fn what_was_undone_is_done_again_by_the_fork(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Asking>()).await;
    let job = lab.submit(Asking { how: "undone".into() }).await;
    lab.run().await;
    assert_eq!(
        suggested(&lab, job.id()).await,
        "fork JOB --before reserve",
        "what it reserved was given back"
    );
    let engine = lab.engine().await;
    let control = engine.control("test");
    let fork = forked(&lab, control.fork().before("reserve"), job.id()).await;
    assert_eq!(engine.result::<String>(fork).await.expect("it may"), "yes");
    assert_eq!(times(format!("{fork}/reserve")), 1);
}

async fn what_a_retry_runs_again_is_retried(on: On) {
    let place = on.fresh().await;
    let lab = Lab::on(&place.url, |engine| engine.workflow::<Asking>()).await;
    let job = lab.submit(Asking { how: "failed".into() }).await;
    lab.run().await;
    assert_eq!(suggested(&lab, job.id()).await, "retry JOB");
    ran(format!("{}/fork", job.id()));
    lab.engine().await.control("test").retry(job.id()).await.expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.map_err(|error: JobError| error.to_string()), Ok("yes".into()));
}
