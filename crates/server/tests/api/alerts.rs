//! Alerts: rules that fire, messages that arrive once, mutes, and who may do what.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass::{
    Engine, Filter, Time,
    model::Role,
    operate::alerts::{Condition, Evaluator, JobSelection, RateUnit, Rule},
    store::{ALERT_KIND, Severity},
};
use windlass_server::{AlertSettings, Settings, Webhooks};

use crate::{
    client::Request,
    kit::{self, Database, Running, settings},
    on_both,
    receiver::Receiver,
};

on_both! {
    a_failing_kind_has_one_message_when_it_begins_and_one_when_it_ends
    a_message_that_no_process_could_post_is_posted_by_the_next_one
    a_muted_rule_posts_nothing_until_it_is_unmuted
    a_test_message_arrives_like_the_others
    alerts_are_read_by_viewers_and_muted_by_operators
    a_pass_takes_few_statements_and_none_are_left_without_rules
}

/// Fires when more than half of the jobs of a kind fail, and is resolved as soon as it is fewer.
fn rule() -> Rule {
    let within = Duration::from_secs(300);
    let when = Condition::ErrorRate {
        of: JobSelection::default(),
        count: RateUnit::Jobs,
        percent: 50,
        at_least: 1,
        within,
    };
    let (clear_for, severity) = (Duration::ZERO, Severity::Bad);
    Rule { clear_for, severity, webhook: Some("ops".into()), ..Rule::new("failing", when) }
}

/// Settings of a server that evaluates rules all the time.
fn evaluating(rules: Vec<Rule>) -> Settings {
    let alerts = AlertSettings { rules, every: Duration::from_millis(30), ..AlertSettings::default() };
    Settings { alerts: Some(alerts), public_url: Some("https://jobs.example".into()), ..settings() }
}

/// An engine on a new store that posts to a receiver.
async fn posting(database: Database, receiver: &Receiver) -> (TempDir, Engine) {
    let mut webhooks = Webhooks::default();
    webhooks.add("ops", receiver.webhook());
    kit::engine_with(database, |builder| webhooks.serve(builder)).await
}

/// The jobs that post messages.
async fn messages(engine: &Engine) -> Vec<windlass::store::Summary> {
    let filter = Filter { kind: Some(ALERT_KIND.into()), limit: 100, ..Filter::default() };
    engine.inspect().jobs(&filter).await.expect("a list").jobs
}

/// Submits a job, and waits until it has ended.
async fn end(server: &Running, input: &str) {
    let id = server.submit(json!({ "kind": "echo", "input": input, "attempts": 1 })).await;
    server.get(&format!("/v1/jobs/{id}/result?wait=30s")).await.expect(200);
}

/// Waits until the newest alert is in a state.
async fn wait_for(server: &Running, state: &str) -> Value {
    for _ in 0..2_000 {
        let alerts = server.get("/v1/alerts").await.expect(200);
        if alerts["alerts"][0]["state"] == state {
            return alerts;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no alert is {state}");
}

async fn a_failing_kind_has_one_message_when_it_begins_and_one_when_it_ends(database: Database) {
    let mut receiver = Receiver::start().await;
    let (dir, engine) = posting(database, &receiver).await;
    engine.start().await.expect("a worker");
    let server = Running::on(dir, engine.clone(), evaluating(vec![rule()])).await;
    // Another server on the same store finds the same at the same time.
    let other =
        Running::on(tempfile::tempdir().expect("a folder"), engine.clone(), evaluating(vec![rule()])).await;
    end(&server, "fail").await;
    let body = receiver.accepted().await.body;
    assert_eq!(
        (&body["rule"], &body["subject"], &body["state"]),
        (&json!("failing"), &json!("echo"), &json!("firing"))
    );
    assert_eq!((&body["severity"], &body["value"]), (&json!("bad"), &json!("100 %")));
    assert_eq!(body["text"], "100 % of 1 jobs of kind echo failed within 5m, more than 50 %");
    assert_eq!(body["url"], "https://jobs.example/jobs?state=failed&kind=echo");
    let since: Time = body["since"].as_str().expect("a time").parse().expect("a time");
    let alerts = server.get("/v1/alerts?open=true").await.expect(200);
    let alert = &alerts["alerts"][0];
    assert_eq!(
        (&alert["state"], &alert["posted"], &alert["is_stale"]),
        (&json!("firing"), &json!(true), &json!(false))
    );
    assert_eq!(alert["target"], json!({ "type": "kind", "kind": "echo" }));
    assert_eq!(alert["since"], json!(since));
    for _ in 0..2 {
        end(&server, "fine").await;
    }
    let body = receiver.accepted().await.body;
    assert_eq!((&body["state"], &body["since"]), (&json!("resolved"), &json!(since)));
    let alerts = wait_for(&server, "resolved").await;
    assert_eq!(alerts["alerts"][0]["posted"], false);
    assert_eq!(other.get("/v1/alerts?open=true").await.expect(200)["alerts"], json!([]));
    let messages = messages(&engine).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(receiver.is_empty());
    engine.stop().await;
}

async fn a_message_that_no_process_could_post_is_posted_by_the_next_one(database: Database) {
    let mut receiver = Receiver::start().await;
    // A server that evaluates rules and has no webhook: its worker runs no messages.
    let (dir, engine) = kit::engine(database).await;
    engine.start().await.expect("a worker");
    let server = Running::on(dir, engine.clone(), evaluating(vec![rule()])).await;
    end(&server, "fail").await;
    wait_for(&server, "firing").await;
    assert_eq!(messages(&engine).await.len(), 1);
    assert!(receiver.is_empty());
    let url = engine.url().to_owned();
    let mut webhooks = Webhooks::default();
    webhooks.add("ops", receiver.webhook());
    let poster = webhooks.serve(Engine::builder(url)).start().await.expect("a worker");
    assert_eq!(receiver.accepted().await.body["state"], "firing");
    assert_eq!(messages(&engine).await.len(), 1);
    assert!(receiver.is_empty());
    poster.stop().await;
    engine.stop().await;
}

async fn a_muted_rule_posts_nothing_until_it_is_unmuted(database: Database) {
    let mut receiver = Receiver::start().await;
    let (dir, engine) = posting(database, &receiver).await;
    engine.start().await.expect("a worker");
    let server = Running::on(dir, engine.clone(), evaluating(vec![rule()])).await;
    let muted = json!({ "rule": "failing", "subject": "echo", "expires_in": "2h", "note": "known" });
    assert_eq!(server.post("/v1/alerts/mute", muted).await.expect(200)["outcome"], "done");
    end(&server, "fail").await;
    let alerts = wait_for(&server, "firing").await;
    let mute = &alerts["alerts"][0]["muted"];
    assert_eq!((&mute["author"], &mute["note"]), (&json!("loopback"), &json!("known")));
    assert_eq!(alerts["mutes"][0], *mute);
    assert!(messages(&engine).await.is_empty());
    let unmuted = json!({ "rule": "failing", "subject": "echo" });
    assert_eq!(server.post("/v1/alerts/unmute", unmuted.clone()).await.expect(200)["outcome"], "done");
    assert_eq!(receiver.accepted().await.body["state"], "firing");
    assert_eq!(server.post("/v1/alerts/unmute", unmuted).await.expect(200)["outcome"], "already");
    server.post("/v1/alerts/mute", json!({ "rule": "nothing" })).await.refused(404, "not_found");
    server.post("/v1/alerts/mute", json!({ "rule": "failing", "subject": "" })).await.refused(400, "invalid");
    let audit = server.get("/v1/audit?subject=failing%2Fecho").await.expect(200);
    let actions: Vec<&Value> =
        audit["entries"].as_array().expect("a list").iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["unmute alert", "mute alert"]);
    engine.stop().await;
}

async fn a_test_message_arrives_like_the_others(database: Database) {
    let mut receiver = Receiver::start().await;
    let (dir, engine) = posting(database, &receiver).await;
    engine.start().await.expect("a worker");
    let silent = Rule { webhook: None, ..Rule::new("silent", rule().when) };
    let server = Running::on(dir, engine.clone(), evaluating(vec![rule(), silent])).await;
    let job = server.post("/v1/alerts/test", json!({ "rule": "failing" })).await.expect(201);
    let body = receiver.accepted().await.body;
    assert_eq!((&body["state"], &body["rule"]), (&json!("test"), &json!("failing")));
    let id = job["why"].as_str().expect("an id");
    let result = server.get(&format!("/v1/jobs/{id}/result?wait=30s")).await.expect(200);
    assert_eq!(result["output"], json!({ "status": 200 }));
    server.post("/v1/alerts/test", json!({ "rule": "silent" })).await.refused(409, "conflict");
    server.post("/v1/alerts/test", json!({ "rule": "nothing" })).await.refused(404, "not_found");
    let rules = server.get("/v1/alerts/rules").await.expect(200);
    assert_eq!(
        (&rules[0]["name"], &rules[0]["webhook"], &rules[1]["webhook"]),
        (&json!("failing"), &json!("ops"), &Value::Null)
    );
    assert_eq!(rules[0]["text"], "more than 50 % of the jobs of a kind fail within 5m, if at least 1 end");
    // Nobody else makes such a job, and lists of kinds do not offer it.
    let own = json!({ "kind": ALERT_KIND, "queue": "windlass.alerts", "input": {} });
    server.post("/v1/jobs", own).await.refused(400, "invalid");
    assert!(!server.get("/v1/kinds").await.expect(200).to_string().contains(ALERT_KIND));
    engine.stop().await;
}

async fn alerts_are_read_by_viewers_and_muted_by_operators(database: Database) {
    let (dir, engine) = kit::engine(database).await;
    let mut tokens = Vec::new();
    for role in Role::ALL {
        tokens.push((role, kit::token(&engine, role.name(), role, &[], &[]).await));
    }
    let limited = kit::token(&engine, "limited", Role::Operator, &["echo"], &[]).await;
    let server = Running::on(dir, engine, Settings { login: true, ..evaluating(vec![rule()]) }).await;
    let mute = Request::post("/v1/alerts/mute", &json!({ "rule": "failing" }));
    let requests = [
        (Request::get("/v1/alerts"), vec![Role::Viewer, Role::Operator, Role::Admin]),
        (Request::get("/v1/alerts/rules"), vec![Role::Viewer, Role::Operator, Role::Admin]),
        (mute, vec![Role::Operator, Role::Admin]),
        (
            Request::post("/v1/alerts/unmute", &json!({ "rule": "failing" })),
            vec![Role::Operator, Role::Admin],
        ),
        (Request::post("/v1/alerts/test", &json!({ "rule": "failing" })), vec![Role::Operator, Role::Admin]),
    ];
    for (request, roles) in requests {
        for (role, token) in &tokens {
            let answer = server.send(request.clone().token(token)).await;
            assert_eq!(answer.status < 300, roles.contains(role), "{role}: {answer:?}");
        }
        server.send(request.clone().token(&limited)).await.refused(403, "forbidden");
        server.send(request).await.refused(401, "unauthorized");
    }
}

async fn a_pass_takes_few_statements_and_none_are_left_without_rules(database: Database) {
    let (dir, engine) = kit::engine(database).await;
    let operator = engine.operator();
    let mut evaluator = Evaluator::new(Rule::built_in(), None);
    evaluator.pass(&operator).await.expect("a pass");
    let before = engine.store().statements();
    for _ in 0..4 {
        evaluator.pass(&operator).await.expect("a pass");
    }
    let taken = engine.store().statements() - before;
    assert!(taken <= 4 * 6, "{taken} statements for four passes");
    // Without rules the loop ends, and nothing is read any more.
    let server = Running::on(dir, engine.clone(), evaluating(Vec::new())).await;
    let mut last = engine.store().statements();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = engine.store().statements();
        if now == last {
            break;
        }
        last = now;
    }
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(engine.store().statements(), last);
    drop(server);
}
