//! Limits in the address of a store, as parameters of the URL.

use std::path::{Path, PathBuf};

use windlass_model::Limits;

use crate::Error;

/// The prefix of the names of limits in an address.
const PREFIX: &str = "limit_";

/// Splits an address into the address without limits, and the limits.
pub(crate) fn take_limits(url: &str) -> Result<(String, Limits), Error> {
    let mut limits = Limits::default();
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), limits)) };
    let mut rest = Vec::new();
    for parameter in query.split('&') {
        let Some((name, value)) = parameter.strip_prefix(PREFIX).and_then(|given| given.split_once('='))
        else {
            rest.push(parameter);
            continue;
        };
        let value = Limits::parse(name, value).map_err(|error| Error::Config(error.to_string()))?;
        if !limits.set(name, value) {
            let known: Vec<String> = Limits::NAMES.iter().map(|name| Limits::url_parameter(name)).collect();
            return Err(Error::Config(format!(
                "`{PREFIX}{name}` in the store's URL is not a limit; use one of {}",
                known.join(", ")
            )));
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, limits))
}

/// Adds limits to an address, by name. Limits that the address has already are kept.
pub fn with_limits<'a>(url: &str, limits: impl IntoIterator<Item = (&'a str, usize)>) -> String {
    let mut url = url.to_owned();
    for (name, value) in limits {
        let parameter = format!("{}=", Limits::url_parameter(name));
        let query = url.split_once('?').map(|(_, query)| query);
        if query.is_some_and(|query| query.split('&').any(|given| given.starts_with(&parameter))) {
            continue;
        }
        let separator = if query.is_some() { '&' } else { '?' };
        url = format!("{url}{separator}{parameter}{value}");
    }
    url
}

/// The file of a SQLite address; `None` for other stores.
pub fn sqlite_path(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    Some(Path::new(path.strip_prefix("//").unwrap_or(path)).to_owned())
}

/// An address without its password, to be shown to people.
pub fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        // A password may have any character, also those that should have been encoded.
        let before_query = rest.split('?').next().and_then(|address| address.rfind('@'));
        let at = before_query.or_else(|| rest.rfind('@'))?;
        let (user, host) = (&rest[..at], &rest[at + 1..]);
        let (name, _) = user.split_once(':')?;
        Some(format!("{scheme}://{name}:…@{host}"))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_limit_can_be_set_in_every_address() {
        for base in ["sqlite://a.db", "postgres://u@h/db?schema=x", "postgres://u@h/db", "memory:"] {
            for name in Limits::NAMES {
                let url = with_limits(base, [(*name, 77)]);
                let (rest, limits) = take_limits(&url).expect("valid");
                assert_eq!((rest.as_str(), limits.get(name)), (base, Some(77)), "{url}");
                assert_eq!(with_limits(&url, [(*name, 88)]), url, "its own limit is kept");
            }
        }
        let error = take_limits("sqlite://a.db?limit_patience=3").expect_err("no such limit").to_string();
        assert!(
            error.contains("use one of limit_payload, limit_inbox, limit_context, limit_step"),
            "{error}"
        );
        let error = take_limits("memory:?limit_inbox=lots").expect_err("no number").to_string();
        assert!(error.contains("64KiB"), "{error}");
    }

    #[test]
    fn the_path_of_a_sqlite_address_has_no_limits() {
        for url in ["sqlite://a/b.db", "sqlite:a/b.db", "sqlite://a/b.db?limit_inbox=3"] {
            assert_eq!(sqlite_path(url), Some("a/b.db".into()), "{url}");
        }
        assert_eq!(sqlite_path("postgres://u@h/db"), None);
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("postgres://u:secret@h/db"), "postgres://u:…@h/db");
        assert_eq!(without_password("postgres://u@h/db"), "postgres://u@h/db");
        assert_eq!(without_password("sqlite://a.db"), "sqlite://a.db");
    }

    proptest! {
        #[test]
        fn no_part_of_a_password_is_shown(
            name in "[a-z]{1,5}", password in "S3[\\PC]{0,12}", host in "[a-z.]{1,8}(:[0-9]{1,5})?/[a-z]{1,5}(\\?schema=[a-z]{1,3})?",
        ) {
            let shown = without_password(&format!("postgres://{name}:{password}@{host}"));
            prop_assert!(!shown.contains("S3") && shown.contains(&name), "{shown}");
        }

        #[test]
        fn no_text_breaks_the_parser_of_addresses(url in "((sqlite|postgres|memory|)(://|:|)[a-z@:/.]{0,12}(\\?(limit_[a-z]{1,8}=?[0-9a-zA-Z]{0,8}&?){0,3})?|\\PC{0,40})") {
            if let Ok((rest, limits)) = take_limits(&url) {
                let (again, others) = take_limits(&rest).expect("without limits it is an address too");
                prop_assert_eq!((again, others), (rest, Limits::default()), "{:?}", limits);
            }
            let _ = (sqlite_path(&url), without_password(&url));
        }
    }
}
