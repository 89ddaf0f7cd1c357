//! Branches with a limit of children in flight, on a worker with one slot.

use windlass::{Pool, prelude::*};

use super::{On, on_every_store, ran};

on_every_store! {
    a_machine_gives_its_slot_to_its_children,
    a_workflow_gives_its_slot_to_its_children,
    a_block_counts_as_the_number_of_its_items,
}

/// A child.
#[derive(Serialize, Deserialize)]
struct Small(u64);

impl Task for Small {
    const KIND: &'static str = "limits_small";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(self.0)
    }
}

/// A machine that fills a branch in a step that was woken by a signal.
#[derive(Serialize, Deserialize)]
enum Narrow {
    Begin,
    Fill,
    Merged { of: u64 },
}

impl Machine for Narrow {
    const KIND: &'static str = "limits_narrow";
    type Output = (u64, u64);
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Self>, Failure> {
        Ok(match self {
            Narrow::Begin => Next::wait(Narrow::Fill, "fill"),
            Narrow::Fill => {
                let of = cx.signal::<u64>("fill")?.ok_or_else(|| Failure::stop("no signal"))?;
                cx.branch("small").in_flight(2).spawn_each("small", 0..of, Small).open().await?;
                Next::merge(Narrow::Merged { of }, ["small"], Merge::all())
            }
            Narrow::Merged { of } => Next::done((of, cx.merged("small").await?.done)),
        })
    }
}

/// A workflow that fills a branch from a source that is slow to read, and slow to skip.
#[derive(Serialize, Deserialize)]
struct Slow {
    items: u64,
    packed: bool,
}

impl Workflow for Slow {
    const KIND: &'static str = "limits_slow";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let (items, id) = (self.items, flow.id());
        let source = windlass::StreamSource::new(move || {
            ran(format!("{id} opened"));
            futures_util::StreamExt::then(futures_util::stream::iter(0..items), async |n| {
                tokio::time::sleep(Duration::from_millis(10)).await;
                n
            })
        });
        let mut branch = flow.branch("small").in_flight(4).chunk(2);
        if self.packed {
            branch = branch.packed();
        }
        let merged = branch.spawn_each("small", source, Small).automerge();
        merged.reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

async fn engine(url: &str) -> Engine {
    let engine = Engine::builder(url).task::<Small>();
    let engine = engine.machine::<Narrow>().workflow::<Slow>().queue("default", Pool::slots(1));
    engine.start().await.expect("started")
}

async fn a_machine_gives_its_slot_to_its_children(on: On) {
    let store = on.fresh().await;
    let engine = engine(&store.url).await;
    let job = engine.submit(Narrow::Begin).await.expect("submitted");
    engine.signal(job.id(), "fill", 5_u64).await.expect("sent");
    assert_eq!(job.result().await.expect("done"), (5, 5));
    let branch = &engine.inspect().branches(job.id()).await.expect("branches")[0];
    assert_eq!((branch.spawned, branch.counts.ends()), (5, (5, 0, 0)));
    let failed = engine.inspect().history(job.id()).await.expect("history");
    assert!(failed.is_empty(), "a pause is no failure: {failed:?}");
    engine.stop().await;
}

async fn a_workflow_gives_its_slot_to_its_children(on: On) {
    let store = on.fresh().await;
    let engine = engine(&store.url).await;
    let job = engine.submit(Slow { items: 12, packed: false }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), 66);
    assert!(
        super::times(format!("{} opened", job.id())) > 1,
        "it was parked, since its children had no other slot"
    );
    engine.stop().await;
}

async fn a_block_counts_as_the_number_of_its_items(on: On) {
    let store = on.fresh().await;
    let engine = engine(&store.url).await;
    let job = engine.submit(Slow { items: 9, packed: true }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), 36);
    let branch = &engine.inspect().branches(job.id()).await.expect("branches")[0];
    assert_eq!((branch.spawned, branch.counts.ends()), (9, (9, 0, 0)));
    let blocks = engine.inspect().children(job.id(), None, 99).await.expect("children");
    assert_eq!(blocks.len(), 5, "of two items each");
    engine.stop().await;
}
