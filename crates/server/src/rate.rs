//! How many requests a client may send: a bucket of tokens for each.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The most clients that are remembered. Beyond, the ones that have sent nothing lately are forgotten, and then all.
const MAX_CLIENTS: usize = 20_000;
/// How many seconds' worth of requests a client may send at once.
const BURST_SECONDS: f64 = 2.0;

/// The buckets of all clients.
pub(crate) struct RateLimiter {
    per_second: f64,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl RateLimiter {
    /// Limits each client to `per_second` requests; 0 sets no limit.
    pub(crate) fn new(per_second: u32) -> RateLimiter {
        RateLimiter { per_second: f64::from(per_second), buckets: Mutex::default() }
    }

    /// Takes a token from the bucket of a client. Returns whether there was one.
    pub(crate) fn admit(&self, client: IpAddr, now: Instant) -> bool {
        if self.per_second == 0.0 {
            return true;
        }
        let most = self.most();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_CLIENTS {
            let full_since = now.checked_sub(Duration::from_secs_f64(BURST_SECONDS));
            buckets.retain(|_, bucket| full_since.is_some_and(|since| bucket.at > since));
            if buckets.len() >= MAX_CLIENTS {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(network(client)).or_insert(Bucket { tokens: most, at: now });
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * self.per_second;
        bucket.tokens = (bucket.tokens + gained).min(most);
        bucket.at = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }

    /// Returns a token that a client took for nothing.
    pub(crate) fn give_back(&self, client: IpAddr) {
        let most = self.most();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(&network(client)) {
            bucket.tokens = (bucket.tokens + 1.0).min(most);
        }
    }

    fn most(&self) -> f64 {
        (self.per_second * BURST_SECONDS).max(1.0)
    }
}

/// The address that stands for a client: whoever has an IPv6 address has a whole /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_client_may_send_a_burst_and_then_the_rate() {
        let limiter = RateLimiter::new(10);
        let start = Instant::now();
        let admitted = |client: &str, at: Duration, tries: usize| {
            (0..tries).filter(|_| limiter.admit(ip(client), start + at)).count()
        };
        assert_eq!(admitted("10.0.0.1", Duration::ZERO, 50), 20);
        assert_eq!(admitted("10.0.0.2", Duration::ZERO, 50), 20, "another client has its own bucket");
        assert_eq!(admitted("10.0.0.1", Duration::from_millis(500), 50), 5);
        assert_eq!(admitted("10.0.0.1", Duration::from_secs(100), 50), 20);
    }

    #[test]
    fn a_token_that_is_given_back_can_be_taken_again() {
        let (limiter, now) = (RateLimiter::new(1), Instant::now());
        for _ in 0..9 {
            assert!(limiter.admit(ip("10.0.0.1"), now));
            limiter.give_back(ip("10.0.0.1"));
        }
        assert!(limiter.admit(ip("10.0.0.1"), now) && limiter.admit(ip("10.0.0.1"), now));
        assert!(!limiter.admit(ip("10.0.0.1"), now));
    }

    #[test]
    fn addresses_of_one_v6_network_share_a_bucket() {
        let limiter = RateLimiter::new(1);
        let now = Instant::now();
        assert!(limiter.admit(ip("2001:db8::1"), now) && limiter.admit(ip("2001:db8::2"), now));
        assert!(!limiter.admit(ip("2001:db8::3"), now));
        assert!(limiter.admit(ip("2001:db8:0:1::1"), now));
    }

    #[test]
    fn no_more_clients_are_remembered_than_the_most() {
        let limiter = RateLimiter::new(1);
        let now = Instant::now();
        for client in 0..50_000_u32 {
            limiter.admit(IpAddr::V4(client.into()), now);
        }
        assert!(limiter.buckets.lock().expect("no panic").len() <= MAX_CLIENTS);
    }

    #[test]
    fn zero_sets_no_limit() {
        let limiter = RateLimiter::new(0);
        assert!((0..10_000).all(|_| limiter.admit(ip("10.0.0.1"), Instant::now())));
    }
}
