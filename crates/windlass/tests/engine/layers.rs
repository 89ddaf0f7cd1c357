//! Layers around attempts: what they see, what they can set and refuse, and that they change no result.

use std::sync::{Arc, Mutex};

use windlass::{
    MachineCx, Reason,
    prelude::*,
    runtime::{AttemptInfo, Ended, Layer, NextLayer},
};

use crate::flow::{On, on_every_store, ran, times};

on_every_store!(
    layers_see_every_attempt_and_the_first_is_outermost,
    a_layer_sets_task_locals_for_tasks_machines_and_steps,
    a_refusal_is_a_failure_of_the_attempt,
    nothing_changes_the_result_of_an_attempt_that_has_run,
);

tokio::task_local! {
    static TENANT: String;
}

/// Returns the tenant that a layer has set.
fn tenant() -> Result<String, Failure> {
    TENANT.try_with(Clone::clone).map_err(|_| Failure::stop("no layer has set the tenant"))
}

#[derive(Serialize, Deserialize)]
struct Work {
    name: String,
    fails: u32,
}

fn work(name: &str, fails: u32) -> Work {
    Work { name: name.to_owned(), fails }
}

impl Task for Work {
    const KIND: &'static str = "layered";
    type Output = String;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<String, Failure> {
        ran(format!("layered {}", self.name));
        match cx.attempt() <= self.fails {
            true => Err(Failure::retry("not yet").retry_after(Duration::from_millis(1))),
            false => Ok(tenant().unwrap_or_default()),
        }
    }
}

/// Fails in its only stage, and asks for the tenant when it handles that.
#[derive(Serialize, Deserialize)]
enum Asks {
    Once,
}

impl Machine for Asks {
    const KIND: &'static str = "layered_machine";
    type Output = String;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Err(Failure::stop(tenant()?))
    }

    async fn on_error(self, failure: Failure, _cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(Next::done(format!("{} and {}", failure.message, tenant()?)))
    }
}

#[derive(Serialize, Deserialize)]
struct Steps;

impl Workflow for Steps {
    const KIND: &'static str = "layered_workflow";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let one = flow.step("one", || async { tenant() }).await?;
        flow.sleep(Duration::from_millis(10)).await;
        let two = flow.step("two", || async { tenant() }).await?;
        Ok(format!("{one} and {two}"))
    }
}

/// Notes what it sees, before and after.
struct Notes {
    name: &'static str,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Layer for Notes {
    async fn call(&self, attempt: AttemptInfo, next: NextLayer) -> Result<Ended, Failure> {
        let note = |text: String| self.notes.lock().expect("notes").push(format!("{} {text}", self.name));
        let (kind, key) = (attempt.kind(), attempt.key().unwrap_or("none"));
        let about = format!("{} {} {key} {}", kind.kind, attempt.queue(), attempt.attempt());
        note(format!("before {about}"));
        let ended = next.run().await?;
        let failure = ended.failure().map_or("none", |failure| failure.message.as_str());
        note(format!("after {} {failure}", ended.is_done()));
        Ok(ended)
    }
}

async fn open(
    on: On,
    layers: impl FnOnce(windlass::Builder) -> windlass::Builder,
) -> (Engine, crate::common::TestStore) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url);
    let engine = layers(engine.task::<Work>().machine::<Asks>().workflow::<Steps>());
    (engine.start().await.expect("started"), store)
}

async fn layers_see_every_attempt_and_the_first_is_outermost(on: On) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let layer = |name| Notes { name, notes: Arc::clone(&notes) };
    let (engine, _store) = open(on, |engine| engine.layer(layer("outer")).layer(layer("inner"))).await;
    let job = engine.submit(work("seen", 1)).key("k").await.expect("submitted");
    job.result().await.expect("done");
    engine.stop().await;
    let attempts = [
        "outer before layered default k 1",
        "inner before layered default k 1",
        "inner after false not yet",
        "outer after false not yet",
        "outer before layered default k 2",
        "inner before layered default k 2",
        "inner after true none",
        "outer after true none",
    ];
    assert_eq!(*notes.lock().expect("notes"), attempts);
}

async fn a_layer_sets_task_locals_for_tasks_machines_and_steps(on: On) {
    let set_tenant = async |attempt: AttemptInfo, next: NextLayer| {
        TENANT.scope(attempt.key().unwrap_or_default().to_owned(), next.run()).await
    };
    let (engine, _store) =
        open(on, |engine| engine.layer(move |attempt, next| async move { set_tenant(attempt, next).await }))
            .await;
    let task = engine.submit(work("tenant", 0)).key("acme").await.expect("submitted");
    assert_eq!(task.result().await.expect("done"), "acme");
    let machine = engine.submit(Asks::Once).key("acme").await.expect("submitted");
    assert_eq!(machine.result().await.expect("done"), "acme and acme");
    let workflow = engine.submit(Steps).key("acme").await.expect("submitted");
    assert_eq!(workflow.result().await.expect("done"), "acme and acme");
    engine.stop().await;
}

async fn a_refusal_is_a_failure_of_the_attempt(on: On) {
    let name = format!("refused {on:?}");
    let (engine, _store) = open(on, |engine| {
        engine.layer(|attempt: AttemptInfo, next: NextLayer| async move {
            match (attempt.key(), attempt.attempt()) {
                (Some("never"), _) => Err(Failure::stop("no such tenant").class("tenant")),
                (Some("later"), 1) => Err(Failure::retry("busy").retry_after(Duration::from_millis(1))),
                (Some("panics"), _) => panic!("in a layer"),
                _ => next.run().await,
            }
        })
    })
    .await;
    let never = engine.submit(work(&name, 0)).key("never").await.expect("submitted");
    match never.result().await {
        Err(JobError::Failed { reason: Reason::Stopped, failure, .. }) => assert_eq!(failure.class, "tenant"),
        other => panic!("{other:?}"),
    }
    let panics = engine.submit(work(&name, 0)).key("panics").retry(Retry::never()).await.expect("submitted");
    match panics.result().await {
        Err(JobError::Failed { failure, .. }) => {
            assert_eq!((&*failure.class, failure.message.as_str()), ("panic", "in a layer"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(times(format!("layered {name}")), 0, "neither ran");
    let later = engine.submit(work(&name, 0)).key("later").await.expect("submitted");
    later.result().await.expect("the second attempt is let through");
    assert_eq!(times(format!("layered {name}")), 1);
    engine.stop().await;
}

async fn nothing_changes_the_result_of_an_attempt_that_has_run(on: On) {
    let name = format!("unchanged {on:?}");
    let (engine, _store) = open(on, |engine| {
        engine.layer(|attempt: AttemptInfo, next: NextLayer| async move {
            next.run().await?;
            match attempt.key() {
                Some("panics") => panic!("after the attempt"),
                _ => Err(Failure::stop("I do not like it")),
            }
        })
    })
    .await;
    for key in ["fails", "panics"] {
        let job = engine.submit(work(&name, 0)).key(key).await.expect("submitted");
        job.result().await.expect("the attempt was done");
    }
    assert_eq!(times(format!("layered {name}")), 2);
    engine.stop().await;
}
