//! Values of statements, and how Rust types become values and are read back.

use std::{borrow::Cow, fmt, sync::Arc};

use uuid::Uuid;
use windlass_model::{JobId, Time};

/// A value of a statement: a parameter, or a column of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `null`.
    Null,
    /// A truth value. SQLite keeps it as the integer 0 or 1.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A decimal number of any length, as text: PostgreSQL's `numeric`.
    Decimal(String),
    /// Text. PostgreSQL's `uuid` and enums are text too.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A point in time: PostgreSQL's `timestamptz`. SQLite keeps it as an integer, the microseconds since 1970.
    Time(Time),
    /// JSON. SQLite keeps it as text.
    Json(serde_json::Value),
}

/// How much of a text an error shows.
const SHOWN: usize = 40;

impl fmt::Display for Value {
    /// The value as an error shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |f: &mut fmt::Formatter<'_>, kind: &str, text: &str| match text.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{kind} {:?}…", &text[..end]),
            None => write!(f, "{kind} {text:?}"),
        };
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "the bool {value}"),
            Value::Int(value) => write!(f, "the integer {value}"),
            Value::Float(value) => write!(f, "the float {value}"),
            Value::Decimal(value) => write!(f, "the decimal {value}"),
            Value::Text(value) => text(f, "the text", value),
            Value::Bytes(value) => write!(f, "{} bytes", value.len()),
            Value::Time(value) => write!(f, "the time {value}"),
            Value::Json(value) => text(f, "the JSON", &value.to_string()),
        }
    }
}

/// A Rust type whose values can be parameters of a statement: booleans, integers, floats, text, bytes, [`Time`], JSON
/// ([`serde_json::Value`]), UUIDs, [`JobId`]s, `Option`s of these, and references to them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a statement",
    note = "pass a bool, a number, text, bytes, a `Time`, a `serde_json::Value` or an `Option` of one; convert other types first, e.g. with `to_string`"
)]
pub trait ToValue {
    /// The value, or why it cannot be sent.
    fn to_value(&self) -> Result<Value, String>;
}

/// A Rust type that a column can be read as.
#[diagnostic::on_unimplemented(
    message = "a column cannot be read as `{Self}`",
    note = "name a type that it can be read as: `row.get::<i64>(…)`; there are bool, numbers, `String`, `Vec<u8>`, `Time`, `serde_json::Value` and `Option`s of these"
)]
pub trait FromValue: Sized {
    /// Reads the value, or says what is there instead.
    fn from_value(value: &Value) -> Result<Self, String>;
}

impl ToValue for Value {
    fn to_value(&self) -> Result<Value, String> {
        Ok(self.clone())
    }
}

impl FromValue for Value {
    fn from_value(value: &Value) -> Result<Value, String> {
        Ok(value.clone())
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Result<Value, String> {
        self.as_ref().map_or(Ok(Value::Null), T::to_value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Result<Option<T>, String> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

macro_rules! to_value_of_pointers {
    ($($pointer:ty),*) => {$(
        impl<T: ToValue + ?Sized> ToValue for $pointer {
            fn to_value(&self) -> Result<Value, String> {
                (**self).to_value()
            }
        }
    )*};
}
to_value_of_pointers!(&T, &mut T, Box<T>, Arc<T>);

impl<T: ToValue + ToOwned + ?Sized> ToValue for Cow<'_, T> {
    fn to_value(&self) -> Result<Value, String> {
        (**self).to_value()
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl ToValue for $int {
            fn to_value(&self) -> Result<Value, String> {
                i64::try_from(*self)
                    .map(Value::Int)
                    .map_err(|_| format!("{self} is larger than a column can hold ({})", i64::MAX))
            }
        }

        impl FromValue for $int {
            fn from_value(value: &Value) -> Result<$int, String> {
                let fits = |int: i64| <$int>::try_from(int).map_err(|_| {
                    format!("it is {int}, and the type holds {} to {}", <$int>::MIN, <$int>::MAX)
                });
                fits(integer(value)?)
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

/// Reads an integer: also from a number of another type, if it is one.
fn integer(value: &Value) -> Result<i64, String> {
    match value {
        Value::Int(int) => Ok(*int),
        Value::Bool(bool) => Ok(i64::from(*bool)),
        // Floats from -2^53 to 2^53 are exact.
        Value::Float(float) if float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0 => {
            Ok(*float as i64)
        }
        Value::Decimal(decimal) => {
            let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
            match whole.parse() {
                Ok(int) if fraction.bytes().all(|digit| digit == b'0') => Ok(int),
                _ => Err(found(value)),
            }
        }
        other => Err(found(other)),
    }
}

/// What is there instead of what was asked for.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "it is null; read it as an `Option`".to_owned(),
        value => format!("it is {value}"),
    }
}

impl ToValue for bool {
    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Bool(*self))
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Result<bool, String> {
        match value {
            Value::Bool(bool) => Ok(*bool),
            Value::Int(0) => Ok(false),
            Value::Int(1) => Ok(true),
            other => Err(found(other)),
        }
    }
}

impl ToValue for f64 {
    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Float(*self))
    }
}

impl ToValue for f32 {
    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Float(f64::from(*self)))
    }
}

impl FromValue for f64 {
    fn from_value(value: &Value) -> Result<f64, String> {
        match value {
            Value::Float(float) => Ok(*float),
            Value::Int(int) => Ok(*int as f64),
            Value::Decimal(decimal) => decimal.parse().map_err(|_| found(value)),
            other => Err(found(other)),
        }
    }
}

impl FromValue for f32 {
    fn from_value(value: &Value) -> Result<f32, String> {
        f64::from_value(value).map(|float| float as f32)
    }
}

impl ToValue for str {
    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Text(self.to_owned()))
    }
}

impl ToValue for String {
    fn to_value(&self) -> Result<Value, String> {
        self.as_str().to_value()
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Result<String, String> {
        match value {
            Value::Text(text) | Value::Decimal(text) => Ok(text.clone()),
            other => Err(found(other)),
        }
    }
}

impl ToValue for [u8] {
    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Bytes(self.to_vec()))
    }
}

impl<const N: usize> ToValue for [u8; N] {
    fn to_value(&self) -> Result<Value, String> {
        self.as_slice().to_value()
    }
}

impl ToValue for Vec<u8> {
    fn to_value(&self) -> Result<Value, String> {
        self.as_slice().to_value()
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Result<Vec<u8>, String> {
        match value {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            other => Err(found(other)),
        }
    }
}

impl ToValue for Time {
    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Time(*self))
    }
}

impl FromValue for Time {
    fn from_value(value: &Value) -> Result<Time, String> {
        match value {
            Value::Time(time) => Ok(*time),
            Value::Int(micros) => Ok(Time(*micros)),
            other => Err(found(other)),
        }
    }
}

impl ToValue for serde_json::Value {
    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Json(self.clone()))
    }
}

impl FromValue for serde_json::Value {
    fn from_value(value: &Value) -> Result<serde_json::Value, String> {
        match value {
            Value::Json(json) => Ok(json.clone()),
            // SQLite keeps JSON that is a number as one, unless the column is declared as text.
            Value::Int(int) => Ok((*int).into()),
            Value::Float(float) => Ok((*float).into()),
            Value::Text(text) => {
                serde_json::from_str(text).map_err(|error| format!("{}: {error}", found(value)))
            }
            other => Err(found(other)),
        }
    }
}

macro_rules! ids {
    ($($id:ty),*) => {$(
        impl ToValue for $id {
            fn to_value(&self) -> Result<Value, String> {
                Ok(Value::Text(self.to_string()))
            }
        }

        impl FromValue for $id {
            fn from_value(value: &Value) -> Result<$id, String> {
                match value {
                    Value::Text(text) => text.parse().map_err(|_| found(value)),
                    other => Err(found(other)),
                }
            }
        }
    )*};
}
ids!(Uuid, JobId);

#[cfg(test)]
mod tests {
    use super::*;

    /// What a value is read as after it was sent and came back as it was.
    fn returned<T: ToValue + FromValue>(value: &T) -> Result<T, String> {
        T::from_value(&value.to_value()?)
    }

    #[test]
    fn values_return_as_they_were() {
        assert_eq!(returned(&true), Ok(true));
        assert_eq!(returned(&i64::MIN), Ok(i64::MIN));
        assert_eq!(returned(&u32::MAX), Ok(u32::MAX));
        assert_eq!(returned(&1.5_f32), Ok(1.5));
        assert_eq!(returned(&"a".to_owned()), Ok("a".to_owned()));
        assert_eq!(returned(&vec![0_u8, 255]), Ok(vec![0, 255]));
        assert_eq!(returned(&None::<i64>), Ok(None));
        assert_eq!(returned(&Some("b".to_owned())), Ok(Some("b".to_owned())));
        assert_eq!(returned(&Time(7)), Ok(Time(7)));
        assert_eq!(returned(&serde_json::json!({"a": [1]})), Ok(serde_json::json!({"a": [1]})));
        assert_eq!(returned(&Uuid::from_u128(7)), Ok(Uuid::from_u128(7)));
        assert_eq!((&"c").to_value(), Ok(Value::Text("c".into())));
        assert_eq!(Cow::Borrowed("d").to_value(), Ok(Value::Text("d".into())));
    }

    #[test]
    fn numbers_are_read_as_other_numbers_only_if_nothing_is_lost() {
        assert_eq!(i64::from_value(&Value::Decimal("12.00".into())), Ok(12));
        assert_eq!(i64::from_value(&Value::Float(12.0)), Ok(12));
        assert_eq!(f64::from_value(&Value::Decimal("-1.25".into())), Ok(-1.25));
        assert_eq!(String::from_value(&Value::Decimal("0.10".into())), Ok("0.10".into()));
        assert_eq!(bool::from_value(&Value::Int(1)), Ok(true));
        for value in [Value::Decimal("12.50".into()), Value::Float(0.5), Value::Decimal("1e3".into())] {
            i64::from_value(&value).expect_err("not an integer");
        }
        bool::from_value(&Value::Int(2)).expect_err("not a bool");
    }

    #[test]
    fn an_error_says_what_is_there() {
        let error = |why: Result<i16, String>| why.expect_err("it does not fit");
        assert_eq!(
            error(i16::from_value(&Value::Int(40_000))),
            "it is 40000, and the type holds -32768 to 32767"
        );
        assert_eq!(error(i16::from_value(&Value::Null)), "it is null; read it as an `Option`");
        assert_eq!(error(i16::from_value(&Value::Text("x".into()))), "it is the text \"x\"");
        let long = error(i16::from_value(&Value::Text("é".repeat(99))));
        assert_eq!(long, format!("it is the text \"{}\"…", "é".repeat(SHOWN)));
        let large = u64::MAX.to_value().expect_err("too large");
        assert!(large.contains("18446744073709551615"), "{large}");
    }
}
