//! Live updates never take away what the reader is busy with.

use serde_json::json;
use windlass::State;

use crate::{
    browser::Browser,
    kit::Running,
    site::{self, Gated},
};

/// How many updates the reader's work survives.
const UPDATES: usize = 20;

/// Counts the updates of the page: each changes the number of failed jobs in the navigation.
const COUNT_UPDATES: &str = "window.updates = 0;
    new MutationObserver(() => window.updates++).observe(document.getElementById('nav-failures'), { childList: true, characterData: true, subtree: true })";

/// Submits jobs until the pages have had so many updates.
async fn update(server: &Running, browsers: &[&Browser]) {
    for browser in browsers {
        browser.run(COUNT_UPDATES, json!([])).await;
    }
    for number in 0..UPDATES {
        server.engine.submit_json("echo", 1, json!("fail")).await.expect("submitted");
        for browser in browsers {
            browser.until(&format!("window.updates > {number}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_an_open_tree_and_a_half_typed_note_survive_twenty_updates() {
    let server = site::server(false).await;
    let job = server.engine.submit(Gated { gate: "kept".into() }).key("kept").await.expect("submitted").id();
    let input = json!({ "address": { "street": "Fennel Lane", "lines": { "first": [1, 2, 3] } } });
    let tree = server.engine.submit_json("echo", 1, input).queue("unserved").key("tree");
    let tree = tree.await.expect("submitted").id();
    site::until_state(&server, job, State::Running).await;

    let list = Browser::open(&server, "/jobs").await;
    let page = Browser::open(&server, &format!("/jobs/{tree}")).await;
    list.click(&format!("input[name=job][value='{job}']")).await;
    // A node that is open by default is closed, and one that is closed is opened.
    let nodes = page.until("document.querySelectorAll('details[data-node]').length").await;
    page.run(
        "document.querySelectorAll('details[data-node]').forEach((node, number) => { if (number % 2) node.open = !node.open })",
        json!([]),
    )
    .await;
    let opened = "return [...document.querySelectorAll('details[data-node]')].map(node => node.open)";
    let before = page.run(opened, json!([])).await;
    page.press("#actions", "Pause…").await;
    page.fill("#drawer [name=note]", "half a no").await;

    update(&server, &[&list, &page]).await;

    let ticked = format!("document.querySelector('input[name=job]:checked')?.value === '{job}'");
    list.until(&ticked).await;
    list.until_text(".bulk", "1 selected").await;
    assert_eq!(page.run(opened, json!([])).await, before, "of {nodes} nodes");
    let note = "return [document.querySelector('#drawer [name=note]').value, document.activeElement.name]";
    assert_eq!(page.run(note, json!([])).await, json!(["half a no", "note"]));
    // What was held back is shown as soon as the reader is done.
    site::open("kept", true);
    site::until_state(&server, job, State::Done).await;
    assert!(list.run(&format!("return {ticked}"), json!([])).await == true);
    list.click(&format!("input[name=job][value='{job}']")).await;
    list.until(&format!(
        "document.querySelector(\"input[value='{job}']\").closest('tr').textContent.includes('done')"
    ))
    .await;
    // New rows were counted, and pushed nothing.
    list.until_text("#newer", &format!("{UPDATES} newer jobs")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_gone_when_a_tab_comes_back_are_dimmed() {
    let server = site::server(false).await;
    let job =
        server.engine.submit(Gated { gate: "hidden".into() }).key("hidden").await.expect("submitted").id();
    let other =
        server.engine.submit(Gated { gate: "other".into() }).key("other").await.expect("submitted").id();
    for job in [job, other] {
        site::until_state(&server, job, State::Running).await;
    }
    let browser = Browser::open(&server, "/jobs?state=running").await;
    let row = |job| format!("document.querySelector(\"input[value='{job}']\").closest('tr')");
    let hide = "Object.defineProperty(document, 'hidden', { value: arguments[0], configurable: true });
        document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))";
    browser.until("document.querySelector('#live')?.dataset.state === 'live'").await;
    browser.run(hide, json!([true])).await;
    site::open("hidden", true);
    site::until_state(&server, job, State::Done).await;
    assert_eq!(browser.run(&format!("return {}.className", row(job)), json!([])).await, "", "no stream");
    browser.run(hide, json!([false])).await;
    browser.until(&format!("{}.classList.contains('gone')", row(job))).await;
    assert_eq!(browser.run(&format!("return {}.className", row(other)), json!([])).await, "");
    // A job that is running again belongs to the list again.
    site::open("other", false);
    browser.until(&format!("{}.classList.contains('gone')", row(other))).await;
    browser.run(hide, json!([true])).await;
    let _ = server.engine.control("test").retry(other).await.expect("retried");
    site::until_state(&server, other, State::Running).await;
    browser.run(hide, json!([false])).await;
    browser.until(&format!("!{}.classList.contains('gone')", row(other))).await;
    site::open("other", true);
}
