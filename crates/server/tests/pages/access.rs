//! Access: users, tokens, passwords, alert rules, and who may see and do what there.

use windlass::{
    model::Role,
    operate::alerts::{Condition, Rule},
    store::AuditFilter,
};
use windlass_server::{AlertSettings, Settings};

use crate::{
    client::{Request, Response},
    kit::{self, Database, Running, settings},
    on_both,
};

on_both! {
    users_are_created_and_changed
    a_token_is_shown_once
    everybody_changes_their_own_password
    rules_are_muted_and_unmuted
    other_roles_see_rules_alone
    log_ins_are_in_the_audit_log
    nobody_locks_themselves_out
    hostile_names_are_escaped
}

const PASSWORD: &str = "correct horse";

/// A server where people log in, with the users `ada` (admin), `otto` (operator) and `vera` (viewer).
async fn server(database: Database) -> Running {
    let (dir, engine) = kit::engine(database).await;
    let control = engine.control("test");
    for (name, role) in [("ada", Role::Admin), ("otto", Role::Operator), ("vera", Role::Viewer)] {
        control.create_user(name, role, PASSWORD).await.expect("answered").expect("created");
    }
    let rule =
        Rule::new("queue-behind", Condition::WorkerLost { within: std::time::Duration::from_secs(60) });
    let alerts = Some(AlertSettings { rules: vec![rule], ..AlertSettings::default() });
    Running::on(dir, engine, Settings { login: true, alerts, ..settings() }).await
}

/// Somebody who is logged in.
struct Reader<'a> {
    server: &'a Running,
    cookie: String,
}

/// The cookie of a session that a response sets.
fn session(response: &Response) -> Option<String> {
    let set = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let mut pairs = set.filter_map(|(_, cookie)| cookie.split(';').next());
    pairs.find(|pair| pair.starts_with("windlass_session=")).map(str::to_owned)
}

async fn log_in(server: &Running, name: &str, password: &str) -> Response {
    let password = password.replace(' ', "+");
    server.send(Request::form("/login", &format!("name={name}&password={password}"))).await
}

impl<'a> Reader<'a> {
    async fn new(server: &'a Running, name: &str) -> Reader<'a> {
        let response = log_in(server, name, PASSWORD).await;
        Reader { server, cookie: session(&response).unwrap_or_else(|| panic!("no session: {response:?}")) }
    }

    async fn get(&self, path: &str) -> Response {
        let request = Request::get(path).header("accept", "text/html").header("cookie", &self.cookie);
        self.server.send(request).await
    }

    async fn page(&self, path: &str) -> String {
        let page = self.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(page.body.len() < 60_000, "{path} has {} bytes", page.body.len());
        page.body
    }

    /// Posts a form with the token of the page. Returns the response.
    async fn post(&self, path: &str, fields: &str) -> Response {
        let page = self.page("/access").await;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
        let token = rest.split('"').next().expect("a token");
        let request = Request::form(path, &format!("csrf={token}&back=/access&{fields}"));
        self.server.send(request.header("cookie", &self.cookie)).await
    }

    /// Posts a form, and returns what the next page says.
    async fn act(&self, path: &str, fields: &str) -> String {
        let answer = self.post(path, fields).await;
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
        let set = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let notice = set.map(|(_, cookie)| cookie).find(|cookie| cookie.starts_with("windlass_notice="));
        let notice = notice.expect("a notice").split(';').next().expect("a cookie");
        let to = answer.header("location").expect("a page");
        let request = Request::get(to).header("accept", "text/html");
        let page = self.server.send(request.header("cookie", &format!("{}; {notice}", self.cookie))).await;
        let (_, said) = page.body.split_once("class=\"toast").expect("a message");
        said.split_once("</div></div>").expect("its end").0.to_owned()
    }
}

/// The audit log, newest first: author, action and subject.
async fn audit(server: &Running) -> Vec<String> {
    let filter = AuditFilter { limit: 100, ..AuditFilter::default() };
    let entries = server.engine.inspect().audit(&filter).await.expect("the log");
    let text = |entry: windlass::store::AuditEntry| {
        let note = entry.note.map(|note| format!(" ({note})")).unwrap_or_default();
        format!("{}: {} {}{note}", entry.author, entry.action, entry.subject)
    };
    entries.into_iter().map(text).collect()
}

async fn users_are_created_and_changed(database: Database) {
    let server = server(database).await;
    let ada = Reader::new(&server, "ada").await;
    assert!(ada.page("/access?new=user").await.contains("Create the user"));
    let fields = "name=eve&role=operator&password=correct+horse&note=new+here";
    assert!(ada.act("/access/users", fields).await.contains("The user eve may log in as operator"));
    assert!(ada.act("/access/users", fields).await.contains("choose another name"));
    let short = ada.act("/access/users", "name=bob&role=viewer&password=short").await;
    assert!(short.contains("choose one with at least 10"), "{short}");
    let drawer = ada.page("/access?user=eve").await;
    assert!(
        drawer.contains("/access/users/disable") && drawer.contains("<option selected>operator"),
        "{drawer}"
    );
    let eve = Reader::new(&server, "eve").await;
    assert!(ada.act("/access/users/role", "user=eve&role=viewer").await.contains("eve is viewer now"));
    assert!(ada.act("/access/users/role", "user=eve&role=viewer").await.contains("Nothing to do"));
    assert_eq!(eve.get("/access").await.status, 303, "the session has ended");
    let eve = Reader::new(&server, "eve").await;
    assert!(ada.act("/access/users/sessions", "user=eve").await.contains("logged out everywhere"));
    assert_eq!(eve.get("/access").await.status, 303);
    assert!(
        ada.act("/access/users/password", "user=eve&password=+battery+staple+")
            .await
            .contains("another password")
    );
    assert!(session(&log_in(&server, "eve", PASSWORD).await).is_none());
    assert!(session(&log_in(&server, "eve", " battery staple ").await).is_some(), "spaces count");
    assert!(ada.act("/access/users/disable", "user=eve&note=left").await.contains("eve is disabled"));
    assert!(session(&log_in(&server, "eve", " battery staple ").await).is_none());
    assert!(ada.page("/access?user=eve").await.contains("/access/users/enable"));
    assert!(ada.act("/access/users/enable", "user=eve").await.contains("may log in again"));
    assert!(ada.act("/access/users/enable", "user=nobody").await.contains("there is no user"));
    assert!(ada.page("/access?user=nobody").await.contains("There is no user or valid token"));
    let audit = audit(&server).await;
    for entry in [
        "create user eve (new here)",
        "set role viewer eve",
        "end sessions eve",
        "set password eve",
        "disable user eve (left)",
        "enable user eve",
    ] {
        assert!(audit.contains(&format!("ada@127.0.0.1: {entry}")), "{entry}: {audit:?}");
    }
}

async fn a_token_is_shown_once(database: Database) {
    let server = server(database).await;
    let ada = Reader::new(&server, "ada").await;
    let page =
        ada.post("/access/tokens", "name=shop&role=operator&kinds=mail,sms&queues=out&expires_in=90d").await;
    assert_eq!(page.status, 200, "{page:?}");
    let (_, rest) = page.body.split_once("<pre class=\"code\" id=\"token\">").expect("a token");
    let token = rest.split('<').next().expect("a token").to_owned();
    assert!(token.starts_with("windlass_") && page.body.contains("not shown again"), "{token}");
    assert!(!page.headers.iter().any(|(_, value)| value.contains(&token)), "{page:?}");
    let listed = server.send(Request::get("/v1/jobs?kind=mail&queue=out").token(&token)).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let after = ada.page("/access").await;
    assert!(!after.contains(&token) && after.contains("shop") && after.contains("queue out"), "{after}");
    assert!(ada.act("/access/tokens", "name=shop&role=viewer").await.contains("choose another name"));
    let refused = ada.act("/access/tokens", "name=root&role=admin&kinds=mail").await;
    assert!(refused.contains("an admin creates tokens of any scope"), "{refused}");
    assert!(
        ada.act("/access/tokens", "name=x&role=viewer&expires_in=soon").await.contains("write it as 30s")
    );
    let id = token.split('_').nth(1).expect("an id");
    assert!(ada.page(&format!("/access?revoke={id}")).await.contains("Revoke the token"));
    assert!(ada.act("/access/tokens/revoke", &format!("token={id}")).await.contains("is revoked"));
    assert_eq!(server.send(Request::get("/v1/jobs?kind=mail&queue=out").token(&token)).await.status, 401);
    assert!(ada.page("/access").await.contains("it was revoked"));
    assert!(ada.act("/access/tokens/revoke", "token=none").await.contains("there is no such token"));
}

async fn everybody_changes_their_own_password(database: Database) {
    let server = server(database).await;
    let vera = Reader::new(&server, "vera").await;
    let other = Reader::new(&server, "vera").await;
    assert!(vera.page("/access?new=password").await.contains("/access/password"));
    let new = "password=battery+staple&again=battery+staple";
    assert!(vera.act("/access/password", &format!("current=wrong&{new}")).await.contains("type it again"));
    let differ = vera.act("/access/password", "current=correct+horse&password=battery+staple&again=x").await;
    assert!(differ.contains("differ"), "{differ}");
    let short = vera.act("/access/password", "current=correct+horse&password=x&again=x").await;
    assert!(short.contains("at least 10"), "{short}");
    let changed = vera.post("/access/password", &format!("current=correct+horse&{new}")).await;
    let cookie = session(&changed).unwrap_or_else(|| panic!("no session: {changed:?}"));
    assert_eq!(vera.get("/access").await.status, 303, "the old session has ended");
    assert_eq!(other.get("/access").await.status, 303, "and the others");
    let again = Reader { server: &server, cookie };
    assert!(again.page("/access").await.contains("Alert rules"));
    assert!(session(&log_in(&server, "vera", PASSWORD).await).is_none());
    assert!(audit(&server).await.contains(&"vera@127.0.0.1: set password vera".to_owned()));
    // Nobody guesses through a browser that was left open.
    let mut said = String::new();
    for _ in 0..7 {
        said = again.act("/access/password", &format!("current=wrong&{new}")).await;
    }
    assert!(said.contains("too often"), "{said}");
}

async fn rules_are_muted_and_unmuted(database: Database) {
    let server = server(database).await;
    let ada = Reader::new(&server, "ada").await;
    let page = ada.page("/access").await;
    assert!(
        page.contains("queue-behind")
            && page.contains("quiet")
            && page.contains("a worker was lost within 1m")
    );
    assert!(ada.page("/access?mute=queue-behind").await.contains("posts no messages"));
    let said = ada.act("/access/alerts/mute", "rule=queue-behind&span=1h&note=deploys").await;
    assert!(said.contains("posts no messages"), "{said}");
    let said = ada.act("/access/alerts/mute", "rule=queue-behind&subject=a%3Cb&span=").await;
    assert!(said.contains("about a&lt;b"), "{said}");
    let page = ada.page("/access").await;
    assert!(page.contains("deploys") && page.contains("/access/alerts/unmute") && !page.contains("a<b"));
    assert!(ada.act("/access/alerts/unmute", "rule=queue-behind").await.contains("posts messages again"));
    assert!(!ada.page("/access").await.contains("deploys"));
    assert!(ada.act("/access/alerts/mute", "rule=none").await.contains("there is no alert rule"));
    let audit = audit(&server).await;
    assert!(audit.iter().any(|entry| entry.contains("mute") && entry.contains("(deploys)")), "{audit:?}");
}

async fn other_roles_see_rules_alone(database: Database) {
    let server = server(database).await;
    for name in ["otto", "vera"] {
        let reader = Reader::new(&server, name).await;
        for path in [
            "/access",
            "/access?user=ada",
            "/access?new=user",
            "/access?new=token",
            "/access?mute=queue-behind",
        ] {
            let page = reader.page(path).await;
            assert!(page.contains("Alert rules") && page.contains("Change your password"), "{path}");
            for absent in ["/access/users", "/access/tokens", "/access/alerts", "<bdi>ada", "New user"] {
                assert!(!page.contains(absent), "{name}, {path}: {absent}");
            }
        }
        for path in [
            "/access/users",
            "/access/users/role",
            "/access/users/password",
            "/access/users/disable",
            "/access/users/enable",
            "/access/users/sessions",
            "/access/tokens",
            "/access/tokens/revoke",
            "/access/alerts/mute",
            "/access/alerts/unmute",
        ] {
            let fields = "user=ada&name=eve&role=admin&password=correct+horse&token=x&rule=queue-behind";
            let refused = reader.post(path, fields).await;
            assert_eq!(refused.status, 403, "{name}, {path}: {refused:?}");
        }
    }
    let users = server.engine.operator().users().await.expect("users");
    assert_eq!(users.len(), 3);
    let ada = Reader::new(&server, "ada").await;
    for path in ["/access/users", "/access/tokens", "/access/password"] {
        let request = Request::form(path, "csrf=wrong&name=eve&role=admin&password=correct+horse");
        assert_eq!(server.send(request.header("cookie", &ada.cookie)).await.status, 403, "{path}");
    }
}

async fn log_ins_are_in_the_audit_log(database: Database) {
    let server = server(database).await;
    assert!(session(&log_in(&server, "vera", "wrong").await).is_none());
    assert!(session(&log_in(&server, "nobody", "wrong").await).is_none());
    let ada = Reader::new(&server, "ada").await;
    let page = ada.page("/audit").await;
    assert!(page.contains("failed log-in") && page.contains("an unknown user") && !page.contains("nobody"));
    let audit = audit(&server).await;
    assert_eq!(
        audit[..3],
        [
            "ada@127.0.0.1: log in ada",
            "127.0.0.1: failed log-in an unknown user",
            "127.0.0.1: failed log-in vera",
        ]
    );
}

async fn nobody_locks_themselves_out(database: Database) {
    let server = server(database).await;
    let ada = Reader::new(&server, "ada").await;
    let drawer = ada.page("/access?user=ada").await;
    assert!(
        drawer.contains("This is you")
            && !drawer.contains(">Disable<")
            && !drawer.contains("/access/users/role")
    );
    assert!(ada.act("/access/users/disable", "user=ada").await.contains("nobody disables themselves"));
    assert!(ada.act("/access/users/role", "user=ada&role=viewer").await.contains("nobody changes the role"));
    // Without a login there is nobody whose password could be changed.
    let open = Running::new(database).await;
    let page = open.send(Request::get("/access").header("accept", "text/html")).await;
    assert!(page.body.contains("New user") && !page.body.contains("Change your password"), "{}", page.body);
}

async fn hostile_names_are_escaped(database: Database) {
    let server = server(database).await;
    let ada = Reader::new(&server, "ada").await;
    let hostile = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for query in ["q", "user", "revoke", "mute", "users_after", "tokens_after", "new"] {
        let page = ada.page(&format!("/access?{query}={hostile}")).await;
        assert!(!page.contains("<script>alert"), "{query}");
    }
    let long = "k".repeat(5_000);
    assert!(ada.page(&format!("/access?mute=r&subject={long}")).await.len() < 60_000);
    for n in 0..80 {
        server
            .token(&format!("t{n:02}"), Role::Operator, &[&"k".repeat(120), "<b>", "\u{202e}"], &["q"])
            .await;
    }
    // What is done by a form is on the next page, what others do a second later.
    ada.act("/access/users/sessions", "user=otto").await;
    let page = ada.page("/access").await;
    assert!(
        page.contains("30 of 80 tokens")
            && !page.contains("<b>\u{202e}")
            && page.contains("tokens_after=t29")
    );
    assert!(ada.page("/access?tokens_after=t29").await.contains("t30"));
    assert!(ada.page("/access?q=t7").await.contains("t79"));
}
