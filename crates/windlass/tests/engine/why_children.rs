//! `why` of a job that waits for children names one of them, and why that one does not end.

use windlass::{Cause, ControlOutcome, JobId, State, operate::AwaitedChild, prelude::*};

use crate::{
    common::{reaches, until},
    on_both_stores,
};

on_both_stores!(
    a_machine_names_the_child_it_waits_for,
    a_workflow_names_the_child_that_needs_somebody,
    a_merge_names_a_child_that_blocks_it,
    a_merge_names_a_live_child_among_many_that_are_done,
);

/// A child. One in a queue that nobody serves never starts.
#[derive(Serialize, Deserialize)]
struct Note(u32);

impl Task for Note {
    const KIND: &'static str = "note";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        if self.0 == 13 { Err(Failure::stop("an unlucky number")) } else { Ok(self.0) }
    }
}

#[derive(Serialize, Deserialize)]
enum Conductor {
    Begin,
    End,
}

impl Machine for Conductor {
    const KIND: &'static str = "conductor";
    type Output = ();
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(match self {
            Conductor::Begin => {
                let silent = Child::new(Note(2)).queue("silent").key("second");
                Next::children(Conductor::End, [Child::new(Note(1)), silent])
            }
            Conductor::End => Next::done(()),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Duet;

impl Workflow for Duet {
    const KIND: &'static str = "duet";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let later = |child: Child| child.delay(Duration::from_secs(3_600));
        let first = flow.child("first", Note(1)).with(later);
        let second = flow.child("second", Note(2)).with(|child| later(child).key("sad"));
        let (first, second) = tokio::join!(first, second);
        first.and(second).map(|_| ())
    }
}

#[derive(Serialize, Deserialize)]
struct Choir {
    voices: u32,
    queue: Option<String>,
}

impl Workflow for Choir {
    const KIND: &'static str = "choir";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let branch = flow.branch("voices").spawn_each("voice", 0..self.voices, Note);
        let branch = match self.queue {
            Some(queue) => branch.spawn("last", Child::new(Note(0)).queue(queue)),
            None => branch,
        };
        branch.automerge().await?;
        Ok(())
    }
}

async fn start(url: &str) -> Engine {
    let engine = Engine::builder(url);
    let engine = engine.task::<Note>().machine::<Conductor>().workflow::<Duet>().workflow::<Choir>();
    engine.start().await.expect("started")
}

/// The cause of a job, and the child that it names. Polls while the job moves: `why` makes several reads.
async fn why(engine: &Engine, id: JobId) -> (Cause, AwaitedChild) {
    until("a child is named", async || {
        engine.why(id).await.expect("why").is_some_and(|why| why.child.is_some())
    })
    .await;
    let why = engine.why(id).await.expect("why").expect("the job exists");
    let child = why.child.clone().unwrap_or_else(|| panic!("no child is named: {why:?}"));
    assert!(why.hint.contains(&format!("`windlass why {}`", child.job)), "{why:?}");
    (why.cause, child)
}

async fn a_machine_names_the_child_it_waits_for(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Conductor::Begin).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    until("the other child is done", async || {
        engine.inspect().job(job.id()).await.expect("read").expect("exists").pending_children == 1
    })
    .await;
    let (cause, child) = why(&engine, job.id()).await;
    assert_eq!((cause, child.cause, child.state), (Cause::Children, Cause::QueueUnserved, State::Ready));
    assert_eq!((child.kind.as_str(), child.key.as_deref()), ("note", Some("second")));
    let text = child.to_text();
    assert!(
        text.starts_with(&format!("Its child note {} (key \"second\") is ready: No worker", child.job)),
        "{text}"
    );
    engine.stop().await;
}

async fn a_workflow_names_the_child_that_needs_somebody(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Duet).await.expect("submitted");
    reaches(&engine, job.id(), State::Waiting).await;
    until("both children exist", async || {
        engine.inspect().children(job.id(), None, 9).await.expect("read").len() == 2
    })
    .await;
    let (cause, child) = why(&engine, job.id()).await;
    assert_eq!((cause, child.cause), (Cause::Children, Cause::Scheduled));
    let oldest = engine.inspect().children(job.id(), None, 1).await.expect("read")[0].id;
    assert_eq!(engine.control("a test").pause(oldest).await.expect("paused"), ControlOutcome::Done);
    let (_, child) = why(&engine, job.id()).await;
    assert_eq!((child.job, child.cause), (oldest, Cause::Paused));
    engine.stop().await;
}

async fn a_merge_names_a_child_that_blocks_it(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Choir { voices: 20, queue: None }).key("mass").await.expect("submitted");
    until("the merge is blocked", async || {
        engine.why(job.id()).await.expect("why").is_some_and(|why| why.cause == Cause::Blocked)
    })
    .await;
    let (_, child) = why(&engine, job.id()).await;
    assert_eq!((child.cause, child.state), (Cause::Stopped, State::Failed));
    assert_eq!(child.name.as_deref(), Some("mass$voices$voice_13"));
    assert!(child.because.contains("an unlucky number"), "{child:?}");
    engine.stop().await;
}

async fn a_merge_names_a_live_child_among_many_that_are_done(url: &str) {
    let engine = start(url).await;
    let job = engine.submit(Choir { voices: 5, queue: Some("silent".into()) }).await.expect("submitted");
    until("the others are done", async || {
        let branches = engine.inspect().branches(job.id()).await.expect("read");
        branches.first().is_some_and(|branch| branch.counts.done == 5 && branch.watch.is_some())
    })
    .await;
    let (cause, child) = why(&engine, job.id()).await;
    assert_eq!((cause, child.cause), (Cause::Branches, Cause::QueueUnserved));
    assert_eq!(child.name, Some(format!("{}$voices$last", job.id())));
    engine.stop().await;
}
