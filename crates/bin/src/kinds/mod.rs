//! The kinds that the stock binary serves itself.

mod approval;
mod exec;
mod reminder;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Engine, Failure, Task, TaskCx};

/// Adds the built-in kinds to an engine.
pub(crate) fn add(engine: Engine) -> Engine {
    engine
        .task::<exec::Exec>()
        .task::<Noop>()
        .task::<Sleep>()
        .machine::<approval::Approval>()
        .workflow::<reminder::Reminder>()
}

/// Does nothing, whatever the input.
#[derive(Serialize, Deserialize)]
struct Noop(#[serde(default)] serde_json::Value);

impl Task for Noop {
    const KIND: &'static str = "noop";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

/// Waits.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
}

impl Task for Sleep {
    const KIND: &'static str = "sleep";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        Ok(())
    }
}
