//! The company of the demo: Fennel Lane, a bakery with twelve shops, which also supplies cafés and bills its card holders once a month.
//!
//! In reading order: [`kinds`] are its tasks; [`complaint`] is its machine; [`wholesale`], [`standing`] and [`branches`] are its workflows;
//! [`card_service`] is a service that is down now and then; [`rules`] are its rate limits, schedules and the queue that is paused.
//! [`population`] is what it has to do at the start and [`arrivals`] what comes in later; [`people`] are those who approve, decide and
//! repair; [`worker`] is a worker process, [`workers`] are all of them, of which one is killed now and then; [`housekeeping`] bounds what
//! is kept.
//!
//! What always holds: everything that the pages show has happened. Nothing is written but by submits, workers and acts of people.

mod arrivals;
mod branches;
mod card_service;
mod complaint;
mod housekeeping;
mod kinds;
mod people;
mod population;
pub(super) mod rules;
mod standing;
mod wholesale;
pub(crate) mod worker;
mod workers;

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use windlass::{Builder, Config, Engine, Retention};

use super::{place::Place, stop::Stop};
use arrivals::Arrivals;
pub(super) use card_service::CardService;
use housekeeping::Housekeeping;
use people::People;
use workers::Workers;

/// What the demo says about it.
pub(super) const INTRODUCTION: &str = "\
  Beside them works a company: Fennel Lane, a bakery with twelve shops. Its workers, machines, workflows,
  schedules and a branch of many children are what the page shows. One of its workers is killed every 30 s.
";

/// How long a worker of the company may go without renewing: so short that the jobs of one that was killed return while somebody watches.
const LEASE: Duration = Duration::from_secs(6);

/// The company at work.
pub(super) struct Bakery {
    arrivals: Arrivals,
    people: People,
    workers: Workers,
    /// Deletes what ended long ago, if the store is the demo's own.
    housekeeping: Option<Housekeeping>,
}

impl Bakery {
    /// Submits what there is to do at the start.
    pub(super) async fn open(
        engine: Engine,
        place: &Place,
        dir: &Path,
        service: CardService,
        statements: u32,
    ) -> anyhow::Result<Bakery> {
        let numbers = Numbers::new();
        let submitted = population::submit(&engine, &numbers, statements).await;
        submitted.context("the company's jobs cannot be submitted")?;
        people::begin(&engine).await?;
        Ok(Bakery {
            arrivals: Arrivals::new(engine.clone(), numbers),
            people: People::new(engine.clone(), service),
            workers: Workers::new(&place.url, dir, service),
            housekeeping: place.is_own.then(|| Housekeeping::new(engine, statements)),
        })
    }

    /// Works until the demo is stopped.
    pub(super) async fn run(self, mut stop: Stop) -> anyhow::Result<()> {
        let Bakery { mut arrivals, mut people, mut workers, housekeeping } = self;
        workers.start()?;
        let housekeeping = async {
            match housekeeping {
                Some(mut housekeeping) => housekeeping.run().await,
                None => std::future::pending().await,
            }
        };
        let work = async {
            tokio::try_join!(
                Box::pin(arrivals.run()),
                Box::pin(people.run()),
                Box::pin(workers.run()),
                Box::pin(housekeeping)
            )
        };
        let worked = tokio::select! {
            worked = work => worked.map(|_| ()),
            () = stop.requested() => Ok(()),
        };
        workers.stop().await;
        worked
    }
}

/// An engine that knows the company's kinds.
pub(super) fn builder(url: &str, service: CardService) -> Builder {
    let builder = Engine::builder(url).data(service).config(config("windlass demo".into()));
    let builder = kinds::add(builder);
    builder
        .machine::<complaint::Complaint>()
        .workflow::<wholesale::WholesaleOrder>()
        .workflow::<standing::StandingOrder>()
        .workflow::<branches::StatementRun>()
        .workflow::<branches::Stocktake>()
        .workflow::<branches::PriceList>()
}

fn config(name: String) -> Config {
    Config {
        name,
        lease: LEASE,
        renew_every: LEASE / 3,
        drain: Duration::from_secs(2),
        // The demo kills workers whatever they run; no job is to be blamed for it.
        max_crashes: u16::MAX,
        // The store may have jobs of others, which no setting of a demo must delete.
        retention: Retention::FOREVER,
        ..Config::default()
    }
}

/// Refuses a store in which others use the names of the company's queues: one of them is going to be paused.
pub(super) async fn check_store(engine: &Engine) -> anyhow::Result<()> {
    let own = engine.kinds();
    let counts = engine.inspect().state_counts().await?;
    let of_others = counts.iter().find(|count| {
        let is_own = own.iter().any(|kind| kind.kind == count.kind);
        count.jobs > 0 && !is_own && kinds::POOLS.iter().any(|(queue, _)| *queue == count.queue)
    });
    if let Some(count) = of_others {
        bail!(
            "the store has jobs of the kind {:?} in the queue {:?}, which the demo would use, too; give it a store of its own, or run it \
             with --exit",
            count.kind,
            count.queue
        );
    }
    Ok(())
}

/// The numbers of orders and complaints, each used once.
struct Numbers(AtomicU32);

impl Numbers {
    /// Begins with a number that follows from the time, so that a second demo on the same store has others.
    fn new() -> Numbers {
        let minutes = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() / 60;
        Numbers(AtomicU32::new(10_000 + (minutes % 80_000) as u32))
    }

    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Something that is done at even intervals.
struct Every {
    interval: Duration,
    next_at: Instant,
}

impl Every {
    /// For the first time after `first`.
    fn new(first: Duration, interval: Duration) -> Every {
        Every { interval, next_at: Instant::now() + first }
    }

    /// Whether it is due. If it was not asked for a while, it is due once.
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next_at;
        if is_due {
            self.next_at = now + self.interval;
        }
        is_due
    }
}
