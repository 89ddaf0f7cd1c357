//! Everything by keys alone.

use serde_json::json;

use crate::{
    browser::{Browser, ENTER, ESCAPE, TAB},
    site,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_found_selected_and_paused_by_keys() {
    let server = site::server(false).await;
    for number in 0..3 {
        let job = server.engine.submit_json("echo", 1, json!(number)).queue("unserved");
        job.key(format!("letter-{number}")).await.expect("submitted");
    }
    let browser = Browser::open(&server, "/").await;
    // The palette finds a job.
    browser.keys(['/']).await;
    browser.until("document.querySelector('dialog.palette[open]')").await;
    browser.keys("letter-1".chars()).await;
    browser
        .until(
            "document.querySelector('[role=option][aria-selected=true]')?.textContent.includes('letter-1')",
        )
        .await;
    browser.keys([ENTER]).await;
    browser.until_at("/jobs/").await;
    browser.until_text("h1", "letter-1").await;
    // Two letters lead to a page.
    browser.keys(['g', 'j']).await;
    browser.until_at("/jobs").await;
    // Rows by j and k, ticks by x.
    browser.keys(['j', 'j', 'j', 'k', 'x']).await;
    browser.until("document.querySelectorAll('input[name=job]:checked').length === 1").await;
    browser.until("document.activeElement.closest('tr').textContent.includes('letter-1')").await;
    browser.until_text(".bulk", "1 selected").await;
    browser.keys(['X']).await;
    browser.until_text(".bulk", "3 selected").await;
    browser.keys([ESCAPE]).await;
    browser.until("document.querySelectorAll('input[name=job]:checked').length === 0").await;
    browser.keys([ENTER]).await;
    browser.until_at("/jobs/").await;
    browser.until_text("h1", "letter-1").await;
    // A command of the page, by name; the drawer has the focus, keeps it, and gives it back.
    browser.keys(['/']).await;
    browser.keys("pause this".chars()).await;
    browser.until_text("[role=option][aria-selected=true]", "Pause this job").await;
    browser.keys([ENTER]).await;
    browser.until("document.activeElement?.matches('#drawer [name=note]')").await;
    for _ in 0..8 {
        browser.keys([TAB]).await;
        browser.until("document.querySelector('#drawer').contains(document.activeElement)").await;
    }
    browser.keys([ESCAPE]).await;
    browser.until("!document.querySelector('#drawer')").await;
    browser.keys(['/']).await;
    browser.keys("pause this".chars()).await;
    browser.until_text("[role=option][aria-selected=true]", "Pause this job").await;
    browser.keys([ENTER]).await;
    browser.until("document.activeElement?.matches('#drawer [name=note]')").await;
    browser.keys("later".chars().chain([ENTER])).await;
    browser.until("document.readyState === 'complete' && document.querySelector('#toasts .toast')").await;
    browser.until_text("#state", "paused").await;
    // The list of keys.
    browser.keys(['?']).await;
    browser.until("document.querySelector('dialog.keys[open]')").await;
    browser.keys([ESCAPE]).await;
    browser.until("!document.querySelector('dialog[open]')").await;
    browser.keys(['t']).await;
    browser.until("document.documentElement.dataset.theme").await;
    browser.keys(['n']).await;
    browser.until_at("/submit").await;
}
