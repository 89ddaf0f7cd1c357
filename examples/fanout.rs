//! One job with many children: a thumbnail for each picture of an archive, and a checksum for each of very many tiles.
//!
//! Run it with `cargo run -p windlass --example fanout`; it creates the file `fanout.db` and ends by itself. Kill it and start it
//! again: it continues where it was, and spawns no picture twice. For more pictures, give their number:
//! `cargo run --release -p windlass --example fanout -- 100000`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use windlass::{Cause, prelude::*};

/// The disk with the pictures: some cannot be read until it is fixed. The engine gives it to the tasks.
#[derive(Default)]
struct Disk {
    is_fixed: AtomicBool,
}

/// The size of one picture's thumbnail.
#[derive(Serialize, Deserialize)]
struct Thumbnail {
    picture: u64,
}

impl Task for Thumbnail {
    const KIND: &'static str = "thumbnail";
    type Output = u64;
    type Error = Failure;

    fn needs() -> Needs {
        Needs::new().data::<Arc<Disk>>()
    }

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        let disk: &Arc<Disk> = cx.data();
        match self.picture % 500 {
            499 if !disk.is_fixed.load(Ordering::Relaxed) => Err(Failure::stop("the picture cannot be read")),
            _ => Ok(self.picture % 7 + 1),
        }
    }
}

/// The checksum of one tile: so little work that a job for each would be mostly bookkeeping.
#[derive(Serialize, Deserialize)]
struct Checksum {
    tile: u64,
}

impl Task for Checksum {
    const KIND: &'static str = "checksum";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(self.tile * 31 % 97)
    }
}

#[derive(Serialize, Deserialize)]
struct Archive {
    pictures: u64,
}

impl Workflow for Archive {
    const KIND: &'static str = "archive";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        // Children start while others are still being spawned; the workflow holds none of them in memory.
        flow.branch("thumbnails")
            .spawn_each("picture", 0..self.pictures, |picture| Thumbnail { picture })
            .await?;
        // Up to a thousand tiles are one row and one commit. One that fails becomes a job of its own.
        flow.branch("tiles")
            .packed()
            .spawn_each("tile", 0..self.pictures * 10, |tile| Checksum { tile })
            .await?;
        let tiles =
            flow.merge_branch("tiles").reduce(0, |sum: u64, checksum: u64| (sum + checksum) % 65_521).await?;
        // The merge needs all pictures: it waits until a failed one is redriven.
        let bytes = flow.merge_branch("thumbnails").reduce(0, |sum: u64, bytes: u64| sum + bytes).await?;
        Ok((bytes, tiles))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pictures = std::env::args().nth(1).map_or(Ok(2_000), |number| number.parse())?;
    let url = "sqlite://fanout.db";
    let disk = Arc::new(Disk::default());
    let engine = Engine::builder(url)
        .data(Arc::clone(&disk))
        .task::<Thumbnail>()
        .task::<Checksum>()
        .workflow::<Archive>();
    let engine = engine.queue("default", Pool::slots(16)).start().await?;
    let open = windlass::Filter { kind: Some("archive".into()), limit: 1, ..Default::default() };
    let newest = engine.inspect().jobs(&open).await?.jobs.into_iter().find(|job| !job.state.is_final());
    let archive: Handle<Archive> = match newest {
        Some(job) => engine.job(job.id).await?,
        None => engine.submit(Archive { pictures }).await?,
    };
    let id = archive.id();
    println!("{pictures} pictures, {} tiles", pictures * 10);
    println!("  (meanwhile, in another terminal: windlass --store {url} branches {id})");

    let thumbnails = loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let branches = engine.inspect().branches(id).await?;
        if let Some(branch) = branches.into_iter().find(|branch| branch.name == "thumbnails")
            && branch.sealed
            && branch.counts.ended() == branch.spawned
        {
            break branch;
        }
    };
    println!("{} thumbnails are made, {} failed", thumbnails.counts.done, thumbnails.counts.failed);
    while let Some(why) = engine.why(id).await?
        && why.cause != Cause::Done
    {
        if why.cause == Cause::Blocked {
            println!("why does the archive wait? {}", why.because);
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    disk.is_fixed.store(true, Ordering::Relaxed);
    let control = engine.control("example").note("the disk is fixed");
    let redriven = control.redrive(id, Some("thumbnails")).run(|_| true).await?;
    println!("the disk is fixed, and {} are tried again", redriven.retried);
    let (bytes, tiles) = archive.result().await?;
    println!("{bytes} bytes of thumbnails, and the checksum of all tiles is {tiles}");
    println!("one of the tiles: {:?}", engine.item(&format!("{id}$tiles$tile_4711")).await?.result);
    engine.stop().await;
    Ok(())
}
