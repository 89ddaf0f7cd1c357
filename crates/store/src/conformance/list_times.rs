//! How long lists take in a large store: prints a line for each filter. The tests that fill a store with millions of jobs and call this are
//! ignored by default; decision 0015 has their results.

use std::time::{Duration, Instant};

use windlass_model::State;

use super::kit::{BEGIN, Handle};
use crate::{Filter, UnsuccessfulFilter};

/// How often each filter is listed; the first time is the coldest.
const REPEATS: usize = 9;

/// Lists by each filter of a store that the tests have filled, and prints how long the first page of 50 jobs takes.
pub async fn print_list_times(store: &Handle) {
    let text = |text: &str| Some(text.to_owned());
    let filters = |of: Filter| Filter { limit: 50, ..of };
    for filter in [
        Filter::default(),
        Filter { kind: text("mail"), ..Filter::default() },
        Filter { kind: text("old"), ..Filter::default() },
        Filter { kind: text("rare"), ..Filter::default() },
        Filter { queue: text("bulk"), ..Filter::default() },
        Filter { tag: text("red"), ..Filter::default() },
        Filter { tag: text("rare"), ..Filter::default() },
        Filter { key_prefix: text("order-"), ..Filter::default() },
        Filter { key_prefix: text("order-77777"), ..Filter::default() },
        Filter { key_prefix: text("order-7777"), ..Filter::default() },
        Filter { error_class: text("busy"), ..Filter::default() },
        Filter { error_class: text("rare"), ..Filter::default() },
        Filter { since: Some(BEGIN + Duration::from_secs(100)), ..Filter::default() },
        Filter { until: Some(BEGIN + Duration::from_secs(100)), ..Filter::default() },
        Filter { stage: text("Paying"), state: Some(State::Waiting), ..Filter::default() },
        Filter { stage: text("Rare"), state: Some(State::Waiting), ..Filter::default() },
        Filter { stage: text("Paying"), state: Some(State::Failed), ..Filter::default() },
        Filter { stage: text("Rare"), state: Some(State::Failed), ..Filter::default() },
        Filter { tag: text("red"), error_class: text("rare"), ..Filter::default() },
        Filter { tag: text("red"), kind: text("rare"), ..Filter::default() },
        Filter { tag: text("red"), kind: text("old"), ..Filter::default() },
        Filter { kind: text("mail"), state: Some(State::Failed), tag: text("red"), ..Filter::default() },
        Filter { key_prefix: text("order-"), state: Some(State::Cancelled), ..Filter::default() },
        Filter { stage: text("Rare"), ..Filter::default() },
        Filter { stage: text("Nowhere"), tag: text("red"), ..Filter::default() },
    ]
    .into_iter()
    .chain(State::ALL.map(|state| Filter { state: Some(state), ..Filter::default() }))
    .map(filters)
    {
        let mut times = Vec::new();
        let mut counts = Vec::new();
        let mut found = (0, false);
        for _ in 0..REPEATS {
            let started = Instant::now();
            let page = store.inspect().jobs(&filter).await.expect("jobs");
            times.push(started.elapsed());
            found = (page.jobs.len(), page.next.is_some());
            let started = Instant::now();
            store.inspect().count_jobs(&filter, 10_000).await.expect("counted");
            counts.push(started.elapsed());
        }
        let first = times[0];
        times.sort_unstable();
        counts.sort_unstable();
        let millis = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1_000.0);
        println!(
            "{:>3} jobs{} first {:>7} median {:>7} ms, count {:>7} ms: {}",
            found.0,
            if found.1 { "+" } else { " " },
            millis(first),
            millis(times[REPEATS / 2]),
            millis(counts[REPEATS / 2]),
            describe(&filter)
        );
    }
    print_read_times(store).await;
    let started = Instant::now();
    let diagnose = store.diagnose();
    diagnose.oldest_ready().await.expect("read");
    diagnose.suspects(10_000).await.expect("read");
    diagnose.unhandled_failures(10_000).await.expect("read");
    diagnose.awaited_branches(1_000).await.expect("read");
    diagnose.orphaned_branches(1_000).await.expect("read");
    let doctor = started.elapsed();
    store.inspect().queues().await.expect("read");
    println!("doctor {doctor:?}, queues {:?}", started.elapsed() - doctor);
}

/// Prints how long the reads of a dashboard take.
async fn print_read_times(store: &Handle) {
    let inspect = store.inspect();
    let page = inspect.jobs(&Filter { limit: 50, ..Filter::default() }).await.expect("jobs");
    let ids: Vec<_> = page.jobs.iter().map(|job| job.id).collect();
    let all = UnsuccessfulFilter::default();
    for what in [
        "pulse",
        "pulse of 50 jobs",
        "50 summaries",
        "details of 50 jobs",
        "5,000 unsuccessful",
        "5,000 parked",
    ] {
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            let started = Instant::now();
            match what {
                "pulse" => drop(inspect.pulse(&[]).await.expect("read")),
                "pulse of 50 jobs" => drop(inspect.pulse(&ids).await.expect("read")),
                "50 summaries" => drop(inspect.summaries(&ids).await.expect("read")),
                "details of 50 jobs" => drop(inspect.details(&ids).await.expect("read")),
                "5,000 unsuccessful" => drop(inspect.unsuccessful(&all, 5_000).await.expect("read")),
                _ => drop(inspect.parked(5_000).await.expect("read")),
            }
            times.push(started.elapsed());
        }
        let first = times[0];
        times.sort_unstable();
        println!("{what}: first {first:?}, median {:?}", times[REPEATS / 2]);
    }
}

fn describe(filter: &Filter) -> String {
    let all = format!("{filter:?}");
    let given = all.trim_start_matches("Filter { ").split(", ").filter(|field| field.contains("Some("));
    given.collect::<Vec<_>>().join(", ")
}
