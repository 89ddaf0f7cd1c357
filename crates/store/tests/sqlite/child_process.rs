//! Child processes: this test binary, started again to run one test that is otherwise ignored.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The environment variable with the path of the child's database file.
const FILE: &str = "WINDLASS_TEST_FILE";

/// The path that the parent set; `None` if somebody runs the ignored tests by hand.
pub(crate) fn file() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

/// Adds arguments that make this binary run only the ignored test `name`, on `file`.
pub(crate) fn arguments(command: &mut Command, name: &str, file: &Path) {
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).env(FILE, file);
}

/// The path of this test binary.
pub(crate) fn binary() -> PathBuf {
    std::env::current_exe().expect("the path of this test")
}

/// Expects that the child passed. Returns what it printed.
pub(crate) fn expect_passed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}\n{text}\n{errors}", output.status);
    text
}
