//! Payloads: bytes with the number of the codec that wrote them.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;
use windlass_model::Payload;

/// A payload: `{"json": …}` if it is plain JSON, otherwise `{"codec": n, "base64": "…"}`.
///
/// JSON is passed through as text, so that it arrives byte by byte as it was written: numbers keep their digits, and objects the order
/// of their fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WirePayload(pub Payload);

impl From<Payload> for WirePayload {
    fn from(payload: Payload) -> WirePayload {
        WirePayload(payload)
    }
}

impl From<WirePayload> for Payload {
    fn from(payload: WirePayload) -> Payload {
        payload.0
    }
}

impl Serialize for WirePayload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Payload { codec, bytes } = &self.0;
        if *codec == 0
            && let Ok(json) = serde_json::from_slice::<&RawValue>(bytes)
            // Space around the value would be lost.
            && json.get().len() == bytes.len()
        {
            let mut map = to.serialize_map(Some(1))?;
            map.serialize_entry("json", json)?;
            return map.end();
        }
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("codec", codec)?;
        map.serialize_entry("base64", &STANDARD.encode(bytes))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for WirePayload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<WirePayload, D::Error> {
        from.deserialize_map(PayloadVisitor)
    }
}

struct PayloadVisitor;

/// The names of the fields. An enum, so that other names are errors without an allocation.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Json,
    Codec,
    Base64,
}

impl<'de> Visitor<'de> for PayloadVisitor {
    type Value = WirePayload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a payload: {\"json\": …} or {\"codec\": n, \"base64\": \"…\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WirePayload, A::Error> {
        let (mut json, mut codec, mut base64) = (None, None, None);
        while let Some(field) = map.next_key()? {
            match field {
                Field::Json => json = Some(map.next_value::<Box<RawValue>>()?),
                Field::Codec => codec = Some(map.next_value::<u8>()?),
                Field::Base64 => base64 = Some(map.next_value::<std::borrow::Cow<'de, str>>()?),
            }
        }
        match (json, codec, base64) {
            (Some(json), None, None) => {
                Ok(WirePayload(Payload::json(String::from(Box::<str>::from(json)).into_bytes())))
            }
            (None, codec, Some(text)) => {
                let bytes = STANDARD.decode(text.as_bytes());
                let bytes =
                    bytes.map_err(|error| de::Error::custom(format!("the payload is no base64: {error}")))?;
                Ok(WirePayload(Payload { codec: codec.unwrap_or(0), bytes }))
            }
            (None, _, None) => Err(de::Error::custom("a payload has a field `json` or a field `base64`")),
            (Some(_), ..) => Err(de::Error::custom("a payload with `json` has no `codec` and no `base64`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to_text(payload: Payload) -> String {
        serde_json::to_string(&WirePayload(payload)).expect("plain data")
    }

    #[test]
    fn json_is_passed_through_as_it_is() {
        for text in ["null", "1", "1e400", "{\"b\": 1,\"a\":[ ]}", "\"\\ud800\"", "0.10"] {
            let payload = Payload::json(text.as_bytes().to_vec());
            let sent = to_text(payload.clone());
            assert_eq!(sent, format!("{{\"json\":{text}}}"));
            assert_eq!(serde_json::from_str::<WirePayload>(&sent).expect(text).0, payload);
        }
    }

    #[test]
    fn other_bytes_are_base64() {
        for (payload, text) in [
            (Payload { codec: 3, bytes: vec![0, 255] }, "{\"codec\":3,\"base64\":\"AP8=\"}"),
            (Payload::json(b" 1".to_vec()), "{\"codec\":0,\"base64\":\"IDE=\"}"),
            (Payload::json(Vec::new()), "{\"codec\":0,\"base64\":\"\"}"),
        ] {
            assert_eq!(to_text(payload.clone()), text);
            assert_eq!(serde_json::from_str::<WirePayload>(text).expect(text).0, payload);
        }
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        for bad in [
            "{}",
            "{\"codec\":1}",
            "{\"json\":1,\"codec\":0}",
            "{\"json\":1,\"base64\":\"\"}",
            "{\"base64\":\"A\"}",
            "{\"codec\":256,\"base64\":\"\"}",
            "{\"other\":1}",
            "{\"json\":}",
            "[1]",
            "\"text\"",
        ] {
            assert!(serde_json::from_str::<WirePayload>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn all_bytes_return_as_they_were(codec in 0u8..3, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let payload = Payload { codec, bytes };
            let sent = to_text(payload.clone());
            prop_assert_eq!(serde_json::from_str::<WirePayload>(&sent).expect("as sent").0, payload);
        }
    }
}
