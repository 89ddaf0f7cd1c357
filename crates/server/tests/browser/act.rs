//! What people do on pages: submit, watch, retry, cancel, pause.

use serde_json::json;
use windlass::State;

use crate::{
    browser::Browser,
    site::{self, Batch},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_submitted_watched_and_retried() {
    let server = site::server(false).await;
    let browser = Browser::open(&server, "/submit").await;
    browser.fill("[name=kind]", "gated").await;
    browser.fill("[name=input]", r#"{"gate": "watched"}"#).await;
    browser.fill("[name=key]", "night-report").await;
    browser.press("main form", "Submit").await;
    browser.until_at("/jobs/").await;
    // From here on the page is never loaded again.
    browser.run("window.untouched = true", json!([])).await;
    browser.until_text("#state", "running").await;
    site::open("watched", false);
    browser.until_text("#state", "failed").await;
    browser.until_text("#why", "the gate stays shut").await;
    assert_eq!(browser.run("return window.untouched", json!([])).await, true, "it was updated in place");
    browser.press("#actions", "Retry").await;
    browser.until("!window.untouched && document.readyState === 'complete'").await;
    browser.run("window.untouched = true", json!([])).await;
    browser.until_text("#state", "running").await;
    site::open("watched", true);
    browser.until_text("#state", "done").await;
    assert_eq!(browser.run("return window.untouched", json!([])).await, true, "it was updated in place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticked_jobs_are_cancelled_after_a_preview() {
    let server = site::server(false).await;
    let mut jobs = Vec::new();
    for number in 0..4 {
        let job = server.engine.submit_json("echo", 1, json!(number)).queue("unserved");
        jobs.push(job.key(format!("letter-{number}")).await.expect("submitted").id());
    }
    let browser = Browser::open(&server, "/jobs?queue=unserved").await;
    let tick = |number: usize| format!("input[name=job][value='{}']", jobs[number]);
    browser.click(&tick(1)).await;
    browser.click(&tick(2)).await;
    browser.until_text(".bulk", "2 selected").await;
    browser.press(".bulk", "Cancel…").await;
    browser.until_text("#drawer-title", "Cancel 2 jobs").await;
    browser.until_text("#drawer .lines", "letter-2").await;
    assert_eq!(
        browser.run("return document.querySelectorAll('#drawer .lines li').length", json!([])).await,
        2,
        "the preview names the jobs"
    );
    assert!(
        server.engine.inspect().job(jobs[1]).await.expect("read").expect("a job").summary.state
            == State::Ready
    );
    browser.fill("#drawer [name=note]", "sent twice").await;
    browser.press("#drawer", "Cancel 2 jobs").await;
    browser.until_text("#toasts", "2 jobs were changed").await;
    for (number, job) in jobs.iter().enumerate() {
        let state = if [1, 2].contains(&number) { State::Cancelled } else { State::Ready };
        site::until_state(&server, *job, state).await;
    }
    browser.goto("/audit").await;
    browser.until_text("main", "sent twice").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_queue_says_so_on_the_page_of_its_job() {
    let server = site::server(false).await;
    server.engine.submit_json("echo", 1, json!("first")).await.expect("submitted");
    let browser = Browser::open(&server, "/queues").await;
    browser.press("main", "Pause…").await;
    browser.fill("#drawer [name=note]", "the printer is broken").await;
    browser.press("#drawer", "Pause the queue").await;
    browser.until_at("/queues").await;
    browser.until_text("main table", "the printer is broken").await;
    let job =
        server.engine.submit_json("echo", 1, json!("second")).key("second").await.expect("submitted").id();
    browser.goto("/jobs/echo%2Fsecond").await;
    browser.until_text("#why", "the printer is broken").await;
    browser.until_text("#state", "paused").await;
    browser.goto("/queues").await;
    browser.press("main", "Resume").await;
    site::until_state(&server, job, State::Done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_and_the_time_left_of_a_branch_appear_fall_and_vanish() {
    let server = site::server(false).await;
    let job = server.engine.submit(Batch { items: 60 }).await.expect("submitted").id();
    let browser = Browser::open(&server, &format!("/jobs/{job}")).await;
    // The seconds left as the page shows them: `about 7.4 s left`.
    let left = "Number((document.querySelector('[id^=bp-]')?.textContent.match(/about ([0-9.]+) s left/) || [])[1] || 0)";
    browser.until_text("[id^=bp-]", "/s").await;
    let first = browser.until(left).await.as_f64().expect("a number");
    browser.until(&format!("{left} > 0 && {left} < {first}")).await;
    browser.until_text("#state", "done").await;
    browser.until(&format!("document.querySelector('[id^=bp-]') && {left} === 0")).await;
    browser.until_text("[id^=bs-]", "merged").await;
    browser.until("!document.querySelector('[id^=bp-]').textContent.includes('/s')").await;
}
