//! A machine whose worker dies at each of its commits: before the commit reaches the store, and after the store has applied
//! it but before the worker receives the answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use windlass::{Config, MachineCx, prelude::*, store::Error};

use crate::{
    common::{Call, Faults, faulty},
    on_both_stores,
};

on_both_stores!(a_crash_at_any_commit_ends_in_the_same_state);

/// Where a worker dies: from then on no commit returns.
struct Death {
    commits: AtomicUsize,
    /// The number of the commit, from 0.
    at: usize,
    /// Whether that commit is applied.
    applied: bool,
    died: Notify,
}

impl Faults for Death {
    async fn at(&self, call: Call<'_>) -> Result<(), Error> {
        let dies = match call {
            Call::Commit => {
                let number = self.commits.fetch_add(1, Ordering::SeqCst);
                number > self.at || number == self.at && !self.applied
            }
            Call::Committed => self.commits.load(Ordering::SeqCst) > self.at,
            _ => false,
        };
        if dies {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// How often each step ran, by job and step.
static RAN: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Five steps, of which one waits for a signal and one for a child.
#[derive(Serialize, Deserialize)]
enum Five {
    One { sum: u32 },
    Two { sum: u32 },
    Three { sum: u32 },
    Four { sum: u32 },
    Last { sum: u32 },
}

#[derive(Serialize, Deserialize)]
struct Double(u32);

impl Task for Double {
    const KIND: &'static str = "double";
    type Output = u32;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u32, Failure> {
        Ok(self.0 * 2)
    }
}

impl Machine for Five {
    const KIND: &'static str = "five";
    type Output = u32;
    type Error = Failure;

    async fn step(self, cx: &MachineCx) -> Result<Next<Five>, Failure> {
        *RAN.lock().expect("runs").entry(cx.step_id()).or_default() += 1;
        Ok(match self {
            Five::One { sum } => Next::to(Five::Two { sum: sum + 1 }),
            Five::Two { sum } => Next::wait(Five::Three { sum: sum + 10 }, "add"),
            Five::Three { sum } => {
                let added: u32 = cx.signal("add")?.ok_or_else(|| Failure::stop("no signal"))?;
                Next::to(Five::Four { sum: sum + added })
            }
            Five::Four { sum } => Next::children(Five::Last { sum }, [Child::new(Double(sum))]),
            Five::Last { sum } => {
                let children = cx.children::<u32>().await?;
                let doubled = children.into_iter().next().and_then(|child| child.result.ok());
                Next::done(sum + doubled.ok_or_else(|| Failure::stop("no child"))?)
            }
        })
    }
}

async fn a_crash_at_any_commit_ends_in_the_same_state(url: &str) {
    let config = || Config { lease: Duration::from_secs(600), ..Config::default() };
    let mut crashes = 0;
    // Six commits, of which one is the child's; the seventh crash does not happen.
    for dies_at in 0..7 {
        for applied in [false, true] {
            let death =
                Arc::new(Death { commits: AtomicUsize::new(0), at: dies_at, applied, died: Notify::new() });
            let first = faulty(url, &death).await.machine::<Five>().task::<Double>();
            let first = first.config(config()).start().await.expect("started");
            let job = first.submit(Five::One { sum: 0 }).signal("add", 100).await.expect("submitted");
            let id = job.id();
            let ended = tokio::select! {
                () = death.died.notified() => false,
                _ = first.result::<u32>(id) => true,
            };
            assert_eq!(ended, dies_at == 6, "six commits: it dies at commit {dies_at}");
            crashes += usize::from(!ended);
            drop((job, first));

            let second = Engine::builder(url).machine::<Five>().task::<Double>();
            let second = second.config(config()).start().await.expect("started");
            let result: u32 = second.result(id).await.expect("done");
            assert_eq!(result, 333, "dies at {dies_at}, applied: {applied}");
            let steps = second.inspect().transitions(id, None, 99).await.expect("steps");
            let seen: Vec<(i32, &str, &str)> =
                steps.iter().map(|step| (step.rev.0, step.stage.as_str(), step.outcome.as_str())).collect();
            let expected = [
                (1, "One", "next"),
                (2, "Two", "wait"),
                (3, "Three", "next"),
                (4, "Four", "children"),
                (5, "Last", "done"),
            ];
            assert_eq!(seen, expected, "each transition once: dies at {dies_at}, applied: {applied}");
            let children = second.inspect().children(id, None, 9).await.expect("children");
            assert_eq!(children.len(), 1, "one child: dies at {dies_at}, applied: {applied}");
            assert!(second.inspect().inbox(id, 9).await.expect("inbox").is_empty(), "consumed once");
            second.stop().await;
            let ran = RAN.lock().expect("runs");
            let of_job: Vec<u32> =
                ran.iter().filter(|(step, _)| step.starts_with(&id.to_string())).map(|(_, n)| *n).collect();
            assert_eq!(of_job.len(), 5, "attempts at a step have one name: {ran:?}");
            assert!(of_job.iter().sum::<u32>() <= 6, "at most the step that died ran again");
        }
    }
    assert_eq!(crashes, 12);
}
