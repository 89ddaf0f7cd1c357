//! The calls of a worker in any language, as plain JSON.

use serde_json::{Value, json};
use windlass::JobId;

use crate::{
    client::{Request, Response},
    kit::{Database, Running},
    on_both,
};

on_both! {
    a_worker_runs_a_job_from_claim_to_commit
    every_call_can_be_repeated
    errors_are_decided_by_the_policy_of_the_job_then_of_the_kind
    a_claim_waits_for_a_job_and_gates_wait_for_a_change
    a_stop_ends_waits_with_an_answer
    jobs_that_were_not_started_are_released
    claims_are_settled_by_the_highest_number
    a_worker_reads_cancels_when_it_renews
    a_lost_claim_is_released_by_its_number
    steps_children_and_signals_are_recorded
    malformed_requests_are_refused_and_write_nothing
    an_answer_has_no_more_than_it_may
}

impl Running {
    /// Sends a call of a worker.
    pub(crate) async fn worker(&self, call: &str, body: Value) -> Response {
        self.send(Request::post(&format!("/worker/v1/{call}"), &body)).await
    }

    /// Registers a worker that serves `echo`. Returns its id.
    pub(crate) async fn register(&self) -> String {
        let serves = json!([{ "queue": "default", "slots": 4, "kinds": [{ "kind": "echo" }] }]);
        let body = json!({ "name": "test", "lease_ms": 60_000, "serves": serves });
        let registered = self.worker("register", body).await.expect(200);
        assert!(registered["payload_limit"].as_u64().is_some_and(|limit| limit > 1_000), "{registered}");
        registered["worker"].as_str().expect("an id").to_owned()
    }

    /// Claims up to `limit` jobs of `echo`.
    pub(crate) async fn claim(&self, worker: &str, number: i64, limit: usize) -> Value {
        self.worker("claim", claim_body(worker, number, limit)).await.expect(200)
    }

    /// Commits one change. Returns its outcome.
    pub(crate) async fn commit(&self, worker: &str, change: Value) -> Value {
        let body = json!({ "worker": worker, "changes": [change] });
        self.worker("commit", body).await.expect(200)["outcomes"][0].clone()
    }

    /// Signals, retries and so on need the state of a job.
    pub(crate) async fn state(&self, job: &str) -> String {
        self.get(&format!("/v1/jobs/{job}")).await.expect(200)["state"].as_str().expect("a state").to_owned()
    }
}

pub(crate) fn claim_body(worker: &str, number: i64, limit: usize) -> Value {
    json!({
        "worker": worker, "number": number, "queue": "default",
        "kinds": [{ "kind": "echo", "version": 1 }], "limit": limit,
    })
}

/// The change of a claimed job with this outcome.
pub(crate) fn change(job: &Value, outcome: Value) -> Value {
    json!({
        "job": job["id"], "claim": job["claim"], "epoch": job["epoch"], "rev": job["rev"],
        "started_at": "2026-11-19T04:00:00Z", "outcome": outcome,
    })
}

fn done(text: &str) -> Value {
    json!({ "done": { "json": text } })
}

async fn a_worker_runs_a_job_from_claim_to_commit(database: Database) {
    let server = Running::new(database).await;
    let info = server.worker("hello", json!({})).await.expect(200);
    assert_eq!(info["protocol"], 1, "{info}");
    let id = server
        .submit(json!({ "kind": "echo", "input": { "b": 0.10, "a": [] }, "key": "k", "timeout": "5s" }))
        .await;
    let worker = server.register().await;
    let claimed = server.claim(&worker, 1, 10).await;
    let job = &claimed["jobs"][0];
    assert_eq!(
        (job["id"].as_str(), &job["kind"], &job["key"]),
        (Some(id.as_str()), &json!("echo"), &json!("k")),
        "{job}"
    );
    assert_eq!(
        (&job["claim"], &job["epoch"], &job["rev"], &job["attempts"]),
        (&json!(1), &json!(0), &json!(0), &json!(0))
    );
    assert_eq!((&job["timeout_ms"], &job["input"]["json"]["a"]), (&json!(5_000), &json!([])), "{job}");
    assert_eq!(server.state(&id).await, "running");
    let outcome = server.commit(&worker, change(job, done("out"))).await;
    assert_eq!(outcome, json!({ "outcome": "committed" }));
    let result = server.get(&format!("/v1/jobs/{id}/result")).await.expect(200);
    assert_eq!((&result["state"], &result["output"]), (&json!("done"), &json!("out")), "{result}");
    let ends = server.worker("ends", json!({ "jobs": [id, JobId::from_parts(1, 1, 1)] })).await.expect(200);
    assert_eq!(ends["ends"], json!([{ "state": "done", "output": { "json": "out" } }, { "state": "gone" }]));
    let left = server.worker("retire", json!({ "worker": worker })).await.expect(200);
    assert_eq!(left, json!({ "released": 0 }));
    server.worker("claim", claim_body(&worker, 2, 1)).await.refused(409, "worker_dead");
}

async fn every_call_can_be_repeated(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let worker = server.register().await;
    let again = json!({ "worker": worker, "name": "test", "lease_ms": 60_000 });
    server.worker("register", again).await.refused(409, "worker_taken");
    let first = server.claim(&worker, 1, 10).await;
    let second = server.claim(&worker, 1, 10).await;
    assert_eq!(first["jobs"], second["jobs"], "the same claim returns the same jobs");
    assert_eq!(server.claim(&worker, 2, 10).await["jobs"], json!([]));
    let job = &first["jobs"][0];
    for _ in 0..2 {
        assert_eq!(server.commit(&worker, change(job, done("x"))).await["outcome"], "committed");
    }
    assert_eq!(server.claim(&worker, 1, 10).await["jobs"], json!([]), "it is not claimed any more");
    // The claim is settled, and forgotten by the server: the store still knows who wrote the revision.
    let renew = json!({ "worker": worker, "lease_ms": 60_000, "settled": 2 });
    assert_eq!(server.worker("renew", renew).await.expect(200)["claims"], json!([]));
    assert_eq!(server.commit(&worker, change(job, done("x"))).await["outcome"], "committed");
    assert_eq!(server.commit(&worker, change(job, json!({ "next": true }))).await["outcome"], "halted");
    let history = server.get(&format!("/v1/jobs/{id}")).await.expect(200);
    assert_eq!((&history["state"], &history["rev"]), (&json!("done"), &json!(1)), "written once: {history}");

    let submit = json!({ "jobs": [{ "id": JobId::from_parts(7, 7, 7), "kind": "echo", "queue": "default", "input": { "json": 1 } }] });
    let outcome = async || server.worker("submit", submit.clone()).await.expect(200)["outcomes"][0].clone();
    assert_eq!(outcome().await, json!({ "outcome": "new" }));
    assert_eq!(outcome().await, json!({ "outcome": "repeated" }));
    let retire = async || server.worker("retire", json!({ "worker": worker })).await.expect(200);
    assert_eq!(retire().await["released"], 0, "nothing is left in its claims");
    assert_eq!(retire().await["released"], 0, "a repeat has the same answer");
}

async fn errors_are_decided_by_the_policy_of_the_job_then_of_the_kind(database: Database) {
    let server = Running::new(database).await;
    let worker = server.register().await;
    let error = |more: Value| {
        let mut outcome =
            json!({ "error": { "class": "busy", "message": "try later", "after_ms": 3_600_000 } });
        outcome.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        outcome
    };
    let once = json!({ "policy": [{ "class": "busy", "attempts": 1 }] });
    let outcome = async |number: i64, submitted: Value, outcome: Value| {
        let id = server.submit(submitted).await;
        let job = server.claim(&worker, number, 1).await["jobs"][0].clone();
        assert_eq!(job["id"], id.as_str());
        let outcome = server.commit(&worker, change(&job, outcome)).await;
        (outcome, server.get(&format!("/v1/jobs/{id}")).await.expect(200))
    };
    let (said, job) = outcome(1, json!({ "kind": "echo" }), error(json!({}))).await;
    assert_eq!(said, json!({ "outcome": "committed", "state": "scheduled" }), "the default has 20 attempts");
    assert_eq!((&job["state"], &job["attempts"]), (&json!("scheduled"), &json!(1)), "{job}");
    let (said, job) = outcome(2, json!({ "kind": "echo" }), error(once.clone())).await;
    assert_eq!(said["state"], "failed", "the kind has one attempt");
    assert_eq!(job["reason"], "exhausted", "{job}");
    let (said, _) = outcome(3, json!({ "kind": "echo", "attempts": 2 }), error(once.clone())).await;
    assert_eq!(said["state"], "scheduled", "the job's own policy comes first");
    let stop = json!({ "error": { "message": "no", "retry": false } });
    let (said, job) = outcome(4, json!({ "kind": "echo" }), stop).await;
    assert_eq!((&said["state"], &job["reason"]), (&json!("failed"), &json!("stopped")));
    let cancel = json!({ "cancelled": { "message": "not wanted" } });
    let (said, job) = outcome(5, json!({ "kind": "echo" }), cancel).await;
    assert_eq!((&said["outcome"], &job["state"]), (&json!("committed"), &json!("cancelled")));
}

async fn a_claim_waits_for_a_job_and_gates_wait_for_a_change(database: Database) {
    let server = std::sync::Arc::new(Running::new(database).await);
    let worker = server.register().await;
    let mut body = claim_body(&worker, 1, 5);
    body["wait_ms"] = json!(60_000);
    let waiting = {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move { server.worker("claim", body).await.expect(200) })
    };
    let queues = json!(["default", "other"]);
    let known = server.worker("gates", json!({ "queues": queues, "wait_ms": 60_000 })).await.expect(200);
    let gates = json!({ "queues": queues, "known": known["gates"], "wait_ms": 60_000 });
    let changed = {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move { server.worker("gates", gates).await.expect(200) })
    };
    let id = server.echo("x").await;
    assert_eq!(waiting.await.expect("an answer")["jobs"][0]["id"], id.as_str());
    let changed = changed.await.expect("an answer");
    assert_ne!(changed["gates"][0], known["gates"][0]);
    assert_eq!(changed["gates"][1], known["gates"][1]);
    // What was not waited for is answered at once, and so is a wait whose time is over.
    let mut body = claim_body(&worker, 2, 5);
    body["wait_ms"] = json!(1);
    assert_eq!(server.worker("claim", body).await.expect(200)["jobs"], json!([]));
    let stale = json!({ "queues": queues, "known": known["gates"], "wait_ms": 60_000 });
    assert_eq!(server.worker("gates", stale).await.expect(200)["gates"][0], changed["gates"][0]);
}

async fn a_stop_ends_waits_with_an_answer(database: Database) {
    let mut server = Running::new(database).await;
    let worker = server.register().await;
    let (address, mut claim) = (server.address, claim_body(&worker, 1, 5));
    claim["wait_ms"] = json!(60_000);
    let claim = tokio::spawn(async move { Request::post("/worker/v1/claim", &claim).send(address).await });
    let known = server.worker("gates", json!({ "queues": ["default"] })).await.expect(200)["gates"].clone();
    let gates = json!({ "queues": ["default"], "known": known, "wait_ms": 60_000 });
    let gates = tokio::spawn(async move { Request::post("/worker/v1/gates", &gates).send(address).await });
    // Both wait once the server says that a stream has been counted twice; a request that came after the stop would be refused.
    for _ in 0..20 {
        server.get("/healthz").await.expect(200);
    }
    server.request_stop();
    server.stopped().await;
    for answer in [claim.await, gates.await] {
        answer.expect("an answer, and no broken connection").expect(200);
    }
}

async fn jobs_that_were_not_started_are_released(database: Database) {
    let server = Running::new(database).await;
    let ids = [server.echo("a").await, server.echo("b").await];
    let worker = server.register().await;
    let jobs = server.claim(&worker, 1, 10).await["jobs"].clone();
    let held = |job: &Value| json!({ "job": job["id"], "epoch": job["epoch"], "claim": job["claim"] });
    let release = json!({ "worker": worker, "jobs": [held(&jobs[0])] });
    assert_eq!(server.worker("release", release.clone()).await.expect(200), json!({ "released": 1 }));
    assert_eq!(server.worker("release", release).await.expect(200), json!({ "released": 0 }));
    assert_eq!(
        (server.state(&ids[0]).await, server.state(&ids[1]).await),
        ("ready".into(), "running".into())
    );
    assert_eq!(server.commit(&worker, change(&jobs[0], done("x"))).await["outcome"], "fenced");
    assert_eq!(
        server.worker("retire", json!({ "worker": worker })).await.expect(200),
        json!({ "released": 1 })
    );
    assert_eq!(server.commit(&worker, change(&jobs[1], done("x"))).await["outcome"], "fenced");
}

async fn claims_are_settled_by_the_highest_number(database: Database) {
    let server = Running::new(database).await;
    let worker = server.register().await;
    for number in 1..=3 {
        server.echo("x").await;
        let job = server.claim(&worker, number, 1).await["jobs"][0].clone();
        if number < 3 {
            assert_eq!(server.commit(&worker, change(&job, done("x"))).await["outcome"], "committed");
        }
    }
    let renew = |settled: i64| json!({ "worker": worker, "lease_ms": 60_000, "settled": settled });
    assert_eq!(server.worker("renew", renew(1)).await.expect(200)["claims"], json!([2, 3]));
    let mut claim = claim_body(&worker, 4, 1);
    claim["settled"] = json!(2);
    assert_eq!(server.worker("claim", claim).await.expect(200)["jobs"], json!([]));
    assert_eq!(
        server.worker("renew", renew(2)).await.expect(200)["claims"],
        json!([3]),
        "it still has a job"
    );
    assert_eq!(
        server.worker("renew", renew(3)).await.expect(200)["claims"],
        json!([3]),
        "whatever the worker says"
    );
}

async fn a_worker_reads_cancels_when_it_renews(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let worker = server.register().await;
    let job = server.claim(&worker, 1, 1).await["jobs"][0].clone();
    server.post(&format!("/v1/jobs/{id}/cancel"), json!({ "note": "wrong order" })).await.expect(200);
    let progress = json!([{ "job": id, "epoch": 0, "done": 3, "total": 4, "note": "copying", "at": "2026-11-19T04:00:00Z" }]);
    let renew = json!({ "worker": worker, "lease_ms": 60_000, "progress": progress });
    let renewed = server.worker("renew", renew).await.expect(200);
    let cancel = &renewed["cancels"][0];
    assert_eq!(
        (&cancel["job"], &cancel["epoch"], &cancel["note"]),
        (&json!(id), &json!(0), &json!("wrong order"))
    );
    assert_eq!(renewed["held"], true);
    let shown = server.get(&format!("/v1/jobs/{id}")).await.expect(200);
    assert_eq!(
        (&shown["progress"]["done"], &shown["progress"]["note"]),
        (&json!(3), &json!("copying")),
        "{shown}"
    );
    let outcome =
        server.commit(&worker, change(&job, json!({ "cancelled": { "message": "wrong order" } }))).await;
    assert_eq!(outcome["outcome"], "committed");
    assert_eq!(server.state(&id).await, "cancelled");
    let gone = json!({ "worker": "w123456", "lease_ms": 60_000 });
    let renewed = server.worker("renew", gone).await.expect(200);
    assert_eq!(renewed, json!({ "held": false, "claims": [], "cancels": [] }), "a worker that never was");
}

async fn a_lost_claim_is_released_by_its_number(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let worker = server.register().await;
    let job = server.claim(&worker, 7, 1).await["jobs"][0].clone();
    let release = json!({ "worker": worker, "numbers": [7] });
    assert_eq!(server.worker("release-claims", release).await.expect(200), json!({ "released": 1 }));
    assert_eq!(server.state(&id).await, "ready");
    assert_eq!(server.commit(&worker, change(&job, done("x"))).await["outcome"], "fenced");
    assert_eq!(server.claim(&worker, 8, 1).await["jobs"][0]["epoch"], 1);
}

async fn steps_children_and_signals_are_recorded(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let worker = server.register().await;
    let job = server.claim(&worker, 1, 1).await["jobs"][0].clone();
    let child = JobId::from_parts(9, 9, 9);
    let mut first = change(
        &job,
        json!({ "wait": { "signals": { "names": [{ "name": "go" }], "needs": 1 }, "timeout_ms": 3_600_000 } }),
    );
    first["step"] = json!({
        "stage": { "name": "Waiting", "data": { "json": { "n": 1 } } },
        "children": [{ "id": child, "kind": "echo", "queue": "other", "input": { "json": 2 }, "detached": true }],
        "entries": [{ "seq": 0, "call": "step", "event": "done", "name": "plan", "at": "2026-11-19T04:00:00Z", "payload": { "json": 5 } }],
        "context": [{ "name": "color", "value": { "json": "red" } }],
    });
    assert_eq!(server.commit(&worker, first).await["outcome"], "committed");
    assert_eq!(server.state(&id).await, "waiting");
    let journal = server.worker("journal", json!({ "job": id })).await.expect(200);
    assert_eq!(
        (&journal["entries"][0]["name"], &journal["more"]),
        (&json!("plan"), &json!(false)),
        "{journal}"
    );
    let limited = server.worker("journal", json!({ "job": id, "limit": 0 })).await.expect(200);
    assert_eq!(limited, json!({ "entries": [], "more": true }));
    let both = server.worker("journals", json!({ "jobs": [id, child] })).await.expect(200);
    assert_eq!(
        (&both["journals"][0]["entries"], &both["journals"][1]["entries"]),
        (&journal["entries"], &json!([]))
    );
    let context = server.worker("context", json!({ "job": id })).await.expect(200);
    assert_eq!(context["context"], json!([{ "name": "color", "value": { "json": "red" } }]));
    let shown = server.get(&format!("/v1/jobs/{child}")).await.expect(200);
    assert_eq!(shown["parent"], id.as_str(), "the server says whose child it is: {shown}");

    let signal =
        json!({ "signals": [{ "job": id, "name": "go", "dedup": "1", "payload": { "json": true } }] });
    let deliver = async || server.worker("signal", signal.clone()).await.expect(200)["outcomes"][0].clone();
    assert_eq!(deliver().await, json!({ "outcome": "delivered", "woke": true }));
    assert_eq!(deliver().await, json!({ "outcome": "duplicate" }));
    let inbox = server.worker("inbox", json!({ "job": id })).await.expect(200);
    assert_eq!(inbox["signals"][0]["name"], "go");
    let job = server.claim(&worker, 2, 1).await["jobs"][0].clone();
    assert_eq!(
        (&job["rev"], &job["stage"], &job["data"]),
        (&json!(1), &json!("Waiting"), &json!({ "json": { "n": 1 } })),
        "{job}"
    );
    assert_eq!(
        (&job["inbox"][0]["payload"], &job["wait"]["signals"]["names"][0]["name"]),
        (&json!({ "json": true }), &json!("go"))
    );
    assert_eq!(server.commit(&worker, change(&job, done("end"))).await["outcome"], "committed");
}

async fn malformed_requests_are_refused_and_write_nothing(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let worker = server.register().await;
    let job = server.claim(&worker, 1, 1).await["jobs"][0].clone();
    let good = change(&job, done("x"));
    let with = |field: &str, value: Value| {
        let mut change = good.clone();
        change[field] = value;
        json!({ "worker": worker, "changes": [change] })
    };
    let step = |step: Value| with("step", step);
    for (call, body) in [
        ("commit", with("outcome", json!({}))),
        ("commit", with("outcome", json!({ "done": { "json": 1 }, "next": true }))),
        ("commit", with("outcome", json!({ "next": true, "policy": [] }))),
        ("commit", with("outcome", json!({ "done": { "json": 1, "codec": 1 } }))),
        (
            "commit",
            with("outcome", json!({ "wait": { "signals": { "names": [], "needs": 1 }, "children": 1 } })),
        ),
        ("commit", with("parent", json!(id))),
        ("commit", with("is_serial", json!(true))),
        ("commit", with("started_at", json!("yesterday"))),
        (
            "commit",
            step(
                json!({ "entries": [{ "seq": 0, "call": "step", "event": "done", "name": "a", "extra": 1 }] }),
            ),
        ),
        (
            "commit",
            step(
                json!({ "children": [{ "id": id, "kind": "echo", "queue": "q", "input": { "json": 1 }, "parent_rev": 1 }] }),
            ),
        ),
        ("commit", json!({ "worker": worker, "changes": [good, good] })),
        ("commit", json!({ "worker": "17", "changes": [] })),
        ("claim", json!({ "worker": worker, "number": 2, "queue": "default", "kinds": "echo", "limit": 1 })),
        ("claim", json!({ "worker": worker })),
        ("register", json!({ "name": "x", "lease_ms": 0 })),
        ("register", json!({ "name": "x", "lease_ms": 100_000_000_000u64 })),
        (
            "register",
            json!({ "name": "x", "lease_ms": 1, "serves": [{ "queue": "q".repeat(200), "slots": 1, "kinds": [] }] }),
        ),
        (
            "submit",
            json!({ "jobs": [{ "id": id, "kind": "echo", "queue": "q", "input": { "json": 1 }, "delay_ms": 1, "due_at": "2026-11-19T04:00:00Z" }] }),
        ),
        (
            "submit",
            json!({ "jobs": [{ "id": id, "kind": "echo", "queue": "q", "input": { "json": 1 }, "digest": "xyz" }] }),
        ),
        (
            "submit",
            json!({ "jobs": [{ "id": id, "kind": "echo", "queue": "q", "input": { "json": 1 }, "detached": true }] }),
        ),
        ("gates", json!({ "queues": vec!["q"; 1_001] })),
        ("hello", json!({ "version": 2 })),
    ] {
        let refused = server.worker(call, body.clone()).await;
        assert_eq!(refused.status, 400, "{call} {body}: {refused:?}");
        refused.refused(400, "invalid");
    }
    let timed = Request::post("/worker/v1/clock", &json!({})).header("windlass-test-time", "1");
    let refused = server.send(timed).await.refused(400, "invalid");
    assert!(refused["message"].as_str().expect("a text").contains("for tests"), "{refused}");
    assert_eq!(server.state(&id).await, "running");
    assert_eq!(server.commit(&worker, good).await["outcome"], "committed", "nothing had been written");
}

async fn an_answer_has_no_more_than_it_may(database: Database) {
    let server = Running::new(database).await;
    let worker = server.register().await;
    let text = "x".repeat(900_000);
    for _ in 0..20 {
        server.echo(&text).await;
    }
    let first = server.claim(&worker, 1, 100).await;
    let count = first["jobs"].as_array().expect("a list").len();
    assert!((2..20).contains(&count), "{count}");
    assert_eq!(first["more"], true);
    let rest = server.claim(&worker, 2, 100).await;
    assert_eq!(rest["jobs"].as_array().expect("a list").len(), 20 - count, "the others were released");
}
