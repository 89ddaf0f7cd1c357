//! Parked jobs by what they wait for: who waits for what, for how long, and how long such waits usually take.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use windlass_model::{JobId, State, Time};
use windlass_store::{Inspect, LastCall, ParkedJob, SignalWaitFilter, SignalWaits};
use windlass_workflow::{Error, engine::RepeatProgress};

use super::{Percentiles, RowReason};
use crate::Operator;

/// How many parked jobs are read at most.
const EXAMINED: usize = 5_000;
/// Of how many sleeping jobs the last call is read: of those that wake next, and of those that sleep longest.
const NEXT: usize = 200;
const LONGEST: usize = 50;
/// Waits that ended longer ago say nothing about those of today.
const RECENT: Duration = Duration::from_secs(30 * 86_400);

/// Parked jobs by kind and by what they wait for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WaitingView {
    /// How many jobs wait: maintained, and so exact.
    pub waiting: u64,
    /// Whether there are more than were read: then the counts of groups are those of the oldest jobs only.
    pub is_capped: bool,
    /// The groups, the one with the longest wait first.
    pub groups: Vec<WaitGroup>,
    /// Jobs that sleep, those that sleep longest first.
    pub sleeping: Vec<SleepRow>,
    /// Jobs that repeat something, those whose next tick is due first first.
    pub repeats: Vec<RepeatRow>,
    /// The store's clock.
    pub now: Time,
}

/// What parked jobs wait for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "waits_for", rename_all = "snake_case")]
pub enum WaitsFor {
    /// Signals of these names.
    Signals {
        /// The names.
        names: Vec<String>,
        /// For how many of them.
        needs: u32,
    },
    /// Children.
    Children,
    /// Branches.
    Branches,
    /// A time.
    Time,
    /// Nothing any more: they were woken just now.
    Nothing,
}

/// Jobs of one kind that wait for the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WaitGroup {
    /// What they wait for.
    #[serde(flatten)]
    pub waits_for: WaitsFor,
    /// Their kind.
    pub kind: String,
    /// How many there are.
    pub count: u64,
    /// When the oldest of the waits began.
    pub oldest_since: Option<Time>,
    /// How long such waits usually take, of each signal about which something is known.
    pub usual: Vec<UsualWait>,
    /// How many have waited longer than 95 % of the waits for their signal did. Only groups with one signal have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longer_than_usual: Option<u64>,
    /// The jobs whose waits began first.
    pub rows: Vec<WaitRow>,
}

/// How long waits for a signal take.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UsualWait {
    /// The signal.
    pub signal: String,
    /// The waits that it ended in the last 30 days.
    pub arrived: Percentiles,
    /// How many waits timed out without it.
    pub timed_out: u64,
}

/// A job that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WaitRow {
    /// The job.
    pub id: JobId,
    /// The caller's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The stage it is in, if it is a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// When its wait began.
    pub since: Option<Time>,
    /// When its wait times out.
    pub until: Option<Time>,
    /// How many of the children it waits for have not ended.
    pub pending_children: u32,
}

/// A job that sleeps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SleepRow {
    /// Its kind.
    pub kind: String,
    /// The job.
    #[serde(flatten)]
    pub row: WaitRow,
}

/// A job that repeats something by a calendar.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RepeatRow {
    /// Its kind.
    pub kind: String,
    /// The job.
    #[serde(flatten)]
    pub row: WaitRow,
    /// The name of the repeat.
    pub name: String,
    /// How many ticks have run, if this program can read that.
    pub ticks: Option<u64>,
    /// The last tick that is over.
    pub last_tick: Option<Time>,
}

impl WaitingView {
    /// Reads it, with at most `rows` jobs of each group, and as many that sleep and that repeat something.
    pub async fn read(operator: &Operator, rows: usize) -> Result<WaitingView, Error> {
        let inspect = operator.inspect();
        let mut parked = inspect.parked(EXAMINED + 1).await?;
        let is_capped = parked.len() > EXAMINED;
        parked.truncate(EXAMINED);
        let counts = inspect.state_counts().await?.into_iter();
        let waiting = counts.filter(|count| count.state == State::Waiting).map(|count| count.jobs).sum();
        let now = inspect.clock().await?;
        let usual = usual_waits(inspect, now).await?;
        parked.sort_by_key(|job| (job.wait.since, job.id));
        let (sleeping, repeats) = timed(operator, &parked, rows).await?;
        let groups = group(&parked, &usual, rows, now);
        Ok(WaitingView { waiting, is_capped, groups, sleeping, repeats, now })
    }
}

/// What is known of waits, by kind and signal.
type UsualWaits = HashMap<(String, String), SignalWaits>;

async fn usual_waits(inspect: &dyn Inspect, now: Time) -> Result<UsualWaits, Error> {
    let filter = SignalWaitFilter { from: now - RECENT, ..SignalWaitFilter::default() };
    let waits = inspect.signal_waits(&filter).await?;
    Ok(waits.into_iter().map(|waits| ((waits.kind.clone(), waits.signal.clone()), waits)).collect())
}

impl WaitsFor {
    fn of(job: &ParkedJob) -> WaitsFor {
        match RowReason::of_wait(&job.wait) {
            RowReason::Signals { names, needs, .. } => WaitsFor::Signals { names, needs },
            RowReason::Children { .. } => WaitsFor::Children,
            RowReason::Branches { .. } => WaitsFor::Branches,
            RowReason::Asleep { .. } => WaitsFor::Time,
            _ => WaitsFor::Nothing,
        }
    }

    fn names(&self) -> &[String] {
        match self {
            WaitsFor::Signals { names, .. } => names,
            _ => &[],
        }
    }
}

impl WaitRow {
    fn new(job: &ParkedJob) -> WaitRow {
        let (since, until) = (job.wait.since, job.wait.until);
        let (key, stage) = (job.key.clone(), job.stage.clone());
        WaitRow { id: job.id, key, stage, since, until, pending_children: job.wait.pending_children }
    }
}

/// Groups jobs, which come in the order in which their waits began.
fn group(parked: &[ParkedJob], usual: &UsualWaits, rows: usize, now: Time) -> Vec<WaitGroup> {
    let mut groups: BTreeMap<(WaitsFor, &str), Vec<&ParkedJob>> = BTreeMap::new();
    for job in parked {
        groups.entry((WaitsFor::of(job), &job.kind)).or_default().push(job);
    }
    let view = |((waits_for, kind), jobs): ((WaitsFor, &str), Vec<&ParkedJob>)| {
        let known = |name: &String| usual.get(&(kind.to_owned(), name.clone()));
        let waits = waits_for.names().iter().filter_map(known);
        let late = match waits_for.names() {
            [name] => known(name).and_then(|waits| waits.arrived.percentile(0.95)),
            _ => None,
        };
        let is_late = |job: &&&ParkedJob| {
            let waited = job.wait.since.map(|since| now - since);
            waited.zip(late).is_some_and(|(waited, late)| waited > late)
        };
        let usual = waits.map(|waits| UsualWait {
            signal: waits.signal.clone(),
            arrived: Percentiles::of(&waits.arrived),
            timed_out: waits.timed_out.count(),
        });
        WaitGroup {
            count: jobs.len() as u64,
            oldest_since: jobs.first().and_then(|job| job.wait.since),
            usual: usual.collect(),
            longer_than_usual: late.map(|_| jobs.iter().filter(is_late).count() as u64),
            rows: jobs.iter().take(rows).map(|job| WaitRow::new(job)).collect(),
            kind: kind.to_owned(),
            waits_for,
        }
    };
    let mut groups: Vec<WaitGroup> = groups.into_iter().map(view).collect();
    groups.sort_by_key(|group| (group.oldest_since, group.kind.clone()));
    groups
}

/// The jobs that wait for a time: those that sleep, and those that repeat something. Of most it is not known which they do: they count as asleep.
async fn timed(
    operator: &Operator,
    parked: &[ParkedJob],
    rows: usize,
) -> Result<(Vec<SleepRow>, Vec<RepeatRow>), Error> {
    let mut timed: Vec<&ParkedJob> =
        parked.iter().filter(|job| WaitsFor::of(job) == WaitsFor::Time).collect();
    timed.sort_by_key(|job| (job.wait.until, job.id));
    let asked = |position: usize| position < NEXT || position + LONGEST >= timed.len();
    let ids: Vec<JobId> =
        timed.iter().enumerate().filter(|(at, _)| asked(*at)).map(|(_, job)| job.id).collect();
    let calls = match ids.is_empty() {
        true => Vec::new(),
        false => operator.inspect().last_calls(&ids).await?,
    };
    let calls: HashMap<JobId, LastCall> =
        ids.into_iter().zip(calls).filter_map(|(id, call)| Some((id, call?))).collect();
    let (mut sleeping, mut repeats) = (Vec::new(), Vec::new());
    for job in timed {
        let (kind, row) = (job.kind.clone(), WaitRow::new(job));
        match calls.get(&job.id).filter(|call| call.call_kind == windlass_model::journal::CallKind::Repeat) {
            Some(call) => {
                let progress = progress(operator, call);
                repeats.push(RepeatRow {
                    kind,
                    row,
                    name: call.name.clone(),
                    ticks: progress.as_ref().map(|progress| progress.ticks),
                    last_tick: progress.and_then(|progress| progress.last),
                });
            }
            None => sleeping.push(SleepRow { kind, row }),
        }
    }
    sleeping.reverse();
    sleeping.truncate(rows);
    repeats.truncate(rows);
    Ok((sleeping, repeats))
}

/// The progress of a repeat, if this program can read it.
fn progress(operator: &Operator, call: &LastCall) -> Option<RepeatProgress> {
    let plain = operator.decode(call.progress.as_ref()?).ok()?;
    serde_json::from_slice(&plain).ok()
}

#[cfg(test)]
mod tests {
    use windlass_model::{Histogram, Rev, WaitCondition, branch::BRANCH_SIGNAL, wait::SignalName};
    use windlass_store::WaitDetails;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn ago(seconds: u64) -> Time {
        NOW - Duration::from_secs(seconds)
    }

    fn signals(names: &[&str]) -> WaitCondition {
        let name = |name: &&str| SignalName { name: (*name).to_owned(), every: false };
        WaitCondition::Signals { names: names.iter().map(name).collect(), needs: 1 }
    }

    fn job(n: u32, kind: &str, condition: WaitCondition, waited: u64) -> ParkedJob {
        ParkedJob {
            id: JobId::from_parts(1_800_000_000_000, n, 0),
            kind: kind.into(),
            version: 1,
            queue: "main".into(),
            key: Some(format!("claim-{n}")),
            stage: None,
            wait: WaitDetails { condition, since: Some(ago(waited)), until: None, pending_children: 0 },
        }
    }

    #[test]
    fn jobs_are_grouped_by_kind_and_by_what_they_wait_for() {
        let parked = [
            job(1, "claim", signals(&["decision"]), 9_000),
            job(2, "claim", signals(&["decision"]), 7_000),
            job(3, "claim", signals(&["decision"]), 60),
            job(4, "claim", WaitCondition::Children { rev: Rev(1) }, 50),
            job(5, "order", signals(&["decision"]), 40),
            job(6, "order", signals(&[BRANCH_SIGNAL]), 30),
            job(7, "order", signals(&[]), 20),
            job(8, "order", WaitCondition::Nothing, 10),
        ];
        let mut arrived = Histogram::default();
        arrived.add(Histogram::bucket(Duration::from_secs(3_600).as_micros() as i64), 90);
        let (kind, signal) = ("claim".to_owned(), "decision".to_owned());
        let waits = SignalWaits {
            kind: kind.clone(),
            signal: signal.clone(),
            arrived,
            timed_out: Histogram::default(),
        };
        let usual = UsualWaits::from([((kind, signal), waits)]);
        let groups = group(&parked, &usual, 2, NOW);
        let heads: Vec<_> =
            groups.iter().map(|group| (group.kind.as_str(), &group.waits_for, group.count)).collect();
        let decision = WaitsFor::Signals { names: vec!["decision".into()], needs: 1 };
        let expected = [
            ("claim", &decision, 3),
            ("claim", &WaitsFor::Children, 1),
            ("order", &decision, 1),
            ("order", &WaitsFor::Branches, 1),
            ("order", &WaitsFor::Time, 1),
            ("order", &WaitsFor::Nothing, 1),
        ];
        assert_eq!(heads, expected);
        let first = &groups[0];
        assert_eq!((first.oldest_since, first.longer_than_usual), (Some(ago(9_000)), Some(2)));
        assert_eq!((first.usual.len(), first.usual[0].arrived.count), (1, 90));
        assert_eq!(first.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [parked[0].id, parked[1].id]);
        assert_eq!(
            (groups[2].usual.len(), groups[2].longer_than_usual),
            (0, None),
            "nothing is known of orders"
        );
    }
}
