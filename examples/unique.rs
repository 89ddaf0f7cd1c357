//! Unique jobs: one job at a time holds a name. Another submit returns that job, is rejected, or replaces it. Also a
//! debounce: many edits, one run with the newest input.
//!
//! Run it with `cargo run -p windlass --example unique`.

use windlass::{Error, States, prelude::*};

/// Updates the search index with one document.
#[derive(Serialize, Deserialize)]
struct Index {
    document: u32,
    version: u32,
}

impl Task for Index {
    const KIND: &'static str = "index";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        println!("  indexed version {} of document {}", self.version, self.document);
        Ok(self.version)
    }
}

fn index(document: u32, version: u32) -> Index {
    Index { document, version }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());
    let engine = Engine::builder(&url).task::<Index>().start().await?;

    println!("keep: the second submit returns the existing job");
    let first = engine.submit(index(1, 1)).unique("document-1").await?;
    let second = engine.submit(index(1, 2)).unique("document-1").await?;
    println!(
        "  the same job: {}, new: {}, its input differs: {}",
        first.id() == second.id(),
        second.is_new(),
        second.differs()
    );

    println!("reject: the second submit is an error");
    match engine.submit(index(1, 3)).unique(Unique::new("document-1").or_reject()).await {
        Err(Error::Rejected(id)) => {
            println!("  rejected; the name belongs to the first: {}", id == first.id())
        }
        other => println!("  not expected: {}", other.is_ok()),
    }
    println!("the name is free when its job has ended");
    first.result().await?;
    let third = engine.submit(index(1, 4)).unique("document-1").await?;
    println!("  new: {}", third.is_new());
    third.result().await?;

    println!("replace: a job that waits is cancelled, and the new one takes the name");
    let name = || Unique::new("document-2").or_replace();
    let old = engine.submit(index(2, 1)).unique(name()).delay(Duration::from_secs(3_600)).await?;
    let new = engine.submit(index(2, 2)).unique(name()).await?;
    println!("  it replaced the old one: {}", new.replaced() == Some(old.id()));
    if let Err(error) = old.result().await {
        println!("  the old one: {error}");
    }
    new.result().await?;

    println!("debounce: five edits in a row, one run with the last of them");
    // Only while the job waits: an edit that comes while it runs submits a new job.
    let debounce = || Unique::new("document-3").scope(States::PENDING).or_replace();
    let wait = Duration::from_millis(400);
    let mut last = engine.submit(index(3, 1)).unique(debounce()).delay(wait).await?;
    for version in 2..=5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        last = engine.submit(index(3, version)).unique(debounce()).delay(wait).await?;
    }
    println!("  version {} was indexed", last.result().await?);
    engine.stop().await;
    Ok(())
}
