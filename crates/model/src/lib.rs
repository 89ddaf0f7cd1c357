//! What durable work is: the pure rules of Windlass.
//!
//! Nothing here waits, reads a clock, draws a random number or touches a disk. Whatever a rule needs of the
//! outside world comes in as an argument, so every rule can be tested by calling it, and the stores, the
//! runtime and the tests cannot disagree about what is legal.
//!
//! In reading order:
//! - [`state`]: the states of a job and the one table of legal moves between them
//! - [`id`]: how jobs, workers, claims, epochs and revisions are named
//! - [`job`]: what is submitted, what a worker is handed, what people see
//! - [`change`]: what an attempt asks to be written, and what the store answers
//! - [`journal`]: what a workflow has done so far
//! - [`branch`]: the sets of children that a job opens, fills, seals and merges
//! - [`merge`]: what a parent waits for, and when it has waited in vain
//! - [`poll`]: when a branch is looked at, and whether lost children are to be looked for
//! - [`wait`]: what a parked job waits for, and which signals it is shown
//! - [`failure`]: how an attempt goes wrong and why a job has failed
//! - [`retry`]: whether, and when, a failed attempt is tried again
//! - [`rank`]: the order in which ready jobs are claimed
//! - [`unique`], [`serial`], [`rate`]: what keeps a job out, or back
//! - [`crash`]: what becomes of a job whose worker died under it
//! - [`calendar`]: when the ticks of a schedule are, and what becomes of missed ones
//! - [`schedule`]: what is submitted by the calendar
//! - [`limits`]: how large things may be and which names are taken
//! - [`trace`]: the trace that a job is part of
//! - [`time`]: moments and spans

pub mod branch;
pub mod calendar;
pub mod change;
pub mod crash;
pub mod failure;
pub mod id;
pub mod job;
pub mod journal;
mod limit_settings;
pub mod limits;
pub mod merge;
pub mod poll;
pub mod rank;
pub mod rate;
pub mod retry;
pub mod schedule;
pub mod serial;
pub mod state;
pub mod time;
pub mod trace;
pub mod unique;
pub mod wait;

pub use branch::{BranchMember, BranchNo, BranchPosition, BranchTally, BranchUpdate, BranchWatch};
pub use calendar::Calendar;
pub use change::{Change, FirstAttempt, Outcome, Step, Verdict};
pub use failure::{Failure, Reason};
pub use id::{ClaimNo, Epoch, JobId, Rev, WorkerId};
pub use job::{ClaimedJob, JobClaim, KindVersion, NewJob, Payload, Settings, SubmitOutcome, When};
pub use journal::{JournalEntry, Unwind};
pub use limits::{Invalid, Limits};
pub use merge::Merge;
pub use poll::BranchPoll;
pub use rate::{RateCharge, RateLimit};
pub use retry::Retry;
pub use schedule::Schedule;
pub use serial::Serial;
pub use state::{Event, State};
pub use time::Time;
pub use unique::{Conflict, States, Unique};
pub use wait::{NewSignal, Signal, UnreadableSignal, Wait, WaitCondition};
