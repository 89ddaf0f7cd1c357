//! Reminding people: `{"what": "water the plants", "seconds": 5}` reminds until somebody sends the signal `answer`.
//!
//! A small workflow to try things with: it sleeps, has a step, and waits for a signal with a time limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::{Failure, Flow, Workflow, model::failure::class};

/// Something to be reminded of.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reminder {
    /// Of what.
    what: String,
    /// How long before the first reminder, and between two.
    #[serde(default = "hour")]
    seconds: u64,
    /// How often at most.
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
    /// What the signal `answer` said.
    type Output = Value;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<Value, Failure> {
        let Reminder { what, seconds, times } = &self;
        flow.sleep(Duration::from_secs(*seconds)).await;
        for time in 1..=*times {
            let remind = || async move {
                tracing::info!(%what, time, "reminder");
                Ok::<_, Failure>(())
            };
            flow.step("remind", remind).key(time).await?;
            flow.context().set("reminded", time)?;
            let answer = flow.signal("answer").key(time).timeout(Duration::from_secs(*seconds));
            match answer.await {
                Err(failure) if failure.class == class::TIMEOUT => {}
                said => return said,
            }
        }
        Err(Failure::stop(format!("{what} is not answered after {times} reminders")).class("unanswered"))
    }
}
