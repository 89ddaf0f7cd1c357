//! Other processes: this test binary, started again for one test that is ignored otherwise.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Where the child finds its file.
const FILE: &str = "WINDLASS_TEST_FILE";

/// The file that the parent named; `None` when someone runs the ignored tests by hand.
pub(crate) fn file() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

/// Arguments that make this binary run the one ignored test `name` on `file`.
pub(crate) fn arguments(command: &mut Command, name: &str, file: &Path) {
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).env(FILE, file);
}

/// This binary.
pub(crate) fn binary() -> PathBuf {
    std::env::current_exe().expect("the path of this test")
}

/// Expects the child to have passed; answers what it printed.
pub(crate) fn passed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}\n{text}\n{errors}", output.status);
    text
}
