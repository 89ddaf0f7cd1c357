//! Runs the jobs of a lab, and sets its clock forward when all of them wait.

use std::{sync::atomic::Ordering, time::Duration};

use windlass_env::Env;
use windlass_model::Time;
use windlass_store::{Backlog, Summary};

use super::{
    lab::Lab,
    store::{expect_store, has_fired},
    timeouts::first_preventable,
};

/// How long a lab waits for the next commit, in real time, before it panics. Long enough for slow steps on a loaded machine.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// How far a lab may set its clock forward.
#[derive(Clone, Copy)]
enum ClockLimit {
    /// To any timer.
    None,
    /// At most to this time.
    At(Time),
    /// To any timer before the first timeout that a signal could still prevent.
    PreventableTimeout,
}

impl Lab {
    /// Runs until every job has ended or waits for somebody to send a signal. When all jobs wait, sets the clock forward to the
    /// next timer (a sleep, a retry, the tick of a schedule) or token of a rate limit.
    ///
    /// It never sets the clock to a timeout that a signal could still prevent, and returns the time of that timeout: that of a
    /// wait for a signal, of a sleep beside one, of a parent that waits for such a job. Send the signal and run again, or let the
    /// timeout pass with [`Lab::advance`] or [`Lab::run_past_timeouts`]:
    ///
    /// ```
    /// use windlass::{prelude::*, testing::Lab};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Approval;
    ///
    /// impl Workflow for Approval {
    ///     const KIND: &'static str = "approval";
    ///     type Output = String;
    ///     type Error = Failure;
    ///
    ///     async fn run(self, flow: Flow) -> Result<String, Failure> {
    ///         flow.sleep(days(1)).await;
    ///         flow.signal("approved_by").timeout(days(14)).await
    ///     }
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() {
    /// let lab = Lab::new(|engine| engine.workflow::<Approval>()).await;
    /// let (approved, forgotten) = (lab.submit(Approval).await, lab.submit(Approval).await);
    /// let timeout = lab.run().await;
    /// assert_eq!(timeout, Some(lab.now() + days(14)));
    /// lab.signal(approved, "approved_by", "Ada").await;
    /// lab.run().await;
    /// assert_eq!(lab.result(approved).await.unwrap(), "Ada");
    /// lab.run_past_timeouts().await;
    /// assert!(lab.result(forgotten).await.is_err());
    /// # }
    /// ```
    ///
    /// With a schedule or a repeat that has no end it does not return: use [`Lab::advance`].
    pub async fn run(&self) -> Option<Time> {
        self.work(ClockLimit::PreventableTimeout).await
    }

    /// Runs as [`Lab::run`] does, and lets timeouts pass: nobody sends a signal any more.
    pub async fn run_past_timeouts(&self) {
        self.work(ClockLimit::None).await;
    }

    /// Runs until every job has ended or waits for a signal, a child or a time. Does not move the clock: sleeps, delays of retries
    /// and timeouts do not end.
    pub async fn run_until_waiting(&self) {
        self.work(ClockLimit::At(self.now())).await;
    }

    /// Runs until this much time of the lab has passed. Timeouts within that time pass too.
    pub async fn advance(&self, span: Duration) {
        let until = self.now() + span;
        self.work(ClockLimit::At(until)).await;
        self.shared.set(until);
        self.work(ClockLimit::At(until)).await;
    }

    /// Waits while the worker runs, and sets the clock forward within the limit when all jobs wait. Returns the timeout that it did
    /// not pass.
    async fn work(&self, limit: ClockLimit) -> Option<Time> {
        let real = Env::real();
        let mut last = (None, real.instant());
        loop {
            if self.shared.is_dead.swap(false, Ordering::SeqCst) {
                self.restart().await;
            }
            let changed = self.shared.changed.notified();
            let calls = self.shared.calls().await;
            let backlog = expect_store(self.store.inspect().backlog(1_000).await, &self.url);
            let timers = expect_store(self.store.fire_timers(Some(self.now()), 1_000).await, &self.url);
            if has_fired(&timers) {
                self.shared.forget_empty_claims();
            }
            let running: u64 = backlog.iter().map(|queue| queue.running).sum();
            let refills = self.refills(&backlog).await;
            if let (0, false, Some(refills)) = (running, has_fired(&timers), refills) {
                let timer = timers.next_at.into_iter().chain(refills).min();
                let (next, timeout) = self.within(limit, timer).await;
                // If the worker made a call meanwhile, the reads above are of different times.
                if self.shared.set_if_unchanged(calls, next).await && next.is_none() {
                    return timeout;
                }
                continue;
            }
            if running == 0 {
                self.engine().await.poke();
            }
            let progress = Some((self.shared.commits.load(Ordering::SeqCst), self.now()));
            if last.0 != progress {
                last = (progress, real.instant());
            }
            let progress = async {
                tokio::select! {
                    () = changed => {}
                    () = self.shared.died.notified() => {}
                }
            };
            if real.timeout_at(last.1 + STALL_LIMIT, progress).await.is_err() {
                panic!("nothing was committed in the lab for {STALL_LIMIT:?}: {backlog:?}");
            }
        }
    }

    /// Returns the timer, if the clock may be set to it, or else the timeout that is not to be passed.
    async fn within(&self, limit: ClockLimit, timer: Option<Time>) -> (Option<Time>, Option<Time>) {
        let Some(at) = timer else { return (None, None) };
        match limit {
            ClockLimit::None => (timer, None),
            ClockLimit::At(until) => (timer.filter(|at| *at <= until), None),
            ClockLimit::PreventableTimeout => {
                let engine = self.engine().await;
                let is_workflow = |job: &Summary| engine.is_workflow(&job.kind, job.version);
                let first = first_preventable(&*self.store, &self.shared, is_workflow).await;
                match expect_store(first, &self.url) {
                    Some(timeout) if timeout <= at => (None, Some(timeout)),
                    _ => (timer, None),
                }
            }
        }
    }

    /// When rate limits have tokens for the ready jobs; `None` if some job waits for nothing.
    async fn refills(&self, backlog: &[Backlog]) -> Option<Vec<Time>> {
        let queues = expect_store(self.store.inspect().queues().await, &self.url);
        // Jobs of a paused queue wait for someone outside.
        let is_paused = |name: &str| queues.iter().any(|queue| queue.name == name && queue.paused.is_some());
        let ready = backlog.iter().filter(|queue| queue.ready > 0 && !is_paused(&queue.queue));
        ready.map(|queue| self.shared.refill_at(&queue.queue)).collect()
    }
}
