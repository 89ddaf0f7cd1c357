//! Every form there is, posted by somebody who may only look.

use std::net::SocketAddr;

use axum::http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use windlass::{Engine, model::Role};

use crate::{Server, Settings};

/// Forms for everybody, about their own: log-in and log-out, how pages look, the password.
const FOR_EVERYBODY: [&str; 4] = ["/login", "/logout", "/preferences", "/access/password"];

/// Sends a request. Returns the response as text.
async fn send(address: SocketAddr, method: &str, path: &str, cookie: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\naccept: text/html\r\ncookie: {cookie}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    response
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before}: {text}"));
    rest.split(after).next().unwrap_or_default()
}

/// Logs a new user in. Returns the cookie of the session, and the token of forms.
async fn log_in(engine: &Engine, address: SocketAddr, name: &str, role: Role) -> (String, String) {
    let control = engine.control("test");
    control.create_user(name, role, "correct horse").await.expect("stored").expect("created");
    let login = format!("name={name}&password=correct+horse");
    let answer = send(address, "POST", "/login", "", &login).await;
    let cookie = between(&answer, "set-cookie: ", ";").to_owned();
    let page = send(address, "GET", "/", &cookie, "").await;
    (cookie, between(&page, "name=\"csrf\" value=\"", "\"").to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_form_that_changes_anything_takes_a_viewers() {
    let dir = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", dir.path().join("jobs.db").display());
    let engine = Engine::builder(url).open().await.expect("an engine");
    let job = engine.submit_json("noop", 1, json!(null)).unchecked().await.expect("submitted");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    engine
        .control("test")
        .create_user("first", Role::Admin, "correct horse")
        .await
        .expect("stored")
        .expect("created");
    let settings = Settings { listen, login: true, rate: 0, ..Settings::default() };
    let server = Server::bind(engine.clone(), settings).await.expect("a server");
    let address = server.address();
    let serving = tokio::spawn(server.run(std::future::pending()));

    let viewer = log_in(&engine, address, "vera", Role::Viewer).await;
    let admin = log_in(&engine, address, "ada", Role::Admin).await;
    let forms: Vec<_> = super::routes()
        .into_iter()
        .filter(|route| route.method == Method::POST && !FOR_EVERYBODY.contains(&route.path))
        .collect();
    assert!(forms.len() > 12, "there are {} forms", forms.len());
    for form in &forms {
        let permission =
            form.access.permission().unwrap_or_else(|| panic!("{} is open to everybody", form.path));
        assert!(!Role::Viewer.may(permission), "{} needs {permission:?} alone", form.path);
        let path =
            form.path.replace("{job}", &job.id().to_string()).replace("{id}", "1").replace(['{', '}'], "");
        let post = async |(cookie, token): &(String, String)| {
            let body = format!("csrf={token}&job={}&queue=default&schedule=none&note=x", job.id());
            send(address, "POST", &path, cookie, &body).await
        };
        let refused = post(&viewer).await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{path}: {refused}");
        assert!(refused.contains("he role viewer may not do this"), "{path}: {refused}");
        let taken = post(&admin).await;
        assert!(!taken.starts_with("HTTP/1.1 403"), "the role alone made the difference at {path}: {taken}");
    }
    serving.abort();
}
