//! Every order in which signals, the wait for them, its timeout and claims may come: a job is never left parked with what
//! it waits for, is claimed by one at a time, and is shown each signal once.
//!
//! Verbs are atomic, so the orders of calls are all interleavings there are.

use windlass_model::{ClaimedJob, CommitOutcome, State, WorkerId};

use super::kit::*;
use crate::SignalOutcome;

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// The signal that is waited for.
    First,
    /// The same once more, as if its answer had been lost.
    Duplicate,
    /// Another of its name.
    Second,
    /// The commit that parks the job.
    Park,
    /// The same once more, as if its answer had been lost.
    ParkAgain,
    /// The timeout of the wait.
    Timeout,
    /// A worker that takes what is ready, and waits for the next.
    Take,
    /// The worker of the job is declared dead, if it has it still.
    Reap,
}

use Call::*;

/// All orders of some calls.
fn orders(calls: &[Call]) -> Vec<Vec<Call>> {
    if calls.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (place, first) in calls.iter().enumerate() {
        let rest: Vec<Call> = [&calls[..place], &calls[place + 1..]].concat();
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

/// One job and what became of it so far.
struct Subject<'a> {
    store: &'a Handle,
    n: u32,
    holder: WorkerId,
    other: WorkerId,
    first: ClaimedJob,
    /// The number of the other worker's last claim.
    number: i64,
    delivered: Vec<String>,
    shown: Vec<String>,
}

impl Subject<'_> {
    async fn call(&mut self, call: Call) {
        let store = self.store;
        match call {
            First | Duplicate => self.signal("first").await,
            Second => self.signal("second").await,
            Park | ParkAgain => {
                let park = change(self.holder, &self.first, wait_for_signal("go", Some(secs(10))));
                let verdict = commit(store, 5, park).await;
                assert!(matches!(verdict, CommitOutcome::Committed | CommitOutcome::Fenced), "{verdict:?}");
            }
            Timeout => _ = fire_timers(store, 20, 99).await,
            Take => _ = self.take().await,
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

    /// Takes what is ready, has it consume what it is shown, and parks it again. Answers whether there was anything.
    async fn take(&mut self) -> bool {
        self.number += 2;
        let mut taken = claim(self.store, at(30), &claim_request(self.other, self.number, 9)).await;
        taken.extend(claim(self.store, at(30), &solo_claim_request(self.other, self.number + 1)).await);
        assert!(taken.len() <= 1, "it is claimable once");
        for job in &taken {
            self.shown.extend(texts(&selected_signals(job)));
            let go = with_step(change(self.other, job, wait_for_signal("go", None)), consume(job));
            assert_eq!(commit(self.store, 31, go).await, CommitOutcome::Committed);
        }
        !taken.is_empty()
    }
}

async fn happens(store: &Handle, n: u32, workers: (WorkerId, WorkerId), order: &[Call]) {
    submit(store, &[job(n)]).await;
    let (holder, other) = workers;
    let first = claim_one(store, 0, holder, i64::from(n)).await;
    let number = i64::from(n) * 100;
    let (delivered, shown) = Default::default();
    let mut subject = Subject { store, n, holder, other, first, number, delivered, shown };
    for call in order {
        subject.call(*call).await;
    }
    assert_eq!(store.repair(at(32)).await.expect("sweep"), 0, "{order:?}: nothing was left behind");
    let mut turns = 0;
    while subject.take().await {
        turns += 1;
        assert!(turns < 9, "{order:?}: it is woken for nothing");
    }
    assert_eq!(subject.shown, subject.delivered, "{order:?}: each once, in the order they came");
    let seen = view(store, id(n)).await;
    assert_eq!(seen.summary.state, State::Waiting, "{order:?}");
    assert!(inbox(store, n).await.is_empty(), "{order:?}");
    assert_eq!(act_on_job(store, 40, n, cancel(0)).await, crate::ControlOutcome::Done);
    assert_eq!(fire_timers(store, 50, 99).await.next_at, None, "{order:?}: no timer is left behind");
}

/// Every order of the first signal and the wait with each choice of the others.
async fn every_order(store: &Handle, others: &[Call]) {
    let mut n = 0;
    let other = worker(store, 0).await;
    for choice in 0..1u32 << others.len() {
        let chosen = others.iter().enumerate().filter(|(bit, _)| choice & (1 << bit) != 0);
        let calls: Vec<Call> = [First, Park].into_iter().chain(chosen.map(|(_, call)| *call)).collect();
        for order in orders(&calls) {
            n += 1;
            let holder = worker(store, i64::from(n)).await;
            happens(store, n, (holder, other), &order).await;
        }
    }
}

pub async fn every_order_of_signals_a_wait_and_its_timeout(store: Handle) {
    every_order(&store, &[Second, Duplicate, Timeout]).await;
}

pub async fn every_order_with_a_claim_in_between(store: Handle) {
    every_order(&store, &[Second, Timeout, Take]).await;
}

pub async fn every_order_of_what_is_sent_twice(store: Handle) {
    every_order(&store, &[Duplicate, ParkAgain, Take]).await;
}

pub async fn every_order_with_the_death_of_the_worker(store: Handle) {
    every_order(&store, &[Second, Reap, Take]).await;
}
