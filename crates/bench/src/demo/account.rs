//! The account: what was planned, what the workers recorded outside the store, and what the store says, job by job.
//!
//! What can be known from outside, and is checked here:
//! - *Lost*: a submitted job that is not in the store, has not ended, has ended otherwise than planned, or whose end was
//!   acknowledged to a worker and is not what the store says now. A result in the store must also have been made: it
//!   names the execution that made it, and that execution must be in the records.
//! - *Committed twice*: an outcome that was accepted more often than planned. Two independent witnesses are asked. The
//!   store counts the outcomes of each job (its revision), and the plan says how many there must be: a death of a worker
//!   adds none, so neither may a re-run. And the records hold every answer a worker got: no two outcomes may have been
//!   acknowledged for the same revision of a job, and no two ends for one job. An answer that died with its worker is in
//!   no record; the store's count has it.
//! - *Fenced*: writes that were refused, from the records; the zombie's must be among them, and none of its late writes
//!   among the accepted, which the first two checks would show.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use futures_util::{StreamExt, TryStreamExt};
use windlass::{
    Engine, JobId, State,
    store::{Filter, Job},
};

use super::{chaos::Happened, plan, record::Records, worker::Made};
use crate::out::thousands;

#[derive(Default)]
pub(super) struct Account {
    submitted: u64,
    done: u64,
    failed: u64,
    lost: u64,
    twice: u64,
    attempts: u64,
    /// How many there would have been if no worker had died.
    planned: u64,
    zombie_writes: u64,
    fenced: u64,
    problems: Vec<String>,
}

/// How many jobs are read back at once.
const READS: usize = 16;

/// Compares plan, records and store.
pub(super) async fn make(
    engine: &Engine,
    queue: &str,
    ids: &[JobId],
    dir: &Path,
    happened: &Happened,
) -> anyhow::Result<Account> {
    let records = Records::read(dir, happened.last_worker)?;
    let read = |id: JobId| async move { Ok::<_, anyhow::Error>((id, engine.inspect().job(id).await?)) };
    let jobs: HashMap<JobId, Option<Job>> = futures_util::stream::iter(ids.iter().copied())
        .map(read)
        .buffer_unordered(READS)
        .try_collect()
        .await?;
    let mut account = Account { submitted: ids.len() as u64, ..Account::default() };
    for (number, id) in (0..).zip(ids) {
        account.job(number, *id, jobs.get(id).and_then(Option::as_ref), &records);
    }
    account.strangers(engine, queue, ids).await?;
    account.attempts = records.starts;
    account.fenced = records.fenced.values().sum();
    if account.attempts < account.planned {
        account.problem(format!("{} attempts are on record, fewer than were needed", account.attempts));
    }
    account.zombie_writes =
        happened.zombie.and_then(|zombie| records.fenced.get(&zombie)).copied().unwrap_or(0);
    if happened.zombie.is_some() && account.zombie_writes == 0 {
        account.problem("the zombie's late writes were not fenced".to_owned());
    }
    if records.refused > 0 {
        account.problem(format!("{} outcomes were refused by the store", records.refused));
    }
    for unwell in &happened.unwell {
        account.problem(unwell.clone());
    }
    Ok(account)
}

impl Account {
    fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    fn job(&mut self, number: u32, id: JobId, job: Option<&Job>, records: &Records) {
        let plan = plan::of(number);
        self.planned += u64::from(plan.outcomes());
        let Some(job) = job else {
            self.lost += 1;
            return self.problem(format!("task {number}: job {id} is not in the store"));
        };
        let summary = &job.summary;
        let (state, reason) = plan.end();
        if (summary.state, summary.reason) != (state, reason) || summary.attempts != plan.failures() {
            self.lost += 1;
            let is = |state: State, reason| format!("{state}{}", reason_text(reason));
            self.problem(format!(
                "task {number}: job {id} is {} after {} failed attempts, planned was {} after {}",
                is(summary.state, summary.reason),
                summary.attempts,
                is(state, reason),
                plan.failures()
            ));
        } else if state == State::Done {
            self.done += 1;
            self.made(number, job, records);
        } else {
            self.failed += 1;
        }
        let committed = records.committed.get(&id).map(Vec::as_slice).unwrap_or_default();
        let revisions: HashSet<i32> = committed.iter().map(|(revision, _)| *revision).collect();
        let ends = committed.iter().filter(|(_, is_final)| *is_final).count();
        if u32::try_from(job.rev.0) != Ok(plan.outcomes()) || revisions.len() != committed.len() || ends > 1 {
            self.twice += 1;
            self.problem(format!(
                "task {number}: job {id} has {} outcomes in the store and {} were acknowledged, {ends} of them its end; \
                 planned were {}",
                job.rev.0,
                committed.len(),
                plan.outcomes()
            ));
        }
        if ends > 0 && !summary.state.is_final() {
            self.problem(format!(
                "task {number}: the end of job {id} was acknowledged, and the store has lost it"
            ));
        }
    }

    /// A result must have been made by an execution that is on record.
    fn made(&mut self, number: u32, job: &Job, records: &Records) {
        let id = job.summary.id;
        let made = job.output.as_ref().and_then(|output| serde_json::from_slice::<Made>(&output.bytes).ok());
        let known = made
            .as_ref()
            .is_some_and(|made| made.number == number && records.succeeded.get(&made.run) == Some(&id));
        if !known {
            self.done -= 1;
            self.lost += 1;
            self.problem(format!("task {number}: the result of job {id} was made by no execution on record"));
        }
    }

    /// No job may be there that was not submitted.
    async fn strangers(&mut self, engine: &Engine, queue: &str, ids: &[JobId]) -> anyhow::Result<()> {
        let known: HashSet<JobId> = ids.iter().copied().collect();
        let mut filter = Filter { queue: Some(queue.to_owned()), limit: 5_000, ..Filter::default() };
        loop {
            let page = engine.inspect().jobs(&filter).await?;
            for stranger in page.jobs.iter().filter(|job| !known.contains(&job.id)) {
                self.problem(format!("job {} is in the store and was never submitted", stranger.id));
            }
            match page.next {
                Some(next) => filter.before = Some(next),
                None => return Ok(()),
            }
        }
    }

    pub(super) fn adds_up(&self) -> bool {
        self.problems.is_empty() && self.lost + self.twice == 0 && self.submitted == self.done + self.failed
    }

    /// The account, for people.
    pub(super) fn text(&self, seconds: f64, happened: &Happened) -> String {
        let mut text =
            "\naccount: the plan, the tasks' own record and the store, compared job by job\n\n".to_owned();
        let mut line = |count: u64, what: &str| text += &format!("{:>10}  {what}\n", thousands(count));
        line(self.submitted, "submitted");
        line(self.done, "done");
        line(self.failed, "failed as planned");
        line(self.lost, "lost");
        line(self.twice, "committed twice");
        text.push('\n');
        let mut line = |count: u64, what: &str| text += &format!("{:>10}  {what}\n", thousands(count));
        let (planned, again) =
            (thousands(self.planned), thousands(self.attempts.saturating_sub(self.planned)));
        line(
            self.attempts,
            &format!("attempts run: {planned} as planned, {again} again after a death or the freeze"),
        );
        line(happened.killed, "workers killed, and replaced");
        // An accepted one would be an outcome too many, or one that was not planned.
        let accepted = if self.lost + self.twice == 0 { ", none accepted" } else { "" };
        let refused =
            format!("zombies fenced: {} late writes refused{accepted}", thousands(self.zombie_writes));
        line(u64::from(happened.zombie.is_some()), &refused);
        if self.fenced > self.zombie_writes {
            line(self.fenced - self.zombie_writes, "other late writes refused");
        }
        let rate = thousands((self.submitted as f64 / seconds) as u64);
        text += &format!("{seconds:>10.1}  seconds, {rate} jobs/s with all of this going on\n\n");
        let sum = format!(
            "{} = {} done + {} failed as planned",
            thousands(self.submitted),
            thousands(self.done),
            thousands(self.failed)
        );
        if self.adds_up() {
            return text + &format!("It adds up: {sum}; nothing lost, nothing twice.\n");
        }
        text += &format!("It does NOT add up ({sum}?):\n");
        for problem in self.problems.iter().take(20) {
            text += &format!("  - {problem}\n");
        }
        if self.problems.len() > 20 {
            text += &format!("  … and {} more\n", self.problems.len() - 20);
        }
        text
    }
}

fn reason_text(reason: Option<windlass::Reason>) -> String {
    reason.map(|reason| format!(" ({reason})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use windlass::{
        model::{Epoch, Payload, Rev},
        store::Summary,
    };

    use super::*;

    const NUMBER: u32 = 1;

    fn id() -> JobId {
        JobId::from_parts(1, 1, 1)
    }

    /// A job that was done as planned.
    fn job() -> Job {
        let output = serde_json::to_vec(&Made { number: NUMBER, run: "1-0".into() }).expect("JSON");
        let now = windlass::Time(0);
        Job {
            summary: Summary {
                id: id(),
                kind: "demo".into(),
                version: 1,
                queue: "demo".into(),
                key: None,
                state: State::Done,
                stage: None,
                reason: None,
                priority: 0,
                attempts: 0,
                submitted_at: now,
                due_at: now,
                finished_at: Some(now),
            },
            epoch: Epoch(0),
            rev: Rev(1),
            worker_deaths: 0,
            solo_crashes: 0,
            worker: None,
            started_at: None,
            deadline_at: None,
            parent: None,
            position: None,
            tags: Vec::new(),
            options: None,
            settings: Default::default(),
            retry_counts: Vec::new(),
            input: Payload::default(),
            data: None,
            wait: None,
            wait_until: None,
            pending_children: 0,
            unwind: None,
            fault: None,
            progress: None,
            output: Some(Payload::json(output)),
            failure: None,
        }
    }

    fn records() -> Records {
        let mut records = Records::default();
        records.succeeded.insert("1-0".into(), id());
        records.committed.insert(id(), vec![(0, true)]);
        records
    }

    fn account(job: Option<&Job>, records: &Records) -> Account {
        let mut account = Account { submitted: 1, ..Account::default() };
        account.job(NUMBER, id(), job, records);
        account
    }

    #[test]
    fn what_went_as_planned_adds_up_even_if_the_answer_died_with_its_worker() {
        assert!(account(Some(&job()), &records()).adds_up());
        let unanswered = Records { committed: HashMap::new(), ..records() };
        assert!(account(Some(&job()), &unanswered).adds_up());
    }

    #[test]
    fn a_loss_is_seen() {
        assert_eq!(account(None, &records()).lost, 1);
        let mut open = job();
        open.summary.state = State::Running;
        let account_of = account(Some(&open), &records());
        assert!(account_of.lost == 1 && !account_of.adds_up());
        let unmade = Records { succeeded: HashMap::new(), ..records() };
        assert_eq!(account(Some(&job()), &unmade).lost, 1, "a result that nobody made");
    }

    #[test]
    fn a_second_commit_is_seen_by_either_witness() {
        let twice = Job { rev: Rev(2), ..job() };
        assert_eq!(account(Some(&twice), &records()).twice, 1, "the store's count");
        let mut changed = records();
        changed.committed.insert(id(), vec![(0, true), (0, true)]);
        assert_eq!(account(Some(&job()), &changed).twice, 1, "the workers' records");
    }
}
