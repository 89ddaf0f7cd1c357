//! The API description, OpenAPI 3.1, made from the table of routes.
//!
//! Queries and bodies are described by the declarations that parse them. Answers are the values of `windlass::operate`, which the
//! commands print with `--json`; they are described in words, because clients must accept new fields in them.

use serde_json::{Map, Value, json};

use crate::{
    error::ErrorKind,
    input::Field,
    routes::{Access, Route, routes},
};

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(&route);
    }
    let codes: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
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
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["code", "message", "hint"],
                    "properties": {
                        "code": { "type": "string", "enum": codes, "description": "What kind of error it is" },
                        "message": { "type": "string", "description": "What is wrong, and why" },
                        "hint": { "type": "string", "description": "What to do next" },
                        "subject": { "type": "string", "enum": ["job", "path"], "description": "What was not found: the job, or the path itself" },
                    },
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "responses": responses(route),
    });
    let parameters: Vec<Value> =
        path_parameters(route.path).into_iter().chain(route.query.iter().map(query_parameter)).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some((schema, required)) = &route.body {
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

fn responses(route: &Route) -> Value {
    let media_type = match route.name {
        "metrics" => "text/plain",
        "events" => "text/event-stream",
        _ => "application/json",
    };
    let answer = |description: &str| json!({ "description": description, "content": { media_type: {} } });
    let mut responses = json!({
        "200": if route.progresses { progressing(route.answer) } else { answer(route.answer) },
        "default": {
            "description": "An error",
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
        },
    });
    if route.tagged {
        responses["304"] = json!({ "description": "The answer is the one that If-None-Match names" });
    }
    match route.name {
        "submit" | "createToken" => responses["201"] = answer("It is new"),
        "result" => responses["202"] = answer("It has not ended"),
        _ => {}
    }
    responses
}

/// The answer of an operation in batches: its result, or events with its progress.
fn progressing(description: &str) -> Value {
    let events = "With `Accept: text/event-stream`: `progress` events, and `done` with the result or `error` at the end. If the \
                  connection is closed, the operation stops after its current batch";
    json!({
        "description": description,
        "content": { "application/json": {}, "text/event-stream": { "schema": { "type": "string", "description": events } } },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_under_a_name_of_its_own() {
        let document = document();
        let mut names = BTreeSet::new();
        for route in routes() {
            let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
            assert_eq!(operation["operationId"], route.name, "{} {}", route.method, route.path);
            assert!(names.insert(route.name), "two operations are called {}", route.name);
            let described = operation["parameters"].as_array().map_or(0, Vec::len);
            assert_eq!(described, route.path.matches('{').count() + route.query.len(), "{}", route.name);
        }
    }
}
