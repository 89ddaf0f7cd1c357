//! `approval`, a machine: `{"Ask": {"what": "deploy 17", "seconds": 3600}}` waits for the signal `approve` or `reject`.
//!
//! `windlass submit approval … --wait && deploy` deploys after somebody has approved.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::{Failure, Machine, MachineCx, Next, WaitFor};

/// A request for an approval.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Approval {
    Ask {
        /// What to approve.
        what: String,
        /// How long to wait for the answer; without a limit by default.
        #[serde(default)]
        seconds: Option<u64>,
    },
    Asked {
        what: String,
    },
}

impl Machine for Approval {
    const KIND: &'static str = "approval";
    /// The payload of the signal `approve`.
    type Output = Value;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Approval>, Failure> {
        match self {
            Approval::Ask { what, seconds } => {
                let next = Next::wait(Approval::Asked { what }, WaitFor::any(["approve", "reject"]));
                Ok(match seconds {
                    Some(seconds) => next.timeout(Duration::from_secs(seconds)),
                    None => next,
                })
            }
            Approval::Asked { what } => {
                if let Some(payload) = cx.signal("approve")? {
                    return Ok(Next::done(payload));
                }
                let failure = match cx.signal::<Value>("reject")? {
                    Some(Value::Null) => Failure::stop(format!("{what} was rejected")).class("rejected"),
                    Some(why) => Failure::stop(format!("{what} was rejected: {why}")).class("rejected"),
                    None => Failure::stop(format!("nobody approved {what} in time")).class("unanswered"),
                };
                Ok(Next::fail(failure))
            }
        }
    }
}
