//! Random requests, made from the API description: whatever is sent, the server neither fails nor panics.

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use serde_json::{Map, Value, json};
use windlass::Engine;

use crate::{
    client::Request,
    kit::{Echo, Running, settings},
};

/// How many requests are made of each operation.
const SAMPLES: usize = 25;

/// Any JSON.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!("x".repeat(3_000))),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,6}", inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Draws random values, the same in every run.
struct Source {
    runner: TestRunner,
    /// Names of jobs that exist.
    jobs: Vec<String>,
    /// The API description.
    document: Value,
}

impl Source {
    fn draw<S: Strategy>(&mut self, strategy: S) -> S::Value {
        strategy.new_tree(&mut self.runner).expect("a value").current()
    }

    fn chance(&mut self, of: f64) -> bool {
        self.draw(prop::bool::weighted(of))
    }

    /// A value that fits a schema more often than not.
    fn value(&mut self, schema: &Value) -> Value {
        if self.chance(0.2) {
            return self.draw(any_json());
        }
        if let Some(path) = schema["$ref"].as_str() {
            let named = self.document.pointer(path.trim_start_matches('#')).expect("a schema").clone();
            return self.value(&named);
        }
        if let Some(variants) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let at = self.draw(0..variants.len());
            return self.value(&variants[at]);
        }
        let listed = schema["enum"].as_array().or(schema["examples"].as_array());
        if let Some(values) = listed {
            let at = self.draw(0..values.len());
            return values[at].clone();
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("boolean"), _) => self.chance(0.5).into(),
            (Some("integer"), _) => self.draw(prop_oneof![-200_i64..200, any::<i64>()]).into(),
            (Some("string"), Some("uuid")) => self.jobs[0].clone().into(),
            (Some("string"), Some("date-time")) => "2026-11-15T08:00:00Z".into(),
            (Some("string"), _) => self.draw(prop_oneof!["[a-z]{1,5}", ".{0,20}"]).into(),
            (Some("array"), _) => {
                let length = self.draw(0..3_usize);
                (0..length).map(|_| self.value(&schema["items"])).collect()
            }
            (Some("object"), _) => {
                let mut object = Map::new();
                let required = schema["required"].clone();
                for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                    // The worker protocol is mostly given what it must have, so that a call gets somewhere; nothing waits.
                    let required = schema_requires(&required, name);
                    if name != "wait_ms" && (self.chance(0.4) || required && self.chance(0.9)) {
                        object.insert(name.clone(), self.value(schema));
                    }
                }
                object.into()
            }
            _ => self.draw(any_json()),
        }
    }

    fn text(&mut self, schema: &Value) -> String {
        match self.value(schema) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }
}

fn schema_requires(required: &Value, name: &str) -> bool {
    required.as_array().is_some_and(|names| names.iter().any(|required| required == name))
}

/// Text in a URL, with everything but letters and digits encoded.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn request(source: &mut Source, method: &str, path: &str, operation: &Value) -> Request {
    let (mut path, mut query) = (path.to_owned(), Vec::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().expect("a name");
        if parameter["in"] == "path" {
            let value = match name {
                "job" if source.chance(0.7) => {
                    let at = source.draw(0..source.jobs.len());
                    source.jobs[at].clone()
                }
                _ => source.text(&parameter["schema"]),
            };
            path = path.replace(&format!("{{{name}}}"), &encoded(&value));
        } else if name != "wait" && (parameter["required"] == true || source.chance(0.4)) {
            query.push(format!("{name}={}", encoded(&source.text(&parameter["schema"]))));
        }
    }
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    let request = Request::new(&method.to_uppercase(), &path);
    match operation["requestBody"]["content"]["application/json"].get("schema") {
        Some(schema) => request.json(&source.value(schema)),
        None => request,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_answered_or_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = Engine::builder("memory:").task::<Echo>().open().await.expect("an engine");
    let server = Running::on(dir, engine, settings()).await;
    let id = server.submit(json!({ "kind": "echo", "input": 1, "key": "one" })).await;
    let jobs = vec![id, "one".to_owned(), "echo/one".to_owned()];
    let document = windlass_server::openapi();
    let mut source = Source {
        document: document.clone(),
        runner: TestRunner::new(Config {
            rng_seed: proptest::test_runner::RngSeed::Fixed(16),
            ..Config::default()
        }),
        jobs,
    };
    let (mut answered, mut refused) = (0, 0);
    for (path, operations) in document["paths"].as_object().expect("paths") {
        // A stream does not end.
        if path == "/v1/events" {
            continue;
        }
        for (method, operation) in operations.as_object().expect("operations") {
            for _ in 0..SAMPLES {
                let request = request(&mut source, method, path, operation);
                let response = server.send(request.clone()).await;
                let sent = request.to_text(server.address);
                assert!(response.status < 500, "{sent}\n{response:?}");
                if response.status < 400 {
                    answered += 1;
                    continue;
                }
                refused += 1;
                let body = response.json();
                assert!(body["code"].is_string() && body["message"].is_string(), "{sent}\n{response:?}");
            }
        }
    }
    assert!(answered > 200 && refused > 200, "{answered} requests were answered, and {refused} refused");
}
