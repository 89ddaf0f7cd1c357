//! Asking people: `{"Ask": {"what": "deploy 17", "seconds": 3600}}` waits for the signal `approve` or `reject`.
//!
//! A script that ends in `windlass submit approval … --wait && deploy` goes on when somebody has said yes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::{Failure, Machine, Next, StepCx, any, signal};

/// A question that is asked, then answered.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Approval {
    Ask {
        /// What is to be approved.
        what: String,
        /// How long the answer may take; as long as it likes if it is left out.
        #[serde(default)]
        seconds: Option<u64>,
    },
    Asked {
        what: String,
    },
}

impl Machine for Approval {
    const KIND: &'static str = "approval";
    /// What the signal `approve` said.
    type Output = Value;
    type Error = Failure;

    async fn step(self, cx: &StepCx) -> Result<Next<Approval>, Failure> {
        match self {
            Approval::Ask { what, seconds } => {
                let asked = Next::wait(Approval::Asked { what }, any([signal("approve"), signal("reject")]));
                Ok(match seconds {
                    Some(seconds) => asked.timeout(Duration::from_secs(seconds)),
                    None => asked,
                })
            }
            Approval::Asked { what } => {
                if let Some(said) = cx.signal("approve")? {
                    return Ok(Next::done(said));
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
