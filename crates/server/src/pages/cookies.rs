//! Cookies: who is logged in, how pages look, and what the last form did. Pure.

use axum::http::{HeaderMap, header};

use super::frame::{Preferences, Theme};

/// The secret of a session.
pub(crate) const SESSION: &str = "windlass_session";
/// What the last form did, shown once.
const NOTICE: &str = "windlass_notice";
const THEME: &str = "windlass_theme";
const TIMES: &str = "windlass_times";
const ZONE: &str = "windlass_zone";
/// The most characters of a cookie that is looked at.
const MAX_VALUE: usize = 2_000;
/// For how long a browser remembers how pages look: a year.
const REMEMBERED: u32 = 31_536_000;

/// The value of a cookie in a request.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let sent = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = sent.flat_map(|list| list.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let value = pairs.find(|(known, _)| *known == name).map(|(_, value)| value);
    value.filter(|value| value.len() <= MAX_VALUE).map(str::to_owned)
}

impl Preferences {
    /// Those of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Preferences {
        let is = |name: &str, value: &str| cookie(headers, name).as_deref() == Some(value);
        Preferences {
            theme: cookie(headers, THEME).and_then(|name| theme(&name)),
            absolute_times: is(TIMES, "absolute"),
            utc: is(ZONE, "utc"),
        }
    }

    /// The cookies that keep them.
    pub(crate) fn cookies(self, is_secure: bool) -> Vec<String> {
        let keep = |name: &str, value: &str| {
            let age = if value.is_empty() { 0 } else { REMEMBERED };
            set(name, value, Some(age), is_secure)
        };
        vec![
            keep(THEME, self.theme.map_or("", |_| self.theme())),
            keep(TIMES, if self.absolute_times { "absolute" } else { "" }),
            keep(ZONE, if self.utc { "utc" } else { "" }),
        ]
    }
}

/// The theme with this name; `None` for the system's.
pub(crate) fn theme(name: &str) -> Option<Theme> {
    match name {
        "light" => Some(Theme::Light),
        "dark" => Some(Theme::Dark),
        _ => None,
    }
}

/// The cookie of a session; without a secret it is deleted.
pub(crate) fn session(secret: &str, is_secure: bool) -> String {
    set(SESSION, secret, secret.is_empty().then_some(0), is_secure)
}

/// What a form did, for the next page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Notice {
    /// A sentence.
    pub(crate) text: String,
    /// Whether it was refused.
    pub(crate) is_error: bool,
}

impl Notice {
    /// The one that a request carries.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Notice> {
        let value = cookie(headers, NOTICE)?;
        let (kind, text) = value.split_once('-')?;
        let bytes = decode_hex(text)?;
        Some(Notice { text: String::from_utf8(bytes).ok()?, is_error: kind == "error" })
    }

    /// The cookie that carries it to the next page.
    pub(crate) fn cookie(&self, is_secure: bool) -> String {
        // Two characters per byte, and what a browser keeps per cookie is bounded.
        let text: String = self.text.chars().take(400).collect();
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let kind = if self.is_error { "error" } else { "done" };
        set(NOTICE, &format!("{kind}-{}", hex.get(..MAX_VALUE - 10).unwrap_or(&hex)), Some(60), is_secure)
    }

    /// The cookie that deletes it.
    pub(crate) fn shown(is_secure: bool) -> String {
        set(NOTICE, "", Some(0), is_secure)
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A cookie that no script reads and that no other site's form sends.
fn set(name: &str, value: &str, max_age: Option<u32>, is_secure: bool) -> String {
    let age = max_age.map(|age| format!("; Max-Age={age}")).unwrap_or_default();
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{age}{secure}")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    /// The headers of a request that sends back these cookies.
    fn sent(cookies: &[String]) -> HeaderMap {
        let pairs: Vec<&str> = cookies.iter().filter_map(|cookie| cookie.split(';').next()).collect();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_str(&pairs.join("; ")).expect("a header"));
        headers
    }

    #[test]
    fn preferences_come_back() {
        for theme in [None, Some(Theme::Light), Some(Theme::Dark)] {
            let preferences = Preferences { theme, absolute_times: theme.is_none(), utc: theme.is_some() };
            assert_eq!(Preferences::of(&sent(&preferences.cookies(true))), preferences);
        }
        assert_eq!(Preferences::of(&HeaderMap::new()), Preferences::default());
    }

    #[test]
    fn a_notice_is_text_whatever_it_contains() {
        for text in ["the queue is paused", "ä; Path=/evil\r\nSet-Cookie: a=b", ""] {
            let notice = Notice { text: text.to_owned(), is_error: true };
            let cookie = notice.cookie(false);
            assert!(!cookie.contains('\r') && !cookie.contains("evil"), "{cookie}");
            assert_eq!(Notice::of(&sent(&[cookie])), Some(notice));
        }
        let long = Notice { text: "é".repeat(10_000), is_error: false };
        let cookie = long.cookie(false);
        assert!(cookie.len() < 4_096, "what browsers keep");
        assert!(Notice::of(&sent(&[cookie])).is_some_and(|notice| notice.text.starts_with("éé")));
        assert_eq!(Notice::of(&sent(&["windlass_notice=done-zz".into()])), None);
    }

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let headers = sent(&["a=1".into(), session("s3cret", true), "b=2".into()]);
        assert_eq!(cookie(&headers, SESSION).as_deref(), Some("s3cret"));
        let set = session("s3cret", true);
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Lax") && set.contains("Secure"), "{set}");
        assert!(session("", false).contains("Max-Age=0"));
    }
}
