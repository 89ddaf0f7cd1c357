//! For stores that are another store with something of their own: tests, measurements.

/// Within `impl Store for …`, hands the verbs that are named over to the field `store`.
#[macro_export]
macro_rules! delegate_store {
    ($($verb:ident)+) => { $($crate::delegate_store!(@$verb);)+ };
    (@enlist) => {
        fn enlist<'a>(&'a self, now: $crate::Now, worker: &'a $crate::NewWorker) -> $crate::Fut<'a, bool> {
            self.store.enlist(now, worker)
        }
    };
    (@submit) => {
        fn submit<'a>(
            &'a self,
            now: $crate::Now,
            jobs: &'a [$crate::model::NewJob],
            born: Option<$crate::Born>,
        ) -> $crate::Fut<'a, Vec<$crate::model::Submitted>> {
            self.store.submit(now, jobs, born)
        }
    };
    (@claim) => {
        fn claim<'a>(&'a self, now: $crate::Now, ask: &'a $crate::Ask) -> $crate::Fut<'a, $crate::Haul> {
            self.store.claim(now, ask)
        }
    };
    (@commit) => {
        fn commit<'a>(
            &'a self,
            now: $crate::Now,
            changes: &'a [$crate::model::Change],
        ) -> $crate::Fut<'a, Vec<$crate::model::Verdict>> {
            self.store.commit(now, changes)
        }
    };
    (@transact) => {
        fn transact<'a>(
            &'a self,
            now: $crate::Now,
            work: $crate::Work<'a>,
        ) -> $crate::Fut<'a, Option<$crate::model::Verdict>> {
            self.store.transact(now, work)
        }
    };
    (@signal) => {
        fn signal<'a>(
            &'a self,
            now: $crate::Now,
            signals: &'a [$crate::model::NewSignal],
        ) -> $crate::Fut<'a, Vec<$crate::Signalled>> {
            self.store.signal(now, signals)
        }
    };
    (@renew) => {
        fn renew<'a>(&'a self, now: $crate::Now, beat: &'a $crate::Beat) -> $crate::Fut<'a, $crate::Renewal> {
            self.store.renew(now, beat)
        }
    };
    (@reap) => {
        fn reap<'a>(&'a self, now: $crate::Now, sweep: &'a $crate::Sweep) -> $crate::Fut<'a, $crate::Reaped> {
            self.store.reap(now, sweep)
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
    (@disown) => {
        fn disown<'a>(
            &'a self,
            now: $crate::Now,
            worker: $crate::model::WorkerId,
            numbers: &'a [$crate::model::ClaimNo],
        ) -> $crate::Fut<'a, usize> {
            self.store.disown(now, worker, numbers)
        }
    };
    (@retire) => {
        fn retire<'a>(&'a self, now: $crate::Now, worker: $crate::model::WorkerId) -> $crate::Fut<'a, usize> {
            self.store.retire(now, worker)
        }
    };
    (@due) => {
        fn due(&self, now: $crate::Now, limit: usize) -> $crate::Fut<'_, $crate::Due> {
            self.store.due(now, limit)
        }
    };
    (@orders) => {
        fn orders(&self, worker: $crate::model::WorkerId) -> $crate::Fut<'_, Vec<$crate::Order>> {
            self.store.orders(worker)
        }
    };
    (@sweep) => {
        fn sweep(&self, now: $crate::Now) -> $crate::Fut<'_, usize> {
            self.store.sweep(now)
        }
    };
    (@poll) => {
        fn poll(&self, now: $crate::Now, limit: usize) -> $crate::Fut<'_, $crate::Polled> {
            self.store.poll(now, limit)
        }
    };
    (@gate) => {
        fn gate<'a>(&'a self, queues: &'a [String]) -> $crate::Fut<'a, Vec<u64>> {
            self.store.gate(queues)
        }
    };
    (@ended) => {
        fn ended<'a>(
            &'a self,
            ids: &'a [$crate::model::JobId],
        ) -> $crate::Fut<'a, Vec<Option<$crate::Ended>>> {
            self.store.ended(ids)
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

        fn beacon_dir(&self) -> Option<std::path::PathBuf> {
            self.store.beacon_dir()
        }

        fn statements(&self) -> u64 {
            self.store.statements()
        }
    };
}
