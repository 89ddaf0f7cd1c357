//! The API description is the one in the repository, and has every route.

use std::path::Path;

#[test]
fn the_description_in_the_repository_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let current = serde_json::to_string_pretty(&windlass_server::openapi()).expect("JSON") + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &current).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == current,
        "the API has changed; look at the difference after `UPDATE_OPENAPI=1 cargo test -p windlass-server openapi`, and commit it"
    );
}
