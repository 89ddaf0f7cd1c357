//! Reads the gates of all queues with one small read, and wakes the pools whose queue has changed.
//!
//! The gates are read before the claims that they guard, so a job that comes in after the read moves its gate again. A
//! gate that cannot be read counts as changed. A database is polled; a server waits for a change on behalf of its workers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use windlass_store::{CANCEL_GATE, TIMER_GATE};

use crate::{core::Core, telemetry::StoreCall};

#[derive(Default)]
pub(crate) struct Gatekeeper {
    /// Whether jobs were claimed since the last poll.
    active: AtomicBool,
    activity: Notify,
}

impl Gatekeeper {
    /// Notes that jobs were claimed, so that the gates are polled more often.
    pub(crate) fn note_activity(&self) {
        if !self.active.swap(true, Ordering::Relaxed) {
            self.activity.notify_one();
        }
    }
}

/// The pause after the first of several changes that follow each other closely, if the store waits for them; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// A store that answers sooner has not waited, and is polled.
const SHORT: Duration = Duration::from_millis(100);

/// When the gates are read again.
struct Pace {
    /// The pause between two polls of a queue that was just active.
    shortest: Duration,
    /// The longest pause.
    longest: Duration,
    pause: Duration,
}

/// What a read of the gates has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Changed,
    Unchanged,
    Failed,
}

impl Pace {
    /// After a read of a store that is polled; `active` says whether jobs were claimed since the one before.
    fn after_poll(&mut self, read: Read, active: bool) {
        // Gates that cannot be read are not polled more often for it.
        let moved = read == Read::Changed || active;
        self.pause = if moved { self.shortest } else { (self.pause * 2).min(self.longest) };
    }

    /// After a read that took this long because the store waited for a change. The next one follows at once, unless changes come one
    /// after the other, or the store does not wait.
    fn after_wait(&mut self, read: Read, took: Duration) {
        let short = self.shortest.min(SHORT);
        self.pause = match read {
            Read::Changed if took < short => (self.pause * 2).clamp(FIRST_PAUSE.min(short), short),
            Read::Unchanged if took < short => (self.pause * 2).clamp(self.shortest, self.longest),
            Read::Changed | Read::Unchanged => Duration::ZERO,
            Read::Failed => (self.pause * 2).clamp(self.shortest, self.longest),
        };
    }
}

/// Runs until the worker has stopped.
pub(crate) async fn run(core: Arc<Core>) {
    let mut gates: Vec<String> = core.pools.iter().map(|pool| pool.queue.clone()).collect();
    gates.push(TIMER_GATE.to_owned());
    gates.push(CANCEL_GATE.to_owned());
    let shortest = core.pools.iter().map(|pool| pool.config.poll).min().unwrap_or(Duration::from_millis(100));
    let longest = core.pools.iter().map(|pool| pool.config.max_poll).min().unwrap_or(Duration::from_secs(2));
    let wait = core.store.gate_wait();
    let mut pace = Pace { shortest, longest, pause: if wait.is_some() { Duration::ZERO } else { shortest } };
    let mut last: Option<Vec<u64>> = None;
    loop {
        tokio::select! {
            () = core.env.sleep(pace.pause) => {}
            () = core.gatekeeper.activity.notified(), if pace.pause > shortest => {
                pace.pause = shortest;
                continue;
            }
            // Not `stopping`: attempts of a draining worker must still get their cancel requests.
            () = core.stopped() => return,
        }
        let began = core.env.instant();
        let waited = wait.filter(|_| last.is_some());
        let read = tokio::select! {
            read = tick(&core, &gates, &mut last, waited) => read,
            () = core.stopped() => return,
        };
        let active = core.gatekeeper.active.swap(false, Ordering::Relaxed);
        match (wait, waited) {
            (None, _) => pace.after_poll(read, active),
            // What is known can be waited for now.
            (Some(_), None) if read != Read::Failed => {}
            (Some(_), _) => pace.after_wait(read, core.env.since(began)),
        }
    }
}

/// One read, which waits for a change for as long as is given: wakes the loops whose gates have moved.
async fn tick(core: &Core, gates: &[String], last: &mut Option<Vec<u64>>, wait: Option<Duration>) -> Read {
    let reading = match (&*last, wait) {
        (Some(known), Some(wait)) => core.store.wait_for_gates(gates, known, wait),
        _ => core.store.gates(gates),
    };
    let now = match reading.await {
        Ok(now) => Some(now),
        Err(error) => {
            core.metrics.count_error(StoreCall::Gate);
            tracing::debug!(%error, "the gates cannot be read; all queues count as changed");
            None
        }
    };
    let has_moved = |index: usize| match (&*last, &now) {
        (Some(last), Some(now)) => last[index] != now[index],
        _ => true,
    };
    for (index, pool) in core.pools.iter().enumerate() {
        if has_moved(index) {
            pool.wake();
        }
    }
    if has_moved(core.pools.len()) {
        core.timekeeper.poke();
        core.branches_changed.notify_one();
    }
    if has_moved(core.pools.len() + 1) {
        core.cancellations.poke();
    }
    let read = match &now {
        None => Read::Failed,
        Some(_) if *last == now => Read::Unchanged,
        Some(_) => Read::Changed,
    };
    *last = now;
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_millis(1_500);

    fn pace() -> Pace {
        Pace { shortest: SHORTEST, longest: LONGEST, pause: Duration::ZERO }
    }

    #[test]
    fn an_idle_worker_of_a_store_that_waits_reads_once_per_wait() {
        let (mut pace, mut passed, mut reads) = (pace(), Duration::ZERO, 0);
        while passed < Duration::from_secs(60) {
            pace.after_wait(Read::Unchanged, Duration::from_secs(20));
            passed += Duration::from_secs(20) + pace.pause;
            reads += 1;
        }
        assert_eq!(reads, 3);
    }

    #[test]
    fn a_change_after_a_while_is_followed_by_no_pause_and_a_stream_of_them_is_polled() {
        let mut pace = pace();
        pace.after_wait(Read::Changed, Duration::from_secs(3));
        assert_eq!(pace.pause, Duration::ZERO);
        let pauses: Vec<u128> = (0..6)
            .map(|_| {
                pace.after_wait(Read::Changed, Duration::from_millis(2));
                pace.pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 100, 100]);
        pace.after_wait(Read::Changed, SHORTEST);
        assert_eq!(pace.pause, Duration::ZERO);
    }

    #[test]
    fn a_store_that_does_not_wait_or_fails_is_polled_less_and_less_often() {
        for read in [Read::Unchanged, Read::Failed] {
            let mut pace = pace();
            let pauses: Vec<u128> = (0..6)
                .map(|_| {
                    pace.after_wait(read, Duration::from_millis(1));
                    pace.pause.as_millis()
                })
                .collect();
            assert_eq!(pauses, [100, 200, 400, 800, 1_500, 1_500]);
        }
        let mut pace = pace();
        pace.after_wait(Read::Failed, Duration::from_secs(20));
        assert_eq!(pace.pause, SHORTEST, "also if the failure took a while");
    }

    #[test]
    fn a_database_is_polled_more_often_while_jobs_come() {
        let mut pace = Pace { pause: SHORTEST, ..pace() };
        let mut after = |read, active| {
            pace.after_poll(read, active);
            pace.pause.as_millis()
        };
        assert_eq!([0; 5].map(|_| after(Read::Unchanged, false)), [200, 400, 800, 1_500, 1_500]);
        assert_eq!(after(Read::Unchanged, true), 100);
        assert_eq!(after(Read::Failed, false), 200);
        assert_eq!(after(Read::Changed, false), 100);
    }
}
