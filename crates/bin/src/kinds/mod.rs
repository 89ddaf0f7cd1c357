//! The built-in kinds of the stock binary.

mod approval;
mod exec;
mod reminder;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Builder, Failure, Task, TaskCx};

/// Adds the built-in kinds to an engine. `exec` is among them if `with_exec` says so: whoever may submit jobs must not thereby run
/// programs on hosts that were not started for that.
pub(crate) fn add(engine: Builder, with_exec: bool) -> Builder {
    let engine = if with_exec { engine.task::<exec::Exec>() } else { engine };
    engine.task::<Noop>().task::<Sleep>().machine::<approval::Approval>().workflow::<reminder::Reminder>()
}

/// Does nothing. Accepts any input.
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

/// Sleeps.
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
