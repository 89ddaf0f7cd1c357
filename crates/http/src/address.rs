//! The address of a server: `https://HOST[:PORT][/PREFIX]`.

use std::net::IpAddr;

use hyper::{Uri, http::uri::Authority};

use crate::Error;

/// A parsed address.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) is_tls: bool,
    /// Host and port as written: the `Host` header.
    pub(crate) authority: String,
    /// The host without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What comes before every path, for a server behind a proxy: empty, or begins with a slash and ends without.
    prefix: String,
}

impl Address {
    /// Parses an address. `http` to another machine is refused unless `allow_http` is set.
    pub(crate) fn parse(url: &str, allow_http: bool) -> Result<Address, Error> {
        let wrong = |why: &str| {
            let url = without_user(url);
            Error::Address(format!(
                "{url:?} is not the address of a server ({why}); write it as https://HOST:PORT"
            ))
        };
        let uri: Uri =
            url.trim().parse().map_err(|error: hyper::http::uri::InvalidUri| wrong(&error.to_string()))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(other) => return Err(wrong(&format!("the scheme {other:?} is neither https nor http"))),
            None => return Err(wrong("it has no scheme")),
        };
        let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
            return Err(wrong("it has no host"));
        };
        if authority.as_str().contains('@') {
            return Err(wrong("it has a user or a password, which would be seen by others; use a token"));
        }
        if uri.query().is_some() {
            return Err(wrong("it has a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if !is_tls && !allow_http && !is_loopback(&host) {
            return Err(Error::Unencrypted(authority.to_string()));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Address { is_tls, authority: Authority::as_str(authority).to_owned(), host, port, prefix })
    }

    /// The path that is sent for a path of the server.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// As people read it.
    pub(crate) fn to_text(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.prefix)
    }
}

/// Splits an address of anything on the web into that of its server, for [`crate::Client::new`], and its path with its query. No error
/// contains the path, which may be a secret.
pub fn split_url(url: &str) -> Result<(String, String), Error> {
    let url = url.trim();
    let begin = url.find("://").map_or(0, |at| at + 3);
    let end = url[begin..].find(['/', '?', '#']).map_or(url.len(), |at| begin + at);
    let (server, rest) = url.split_at(end);
    Address::parse(server, true)?;
    let path = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    match path.parse::<Uri>() {
        Ok(_) => Ok((server.to_owned(), path)),
        Err(error) => Err(Error::Address(format!(
            "the path of the address at {server} cannot be used ({error}); encode it"
        ))),
    }
}

/// Whether a host is this machine, whatever names resolve to.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// An address without its user and password, for errors.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // No address at all, and perhaps meant as one with a password.
        return url.rfind('@').map_or_else(|| url.to_owned(), |at| format!("…{}", &url[at..]));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(url: &str) -> Result<Address, Error> {
        Address::parse(url, false)
    }

    #[test]
    fn addresses_have_a_scheme_a_host_and_perhaps_a_port_and_a_prefix() {
        let address = parse("https://jobs.example").expect("an address");
        assert_eq!(
            (address.is_tls, address.port, address.path("/v1/jobs")),
            (true, 443, "/v1/jobs".to_owned())
        );
        let address = parse("https://jobs.example:7077/windlass/").expect("an address");
        assert_eq!((address.port, address.path("/v1")), (7077, "/windlass/v1".to_owned()));
        assert_eq!(address.to_text(), "https://jobs.example:7077/windlass");
        let address = parse("http://[::1]:7077").expect("an address");
        assert_eq!((address.host.as_str(), address.authority.as_str()), ("::1", "[::1]:7077"));
        for bad in [
            "",
            "jobs.example",
            "jobs.example:7077",
            "ftp://jobs.example",
            "https://",
            "https://a b",
            "https://a/?q=1",
        ] {
            assert!(matches!(parse(bad), Err(Error::Address(_))), "{bad}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for url in ["https://ada:secret@jobs.example/x", "http:ada:secret@jobs.example"] {
            let error = parse(url).expect_err("refused").to_string();
            assert!(!error.contains("secret") && error.contains("jobs.example"), "{error}");
        }
    }

    #[test]
    fn an_address_on_the_web_is_a_server_and_a_path() {
        let split = |url| split_url(url).expect("an address");
        let (server, path) = split("https://hooks.example:8443/services/T00/B00?key=a%20b");
        assert_eq!(
            (server.as_str(), path.as_str()),
            ("https://hooks.example:8443", "/services/T00/B00?key=a%20b")
        );
        assert_eq!(split("http://10.0.0.7"), ("http://10.0.0.7".into(), "/".into()));
        assert_eq!(split("http://[::1]:9?x=1"), ("http://[::1]:9".into(), "/?x=1".into()));
        for bad in [
            "",
            "hooks.example",
            "/hook",
            "ftp://hooks.example/x",
            "https://ada:secret@hooks.example/x",
            "https://a b/",
        ] {
            let error = split_url(bad).expect_err(bad).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = split_url("https://hooks.example/secret key").expect_err("a space").to_string();
        assert!(error.contains("hooks.example") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn http_is_for_this_machine_unless_it_is_allowed() {
        for own in [
            "http://localhost:1",
            "http://LOCALHOST",
            "http://127.0.0.1:7077",
            "http://127.8.8.8",
            "http://[::1]",
        ] {
            assert!(parse(own).is_ok(), "{own}");
        }
        for other in
            ["http://jobs.example", "http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example"]
        {
            assert!(matches!(parse(other), Err(Error::Unencrypted(_))), "{other}");
            assert!(Address::parse(other, true).is_ok(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser_and_no_secret_is_sent_unencrypted(
            text in "((https?|ftp|)(://|:|)(ada:secret@|)[a-z0-9.\\[\\]:-]{0,20}(/[a-z%]{0,6}|)(\\?a=b|)|\\PC{0,40})",
        ) {
            match parse(&text) {
                Ok(address) => {
                    prop_assert!(address.is_tls || is_loopback(&address.host), "{text:?}");
                    prop_assert!(!address.authority.contains('@') && !address.host.is_empty(), "{text:?}");
                    prop_assert!(address.path("/v1").parse::<Uri>().is_ok(), "{text:?}");
                    // What people read is an address again.
                    let again = parse(&address.to_text());
                    prop_assert!(again.is_ok_and(|again| again.to_text() == address.to_text()), "{text:?}");
                }
                Err(error) => prop_assert!(!error.to_string().contains("secret@"), "{error}"),
            }
        }
    }
}
