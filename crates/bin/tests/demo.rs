//! The demo, small: it must add up.

mod common;

use common::Place;

#[test]
fn a_small_demo_adds_up() {
    let place = Place::new();
    let ended = place.run(&["demo", "--tasks", "600", "--workers", "3", "--exit", "--dir", "files"]);
    let lines: Vec<&str> = ended.out.lines().map(str::trim).collect();
    assert_eq!(ended.code, 0, "{}\n{}", ended.err, ended.out);
    for line in ["600  submitted", "597  done", "3  failed as planned", "0  lost", "0  committed twice"] {
        assert!(lines.contains(&line), "{line:?} is not in\n{}", ended.out);
    }
    assert!(ended.out.contains("1  zombies fenced"), "{}", ended.out);
    assert!(ended.out.contains("It adds up: 600 = 597 done + 3 failed as planned"), "{}", ended.out);
    assert!(ended.err.contains("killed (SIGKILL)") && ended.err.contains("woken (SIGCONT)"), "{}", ended.err);

    // What was made stays where it was asked for, and is not written over.
    assert!(place.path("files/worker-1.record").exists());
    assert!(place.bad(&["demo", "--tasks", "600", "--dir", "files"]).contains("from an earlier demo"));
}
