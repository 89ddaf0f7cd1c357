//! What a server is started with, and what it refuses to start with.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use windlass::{model::Invalid, operate::views::PAGE_BYTES};

use crate::alerts::alert_loop::AlertSettings;

/// Settings of a server. [`Settings::default`] listens on loopback, for this machine alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen. Port 0 chooses a free port.
    pub listen: SocketAddr,
    /// The names by which clients call this server, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    pub trusted_proxies: Vec<Network>,
    /// Certificate and key for TLS.
    pub tls: Option<TlsFiles>,
    /// Whether a login is needed on a loopback address too. Elsewhere, and behind a proxy, one always is.
    pub login: bool,
    /// The most bytes of a request's body.
    pub body_limit: usize,
    /// How long a request may take, without the time that it asks to wait.
    pub request_timeout: Duration,
    /// How long the head, and then the body, of a request may take to arrive.
    pub read_timeout: Duration,
    /// How long a client may take to accept bytes of a response.
    pub write_timeout: Duration,
    /// The longest time that a request may ask to wait for a result.
    pub max_wait: Duration,
    /// How many requests a client (an IPv4 address, or a /64 of IPv6) may send per second; 0 for any number. It may send two
    /// seconds' worth at once. Its workers may send 20 times as many calls.
    pub rate: u32,
    /// How many tokens that are not accepted a client may send per second; 0 for any number. It may send two seconds' worth at once. Then
    /// only tokens that were accepted before are looked up for it.
    pub failed_tokens: u32,
    /// The most connections at the same time.
    pub max_connections: usize,
    /// The most connections of one client (an IPv4 address, or a /64 of IPv6) at the same time; 0 for any number. Loopback addresses and
    /// trusted proxies have no limit.
    pub max_client_connections: usize,
    /// The most requests that run at the same time. Streams and waiting requests do not count.
    pub max_requests: usize,
    /// The most streams of events and waiting requests at the same time.
    pub max_streams: usize,
    /// The name of the installation, which pages show: `production`. May be empty.
    pub place: String,
    /// The most streams and waiting requests of one client at the same time; 0 for any number. Loopback addresses have no limit.
    pub max_client_streams: usize,
    /// How many bytes the bodies of all requests have at the same time. More wait.
    pub max_body_bytes: usize,
    /// How many bytes the bodies of one client's requests have at the same time. More wait.
    pub max_client_body_bytes: usize,
    /// The most bytes of payloads in a page of an answer. One row is in it however large it is.
    pub page_bytes: u64,
    /// How long requests may take to end after the stop was requested.
    pub drain: Duration,
    /// The address by which people reach this server, with a path if a proxy adds one: messages about alerts link to it. By default it is
    /// concluded from the first of `hosts` and the address.
    pub public_url: Option<String>,
    /// Which alert rules this server evaluates while it runs; none if `None`.
    pub alerts: Option<AlertSettings>,
    /// Whether calls of workers may name the time at which they take place: for the conformance suite, which needs to.
    #[cfg(feature = "test-time")]
    pub accepts_times: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 7077)),
            hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            tls: None,
            login: false,
            // A thousand jobs with inputs of 8 kB.
            body_limit: 8 << 20,
            request_timeout: Duration::from_secs(30),
            read_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(60),
            max_wait: Duration::from_secs(60),
            rate: 1_000,
            failed_tokens: 10,
            max_connections: 4_096,
            max_client_connections: 1_024,
            max_requests: 256,
            max_streams: 3_000,
            place: String::new(),
            max_client_streams: 1_000,
            // Sixteen full batches of workers.
            max_body_bytes: 512 << 20,
            max_client_body_bytes: 128 << 20,
            page_bytes: PAGE_BYTES,
            drain: Duration::from_secs(10),
            public_url: None,
            alerts: None,
            #[cfg(feature = "test-time")]
            accepts_times: false,
        }
    }
}

impl Settings {
    /// Whether every request needs a login.
    pub(crate) fn needs_login(&self) -> bool {
        self.login || !self.listen.ip().is_loopback() || !self.trusted_proxies.is_empty()
    }
}

/// The files of a certificate chain and its private key, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate and those that it depends on, the server's own first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A network of IP addresses: an address with the length of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                u32::from(network) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                u128::from(network) & mask == u128::from(address) & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let invalid =
            || format!("{text:?} is not an address or a network; write it as 10.0.0.1 or 10.0.0.0/8");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| invalid())?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(most);
        if prefix > most {
            return Err(invalid());
        }
        Ok(Network { address, prefix })
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It would be open to everyone.
    #[error(
        "{0} can be reached by others, and there is no user or token to tell them apart; create a user with `windlass users create \
         NAME --role admin` or a token with `windlass tokens create NAME --role admin`, or listen on 127.0.0.1"
    )]
    NoLogins(SocketAddr),
    /// It cannot listen there.
    #[error("the server cannot listen on {0} ({1}); choose another address with --listen HOST:PORT")]
    Listen(SocketAddr, std::io::Error),
    /// The certificate or the key cannot be used.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// An alert rule cannot be evaluated.
    #[error(transparent)]
    Alerts(#[from] Invalid),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] windlass::Error),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_breaks_the_parser_of_networks(text in "([0-9a-f.:]{0,20}/?[0-9]{0,4}|\\PC{0,20})") {
            if let Ok(network) = text.parse::<Network>() {
                prop_assert!(network.contains(network.address), "{text}");
            }
        }

        #[test]
        fn a_network_contains_the_addresses_that_share_its_prefix(address in any::<u32>(), other in any::<u32>(), prefix in 0_u8..=32) {
            let network: Network = format!("{}/{prefix}", std::net::Ipv4Addr::from(address)).parse().expect("a network");
            let shares = prefix == 0 || (address ^ other) >> (32 - u32::from(prefix)) == 0;
            prop_assert_eq!(network.contains(IpAddr::V4(other.into())), shares);
            let mapped = std::net::Ipv4Addr::from(other).to_ipv6_mapped();
            prop_assert_eq!(network.contains(IpAddr::V6(mapped)), shares, "an IPv4 address in IPv6 form");
        }
    }

    #[test]
    fn networks_are_parsed_and_contain_their_addresses() {
        let contains = |network: &str, address: &str| {
            network.parse::<Network>().expect("a network").contains(address.parse().expect("an address"))
        };
        assert!(contains("10.0.0.0/8", "10.255.1.2") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.4"));
        assert!(contains("0.0.0.0/0", "8.8.8.8") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("fd00::/8", "fd12::1") && contains("::1", "::1"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.1.1"), "an IPv4 address in IPv6 form");
        for bad in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/x", "::1/129", "proxy"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_plain_loopback_needs_no_login() {
        let on =
            |listen: &str| Settings { listen: listen.parse().expect("an address"), ..Settings::default() };
        assert!(!on("127.0.0.1:1").needs_login() && !on("[::1]:1").needs_login());
        assert!(
            on("0.0.0.0:1").needs_login() && on("10.0.0.1:1").needs_login() && on("[::]:1").needs_login()
        );
        assert!(Settings { login: true, ..Settings::default() }.needs_login());
        let proxies = vec!["127.0.0.1".parse().expect("an address")];
        assert!(Settings { trusted_proxies: proxies, ..Settings::default() }.needs_login());
    }
}
