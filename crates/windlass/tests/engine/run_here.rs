//! Jobs that run here and now: ahead of their queue, with the same record, and held back by what holds other jobs back.

use windlass::{Config, RunError, State, operate::AuditFilter, prelude::*};

use crate::{
    common::{gate, reaches, until},
    flow::{On, on_every_store, ran, times},
};

on_every_store!(
    a_job_overtakes_its_queue_and_needs_no_free_slot,
    a_queue_that_is_not_served_here_does_not_matter,
    a_pause_and_a_serial_key_hold_it_back,
    a_job_with_the_same_key_is_waited_for,
    an_engine_that_cannot_run_it_says_so,
    a_failed_job_is_retried_here,
    a_stopping_worker_waits_for_it,
);

mod databases {
    use super::a_job_whose_process_dies_runs_elsewhere;
    crate::on_both_stores!(a_job_whose_process_dies_runs_elsewhere);
}

/// Waits at its gate, if it has one, fails in its first `fails` attempts, and returns the number of the attempt.
#[derive(Serialize, Deserialize, Default)]
struct Work {
    gate: Option<String>,
    fails: u32,
    name: String,
}

impl Task for Work {
    const KIND: &'static str = "run_here";
    type Output = u32;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        ran(format!("begin {}", self.name));
        if let Some(name) = &self.gate {
            gate(name).acquire().await.map_err(Failure::stop)?.forget();
        }
        match ran(format!("end {}", self.name)) {
            n if n <= self.fails => Err(Failure::retry("not yet")),
            _ => Ok(cx.attempt()),
        }
    }

    fn retry() -> Retry {
        Retry::times(3).backoff(Duration::from_millis(5), Duration::from_millis(5))
    }
}

fn work(name: &str) -> Work {
    Work { name: name.to_owned(), ..Work::default() }
}

fn gated(name: &str) -> Work {
    Work { gate: Some(name.to_owned()), ..work(name) }
}

/// An engine with one slot for its queue.
async fn started(url: &str) -> Engine {
    let engine = Engine::builder(url).task::<Work>().workflow::<Naps>();
    let config = Config { drain: Duration::from_secs(60), ..Config::default() };
    engine.queue("default", Pool::slots(1)).config(config).start().await.expect("started")
}

async fn a_job_overtakes_its_queue_and_needs_no_free_slot(on: On) {
    let store = on.fresh().await;
    let engine = started(&store.url).await;
    // The claim of the start, if it is still in flight when a submit takes the slot, may take one of the jobs behind it.
    until("the first claim is answered", async || engine.counts().claims > 0).await;
    let name = format!("overtaken {}", store.url);
    let slow = engine.submit(gated(&name)).await.expect("submitted");
    until("the only slot is taken", async || times(format!("begin {name}")) == 1).await;
    let ahead = engine.submit_all((0..20).map(|_| work("ahead"))).await.expect("submitted");
    for n in 0..3 {
        assert_eq!(engine.run(work(&format!("{name} {n}"))).await.expect("done"), 1);
    }
    assert_eq!(engine.submit(work("last")).priority(100).run().await.expect("done"), 1);
    assert_eq!(
        engine.inspect().job(slow.id()).await.expect("read").expect("exists").summary.state,
        State::Running
    );
    for job in &ahead {
        let state = engine
            .inspect()
            .job(job.id().expect("submitted"))
            .await
            .expect("read")
            .expect("exists")
            .summary
            .state;
        assert_eq!(state, State::Ready, "nothing took its slot");
    }
    gate(&name).add_permits(1);
    slow.result().await.expect("done");
    for job in ahead {
        engine.result::<u32>(job.id().expect("submitted")).await.expect("done");
    }
    engine.stop().await;
}

/// Waits for a moment between two steps.
#[derive(Serialize, Deserialize)]
struct Naps;

impl Workflow for Naps {
    const KIND: &'static str = "naps_here";
    const QUEUE: &'static str = "unserved";
    type Output = u32;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u32, Failure> {
        let one = flow.step("one", || async { Ok::<_, Failure>(1) }).await?;
        flow.sleep(Duration::from_millis(50)).await;
        let two = flow.step("two", || async { Ok::<_, Failure>(2) }).await?;
        Ok(one + two)
    }
}

async fn a_queue_that_is_not_served_here_does_not_matter(on: On) {
    let store = on.fresh().await;
    let engine = started(&store.url).await;
    let twice = Work { fails: 2, ..work(&format!("elsewhere {}", store.url)) };
    let result = engine.submit(twice).queue("unserved").run().await;
    assert_eq!(result.expect("it is retried here too"), 3);
    assert_eq!(engine.run(Naps).await.expect("it continues here"), 3);
    // What the submit cannot claim by itself.
    let hour = engine.inspect().clock().await.expect("read") + hours(1);
    let job = engine.submit(work("deadline")).queue("unserved").deadline(hour);
    assert_eq!(job.run().await.expect("done"), 1);
    let job = engine.submit(work("unique")).queue("unserved").unique(Unique::new("unique"));
    assert_eq!(job.run().await.expect("done"), 1);
    engine.stop().await;
}

async fn a_pause_and_a_serial_key_hold_it_back(on: On) {
    let store = on.fresh().await;
    let engine = started(&store.url).await;
    let control = engine.control("test");
    control.pause_queue("default").await.expect("paused");
    let name = format!("paused {}", store.url);
    let (result, ()) = tokio::join!(engine.run(work(&name)), async {
        until("it is submitted", async || {
            engine
                .inspect()
                .state_counts()
                .await
                .expect("read")
                .iter()
                .any(|count| count.state == State::Ready)
        })
        .await;
        assert_eq!(times(format!("begin {name}")), 0);
        control.resume_queue("default").await.expect("resumed");
    });
    assert_eq!(result.expect("done"), 1);
    let name = format!("serial {}", store.url);
    let holder = engine.submit(gated(&name)).serial(Serial::new("key")).await.expect("submitted");
    until("it has the slot of the key", async || times(format!("begin {name}")) == 1).await;
    let next = engine.submit(work(&format!("{name} next"))).serial(Serial::new("key"));
    let (result, ()) = tokio::join!(next.run(), async {
        until("it waits", async || {
            let serial = engine.inspect().serial_keys(Some("key"), 9).await.expect("read");
            serial.iter().any(|key| key.waiting == 1)
        })
        .await;
        assert_eq!(times(format!("begin {name} next")), 0);
        gate(&name).add_permits(1);
    });
    assert_eq!(result.expect("done"), 1);
    holder.result().await.expect("done");
    engine.stop().await;
}

async fn a_job_with_the_same_key_is_waited_for(on: On) {
    let store = on.fresh().await;
    let engine = started(&store.url).await;
    let name = format!("same {}", store.url);
    let first = engine.submit(gated(&name)).key("same").await.expect("submitted");
    let again = engine.submit(gated(&name)).key("same");
    let (result, ()) = tokio::join!(again.run(), async { gate(&name).add_permits(1) });
    assert_eq!(result.expect("done"), 1);
    assert_eq!(first.result().await.expect("done"), 1);
    assert_eq!(engine.submit(work(&name)).key("same").run().await.expect("that of the first"), 1);
    assert_eq!(times(format!("begin {name}")), 1, "it ran once");
    engine.stop().await;
}

#[derive(Serialize, Deserialize)]
struct Unserved;

impl Task for Unserved {
    const KIND: &'static str = "unserved_here";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

async fn an_engine_that_cannot_run_it_says_so(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url).task::<Work>().open().await.expect("opened");
    let error = engine.run(work("x")).await.expect_err("it was not started").to_string();
    assert!(error.contains("no running worker") && error.contains("start it"), "{error}");
    engine.start().await.expect("started");
    let error = engine.run(Unserved).await.expect_err("the kind is not served").to_string();
    assert!(error.contains("does not serve") && error.contains("submit the job"), "{error}");
    assert!(engine.inspect().state_counts().await.expect("read").is_empty(), "nothing was submitted");
    let stops = Work { fails: 9, ..work(&format!("fails {}", store.url)) };
    match engine.run(stops).await {
        Err(RunError::Job(JobError::Failed { failure, .. })) => assert_eq!(failure.message, "not yet"),
        other => panic!("{other:?}"),
    }
    engine.stop().await;
}

async fn a_failed_job_is_retried_here(on: On) {
    let store = on.fresh().await;
    let engine = started(&store.url).await;
    let flaky = Work { fails: 3, ..work(&format!("flaky {}", store.url)) };
    let job = engine.submit(flaky).queue("unserved");
    let id = engine.new_id();
    assert!(job.id(id).run().await.is_err(), "three attempts fail");
    let failed: Handle<Work> = engine.job(id).await.expect("it exists");
    assert_eq!(failed.retry_here(&engine.control("ada")).await.expect("the fourth does not"), 1);
    let error = failed.retry_here(&engine.control("ada")).await.expect_err("it is done");
    assert!(matches!(error, RunError::Submit(_)), "{error:?}");
    let audit = engine.inspect().audit(&AuditFilter::default()).await.expect("read");
    assert!(audit.iter().any(|entry| entry.author == "ada"), "{audit:?}");
    let error =
        engine.retry_here::<u32>(id, &engine.control("ada")).await.expect_err("it is done").to_string();
    assert!(error.contains("cannot be retried"), "{error}");
    let error = engine
        .retry_here::<u32>(engine.new_id(), &engine.control("ada"))
        .await
        .expect_err("no such job")
        .to_string();
    assert!(error.contains("does not exist"), "{error}");
    engine.stop().await;
}

async fn a_stopping_worker_waits_for_it(on: On) {
    let store = on.fresh().await;
    let engine = started(&store.url).await;
    let name = format!("drained {}", store.url);
    let id = engine.new_id();
    let running = engine.submit(gated(&name)).queue("unserved").id(id);
    let (result, unfinished) = tokio::join!(running.run(), async {
        until("it runs", async || times(format!("begin {name}")) == 1).await;
        let (unfinished, ()) = tokio::join!(engine.stop(), async {
            // The worker has begun to stop when it refuses to run more.
            until("it stops", async || engine.run(work("late")).await.is_err()).await;
            gate(&name).add_permits(1);
        });
        unfinished
    });
    assert_eq!((result.expect("done"), unfinished), (1, 0));
}

async fn a_job_whose_process_dies_runs_elsewhere(url: &str) {
    let dying = started(url).await;
    let name = format!("dies {url}");
    let (id, clone, work) = (dying.new_id(), dying.clone(), gated(&name));
    let call = tokio::spawn(async move { clone.submit(work).id(id).run().await.map(drop) });
    until("it runs", async || times(format!("begin {name}")) == 1).await;
    call.abort();
    let _ = call.await;
    // Without a stop, like a process that is killed.
    drop(dying);
    let other = started(url).await;
    gate(&name).add_permits(1);
    assert_eq!(other.result::<u32>(id).await.expect("done elsewhere"), 1);
    reaches(&other, id, State::Done).await;
    let deaths = other.inspect().job(id).await.expect("read").expect("exists").worker_deaths;
    assert_eq!(deaths, 1, "it was claimed by the worker that died");
    other.stop().await;
}
