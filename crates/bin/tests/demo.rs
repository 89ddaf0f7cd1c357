//! A small demo: its account must be right.

mod common;

use common::Sandbox;

#[test]
fn a_small_demo_loses_and_duplicates_nothing() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["demo", "--tasks", "600", "--workers", "3", "--exit", "--dir", "files"]);
    let lines: Vec<&str> = ended.stdout.lines().map(str::trim).collect();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stderr, ended.stdout);
    for line in ["600  submitted", "597  done", "3  failed as planned", "0  lost", "0  committed twice"] {
        assert!(lines.contains(&line), "{line:?} is not in\n{}", ended.stdout);
    }
    assert!(ended.stdout.contains("1  zombies fenced"), "{}", ended.stdout);
    assert!(ended.stdout.contains("It adds up: 600 = 597 done + 3 failed as planned"), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("killed (SIGKILL)") && ended.stderr.contains("woken (SIGCONT)"),
        "{}",
        ended.stderr
    );

    // The files stay in the given folder, and are not overwritten.
    assert!(sandbox.path("files/worker-1.record").exists());
    assert!(sandbox.fails(&["demo", "--tasks", "600", "--dir", "files"]).contains("from an earlier demo"));
}
