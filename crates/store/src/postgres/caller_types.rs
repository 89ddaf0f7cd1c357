//! Values of callers' statements in PostgreSQL's binary formats, by the types that the server expects and returns.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};
use uuid::Uuid;
use windlass_model::Time;

use super::numeric;
use crate::tx::Value;

/// 2000-01-01T00:00:00Z, from which the server counts, in microseconds since 1970.
const SERVER_EPOCH: i64 = 946_684_800_000_000;

/// A parameter in the binary format of its type; `None` is null.
#[derive(Debug)]
pub(super) struct Param(Option<Vec<u8>>);

impl Param {
    /// Encodes a value. The error says what the type cannot hold.
    pub(super) fn new(value: &Value, declared: &Type) -> Result<Param, String> {
        if *value == Value::Null {
            return Ok(Param(None));
        }
        let ty = base(declared);
        let wrong = || {
            format!(
                "its type is {}, and {value} was given; pass {}",
                declared.name(),
                expected(ty)
                    .unwrap_or("it as text and cast it in the statement: `cast(cast($1 as text) as …)`")
            )
        };
        encode(value, ty).map(|bytes| Param(Some(bytes))).map_err(|why| why.unwrap_or_else(wrong))
    }
}

impl ToSql for Param {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.0 {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The type that a domain is made from, and any other type itself.
fn base(declared: &Type) -> &Type {
    match declared.kind() {
        Kind::Domain(inner) => base(inner),
        _ => declared,
    }
}

/// Whether the type is sent as plain text.
fn is_text(ty: &Type) -> bool {
    let texts = [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::UNKNOWN];
    texts.contains(ty) || matches!(ty.kind(), Kind::Enum(_)) || ty.name() == "citext"
}

/// What can be given for a type.
fn expected(ty: &Type) -> Option<&'static str> {
    Some(match *ty {
        Type::BOOL => "a bool",
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => "an integer",
        Type::FLOAT4 | Type::FLOAT8 => "a float",
        Type::NUMERIC => "an integer, a float or a decimal as text, like \"12.50\"",
        Type::BYTEA => "bytes",
        Type::JSON | Type::JSONB => "a `serde_json::Value`",
        Type::UUID => "a UUID, or one as text",
        Type::TIMESTAMPTZ => "a `Time`",
        _ if is_text(ty) => "text",
        _ => return None,
    })
}

/// Encodes a value for a type. The error says why it does not fit; without a text it is of another type.
fn encode(value: &Value, ty: &Type) -> Result<Vec<u8>, Option<String>> {
    match (value, ty) {
        (Value::Bool(value), &Type::BOOL) => Ok(vec![u8::from(*value)]),
        (Value::Int(value), &Type::INT2) => fit::<i16>(*value, ty).map(|int| int.to_be_bytes().to_vec()),
        (Value::Int(value), &Type::INT4) => fit::<i32>(*value, ty).map(|int| int.to_be_bytes().to_vec()),
        (Value::Int(value), &Type::OID) => fit::<u32>(*value, ty).map(|int| int.to_be_bytes().to_vec()),
        (Value::Int(value), &Type::INT8) => Ok(value.to_be_bytes().to_vec()),
        // A schema that is the same on both databases has times as integers.
        (Value::Time(value), &Type::INT8) => Ok(value.micros().to_be_bytes().to_vec()),
        (Value::Int(value), &Type::FLOAT8) if exact(*value, 53) => Ok((*value as f64).to_be_bytes().to_vec()),
        (Value::Int(value), &Type::FLOAT4) if exact(*value, 24) => Ok((*value as f32).to_be_bytes().to_vec()),
        (Value::Int(value), &(Type::FLOAT8 | Type::FLOAT4)) => {
            Err(Some(format!("its type is {}, which cannot hold {value} exactly", ty.name())))
        }
        (Value::Float(value), &Type::FLOAT8) => Ok(value.to_be_bytes().to_vec()),
        (Value::Float(value), &Type::FLOAT4) => {
            let narrow = *value as f32;
            match narrow.is_infinite() && value.is_finite() {
                true => Err(Some(format!("its type is float4, and {value} is out of its range"))),
                false => Ok(narrow.to_be_bytes().to_vec()),
            }
        }
        (Value::Int(value), &Type::NUMERIC) => decimal(&value.to_string()),
        (Value::Float(value), &Type::NUMERIC) => decimal(&value.to_string()),
        (Value::Text(value) | Value::Decimal(value), &Type::NUMERIC) => decimal(value),
        (Value::Bytes(value), &Type::BYTEA) => Ok(value.clone()),
        (Value::Text(value), &Type::UUID) => match value.parse::<Uuid>() {
            Ok(uuid) => Ok(uuid.as_bytes().to_vec()),
            Err(_) => Err(None),
        },
        (Value::Time(value), &Type::TIMESTAMPTZ) => match value.micros().checked_sub(SERVER_EPOCH) {
            Some(micros) => Ok(micros.to_be_bytes().to_vec()),
            None => Err(Some(format!("its type is timestamptz, and {value} is out of its range"))),
        },
        (Value::Json(value), &(Type::JSON | Type::JSONB)) => Ok(json(&value.to_string(), ty)),
        (Value::Text(value), &(Type::JSON | Type::JSONB)) => {
            let text = serde_json::from_str::<&serde_json::value::RawValue>(value);
            text.map(|text| json(text.get(), ty)).map_err(|_| None)
        }
        (Value::Text(value) | Value::Decimal(value), _) if is_text(ty) => text(value),
        (Value::Json(value), _) if is_text(ty) => text(&value.to_string()),
        _ => Err(None),
    }
}

fn fit<T: TryFrom<i64>>(value: i64, ty: &Type) -> Result<T, Option<String>> {
    T::try_from(value)
        .map_err(|_| Some(format!("its type is {}, and {value} is out of its range", ty.name())))
}

/// Whether a float with so many binary digits has this value.
fn exact(value: i64, digits: u32) -> bool {
    value.unsigned_abs() <= 1 << digits
}

fn decimal(text: &str) -> Result<Vec<u8>, Option<String>> {
    numeric::encode(text).ok_or(None)
}

/// Text, which the server cannot store with a zero byte in it.
fn text(value: &str) -> Result<Vec<u8>, Option<String>> {
    match value.contains('\0') {
        true => {
            Err(Some("it is text with a zero byte, which PostgreSQL cannot store; pass it as bytes".into()))
        }
        false => Ok(value.into()),
    }
}

/// JSON as text; `jsonb` begins with the number of its format.
fn json(text: &str, ty: &Type) -> Vec<u8> {
    let version: &[u8] = if *ty == Type::JSONB { &[1] } else { &[] };
    [version, text.as_bytes()].concat()
}

/// The bytes of a column, of whatever type.
pub(super) struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw<'a>, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Decodes a column. The error says why it cannot be read.
pub(super) fn decode(raw: Option<Raw<'_>>, declared: &Type) -> Result<Value, String> {
    let Some(Raw(bytes)) = raw else { return Ok(Value::Null) };
    let ty = base(declared);
    let value = match *ty {
        Type::VOID => Some(Value::Null),
        Type::BOOL => bytes.first().map(|byte| Value::Bool(*byte != 0)),
        Type::INT2 => number(bytes, i16::from_be_bytes).map(|int| Value::Int(int.into())),
        Type::INT4 => number(bytes, i32::from_be_bytes).map(|int| Value::Int(int.into())),
        Type::OID => number(bytes, u32::from_be_bytes).map(|int| Value::Int(int.into())),
        Type::INT8 => number(bytes, i64::from_be_bytes).map(Value::Int),
        Type::FLOAT4 => number(bytes, f32::from_be_bytes).map(|float| Value::Float(float.into())),
        Type::FLOAT8 => number(bytes, f64::from_be_bytes).map(Value::Float),
        Type::NUMERIC => numeric::decode(bytes).map(Value::Decimal),
        Type::BYTEA => Some(Value::Bytes(bytes.to_vec())),
        Type::UUID => Uuid::from_slice(bytes).ok().map(|uuid| Value::Text(uuid.to_string())),
        // The first and the last number are minus and plus infinity.
        Type::TIMESTAMPTZ => match number(bytes, i64::from_be_bytes) {
            Some(i64::MIN | i64::MAX) => return Err("it is infinite, which a `Time` cannot be".to_owned()),
            micros => micros
                .and_then(|micros| micros.checked_add(SERVER_EPOCH))
                .map(|micros| Value::Time(Time(micros))),
        },
        Type::JSON => serde_json::from_slice(bytes).ok().map(Value::Json),
        Type::JSONB => bytes.get(1..).and_then(|text| serde_json::from_slice(text).ok()).map(Value::Json),
        _ if is_text(ty) => String::from_utf8(bytes.to_vec()).ok().map(Value::Text),
        _ => {
            return Err(format!(
                "its type is {}, which has no value here; cast it in the statement: `cast(… as text)`",
                declared.name()
            ));
        }
    };
    value.ok_or_else(|| format!("the server sent {} bytes that are no {}", bytes.len(), declared.name()))
}

fn number<T, const N: usize>(bytes: &[u8], decode: fn([u8; N]) -> T) -> Option<T> {
    bytes.try_into().ok().map(decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a value is read as after it was sent for a type.
    fn returned(value: Value, ty: &Type) -> Result<Value, String> {
        let Param(bytes) = Param::new(&value, ty)?;
        decode(bytes.as_deref().map(Raw), ty)
    }

    #[test]
    fn values_return_as_they_were() {
        let json = serde_json::json!({"a": [1, null]});
        for (value, ty) in [
            (Value::Bool(true), Type::BOOL),
            (Value::Int(-32_768), Type::INT2),
            (Value::Int(i32::MAX.into()), Type::INT4),
            (Value::Int(i64::MIN), Type::INT8),
            (Value::Int(4_000_000_000), Type::OID),
            (Value::Float(0.5), Type::FLOAT4),
            (Value::Float(1e300), Type::FLOAT8),
            (Value::Decimal("-12.50".into()), Type::NUMERIC),
            (Value::Text("é".into()), Type::VARCHAR),
            (Value::Bytes(vec![0, 255]), Type::BYTEA),
            (Value::Time(Time(0)), Type::TIMESTAMPTZ),
            (Value::Json(json.clone()), Type::JSON),
            (Value::Json(json), Type::JSONB),
            (Value::Text(Uuid::from_u128(7).to_string()), Type::UUID),
            (Value::Null, Type::INT4_RANGE),
        ] {
            assert_eq!(returned(value.clone(), &ty), Ok(value), "{ty}");
        }
        assert_eq!(returned(Value::Int(3), &Type::FLOAT8), Ok(Value::Float(3.0)));
        assert_eq!(returned(Value::Float(0.1), &Type::NUMERIC), Ok(Value::Decimal("0.1".into())));
        assert_eq!(returned(Value::Time(Time(9)), &Type::INT8), Ok(Value::Int(9)));
        assert_eq!(
            returned(Value::Text("[1]".into()), &Type::JSONB),
            Ok(Value::Json(serde_json::json!([1])))
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_type_and_the_value() {
        for (value, ty, part) in [
            (Value::Int(70_000), Type::INT2, "int2, and 70000 is out of its range"),
            (Value::Int(-1), Type::OID, "oid, and -1 is out of its range"),
            (Value::Int((1 << 53) + 1), Type::FLOAT8, "float8, which cannot hold 9007199254740993 exactly"),
            (Value::Float(1e300), Type::FLOAT4, "out of its range"),
            (Value::Text("x".into()), Type::INT8, "int8, and the text \"x\" was given; pass an integer"),
            (Value::Int(7), Type::TEXT, "text, and the integer 7 was given; pass text"),
            (Value::Text("x".into()), Type::UUID, "uuid, and the text \"x\" was given; pass a UUID"),
            (Value::Text("x".into()), Type::JSONB, "pass a `serde_json::Value`"),
            (Value::Text("1e3".into()), Type::NUMERIC, "like \"12.50\""),
            (Value::Float(f64::NAN), Type::NUMERIC, "numeric, and the float NaN was given"),
            (Value::Text("a\0b".into()), Type::TEXT, "a zero byte"),
            (Value::Time(Time(i64::MIN)), Type::TIMESTAMPTZ, "out of its range"),
            (
                Value::Time(Time(0)),
                Type::DATE,
                "date, and the time 1970-01-01T00:00:00.000000Z was given; pass it as text",
            ),
        ] {
            let error = Param::new(&value, &ty).expect_err("it does not fit");
            assert!(error.contains(part), "{error} lacks {part:?}");
        }
    }

    #[test]
    fn a_type_without_a_value_says_what_to_write() {
        let error = decode(Some(Raw(&[0, 0, 0, 0])), &Type::DATE).expect_err("no value");
        assert!(error.contains("date") && error.contains("cast(… as text)"), "{error}");
        let error = decode(Some(Raw(&i64::MAX.to_be_bytes())), &Type::TIMESTAMPTZ).expect_err("infinite");
        assert!(error.contains("infinite"), "{error}");
        assert!(decode(Some(Raw(&[0])), &Type::INT4).is_err(), "too few bytes");
    }
}
