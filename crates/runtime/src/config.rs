//! Settings of a worker and of its pools.

use std::time::Duration;

use windlass_model::{State, crash};

/// Settings of a worker.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of this worker that people see.
    pub name: String,
    /// How long the worker may go without renewing before other workers take its jobs.
    ///
    /// Fifteen seconds by default: two renewals may fail before a third is late, and the jobs of a dead worker wait no
    /// longer than this plus one renewal interval.
    pub lease: Duration,
    /// How often the worker renews its lease and checks the leases of others.
    pub renew_every: Duration,
    /// How long a stopping worker waits for running attempts.
    pub drain: Duration,
    /// After how many deaths of a worker that ran it alone a job fails as `poison`.
    pub max_crashes: u16,
    /// How often the worker checks idle queues, timers and branches without having been notified of a change.
    pub check_interval: Duration,
    /// How many outcomes may wait for their commit before slots stop starting new attempts.
    ///
    /// Five thousand by default: seconds of a slow database, and little memory during an outage.
    pub max_uncommitted: usize,
    /// How long ended jobs are kept.
    pub retention: Retention,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: format!("{}:{}", host_name(), std::process::id()),
            lease: Duration::from_secs(15),
            renew_every: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            max_crashes: crash::DEFAULT_MAX_CRASHES,
            check_interval: Duration::from_secs(120),
            max_uncommitted: 5_000,
            retention: Retention::default(),
        }
    }
}

impl Config {
    /// Returns what is wrong with these settings.
    pub(crate) fn check(&self) -> Result<(), String> {
        let year = Duration::from_secs(365 * 86_400);
        if self.renew_every < Duration::from_millis(10) || self.renew_every * 2 > self.lease {
            return Err(format!(
                "renewing every {:?} does not keep a lease of {:?}; renew at least twice per lease, and at most 100 times a \
                 second",
                self.renew_every, self.lease
            ));
        }
        if self.lease > year || self.drain > year {
            return Err("the lease or the drain time is longer than a year; choose a shorter one".into());
        }
        if self.check_interval < Duration::from_millis(100) || self.check_interval > year {
            return Err(format!(
                "a check interval of {:?} is out of range; use 100 ms to a year",
                self.check_interval
            ));
        }
        if self.max_uncommitted == 0 {
            return Err("if no outcome may wait for its commit, no attempt can start; set max_uncommitted to 1 or more".into());
        }
        if self.name.len() > 256 || self.name.contains('\0') {
            return Err("the worker's name is longer than 256 bytes or contains NUL; choose another".into());
        }
        Ok(())
    }
}

fn host_name() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    from_kernel
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "host".into())
}

/// How long ended jobs, by the state they ended in, and sums of what ended are kept; `None` keeps them for ever.
///
/// A job's key is free again once the job is pruned. A job that its parent still needs, or that still holds its unique
/// name, is kept longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Jobs that are done.
    pub done: Option<Duration>,
    /// Jobs that failed.
    pub failed: Option<Duration>,
    /// Jobs that were cancelled.
    pub cancelled: Option<Duration>,
    /// The sums of what ended per hour, and of how long waits for signals took, and the records of operations. Sums per minute are kept for
    /// two days.
    pub throughput: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Retention {
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        // A month covers monthly accounts; failed jobs, which someone may want to retry, are kept for a quarter.
        Retention { done: days(30), failed: days(90), cancelled: days(30), throughput: days(60) }
    }
}

impl Retention {
    /// Keeps everything.
    pub const FOREVER: Retention = Retention { done: None, failed: None, cancelled: None, throughput: None };

    /// The states that are pruned, each with the time that its jobs are kept.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (State, Duration)> {
        let all =
            [(State::Done, self.done), (State::Failed, self.failed), (State::Cancelled, self.cancelled)];
        all.into_iter().filter_map(|(state, kept)| Some((state, kept?)))
    }
}

/// Settings of one queue's pool in this worker.
///
/// ```
/// # use windlass_runtime::Pool;
/// // Eight attempts at a time; jobs that take minutes are not claimed ahead.
/// let videos = Pool::slots(8).prefetch(0);
/// assert_eq!((videos.slots, videos.prefetch), (8, 0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// How many attempts run at once.
    pub slots: usize,
    /// The most claimed jobs that may wait for a slot. The pool keeps only as many as it finishes in 50 ms, so that slow
    /// jobs are not hoarded while other workers are idle.
    pub prefetch: usize,
    /// The least number of free places for which a busy pool makes a claim; an idle pool claims for any number.
    pub min_demand: usize,
    /// How soon the gate of a queue that was just active is polled again.
    pub poll: Duration,
    /// The longest interval between two polls of an idle queue's gate.
    pub max_poll: Duration,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            slots: 64,
            prefetch: 2_000,
            min_demand: 1,
            poll: Duration::from_millis(100),
            max_poll: Duration::from_millis(1_500),
        }
    }
}

impl Pool {
    /// A pool with this number of slots and defaults for the rest.
    pub fn slots(slots: usize) -> Pool {
        Pool { slots: slots.max(1), ..Pool::default() }
    }

    /// Sets the most claimed jobs that may wait for a slot.
    pub fn prefetch(self, prefetch: usize) -> Pool {
        Pool { prefetch, ..self }
    }

    /// Sets the least number of free places for which a busy pool makes a claim.
    pub fn min_demand(self, min_demand: usize) -> Pool {
        Pool { min_demand: min_demand.max(1), ..self }
    }

    /// Sets the shortest and the longest interval between two polls of the queue's gate.
    pub fn poll(self, poll: Duration, max_poll: Duration) -> Pool {
        Pool { poll, max_poll: max_poll.max(poll), ..self }
    }

    /// Returns what is wrong with these settings.
    pub(crate) fn check(&self, queue: &str) -> Result<(), String> {
        if self.slots == 0 || self.slots > 100_000 {
            return Err(format!("queue {queue:?} has {} slots; use 1 to 100,000", self.slots));
        }
        if self.poll < Duration::from_millis(1) || self.max_poll < self.poll {
            return Err(format!(
                "queue {queue:?} is polled every {:?} to {:?}; use 1 ms or more, the shorter interval first",
                self.poll, self.max_poll
            ));
        }
        Ok(())
    }
}
