//! What a viewer sees, and may not do.

use serde_json::json;
use windlass::model::Role;

use crate::{browser::Browser, site};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_has_no_buttons_and_is_refused() {
    let server = site::server(true).await;
    let control = server.engine.control("test");
    control.create_user("vera", Role::Viewer, "correct horse").await.expect("stored").expect("created");
    let job = server.engine.submit_json("echo", 1, json!(1)).queue("unserved").await.expect("submitted").id();
    let browser = Browser::open(&server, &format!("/jobs/{job}")).await;
    browser.until_at("/login").await;
    browser.fill("[name=name]", "vera").await;
    browser.fill("[name=password]", "wrong horse").await;
    browser.press("form", "Log in").await;
    browser.until_text("[role=alert]", "The name or the password is wrong").await;
    browser.fill("[name=password]", "correct horse").await;
    browser.press("form", "Log in").await;
    browser.until_at(&format!("/jobs/{job}")).await;
    for path in [format!("/jobs/{job}"), "/jobs".into(), "/queues".into(), "/schedules".into(), "/".into()] {
        browser.goto(&path).await;
        let drawn = "return [...document.querySelectorAll('main form[method=post], main input[type=checkbox], .submit, .bulk')].length";
        assert_eq!(browser.run(drawn, json!([])).await, 0, "{path} has a button that the viewer may not use");
    }
    // The same as the button would: the token of the viewer's own page.
    let post = "const body = new URLSearchParams({ csrf: document.querySelector('[name=csrf]').value, back: '/' });
        return fetch(arguments[0], { method: 'POST', body, headers: { Accept: 'text/html' } }).then(answer => answer.status)";
    for path in [format!("/jobs/{job}/cancel"), "/queues/pause".into(), "/submit".into()] {
        assert_eq!(browser.run(post, json!([path])).await, 403, "{path}");
    }
    let state = server.engine.inspect().job(job).await.expect("read").expect("a job").summary.state;
    assert_eq!(state, windlass::State::Ready);
    browser.click(".topbar .who").await;
    browser.press(".topbar", "Log out").await;
    browser.until_at("/login").await;
    browser.goto("/jobs").await;
    browser.until_at("/login").await;
}
