//! Rate limits: named token buckets that pay for the starts of jobs.
//!
//! A bucket holds up to `burst` tokens and gains `rate` tokens per `per`. A claim charges it the weight of each job it takes. Jobs
//! of one bucket are claimed by rank; one that the bucket cannot pay for makes those behind it wait, so that heavy jobs are not
//! starved.
//!
//! All arithmetic is in integers: a level counts tokens times the microseconds of `per`. So nothing is rounded, and no job ever
//! starts too early.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Time, limits};

/// The largest rate or burst.
pub const MAX_TOKENS: u32 = 1_000_000;
/// The longest `per`: with [`MAX_TOKENS`], a level still fits in 64 bits.
pub const MAX_PER: Duration = Duration::from_secs(31 * 86_400);

/// Which rate limit pays for the starts of a job, and how many tokens a start costs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RateCharge {
    /// The limit's name.
    pub limit: String,
    /// How many tokens one start costs.
    #[serde(default = "one")]
    pub weight: u32,
}

impl RateCharge {
    /// A start costs one token of this limit.
    pub fn new(limit: impl Into<String>) -> RateCharge {
        RateCharge { limit: limit.into(), weight: 1 }
    }

    /// A start costs this many tokens.
    pub fn weight(self, weight: u32) -> RateCharge {
        RateCharge { weight, ..self }
    }
}

impl<S: Into<String>> From<S> for RateCharge {
    fn from(limit: S) -> RateCharge {
        RateCharge::new(limit)
    }
}

fn one() -> u32 {
    1
}

/// A named limit on how fast jobs are started.
///
/// ```
/// # use std::time::Duration;
/// # use windlass_model::{RateCharge, RateLimit};
/// // 20 tokens a second, of which at most 10 are spent at once.
/// let maps = RateLimit::per_second("maps", 20).burst(10);
/// let mails = RateLimit::per("mails", 500, Duration::from_secs(3_600));
/// // What a submit says: a start of this job costs 5 tokens of the limit.
/// let charge = RateCharge::new("maps").weight(5);
/// assert!(maps.check().is_ok() && mails.check().is_ok() && maps.check_weight(charge.weight).is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RateLimit {
    /// Its name.
    pub name: String,
    /// How many tokens it gains…
    pub rate: u32,
    /// …in this time.
    pub per: Duration,
    /// How many it holds at most: how many may start at once after a pause.
    pub burst: u32,
}

impl RateLimit {
    /// `rate` tokens a second, with a burst of `rate`.
    pub fn per_second(name: impl Into<String>, rate: u32) -> RateLimit {
        RateLimit { name: name.into(), rate, per: Duration::from_secs(1), burst: rate }
    }

    /// `rate` tokens per `per`, with a burst of `rate`.
    pub fn per(name: impl Into<String>, rate: u32, per: Duration) -> RateLimit {
        RateLimit { name: name.into(), rate, per, burst: rate }
    }

    /// Sets the burst.
    pub fn burst(self, burst: u32) -> RateLimit {
        RateLimit { burst, ..self }
    }

    /// Checks the name and the ranges.
    pub fn check(&self) -> Result<(), Invalid> {
        limits::check_name("rate limit", &self.name)?;
        let range = format!("use 1 to {MAX_TOKENS}; to stop a queue, pause it");
        for (what, tokens) in [("rate", self.rate), ("burst", self.burst)] {
            if tokens == 0 || tokens > MAX_TOKENS {
                let what = format!("the {what} of limit {:?}", self.name);
                return Err(limits::invalid(what, format!("is {tokens}"), range));
            }
        }
        if self.per < Duration::from_millis(1) || self.per > MAX_PER {
            let what = format!("the time of limit {:?}", self.name);
            return Err(limits::invalid(what, format!("is {:?}", self.per), "use 1 ms to 31 days"));
        }
        Ok(())
    }

    /// Checks that the bucket can ever pay for a job of this weight.
    pub fn check_weight(&self, weight: u32) -> Result<(), Invalid> {
        if (1..=self.burst).contains(&weight) {
            return Ok(());
        }
        let what = format!("the weight {weight} under limit {:?}", self.name);
        let why = match weight {
            0 => "is zero".to_owned(),
            _ => format!("is more than its burst of {}, so it could never be paid for", self.burst),
        };
        Err(limits::invalid(what, why, "give it a weight from 1 to the burst, or raise the burst"))
    }

    /// Returns what a job of this weight costs, in units of [`BucketLevel::units`]. A job that is heavier than the burst, because
    /// the burst was lowered while it waited, costs a full bucket: it is never stuck.
    pub fn cost(&self, weight: u32) -> i64 {
        self.units(weight.min(self.burst))
    }

    fn units(&self, tokens: u32) -> i64 {
        i64::from(tokens) * self.per.as_micros() as i64
    }
}

/// How full a bucket is at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketLevel {
    /// Tokens times the microseconds of the limit's `per`.
    pub units: i64,
    /// When it was this full.
    pub at: Time,
}

impl BucketLevel {
    /// A full bucket.
    pub fn full(limit: &RateLimit, at: Time) -> BucketLevel {
        BucketLevel { units: limit.units(limit.burst), at }
    }

    /// Returns the level at `now`. If the clock went back, nothing is added. If `at` is further in the future than an empty
    /// bucket takes to fill, it came from a wrong clock and is replaced by `now`.
    pub fn refilled(self, limit: &RateLimit, now: Time) -> BucketLevel {
        let full = limit.units(limit.burst);
        if self.at.micros() > now.micros().saturating_add(full / i64::from(limit.rate) + 1) {
            return BucketLevel { at: now, ..self };
        }
        let gained =
            i128::from(now.micros().saturating_sub(self.at.micros()).max(0)) * i128::from(limit.rate);
        let units = (i128::from(self.units) + gained).min(i128::from(full)) as i64;
        BucketLevel { units, at: now.max(self.at) }
    }

    /// Returns the level after it paid for a start; `None` if there are not enough tokens.
    pub fn charged(self, limit: &RateLimit, weight: u32) -> Option<BucketLevel> {
        let units = self.units - limit.cost(weight);
        (units >= 0).then_some(BucketLevel { units, ..self })
    }

    /// Returns the number of tokens, rounded down.
    pub fn tokens(self, limit: &RateLimit) -> i64 {
        self.units / limit.per.as_micros() as i64
    }

    /// Returns when a worker should claim again for a job of this weight: when the bucket can pay for it, but not before it is
    /// half full. So jobs are claimed in batches, and the bucket does not overflow meanwhile.
    pub fn next_claim_at(self, limit: &RateLimit, weight: u32) -> Time {
        let units = limit.cost(weight).max(limit.units(limit.burst) / 2);
        self.reaches_at(limit, units)
    }

    /// Returns when the bucket can pay for a job of this weight.
    pub fn affordable_at(self, limit: &RateLimit, weight: u32) -> Time {
        self.reaches_at(limit, limit.cost(weight))
    }

    fn reaches_at(self, limit: &RateLimit, units: i64) -> Time {
        let missing = (units - self.units).max(0);
        let rate = i64::from(limit.rate);
        Time(self.at.micros().saturating_add(missing / rate + i64::from(missing % rate != 0)))
    }

    /// Returns the level after the limit was changed: as many tokens as before, up to the new burst.
    pub fn converted(self, old: &RateLimit, new: &RateLimit, now: Time) -> BucketLevel {
        let refilled = self.refilled(old, now);
        let tokens = refilled.tokens(old);
        let units = tokens.saturating_mul(new.per.as_micros() as i64).min(new.units(new.burst));
        BucketLevel { units, at: refilled.at }
    }
}

/// A bucket while one claim takes jobs by rank.
///
/// Jobs of a limit that was lifted cost nothing. Otherwise the bucket pays for one job after the other; from the first job that it
/// cannot pay for, all jobs of the limit wait, however light they are.
#[derive(Clone, Debug)]
pub struct ClaimBucket {
    limit: RateLimit,
    level: BucketLevel,
    is_lifted: bool,
    is_charged: bool,
    refill_at: Option<Time>,
}

impl ClaimBucket {
    /// Makes the bucket of a claim at `now` from the level that is stored.
    pub fn new(limit: RateLimit, level: BucketLevel, is_lifted: bool, now: Time) -> ClaimBucket {
        let level = level.refilled(&limit, now);
        ClaimBucket { limit, level, is_lifted, is_charged: false, refill_at: None }
    }

    /// Returns at most how many jobs it can pay for; `None` if the limit was lifted. A job costs at least one token.
    pub fn affordable_jobs(&self) -> Option<usize> {
        (!self.is_lifted).then(|| usize::try_from(self.level.tokens(&self.limit)).unwrap_or(0))
    }

    /// Pays for the next job by rank. Returns whether the claim may take the job.
    pub fn pay(&mut self, weight: u32) -> bool {
        if self.is_lifted || self.refill_at.is_some() {
            return self.is_lifted;
        }
        match self.level.charged(&self.limit, weight) {
            Some(level) => (self.level, self.is_charged) = (level, true),
            None => self.refill_at = Some(self.level.next_claim_at(&self.limit, weight)),
        }
        self.refill_at.is_none()
    }

    /// Returns when to claim again for jobs that wait; `None` if none does.
    pub fn refill_at(&self) -> Option<Time> {
        self.refill_at
    }

    /// Returns the level after what it paid.
    pub fn level(&self) -> BucketLevel {
        self.level
    }

    /// Whether it has paid for a job, so that the store must write its level.
    pub fn is_charged(&self) -> bool {
        self.is_charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Time = Time(1_800_000_000_000_000);

    #[test]
    fn no_window_admits_more_than_rate_and_burst() {
        let limit = RateLimit::per_second("api", 7).burst(5);
        let mut level = BucketLevel::full(&limit, BEGIN);
        let mut admitted: Vec<(Time, u32)> = Vec::new();
        // Charge every 3 ms, as much as the bucket pays for, with varying weights.
        for step in 0..5_000 {
            let now = BEGIN + Duration::from_millis(3 * step);
            level = level.refilled(&limit, now);
            let weight = 1 + (step % 5) as u32;
            if let Some(charged) = level.charged(&limit, weight) {
                level = charged;
                admitted.push((now, weight));
            }
        }
        for (start, _) in &admitted {
            let until = *start + Duration::from_secs(1);
            let sum: u32 =
                admitted.iter().filter(|(at, _)| at >= start && *at <= until).map(|(_, w)| w).sum();
            assert!(sum <= 12, "{sum} within a second");
        }
        let total: u32 = admitted.iter().map(|(_, weight)| weight).sum();
        assert!(total >= 7 * 14, "{total} in 15 s");
    }

    #[test]
    fn a_claim_takes_jobs_by_rank_until_one_cannot_be_paid_for() {
        let limit = RateLimit::per_second("api", 1).burst(5);
        let mut bucket = ClaimBucket::new(limit.clone(), BucketLevel::full(&limit, BEGIN), false, BEGIN);
        assert_eq!(
            (bucket.affordable_jobs(), bucket.is_charged(), bucket.refill_at()),
            (Some(5), false, None)
        );
        assert!(bucket.pay(2) && bucket.pay(1) && bucket.is_charged());
        assert!(!bucket.pay(3), "two tokens are left");
        assert!(!bucket.pay(1), "a lighter job does not overtake it");
        assert_eq!(bucket.refill_at(), Some(BEGIN + Duration::from_secs(1)), "when three tokens are there");
        assert_eq!(bucket.level().tokens(&limit), 2, "what waits is not charged");
    }

    #[test]
    fn a_bucket_that_pays_nothing_need_not_be_written() {
        let limit = RateLimit::per_second("api", 1);
        let empty = BucketLevel { units: 0, at: BEGIN };
        let mut bucket = ClaimBucket::new(limit.clone(), empty, false, BEGIN);
        assert_eq!(bucket.affordable_jobs(), Some(0));
        assert!(!bucket.pay(1) && !bucket.is_charged());
        let mut refilled = ClaimBucket::new(limit, empty, false, BEGIN + Duration::from_secs(1));
        assert!(refilled.pay(1), "it has gained a token since");
    }

    #[test]
    fn jobs_of_a_lifted_limit_cost_nothing() {
        let limit = RateLimit::per_second("api", 1);
        let empty = BucketLevel { units: 0, at: BEGIN };
        let mut bucket = ClaimBucket::new(limit, empty, true, BEGIN);
        assert_eq!(bucket.affordable_jobs(), None);
        assert!((0..9).all(|_| bucket.pay(1)));
        assert_eq!((bucket.is_charged(), bucket.refill_at(), bucket.level()), (false, None, empty));
    }

    #[test]
    fn times_are_exact_and_a_long_pause_does_not_overflow() {
        let limit = RateLimit::per("slow", 3, Duration::from_secs(60)).burst(2);
        let empty = BucketLevel { units: 0, at: BEGIN };
        assert_eq!(empty.affordable_at(&limit, 1), BEGIN + Duration::from_secs(20));
        let at = empty.affordable_at(&limit, 2);
        assert!(empty.refilled(&limit, at).charged(&limit, 2).is_some());
        assert!(empty.refilled(&limit, Time(at.0 - 1)).charged(&limit, 2).is_none());
        let century = BEGIN + Duration::from_secs(100 * 365 * 86_400);
        assert_eq!(empty.refilled(&limit, century), BucketLevel::full(&limit, century));
        assert_eq!(empty.refilled(&limit, BEGIN - Duration::from_secs(9)), empty);
        let hour = BEGIN - Duration::from_secs(3_600);
        assert_eq!(
            empty.refilled(&limit, hour),
            BucketLevel { units: 0, at: hour },
            "an hour ahead is a wrong clock"
        );
    }

    #[test]
    fn a_changed_limit_keeps_its_tokens_and_never_blocks_heavy_jobs() {
        let old = RateLimit::per_second("api", 10).burst(10);
        let new = RateLimit::per("api", 1, Duration::from_secs(2)).burst(4);
        let level = BucketLevel::full(&old, BEGIN).converted(&old, &new, BEGIN);
        assert_eq!(level.tokens(&new), 4);
        assert!(level.charged(&new, 9).is_some(), "costs a full bucket at most");
        assert!(new.check_weight(5).unwrap_err().to_string().contains("burst of 4"));
        assert!(RateLimit::per_second("api", 0).check().unwrap_err().to_string().contains("is 0"));
    }
}
