//! Free loopback ports.
//!
//! A port given out was free a moment ago; only the server's own bind can tell for sure, so the caller
//! must be ready to ask for another. Ports below the range that the system uses for outgoing connections
//! are preferred: a client that keeps on dialling a dead server inside that range can be given the
//! server's own port as its source and so connect to itself, and the server could not come back.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};

use crate::error::Error;

/// No lower port is given out; services with fixed ports live mostly below it.
const LOWEST: u16 = 11_000;
/// How many ports are tried before the system is asked for one.
const TRIES: u32 = 64;

/// A port of 127.0.0.1 on which nothing listens now.
pub(crate) fn free() -> Result<u16, Error> {
    let span = first_outgoing().saturating_sub(LOWEST);
    if span >= 1_000 {
        let random = RandomState::new();
        for n in 0..TRIES {
            let pick = random.hash_one((n, std::process::id())) % u64::from(span);
            let port = LOWEST + u16::try_from(pick).unwrap_or(0);
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::NoPort)?;
    Ok(listener.local_addr().map_err(Error::NoPort)?.port())
}

/// The lowest port that the system uses for outgoing connections.
fn first_outgoing() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free().unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
