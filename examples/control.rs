//! Control of jobs: pause, resume, cancel and retry them, ask why they wait, act on many, and read the audit log.
//!
//! Run it with `cargo run -p windlass --example control`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use windlass::{
    Filter, State,
    operate::{AuditFilter, JobAction},
    prelude::*,
    store::AuditEntry,
};

/// The disk that the files are copied to. The engine gives it to the tasks.
#[derive(Default)]
struct Disk {
    is_full: AtomicBool,
}

/// Copies files, and stops when it is cancelled.
#[derive(Serialize, Deserialize)]
struct Copy {
    files: u32,
}

impl Task for Copy {
    const KIND: &'static str = "copy";
    type Output = u32;
    type Error = Failure;

    /// Without a disk the engine does not start.
    fn needs() -> Needs {
        Needs::new().data::<Arc<Disk>>()
    }

    async fn run(self, cx: &TaskCx) -> Result<u32, Failure> {
        if cx.data::<Arc<Disk>>().is_full.load(Ordering::Relaxed) {
            return Err(Failure::stop("the disk is full"));
        }
        for file in 0..self.files {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
                () = cx.cancelled() => {
                    println!("  the task cleans up after {file} files");
                    return Err(Failure::cancel(format!("stopped after {file} files")));
                }
            }
        }
        Ok(self.files)
    }
}

fn copy(files: u32) -> Copy {
    Copy { files }
}

async fn why(engine: &Engine, job: &Handle<Copy>) -> Result<(), windlass::Error> {
    if let Some(why) = engine.why(job.id()).await? {
        println!("  why: [{}] {}\n       {}", why.cause, why.because, why.hint);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let disk = Arc::new(Disk::default());
    let engine = Engine::builder(&url).data(Arc::clone(&disk)).task::<Copy>().start().await?;
    // The name in the audit log: a person, a program, a ticket.
    let control = engine.control("operator");

    println!("pause and resume");
    let job = engine.submit(copy(1)).delay(Duration::from_millis(50)).await?;
    control.clone().note("the disk is being changed").pause(job.id()).await?.accepted()?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    why(&engine, &job).await?;
    control.resume(job.id()).await?.accepted()?;
    println!("  copied {} file", job.result().await?);

    println!("cancel a running job");
    let job = engine.submit(copy(1_000)).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("  {:?}", control.cancel_within(job.id(), Duration::from_secs(5)).await?);
    if let Err(error) = job.result().await {
        println!("  {error}");
    }

    println!("retry a failed job");
    disk.is_full.store(true, Ordering::Relaxed);
    let job = engine.submit(copy(1)).await?;
    job.result().await.expect_err("the disk is full");
    why(&engine, &job).await?;
    disk.is_full.store(false, Ordering::Relaxed);
    println!("  {:?}", control.retry(job.id()).await?);
    println!("  copied {} file", job.result().await?);

    println!("cancel many jobs, after a preview");
    for files in 1..=250 {
        engine.submit(copy(files)).tag("tuesday").delay(Duration::from_secs(3_600)).await?;
    }
    let filter = Filter { tag: Some("tuesday".into()), state: Some(State::Scheduled), ..Filter::default() };
    let bulk = control
        .clone()
        .note("wrong folder")
        .bulk(filter, JobAction::Cancel { grace: windlass::operate::GRACE });
    let preview = bulk.preview().await?;
    println!("  {} jobs match, the newest is {}", preview.matching, preview.sample[0].id);
    let seen = |counts: &windlass::operate::BulkProgress| {
        println!("  {} done so far", counts.done);
        true
    };
    let counts = bulk.per_second(500).run(seen).await?;
    println!("  {} done, {} refused", counts.done, counts.refused);

    println!("the audit log, newest first");
    let entries = engine.inspect().audit(&AuditFilter { limit: 1_000, ..AuditFilter::default() }).await?;
    // A bulk operation has an entry for each of its jobs, one for its beginning and one for its end.
    let of_bulk =
        |entry: &&AuditEntry| entry.action == "cancel" && entry.note.as_deref() == Some("wrong folder");
    for entry in entries.iter().filter(|entry| !of_bulk(entry)) {
        println!(
            "  {} {}: {} {} {}",
            entry.at,
            entry.author,
            entry.action,
            entry.subject,
            entry.note.as_deref().unwrap_or("")
        );
    }
    engine.stop().await;
    Ok(())
}
