//! Forms: what a page posts. Pure.

use crate::error::Error;

/// The fields of a form, in its order. A name may occur several times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Of a body or a query in the form of `application/x-www-form-urlencoded`.
    pub(crate) fn parse(bytes: &[u8]) -> Form {
        Form(
            form_urlencoded::parse(bytes)
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// The first value of a field without the white space around it; `None` if it is empty or missing.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// All values of a field that are not empty.
    pub(crate) fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(known, _)| known == name);
        values.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The first value of a field as it was sent; empty if it is missing.
    pub(crate) fn raw(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Whether a box is ticked or a button was pressed.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// A field that must be filled in.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Error> {
        self.text(name).ok_or_else(|| {
            Error::invalid(format!("the field {name:?} is empty"), "fill it in, and send the form again")
        })
    }

    /// A field that is written as text, if it is filled in.
    pub(crate) fn parsed<T>(&self, name: &str) -> Result<Option<T>, Error>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        let parse = |text: &str| {
            text.parse().map_err(|error| {
                Error::invalid(
                    format!("the field {name:?} is wrong: {error}"),
                    "correct it, and send the form again",
                )
            })
        };
        self.text(name).map(parse).transpose()
    }

    /// A duration as people write it, if it is filled in.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<std::time::Duration>, Error> {
        let parse = |text: &str| {
            windlass::operate::text::parse_duration(text).map_err(|error| {
                Error::invalid(format!("the field {name:?} is wrong: {error}"), "write it as 30s or 1h30m")
            })
        };
        self.text(name).map(parse).transpose()
    }
}

/// A URL with a query of these fields; fields without a value are left out.
pub(crate) fn url<'a>(path: &str, fields: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// A part of a path, encoded.
pub(crate) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    // `.` and `..` would be taken for steps along the path.
    match encoded.as_str() {
        "." | ".." => encoded.replace('.', "%2E"),
        _ => encoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let form = Form::parse(b"job=a&job=b&note=+two+words%21+&empty=&wait=1h30m&n=x&on=");
        assert_eq!(form.values("job").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (form.text("note"), form.text("empty"), form.text("none")),
            (Some("two words!"), None, None)
        );
        assert!(form.has("on") && !form.has("off"));
        assert_eq!(form.duration("wait").ok().flatten(), Some(std::time::Duration::from_secs(5_400)));
        assert!(form.parsed::<u32>("n").is_err() && form.required("empty").is_err());
        assert!(form.parsed::<u32>("none").is_ok_and(|number| number.is_none()));
    }

    #[test]
    fn urls_are_encoded() {
        assert_eq!(
            url("/jobs", [("kind", Some("a&b")), ("queue", None), ("q", Some("ü"))]),
            "/jobs?kind=a%26b&q=%C3%BC"
        );
        assert_eq!(url("/jobs", [("kind", None)]), "/jobs");
        assert_eq!(
            (segment("a/b c"), segment(".."), segment("a.b")),
            ("a%2Fb%20c".into(), "%2E%2E".into(), "a.b".into())
        );
    }
}
