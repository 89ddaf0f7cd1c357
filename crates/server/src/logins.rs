//! How often somebody may try to log in: after a few failures a wait that grows, for each user name and for each client address.
//!
//! A pure rule: the time is an argument. An attempt counts as failed from its beginning, so that many attempts at once are no way around
//! the wait; [`Logins::succeeded`] takes it back. The wait for a name protects one user from a guesser with many addresses, the wait for an
//! address all users from a guesser of common passwords. A wait is never longer than [`LONGEST`], because whoever knows a user's name can
//! cause it.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::rate::network;

/// How many attempts in a row may fail before the next one has to wait: a person who knows the password seldom needs more.
const FREE: u32 = 5;
/// The first wait. Each further failure doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait: then a guesser makes a hundred attempts a day, and a user who was locked out is back in a quarter of an hour.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// After this long without an attempt the failures are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// The most names and the most addresses that are remembered, some 500 kB each.
const MOST: usize = 10_000;

/// The failures of all names and addresses.
pub(crate) struct Logins {
    /// Names are remembered by a hash that nobody outside can predict: they may be long, and are chosen by whoever tries.
    hasher: RandomState,
    failures: Mutex<Both>,
}

#[derive(Default)]
struct Both {
    names: Failures<u64>,
    addresses: Failures<IpAddr>,
}

impl Logins {
    /// Nobody has failed yet.
    pub(crate) fn new() -> Logins {
        Logins { hasher: RandomState::new(), failures: Mutex::default() }
    }

    /// Begins an attempt, which counts as failed until [`Logins::succeeded`]. If it is too early for one, returns how long to wait, and
    /// counts nothing.
    pub(crate) fn begin(&self, name: &str, client: IpAddr, now: Instant) -> Result<(), Duration> {
        let (name, address) = (self.hasher.hash_one(name), network(client));
        let mut both = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = both.names.wait(&name, now).max(both.addresses.wait(&address, now));
        if !wait.is_zero() {
            return Err(wait);
        }
        both.names.count(name, now);
        both.addresses.count(address, now);
        Ok(())
    }

    /// Takes the attempt back: it has succeeded. The failures of the name end with it. Those of the address do not: otherwise a guesser
    /// with a login of their own would have no wait.
    pub(crate) fn succeeded(&self, name: &str, client: IpAddr) {
        let mut both = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        both.names.end(&self.hasher.hash_one(name));
        both.addresses.take_back(&network(client));
    }
}

/// The failures of one sort of key.
struct Failures<K>(HashMap<K, Row>);

/// Failures in a row.
#[derive(Clone, Copy)]
struct Row {
    count: u32,
    last: Instant,
}

impl<K> Default for Failures<K> {
    fn default() -> Failures<K> {
        Failures(HashMap::new())
    }
}

impl Row {
    /// When the next attempt may be made.
    fn next(self) -> Instant {
        self.last + wait_after(self.count)
    }

    fn is_forgotten(self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= FORGOTTEN_AFTER
    }
}

/// How long the attempt after this many failures in a row has to wait.
fn wait_after(failures: u32) -> Duration {
    match failures.checked_sub(FREE) {
        None => Duration::ZERO,
        Some(more) => FIRST.saturating_mul(2_u32.saturating_pow(more)).min(LONGEST),
    }
}

impl<K: Eq + Hash + Copy> Failures<K> {
    fn wait(&self, key: &K, now: Instant) -> Duration {
        let row = self.0.get(key).filter(|row| !row.is_forgotten(now));
        row.map_or(Duration::ZERO, |row| row.next().saturating_duration_since(now))
    }

    fn count(&mut self, key: K, now: Instant) {
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            self.make_room(now);
        }
        let row = self.0.entry(key).or_insert(Row { count: 0, last: now });
        if row.is_forgotten(now) {
            row.count = 0;
        }
        *row = Row { count: row.count.saturating_add(1), last: now };
    }

    /// Forgets what is old, or else a tenth of those that failed least: a flood of invented names must not push out the name that is
    /// being guessed.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, row| !row.is_forgotten(now));
        if self.0.len() < MOST {
            return;
        }
        let mut rows: Vec<(u32, Instant, K)> =
            self.0.iter().map(|(key, row)| (row.count, row.last, *key)).collect();
        rows.sort_unstable_by_key(|(count, last, _)| (*count, *last));
        for (_, _, key) in &rows[..MOST / 10] {
            self.0.remove(key);
        }
    }

    fn end(&mut self, key: &K) {
        self.0.remove(key);
    }

    fn take_back(&mut self, key: &K) {
        let Some(row) = self.0.get_mut(key) else { return };
        row.count = row.count.saturating_sub(1);
        if row.count == 0 {
            self.0.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Makes attempts that fail, each as soon as it may be made, and returns the waits before them in seconds.
    fn waits(logins: &Logins, name: &str, client: &str, at: &mut Instant, attempts: usize) -> Vec<u64> {
        let mut waits = Vec::new();
        for _ in 0..attempts {
            let wait = logins.begin(name, ip(client), *at).err().unwrap_or_default();
            if !wait.is_zero() {
                *at += wait;
                logins.begin(name, ip(client), *at).expect("the wait is over");
            }
            waits.push(wait.as_secs());
        }
        waits
    }

    #[test]
    fn after_five_failures_the_wait_grows_to_a_quarter_of_an_hour() {
        let (logins, mut now) = (Logins::new(), Instant::now());
        let waits = waits(&logins, "eve", "10.0.0.1", &mut now, 20);
        assert_eq!(waits[..9], [0, 0, 0, 0, 0, 1, 2, 4, 8]);
        assert_eq!(waits[14..], [512, 900, 900, 900, 900, 900]);
    }

    #[test]
    fn a_name_waits_for_all_addresses_and_an_address_for_all_names() {
        let (logins, now) = (Logins::new(), Instant::now());
        for n in 0..5 {
            logins.begin("eve", ip(&format!("10.0.0.{n}")), now).expect("a free attempt");
        }
        assert_eq!(logins.begin("eve", ip("10.0.0.9"), now), Err(secs(1)));
        logins.begin("bob", ip("10.0.0.9"), now).expect("another name");
        for n in 0..5 {
            logins.begin(&format!("name-{n}"), ip("10.1.1.1"), now).expect("a free attempt");
        }
        assert_eq!(logins.begin("other", ip("10.1.1.1"), now), Err(secs(1)));
        logins.begin("other", ip("10.1.1.2"), now).expect("another address");
    }

    #[test]
    fn attempts_at_once_are_counted_before_they_fail() {
        let (logins, now) = (Logins::new(), Instant::now());
        let begun = (0..100).filter(|_| logins.begin("eve", ip("10.0.0.1"), now).is_ok()).count();
        assert_eq!(begun, 5);
        assert_eq!(logins.begin("eve", ip("10.0.0.1"), now), Err(secs(1)), "refused attempts do not count");
        assert!(logins.begin("eve", ip("10.0.0.1"), now + secs(1)).is_ok());
    }

    #[test]
    fn a_success_ends_the_failures_of_the_name_and_takes_one_back_from_the_address() {
        let (logins, mut now) = (Logins::new(), Instant::now());
        assert_eq!(waits(&logins, "eve", "10.0.0.1", &mut now, 6), [0, 0, 0, 0, 0, 1]);
        logins.succeeded("eve", ip("10.0.0.1"));
        assert_eq!(logins.begin("eve", ip("10.0.0.2"), now), Ok(()), "the name has no failures any more");
        assert_eq!(logins.begin("other", ip("10.0.0.1"), now), Err(secs(1)), "five are left of the address");
        for _ in 0..50 {
            now += secs(1);
            logins.begin("mallory", ip("10.0.0.1"), now).expect("after a second");
            logins.succeeded("mallory", ip("10.0.0.1"));
        }
        assert_eq!(logins.begin("eve", ip("10.0.0.1"), now), Err(secs(1)), "a login of one's own is no help");
        logins.succeeded("nobody", ip("10.9.9.9"));
    }

    #[test]
    fn failures_are_forgotten_after_an_hour() {
        let (logins, mut now) = (Logins::new(), Instant::now());
        waits(&logins, "eve", "10.0.0.1", &mut now, 20);
        now += FORGOTTEN_AFTER;
        assert_eq!(waits(&logins, "eve", "10.0.0.1", &mut now, 6), [0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn addresses_of_one_v6_network_are_one_client() {
        let (logins, now) = (Logins::new(), Instant::now());
        for n in 1..=5 {
            logins.begin(&n.to_string(), ip(&format!("2001:db8::{n}")), now).expect("a free attempt");
        }
        assert_eq!(logins.begin("eve", ip("2001:db8::9"), now), Err(secs(1)));
        logins.begin("eve", ip("2001:db8:0:1::9"), now).expect("another network");
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_does_not_push_out_the_name_that_is_guessed() {
        let (logins, mut now) = (Logins::new(), Instant::now());
        waits(&logins, "eve", "10.0.0.1", &mut now, 8);
        for n in 0..50_000_u32 {
            let client = IpAddr::from(std::net::Ipv4Addr::from(0x0b00_0000 + n));
            logins.begin(&format!("name-{n}"), client, now).expect("a free attempt");
        }
        {
            let both = logins.failures.lock().expect("not poisoned");
            assert!(both.names.0.len() <= MOST && both.addresses.0.len() <= MOST);
        }
        assert_eq!(logins.begin("eve", ip("10.2.2.2"), now), Err(secs(8)));
        assert_eq!(logins.begin("other", ip("10.0.0.1"), now), Err(secs(8)));
        now += FORGOTTEN_AFTER;
        logins.begin("late", ip("10.3.3.3"), now).expect("a free attempt");
        let both = logins.failures.lock().expect("not poisoned");
        assert!(both.names.0.len() <= MOST, "what is old makes room");
    }
}
