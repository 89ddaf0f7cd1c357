//! The drain of the row-per-job layouts: one connection claims, the other commits, both at once.

use std::collections::VecDeque;
use std::sync::Mutex;

use anyhow::{Result, ensure};
use tokio::sync::mpsc;
use tokio_postgres::{Client, Statement};

use crate::job::{self, Claimed, Id, WORKER};

use super::schema::{self, Layout, Shape};

/// How a drain goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) claim_batch: usize,
    pub(crate) commit_batch: usize,
    /// One connection that claims and commits by turns, or two.
    pub(crate) connections: usize,
    /// Whether a claim begins at the rank where the last one of the lane ended. The index entries of jobs claimed
    /// before stay in front until a vacuum, and a claim without a floor walks over all of them.
    pub(crate) floor: bool,
}

/// The claiming half of a drain.
pub(crate) struct Claimer<'a> {
    pub(crate) client: &'a Client,
    statement: Statement,
    layout: Layout,
    lanes: Vec<i32>,
    floors: Option<Vec<i64>>,
    limit: i64,
    number: i64,
}

impl<'a> Claimer<'a> {
    pub(crate) async fn new(client: &'a Client, shape: Shape, flow: Flow, lanes: Vec<i32>) -> Result<Self> {
        let statement = client.prepare(&schema::claim(shape)).await?;
        let floors = flow.floor.then(|| vec![i64::MIN; lanes.len()]);
        let limit = flow.claim_batch as i64;
        Ok(Claimer { client, statement, layout: shape.layout, lanes, floors, limit, number: 0 })
    }

    /// Begins to remember where claims end.
    pub(crate) fn use_floor(&mut self) {
        self.floors = Some(vec![i64::MIN; self.lanes.len()]);
    }

    /// Claims the next batch in the order of lane and rank; `finished` are the R3 claims to drop by the way.
    pub(crate) async fn claim(&mut self, finished: &[i64]) -> Result<Vec<Claimed>> {
        self.number += 1;
        let lowest = vec![i64::MIN; self.lanes.len()];
        let floors = self.floors.as_ref().unwrap_or(&lowest);
        let rows = if self.layout == Layout::R3 {
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&self.lanes, &self.limit, &WORKER, floors, &self.number, &finished];
            self.client.query(&self.statement, &parameters).await?
        } else {
            self.client.query(&self.statement, &[&self.lanes, &self.limit, &WORKER, floors]).await?
        };
        let mut jobs: Vec<Claimed> = rows
            .iter()
            .map(|row| Claimed {
                id: row.get(0),
                lane: row.get(1),
                rank: row.get(2),
                epoch: row.get(3),
                rev: row.get(4),
                attempts: row.get(5),
                input: row.get::<_, &[u8]>(6).to_vec(),
            })
            .collect();
        jobs.sort_unstable_by_key(|j| (j.lane, j.rank));
        if let Some(floors) = &mut self.floors {
            for job in &jobs {
                if let Some(place) = self.lanes.iter().position(|lane| *lane == job.lane) {
                    floors[place] = job.rank;
                }
            }
        }
        Ok(jobs)
    }
}

/// Commits one batch; every job must still be held.
async fn commit(client: &Client, statement: &Statement, jobs: &[Claimed]) -> Result<()> {
    let ids: Vec<Id> = jobs.iter().map(|j| j.id).collect();
    let epochs: Vec<i32> = jobs.iter().map(|j| j.epoch).collect();
    let revs: Vec<i32> = jobs.iter().map(|j| j.rev).collect();
    let results: Vec<Vec<u8>> = jobs.iter().map(Claimed::result).collect();
    let changed = client.execute(statement, &[&ids, &epochs, &revs, &results, &job::now()]).await?;
    ensure!(changed == jobs.len() as u64, "{changed} of {} jobs were committed", jobs.len());
    Ok(())
}

/// Which claims have been committed in full: jobs are committed in the order in which they were claimed.
#[derive(Default)]
struct Ledger {
    claimed: u64,
    committed: u64,
    ends: VecDeque<(i64, u64)>,
}

impl Ledger {
    fn claimed(&mut self, number: i64, jobs: usize) {
        self.claimed += jobs as u64;
        self.ends.push_back((number, self.claimed));
    }

    fn committed(&mut self, jobs: usize) {
        self.committed += jobs as u64;
    }

    fn finished(&mut self) -> Vec<i64> {
        let count = self.ends.iter().take_while(|(_, end)| *end <= self.committed).count();
        self.ends.drain(..count).map(|(number, _)| number).collect()
    }
}

/// Claims and commits until no job is ready; returns how many were committed.
pub(crate) async fn drain(
    claim_on: &Client,
    commit_on: &Client,
    shape: Shape,
    flow: Flow,
    lanes: i32,
) -> Result<usize> {
    let mut claimer = Claimer::new(claim_on, shape, flow, (1..=lanes).collect()).await?;
    let commit_on = if flow.connections == 1 { claim_on } else { commit_on };
    let statement = commit_on.prepare(&schema::commit(shape)).await?;
    if flow.connections == 1 {
        return drain_by_turns(&mut claimer, commit_on, &statement, flow).await;
    }

    let ledger = Mutex::new(Ledger::default());
    let lock = || ledger.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (sender, mut receiver) = mpsc::channel::<Vec<Claimed>>(4);
    let claiming = async move {
        loop {
            let finished = lock().finished();
            let jobs = claimer.claim(&finished).await?;
            if jobs.is_empty() {
                return anyhow::Ok(());
            }
            lock().claimed(claimer.number, jobs.len());
            sender.send(jobs).await?;
        }
    };
    let committing = async {
        let (mut total, mut held) = (0, Vec::new());
        while let Some(jobs) = receiver.recv().await {
            held.extend(jobs);
            while held.len() >= flow.commit_batch {
                commit(commit_on, &statement, &held[..flow.commit_batch]).await?;
                held.drain(..flow.commit_batch);
                total += flow.commit_batch;
                lock().committed(flow.commit_batch);
            }
        }
        if !held.is_empty() {
            commit(commit_on, &statement, &held).await?;
        }
        anyhow::Ok(total + held.len())
    };
    let ((), total) = tokio::try_join!(claiming, committing)?;
    Ok(total)
}

/// The drain over one connection.
async fn drain_by_turns(
    claimer: &mut Claimer<'_>,
    commit_on: &Client,
    statement: &Statement,
    flow: Flow,
) -> Result<usize> {
    let (mut total, mut ledger) = (0, Ledger::default());
    loop {
        let jobs = claimer.claim(&ledger.finished()).await?;
        if jobs.is_empty() {
            return Ok(total);
        }
        ledger.claimed(claimer.number, jobs.len());
        for part in jobs.chunks(flow.commit_batch) {
            commit(commit_on, statement, part).await?;
            ledger.committed(part.len());
            total += part.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn a_claim_is_finished_when_all_its_jobs_are_committed() {
        let mut ledger = Ledger::default();
        ledger.claimed(1, 500);
        ledger.claimed(2, 500);
        ledger.committed(400);
        assert!(ledger.finished().is_empty());
        ledger.committed(400);
        assert_eq!(ledger.finished(), [1]);
        ledger.committed(200);
        assert_eq!(ledger.finished(), [2]);
    }
}
