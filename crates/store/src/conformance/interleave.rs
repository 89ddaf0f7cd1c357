//! Every order of signals, the wait for them, its timeout and claims: a job never stays parked after its wait is over, is
//! claimed by one worker at a time, and gets each signal once.
//!
//! Calls are atomic, so their orders are all the interleavings that exist.

use windlass_model::{ClaimedJob, CommitOutcome, State, WorkerId};

use super::kit::*;
use crate::SignalOutcome;

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// The signal that is waited for.
    First,
    /// The same signal again, as if the reply had been lost.
    Duplicate,
    /// Another signal of the same name.
    Second,
    /// The commit that parks the job.
    Park,
    /// The same commit again, as if the reply had been lost.
    ParkAgain,
    /// The timeout of the wait.
    Timeout,
    /// A second worker claims the job if it is ready, consumes its signals and parks it again.
    Claim,
    /// The first worker is declared dead.
    Reap,
}

use Call::*;

/// All orders of these calls.
fn orders(calls: &[Call]) -> Vec<Vec<Call>> {
    if calls.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in calls.iter().enumerate() {
        let rest: Vec<Call> = [&calls[..index], &calls[index + 1..]].concat();
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

/// One job, and the signals it was sent and given so far.
struct Subject<'a> {
    store: &'a Handle,
    n: u32,
    holder: WorkerId,
    other: WorkerId,
    first: ClaimedJob,
    /// The number of the second worker's last claim.
    number: i64,
    delivered: Vec<String>,
    consumed: Vec<String>,
}

impl Subject<'_> {
    async fn call(&mut self, call: Call) {
        let store = self.store;
        match call {
            First | Duplicate => self.signal("first").await,
            Second => self.signal("second").await,
            Park | ParkAgain => {
                let park = change(self.holder, &self.first, wait_for_signal("go", Some(secs(10))));
                let outcome = commit(store, 5, park).await;
                assert!(matches!(outcome, CommitOutcome::Committed | CommitOutcome::Fenced), "{outcome:?}");
            }
            Timeout => _ = fire_timers(store, 20, 99).await,
            Claim => _ = self.claim().await,
            Reap => _ = reap(store, 21, self.holder).await,
        }
    }

    async fn signal(&mut self, text: &str) {
        match send(self.store, 6, &[signal(id(self.n), "go", text, text)]).await[..] {
            [SignalOutcome::Delivered { .. }] => self.delivered.push(text.to_owned()),
            [SignalOutcome::Duplicate] => {}
            ref other => panic!("{other:?}"),
        }
    }

    /// Claims the job if it is ready, consumes the signals it is given and parks it again. Returns whether it was ready.
    async fn claim(&mut self) -> bool {
        self.number += 2;
        let mut taken = claim(self.store, at(30), &claim_request(self.other, self.number, 9)).await;
        taken.extend(claim(self.store, at(30), &solo_claim_request(self.other, self.number + 1)).await);
        assert!(taken.len() <= 1, "the job is claimed once");
        for job in &taken {
            self.consumed.extend(texts(&selected_signals(job)));
            let park = with_step(change(self.other, job, wait_for_signal("go", None)), consume(job));
            assert_eq!(commit(self.store, 31, park).await, CommitOutcome::Committed);
        }
        !taken.is_empty()
    }
}

/// Makes the calls in this order on a new job.
async fn run_order(store: &Handle, n: u32, workers: (WorkerId, WorkerId), order: &[Call]) {
    submit(store, &[job(n)]).await;
    let (holder, other) = workers;
    let first = claim_one(store, 0, holder, i64::from(n)).await;
    let number = i64::from(n) * 100;
    let (delivered, consumed) = Default::default();
    let mut subject = Subject { store, n, holder, other, first, number, delivered, consumed };
    for call in order {
        subject.call(*call).await;
    }
    assert_eq!(store.repair(at(32)).await.expect("repair"), 0, "{order:?}: nothing was left to repair");
    let mut claims = 0;
    while subject.claim().await {
        claims += 1;
        assert!(claims < 9, "{order:?}: the job is woken although its wait is not over");
    }
    assert_eq!(subject.consumed, subject.delivered, "{order:?}: each signal once, in order of arrival");
    let seen = view(store, id(n)).await;
    assert_eq!(seen.summary.state, State::Waiting, "{order:?}");
    assert!(inbox(store, n).await.is_empty(), "{order:?}");
    assert_eq!(act_on_job(store, 40, n, cancel(0)).await, crate::ControlOutcome::Done);
    assert_eq!(fire_timers(store, 50, 99).await.next_at, None, "{order:?}: no timer is left");
}

/// Every order of the first signal and the park with every subset of the other calls.
async fn every_order(store: &Handle, others: &[Call]) {
    let mut n = 0;
    let other = worker(store, 0).await;
    for choice in 0..1u32 << others.len() {
        let chosen = others.iter().enumerate().filter(|(bit, _)| choice & (1 << bit) != 0);
        let calls: Vec<Call> = [First, Park].into_iter().chain(chosen.map(|(_, call)| *call)).collect();
        for order in orders(&calls) {
            n += 1;
            let holder = worker(store, i64::from(n)).await;
            run_order(store, n, (holder, other), &order).await;
        }
    }
}

pub async fn signals_a_wait_and_its_timeout_in_every_order(store: Handle) {
    every_order(&store, &[Second, Duplicate, Timeout]).await;
}

pub async fn signals_a_wait_its_timeout_and_a_claim_in_every_order(store: Handle) {
    every_order(&store, &[Second, Timeout, Claim]).await;
}

pub async fn repeated_signals_and_commits_in_every_order(store: Handle) {
    every_order(&store, &[Duplicate, ParkAgain, Claim]).await;
}

pub async fn signals_a_wait_and_the_reaping_of_its_worker_in_every_order(store: Handle) {
    every_order(&store, &[Second, Reap, Claim]).await;
}
