//! `reminder`, a workflow: `{"what": "water the plants", "seconds": 5}` reminds until somebody sends the signal `answer`.
//!
//! It is small and has what workflows have: a sleep, a step, and a wait for a signal with a timeout.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::{Failure, Flow, Workflow, model::failure::class};

/// A reminder.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reminder {
    /// What to remind of.
    what: String,
    /// The time before the first reminder and between reminders.
    #[serde(default = "hour")]
    seconds: u64,
    /// How many reminders at most.
    #[serde(default = "three")]
    times: u32,
}

fn hour() -> u64 {
    3_600
}

fn three() -> u32 {
    3
}

impl Workflow for Reminder {
    const KIND: &'static str = "reminder";
    /// The payload of the signal `answer`.
    type Output = Value;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Value, Failure> {
        let Reminder { what, seconds, times } = &self;
        flow.sleep(Duration::from_secs(*seconds)).await;
        for time in 1..=*times {
            let remind = || async move {
                tracing::info!(%what, time, "reminder");
                Ok(())
            };
            flow.step("remind", remind).key(time).await?;
            flow.context().set("reminded", time)?;
            let answer = flow.signal("answer").key(time).timeout(Duration::from_secs(*seconds));
            match answer.await {
                Err(failure) if failure.class == class::TIMEOUT => {}
                result => return result,
            }
        }
        Err(Failure::stop(format!("{what} was not answered after {times} reminders")).class("unanswered"))
    }
}
