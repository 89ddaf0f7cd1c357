//! Every text is readable: its contrast on its ground is at least 4.5 to 1, on every page, in light and dark.

use serde_json::json;

use crate::{browser::Browser, site::Site};

/// The least contrast of text by WCAG AA. Large text could have less, and has not.
const LEAST: f64 = 4.5;
const MEASURE: &str = include_str!("contrast.js");

/// The texts within `scope` that are too faint.
async fn faint(browser: &Browser, scope: &str) -> Vec<String> {
    let answer = browser.run(MEASURE, json!([scope, LEAST])).await;
    assert!(answer["measured"].as_u64() > Some(2), "nothing was measured: {answer}");
    let found = answer["found"].as_array().expect("a list");
    found.iter().map(|line| line.as_str().expect("a text").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_text_has_contrast_on_its_ground() {
    let site = Site::fill().await;
    let browser = Browser::open(&site.server, "/").await;
    let mut all: Vec<String> = Vec::new();
    for theme in ["light", "dark"] {
        browser.set_theme(theme).await;
        for width in [1440, 390] {
            // High enough that no page scrolls: every text has a place on the screen.
            browser.set_size(width, 6000).await;
            for (name, path) in &site.pages {
                browser.goto(path).await;
                let found = faint(&browser, "body").await;
                all.extend(found.into_iter().map(|line| format!("{theme}, {width}, {name}: {line}")));
            }
            browser.goto("/jobs").await;
            browser
                .run("document.querySelectorAll('details.menu').forEach(menu => menu.open = true)", json!([]))
                .await;
            all.extend(
                faint(&browser, ".sheet").await.into_iter().map(|line| format!("{theme}, menus: {line}")),
            );
        }
        browser.set_size(1440, 1000).await;
        for key in ['/', '?'] {
            browser.goto("/").await;
            browser.keys([key]).await;
            browser.until("document.querySelector('dialog[open]')").await;
            let found = faint(&browser, "dialog[open]").await;
            all.extend(found.into_iter().map(|line| format!("{theme}, the dialog of {key}: {line}")));
        }
    }
    assert!(all.is_empty(), "{} texts are too faint:\n{}", all.len(), all.join("\n"));
}
