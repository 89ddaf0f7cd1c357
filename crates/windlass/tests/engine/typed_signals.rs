//! Signals as types: sent and received by the type, also by those that know only the name.

use std::sync::Arc;

use windlass::{Delivery, State, prelude::*, testing::Lab};

use crate::flow::{On, on_every_store};

on_every_store!(
    a_workflow_receives_a_signal_by_its_type_whenever_the_worker_dies,
    a_machine_receives_a_signal_by_its_type,
    a_machine_waits_for_signals_of_several_types,
    signals_are_sent_by_their_type_from_everywhere,
    a_typed_signal_is_one_of_its_name,
);

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Approve {
    by: String,
}

impl Signal for Approve {
    const NAME: &'static str = "approve";
}

fn approve(by: &str) -> Approve {
    Approve { by: by.into() }
}

/// Collects approvals, until none has come for a day.
#[derive(Serialize, Deserialize)]
struct Collects;

impl Workflow for Collects {
    const KIND: &'static str = "typed_collects";
    type Output = Vec<String>;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Vec<String>, Failure> {
        let mut all = Vec::new();
        loop {
            match flow.receive::<Approve>().key(all.len().to_string()).timeout(days(1)).await {
                Ok(approve) => all.push(approve.by),
                Err(failure) if failure.class == "timeout" => return Ok(all),
                Err(failure) => return Err(failure),
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
enum Waits {
    Begin,
    Approved,
}

impl Machine for Waits {
    const KIND: &'static str = "typed_waits";
    type Output = Option<String>;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Waits>, Failure> {
        Ok(match self {
            Waits::Begin => Next::receive::<Approve>(Waits::Approved).timeout(days(1)),
            Waits::Approved => Next::done(cx.receive::<Approve>()?.map(|approve| approve.by)),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Reject;

impl Signal for Reject {
    const NAME: &'static str = "reject";
}

/// Waits for an answer, then for both signals, then for all approvals there are.
#[derive(Serialize, Deserialize)]
enum Answers {
    Begin,
    Answered,
    Both { first: String },
    All { first: String },
}

impl Machine for Answers {
    const KIND: &'static str = "typed_answers";
    type Output = String;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Answers>, Failure> {
        let both = || [WaitFor::receive::<Approve>(), WaitFor::receive::<Reject>()];
        Ok(match self {
            Answers::Begin => Next::wait(Answers::Answered, WaitFor::any(both())),
            Answers::Answered => {
                let (approve, reject) = (cx.receive::<Approve>()?, cx.receive::<Reject>()?);
                let first = approve.map(|approve| approve.by).or(reject.map(|_| "nobody".into()));
                Next::wait(Answers::Both { first: first.unwrap_or_default() }, WaitFor::all(both()))
            }
            Answers::Both { first } => {
                let second = cx.receive::<Approve>()?.map(|approve| approve.by).unwrap_or_default();
                let first = format!("{first}, {second}, rejected {}", cx.receive::<Reject>()?.is_some());
                Next::wait(Answers::All { first }, WaitFor::receive_all::<Approve>())
            }
            Answers::All { first } => {
                let rest: Vec<String> =
                    cx.receive_all::<Approve>()?.into_iter().map(|approve| approve.by).collect();
                Next::done(format!("{first}, then {}", rest.join(" and ")))
            }
        })
    }
}

async fn a_machine_waits_for_signals_of_several_types(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.machine::<Answers>()).await;
    let job = lab.submit(Answers::Begin).await;
    lab.run().await;
    for by in ["ada", "bob"] {
        lab.send(job, approve(by)).await;
        lab.run().await;
    }
    lab.send(job, approve("cleo")).await;
    lab.send(job, approve("dan")).await;
    lab.send(job, Reject).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), "ada, bob, rejected true, then cleo and dan");
}

async fn a_workflow_receives_a_signal_by_its_type_whenever_the_worker_dies(on: On) {
    let report = on
        .crash(
            |engine| engine.workflow::<Collects>(),
            async |lab: Arc<Lab>| {
                let job = lab.submit(Collects).await;
                lab.send(job, approve("ada")).await;
                lab.advance(hours(1)).await;
                lab.send(job, approve("bob")).await;
                lab.run_past_timeouts().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok(vec!["ada".to_owned(), "bob".to_owned()]), "each once");
    assert!(report.crashes > 3, "{report:?}");
}

async fn a_machine_receives_a_signal_by_its_type(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.machine::<Waits>()).await;
    let approved = lab.submit(Waits::Begin).await;
    lab.advance(hours(1)).await;
    assert_eq!(lab.state(approved).await, State::Waiting);
    lab.send(approved, approve("ada")).await;
    let ignored = lab.submit(Waits::Begin).await;
    lab.run_past_timeouts().await;
    assert_eq!(lab.result(approved).await.expect("done").as_deref(), Some("ada"));
    assert_eq!(lab.result(ignored).await.expect("done"), None, "it timed out");
}

async fn signals_are_sent_by_their_type_from_everywhere(on: On) {
    let store = on.fresh().await;
    let engine = Engine::builder(&store.url).machine::<Waits>().start().await.expect("started");
    let with_submit = engine.submit(Waits::Begin).send(approve("submit")).await.expect("submitted");
    assert_eq!(with_submit.result().await.expect("done").as_deref(), Some("submit"));
    let by_handle = engine.submit(Waits::Begin).key("handle").await.expect("submitted");
    let attached: Handle<Waits> = engine.job("handle").await.expect("found");
    assert_eq!(attached.send(approve("handle")).await.expect("sent"), Delivery::Delivered);
    assert_eq!(by_handle.result().await.expect("done").as_deref(), Some("handle"));
    let by_engine = engine.submit(Waits::Begin).await.expect("submitted");
    assert_eq!(engine.send(by_engine.id(), approve("engine")).await.expect("sent"), Delivery::Delivered);
    assert_eq!(by_engine.result().await.expect("done").as_deref(), Some("engine"));
    // A submit that finds its job sends the signal to that one.
    let first = engine.submit(Waits::Begin).key("again").await.expect("submitted");
    let again = engine.submit(Waits::Begin).key("again").send(approve("again")).await.expect("sent");
    assert_eq!((again.id(), again.is_new()), (first.id(), false));
    assert_eq!(first.result().await.expect("done").as_deref(), Some("again"));
    let json = engine.submit_json(Waits::KIND, 1, serde_json::json!("Begin")).send(approve("json"));
    let json = json.await.expect("submitted");
    assert_eq!(json.result().await.expect("done"), serde_json::json!("json"));
    engine.stop().await;
}

/// What is sent by the name is received by the type; a payload of another type is not.
async fn a_typed_signal_is_one_of_its_name(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Collects>().machine::<Waits>()).await;
    let flow = lab.submit(Collects).await;
    let machine = lab.submit(Waits::Begin).await;
    for id in [flow.id(), machine.id()] {
        let engine = lab.engine().await;
        engine.signal(id, "approve", 7).await.expect("sent");
        engine.signal(id, "approve", serde_json::json!({"by": "ada"})).await.expect("sent");
    }
    lab.run_past_timeouts().await;
    assert_eq!(lab.result(flow).await.expect("done"), ["ada"]);
    assert_eq!(lab.result(machine).await.expect("done").as_deref(), Some("ada"));
    let inbox = lab.engine().await.inspect().inbox(flow.id(), 9).await.expect("inbox");
    assert!(inbox.iter().any(|signal| signal.unreadable.is_some()), "{inbox:?}");
}
