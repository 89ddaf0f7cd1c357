//! How a stage is kept: the name of the variant and its data, apart.

use std::fmt;

use serde::{
    Serialize,
    de::{DeserializeOwned, Deserializer, IgnoredAny, Visitor},
    forward_to_deserialize_any,
};

/// Encodes a stage: its name, and its data as JSON.
pub fn encode<T: Serialize>(stage: &T) -> Result<(String, Vec<u8>), String> {
    let bytes = serde_json::to_vec(stage).map_err(|error| format!("cannot be written as JSON ({error})"))?;
    let (name, data) = split(&bytes).ok_or("is not written as {\"Variant\": data}")?;
    Ok((name, data.to_vec()))
}

/// Splits a stage that was written as `"Variant"` or `{"Variant":data}` into name and data; `None` if it was not.
pub fn split(bytes: &[u8]) -> Option<(String, &[u8])> {
    match bytes {
        [b'"', ..] => Some((serde_json::from_slice(bytes).ok()?, b"null")),
        [b'{', rest @ .., b'}'] => {
            let quote = closing_quote(rest)?;
            let name = serde_json::from_slice(&rest[..=quote]).ok()?;
            let data = rest[quote + 1..].strip_prefix(b":")?;
            // An object with more than one field is not a variant.
            serde_json::from_slice::<IgnoredAny>(data).ok()?;
            Some((name, data))
        }
        _ => None,
    }
}

/// Returns the index of the quote that ends the string at the start of `bytes`.
fn closing_quote(bytes: &[u8]) -> Option<usize> {
    let mut escaped = false;
    let ends = |(index, byte): &(usize, &u8)| {
        let ends = *index > 0 && **byte == b'"' && !escaped;
        escaped = **byte == b'\\' && !escaped;
        ends
    };
    bytes.starts_with(b"\"").then(|| bytes.iter().enumerate().find(ends).map(|(index, _)| index))?
}

/// Returns the stage that a job is in.
pub(crate) fn current(job: &windlass_model::ClaimedJob) -> Option<String> {
    job.stage.clone().or_else(|| split(&job.input.bytes).map(|(name, _)| name))
}

/// Decodes a stage from its name and its data.
pub fn decode<T: DeserializeOwned>(name: &str, data: &[u8]) -> Result<T, serde_json::Error> {
    let mut json = Vec::with_capacity(name.len() + data.len() + 5);
    json.push(b'{');
    serde_json::to_writer(&mut json, name)?;
    json.push(b':');
    json.extend_from_slice(data);
    json.push(b'}');
    serde_json::from_slice(&json)
}

/// Returns the names of an enum's variants, or why it cannot be a machine.
pub fn variants<T: DeserializeOwned>() -> Result<&'static [&'static str], String> {
    match T::deserialize(Probe) {
        Err(Found::Variants(variants)) => Ok(variants),
        _ => Err("a machine is an enum, written as serde does by default; leave out `#[serde(tag)]`, \
                  `#[serde(untagged)]` and the like"
            .into()),
    }
}

/// A deserializer that only finds out what a type asks for.
struct Probe;

#[derive(Debug)]
enum Found {
    Variants(&'static [&'static str]),
    Other,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Found {}

impl serde::de::Error for Found {
    fn custom<T: fmt::Display>(_: T) -> Found {
        Found::Other
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Found;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Found> {
        Err(Found::Other)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Found> {
        Err(Found::Variants(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    enum Door {
        Open,
        #[serde(rename = "a \"jar\" \\")]
        Ajar {
            gap: f64,
        },
        Shut(Option<u8>),
        Locked(u8, String),
    }

    #[test]
    fn every_shape_of_variant_is_encoded_and_decoded() {
        for door in [
            Door::Open,
            Door::Ajar { gap: 0.5 },
            Door::Shut(None),
            Door::Shut(Some(1)),
            Door::Locked(1, "}\"".into()),
        ] {
            let (name, data) = encode(&door).expect("encoded");
            assert_eq!(decode::<Door>(&name, &data).expect("decoded"), door, "{name}");
        }
        assert_eq!(encode(&Door::Ajar { gap: 0.5 }).expect("encoded").0, "a \"jar\" \\");
        assert_eq!(encode(&Door::Open).expect("encoded"), ("Open".into(), b"null".to_vec()));
    }

    #[test]
    fn only_variants_are_split() {
        for text in ["1", "[]", "{}", r#"{"a":1,"b":2}"#, r#"{"a""#, r#"{"a"}"#, "\"", "{\"a\\\":1}", ""] {
            assert_eq!(split(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn variants_of_an_enum_are_found_and_other_types_refused() {
        #[derive(Deserialize)]
        #[serde(tag = "type")]
        enum Tagged {
            A,
        }
        assert_eq!(variants::<Door>().expect("an enum"), ["Open", "a \"jar\" \\", "Shut", "Locked"]);
        assert!(variants::<Tagged>().expect_err("tagged").contains("#[serde(tag)]"));
        assert!(variants::<u8>().is_err() && variants::<Vec<Door>>().is_err());
    }
}
