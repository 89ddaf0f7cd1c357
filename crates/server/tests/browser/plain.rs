//! Without script: pages, filters, previews and actions are links and forms.

use serde_json::json;
use windlass::State;

use crate::{
    browser::{Browser, ENTER},
    site,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_submitted_filtered_and_cancelled_without_script() {
    let server = site::server(false).await;
    let browser = Browser::open(&server, "/healthz").await;
    browser.disable_script().await;
    browser.goto("/submit").await;
    browser.fill("[name=kind]", "echo").await;
    browser.fill("[name=input]", "[1, 2]").await;
    browser.fill("[name=queue]", "unserved").await;
    browser.press("main form", "Submit").await;
    browser.until_at("/jobs/").await;
    assert_eq!(
        browser.run("return document.querySelector('#live').hidden", json!([])).await,
        true,
        "no script ran"
    );
    let here = browser.here().await;
    let job = here.trim_start_matches("/jobs/").split('?').next().and_then(|id| id.parse().ok());
    let job = job.unwrap_or_else(|| panic!("no job: {here}"));
    browser.goto("/jobs?state=ready&queue=unserved").await;
    browser.click(&format!("input[name=job][value='{job}']")).await;
    browser.press(".bulk", "Pause…").await;
    browser.until_text("#drawer-title", "Pause 1 job").await;
    browser.fill("#drawer [name=note]", "not today").await;
    browser.press("#drawer", "Pause 1 job").await;
    browser.until_text("#toasts", "1 job was changed").await;
    browser.goto(&format!("/jobs/{job}")).await;
    browser.until_text("#why", "not today").await;
    browser.press("#actions", "Cancel…").await;
    browser.until_text("#drawer-title", "Cancel this job").await;
    browser.press("#drawer", "Cancel the job").await;
    site::until_state(&server, job, State::Cancelled).await;
    // The search field is a form, and so are the preferences.
    browser.goto("/").await;
    browser.fill(".find input", &format!("{job}{ENTER}")).await;
    browser.until_at(&format!("/jobs/{job}")).await;
    browser.click("summary[aria-label='Theme and times']").await;
    browser.press("#preferences", "Dark").await;
    browser.until("document.documentElement.dataset.theme === 'dark'").await;
}
