//! What requests may contain: types that are parsed strictly and described from one definition.
//!
//! [`input!`] declares the fields of a query or a body. The same declaration makes the parser, which refuses unknown fields, and
//! the entry in the API description.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};
use windlass::{CatchUp, JobId, Overlap, State, Time, model::Role};

/// A type that can be described as JSON Schema.
pub(crate) trait Described {
    /// Whether a field of this type must be there.
    const REQUIRED: bool = true;

    /// The schema.
    fn schema() -> Value;
}

/// The fields of a query or a body.
pub(crate) trait Fields {
    /// Name, description, schema, and whether it is required.
    fn fields() -> Vec<Field>;
}

/// A field of a query or a body.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) doc: String,
    pub(crate) schema: Value,
    pub(crate) required: bool,
}

/// The schema of an object with these fields and no others.
pub(crate) fn object_schema(fields: Vec<Field>) -> Value {
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut properties = serde_json::Map::new();
    for Field { name, doc, mut schema, .. } in fields {
        schema["description"] = doc.into();
        properties.insert(name.to_owned(), schema);
    }
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Declares a query or a body: its struct, its parser and its description.
macro_rules! input {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $field:ident: $type:ty,)* }) => {
        $(#[doc = $about])+
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name { $($(#[doc = $doc])+ pub(crate) $field: $type,)* }

        impl $crate::input::Fields for $name {
            fn fields() -> Vec<$crate::input::Field> {
                vec![$($crate::input::Field {
                    name: stringify!($field),
                    doc: concat!($($doc),+).trim().to_owned(),
                    schema: <$type as $crate::input::Described>::schema(),
                    required: <$type as $crate::input::Described>::REQUIRED,
                },)*]
            }
        }

        impl $crate::input::Described for $name {
            fn schema() -> serde_json::Value {
                $crate::input::object_schema(<$name as $crate::input::Fields>::fields())
            }
        }
    };
}
pub(crate) use input;

macro_rules! described {
    ($($type:ty => $schema:tt;)*) => {$(
        impl Described for $type {
            fn schema() -> Value {
                json!($schema)
            }
        }
    )*};
}

described! {
    String => { "type": "string" };
    bool => { "type": "boolean" };
    i16 => { "type": "integer", "minimum": -32768, "maximum": 32767 };
    i32 => { "type": "integer", "format": "int32" };
    i64 => { "type": "integer", "format": "int64" };
    u32 => { "type": "integer", "minimum": 0, "maximum": 4294967295_u32 };
    Value => {};
    JobId => { "type": "string", "format": "uuid" };
    Time => { "type": "string", "format": "date-time" };
    Secret => { "type": "string", "format": "password" };
    Span => { "type": "string", "examples": ["30s", "1h30m"] };
    State => { "type": "string", "enum": ["scheduled", "ready", "running", "waiting", "done", "failed", "cancelled"] };
    Role => { "type": "string", "enum": ["viewer", "operator", "admin", "worker"] };
    Parsed<Overlap> => { "type": "string", "enum": ["skip", "queue", "allow", "cancel_previous"] };
    Parsed<CatchUp> => { "type": "string", "examples": ["one", "skip", "all", "all:6h"] };
    Parsed<windlass::store::ThroughputBy> => { "type": "string", "enum": ["minute", "hour", "kind"] };
    Parsed<windlass::Calendar> => { "type": "string", "examples": ["every 15 minutes", "0 3 * * mon-fri in Europe/Berlin"] };
}

impl<T: Described> Described for Option<T> {
    const REQUIRED: bool = false;

    fn schema() -> Value {
        T::schema()
    }
}

impl<T: Described> Described for Vec<T> {
    fn schema() -> Value {
        json!({ "type": "array", "items": T::schema() })
    }
}

/// A duration as people write it: `30s`, `1h30m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        let text = String::deserialize(from)?;
        windlass::operate::text::parse_duration(&text).map(Span).map_err(de::Error::custom)
    }
}

/// A text that is in no log and no error.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A value that is written as text.
#[derive(Clone, Debug)]
pub(crate) struct Parsed<T>(pub(crate) T);

impl<'de, T> Deserialize<'de> for Parsed<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Parsed<T>, D::Error> {
        String::deserialize(from)?.parse().map(Parsed).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    input! {
        /// A test.
        Example {
            /// How many.
            count: u32,
            /// For
            /// how long.
            wait: Option<Span>,
        }
    }

    #[test]
    fn unknown_missing_and_wrong_fields_are_refused() {
        let parse = |text: &str| serde_json::from_str::<Example>(text);
        let good = parse(r#"{"count": 3, "wait": "1m"}"#).expect("it parses");
        assert_eq!((good.count, good.wait), (3, Some(Span(Duration::from_secs(60)))));
        assert!(parse(r#"{"count": 3}"#).is_ok());
        for bad in [
            "{}",
            r#"{"count": -1}"#,
            r#"{"count": 1, "more": 2}"#,
            r#"{"count": 1, "wait": 5}"#,
            "[]",
            "null",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_description_is_made_of_the_declaration() {
        let schema = Example::schema();
        assert_eq!(schema["required"], json!(["count"]));
        assert_eq!(schema["properties"]["wait"]["description"], "For how long.");
        assert_eq!(schema["additionalProperties"], false);
    }

    #[test]
    fn the_states_in_the_description_are_the_states() {
        let states: Vec<String> = State::ALL.iter().map(ToString::to_string).collect();
        let mut described: Vec<String> =
            serde_json::from_value(State::schema()["enum"].clone()).expect("a list");
        described.sort_by_key(|name| states.iter().position(|state| state == name));
        assert_eq!(described, states);
    }
}
