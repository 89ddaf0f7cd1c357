//! Settings of a worker and of its pools.

use std::time::Duration;

use windlass_model::{State, crash};

use crate::Env;

/// Settings of a worker.
#[derive(Clone, Debug)]
pub struct Config {
    /// What people know this worker by.
    pub name: String,
    /// How long the worker may go without renewing before others take its jobs.
    ///
    /// Fifteen seconds: two renewals may fail before a third is late, and work that a dead worker held waits no
    /// longer than this and one beat.
    pub lease: Duration,
    /// How often the lease is renewed and others' leases are looked at.
    pub renew_every: Duration,
    /// How long a stopping worker waits for running attempts.
    pub drain: Duration,
    /// How many deaths of a worker that ran it alone make a job fail as poison.
    pub crashes: u16,
    /// How often an idle queue is looked into though nothing said that it changed.
    pub safety: Duration,
    /// How many outcomes may wait to be committed before slots stop starting new work.
    ///
    /// Five thousand: seconds of a slow database, and little enough memory to wait for one that is away.
    pub backlog: usize,
    /// How long ended jobs are kept.
    pub retention: Retention,
    /// The outside world.
    pub env: Env,
}

/// How long ended jobs are kept, by how they ended; `None` is for good.
///
/// A job's key is free again once it is pruned. What a parent has not finished with and what still has its unique name
/// is kept longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Those that are done.
    pub done: Option<Duration>,
    /// Those that failed.
    pub failed: Option<Duration>,
    /// Those that were cancelled.
    pub cancelled: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Retention {
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        // Long enough for last month's accounts; failures, which someone may want to retry, for a quarter.
        Retention { done: days(30), failed: days(90), cancelled: days(30) }
    }
}

impl Retention {
    /// Keeps everything.
    pub const FOREVER: Retention = Retention { done: None, failed: None, cancelled: None };

    /// The states with the time they are kept.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (State, Duration)> {
        let all =
            [(State::Done, self.done), (State::Failed, self.failed), (State::Cancelled, self.cancelled)];
        all.into_iter().filter_map(|(state, kept)| Some((state, kept?)))
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: format!("{}:{}", host_name(), std::process::id()),
            lease: Duration::from_secs(15),
            renew_every: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            crashes: crash::DEFAULT_MAX_CRASHES,
            safety: Duration::from_secs(120),
            backlog: 5_000,
            retention: Retention::default(),
            env: Env::default(),
        }
    }
}

impl Config {
    /// Says what cannot work.
    pub(crate) fn check(&self) -> Result<(), String> {
        let long = Duration::from_secs(365 * 86_400);
        if self.renew_every < Duration::from_millis(10) || self.renew_every * 2 > self.lease {
            return Err(format!(
                "a beat of {:?} does not keep a lease of {:?}; renew at least twice per lease, and not more than \
                 100 times a second",
                self.renew_every, self.lease
            ));
        }
        if self.lease > long || self.drain > long {
            return Err(
                "a lease or a drain of more than a year is not waited for; choose a shorter one".into()
            );
        }
        if self.safety < Duration::from_millis(100) || self.safety > long {
            return Err(format!(
                "a safety interval of {:?} is out of range; use 100 ms to a year",
                self.safety
            ));
        }
        if self.backlog == 0 {
            return Err("a backlog of no outcomes lets nothing start; use 1 or more".into());
        }
        if self.name.len() > 256 || self.name.contains('\0') {
            return Err("the worker's name is longer than 256 bytes or contains NUL; choose another".into());
        }
        Ok(())
    }
}

impl Pool {
    /// Says what cannot work.
    pub(crate) fn check(&self, queue: &str) -> Result<(), String> {
        if self.slots == 0 || self.slots > 100_000 {
            return Err(format!("queue {queue:?} has {} slots; use 1 to 100,000", self.slots));
        }
        if self.poll < Duration::from_millis(1) || self.max_poll < self.poll {
            return Err(format!(
                "queue {queue:?} is polled every {:?} to {:?}; use 1 ms or more",
                self.poll, self.max_poll
            ));
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

/// Settings of one queue's pool in this worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// How many attempts run at once.
    pub slots: usize,
    /// How many claimed jobs may wait for a slot, at most. The pool keeps as many as it finishes in 50 ms, so
    /// slow jobs are not hoarded while other workers are idle.
    pub prefetch: usize,
    /// The least number of jobs worth a claim of its own; an idle pool claims whatever there is.
    pub min_demand: usize,
    /// How soon a queue that has just been busy is looked at again.
    pub poll: Duration,
    /// The longest time between two looks at an idle queue.
    pub max_poll: Duration,
}

impl Pool {
    /// A pool with so many slots and everything else as by default.
    pub fn slots(slots: usize) -> Pool {
        Pool { slots: slots.max(1), ..Pool::default() }
    }

    /// The same with another limit on jobs that wait for a slot.
    pub fn prefetch(self, prefetch: usize) -> Pool {
        Pool { prefetch, ..self }
    }

    /// The same with another least claim.
    pub fn min_demand(self, min_demand: usize) -> Pool {
        Pool { min_demand: min_demand.max(1), ..self }
    }

    /// The same with other times between two looks at the queue: the shortest and the longest.
    pub fn poll(self, poll: Duration, max_poll: Duration) -> Pool {
        Pool { poll, max_poll: max_poll.max(poll), ..self }
    }
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
