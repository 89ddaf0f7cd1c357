//! Submits: keys and ids, priorities and delays, and what is refused.

use std::sync::Mutex;

use windlass::{State, Time, prelude::*};

use super::{Act, Do, engine, view};

crate::on_both_stores!(
    keys_and_ids_make_submits_repeatable,
    jobs_run_by_priority_and_after_their_delay,
    bad_submits_are_refused_with_what_to_do,
    a_submit_from_a_runtime_that_ends_does_not_harm_the_engine,
);

async fn keys_and_ids_make_submits_repeatable(url: &str) {
    let engine = engine(url).open().await.expect("opened");
    let first = engine.submit(Do(Act::Return(1))).key("k").await.expect("submitted");
    let again = engine.submit(Do(Act::Return(1))).key("k").await.expect("submitted");
    let other = engine.submit(Do(Act::Return(2))).key("k").await.expect("submitted");
    assert!(first.is_new() && !again.is_new() && !again.differs() && !other.is_new() && other.differs());
    assert_eq!((again.id(), other.id()), (first.id(), first.id()));

    let id = engine.new_id();
    assert!(engine.submit(Do(Act::Return(3))).id(id).await.expect("submitted").is_new());
    assert!(!engine.submit(Do(Act::Return(3))).id(id).await.expect("repeated").is_new());
    let taken = engine.submit(Do(Act::Return(4))).id(id).await.expect_err("another input");
    assert!(taken.to_string().contains("with another input"), "{taken}");

    let all =
        engine.submit_all((0..2_500).map(|n| Do(Act::Return(n % 100)))).key(|job| format!("{:?}", job.0));
    let all = all.await.expect("submitted");
    assert_eq!((all.len(), all.iter().filter(|submitted| submitted.is_new()).count()), (2_500, 100));
}

async fn jobs_run_by_priority_and_after_their_delay(url: &str) {
    static ORDER: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
    #[derive(Serialize, Deserialize)]
    struct Note(usize, u64);
    impl Task for Note {
        const KIND: &'static str = "note";
        type Output = ();
        type Error = Failure;
        async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
            ORDER.lock().expect("not poisoned").push((self.0, self.1));
            Ok(())
        }
    }
    let me = url.len();
    let engine = Engine::builder(url).task::<Note>().queue("default", Pool::slots(1));
    let engine = engine.open().await.expect("opened");
    let submit = async |n: u64, priority: i16, ms: u64| {
        let job = engine.submit(Note(me, n)).priority(priority).delay(Duration::from_millis(ms));
        job.await.expect("submitted").id()
    };
    let jobs = [
        submit(4, 5, 0).await,
        submit(3, 0, 0).await,
        submit(2, -1, 0).await,
        submit(1, -5, 0).await,
        submit(5, -100, 400).await,
    ];
    let scheduled = view(&engine, jobs[4]).await;
    assert_eq!(scheduled.summary.state, State::Scheduled);
    engine.start().await.expect("started");
    for id in jobs {
        engine.result::<()>(id).await.expect("done");
    }
    engine.stop().await;
    let order: Vec<u64> =
        ORDER.lock().expect("not poisoned").iter().filter(|(test, _)| *test == me).map(|(_, n)| *n).collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
}

async fn bad_submits_are_refused_with_what_to_do(url: &str) {
    let engine = engine(url).open().await.expect("opened");
    let submit = || engine.submit(Do(Act::Return(1)));
    let year_10000 = Time(Time::MAX.0 + 1);
    let errors = [
        (submit().key("k".repeat(1 << 20)).await, "more than the 512"),
        (submit().key("a\0b").await, "NUL"),
        (submit().queue("windlass.own").await, "reserved"),
        (submit().priority(500).await, "from -100"),
        (submit().at(year_10000).await, "year 9999"),
        (submit().options("{").await, "not JSON"),
        (submit().timeout(Duration::ZERO).await, "timeout is zero"),
        (submit().delay(Duration::MAX).await, "100 years"),
        (
            engine.submit(Do(Act::FailFirst { times: 0, padding: "x".repeat(1 << 21) })).await,
            "1048576 allowed",
        ),
    ];
    for (answer, text) in errors {
        let error = answer.expect_err(text).to_string();
        assert!(error.contains(text) && error.contains(';'), "{error}");
    }
    let one_bad = engine
        .submit_all([Do(Act::Return(1)), Do(Act::FailFirst { times: 0, padding: "x".repeat(1 << 21) })]);
    one_bad.await.expect_err("refused");
    assert!(engine.inspect().state_counts().await.expect("counted").is_empty(), "nothing was written");
    let nothing = Engine::open(url).await.expect("opened").start().await.expect_err("no kinds");
    assert!(nothing.to_string().contains(".task::<T>()"), "{nothing}");
    let nowhere = Engine::open("mysql://x").await.err().expect("no such store");
    assert!(nowhere.to_string().contains("sqlite://PATH"), "{nowhere}");
}

async fn a_submit_from_a_runtime_that_ends_does_not_harm_the_engine(url: &str) {
    let engine = engine(url).queue("default", Pool::slots(1)).start().await.expect("started");
    let elsewhere = engine.clone();
    let id = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { elsewhere.submit(Do(Act::Sleep(100))).await.expect("submitted").id() })
    });
    let id = id.join().expect("submitted");
    assert_eq!(engine.result::<u64>(id).await.expect("done"), 100);
    let next = engine.submit(Do(Act::Return(1))).await.expect("submitted");
    assert_eq!(next.result().await.expect("done"), 1);
    engine.stop().await;
}
