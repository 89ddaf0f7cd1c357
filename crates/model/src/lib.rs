//! The rules of Windlass: what a job is, which moves it can make, and what each move needs.
//!
//! This crate decides; the other crates perform. It has no async code, no IO, no clock and no randomness: a rule receives the time,
//! the random number or the stored row as an argument. So every rule is tested by calling it, and the stores, the runtime and
//! their tests cannot disagree about what is legal.
//!
//! # The journey of a job
//! 1. A program submits a [`NewJob`]. [`Limits::check`] refuses what no store could keep; [`Unique`] names and [`Serial`] keys
//!    decide whether and when it may run. The job is [`State::Scheduled`] or [`State::Ready`].
//! 2. A worker claims ready jobs by [`rank`](rank::rank), within their [`RateLimit`]s, and receives each as a [`ClaimedJob`]
//!    with an [`Epoch`].
//! 3. The attempt runs the job's code. It writes only by committing a [`Change`], which names the epoch of its claim and the
//!    [`Rev`] it follows. The store's [`CommitOutcome`] is `Fenced` if the claim has ended meanwhile.
//! 4. The [`Outcome`] of the change decides what is next: the job is done, failed or cancelled, is retried as its [`Retry`]
//!    policy says, runs its next step, or parks until its [`Wait`] is over. If the worker dies, [`crash`] decides.
//!
//! # Modules, in reading order
//! The job:
//! - [`state`]: the states and the table of legal moves
//! - [`time`]: points in time
//! - [`id`]: job ids, worker ids, claim numbers, epochs and revisions
//! - [`job`]: a job as it is submitted and as it is claimed
//! - [`submit`]: how the store answers a submit
//! - [`change`]: what an attempt commits
//! - [`outcome`]: how an attempt ended, and how the store answers its change
//!
//! Attempts that go wrong:
//! - [`failure`]: errors as they are kept, and the reasons why jobs fail
//! - [`retry`]: whether and when a failed attempt is repeated
//! - [`lease`]: until when a worker may claim
//! - [`crash`]: what happens to a job whose worker died
//! - [`progress`]: what a running attempt reports of itself
//!
//! What people see of all jobs:
//! - [`counts`]: numbers of jobs by state
//! - [`throughput`], [`histogram`]: how many jobs ended in a span of time, and how long they waited and ran
//!
//! Flow control:
//! - [`rank`]: the order in which ready jobs are claimed
//! - [`unique`], [`serial`], [`rate`]: unique names, serial keys and rate limits
//! - [`calendar`], [`schedule`]: when a schedule ticks, and the job it submits at a tick
//!
//! Machines and workflows:
//! - [`wait`]: what a parked job waits for, and which signals a step sees
//! - [`journal`]: the entries from which a workflow is replayed
//! - [`branch`], [`merge`], [`poll`]: branches and the counts of their children, when a merge is over, when a branch is polled
//!
//! Bounds:
//! - [`limits`]: which names and sizes are accepted
//! - [`trace`]: the W3C trace that a job is part of

pub mod change;
pub mod id;
pub mod job;
pub mod outcome;
pub mod state;
pub mod submit;
pub mod time;

pub mod counts;
pub mod crash;
pub mod failure;
pub mod histogram;
pub mod lease;
pub mod progress;
pub mod retry;
pub mod throughput;

pub mod calendar;
pub mod rank;
pub mod rate;
pub mod schedule;
pub mod serial;
pub mod unique;

pub mod branch;
pub mod journal;
pub mod merge;
pub mod poll;
pub mod wait;

pub mod access;
pub mod limits;
pub mod trace;

pub use access::{Permission, Role, Scope};
pub use branch::{BranchCounts, BranchMember, BranchNo, BranchPosition, BranchUpdate, BranchWatch};
pub use calendar::Calendar;
pub use change::{Change, FirstAttempt, StepWrites};
pub use counts::JobCounts;
pub use failure::{Failure, FailureClass, Reason};
pub use histogram::Histogram;
pub use id::{ClaimNo, Epoch, JobId, Rev, WorkerId};
pub use job::{ClaimedJob, JobClaim, KindVersion, NewJob, Payload, Settings, When};
pub use journal::{JournalEntry, Unwind};
pub use lease::{Lease, LeaseState, WorkerStatus};
pub use limits::{Invalid, Limits};
pub use merge::Merge;
pub use outcome::{CommitOutcome, Outcome};
pub use poll::BranchPoll;
pub use progress::{Progress, ProgressReport};
pub use rate::{RateCharge, RateLimit};
pub use retry::Retry;
pub use schedule::Schedule;
pub use serial::Serial;
pub use state::{Event, Location, State};
pub use submit::SubmitOutcome;
pub use throughput::{AttemptTimes, Ended};
pub use time::Time;
pub use unique::{Conflict, States, Unique};
pub use wait::{NewSignal, Signal, UnreadableSignal, Wait, WaitCondition};
