//! An engine is described before anything is opened. A mistake in the description is an error that says what to write instead, and
//! leaves no store behind.

use std::path::Path;

use windlass::{Builder, Error, model::KindVersion, prelude::*};

use crate::{
    common::TestStore,
    flow::{On, on_every_store},
};

on_every_store!(
    a_description_opens_nothing,
    a_kind_is_registered_once_in_each_version,
    data_of_a_type_is_given_once,
    data_that_a_kind_needs_is_given_before_it_starts,
    an_engine_without_kinds_does_not_start,
    names_are_checked_before_the_store_is_opened,
    an_opened_engine_is_started_once_and_again_after_a_stop,
);

struct Database;
struct Mailer;

/// Returns its input.
#[derive(Serialize, Deserialize)]
struct Echo(u32);

impl Task for Echo {
    const KIND: &'static str = "builder_echo";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        Ok(self.0)
    }
}

/// The next version of the kind.
#[derive(Serialize, Deserialize)]
struct NextEcho(u32);

impl Task for NextEcho {
    const KIND: &'static str = "builder_echo";
    const VERSION: i32 = 2;
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        Ok(self.0 + 1)
    }
}

/// A workflow of the same kind and version.
#[derive(Serialize, Deserialize)]
struct EchoFlow(u32);

impl Workflow for EchoFlow {
    const KIND: &'static str = "builder_echo";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _flow: Flow) -> Result<u32, Failure> {
        Ok(self.0)
    }
}

#[derive(Serialize, Deserialize)]
struct NeedyTask;

impl Task for NeedyTask {
    const KIND: &'static str = "needy_task";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }

    fn needs() -> Needs {
        Needs::new().data::<Database>().data::<Mailer>()
    }
}

#[derive(Serialize, Deserialize)]
enum NeedyMachine {
    Begin,
}

impl Machine for NeedyMachine {
    const KIND: &'static str = "needy_machine";
    type Output = ();
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<NeedyMachine>, Failure> {
        Ok(Next::done(()))
    }

    fn needs() -> Needs {
        Needs::new().data::<Database>()
    }
}

#[derive(Serialize, Deserialize)]
struct NeedyFlow;

impl Workflow for NeedyFlow {
    const KIND: &'static str = "needy_flow";
    type Output = ();
    type Error = Failure;

    async fn run(self, _flow: Flow) -> Result<(), Failure> {
        Ok(())
    }

    fn needs() -> Needs {
        Needs::new().data::<Database>()
    }
}

/// Whether the store exists, as far as that can be seen without opening it.
fn exists(store: &TestStore) -> bool {
    store.url.strip_prefix("sqlite://").is_some_and(|path| Path::new(path).exists())
}

/// The error of a description that is refused both when it is opened and when it is started.
async fn refusal(store: &TestStore, describe: impl Fn(Builder) -> Builder) -> String {
    let describe = || describe(Engine::builder(&store.url));
    let error = describe().open().await.err().expect("not opened");
    assert!(matches!(error, Error::Setup(_) | Error::Invalid(_)), "{error:?}");
    let started = describe().start().await.err().expect("not started");
    assert_eq!(started.to_string(), error.to_string());
    assert!(!error.is_retryable() && !exists(store), "nothing was opened");
    error.to_string()
}

fn contains_all(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{text:?} lacks {part:?}"));
}

async fn a_description_opens_nothing(on: On) {
    let store = on.fresh().await;
    let builder = Engine::builder("mysql://elsewhere").task::<NextEcho>().task::<Echo>();
    let builder = builder.queue("mail", Pool::slots(3)).queue("mail", Pool::slots(4)).url(&store.url);
    let kind = |version: i32| KindVersion { kind: "builder_echo".into(), version };
    assert_eq!(builder.kinds(), [kind(1), kind(2)]);
    assert_eq!((builder.address(), builder.queues()), (&*store.url, vec![("mail".into(), Pool::slots(4))]));
    assert!(!exists(&store), "it is only described");
    let engine = builder.open().await.expect("opened");
    assert_eq!((engine.kinds(), engine.url()), (vec![kind(1), kind(2)], &*store.url));
    assert_eq!((engine.worker().await, exists(&store)), (None, on == On::Sqlite), "it runs no jobs");
}

async fn a_kind_is_registered_once_in_each_version(on: On) {
    let store = on.fresh().await;
    let parts = ["\"builder_echo\"", "twice", "version 1", "KIND", "VERSION"];
    contains_all(&refusal(&store, |engine| engine.task::<Echo>().task::<Echo>()).await, &parts);
    contains_all(&refusal(&store, |engine| engine.task::<Echo>().workflow::<EchoFlow>()).await, &parts);
    let engine = Engine::builder(&store.url).task::<Echo>().task::<NextEcho>();
    let engine = engine.start().await.expect("two versions are two kinds");
    assert_eq!(engine.submit(Echo(1)).await.expect("submitted").result().await.expect("done"), 1);
    assert_eq!(engine.submit(NextEcho(1)).await.expect("submitted").result().await.expect("done"), 2);
    engine.stop().await;
}

async fn data_of_a_type_is_given_once(on: On) {
    let store = on.fresh().await;
    let twice = refusal(&store, |engine| engine.task::<Echo>().data(1_u32).data(2_u32)).await;
    contains_all(&twice, &["`u32` twice", "wrap each in a type of its own"]);
    let engine = Engine::builder(&store.url).task::<Echo>().data(1_u32).data(2_u64);
    engine.start().await.expect("of different types").stop().await;
}

async fn data_that_a_kind_needs_is_given_before_it_starts(on: On) {
    type Describe = fn(Builder) -> Builder;
    let needy: [(Describe, &str); 3] = [
        (|engine| engine.task::<NeedyTask>(), "\"needy_task\""),
        (|engine| engine.machine::<NeedyMachine>(), "\"needy_machine\""),
        (|engine| engine.workflow::<NeedyFlow>(), "\"needy_flow\""),
    ];
    let store = on.fresh().await;
    for (describe, kind) in needy {
        let error = describe(Engine::builder(&store.url)).start().await.err().expect("not started");
        assert!(matches!(error, Error::Setup(_)), "{error:?}");
        contains_all(&error.to_string(), &[kind, "builder::Database`", ".data(value)"]);
        assert!(!exists(&store), "nothing was opened");
    }
    let both = Engine::builder(&store.url).task::<NeedyTask>().start().await.err().expect("not started");
    contains_all(&both.to_string(), &["builder::Database` and `", "builder::Mailer`"]);

    // An engine that only submits needs no data.
    let submits = Engine::builder(&store.url).task::<NeedyTask>().data(Mailer).open().await.expect("opened");
    let job = submits.submit(NeedyTask).await.expect("submitted");
    let error = submits.start().await.expect_err("not started").to_string();
    assert!(error.contains("builder::Database`") && !error.contains("Mailer"), "{error}");
    assert_eq!(submits.worker().await, None);
    let engine = Engine::builder(&store.url).store(submits.store().clone());
    let engine = engine.task::<NeedyTask>().machine::<NeedyMachine>().workflow::<NeedyFlow>();
    let engine = engine.data(Database).data(Mailer).start().await.expect("it has all data");
    job.result().await.expect("done");
    engine.submit(NeedyMachine::Begin).await.expect("submitted").result().await.expect("done");
    engine.submit(NeedyFlow).await.expect("submitted").result().await.expect("done");
    engine.stop().await;
}

async fn an_engine_without_kinds_does_not_start(on: On) {
    let store = on.fresh().await;
    let error = Engine::builder(&store.url).data(Database).start().await.err().expect("not started");
    contains_all(&error.to_string(), &["nothing to serve", ".task::<T>()", ".workflow::<W>()", "`.open()`"]);
    assert!(!exists(&store), "nothing was opened");
    let engine = Engine::builder(&store.url).open().await.expect("opened");
    let later = engine.start().await.expect_err("not started");
    assert_eq!(later.to_string(), error.to_string());
}

async fn names_are_checked_before_the_store_is_opened(on: On) {
    #[derive(Serialize, Deserialize)]
    struct Misnamed;
    impl Task for Misnamed {
        const KIND: &'static str = "two words";
        type Output = ();
        type Error = Failure;
        async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
            Ok(())
        }
    }
    let store = on.fresh().await;
    contains_all(&refusal(&store, |engine| engine.task::<Misnamed>()).await, &["two words", ";"]);
    let queue = refusal(&store, |engine| engine.task::<Echo>().queue("windlass.own", Pool::slots(1))).await;
    contains_all(&queue, &["windlass.own", "reserved"]);
}

async fn an_opened_engine_is_started_once_and_again_after_a_stop(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url).task::<Echo>().open().await.expect("opened");
    assert_eq!(engine.stop().await, 0, "nothing has started");
    let early = engine.submit(Echo(1)).await.expect("submitted");
    engine.start().await.expect("started");
    assert_eq!(early.result().await.expect("done"), 1);
    let worker = engine.worker().await;
    let error = engine.clone().start().await.expect_err("a clone is the same engine");
    contains_all(&error.to_string(), &["started already", "stop it"]);
    assert_eq!((engine.worker().await, worker.is_some()), (worker, true), "the worker is unharmed");
    assert_eq!(engine.submit(Echo(2)).await.expect("submitted").result().await.expect("done"), 2);
    engine.stop().await;
    let later = engine.submit(Echo(3)).await.expect("submitted");
    engine.start().await.expect("started again");
    assert_ne!(engine.worker().await, worker, "it is another worker");
    assert_eq!(later.result().await.expect("done"), 3);
    engine.stop().await;
}
