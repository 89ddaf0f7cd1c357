//! Who may do what: roles, scopes, tokens, users, Host, Origin, proxies.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use windlass::{
    model::{Role, Scope},
    operate::TokenRequest,
};
use windlass_server::{Server, Settings, StartError};

use crate::{
    client::Request,
    kit::{self, Database, Running, settings},
    on_both,
};

on_both! {
    each_role_may_do_what_it_is_for
    a_scoped_token_sees_and_changes_only_its_jobs
    bad_revoked_expired_and_foreign_tokens_are_refused
    a_server_for_others_does_not_start_without_logins
    tokens_are_managed_by_admins
    users_are_managed_by_admins
    concurrent_edits_have_one_winner_each
}

async fn with_login(database: Database) -> Running {
    let (dir, engine) = kit::engine(database).await;
    kit::token(&engine, "first", Role::Admin, &[], &[]).await;
    Running::on(dir, engine, Settings { login: true, ..settings() }).await
}

async fn each_role_may_do_what_it_is_for(database: Database) {
    let server = with_login(database).await;
    let mut tokens = Vec::new();
    for role in Role::ALL {
        tokens.push((role, server.token(role.name(), role, &[], &[]).await));
    }
    let (admin, viewer_up, operator_up) =
        ([Role::Admin], [Role::Viewer, Role::Operator, Role::Admin], [Role::Operator, Role::Admin]);
    let job = || Request::post("/v1/jobs", &json!({ "kind": "echo" }));
    let id =
        server.send(job().token(&tokens[2].1)).await.expect(201)["id"].as_str().expect("an id").to_owned();
    let user = json!({ "name": "eve", "role": "viewer", "password": "correct horse" });
    let new_user = Request::post("/v1/users", &user);
    let requests: Vec<(Request, &[Role])> = vec![
        (Request::get("/v1/jobs"), &viewer_up),
        (Request::get(&format!("/v1/jobs/{id}")), &viewer_up),
        (Request::get("/v1/queues"), &viewer_up),
        (Request::get("/v1/audit"), &viewer_up),
        (Request::get("/metrics"), &viewer_up),
        (Request::get("/v1/gates?queue=default"), &Role::ALL),
        (job(), &operator_up),
        (Request::post(&format!("/v1/jobs/{id}/pause"), &json!({})), &operator_up),
        (
            Request::post("/v1/jobs/bulk", &json!({ "action": "pause", "filter": {}, "all": true })),
            &operator_up,
        ),
        (Request::post("/v1/queues/q/pause", &json!({})), &operator_up),
        (Request::new("PUT", "/v1/limits/l").json(&json!({ "rate": 1 })), &operator_up),
        (Request::post("/v1/prune", &json!({ "state": "done", "older_than": "1d" })), &admin),
        (Request::get("/v1/tokens"), &admin),
        (Request::new("DELETE", "/v1/tokens/first"), &admin),
        (Request::get("/v1/users"), &admin),
        (new_user, &admin),
        (Request::post("/v1/users/eve/disable", &json!({})), &admin),
    ];
    for (request, allowed) in requests {
        for (role, token) in &tokens {
            let response = server.send(request.clone().token(token)).await;
            if allowed.contains(role) {
                assert!((200..300).contains(&response.status), "{role}: {response:?}");
            } else {
                response.refused(403, "forbidden");
            }
        }
        server.send(request).await.refused(401, "unauthorized");
    }
    // Nobody learns anything about jobs.
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        server.get(open).await.expect(200);
    }
    let audit = Request::get(&format!("/v1/audit?subject={id}")).token(&tokens[0].1);
    let author = server.send(audit).await.expect(200)["entries"][0]["author"].clone();
    assert!(author.as_str().is_some_and(|author| author.ends_with("@127.0.0.1")), "{author}");
}

async fn a_scoped_token_sees_and_changes_only_its_jobs(database: Database) {
    let server = Running::new(database).await;
    let own = server.submit(json!({ "kind": "echo", "input": 1, "queue": "mine", "key": "same" })).await;
    let queue = server.submit(json!({ "kind": "echo", "input": 2, "queue": "yours" })).await;
    let kind =
        server.submit(json!({ "kind": "approval", "input": {}, "queue": "mine", "key": "same" })).await;
    let token = server.token("scoped", Role::Operator, &["echo"], &["mine"]).await;
    let get = async |path: &str| server.send(Request::get(path).token(&token)).await;
    let post = async |path: &str, body: Value| server.send(Request::post(path, &body).token(&token)).await;
    let list = get("/v1/jobs").await.expect(200);
    assert_eq!(list["jobs"].as_array().expect("jobs").len(), 1);
    assert_eq!(list["counts"], json!({ "ready": 1 }), "others are not counted");
    get("/v1/jobs?kind=approval").await.refused(403, "forbidden");
    get("/v1/jobs?queue=yours").await.refused(403, "forbidden");
    get(&format!("/v1/jobs/{own}")).await.expect(200);
    get("/v1/jobs/echo%2Fsame").await.expect(200);
    for hidden in [queue.as_str(), kind.as_str(), "approval%2Fsame", "same"] {
        for part in ["", "/why", "/result", "/journal", "/children"] {
            get(&format!("/v1/jobs/{hidden}{part}")).await.refused(404, "not_found");
        }
        for verb in ["cancel", "retry", "pause", "signals/x", "fork"] {
            post(&format!("/v1/jobs/{hidden}/{verb}"), json!({})).await.refused(404, "not_found");
        }
        get(&format!("/v1/events?job={hidden}")).await.refused(404, "not_found");
    }
    post("/v1/jobs", json!({ "kind": "approval", "input": {} })).await.refused(403, "forbidden");
    post("/v1/jobs", json!({ "kind": "echo", "queue": "yours" })).await.refused(403, "forbidden");
    post("/v1/jobs", json!({ "kind": "echo", "parent": kind })).await.refused(404, "not_found");
    let serial = json!({ "key": "door", "slots": 9 });
    post("/v1/jobs", json!({ "kind": "echo", "serial": serial })).await.refused(403, "forbidden");
    let unique = json!({ "name": "n", "on_conflict": "cancel_and_replace" });
    post("/v1/jobs", json!({ "kind": "echo", "unique": unique })).await.refused(403, "forbidden");
    let submitted = post("/v1/jobs", json!({ "kind": "echo", "input": "new" })).await.expect(201);
    let shown = get(&format!("/v1/jobs/{}", submitted["id"].as_str().expect("an id"))).await.expect(200);
    assert_eq!(shown["queue"], "mine", "its only queue is the default");
    let done =
        post("/v1/jobs/bulk", json!({ "action": "pause", "filter": {}, "all": true })).await.expect(200);
    assert_eq!(done["done"], 2, "its own jobs alone");
    for denied in
        ["/v1/queues", "/v1/workers", "/v1/audit", "/v1/doctor", "/v1/limits", "/v1/serial-keys", "/metrics"]
    {
        get(denied).await.refused(403, "forbidden");
    }
    get("/v1/gates?queue=yours").await.refused(403, "forbidden");
    get("/v1/events?queue=yours").await.refused(403, "forbidden");
    get("/v1/gates?queue=mine").await.expect(200);
    post("/v1/queues/mine/pause", json!({})).await.refused(403, "forbidden");
    post(&format!("/v1/jobs/{own}/redrive"), json!({})).await.refused(403, "forbidden");
    let of_queue = server.token("queue", Role::Operator, &[], &["mine"]).await;
    let queues = server.send(Request::get("/v1/queues").token(&of_queue)).await.expect(200);
    assert_eq!(queues.as_array().map(Vec::len), Some(1));
    server.send(Request::post("/v1/queues/mine/pause", &json!({})).token(&of_queue)).await.expect(200);
    server
        .send(Request::post("/v1/queues/yours/pause", &json!({})).token(&of_queue))
        .await
        .refused(403, "forbidden");
}

async fn bad_revoked_expired_and_foreign_tokens_are_refused(database: Database) {
    let server = with_login(database).await;
    let good = server.token("good", Role::Viewer, &[], &[]).await;
    let list = |token: &str| Request::get("/v1/jobs").token(token);
    server.send(list(&good)).await.expect(200);
    let (_dir, elsewhere) = kit::engine(Database::Sqlite).await;
    let foreign = kit::token(&elsewhere, "good", Role::Admin, &[], &[]).await;
    let id_alone = good.rsplit_once('_').expect("an id").0.to_owned();
    let mut wrong = good.clone();
    wrong.replace_range(wrong.len() - 1.., if good.ends_with('0') { "1" } else { "0" });
    for bad in [foreign.as_str(), &wrong, &id_alone, "x", "", "windlass_00_00", &"f".repeat(10_000)] {
        server.send(list(bad)).await.refused(401, "unauthorized");
    }
    let twice = list(&good).header("authorization", "Bearer x");
    server.send(twice).await.refused(401, "unauthorized");
    let basic = Request::get("/v1/jobs").header("authorization", "Basic YTpi");
    let refused = server.send(basic).await;
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    refused.refused(401, "unauthorized");
    let control = server.engine.control("test");
    let short = TokenRequest {
        name: "short".into(),
        role: Role::Viewer,
        scope: Scope::default(),
        expires_in: Some(Duration::ZERO),
    };
    let expired = control.create_token(&short).await.expect("created").expect("accepted").text;
    let refused = server.send(list(&expired)).await.refused(401, "unauthorized");
    assert!(refused["message"].to_string().contains("expired"), "{refused}");
    control.revoke_token("good").await.expect("revoked").accepted().expect("revoked");
    let refused = server.send(list(&good)).await.refused(401, "unauthorized");
    assert!(refused["message"].to_string().contains("revoked"), "{refused}");
    // A token that is sent is checked where none is needed, too.
    let open = Running::new(database).await;
    open.send(list(&good)).await.refused(401, "unauthorized");
    open.get("/v1/jobs").await.expect(200);
}

async fn a_server_for_others_does_not_start_without_logins(database: Database) {
    let (_dir, engine) = kit::engine(database).await;
    let public = Settings { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..settings() };
    let refused = Server::bind(engine.clone(), public.clone()).await.err().expect("refused");
    assert!(
        matches!(refused, StartError::NoLogins(_)) && refused.to_string().contains("tokens create"),
        "{refused}"
    );
    assert!(refused.to_string().contains("users create"), "{refused}");
    let proxied = Settings { trusted_proxies: vec!["127.0.0.1".parse().expect("an address")], ..settings() };
    assert!(matches!(Server::bind(engine.clone(), proxied).await, Err(StartError::NoLogins(_))));
    let token = kit::token(&engine, "only", Role::Admin, &[], &[]).await;
    let server = Server::bind(engine.clone(), public.clone()).await.expect("a token exists");
    let port = server.address().port();
    drop(server);
    assert_ne!(port, 0);
    engine.control("test").revoke_token("only").await.expect("revoked").accepted().expect("revoked");
    assert!(
        matches!(Server::bind(engine.clone(), public.clone()).await, Err(StartError::NoLogins(_))),
        "{token} is revoked"
    );
    let control = engine.control("test");
    let user = control.create_user("eve", Role::Viewer, "correct horse").await.expect("answered");
    user.expect("created");
    drop(Server::bind(engine.clone(), public.clone()).await.expect("a user exists"));
    control.disable_user("eve").await.expect("answered").accepted().expect("disabled");
    let refused = Server::bind(engine.clone(), public).await;
    assert!(matches!(refused, Err(StartError::NoLogins(_))), "the user is disabled");
}

async fn tokens_are_managed_by_admins(database: Database) {
    let server = Running::new(database).await;
    let create = async |body: Value| server.post("/v1/tokens", body).await;
    let created = create(json!({ "name": "ci", "role": "operator", "kinds": ["echo"], "expires_in": "1d" }))
        .await
        .expect(201);
    let text = created["text"].as_str().expect("the text").to_owned();
    create(json!({ "name": "ci", "role": "viewer" })).await.refused(409, "conflict");
    create(json!({ "name": "root", "role": "admin", "kinds": ["echo"] })).await.refused(409, "conflict");
    create(json!({ "name": "x", "role": "root" })).await.refused(400, "invalid");
    create(json!({ "name": "", "role": "viewer" })).await.refused(400, "invalid");
    server.send(Request::get("/v1/jobs").token(&text)).await.expect(200);
    let list = server.get("/v1/tokens").await;
    assert!(!list.body.contains(text.rsplit('_').next().expect("a secret")), "the secret is shown once");
    assert!(!list.body.contains("hash"), "{list:?}");
    let list = list.expect(200);
    assert_eq!((&list[0]["name"], &list[0]["kinds"]), (&json!("ci"), &json!(["echo"])));
    assert!(list[0]["last_used_at"].is_string(), "{list}");
    let delete = || Request::new("DELETE", "/v1/tokens/ci");
    assert_eq!(server.send(delete()).await.expect(200)["outcome"], "done");
    assert_eq!(server.send(delete()).await.expect(200)["outcome"], "already");
    server.send(Request::new("DELETE", "/v1/tokens/nobody")).await.refused(404, "not_found");
    server.send(Request::get("/v1/jobs").token(&text)).await.refused(401, "unauthorized");
    let audit = server.get("/v1/audit?subject=ci").await.expect(200);
    let actions: Vec<&Value> =
        audit["entries"].as_array().expect("entries").iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, [&json!("revoke token"), &json!("create token")]);
}

async fn users_are_managed_by_admins(database: Database) {
    let server = Running::new(database).await;
    let post = async |path: &str, body: Value| server.post(&format!("/v1/users{path}"), body).await;
    let eve = json!({ "name": "eve", "role": "operator", "password": "correct horse", "note": "new" });
    let created = post("", eve.clone()).await.expect(201);
    assert_eq!((&created["name"], &created["role"]), (&json!("eve"), &json!("operator")));
    post("", eve.clone()).await.refused(409, "conflict");
    let with = |field: &str, value: &str| {
        let mut user = json!({ "name": "bob", "role": "viewer", "password": "battery staple" });
        user[field] = value.into();
        user
    };
    let short = post("", with("password", "tiny")).await;
    assert!(!short.body.contains("tiny"), "{short:?}");
    assert!(short.refused(409, "conflict")["hint"].to_string().contains("at least 10"));
    for (field, value) in [("role", "worker"), ("role", "root"), ("name", ""), ("name", "two words")] {
        post("", with(field, value)).await.refused(400, "invalid");
    }
    post("", json!({ "name": "bob", "role": "viewer" })).await.refused(400, "invalid");
    let log_in = async |password: &str| {
        server.engine.operator().log_in("eve", password, "test").await.expect("answered").is_ok()
    };
    assert!(log_in("correct horse").await);

    let outcome = async |path: &str, body: Value| post(path, body).await.expect(200)["outcome"].clone();
    assert_eq!(outcome("/eve/log-out", json!({})).await, "done");
    assert_eq!(outcome("/eve/log-out", json!({})).await, "already");
    post("/eve/password", json!({ "password": "tiny" })).await.refused(409, "conflict");
    assert_eq!(outcome("/eve/password", json!({ "password": "battery staple" })).await, "done");
    assert!(!log_in("correct horse").await && log_in("battery staple").await);
    assert_eq!(outcome("/eve/role", json!({ "role": "admin" })).await, "done");
    assert_eq!(outcome("/eve/role", json!({ "role": "admin" })).await, "already");
    post("/eve/role", json!({ "role": "worker" })).await.refused(400, "invalid");
    assert_eq!(outcome("/eve/disable", json!({ "note": "left" })).await, "done");
    assert!(!log_in("battery staple").await);
    let list = server.get("/v1/users").await;
    assert!(!list.body.contains("argon2") && !list.body.contains("hash"), "{list:?}");
    let list = list.expect(200);
    assert_eq!((list.as_array().map(Vec::len), &list[0]["role"]), (Some(1), &json!("admin")));
    assert!(list[0]["disabled_at"].is_string() && list[0]["last_login_at"].is_string(), "{list}");
    assert_eq!(outcome("/eve/enable", json!({})).await, "done");
    for (verb, body) in [
        ("password", json!({ "password": "correct horse" })),
        ("role", json!({ "role": "viewer" })),
        ("disable", json!({})),
        ("enable", json!({})),
        ("log-out", json!({})),
    ] {
        post(&format!("/nobody/{verb}"), body).await.refused(404, "not_found");
    }
    let audit = server.get("/v1/audit?subject=eve").await.expect(200);
    let actions: Vec<&str> = audit["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    let expected = [
        "enable user",
        "failed log-in of a disabled user",
        "disable user",
        "set role admin",
        "log in",
        "failed log-in",
        "set password",
        "end sessions",
        "log in",
        "create user",
    ];
    assert_eq!(actions, expected);
}

async fn concurrent_edits_have_one_winner_each(database: Database) {
    let server = Running::new(database).await;
    let id = server.echo("x").await;
    let cancel = || server.post("/v1/jobs/echo-none/cancel", json!({}));
    cancel().await.refused(404, "not_found");
    let path = format!("/v1/jobs/{id}/cancel");
    let outcomes = futures_util::future::join_all((0..8).map(|_| server.post(&path, json!({})))).await;
    let outcomes: Vec<Value> =
        outcomes.into_iter().map(|response| response.expect(200)["outcome"].clone()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "done").count(), 1, "{outcomes:?}");
    let job = json!({ "kind": "echo", "input": 1, "key": "one" });
    let submits = futures_util::future::join_all((0..8).map(|_| server.post("/v1/jobs", job.clone()))).await;
    assert_eq!(submits.iter().filter(|response| response.status == 201).count(), 1, "{submits:?}");
    let create = json!({ "name": "same", "role": "viewer" });
    let created =
        futures_util::future::join_all((0..8).map(|_| server.post("/v1/tokens", create.clone()))).await;
    assert_eq!(created.iter().filter(|response| response.status == 201).count(), 1, "{created:?}");
}

#[tokio::test]
async fn other_hosts_and_origins_are_refused() {
    let server = Running::new(Database::Sqlite).await;
    let port = server.address.port();
    let with =
        async |name: &str, value: &str| server.send(Request::get("/v1/jobs").header(name, value)).await;
    with("host", "evil.example").await.refused(421, "wrong_host");
    with("host", &format!("evil.example:{port}")).await.refused(421, "wrong_host");
    with("host", "").await.refused(400, "invalid");
    with("host", &format!("localhost:{port}")).await.expect(200);
    with("origin", "https://evil.example").await.refused(403, "forbidden");
    with("origin", "null").await.refused(403, "forbidden");
    with("origin", &format!("http://127.0.0.1:{port}")).await.expect(200);
    with("x-forwarded-for", "1.2.3.4").await.refused(403, "forbidden");
    let form =
        Request::new("POST", "/v1/jobs").header("content-type", "text/plain").header("content-length", "0");
    server.send(form).await.refused(415, "not_json");
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client() {
    let (dir, engine) = kit::engine(Database::Sqlite).await;
    let token = kit::token(&engine, "web", Role::Operator, &[], &[]).await;
    let trusted_proxies = vec!["127.0.0.1".parse().expect("an address")];
    let hosts = vec!["jobs.example".to_owned()];
    let server = Running::on(dir, engine, Settings { trusted_proxies, hosts, ..settings() }).await;
    let request = Request::post("/v1/queues/q/pause", &json!({}))
        .token(&token)
        .header("host", "jobs.example")
        .header("x-forwarded-for", "6.6.6.6, 8.8.8.8")
        .header("x-forwarded-proto", "https")
        .header("origin", "https://jobs.example");
    server.send(request).await.expect(200);
    let audit = server.send(Request::get("/v1/audit?subject=q").token(&token)).await.expect(200);
    assert_eq!(audit["entries"][0]["author"], "web@8.8.8.8");
    server.send(Request::get("/v1/jobs")).await.refused(401, "unauthorized");
}
