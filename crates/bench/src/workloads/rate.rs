//! One rate limit and four processes that want more than it allows: whether it is kept to the token, and used.
//!
//! What was admitted is read from the claims themselves: each process notes which jobs a claim brought, with the moment
//! by the store's clock at which it was made.

use std::{
    collections::HashSet,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context;
use futures_util::future::try_join_all;
use tokio::sync::watch;
use windlass::{
    Engine, RateCharge, RateLimit, Time,
    env::IdSource,
    model::{NewJob, Payload},
    prelude::*,
    store::{ClaimBatch, ClaimRequest, Fut, Now, Store, Wrapper},
};

use super::{Stores, helper::Helper, report::Report};
use crate::out;

const PROCESSES: usize = 4;
const BURST: u32 = 50;
/// The rates that are measured, in tokens a second.
const RATES: [u32; 2] = [500, 5_000];
/// Jobs weigh 1 to this.
const HEAVIEST: usize = 5;
const LIMIT: &str = "bench";
const SECOND: i64 = 1_000_000;

/// How long each phase takes.
struct Times {
    warm: Duration,
    span: Duration,
    halt: Duration,
    after: Duration,
}

const FULL: Times = Times {
    warm: Duration::from_secs(1),
    span: Duration::from_secs(20),
    halt: Duration::from_secs(10),
    after: Duration::from_secs(2),
};
const QUICK: Times = Times {
    warm: Duration::from_millis(200),
    span: Duration::from_secs(1),
    halt: Duration::from_millis(500),
    after: Duration::from_millis(500),
};

/// A task that does nothing, under the limit.
#[derive(Serialize, Deserialize)]
struct Weighed {
    n: usize,
}

impl Task for Weighed {
    const KIND: &'static str = "bench.weighed";
    type Output = usize;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<usize, Failure> {
        Ok(self.n)
    }
}

/// When a job was admitted by the store's clock, and what it weighs.
type Admitted = (Time, u64);

/// What one run found.
struct Found {
    /// Jobs admitted in the measured span, and their weight.
    jobs: usize,
    weight: u64,
    /// The weight over what was allowed in the span.
    ratio: f64,
    /// Claims in the span, with and without jobs.
    claims: usize,
    /// Windows that admitted too much.
    over: usize,
    /// The most that was admitted at one instant after all had stopped for a while.
    burst: u64,
}

pub(super) async fn run(stores: &Stores, quick: bool) -> anyhow::Result<Report> {
    let times = if quick { QUICK } else { FULL };
    let mut found = Vec::new();
    for rate in RATES {
        out::note(&format!("  {rate} tokens a second for {:?}, {PROCESSES} processes", times.span));
        let one = Box::pin(measure(stores, rate, &times)).await?;
        out::note(&format!("  {:.3} of what is allowed, {} windows over", one.ratio, one.over));
        found.push(one);
    }
    let [slow, fast] = <[Found; 2]>::try_from(found).ok().context("two rates were measured")?;
    let over = slow.over + fast.over;
    let burst = slow.burst.max(fast.burst);
    let seconds = times.span.as_secs_f64();
    Ok(Report::new("rate", stores.name(), slow.jobs + fast.jobs)
        .rate(fast.jobs, seconds)
        .with("processes", PROCESSES)
        .with("burst", BURST)
        .figure("ratio", slow.ratio)
        .figure("ratio_5000", fast.ratio)
        .with("admitted", slow.weight)
        .with("admitted_5000", fast.weight)
        .figure("claims_per_second", slow.claims as f64 / seconds)
        .figure("claims_per_second_5000", fast.claims as f64 / seconds)
        .with("over", over)
        .with("burst_after_stop", burst)
        .must(over == 0 && burst <= u64::from(BURST)))
}

async fn measure(stores: &Stores, rate: u32, times: &Times) -> anyhow::Result<Found> {
    let url = stores.url();
    let engine = Engine::open(&url).await?;
    engine.control("bench").set_limit(RateLimit::per_second(LIMIT, rate).burst(BURST)).await?;
    let busy = times.warm + times.span + times.after + Duration::from_secs(4);
    let submitted = (f64::from(rate) * busy.as_secs_f64()) as usize / HEAVIEST.div_ceil(2) + 1_000;
    submit(&engine, submitted).await?;
    stores.settle()?;

    let folder = tempfile::tempdir().context("a temporary folder")?;
    let records: Vec<PathBuf> = (0..PROCESSES).map(|n| folder.path().join(n.to_string())).collect();
    let start = |record| Helper::start("rate-worker", &url, record);
    let mut helpers = try_join_all(records.iter().map(|record| start(record))).await?;
    tokio::time::sleep(times.warm).await;
    let begin = engine.inspect().clock().await?;
    tokio::time::sleep(times.span).await;
    try_join_all(helpers.iter_mut().map(|helper| helper.send("halt"))).await?;
    tokio::time::sleep(times.halt).await;
    let again = engine.inspect().clock().await?;
    try_join_all(helpers.iter_mut().map(|helper| helper.send("go"))).await?;
    tokio::time::sleep(times.after).await;
    try_join_all(helpers.into_iter().map(Helper::stop)).await?;

    let (admitted, claims) = read(&records)?;
    anyhow::ensure!(
        admitted.len() < submitted,
        "there were too few jobs for the limit to be what they wait for"
    );
    let during = |at: &Time| *at >= begin && *at < begin + times.span;
    let inside: Vec<u64> = admitted.iter().filter(|(at, _)| during(at)).map(|(_, weight)| *weight).collect();
    let weight: u64 = inside.iter().sum();
    let after: Vec<Admitted> = admitted.iter().copied().filter(|(at, _)| *at >= again).collect();
    anyhow::ensure!(!after.is_empty(), "nothing was admitted after all had stopped for a while");
    let burst = largest(&after, 0);
    // What the bucket gains while it is emptied may be taken with it; not more.
    let soon = 10_000;
    let too_much = largest(&after, soon) * SECOND as u64
        > u64::from(BURST) * SECOND as u64 + u64::from(rate) * soon as u64;
    Ok(Found {
        jobs: inside.len(),
        weight,
        ratio: weight as f64 / (f64::from(rate) * times.span.as_secs_f64()),
        claims: claims.iter().filter(|at| during(at)).count(),
        over: over(&admitted, u64::from(rate + BURST))
            + usize::from(too_much)
            + usize::from(burst > u64::from(BURST)),
        burst,
    })
}

/// Puts jobs of varying weights in.
async fn submit(engine: &Engine, n: usize) -> anyhow::Result<()> {
    let ids = IdSource::default();
    let all: Vec<usize> = (0..n).collect();
    for chunk in all.chunks(1_000) {
        let job = |n: &usize| {
            let input = Payload::json(format!("{{\"n\":{n}}}").into_bytes());
            let mut job = NewJob::new(ids.job(), Weighed::KIND, "default", input);
            let weight = 1 + (n * 7 + n / HEAVIEST) % HEAVIEST;
            job.settings.rate = Some(Box::new(RateCharge::new(LIMIT).weight(weight as u32)));
            job
        };
        engine.store().submit(None, &chunk.iter().map(job).collect::<Vec<NewJob>>(), None).await?;
    }
    Ok(())
}

/// How many windows of a second, one from every admission on, admitted more than is allowed.
fn over(admitted: &[Admitted], allowed: u64) -> usize {
    windows(admitted, SECOND).filter(|sum| *sum > allowed).count()
}

/// The most weight admitted within `micros` microseconds.
fn largest(admitted: &[Admitted], micros: i64) -> u64 {
    windows(admitted, micros).max().unwrap_or(0)
}

/// The weight admitted in the window of `micros` microseconds from each admission, its end included. Admissions are in order.
fn windows(admitted: &[Admitted], micros: i64) -> impl Iterator<Item = u64> {
    let (mut sum, mut end) = (0, 0);
    (0..admitted.len()).map(move |first| {
        while let Some((_, weight)) =
            admitted.get(end).filter(|(at, _)| at.micros() <= admitted[first].0.micros() + micros)
        {
            sum += weight;
            end += 1;
        }
        let window = sum;
        sum -= admitted[first].1;
        window
    })
}

/// Reads what the processes recorded: each admission, and each claim, in order.
fn read(records: &[PathBuf]) -> anyhow::Result<(Vec<Admitted>, Vec<Time>)> {
    let (mut admitted, mut claims, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for record in records {
        let text = std::fs::read_to_string(record).context("what a process noted")?;
        for line in text.lines() {
            let mut words = line.split(' ');
            let at = Time(words.next().unwrap_or_default().parse().context("a moment")?);
            claims.push(at);
            // A claim that was answered twice was made once.
            while let (Some(job), Some(weight)) = (words.next(), words.next()) {
                if seen.insert(job.to_owned()) {
                    admitted.push((at, weight.parse().context("a weight")?));
                }
            }
        }
    }
    admitted.sort_unstable();
    claims.sort_unstable();
    Ok((admitted, claims))
}

/// One of the processes: works, and records its claims; the commands `halt` and `go` pause and resume it.
pub(super) async fn worker(url: &str, record: &Path) -> anyhow::Result<ExitCode> {
    let store = windlass::store::open(url, false).await?;
    let file = std::fs::File::create(record).context("a process's record")?;
    let record = Arc::new(Mutex::new(std::io::BufWriter::new(file)));
    let (gate, open) = watch::channel(true);
    let store = Arc::new(Noting { store, open, record: Arc::clone(&record) });
    let engine = Engine::builder(url).store(store).task::<Weighed>().start().await?;
    let code = super::helper::serve_commands(|word| {
        gate.send_replace(word != "halt");
    })
    .await?;
    gate.send_replace(true);
    engine.stop().await;
    record.lock().unwrap_or_else(|e| e.into_inner()).flush().context("a process's record")?;
    Ok(code)
}

/// The real store, with every claim noted, and made only while that is open.
struct Noting {
    store: Arc<dyn Store>,
    open: watch::Receiver<bool>,
    record: Arc<Mutex<std::io::BufWriter<std::fs::File>>>,
}

impl Noting {
    fn note(&self, batch: &ClaimBatch) {
        let mut line = batch.now.micros().to_string();
        for job in &batch.jobs {
            let weight = job.settings.rate.as_ref().map_or(0, |charge| charge.weight);
            line += &format!(" {}/{} {weight}", job.id, job.epoch.0);
        }
        // A record that cannot be written shows in the end: what is missing was not admitted.
        let _ = writeln!(self.record.lock().unwrap_or_else(|e| e.into_inner()), "{line}");
    }
}

// What its siblings claim is not recorded: they are for what a claim must not hold up.
impl Wrapper for Noting {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(&'a self, now: Now, request: &'a ClaimRequest) -> Fut<'a, ClaimBatch> {
        Box::pin(async move {
            // The sender lives as long as this process.
            let _ = self.open.clone().wait_for(|open| *open).await;
            let batch = self.store.claim(now, request).await?;
            self.note(&batch);
            Ok(batch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_begin_at_every_admission_and_include_their_end() {
        let at = |micros: i64, weight: u64| (Time(micros), weight);
        let admitted = [at(0, 3), at(0, 2), at(500_000, 1), at(1_000_000, 4), at(1_000_001, 5)];
        assert_eq!(windows(&admitted, SECOND).collect::<Vec<_>>(), [10, 7, 10, 9, 5]);
        assert_eq!(over(&admitted, 9), 2);
        assert_eq!(largest(&admitted, 0), 5);
        assert_eq!(largest(&admitted, 1), 9);
    }
}
