//! The crash test: the planned tasks, the workers that run them and do not all survive, and the account of it.

use std::{path::Path, time::Instant};

use windlass::{Engine, JobId};

use super::{
    account,
    chaos::{Chaos, WorkerArgs},
    screen::Screen,
    stop::Stop,
    worker::Numbered,
};
use crate::out;

/// A crash test whose tasks are submitted, and whose workers are not started yet.
pub(super) struct CrashTest {
    engine: Engine,
    queue: String,
    ids: Vec<JobId>,
    workers: u32,
    screen: Screen,
}

impl CrashTest {
    /// Submits the tasks, all but the one that is submitted later to be held.
    pub(super) async fn submit(engine: Engine, tasks: u32, workers: u32) -> anyhow::Result<CrashTest> {
        let screen = Screen::new(u64::from(tasks));
        // A queue of its own, so that the account can tell its jobs from others in the store.
        let queue = format!("demo-{:08x}", fastrand::u32(..));
        let numbers = (1..tasks).map(|number| Numbered { number });
        let mut ids: Vec<JobId> = vec![engine.new_id()];
        let submitted = engine.submit_all(numbers).queue(&queue).await?;
        for submitted in submitted {
            ids.push(submitted.id()?);
        }
        Ok(CrashTest { engine, queue, ids, workers, screen })
    }

    /// Runs the tasks, prints the account, and returns whether it adds up; `None` if the demo was stopped before.
    pub(super) async fn run(self, url: &str, dir: &Path, stop: Stop) -> anyhow::Result<Option<bool>> {
        let CrashTest { engine, queue, ids, workers, screen } = self;
        let tasks = out::thousands(ids.len() as u64);
        screen.event(&format!("{tasks} tasks submitted; starting {workers} workers"));
        let (slots, mean) = pace(ids.len() as u64, workers.into());
        let args = WorkerArgs { url: url.to_owned(), queue: queue.clone(), dir: dir.to_owned(), slots, mean };
        let started = Instant::now();
        let mut chaos = Chaos::new(engine.clone(), args, screen, &ids);
        let Some(happened) = Box::pin(chaos.run(workers, stop)).await? else { return Ok(None) };
        let seconds = started.elapsed().as_secs_f64();
        let account = account::make(&engine, &queue, &ids, dir, &happened).await?;
        out::print(&account.text(seconds, &happened))?;
        Ok(Some(account.adds_up()))
    }
}

/// The slots of a worker, and the mean duration of a task in microseconds: about four seconds of work without faults, so that there is
/// time for them; few tasks get few slots.
fn pace(tasks: u64, workers: u64) -> (usize, u64) {
    let slots = (tasks / (workers * 100)).clamp(2, 16);
    let mean = 4_000_000 * slots * workers / tasks;
    (slots as usize, mean.clamp(1_000, 50_000))
}
