//! Calls of several callers that go to the store in one batch: if one is wrong, only its caller receives the error.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use windlass::{Builder, Config, prelude::*, store::Error};

use crate::{
    common::{Call, Faults, faulty, until},
    on_both_stores,
};

on_both_stores!(
    a_bad_job_fails_only_its_own_submit,
    a_bad_job_among_jobs_claimed_at_submit_fails_alone_and_costs_no_slot,
    a_bad_signal_fails_only_its_own_delivery,
);

/// Submits and signals wait while `holds`; batches with the word "poison" are refused.
#[derive(Default)]
struct HeldCalls {
    holds: AtomicBool,
    /// The number of calls so far.
    calls: AtomicUsize,
    /// The size of the largest batch that was refused.
    refused: AtomicUsize,
    /// Whether a refused batch was to be claimed at submit.
    claimed_at_submit: AtomicBool,
}

impl Faults for HeldCalls {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        let (count, has_poison, claimed) = match call {
            Call::Submit(jobs, claim) => {
                (jobs.len(), jobs.iter().any(|job| is_poison(&job.input.bytes)), claim.is_some())
            }
            Call::Signal(signals) => {
                (signals.len(), signals.iter().any(|signal| is_poison(&signal.payload.bytes)), false)
            }
            _ => return Ok(()),
        };
        self.calls.fetch_add(1, Ordering::SeqCst);
        while self.holds.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if !has_poison {
            return Ok(());
        }
        self.claimed_at_submit.fetch_or(claimed, Ordering::SeqCst);
        self.refused.fetch_max(count, Ordering::SeqCst);
        Err(Error::Refused("poison".into()))
    }
}

fn is_poison(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|part| part == b"poison")
}

#[derive(Serialize, Deserialize)]
struct Echo {
    word: String,
}

fn echo(word: &str) -> Echo {
    Echo { word: word.to_owned() }
}

impl Task for Echo {
    const KIND: &'static str = "echo";
    type Output = String;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<String, Failure> {
        if self.word == "wait" {
            cx.cancelled().await;
        }
        Ok(self.word)
    }
}

async fn describe(url: &str) -> (Builder, Arc<HeldCalls>) {
    let held = Arc::new(HeldCalls::default());
    (faulty(url, &held).await, held)
}

/// Holds calls, and makes as many as may be in flight at once: the next calls go to the store in one batch.
async fn hold<T>(url: &str, held: &HeldCalls, call: impl Fn(usize) -> T) -> usize
where
    T: Future<Output: Send + 'static> + Send + 'static,
{
    held.holds.store(true, Ordering::SeqCst);
    let in_flight = if url.starts_with("postgres") { 2 } else { 1 };
    let before = held.calls.load(Ordering::SeqCst);
    for number in 1..=in_flight {
        tokio::spawn(call(number));
        until("it is held", async || held.calls.load(Ordering::SeqCst) == before + number).await;
    }
    in_flight
}

/// Holds submits.
async fn hold_submits(url: &str, engine: &Engine, held: &HeldCalls) {
    hold(url, held, |_| {
        let engine = engine.clone();
        async move { engine.submit(echo("first")).queue("elsewhere").await.map(drop) }
    })
    .await;
}

async fn a_bad_job_fails_only_its_own_submit(url: &str) {
    let (engine, held) = describe(url).await;
    let engine = engine.open().await.expect("opened");
    hold_submits(url, &engine, &held).await;
    let (one, poison, unlimited, two, all, ()) = tokio::join!(
        async { engine.submit(echo("one")).await },
        async { engine.submit(echo("poison")).await },
        async { engine.submit(echo("unlimited")).rate("nope").await },
        async { engine.submit(echo("two")).await },
        engine.submit_all(["three", "four"].map(echo)),
        async { held.holds.store(false, Ordering::SeqCst) },
    );
    assert!(held.refused.load(Ordering::SeqCst) > 1, "they were one batch");
    let error = poison.map(drop).expect_err("it is refused").to_string();
    assert!(error.contains("poison"), "{error}");
    let error = unlimited.map(drop).expect_err("there is no such limit").to_string();
    assert!(error.contains("nope"), "{error}");
    let mut ids = vec![one.expect("a good job is submitted").id(), two.expect("and another").id()];
    ids.extend(
        all.expect("and those of submit_all").iter().map(|submitted| submitted.id().expect("submitted")),
    );
    for id in ids {
        assert!(engine.inspect().job(id).await.expect("read").is_some());
    }
}

async fn a_bad_job_among_jobs_claimed_at_submit_fails_alone_and_costs_no_slot(url: &str) {
    let slots = 6;
    let (engine, held) = describe(url).await;
    // The check interval is longer than this test.
    let config = Config {
        check_interval: Duration::from_secs(3_600),
        drain: Duration::from_millis(100),
        ..Config::default()
    };
    let engine = engine.task::<Echo>().queue("default", Pool::slots(slots)).config(config);
    let engine = engine.start().await.expect("started");
    // Before the first claim of the pool, no job is claimed at submit.
    engine.submit(echo("zero")).await.expect("submitted").result().await.expect("done");
    until("the pool is idle", async || {
        let claimed = engine.counts().claims;
        engine.submit(echo("again")).await.expect("submitted").result().await.expect("done");
        engine.counts().claims == claimed
    })
    .await;
    let started = engine.counts().started;
    hold_submits(url, &engine, &held).await;
    let (one, poison, two, three, ()) = tokio::join!(
        async { engine.submit(echo("one")).await },
        async { engine.submit(echo("poison")).await },
        async { engine.submit(echo("two")).await },
        async { engine.submit(echo("three")).await },
        async { held.holds.store(false, Ordering::SeqCst) },
    );
    assert!(
        held.refused.load(Ordering::SeqCst) > 1 && held.claimed_at_submit.load(Ordering::SeqCst),
        "they were one batch"
    );
    assert!(poison.is_err());
    for job in [one, two, three] {
        job.expect("a good job is submitted").result().await.expect("done");
    }
    until("each has run", async || engine.counts().started == started + 3).await;
    // All slots can be used.
    for _ in 0..slots {
        engine.submit(echo("wait")).await.expect("submitted");
    }
    until("as many run as there are slots", async || engine.counts().started == started + 3 + slots as u64)
        .await;
    engine.stop().await;
}

async fn a_bad_signal_fails_only_its_own_delivery(url: &str) {
    let (engine, held) = describe(url).await;
    let engine = engine.open().await.expect("opened");
    let job = engine.submit(echo("one")).await.expect("submitted").id();
    let in_flight = hold(url, &held, |number| {
        let engine = engine.clone();
        async move { engine.signal(job, "first", number).await.map(drop) }
    })
    .await;
    let (one, poison, two, ()) = tokio::join!(
        async { engine.signal(job, "word", "one").await },
        async { engine.signal(job, "word", "poison").await },
        async { engine.signal(job, "word", "two").await },
        async { held.holds.store(false, Ordering::SeqCst) },
    );
    assert!(held.refused.load(Ordering::SeqCst) > 1, "they were one batch");
    assert!(poison.is_err());
    one.expect("a good signal is delivered");
    two.expect("and another");
    until("all are delivered", async || {
        engine.inspect().inbox(job, usize::MAX).await.expect("read").len() == 2 + in_flight
    })
    .await;
}
