//! Compares answers with their descriptions, in tests.
//!
//! A description says of objects which fields they have; a client must accept others. Here others are errors, so that no field is
//! forgotten.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::{openapi, reply::Reply, routes::Route};

/// Panics if an answer is not as the route's description says.
pub(crate) fn reply(route: &Route, reply: &Reply) {
    let Reply::Json(status, bytes, _) = reply else { return };
    // Pages and what their scripts read are not described.
    if route.access.is_page() {
        return;
    }
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    let document = DOCUMENT.get_or_init(openapi::document);
    let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
    let described = &operation["responses"][status.as_str()]["content"]["application/json"];
    assert!(described.is_object(), "{} {}: the status {status} is not described", route.method, route.path);
    let Some(schema) = described.get("schema") else {
        panic!("{} {}: the answer {status} has no schema", route.method, route.path);
    };
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        // JSON of programs is passed through, with numbers that are too large and nesting that is too deep to be read here.
        Err(_) if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() => return,
        Err(error) => panic!("{} {}: the answer is no JSON: {error}", route.method, route.path),
    };
    if let Err(why) = compare(document, schema, &value) {
        panic!("{} {}: the answer is not as it is described: {why}\n{value}", route.method, route.path);
    }
}

/// Says where and why a value does not fit a schema.
fn compare(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolve(document, schema);
    let Some(keywords) = schema.as_object() else { return Err(format!("{schema} is no schema")) };
    for (keyword, argument) in keywords {
        let fits = match keyword.as_str() {
            "type" => has_type(argument, value),
            "enum" => argument.as_array().is_some_and(|values| values.contains(value)),
            "const" => argument == value,
            "minimum" => value.as_f64().zip(argument.as_f64()).is_none_or(|(value, least)| value >= least),
            "maximum" => value.as_f64().zip(argument.as_f64()).is_none_or(|(value, most)| value <= most),
            "format" => value.as_str().is_none_or(|text| has_format(argument, text)),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    compare(document, argument, item).map_err(|why| format!("[{index}]{why}"))?;
                }
                true
            }
            "properties" => {
                compare_fields(document, keywords, argument, value)?;
                true
            }
            "additionalProperties" if !keywords.contains_key("properties") => {
                for (name, field) in value.as_object().into_iter().flatten() {
                    compare(document, argument, field).map_err(|why| format!(".{name}{why}"))?;
                }
                true
            }
            "oneOf" | "anyOf" => {
                let variants = argument.as_array().into_iter().flatten();
                let fitting = variants.filter(|variant| compare(document, variant, value).is_ok()).count();
                if keyword == "oneOf" { fitting == 1 } else { fitting > 0 }
            }
            "required"
            | "additionalProperties"
            | "description"
            | "examples"
            | "pattern"
            | "contentEncoding" => true,
            other => return Err(format!(": the keyword {other:?} is not known here")),
        };
        if !fits {
            return Err(format!(": {value} does not fit {keyword} {argument}"));
        }
    }
    Ok(())
}

/// Compares the fields of an object: those that are described, and no others.
fn compare_fields(
    document: &Value,
    keywords: &Map<String, Value>,
    properties: &Value,
    value: &Value,
) -> Result<(), String> {
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in keywords.get("required").and_then(Value::as_array).into_iter().flatten() {
        if !name.as_str().is_some_and(|name| fields.contains_key(name)) {
            return Err(format!(": the field {name} is missing"));
        }
    }
    for (name, field) in fields {
        let Some(schema) = properties.get(name) else {
            return Err(format!(": the field {name:?} is not described"));
        };
        compare(document, schema, field).map_err(|why| format!(".{name}{why}"))?;
    }
    Ok(())
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => document.pointer(path.trim_start_matches('#')).unwrap_or(&Value::Null),
        None => schema,
    }
}

fn has_type(names: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => false,
    };
    names.as_array().map_or_else(|| is(names), |names| names.iter().any(is))
}

fn has_format(format: &Value, text: &str) -> bool {
    match format.as_str() {
        Some("uuid") => text.parse::<windlass::JobId>().is_ok(),
        Some("date-time") => text.parse::<windlass::Time>().is_ok(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_wrong_or_not_described_is_found() {
        let document = json!({ "components": { "schemas": {
            "Job": {
                "type": "object",
                "properties": {
                    "id": { "type": "string", "format": "uuid" },
                    "end": { "anyOf": [{ "type": "null" }, { "type": "string", "enum": ["done"] }] },
                    "tries": { "type": "integer", "minimum": 0 },
                },
                "required": ["id", "end"],
            },
        } } });
        let schema = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Job" } });
        let id = "0199f0c2-6f7a-7000-8000-3d2a2d6b8c91";
        let fits = |job: Value| compare(&document, &schema, &json!([job]));
        assert_eq!(fits(json!({ "id": id, "end": null })), Ok(()));
        assert_eq!(fits(json!({ "id": id, "end": "done", "tries": 3 })), Ok(()));
        for (job, why) in [
            (json!({ "id": id }), "[0]: the field \"end\" is missing"),
            (json!({ "id": "x", "end": null }), "[0].id: \"x\" does not fit format \"uuid\""),
            (json!({ "id": id, "end": "lost" }), "[0].end: \"lost\" does not fit anyOf"),
            (json!({ "id": id, "end": null, "tries": -1 }), "[0].tries: -1 does not fit minimum 0"),
            (json!({ "id": id, "end": null, "more": 1 }), "[0]: the field \"more\" is not described"),
            (json!([]), "[0]: [] does not fit type"),
        ] {
            let found = fits(job).expect_err("it does not fit");
            assert!(found.starts_with(why), "{found}");
        }
    }
}
