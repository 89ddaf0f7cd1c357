//! Schedules, workers, the audit log, analytics, submitting: what they show, and who may use their forms.

use serde_json::json;
use windlass::model::Role;
use windlass_server::Settings;

use crate::{
    client::{Request, Response},
    kit::{self, Database, Running, settings},
    on_both,
};

on_both! {
    each_page_is_shown
    a_schedule_is_paused_and_resumed
    a_form_without_its_token_is_refused
    a_job_is_submitted
    hostile_names_are_escaped
    viewers_have_no_forms
}

const PAGES: [&str; 4] = ["/schedules", "/workers", "/audit", "/analytics?span=1h"];
const HOSTILE: &str = "<script>alert(1)</script>";

async fn schedule(server: &Running, name: &str) {
    let calendar = windlass::Calendar::every(1, windlass::Unit::Hours).expect("a calendar");
    let set = server.engine.schedule_json(name, calendar, "echo", 1, &json!("hello"));
    assert!(set.await.expect("it is set"));
}

async fn page(server: &Running, path: &str) -> String {
    let page = server.send(Request::get(path).header("accept", "text/html")).await;
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    assert!(page.body.len() < 60_000, "{path} has {} bytes", page.body.len());
    page.body
}

/// The token of a page's forms.
fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
    rest.split('"').next().expect("a token").to_owned()
}

async fn post(server: &Running, path: &str, csrf: &str, fields: &str) -> Response {
    let body = format!("csrf={csrf}&{fields}");
    server.send(Request::form(path, &body)).await
}

async fn each_page_is_shown(database: Database) {
    let server = Running::working(database).await;
    schedule(&server, "pulse").await;
    for path in PAGES {
        page(&server, path).await;
    }
    let all = page(&server, "/schedules?name=pulse").await;
    assert!(all.contains("pulse") && all.contains("to come") && all.contains("/schedules/trigger"));
    assert!(page(&server, "/schedules?name=none").await.contains("There is no schedule"));
    assert!(page(&server, "/workers").await.contains("1 live worker"));
    assert!(page(&server, "/submit?kind=echo").await.contains("Live workers run"));
    assert!(page(&server, "/submit?kind=none").await.contains("No live worker runs the kind"));
    assert!(page(&server, "/analytics?span=2h").await.contains("is none of 1h, 24h, 7d and 30d"));
    assert!(page(&server, "/audit?before=x").await.contains("has no number"));
}

async fn a_schedule_is_paused_and_resumed(database: Database) {
    let server = Running::new(database).await;
    schedule(&server, "pulse").await;
    let token = csrf(&page(&server, "/schedules?pause=pulse").await);
    let paused = post(&server, "/schedules/pause", &token, "schedule=pulse&note=later&back=/schedules").await;
    assert_eq!((paused.status, paused.header("location")), (303, Some("/schedules")));
    let shown = page(&server, "/schedules?name=pulse").await;
    assert!(shown.contains("later") && shown.contains("/schedules/resume"));
    assert!(page(&server, "/audit?subject=pulse").await.contains("later"));
    assert_eq!(post(&server, "/schedules/resume", &token, "schedule=pulse").await.status, 303);
    let triggered = post(&server, "/schedules/trigger", &token, "schedule=pulse").await;
    assert!(triggered.header("location").is_some_and(|path| path.starts_with("/jobs/")), "{triggered:?}");
}

async fn a_form_without_its_token_is_refused(database: Database) {
    let server = Running::new(database).await;
    schedule(&server, "pulse").await;
    for path in ["/schedules/pause", "/schedules/resume", "/schedules/trigger", "/submit"] {
        let refused = post(&server, path, "wrong", "schedule=pulse&kind=echo").await;
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
    }
}

async fn a_job_is_submitted(database: Database) {
    let server = Running::new(database).await;
    let token = csrf(&page(&server, "/submit").await);
    let wrong = post(&server, "/submit", &token, "kind=echo&input=hello").await;
    assert!(wrong.status == 400 && wrong.body.contains("the input is no JSON"), "{wrong:?}");
    let checked = post(&server, "/submit", &token, "kind=echo&input=1&check=1").await;
    assert!(checked.status == 200 && checked.body.contains("windlass submit"), "{checked:?}");
    let submitted = post(&server, "/submit", &token, "kind=echo&input=%22hi%22&key=one&tags=a+b").await;
    let path = submitted.header("location").expect("a job").to_owned();
    assert!(path.starts_with("/jobs/"), "{submitted:?}");
    let again = post(&server, "/submit", &token, "kind=echo&input=%22hi%22&key=one").await;
    assert_eq!(again.header("location"), Some(path.as_str()));
}

async fn hostile_names_are_escaped(database: Database) {
    let server = Running::new(database).await;
    schedule(&server, HOSTILE).await;
    let query = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for path in ["/schedules", "/audit", "/workers", "/analytics"] {
        assert!(!page(&server, path).await.contains(HOSTILE), "{path}");
    }
    for path in ["/schedules?q=", "/schedules?name=", "/audit?subject=", "/submit?kind=", "/analytics?span="]
    {
        assert!(!page(&server, &format!("{path}{query}")).await.contains(HOSTILE), "{path}");
    }
}

async fn viewers_have_no_forms(database: Database) {
    let (dir, engine) = kit::engine(database).await;
    kit::token(&engine, "first", Role::Admin, &[], &[]).await;
    let server = Running::on(dir, engine, Settings { login: true, ..settings() }).await;
    schedule(&server, "pulse").await;
    server
        .engine
        .control("test")
        .create_user("vera", Role::Viewer, "correct horse")
        .await
        .expect("a user")
        .expect("a user");
    let login = server.send(Request::form("/login", "name=vera&password=correct+horse")).await;
    let cookie =
        login.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a session").to_owned();
    let get =
        |path: &str| server.send(Request::get(path).header("accept", "text/html").header("cookie", &cookie));
    let schedules = get("/schedules").await;
    assert_eq!(schedules.status, 200, "{schedules:?}");
    assert!(!schedules.body.contains("/schedules/trigger") && !schedules.body.contains("href=\"/submit\""));
    assert_eq!(get("/submit").await.status, 403);
    let body = format!("csrf={}&schedule=pulse", csrf(&schedules.body));
    for path in ["/schedules/pause", "/schedules/trigger", "/submit"] {
        let refused = server.send(Request::form(path, &body).header("cookie", &cookie)).await;
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
    }
}
