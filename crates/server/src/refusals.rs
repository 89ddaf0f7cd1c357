//! The log of refused requests: who was refused what, without letting whoever sends many of them fill the log.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::Method;

use crate::{
    error::{Error, ErrorKind},
    rate::network,
};

/// How long refusals are counted before they are logged again.
const WINDOW: Duration = Duration::from_secs(10);
/// How many refusals of one client are logged in that time.
const LINES_PER_CLIENT: u32 = 5;
/// How many are logged of all clients.
const LINES: u32 = 100;

/// Counts what was logged.
#[derive(Default)]
pub(crate) struct Refusals {
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    clients: HashMap<IpAddr, u32>,
    /// How many were refused and not logged.
    left_out: u64,
}

/// What is logged of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    /// Whether it is logged itself.
    is_logged: bool,
    /// How many were not in the last window, if this is the first after it.
    left_out: u64,
}

impl Refusals {
    /// Logs that a request was refused, if it was for want of permission or because there are too many. `author` is who sent it, or the name of
    /// the token that is not accepted any more.
    pub(crate) fn log(&self, error: &Error, client: IpAddr, author: &str, method: &Method, path: &str) {
        let is_attempt = match error.kind() {
            ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::WrongHost => true,
            ErrorKind::TooMany => false,
            _ => return,
        };
        let Line { is_logged, left_out } = self.count(client, Instant::now());
        if left_out > 0 {
            tracing::warn!(left_out, "more requests were refused than were logged");
        }
        if !is_logged {
            return;
        }
        let (code, why) = (error.kind().code(), error.message());
        if is_attempt {
            tracing::warn!(%client, author, %method, path, code, why, "refused");
        } else {
            tracing::info!(%client, author, %method, path, code, why, "refused");
        }
    }

    fn count(&self, client: IpAddr, now: Instant) -> Line {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        if window.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            left_out = window.left_out;
            *window = Window { began: Some(now), ..Window::default() };
        }
        // Of more clients than there are lines, no more need to be known.
        let is_logged = window.lines < LINES && {
            let lines = window.clients.entry(network(client)).or_default();
            *lines += 1;
            *lines <= LINES_PER_CLIENT
        };
        if is_logged {
            window.lines += 1;
        } else {
            window.left_out += 1;
        }
        Line { is_logged, left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_a_few_lines_and_a_number() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let client = |number: u32| IpAddr::V4(number.into());
        let logged = |number: u32, times: usize| {
            (0..times).filter(|_| refusals.count(client(number), start).is_logged).count()
        };
        assert_eq!((logged(1, 1_000), logged(2, 2)), (LINES_PER_CLIENT as usize, 2));
        let others: usize = (3..10_000).map(|number| logged(number, 1)).sum();
        assert_eq!(others, LINES as usize - 7);
        let later = refusals.count(client(1), start + WINDOW);
        let refused = 1_000 + 2 + 9_997;
        assert_eq!(later, Line { is_logged: true, left_out: refused - u64::from(LINES) });
        assert_eq!(refusals.count(client(2), start + WINDOW), Line { is_logged: true, left_out: 0 });
    }
}
