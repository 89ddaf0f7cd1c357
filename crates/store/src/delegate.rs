//! For stores that are another store with something of their own: tests, measurements.

/// Within `impl Store for …`, hands the verbs that are named over to the field `store`.
#[macro_export]
macro_rules! delegate_store {
    ($($verb:ident)+) => { $($crate::delegate_store!(@$verb);)+ };
    (@register_worker) => {
        fn register_worker<'a>(&'a self, now: $crate::Now, worker: &'a $crate::NewWorker) -> $crate::Fut<'a, bool> {
            self.store.register_worker(now, worker)
        }
    };
    (@submit) => {
        fn submit<'a>(
            &'a self,
            now: $crate::Now,
            jobs: &'a [$crate::model::NewJob],
            born: Option<$crate::ClaimOnSubmit>,
        ) -> $crate::Fut<'a, Vec<$crate::model::SubmitOutcome>> {
            self.store.submit(now, jobs, born)
        }
    };
    (@claim) => {
        fn claim<'a>(&'a self, now: $crate::Now, ask: &'a $crate::ClaimRequest) -> $crate::Fut<'a, $crate::ClaimBatch> {
            self.store.claim(now, ask)
        }
    };
    (@commit) => {
        fn commit<'a>(
            &'a self,
            now: $crate::Now,
            changes: &'a [$crate::model::Change],
        ) -> $crate::Fut<'a, Vec<$crate::model::CommitOutcome>> {
            self.store.commit(now, changes)
        }
    };
    (@transact) => {
        fn transact<'a>(
            &'a self,
            now: $crate::Now,
            work: $crate::Work<'a>,
        ) -> $crate::Fut<'a, Option<$crate::model::CommitOutcome>> {
            self.store.transact(now, work)
        }
    };
    (@signal) => {
        fn signal<'a>(
            &'a self,
            now: $crate::Now,
            signals: &'a [$crate::model::NewSignal],
        ) -> $crate::Fut<'a, Vec<$crate::SignalOutcome>> {
            self.store.signal(now, signals)
        }
    };
    (@renew) => {
        fn renew<'a>(&'a self, now: $crate::Now, beat: &'a $crate::RenewRequest) -> $crate::Fut<'a, $crate::Renewal> {
            self.store.renew(now, beat)
        }
    };
    (@reap) => {
        fn reap<'a>(&'a self, now: $crate::Now, repair: &'a $crate::ReapRequest) -> $crate::Fut<'a, $crate::ReapReport> {
            self.store.reap(now, repair)
        }
    };
    (@release) => {
        fn release<'a>(
            &'a self,
            now: $crate::Now,
            jobs: &'a [$crate::model::JobClaim],
        ) -> $crate::Fut<'a, usize> {
            self.store.release(now, jobs)
        }
    };
    (@release_claims) => {
        fn release_claims<'a>(
            &'a self,
            now: $crate::Now,
            worker: $crate::model::WorkerId,
            numbers: &'a [$crate::model::ClaimNo],
        ) -> $crate::Fut<'a, usize> {
            self.store.release_claims(now, worker, numbers)
        }
    };
    (@retire_worker) => {
        fn retire_worker<'a>(&'a self, now: $crate::Now, worker: $crate::model::WorkerId) -> $crate::Fut<'a, usize> {
            self.store.retire_worker(now, worker)
        }
    };
    (@fire_timers) => {
        fn fire_timers(&self, now: $crate::Now, limit: usize) -> $crate::Fut<'_, $crate::TimerReport> {
            self.store.fire_timers(now, limit)
        }
    };
    (@cancel_requests) => {
        fn cancel_requests(&self, worker: $crate::model::WorkerId) -> $crate::Fut<'_, Vec<$crate::CancelRequest>> {
            self.store.cancel_requests(worker)
        }
    };
    (@repair) => {
        fn repair(&self, now: $crate::Now) -> $crate::Fut<'_, usize> {
            self.store.repair(now)
        }
    };
    (@poll_branches) => {
        fn poll_branches(&self, now: $crate::Now, limit: usize) -> $crate::Fut<'_, $crate::PollReport> {
            self.store.poll_branches(now, limit)
        }
    };
    (@gates) => {
        fn gates<'a>(&'a self, queues: &'a [String]) -> $crate::Fut<'a, Vec<u64>> {
            self.store.gates(queues)
        }
    };
    (@job_ends) => {
        fn job_ends<'a>(
            &'a self,
            ids: &'a [$crate::model::JobId],
        ) -> $crate::Fut<'a, Vec<Option<$crate::JobEnd>>> {
            self.store.job_ends(ids)
        }
    };
    (@sibling) => {
        fn sibling(&self) -> $crate::Fut<'_, std::sync::Arc<dyn $crate::Store>> {
            self.store.sibling()
        }
    };
    // What is no verb.
    (@rest) => {
        fn inspect(&self) -> &dyn $crate::Inspect {
            self.store.inspect()
        }

        fn control(&self) -> &dyn $crate::Control {
            self.store.control()
        }

        fn limits(&self) -> &$crate::model::Limits {
            self.store.limits()
        }

        fn liveness_dir(&self) -> Option<std::path::PathBuf> {
            self.store.liveness_dir()
        }

        fn statements(&self) -> u64 {
            self.store.statements()
        }
    };
}
