//! A client of the WebDriver protocol: one browser with one window, in a profile of its own.

use std::{
    fmt,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::{
    chromedriver::driver,
    client::Request,
    kit::{PATIENCE, Running},
};

/// How long a condition is left alone before it is asked for again.
const PAUSE: Duration = Duration::from_millis(40);
/// The most that a picture is high.
const MAX_HEIGHT: u32 = 12_000;
/// The name under which the protocol sends elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys without a character, as the protocol names them.
pub(crate) const ENTER: char = '\u{E007}';
pub(crate) const ESCAPE: char = '\u{E00C}';
pub(crate) const TAB: char = '\u{E004}';

/// A browser, which ends when it is dropped.
pub(crate) struct Browser {
    session: String,
    /// The server whose pages it shows.
    server: SocketAddr,
}

impl Browser {
    /// A browser that has opened a page of a server.
    pub(crate) async fn open(server: &Running, path: &str) -> Browser {
        let driver = tokio::task::spawn_blocking(driver).await.expect("a driver");
        let profile =
            tempfile::Builder::new().prefix("profile-").tempdir_in(&driver.folder).expect("a folder");
        let profile = format!("--user-data-dir={}", profile.keep().display());
        let switches = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1440,1000",
            &profile,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": switches },
        }}});
        let answer = send("POST", "/session", &wanted).await.unwrap_or_else(|error| panic!("{error}"));
        let session = answer["sessionId"].as_str().expect("a session").to_owned();
        let browser = Browser { session, server: server.address };
        browser.goto(path).await;
        browser
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Result<Value, Refusal> {
        send(method, &format!("/session/{}{path}", self.session), &body).await
    }

    #[track_caller]
    fn expect(answer: Result<Value, Refusal>) -> Value {
        answer.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) async fn goto(&self, path: &str) {
        let url = format!("http://{}{path}", self.server);
        Browser::expect(self.call("POST", "/url", json!({ "url": url })).await);
    }

    /// The path and query of the page.
    pub(crate) async fn here(&self) -> String {
        let url = Browser::expect(self.call("GET", "/url", Value::Null).await);
        let url = url.as_str().unwrap_or_default();
        url.strip_prefix(&format!("http://{}", self.server)).unwrap_or(url).to_owned()
    }

    /// What the body of a function returns in the page. It can have arguments.
    pub(crate) async fn run(&self, body: &str, args: Value) -> Value {
        Browser::expect(self.try_run(body, args).await)
    }

    async fn try_run(&self, body: &str, args: Value) -> Result<Value, Refusal> {
        self.call("POST", "/execute/sync", json!({ "script": body, "args": args })).await
    }

    /// Waits until an expression of the page is true. Returns its value.
    pub(crate) async fn until(&self, expression: &str) -> Value {
        let body = format!("return ({expression})");
        let began = Instant::now();
        loop {
            // While a page is left, there is no answer.
            let answer = self.try_run(&body, json!([])).await;
            if let Ok(value) = &answer
                && !matches!(value, Value::Null | Value::Bool(false))
                && value != ""
            {
                return answer.unwrap_or_default();
            }
            if began.elapsed() > PATIENCE {
                let page =
                    self.try_run("return document.body.innerText", json!([])).await.unwrap_or_default();
                let here = self.here().await;
                panic!(
                    "never true at {here}: {expression} ({answer:?})\n{}",
                    page.as_str().unwrap_or_default()
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until an element has a text.
    pub(crate) async fn until_text(&self, css: &str, text: &str) {
        let (css, text) = (json!(css), json!(text));
        self.until(&format!("document.querySelector({css})?.textContent.includes({text})")).await;
    }

    /// Waits until a path, with its query, is open and loaded.
    pub(crate) async fn until_at(&self, beginning: &str) {
        let beginning = json!(beginning);
        self.until(&format!(
            "document.readyState === 'complete' && (location.pathname + location.search).startsWith({beginning})"
        ))
        .await;
    }

    /// Waits for the first element that a selector matches.
    async fn find(&self, css: &str) -> String {
        let began = Instant::now();
        loop {
            let found = self.call("POST", "/element", json!({ "using": "css selector", "value": css })).await;
            match found {
                Ok(element) => return element[ELEMENT].as_str().expect("an element").to_owned(),
                Err(refusal) => assert!(began.elapsed() < PATIENCE, "there is never a {css}: {refusal}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Acts on the first element that a selector matches, as soon as it can be acted on.
    async fn act(&self, css: &str, action: &str, body: Value) {
        let began = Instant::now();
        loop {
            let element = self.find(css).await;
            match self.call("POST", &format!("/element/{element}/{action}"), body.clone()).await {
                Ok(_) => return,
                // It was replaced, is covered, or is not drawn yet.
                Err(refusal) => assert!(began.elapsed() < PATIENCE, "{action} of {css}: {refusal}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Clicks the first element that a selector matches.
    pub(crate) async fn click(&self, css: &str) {
        self.act(css, "click", json!({})).await;
    }

    /// Types into the first element that a selector matches.
    pub(crate) async fn fill(&self, css: &str, text: &str) {
        self.act(css, "value", json!({ "text": text })).await;
    }

    /// Clicks the first link or button of this text within the elements that a selector matches.
    pub(crate) async fn press(&self, within: &str, text: &str) {
        const FIND: &str = "return [...document.querySelectorAll(arguments[0])].flatMap(part => [...part.querySelectorAll('a, button')])
            .find(part => part.textContent.trim() === arguments[1])";
        let began = Instant::now();
        loop {
            let found = self.try_run(FIND, json!([within, text])).await.unwrap_or_default();
            let pressed = match found[ELEMENT].as_str() {
                Some(element) => self.call("POST", &format!("/element/{element}/click"), json!({})).await,
                None => Err(Refusal("there is none".into())),
            };
            match pressed {
                Ok(_) => return,
                Err(refusal) => {
                    assert!(began.elapsed() < PATIENCE, "the button {text:?} of {within}: {refusal}")
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub(crate) async fn keys(&self, keys: impl IntoIterator<Item = char>) {
        let strokes: Vec<Value> = keys
            .into_iter()
            .flat_map(|key| {
                ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
            })
            .collect();
        let source = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] });
        Browser::expect(self.call("POST", "/actions", source).await);
    }

    /// A command of the DevTools protocol.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        Browser::expect(self.call("POST", "/goog/cdp/execute", body).await)
    }

    /// Shows pages as on a system with a dark or a light theme, whose user wants no motion: what is measured stands still.
    pub(crate) async fn set_theme(&self, theme: &str) {
        let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
        let features = [feature("prefers-color-scheme", theme), feature("prefers-reduced-motion", "reduce")];
        let features = json!({ "features": features });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Shows pages on a screen of this size; a phone's if it is narrow.
    pub(crate) async fn set_size(&self, width: u32, height: u32) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Runs no script of the pages opened from now on.
    pub(crate) async fn disable_script(&self) {
        self.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// The page as a picture, on a screen of this width on which all of it has room.
    pub(crate) async fn screenshot(&self, width: u32) -> Vec<u8> {
        self.devtools("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await;
        self.set_size(width, 900).await;
        let height = self.run("return document.documentElement.scrollHeight", json!([])).await;
        let height = height.as_u64().and_then(|height| u32::try_from(height).ok()).expect("a height");
        self.set_size(width, height.min(MAX_HEIGHT)).await;
        let picture = self.devtools("Page.captureScreenshot", json!({ "format": "png" })).await;
        let text = picture["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(text).expect("a picture")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Blocking, and without a word about errors: the driver ends with the tests anyway.
        let request = Request::new("DELETE", &format!("/session/{}", self.session));
        let address = driver().address;
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let _ = stream.write_all(request.to_text(address).as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// An error of the driver.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sends a command to the driver. Returns its value.
async fn send(method: &str, path: &str, body: &Value) -> Result<Value, Refusal> {
    let request = Request::new(method, path);
    let request = if method == "GET" { request } else { request.json(body) };
    let sent = tokio::time::timeout(PATIENCE, request.send(driver().address)).await;
    let response = sent.map_err(|_| Refusal(format!("{method} {path} has no answer")))?;
    let mut answer = response.json();
    match response.status {
        200 => Ok(answer["value"].take()),
        _ => Err(Refusal(format!("{}: {}", answer["value"]["error"], answer["value"]["message"]))),
    }
}
