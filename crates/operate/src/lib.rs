//! What people see and do, as typed data: no HTTP, no terminal, no SQL.
//!
//! Everything starts from an [`Operator`]. To see: [`views`] list jobs, queues, branches and schedules, [`why`] explains why a job is not
//! progressing, [`Item`]s are the children of branches, [`diagram`] and [`graph`] draw what machines and workflows did, [`doctor`] checks the installation. To act:
//! [`Control`] changes one job, queue, limit or schedule; [`Bulk`] does so to every job that matches a filter, [`Redrive`] retries the
//! unsuccessful children of branches, [`Migrate`] moves machines to another version, [`Fork`] starts a job from part of another's
//! journal. [`Check`] replays open workflows against this build.
//!
//! Everything that changes something is recorded in the audit log, with its author.

mod acted;
pub mod alerts;
mod awaited;
mod budget;
mod bulk;
mod check;
mod control;
pub mod diagram;
pub mod doctor;
mod find;
mod fork;
pub mod graph;
mod items;
mod migrate;
mod names;
pub mod operation;
mod operator;
#[cfg(feature = "users")]
mod passwords;
mod prune;
mod redrive;
pub mod text;
mod tokens;
mod unserved;
#[cfg(feature = "users")]
mod users;
pub mod views;
mod visible;
pub mod why;

pub use acted::Acted;
pub use bulk::{Bulk, BulkProgress, Preview, describe};
pub use check::{Broken, CallChange, ChangedCall, Check, Checked};
pub use control::{Control, GRACE};
pub use fork::{Fork, ForkPoint, ForkProgress, Forked};
pub use items::{Item, Items};
pub use migrate::{Migrate, MigrateProgress};
pub use names::Found;
pub use operator::Operator;
pub use prune::PruneProgress;
pub use redrive::{Redrive, RedriveProgress, SkipReason, SkippedBranch};
pub use tokens::{CreatedToken, TokenRefusal, TokenRequest};
pub use unserved::UnservedQueue;
#[cfg(feature = "users")]
pub use users::{LoggedIn, LoginRefusal, SESSION_IDLE, SESSION_MAX_AGE};
pub use why::{AwaitedChild, Cause, Why};
pub use windlass_store::{AuditFilter, ControlOutcome, Filter, JobAction, Refusal};
