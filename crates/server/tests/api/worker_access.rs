//! What workers may do with their tokens, and what they cannot make the server believe.

use serde_json::{Value, json};
use windlass::{
    JobId,
    model::{ClaimNo, KindVersion, Role},
    prelude::*,
    store::{ClaimRequest, NewWorker},
};

use crate::{
    client::Request,
    kit::{self, Database, Running, settings},
    on_both,
    worker::{change, claim_body},
};

on_both! {
    only_the_role_worker_and_admins_run_jobs
    a_worker_belongs_to_its_token
    a_worker_of_a_process_cannot_be_named
    a_token_for_some_kinds_and_queues_runs_reads_and_signals_no_others
    jobs_of_others_cannot_be_written_or_released
    what_a_job_is_comes_from_its_claim_on_any_server
}

async fn with_login(database: Database) -> Running {
    let (dir, engine) = kit::engine(database).await;
    kit::token(&engine, "first", Role::Admin, &[], &[]).await;
    let settings = windlass_server::Settings { login: true, ..settings() };
    Running::on(dir, engine, settings).await
}

fn call(name: &str, body: Value, token: &str) -> Request {
    Request::post(&format!("/worker/v1/{name}"), &body).token(token)
}

fn registration() -> Value {
    json!({ "name": "test", "lease_ms": 60_000 })
}

/// Registers a worker with a token.
async fn register(server: &Running, token: &str) -> String {
    let registered = server.send(call("register", registration(), token)).await.expect(200);
    registered["worker"].as_str().expect("an id").to_owned()
}

async fn only_the_role_worker_and_admins_run_jobs(database: Database) {
    let server = with_login(database).await;
    for role in Role::ALL {
        let token = server.token(role.name(), role, &[], &[]).await;
        let answer = server.send(call("register", registration(), &token)).await;
        match role {
            Role::Worker | Role::Admin => drop(answer.expect(200)),
            Role::Viewer | Role::Operator => drop(answer.refused(403, "forbidden")),
        }
    }
    let plain = Request::post("/worker/v1/register", &registration());
    server.send(plain).await.refused(401, "unauthorized");
    let worker = server.token("only", Role::Worker, &[], &[]).await;
    server.send(Request::get("/v1/jobs").token(&worker)).await.refused(403, "forbidden");
}

async fn a_worker_belongs_to_its_token(database: Database) {
    let server = with_login(database).await;
    let (own, other) = (
        server.token("own", Role::Worker, &[], &[]).await,
        server.token("other", Role::Worker, &[], &[]).await,
    );
    let worker = register(&server, &own).await;
    let renew = json!({ "worker": worker, "lease_ms": 60_000 });
    let change = json!({
        "job": JobId::from_parts(1, 1, 1), "claim": 1, "epoch": 0, "rev": 0, "started_at": "2026-11-19T04:00:00Z",
        "outcome": { "next": true },
    });
    let mut foreign = change.clone();
    foreign["worker"] = json!(worker);
    let mine = register(&server, &other).await;
    let claimed_at_submit = json!({ "jobs": [], "claim": { "worker": worker, "number": 1 } });
    for (name, body) in [
        ("renew", renew.clone()),
        ("claim", claim_body(&worker, 1, 1)),
        ("commit", json!({ "worker": worker, "changes": [change] })),
        ("commit", json!({ "worker": mine, "changes": [foreign] })),
        ("release", json!({ "worker": worker, "jobs": [] })),
        ("release-claims", json!({ "worker": worker, "numbers": [] })),
        ("retire", json!({ "worker": worker })),
        ("cancels", json!({ "worker": worker })),
        ("end-cancelled", json!({ "worker": worker, "jobs": [] })),
        ("submit", claimed_at_submit),
    ] {
        let refused = server.send(call(name, body, &other)).await.refused(403, "forbidden");
        assert!(refused["message"].as_str().expect("a text").contains(&worker), "{name}: {refused}");
    }
    assert_eq!(server.send(call("renew", renew.clone(), &own)).await.expect(200)["held"], true);
    // A server that has not seen the registration reads it from the store.
    let second = Running::on(tempfile::tempdir().expect("a folder"), server.engine.clone(), {
        windlass_server::Settings { login: true, ..settings() }
    });
    let second = second.await;
    second.send(call("renew", renew.clone(), &other)).await.refused(403, "forbidden");
    assert_eq!(second.send(call("renew", renew, &own)).await.expect(200)["held"], true);
}

async fn a_worker_of_a_process_cannot_be_named(database: Database) {
    let server = Running::new(database).await;
    let new = NewWorker {
        id: windlass::model::WorkerId(77),
        name: "process".into(),
        liveness_file: None,
        lease: Duration::from_secs(60),
        serves: Vec::new(),
        token: None,
    };
    assert!(server.engine.store().register_worker(None, &new).await.expect("registered"));
    let retire = server.worker("retire", json!({ "worker": new.id })).await;
    retire.refused(403, "forbidden");
}

async fn a_token_for_some_kinds_and_queues_runs_reads_and_signals_no_others(database: Database) {
    let server = with_login(database).await;
    let admin = server.token("admin", Role::Admin, &[], &[]).await;
    let mut ids = Vec::new();
    for (kind, queue) in [("echo", "mail"), ("echo", "other"), ("approval", "mail")] {
        let job = json!({ "kind": kind, "queue": queue, "input": {}, "any_input": true });
        let submitted = server.send(Request::post("/v1/jobs", &job).token(&admin)).await.expect(201);
        ids.push(submitted["id"].as_str().expect("an id").to_owned());
    }
    let token = server.token("mailer", Role::Worker, &["echo"], &["mail"]).await;
    let worker = register(&server, &token).await;
    let refused = async |name: &str, body: Value| {
        server.send(call(name, body, &token)).await.refused(403, "forbidden");
    };
    let claim = |kind: &str, queue: &str| json!({ "worker": worker, "number": 1, "queue": queue, "kinds": [{ "kind": kind }], "limit": 5 });
    refused("claim", claim("echo", "other")).await;
    refused("claim", claim("approval", "mail")).await;
    let serves = |kind: &str, queue: &str| json!({ "name": "x", "lease_ms": 1_000, "serves": [{ "queue": queue, "slots": 1, "kinds": [{ "kind": kind }] }] });
    refused("register", serves("approval", "mail")).await;
    refused("register", serves("echo", "other")).await;
    let new = |kind: &str, queue: &str, more: Value| {
        let mut job =
            json!({ "id": JobId::from_parts(5, 5, 5), "kind": kind, "queue": queue, "input": { "json": 1 } });
        job.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "jobs": [job] })
    };
    refused("submit", new("approval", "mail", json!({}))).await;
    refused("gates", json!({ "queues": ["mail", "other"] })).await;
    let parent = new("echo", "mail", json!({ "parent": ids[1] }));
    server.send(call("submit", parent, &token)).await.refused(404, "not_found");
    for name in ["journal", "context", "inbox", "branches"] {
        server.send(call(name, json!({ "job": ids[1] }), &token)).await.refused(404, "not_found");
        server.send(call(name, json!({ "job": ids[0] }), &token)).await.expect(200);
    }
    let signals: Vec<Value> = ids
        .iter()
        .map(|id| json!({ "job": id, "name": "go", "dedup": "1", "payload": { "json": 1 } }))
        .collect();
    let delivered = server.send(call("signal", json!({ "signals": signals }), &token)).await.expect(200);
    let outcomes: Vec<&Value> =
        delivered["outcomes"].as_array().expect("a list").iter().map(|one| &one["outcome"]).collect();
    assert_eq!(outcomes, [&json!("delivered"), &json!("unknown"), &json!("unknown")]);
    let ends = server.send(call("ends", json!({ "jobs": ids }), &token)).await.expect(200);
    assert_eq!(ends["ends"], json!([null, { "state": "gone" }, { "state": "gone" }]));

    let claimed = server.send(call("claim", claim("echo", "mail"), &token)).await.expect(200);
    let job = &claimed["jobs"][0];
    assert_eq!(job["id"], ids[0].as_str());
    let mut step = change(job, json!({ "next": true }));
    step["step"] = json!({ "children": [{ "id": JobId::from_parts(6, 6, 6), "kind": "approval", "queue": "mail", "input": { "json": 1 } }] });
    refused("commit", json!({ "worker": worker, "changes": [step] })).await;
    let done = json!({ "worker": worker, "changes": [change(job, json!({ "done": { "json": 1 } }))] });
    let outcome = server.send(call("commit", done, &token)).await.expect(200);
    assert_eq!(outcome["outcomes"][0]["outcome"], "committed");
}

/// Epochs and revisions can be guessed. The claim of another worker cannot be used.
async fn jobs_of_others_cannot_be_written_or_released(database: Database) {
    let server = Running::new(database).await;
    let (victim, thief) = (server.register().await, server.register().await);
    let (first, second) = (server.echo("a").await, server.echo("b").await);
    let job = server.claim(&victim, 1, 1).await["jobs"][0].clone();
    let own = server.claim(&thief, 1, 1).await["jobs"][0].clone();
    assert_eq!((job["id"].as_str(), own["id"].as_str()), (Some(first.as_str()), Some(second.as_str())));
    let forged = change(&job, json!({ "done": { "json": "stolen" } }));
    assert_eq!(server.commit(&thief, forged).await["outcome"], "fenced");
    let held = json!({ "job": job["id"], "epoch": job["epoch"], "claim": 1 });
    let release = server.worker("release", json!({ "worker": thief, "jobs": [held] })).await.expect(200);
    assert_eq!(release, json!({ "released": 0 }));
    let ended = json!({ "worker": thief, "jobs": [job["id"]] });
    assert_eq!(server.worker("end-cancelled", ended).await.expect(200), json!({ "ended": 0 }));
    let outcome = server.commit(&victim, change(&job, json!({ "done": { "json": "mine" } }))).await;
    assert_eq!(outcome["outcome"], "committed");
    let result = server.get(&format!("/v1/jobs/{first}/result")).await.expect(200);
    assert_eq!(result["output"], "mine");
}

/// The deadline, the serial key and the parent of a job are no part of a change, and a server that has not seen the claim reads them.
async fn what_a_job_is_comes_from_its_claim_on_any_server(database: Database) {
    let server = Running::new(database).await;
    let second = Running::on(tempfile::tempdir().expect("a folder"), server.engine.clone(), settings()).await;
    let worker = server.register().await;
    let serial = json!({ "key": "line" });
    let first = server
        .submit(json!({ "kind": "echo", "serial": serial, "deadline_at": "2100-01-01T00:00:00Z" }))
        .await;
    let next = server.submit(json!({ "kind": "echo", "serial": serial })).await;
    let jobs = server.claim(&worker, 1, 5).await["jobs"].clone();
    assert_eq!(jobs.as_array().expect("a list").len(), 1, "the other waits for the key");
    let outcome = second.commit(&worker, change(&jobs[0], json!({ "done": { "json": 1 } }))).await;
    assert_eq!(outcome["outcome"], "committed");
    assert_eq!(server.state(&first).await, "done");
    let job = second.claim(&worker, 2, 5).await["jobs"][0].clone();
    assert_eq!(job["id"], next.as_str(), "the slot of the key was handed over");

    // A parent that waits for a child is woken by the child's end, wherever that is committed.
    let mut parent = change(&job, json!({ "wait": { "children": 1 } }));
    let child = JobId::from_parts(8, 8, 8);
    parent["step"] = json!({
        "stage": { "name": "Joining", "data": { "json": 0 } },
        "children": [{ "id": child, "kind": "echo", "queue": "default", "input": { "json": 1 } }],
    });
    assert_eq!(second.commit(&worker, parent).await["outcome"], "committed");
    assert_eq!(server.state(&next).await, "waiting");
    let job = server.claim(&worker, 3, 1).await["jobs"][0].clone();
    assert_eq!(job["id"], json!(child));
    let outcome =
        second.commit(&worker, change(&job, json!({ "error": { "message": "no", "retry": false } }))).await;
    assert_eq!(outcome, json!({ "outcome": "committed", "state": "failed" }));
    assert_eq!(server.state(&next).await, "ready");

    // A claim that a process made for itself is no worker's.
    let kinds = [KindVersion { kind: "echo".into(), version: 1 }].into();
    let request = ClaimRequest {
        worker: windlass::model::WorkerId(5),
        number: ClaimNo(1),
        queue: "default".into(),
        kinds,
        limit: 1,
        solo: false,
        only: None,
        settled: Vec::new(),
    };
    assert!(server.engine.store().claim(None, &request).await.is_err());
}
