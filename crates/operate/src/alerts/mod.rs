//! Alerts: rules find out what is wrong, and a webhook gets a message when that begins and when it ends.
//!
//! A [`Rule`] has a [`Condition`]. [`Snapshot`] is what is known of a store at one time; [`evaluate()`] finds the subjects for which the
//! condition holds, and [`step()`] decides what becomes of each alert, both without IO. An [`Evaluator`] does that for all rules: it reads,
//! decides and writes, and submits an [`AlertMessage`] in the same transaction that records the change. `windlass serve` calls it every
//! few seconds and runs the jobs that post messages. [`AlertsView`] is what people see.
//!
//! What always holds: an alert is a row of the store and follows its own last revision, so several servers may evaluate the same rules and each
//! message is submitted once. A pass reads a bounded number of rows by a few statements, whatever is wrong.

mod evaluate;
mod evaluator;
mod message;
mod rule;
mod snapshot;
mod state;
mod view;

pub use evaluate::{Finding, evaluate};
pub use evaluator::{Evaluator, PassReport, TargetUrl};
pub use message::{AlertBody, AlertMessage};
pub use rule::{
    CLEAR_FOR, Condition, JobSelection, MAX_RULES, MAX_WITHIN, MIN_WITHIN, RateUnit, Rule, RuleView,
};
pub use snapshot::{EndedOfKind, ObservedBranch, ObservedSchedule, Snapshot};
pub use state::{Announcement, STALE_AFTER, Step, step};
pub use view::{AlertRow, AlertsView};
