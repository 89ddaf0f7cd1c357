//! Calls of several callers that go to the store together: what is wrong with one is that caller's alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use windlass::{
    Config,
    model::{NewJob, NewSignal, SubmitOutcome},
    prelude::*,
    store::{ClaimOnSubmit, Error, Fut, Now, SignalOutcome, Store, Wrapper},
};

use crate::on_both_stores;

on_both_stores!(
    a_bad_job_fails_its_own_submit_alone,
    a_bad_job_among_jobs_born_claimed_fails_alone_and_costs_no_slot,
    a_bad_signal_fails_its_own_delivery_alone,
);

/// A store that holds calls up while it is told to, and refuses what names poison.
struct Holding {
    store: Arc<dyn Store>,
    held: Arc<Held>,
}

#[derive(Default)]
struct Held {
    holds: AtomicBool,
    /// How many calls were held up.
    calls: AtomicUsize,
    /// How many jobs or signals were refused together, at most.
    refused: AtomicUsize,
    /// Whether those were jobs to be born claimed.
    born: AtomicBool,
}

impl Held {
    async fn pass(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        while self.holds.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn refuse(&self, count: usize) -> Error {
        self.refused.fetch_max(count, Ordering::SeqCst);
        Error::Refused("poison".into())
    }
}

fn is_poison(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|part| part == b"poison")
}

impl Wrapper for Holding {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn submit<'a>(
        &'a self,
        now: Now,
        jobs: &'a [NewJob],
        born: Option<ClaimOnSubmit>,
    ) -> Fut<'a, Vec<SubmitOutcome>> {
        Box::pin(async move {
            self.held.pass().await;
            if jobs.iter().any(|job| is_poison(&job.input.bytes)) {
                self.held.born.fetch_or(born.is_some(), Ordering::SeqCst);
                return Err(self.held.refuse(jobs.len()));
            }
            self.store.submit(now, jobs, born).await
        })
    }

    fn signal<'a>(&'a self, now: Now, signals: &'a [NewSignal]) -> Fut<'a, Vec<SignalOutcome>> {
        Box::pin(async move {
            self.held.pass().await;
            match signals.iter().any(|signal| is_poison(&signal.payload.bytes)) {
                true => Err(self.held.refuse(signals.len())),
                false => self.store.signal(now, signals).await,
            }
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Say {
    word: String,
}

fn say(word: &str) -> Say {
    Say { word: word.to_owned() }
}

impl Task for Say {
    const KIND: &'static str = "say";
    type Output = String;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<String, Failure> {
        if self.word == "wait" {
            cx.cancelled().await;
        }
        Ok(self.word)
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 40 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn open(url: &str) -> (Engine, Arc<Held>) {
    let store = Engine::open(url).await.expect("opened").store().clone();
    let held = Arc::new(Held::default());
    let holding = Holding { store, held: Arc::clone(&held) };
    (Engine::on(url, Arc::new(holding)), held)
}

/// Has as many submits held up as may be under way: what is submitted now goes together in the next.
async fn hold(engine: &Engine, held: &Held) {
    held.holds.store(true, Ordering::SeqCst);
    let flights = engine.store().concurrent_commits();
    let before = held.calls.load(Ordering::SeqCst);
    for flight in 1..=flights {
        let engine = engine.clone();
        tokio::spawn(async move { engine.submit(say("first")).queue("elsewhere").await.map(drop) });
        until("it is held up", async || held.calls.load(Ordering::SeqCst) == before + flight).await;
    }
}

async fn a_bad_job_fails_its_own_submit_alone(url: &str) {
    let (engine, held) = open(url).await;
    hold(&engine, &held).await;
    let (one, poison, unlimited, two, all, ()) = tokio::join!(
        async { engine.submit(say("one")).await },
        async { engine.submit(say("poison")).await },
        async { engine.submit(say("unlimited")).rate("nope").await },
        async { engine.submit(say("two")).await },
        engine.submit_all(["three", "four"].map(say)),
        async { held.holds.store(false, Ordering::SeqCst) },
    );
    assert!(held.refused.load(Ordering::SeqCst) > 1, "they went together");
    let error = poison.map(drop).expect_err("it is refused").to_string();
    assert!(error.contains("poison"), "{error}");
    let error = unlimited.map(drop).expect_err("there is no such limit").to_string();
    assert!(error.contains("nope"), "{error}");
    let mut ids = vec![one.expect("a sound job is in").id(), two.expect("and another").id()];
    ids.extend(all.expect("those that came together are in").iter().map(|submitted| submitted.id));
    for id in ids {
        assert!(engine.inspect().job(id).await.expect("read").is_some());
    }
}

async fn a_bad_job_among_jobs_born_claimed_fails_alone_and_costs_no_slot(url: &str) {
    let slots = 6;
    let (engine, held) = open(url).await;
    // Nothing is looked for without a reason within the time of this test.
    let config =
        Config { safety: Duration::from_secs(3_600), drain: Duration::from_millis(100), ..Config::default() };
    let engine = engine.task::<Say>().queue("default", Pool::slots(slots)).config(config);
    let engine = engine.start().await.expect("started");
    // Until the pool has looked, nothing is born claimed.
    engine.submit(say("zero")).await.expect("submitted").result().await.expect("done");
    until("the pool is idle", async || {
        let claimed = engine.counts().claims;
        engine.submit(say("again")).await.expect("submitted").result().await.expect("done");
        engine.counts().claims == claimed
    })
    .await;
    let started = engine.counts().started;
    hold(&engine, &held).await;
    let (one, poison, two, three, ()) = tokio::join!(
        async { engine.submit(say("one")).await },
        async { engine.submit(say("poison")).await },
        async { engine.submit(say("two")).await },
        async { engine.submit(say("three")).await },
        async { held.holds.store(false, Ordering::SeqCst) },
    );
    assert!(
        held.refused.load(Ordering::SeqCst) > 1 && held.born.load(Ordering::SeqCst),
        "they went together"
    );
    assert!(poison.is_err());
    for job in [one, two, three] {
        job.expect("a sound job is in").result().await.expect("done");
    }
    until("each has run", async || engine.counts().started == started + 3).await;
    // All slots can be had.
    for _ in 0..slots {
        engine.submit(say("wait")).await.expect("submitted");
    }
    until("as many run as there are slots", async || engine.counts().started == started + 3 + slots as u64)
        .await;
    engine.stop().await;
}

async fn a_bad_signal_fails_its_own_delivery_alone(url: &str) {
    let (engine, held) = open(url).await;
    let job = engine.submit(say("one")).await.expect("submitted").id();
    held.holds.store(true, Ordering::SeqCst);
    let flights = engine.store().concurrent_commits();
    let before = held.calls.load(Ordering::SeqCst);
    for flight in 1..=flights {
        let engine = engine.clone();
        tokio::spawn(async move { engine.signal(job, "first", flight).await.map(drop) });
        until("it is held up", async || held.calls.load(Ordering::SeqCst) == before + flight).await;
    }
    let (one, poison, two, ()) = tokio::join!(
        async { engine.signal(job, "word", "one").await },
        async { engine.signal(job, "word", "poison").await },
        async { engine.signal(job, "word", "two").await },
        async { held.holds.store(false, Ordering::SeqCst) },
    );
    assert!(held.refused.load(Ordering::SeqCst) > 1, "they went together");
    assert!(poison.is_err());
    one.expect("a sound signal is delivered");
    two.expect("and another");
    until("all are there", async || {
        engine.inspect().inbox(job, usize::MAX).await.expect("read").len() == 2 + flights
    })
    .await;
}
