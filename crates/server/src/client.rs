//! Where a request comes from and whom it addresses: the client's address, `Host` and `Origin`. Pure rules.
//!
//! A web page of another site must not drive this server through the browser of somebody who can reach it. Such a page can give its
//! own name any address (DNS rebinding), so the `Host` must be a name of this server; and a browser names the page's site in `Origin`,
//! which must be the same as the `Host`.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, Uri, header, uri::Authority};

use crate::{
    error::{Error, ErrorKind},
    settings::Settings,
};

/// Headers that proxies add. Without a trusted proxy they mean that strangers reach a server that believes to be on loopback.
const FORWARDED: [HeaderName; 5] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-real-ip"),
];
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Client {
    /// Its address; behind a trusted proxy, as the proxy says.
    pub(crate) address: IpAddr,
    /// Whether it uses `https`.
    pub(crate) is_secure: bool,
}

/// The client of a request from `peer`. `is_tls` says whether this server's own TLS is used.
pub(crate) fn client(settings: &Settings, peer: SocketAddr, is_tls: bool, headers: &HeaderMap) -> Client {
    let is_trusted =
        |address: IpAddr| settings.trusted_proxies.iter().any(|network| network.contains(address));
    let direct = peer.ip().to_canonical();
    if !is_trusted(direct) {
        return Client { address: direct, is_secure: is_tls };
    }
    // Each proxy appends the address that it saw. What comes before the last address that no trusted proxy has is the client's own
    // invention.
    let mut address = direct;
    let forwarded: Vec<&str> =
        headers.get_all(X_FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
    for text in forwarded.iter().flat_map(|list| list.split(',')).map(str::trim).rev() {
        let Ok(before) = text.parse::<IpAddr>() else { break };
        address = before.to_canonical();
        if !is_trusted(address) {
            break;
        }
    }
    let proto = headers.get(X_FORWARDED_PROTO).and_then(|value| value.to_str().ok());
    let is_secure = proto.map_or(is_tls, |proto| proto.eq_ignore_ascii_case("https"));
    Client { address, is_secure }
}

/// Refuses requests that a proxy forwarded to a server that does not know of it and lets everybody in.
pub(crate) fn check_not_forwarded(settings: &Settings, headers: &HeaderMap) -> Result<(), Error> {
    match FORWARDED.iter().find(|name| headers.contains_key(*name)) {
        Some(name) if !settings.needs_login() => Err(Error::new(
            ErrorKind::Forbidden,
            format!(
                "the request came through a proxy (it has the header {name}), and this server needs no login"
            ),
            "start the server with --trusted-proxy ADDRESS, which makes it ask for tokens",
        )),
        _ => Ok(()),
    }
}

/// Checks that the request addresses this server, and returns the authority that it names.
pub(crate) fn check_host(settings: &Settings, uri: &Uri, headers: &HeaderMap) -> Result<Authority, Error> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, None) = (hosts.next(), hosts.next()) else {
        return Err(Error::invalid("the request has several Host headers", "send one"));
    };
    let host = host.and_then(|host| host.to_str().ok()).and_then(|host| host.parse::<Authority>().ok());
    let Some(host) = host.filter(|host| !host.as_str().contains('@')) else {
        return Err(Error::invalid("the request has no valid Host header", "send `Host: NAME:PORT`"));
    };
    let named = [Some(&host), uri.authority()];
    if named.into_iter().flatten().all(|authority| is_own(settings, authority)) {
        return Ok(host);
    }
    Err(Error::new(
        ErrorKind::WrongHost,
        format!("this server is not called {:?}", host.as_str()),
        "use its address, or start it with --host NAME",
    ))
}

/// Whether an authority is this server. Any port is: tunnels and containers map ports, and a rebound name is wrong by itself.
fn is_own(settings: &Settings, authority: &Authority) -> bool {
    let name = authority.host();
    if settings.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return true;
    }
    let is_loopback_server = settings.listen.ip().is_loopback();
    if name.eq_ignore_ascii_case("localhost") {
        return is_loopback_server;
    }
    // An address cannot be rebound.
    match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => !is_loopback_server || address.is_loopback(),
        Err(_) => false,
    }
}

/// Checks that the request of a browser comes from a page of this server.
pub(crate) fn check_origin(host: &Authority, is_secure: bool, headers: &HeaderMap) -> Result<(), Error> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let scheme = if is_secure { "https" } else { "http" };
    let is_own = origin.to_str().is_ok_and(|origin| {
        origin.split_once("://").is_some_and(|(named, authority)| {
            named.eq_ignore_ascii_case(scheme) && authority.eq_ignore_ascii_case(host.as_str())
        })
    });
    if is_own && origins.next().is_none() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Forbidden,
        "the request was sent by a page of another site",
        "use the server's own pages, or a client that is not a browser",
    ))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        headers
    }

    fn settings(listen: &str, hosts: &[&str], proxies: &[&str]) -> Settings {
        Settings {
            listen: listen.parse().expect("an address"),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            trusted_proxies: proxies.iter().map(|proxy| proxy.parse().expect("a network")).collect(),
            ..Settings::default()
        }
    }

    fn accepts(settings: &Settings, host: &'static str) -> bool {
        check_host(settings, &Uri::from_static("/v1/jobs"), &headers(&[("host", host)])).is_ok()
    }

    #[test]
    fn on_loopback_only_loopback_names_are_hosts() {
        let local = settings("127.0.0.1:7077", &["windlass.test"], &[]);
        for own in [
            "localhost:7077",
            "LOCALHOST",
            "127.0.0.1:7077",
            "[::1]:7077",
            "127.0.0.1",
            "localhost:9999",
            "Windlass.Test:80",
        ] {
            assert!(accepts(&local, own), "{own}");
        }
        for other in [
            "evil.example:7077",
            "localhost.evil.example:7077",
            "127.0.0.1.nip.io:7077",
            "10.0.0.1:7077",
            "user@localhost:7077",
            "",
            "local host",
        ] {
            assert!(!accepts(&local, other), "{other}");
        }
        let twice = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert!(check_host(&local, &Uri::from_static("/"), &twice).is_err());
        assert!(check_host(&local, &Uri::from_static("/"), &HeaderMap::new()).is_err());
        let absolute = Uri::from_static("http://evil.example/v1/jobs");
        assert!(check_host(&local, &absolute, &headers(&[("host", "localhost")])).is_err());
    }

    #[test]
    fn elsewhere_addresses_and_configured_names_are_hosts() {
        let public = settings("0.0.0.0:7077", &["jobs.example"], &[]);
        assert!(accepts(&public, "10.0.0.1:7077") && accepts(&public, "jobs.example"));
        assert!(!accepts(&public, "evil.example:7077") && !accepts(&public, "localhost:7077"));
    }

    #[test]
    fn an_origin_must_be_the_host() {
        let host: Authority = "localhost:7077".parse().expect("an authority");
        let check = |origin: &'static str, secure| {
            check_origin(&host, secure, &headers(&[("origin", origin)])).is_ok()
        };
        assert!(check("http://localhost:7077", false) && check("https://localhost:7077", true));
        for other in [
            "null",
            "http://localhost",
            "https://localhost:7077",
            "http://evil.example",
            "http://localhost:7077.evil.example",
            "",
        ] {
            assert!(!check(other, false), "{other}");
        }
        assert!(check_origin(&host, false, &HeaderMap::new()).is_ok(), "not a browser");
        let twice = headers(&[("origin", "http://localhost:7077"), ("origin", "http://evil.example")]);
        assert!(check_origin(&host, false, &twice).is_err());
    }

    #[test]
    fn only_trusted_proxies_name_the_client() {
        let plain = settings("127.0.0.1:7077", &[], &[]);
        let proxied = settings("127.0.0.1:7077", &[], &["127.0.0.1", "10.0.0.0/8"]);
        let peer: SocketAddr = "127.0.0.1:5".parse().expect("an address");
        let sent =
            headers(&[("x-forwarded-for", "1.1.1.1, 8.8.8.8, 10.0.0.9"), ("x-forwarded-proto", "https")]);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let direct = Client { address: ip("127.0.0.1"), is_secure: false };
        assert_eq!(client(&plain, peer, false, &sent), direct);
        let named = Client { address: ip("8.8.8.8"), is_secure: true };
        assert_eq!(client(&proxied, peer, false, &sent), named, "1.1.1.1 is what the client claims");
        assert_eq!(client(&proxied, peer, false, &HeaderMap::new()), direct);
        let junk = headers(&[("x-forwarded-for", "8.8.8.8, junk")]);
        assert_eq!(client(&proxied, peer, false, &junk), direct);
    }

    #[test]
    fn a_server_without_login_refuses_forwarded_requests() {
        let local = settings("127.0.0.1:7077", &[], &[]);
        let forwarded = headers(&[("x-forwarded-for", "1.1.1.1")]);
        assert!(check_not_forwarded(&local, &forwarded).is_err());
        assert!(check_not_forwarded(&local, &HeaderMap::new()).is_ok());
        let proxied = settings("127.0.0.1:7077", &[], &["127.0.0.1"]);
        assert!(check_not_forwarded(&proxied, &forwarded).is_ok());
    }

    /// Texts that look like hosts, addresses and origins, and any others.
    fn host_text() -> impl Strategy<Value = String> {
        prop_oneof![
            "(http://|https://|null|)(localhost|127\\.0\\.0\\.1|\\[::1\\]|evil\\.example|jobs\\.example|a@localhost)(:[0-9]{0,6}|)",
            "[0-9a-fA-F.:\\[\\]@%,/ -]{0,40}",
            "\\PC{0,40}",
        ]
    }

    proptest! {
        #[test]
        fn no_host_or_origin_of_a_stranger_is_accepted(host in host_text(), origin in host_text()) {
            let local = settings("127.0.0.1:7077", &["jobs.example"], &[]);
            let (Ok(sent), Ok(page)) = (HeaderValue::from_str(&host), HeaderValue::from_str(&origin)) else {
                return Ok(());
            };
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, sent);
            let Ok(own) = check_host(&local, &Uri::from_static("/v1/jobs"), &headers) else { return Ok(()) };
            // An accepted host is written as one of the server's own names, with a port or without.
            let name = own.host().trim_start_matches('[').trim_end_matches(']').to_lowercase();
            let is_address = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
            prop_assert!(is_address || name == "localhost" || name == "jobs.example", "{host:?}");
            prop_assert!(!host.contains('@') && host.to_lowercase().contains(&name), "{host:?}");
            headers.insert(header::ORIGIN, page);
            if check_origin(&own, false, &headers).is_ok() {
                prop_assert_eq!(origin.to_lowercase(), format!("http://{own}").to_lowercase());
            }
        }

        #[test]
        fn a_client_is_its_peer_or_what_a_trusted_proxy_names(
            lists in prop::collection::vec("([0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}|::[0-9a-f]{1,4}|junk|)(, ?[0-9.]{0,15}){0,3}", 0..3),
            peer in any::<[u8; 4]>(),
        ) {
            let mut headers = HeaderMap::new();
            for list in &lists {
                headers.append(X_FORWARDED_FOR, HeaderValue::from_str(list).expect("a value"));
            }
            let peer = SocketAddr::from((peer, 1));
            let plain = settings("127.0.0.1:7077", &[], &[]);
            prop_assert_eq!(client(&plain, peer, false, &headers).address, peer.ip());
            let proxied = settings("127.0.0.1:7077", &[], &["0.0.0.0/1", "::/8"]);
            let found = client(&proxied, peer, false, &headers).address;
            let named = lists.iter().flat_map(|list| list.split(',')).filter_map(|text| text.trim().parse::<IpAddr>().ok());
            let named: Vec<IpAddr> = named.map(|address| address.to_canonical()).collect();
            prop_assert!(found == peer.ip() || named.contains(&found), "{found} is in none of {lists:?}");
        }
    }
}
