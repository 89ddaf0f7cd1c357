//! The dashboard in a real browser: Chromium, driven by chromedriver over the WebDriver protocol.
//!
//! `chromedriver` runs the driver and ends it with the test process; `browser` is a client of the protocol; `site` is a server on a store with jobs of
//! every sort. The other files are tests. Each waits for what it expects, for at most [`kit::PATIENCE`], and never for a time.

#[path = "../api/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;
#[path = "../api/kit.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod kit;

mod browser;
mod chromedriver;
mod site;

mod access;
mod act;
mod contrast;
mod keyboard;
mod live;
mod looks;
mod plain;
mod screenshots;
