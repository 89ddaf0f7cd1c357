//! What the routes under `/v1` answer, as JSON Schema.
//!
//! [`answers!`] describes values of other crates by naming their fields: the types of the fields are those of the values, and a field that
//! is not named does not compile. [`shapes!`] describes objects that routes put together. What serde makes of a field (that it is left
//! out, that it has another name) is repeated here; the tests compare every answer with its description (`check.rs`).

mod actions;
mod alerts;
mod branches;
#[cfg(feature = "check-answers")]
pub(crate) mod check;
mod jobs;
mod routes;
mod rules;
mod values;

use serde_json::{Value, json};
use windlass_remote::protocol::schema::Schemas;

pub(crate) use routes::*;

/// A type whose values are in answers.
pub(crate) trait Answered {
    /// The schema of its values.
    fn schema(schemas: &mut Schemas) -> Value;

    /// The same without a name, for fields that are among those of another object.
    fn inline(schemas: &mut Schemas) -> Value {
        Self::schema(schemas)
    }

    /// The schema of a value that is left out where there is none.
    fn present(schemas: &mut Schemas) -> Value {
        Self::schema(schemas)
    }
}

/// One of two answers.
pub(crate) struct Either<A, B>(std::marker::PhantomData<(A, B)>);

impl<A: Answered, B: Answered> Answered for Either<A, B> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "anyOf": [A::schema(schemas), B::schema(schemas)] })
    }
}

/// The schema of a field, by a function that returns it.
pub(crate) fn of<V, T: Answered>(_field: fn(&V) -> &T, schemas: &mut Schemas) -> Value {
    T::schema(schemas)
}

/// The same of a field that is left out where there is nothing.
pub(crate) fn present<V, T: Answered>(_field: fn(&V) -> &T, schemas: &mut Schemas) -> Value {
    T::present(schemas)
}

/// The same of a field whose own fields are in its place.
pub(crate) fn inline<V, T: Answered>(_field: fn(&V) -> &T, schemas: &mut Schemas) -> Value {
    T::inline(schemas)
}

/// Describes structs: all of their fields, each with what serde makes of it. `[?]` is left out if there is nothing, `[+]` has its
/// own fields in its place, `[-]` is not written, and a text is its name in JSON.
macro_rules! answers {
    ($($(#[doc = $about:literal])+ $type:ident {
        $($(#[doc = $doc:literal])* $field:ident $([$how:tt])?,)*
    })+) => {$(
        impl $crate::answers::Answered for $type {
            fn schema(schemas: &mut windlass_remote::protocol::schema::Schemas) -> serde_json::Value {
                schemas.named(stringify!($type), <$type as $crate::answers::Answered>::inline)
            }

            fn inline(schemas: &mut windlass_remote::protocol::schema::Schemas) -> serde_json::Value {
                // Names every field: another one must be described here.
                let _all_fields = |value: $type| {
                    let $type { $($field: _,)* } = value;
                };
                let mut object = $crate::answers::object(&[$($about),+]);
                $($crate::answers::answered_field! { object, schemas, $type, [$($doc),*], $field $([$how])? })*
                object.into_schema()
            }
        }
    )+};
}

macro_rules! answered_field {
    ($object:ident, $schemas:ident, $type:ident, $doc:expr, $field:ident) => {
        let schema = $crate::answers::of(|value: &$type| &value.$field, $schemas);
        $object.field(stringify!($field), &$crate::answers::text(&$doc), schema, true);
    };
    ($object:ident, $schemas:ident, $type:ident, $doc:expr, $field:ident [?]) => {
        let schema = $crate::answers::present(|value: &$type| &value.$field, $schemas);
        $object.field(stringify!($field), &$crate::answers::text(&$doc), schema, false);
    };
    ($object:ident, $schemas:ident, $type:ident, $doc:expr, $field:ident [+]) => {
        $object.flatten(&$crate::answers::inline(|value: &$type| &value.$field, $schemas));
    };
    ($object:ident, $schemas:ident, $type:ident, $doc:expr, $field:ident [-]) => {};
    ($object:ident, $schemas:ident, $type:ident, $doc:expr, $field:ident [$name:literal]) => {
        let schema = $crate::answers::of(|value: &$type| &value.$field, $schemas);
        $object.field($name, &$crate::answers::text(&$doc), schema, true);
    };
}

/// Declares objects that are only described. `[?]` may be left out, `[+]` has its own fields in its place.
macro_rules! shapes {
    ($($(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty $([$how:tt])?,)*
    })+) => {$(
        $(#[doc = $about])+
        pub(crate) struct $name;

        impl $crate::answers::Answered for $name {
            fn schema(schemas: &mut windlass_remote::protocol::schema::Schemas) -> serde_json::Value {
                schemas.named(stringify!($name), |schemas| {
                    let mut object = $crate::answers::object(&[$($about),+]);
                    $($crate::answers::shape_field! { object, schemas, $type, [$($doc),*], $field $([$how])? })*
                    object.into_schema()
                })
            }
        }
    )+};
}

macro_rules! shape_field {
    ($object:ident, $schemas:ident, $type:ty, $doc:expr, $field:ident) => {
        let schema = <$type as $crate::answers::Answered>::schema($schemas);
        $object.field(stringify!($field), &$crate::answers::text(&$doc), schema, true);
    };
    ($object:ident, $schemas:ident, $type:ty, $doc:expr, $field:ident [?]) => {
        let schema = <$type as $crate::answers::Answered>::present($schemas);
        $object.field(stringify!($field), &$crate::answers::text(&$doc), schema, false);
    };
    ($object:ident, $schemas:ident, $type:ty, $doc:expr, $field:ident [+]) => {
        $object.flatten(&<$type as $crate::answers::Answered>::inline($schemas));
    };
}

pub(crate) use {answered_field, answers, shape_field, shapes};

/// A text of the lines of a doc comment.
pub(crate) fn text(lines: &[&str]) -> String {
    lines.concat().trim().to_owned()
}

/// An object with fields that are yet to be added, and possibly others in newer versions.
pub(crate) fn object(about: &[&str]) -> windlass_remote::protocol::schema::ObjectSchema {
    windlass_remote::protocol::schema::ObjectSchema::new(&text(about), false)
}
