//! Descriptions of types as JSON Schema, for the API description of a server.
//!
//! The macro `described` declares a type of the protocol: the same declaration makes the type, with what serde is told about it, and its
//! description. So a description cannot say something else than what is parsed and written.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Map, Value, json};
use windlass_model::{
    BranchNo, ClaimNo, Epoch, JobId, Reason, Rev, State, Time, WorkerId,
    journal::{CallEvent, CallKind},
    unique::{Conflict, States},
};

use super::{payload::WirePayload, spans::Millis};

/// The schemas of types that have a name, which others refer to.
#[derive(Debug, Default)]
pub struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// A reference to the schema of this name. If it is not known yet, `make` makes it.
    pub fn named(&mut self, name: &str, make: impl FnOnce(&mut Schemas) -> Value) -> Value {
        if !self.0.contains_key(name) {
            // A type may contain itself.
            self.0.insert(name.to_owned(), Value::Null);
            let made = make(self);
            self.0.insert(name.to_owned(), made);
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// The schema that a reference refers to, or else the schema itself.
    pub fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        name.and_then(|name| self.0.get(name)).unwrap_or(schema)
    }

    /// All of them, by name.
    pub fn into_map(self) -> Map<String, Value> {
        self.0.into_iter().collect()
    }
}

/// A type whose values can be described.
pub trait Described {
    /// The schema of its values.
    fn describe(schemas: &mut Schemas) -> Value;

    /// The schema of a value that is left out where there is none.
    fn describe_present(schemas: &mut Schemas) -> Value {
        Self::describe(schemas)
    }
}

/// The schema of an object that is being made.
#[derive(Debug)]
pub struct ObjectSchema {
    description: String,
    properties: Map<String, Value>,
    required: Vec<String>,
    is_strict: bool,
}

impl ObjectSchema {
    /// An object without fields. If `is_strict`, other fields than those that are added are errors.
    pub fn new(doc: &str, is_strict: bool) -> ObjectSchema {
        let (properties, required) = Default::default();
        ObjectSchema { description: doc.to_owned(), properties, required, is_strict }
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, doc: &str, mut schema: Value, required: bool) {
        // The names of fields that are words of Rust.
        let name = name.trim_start_matches("r#");
        if !doc.is_empty() {
            schema["description"] = doc.into();
        }
        self.properties.insert(name.to_owned(), schema);
        if required {
            self.required.push(name.to_owned());
        }
    }

    /// Adds the fields of another object.
    pub fn flatten(&mut self, other: &Value) {
        for (name, schema) in other["properties"].as_object().into_iter().flatten() {
            self.properties.insert(name.clone(), schema.clone());
        }
        let required = other["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.required.extend(required.map(str::to_owned));
    }

    /// The schema.
    pub fn into_schema(self) -> Value {
        let mut schema = json!({ "type": "object", "properties": self.properties });
        if !self.description.is_empty() {
            schema["description"] = self.description.into();
        }
        if !self.required.is_empty() {
            schema["required"] = self.required.into();
        }
        if self.is_strict {
            schema["additionalProperties"] = false.into();
        }
        schema
    }
}

/// A schema that null fits too.
pub fn nullable(schema: Value) -> Value {
    match schema["type"].as_str() {
        Some(name) if schema.get("enum").is_none() => {
            let types = json!([name, "null"]);
            let mut schema = schema;
            schema["type"] = types;
            schema
        }
        None if schema.as_object().is_some_and(Map::is_empty) => schema,
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

/// A text of the lines of a doc comment, without the brackets of its links.
pub(super) fn text_of(lines: &[&str]) -> String {
    lines.concat().replace("[`", "`").replace("`]", "`").trim().to_owned()
}

/// The name of a type of the protocol: `worker`, its module, and its own name.
pub(super) fn name(module: &str, name: &str) -> String {
    format!("worker.{}.{name}", module.rsplit("::").next().unwrap_or(module))
}

/// The name of a variant as serde writes it with `rename_all = "snake_case"`.
pub(super) fn snake_case(name: &str) -> String {
    let letter = |(at, letter): (usize, char)| {
        let separator = if at > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{separator}{}", letter.to_lowercase())
    };
    name.char_indices().map(letter).collect()
}

/// Declares types of the protocol with their descriptions: structs, and enums whose variants serde writes in `snake_case`, as text or, if
/// they have a tag, as objects.
macro_rules! described {
    () => {};
    (
        $(#[$($about:tt)*])* pub struct $name:ident { $($(#[$($meta:tt)*])* pub $field:ident: $type:ty,)* }
        $($rest:tt)*
    ) => {
        $(#[$($about)*])*
        pub struct $name { $($(#[$($meta)*])* pub $field: $type,)* }

        impl $crate::protocol::schema::Described for $name {
            fn describe(schemas: &mut $crate::protocol::schema::Schemas) -> serde_json::Value {
                use $crate::protocol::schema::{self, ObjectSchema, text_of};
                schemas.named(&schema::name(module_path!(), stringify!($name)), |schemas| {
                    let doc = text_of(&[$(schema::doc_of!($($about)*)),*]);
                    #[allow(unused_mut, reason = "some requests have no fields")]
                    let mut object = ObjectSchema::new(&doc, false $(|| schema::is_strict!($($about)*))*);
                    let all_default = false $(|| schema::has_default!($($about)*))*;
                    $(
                        let schema = schema::field_schema!(schemas, $type, $(#[$($meta)*])*);
                        let required = !(all_default $(|| schema::has_default!($($meta)*))*);
                        object.field(stringify!($field), &text_of(&[$(schema::doc_of!($($meta)*)),*]), schema, required);
                    )*
                    let _ = (all_default, schemas);
                    object.into_schema()
                })
            }
        }

        $crate::protocol::schema::described! { $($rest)* }
    };
    (
        $(#[$($about:tt)*])* pub enum $name:ident { $($(#[$($meta:tt)*])* $variant:ident,)* }
        $($rest:tt)*
    ) => {
        $(#[$($about)*])*
        pub enum $name { $($(#[$($meta)*])* $variant,)* }

        impl $crate::protocol::schema::Described for $name {
            fn describe(_: &mut $crate::protocol::schema::Schemas) -> serde_json::Value {
                let names = [$($crate::protocol::schema::snake_case(stringify!($variant))),*];
                serde_json::json!({ "type": "string", "enum": names })
            }
        }

        $crate::protocol::schema::described! { $($rest)* }
    };
    (
        $(#[$($about:tt)*])* pub enum $name:ident {
            $($(#[$($meta:tt)*])* $variant:ident $({ $($(#[$($field_meta:tt)*])* $field:ident: $type:ty,)* })?,)*
        }
        $($rest:tt)*
    ) => {
        $(#[$($about)*])*
        pub enum $name { $($(#[$($meta)*])* $variant $({ $($(#[$($field_meta)*])* $field: $type,)* })?,)* }

        impl $crate::protocol::schema::Described for $name {
            fn describe(schemas: &mut $crate::protocol::schema::Schemas) -> serde_json::Value {
                use $crate::protocol::schema::{self, ObjectSchema, text_of};
                let tag = text_of(&[$(schema::tag_of!($($about)*)),*]);
                schemas.named(&schema::name(module_path!(), stringify!($name)), |schemas| {
                    let variants = [$({
                        let mut object = ObjectSchema::new(&text_of(&[$(schema::doc_of!($($meta)*)),*]), false);
                        let name = schema::snake_case(stringify!($variant));
                        object.field(&tag, "", serde_json::json!({ "type": "string", "const": name }), true);
                        $($(
                            let schema = schema::field_schema!(schemas, $type, $(#[$($field_meta)*])*);
                            let required = !(false $(|| schema::has_default!($($field_meta)*))*);
                            object.field(stringify!($field), &text_of(&[$(schema::doc_of!($($field_meta)*)),*]), schema, required);
                        )*)?
                        object.into_schema()
                    }),*];
                    let doc = text_of(&[$(schema::doc_of!($($about)*)),*]);
                    serde_json::json!({ "description": doc, "oneOf": variants })
                })
            }
        }

        $crate::protocol::schema::described! { $($rest)* }
    };
}

/// The schema of a field: of what is there, if it is left out otherwise.
macro_rules! field_schema {
    ($schemas:ident, $type:ty, $(#[$($meta:tt)*])*) => {
        match false $(|| $crate::protocol::schema::is_left_out!($($meta)*))* {
            true => <$type as $crate::protocol::schema::Described>::describe_present($schemas),
            false => <$type as $crate::protocol::schema::Described>::describe($schemas),
        }
    };
}

/// The text of a doc comment, if the attribute is one.
macro_rules! doc_of {
    (doc = $text:literal) => {
        $text
    };
    ($($other:tt)*) => {
        ""
    };
}

/// Whether the attribute says that a field need not be there.
macro_rules! has_default {
    (serde(default $($rest:tt)*)) => {
        true
    };
    ($($other:tt)*) => {
        false
    };
}

/// Whether the attribute says that a field is left out if it has its default.
macro_rules! is_left_out {
    (serde(default, skip_serializing_if $($rest:tt)*)) => {
        true
    };
    (serde(default = $default:literal, skip_serializing_if $($rest:tt)*)) => {
        true
    };
    ($($other:tt)*) => {
        false
    };
}

/// Whether the attribute says that unknown fields are errors.
macro_rules! is_strict {
    (serde(deny_unknown_fields)) => {
        true
    };
    ($($other:tt)*) => {
        false
    };
}

/// The name of the field that says which variant it is, if the attribute has one.
macro_rules! tag_of {
    (serde(tag = $tag:literal $($rest:tt)*)) => {
        $tag
    };
    ($($other:tt)*) => {
        ""
    };
}

pub(crate) use {described, doc_of, field_schema, has_default, is_left_out, is_strict, tag_of};

macro_rules! described_as {
    ($($type:ty => $schema:tt;)*) => {$(
        impl Described for $type {
            fn describe(_: &mut Schemas) -> Value {
                json!($schema)
            }
        }
    )*};
}

described_as! {
    bool => { "type": "boolean" };
    String => { "type": "string" };
    Box<str> => { "type": "string" };
    Cow<'static, str> => { "type": "string" };
    i16 => { "type": "integer", "minimum": -32768, "maximum": 32767 };
    i32 => { "type": "integer", "format": "int32" };
    i64 => { "type": "integer", "format": "int64" };
    u16 => { "type": "integer", "minimum": 0, "maximum": 65535 };
    u32 => { "type": "integer", "minimum": 0, "maximum": 4294967295_u32 };
    u64 => { "type": "integer", "minimum": 0 };
    usize => { "type": "integer", "minimum": 0 };
    f64 => { "type": "number" };
    Value => {};
    Millis => { "type": "integer", "minimum": 0 };
    JobId => { "type": "string", "format": "uuid" };
    WorkerId => { "type": "string", "pattern": "^w[0-9a-f]+$" };
    ClaimNo => { "type": "integer", "format": "int64" };
    Epoch => { "type": "integer", "format": "int32" };
    Rev => { "type": "integer", "format": "int32" };
    BranchNo => { "type": "integer", "format": "int64" };
    Time => { "type": "string", "format": "date-time" };
    State => { "type": "string", "enum": (State::ALL) };
    Reason => { "type": "string", "enum": (Reason::ALL) };
    CallKind => { "type": "string", "enum": (CallKind::ALL) };
    CallEvent => { "type": "string", "enum": (CallEvent::ALL) };
    States => { "type": "array", "items": { "type": "string", "enum": (State::ALL) } };
    Conflict => { "type": "string", "enum": (CONFLICTS) };
}

/// All of them.
const CONFLICTS: [Conflict; 4] =
    [Conflict::Keep, Conflict::Reject, Conflict::Replace, Conflict::CancelAndReplace];

impl Described for WirePayload {
    fn describe(schemas: &mut Schemas) -> Value {
        schemas.named("worker.Payload", |_| {
            json!({
                "description": "An input, an output, a message: any JSON, or bytes of a codec of the program.",
                "oneOf": [
                    {
                        "type": "object",
                        "properties": { "json": {} },
                        "required": ["json"],
                        "additionalProperties": false,
                    },
                    {
                        "type": "object",
                        "properties": {
                            "codec": { "type": "integer", "minimum": 0, "maximum": 255 },
                            "base64": { "type": "string", "contentEncoding": "base64" },
                        },
                        "required": ["base64"],
                        "additionalProperties": false,
                    },
                ],
            })
        })
    }
}

impl<T: Described> Described for Option<T> {
    fn describe(schemas: &mut Schemas) -> Value {
        nullable(T::describe(schemas))
    }

    fn describe_present(schemas: &mut Schemas) -> Value {
        T::describe(schemas)
    }
}

impl<T: Described> Described for Box<T> {
    fn describe(schemas: &mut Schemas) -> Value {
        T::describe(schemas)
    }
}

impl<T: Described> Described for Vec<T> {
    fn describe(schemas: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::describe(schemas) })
    }
}

impl<T: Described> Described for BTreeMap<String, T> {
    fn describe(schemas: &mut Schemas) -> Value {
        json!({ "type": "object", "additionalProperties": T::describe(schemas) })
    }
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro declares public types")]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    described! {
        /// An example
        /// of a request.
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Example {
            /// How many; see [`Outcome`].
            pub count: u32,
            /// Perhaps.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub wait_ms: Option<Millis>,
            pub at: Option<Time>,
            #[serde(default)]
            pub outcomes: Vec<Outcome>,
        }

        /// What happened.
        #[derive(Serialize, Deserialize)]
        #[serde(tag = "outcome", rename_all = "snake_case")]
        pub enum Outcome {
            /// Nothing.
            NothingAtAll,
            /// Something.
            Some {
                /// That.
                job: JobId,
            },
        }

        #[derive(Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Word {
            One,
            TwoWords,
        }
    }

    #[test]
    fn a_description_is_made_of_the_declaration() {
        let mut schemas = Schemas::default();
        let reference = Example::describe(&mut schemas);
        assert_eq!(reference, json!({ "$ref": "#/components/schemas/worker.tests.Example" }));
        let example = schemas.resolve(&reference).clone();
        assert_eq!(example["description"], "An example of a request.");
        assert_eq!(example["properties"]["count"]["description"], "How many; see `Outcome`.");
        assert_eq!(example["properties"]["wait_ms"]["type"], "integer");
        assert_eq!(example["properties"]["at"]["type"], json!(["string", "null"]));
        assert_eq!(example["required"], json!(["count", "at"]));
        assert_eq!(example["additionalProperties"], false);
        let outcome = schemas.resolve(&example["properties"]["outcomes"]["items"]);
        assert_eq!(outcome["oneOf"][0]["properties"]["outcome"]["const"], "nothing_at_all");
        assert_eq!(outcome["oneOf"][1]["required"], json!(["outcome", "job"]));
        assert_eq!(Word::describe(&mut schemas)["enum"], json!(["one", "two_words"]));
    }

    #[test]
    fn all_conflicts_are_described() {
        // A new one does not compile until it is added to the list.
        for conflict in CONFLICTS {
            match conflict {
                Conflict::Keep | Conflict::Reject | Conflict::Replace | Conflict::CancelAndReplace => {}
            }
        }
    }
}
