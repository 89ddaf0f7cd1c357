//! Workflows that failed because of a recorded result: a retry fails again, and `why` suggests a fork that does not.

use windlass::{JobError, State, prelude::*, testing::Lab};

use super::{On, on_every_store, ran, times};

on_every_store!(
    a_recorded_decision_is_changed_by_a_fork_before_it,
    a_fork_repeats_what_was_undone,
    a_retry_is_suggested_if_it_repeats_the_failed_step,
);

/// Asks for permission, and ends according to the answer and `how`.
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
        flow.step("prepare", async || Ok(())).await?;
        if how == "undone" {
            let reserved = flow.step("reserve", move || async move { Ok(ran(format!("{id}/reserve"))) });
            reserved.undo(|_: u32| async { Ok(()) }).await?;
        }
        let ask = flow.step_with("ask", |cx| async move {
            // The answer is no, except for forks.
            match (times(format!("{}/fork", cx.id())) > 0, how) {
                (true, _) => Ok("yes".to_owned()),
                (false, "handled" | "failed") => Err(Failure::stop("nobody answers")),
                (false, _) => Ok("no".to_owned()),
            }
        });
        match (ask.key("may I?").await, how) {
            (Ok(answer), _) if answer == "yes" => Ok(answer),
            (Err(_), "handled") => {
                flow.step("apologise", async || Ok(())).await?;
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
    let why = lab.engine().await.why(job).await.expect("why").expect("the job exists");
    let command = why.hint.rsplit_once("`windlass ").map(|(_, rest)| rest.split('`').next().unwrap_or(""));
    command.unwrap_or_else(|| panic!("{why:?} names no command")).replace(&job.to_string(), "JOB")
}

/// Forks a job and runs the fork, which gets a yes, to its end.
async fn forked(lab: &Lab, fork: windlass::operate::Fork, job: JobId) -> JobId {
    let engine = lab.engine().await;
    engine.control("test").pause_queue("default").await.expect("paused");
    let id = fork.run(job).await.expect("forked");
    ran(format!("{id}/fork"));
    engine.control("test").resume_queue("default").await.expect("resumed");
    lab.run().await;
    id
}

async fn a_recorded_decision_is_changed_by_a_fork_before_it(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Asking>()).await;
    for (how, ends) in [("value", State::Failed), ("handled", State::Failed), ("cancel", State::Cancelled)] {
        let job = lab.submit(Asking { how: how.into() }).await;
        for _ in 0..2 {
            lab.run().await;
            assert_eq!(lab.state(job).await, ends, "{how}: a retry changes nothing");
            // The key contains a blank: the number of the entry is easier to type.
            assert_eq!(suggested(&lab, job.id()).await, "fork JOB --before-entry 1", "{how}");
            lab.engine()
                .await
                .control("test")
                .retry(job.id())
                .await
                .expect("retried")
                .accepted()
                .expect("retried");
        }
        lab.run().await;
        let engine = lab.engine().await;
        let control = engine.control("test");
        let fork = forked(&lab, control.fork().before_entry(1), job.id()).await;
        assert_eq!(engine.result::<String>(fork).await.expect("the answer is yes"), "yes", "{how}");
    }
}

async fn a_fork_repeats_what_was_undone(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Asking>()).await;
    let job = lab.submit(Asking { how: "undone".into() }).await;
    lab.run().await;
    assert_eq!(suggested(&lab, job.id()).await, "fork JOB --before reserve", "its reservation was undone");
    let engine = lab.engine().await;
    let control = engine.control("test");
    let fork = forked(&lab, control.fork().before("reserve"), job.id()).await;
    assert_eq!(engine.result::<String>(fork).await.expect("the answer is yes"), "yes");
    assert_eq!(times(format!("{fork}/reserve")), 1);
}

async fn a_retry_is_suggested_if_it_repeats_the_failed_step(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Asking>()).await;
    let job = lab.submit(Asking { how: "failed".into() }).await;
    lab.run().await;
    assert_eq!(suggested(&lab, job.id()).await, "retry JOB");
    ran(format!("{}/fork", job.id()));
    lab.engine().await.control("test").retry(job.id()).await.expect("retried").accepted().expect("retried");
    lab.run().await;
    assert_eq!(lab.result(job).await.map_err(|error: JobError| error.to_string()), Ok("yes".into()));
}
