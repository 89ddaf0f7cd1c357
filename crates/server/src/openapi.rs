//! The API description, OpenAPI 3.1, made from the table of routes.
//!
//! Queries and bodies are described by the declarations that parse them, calls of workers by those of the worker protocol, and other answers by
//! `answers`. Clients must accept further fields in answers.

use serde_json::{Map, Value, json};

use windlass_remote::protocol::schema::Schemas;

use crate::{
    error::ErrorKind,
    input::Field,
    routes::{Access, Describe, Route, routes},
};

/// The document.
pub fn document() -> Value {
    let (mut paths, mut schemas) = (Map::new(), Schemas::default());
    for route in routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(&route, &mut schemas);
    }
    let mut schemas = schemas.into_map();
    schemas.insert("Error".to_owned(), error_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": "1",
            "description": "Durable work: submit jobs, look at them, act on them. See docs/server.md. Every response has the header Windlass-Version; answers that depend on the time have the store's clock in Windlass-Now.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
        },
    })
}

fn error_schema() -> Value {
    let codes: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    json!({
        "type": "object",
        "required": ["code", "message", "hint"],
        "properties": {
            "code": { "type": "string", "enum": codes, "description": "What kind of error it is" },
            "message": { "type": "string", "description": "What is wrong, and why" },
            "hint": { "type": "string", "description": "What to do next" },
            "subject": { "type": "string", "enum": ["job", "path"], "description": "What was not found: the job, or the path itself" },
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "responses": responses(route, schemas),
    });
    let parameters: Vec<Value> =
        path_parameters(route.path).into_iter().chain(route.query.iter().map(query_parameter)).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some((describe, required)) = route.body {
        let schema = describe(schemas);
        operation["requestBody"] =
            json!({ "required": required, "content": { "application/json": { "schema": schema } } });
    }
    operation["security"] = match route.access {
        Access::Needs(permission) => {
            operation["x-permission"] = json!(permission);
            // A server on a loopback address may need none.
            json!([{ "token": [] }, {}])
        }
        Access::Probe | Access::Open | Access::Page(_) | Access::OpenPage => json!([]),
    };
    operation
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let description = match name {
            "job" => "The job: its id, kind/key, its key, or its name as a child of a branch",
            "number" => "The number of the signal in the inbox",
            "token" => "The id or the name of the token",
            _ => "The name",
        };
        json!({ "name": name, "in": "path", "required": true, "description": description, "schema": { "type": "string" } })
    };
    names.map(parameter).collect()
}

fn query_parameter(field: &Field) -> Value {
    let Field { name, doc, schema, required } = field;
    json!({ "name": name, "in": "query", "required": required, "description": doc, "schema": schema })
}

fn responses(route: &Route, schemas: &mut Schemas) -> Value {
    let content = match (route.name, route.answer_schema) {
        ("metrics", _) => json!({ "text/plain": { "schema": { "type": "string" } } }),
        ("events", _) => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
        (_, Some(describe)) => json_content(describe, schemas),
        (_, None) => json!({ "application/json": {} }),
    };
    let mut responses = json!({
        "200": { "description": route.answer, "content": content },
        "default": {
            "description": "An error",
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
        },
    });
    if route.progresses {
        responses["200"]["content"]["text/event-stream"] =
            json!({ "schema": { "type": "string", "description": EVENTS } });
    }
    if route.tagged {
        responses["304"] = json!({ "description": "The answer is the one that If-None-Match names" });
    }
    for (status, answer, describe) in &route.other_answers {
        responses[status.as_str()] =
            json!({ "description": answer, "content": json_content(*describe, schemas) });
    }
    responses
}

fn json_content(describe: Describe, schemas: &mut Schemas) -> Value {
    json!({ "application/json": { "schema": describe(schemas) } })
}

/// What an operation in batches also answers.
const EVENTS: &str = "With `Accept: text/event-stream`: `progress` events, and `done` with the result or `error` at the end. If the \
                      connection is closed, the operation stops after its current batch";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reference_leads_to_a_schema() {
        fn check(document: &Value, value: &Value) {
            if let Some(path) = value["$ref"].as_str() {
                assert!(
                    document.pointer(path.trim_start_matches('#')).is_some_and(Value::is_object),
                    "{path}"
                );
            }
            value.as_object().into_iter().flat_map(Map::values).for_each(|value| check(document, value));
            value.as_array().into_iter().flatten().for_each(|value| check(document, value));
        }
        let document = document();
        check(&document, &document);
    }

    #[test]
    fn every_route_is_described_under_a_name_of_its_own() {
        let document = document();
        let mut names = BTreeSet::new();
        for route in routes() {
            let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
            assert_eq!(operation["operationId"], route.name, "{} {}", route.method, route.path);
            assert!(names.insert(route.name), "two operations are called {}", route.name);
            let content = &operation["responses"]["200"]["content"];
            let is_described = |content: &Value| content.get("schema").is_some();
            let all_described = content.as_object().is_some_and(|types| types.values().all(is_described));
            assert!(all_described, "the answer of {} has no schema", route.name);
            let described = operation["parameters"].as_array().map_or(0, Vec::len);
            assert_eq!(described, route.path.matches('{').count() + route.query.len(), "{}", route.name);
        }
    }
}
