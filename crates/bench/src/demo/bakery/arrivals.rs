//! What comes in while the demo runs: some of everything, in small waves, more of it in the first minute.

use std::{
    collections::HashMap,
    f64::consts::TAU,
    time::{Duration, Instant},
};

use windlass::{Engine, Error, States, Unique, span::seconds};

use super::{
    Every, Numbers,
    kinds::{BAKERY, LETTERS, MAIL, OFFICE, PAYMENTS, SHOPS, bakery::PrintLabel, shops::UpdateMenu},
    population::{card, complain, letter, mail, order, route},
};

/// How often it is decided what has come in.
const TICK: Duration = Duration::from_millis(500);
/// In the first minute more comes in, so that there is soon something to see.
const BURST: Duration = Duration::from_secs(60);
const BURST_FACTOR: f64 = 3.0;
/// The time from one wave to the next.
const WAVE: Duration = Duration::from_secs(180);
/// A queue with more unfinished jobs gets no more: that of the letters is paused, and a machine may be too slow for the others.
const MOST_UNFINISHED: u64 = 2_000;

/// Something that comes in again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrival {
    Label,
    Menu,
    Route,
    Card,
    Mail,
    Letter,
    Order,
    Complaint,
}

/// What comes in, into which queue, how often in a second.
const RATES: [(Arrival, &str, f64); 8] = [
    (Arrival::Label, BAKERY, 3.0),
    (Arrival::Menu, SHOPS, 0.6),
    (Arrival::Route, BAKERY, 0.1),
    (Arrival::Card, PAYMENTS, 0.6),
    (Arrival::Mail, MAIL, 0.8),
    (Arrival::Letter, LETTERS, 0.03),
    (Arrival::Order, OFFICE, 0.1),
    (Arrival::Complaint, OFFICE, 0.2),
];

pub(super) struct Arrivals {
    engine: Engine,
    numbers: Numbers,
    began: Instant,
    /// The parts of arrivals that have not added up to one yet.
    owed: [f64; RATES.len()],
    ticked_at: Instant,
    counts: Every,
    unfinished: HashMap<String, u64>,
}

impl Arrivals {
    pub(super) fn new(engine: Engine, numbers: Numbers) -> Arrivals {
        let now = Instant::now();
        let counts = Every::new(Duration::ZERO, Duration::from_secs(10));
        Arrivals {
            engine,
            numbers,
            began: now,
            owed: Default::default(),
            ticked_at: now,
            counts,
            unfinished: HashMap::new(),
        }
    }

    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tick().await?;
        }
    }

    async fn tick(&mut self) -> anyhow::Result<()> {
        if self.counts.is_due() {
            self.count().await?;
        }
        // If a tick took long, what it kept out does not come in at once.
        let elapsed = self.ticked_at.elapsed().min(TICK * 4);
        self.ticked_at = Instant::now();
        let factor = factor(self.began.elapsed());
        for (nth, (arrival, queue, per_second)) in RATES.into_iter().enumerate() {
            if self.unfinished.get(queue).is_some_and(|count| *count > MOST_UNFINISHED) {
                continue;
            }
            // Not evenly: from none to twice as many.
            self.owed[nth] += per_second * factor * elapsed.as_secs_f64() * fastrand::f64() * 2.0;
            while self.owed[nth] >= 1.0 {
                self.owed[nth] -= 1.0;
                self.submit(arrival).await?;
            }
        }
        Ok(())
    }

    async fn count(&mut self) -> anyhow::Result<()> {
        self.unfinished.clear();
        for count in self.engine.inspect().state_counts().await? {
            // Parked jobs cost nothing.
            if !count.state.is_final() && count.state != windlass::State::Waiting {
                *self.unfinished.entry(count.queue).or_default() += count.jobs;
            }
        }
        Ok(())
    }

    async fn submit(&self, arrival: Arrival) -> Result<(), Error> {
        let engine = &self.engine;
        match arrival {
            Arrival::Label => {
                let label = PrintLabel { recipe: fastrand::u32(0..1_000), pieces: fastrand::u32(6..90) };
                engine.submit(label).await?;
            }
            Arrival::Menu => {
                let product = fastrand::u32(1..60);
                let update = engine.submit(UpdateMenu { product, change: fastrand::u32(..) });
                let unique = Unique::new(format!("product-{product}")).scope(States::PENDING).or_replace();
                match update.unique(unique).delay(seconds(6)).await {
                    // The page is being written now; the change after this one writes it again.
                    Ok(_) | Err(Error::Rejected(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Arrival::Route => {
                let (van, stops) = (fastrand::u8(1..9), fastrand::u32(12..58));
                // Now and then somebody plans all vans as one.
                let stops = if fastrand::u8(0..40) == 0 { 140 } else { stops };
                let urgency = fastrand::i16(-30..=10);
                engine.submit(route(van, stops)).tag(format!("van-{van:02}")).priority(urgency).await?;
            }
            Arrival::Card => {
                engine.submit(card()).rate(PAYMENTS).await?;
            }
            Arrival::Mail => {
                let subject =
                    fastrand::choice(["Your order is confirmed", "Your receipt", "Ready to collect"]);
                engine.submit(mail(subject.unwrap_or_default())).rate(MAIL).await?;
            }
            Arrival::Letter => {
                engine.submit(letter()).await?;
            }
            Arrival::Order => order(engine, self.numbers.next()).await?,
            Arrival::Complaint => complain(engine, self.numbers.next()).await?,
        }
        Ok(())
    }
}

/// How many times as much as usual comes in.
fn factor(elapsed: Duration) -> f64 {
    let burst = if elapsed < BURST { BURST_FACTOR } else { 1.0 };
    burst * (1.0 + 0.5 * (elapsed.as_secs_f64() / WAVE.as_secs_f64() * TAU).sin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_comes_in_at_first_and_then_in_waves() {
        assert!(factor(Duration::from_secs(30)) > 3.0);
        let later = |seconds| factor(10 * WAVE + Duration::from_secs(seconds));
        assert!(later(45) > 1.4 && later(135) < 0.6);
    }
}
