//! The workspace: crates depend on each other in one direction, and the documents agree with the code.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The crates, and which of the others each may depend on. Tests may depend on any.
const CRATES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("testpg", &[]),
    ("env", &["model"]),
    ("store", &["model", "env"]),
    ("http", &[]),
    ("remote", &["model", "store", "http"]),
    ("runtime", &["model", "env", "store"]),
    ("workflow", &["model", "env", "store", "runtime"]),
    ("operate", &["model", "env", "store", "workflow"]),
    ("windlass", &["model", "env", "store", "remote", "runtime", "workflow", "operate"]),
    ("server", &["windlass", "http", "remote"]),
    ("cli", &["windlass", "http", "server"]),
    ("bench", &["windlass", "http", "server", "testpg"]),
    ("bin", &["windlass", "cli", "bench"]),
    ("docs", &[]),
];

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let manifest: toml::Table = read(&format!("crates/{name}/Cargo.toml")).parse().expect("TOML");
        let known = CRATES.iter().find(|(known, _)| *known == name);
        let (_, allowed) = known.unwrap_or_else(|| panic!("crates/{name} is not in the table of crates"));
        for dependency in manifest["dependencies"].as_table().expect("a table").keys() {
            let other = match dependency.as_str() {
                "windlass" => "windlass",
                other => match other.strip_prefix("windlass-") {
                    Some(other) => other,
                    None => continue,
                },
            };
            assert!(allowed.contains(&other), "{name} must not depend on {other}");
        }
    }
}

#[test]
fn the_diagram_is_the_table() {
    let diagram = windlass::model::state::mermaid();
    assert!(read("ARCHITECTURE.md").contains(&diagram), "ARCHITECTURE.md lacks this diagram:\n{diagram}");
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let example = read("examples/hello.rs");
    let code: String =
        example.lines().filter(|line| !line.starts_with("//!")).map(|line| format!("{line}\n")).collect();
    assert!(read("README.md").contains(code.trim()), "README.md lacks the program of examples/hello.rs");
}

/// All documents, as paths from the root.
fn documents() -> Vec<String> {
    let mut documents: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(String::from).into();
    for folder in ["docs", "docs/decisions"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("the documents") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                documents.push(format!("{folder}/{name}"));
            }
        }
    }
    documents
}

/// The file that a word in a document names, if it names one.
fn file(word: &str) -> Option<String> {
    let path = word.trim_end_matches(['.', ';', ':']).split('#').next().unwrap_or_default();
    if path.contains(['*', '<', '{']) {
        return None;
    }
    // The crate, and not the folder of documents.
    if path.starts_with("docs/src") {
        return Some(format!("crates/{path}"));
    }
    if ["docs/", "examples/", "crates/", "benches/"].iter().any(|begin| path.starts_with(begin)) {
        return Some(path.to_owned());
    }
    // Within the crates the first folder is left out: `store/src/pick.rs`.
    let known = CRATES.iter().any(|(name, _)| path.starts_with(&format!("{name}/src/")));
    known.then(|| format!("crates/{path}"))
}

#[test]
fn documents_name_files_that_are_there() {
    for document in documents() {
        for word in read(&document).split(['`', '(', ')', ' ', '\n', ',']) {
            if let Some(path) = file(word) {
                assert!(root().join(&path).exists(), "{document} names {path}, which is not there");
            }
        }
    }
}

#[test]
fn documents_link_to_documents_that_are_there() {
    for document in documents() {
        let folder = Path::new(&document).parent().expect("a folder");
        for link in read(&document).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if !path.is_empty() && !link.contains("://") {
                let target = root().join(folder).join(path);
                assert!(target.exists(), "{document} links to {link}, which is not there");
            }
        }
    }
}

/// What these crates must take from an `Env`, so that tests can replace it.
const DIRECT: [&str; 14] = [
    "Instant::now",
    "SystemTime::now",
    ".elapsed()",
    "tokio::time::",
    "tokio::spawn",
    "task::spawn",
    "Handle::current",
    "runtime::Builder",
    "thread::spawn",
    "thread::Builder",
    "thread::sleep",
    "fastrand",
    "now_v7",
    "new_v4",
];

#[test]
fn only_env_uses_the_clock_the_randomness_and_the_threads_of_the_machine() {
    for name in ["runtime", "workflow", "operate", "windlass"] {
        for file in rust_files(&root().join("crates").join(name).join("src")) {
            let text = std::fs::read_to_string(&file).expect("a file");
            // Unit tests come last in a file, and have tasks and timers of their own.
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for (line, number) in code.lines().zip(1..) {
                let line = line.split("//").next().unwrap_or_default();
                let direct = DIRECT.iter().find(|call| line.contains(**call));
                assert_eq!(direct, None, "{}:{number}: take it from `Env`", file.display());
            }
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.extension().is_some_and(|extension| extension == "rs") {
            true => files.push(path),
            false if path.is_dir() => files.extend(rust_files(&path)),
            false => {}
        }
    }
    files.retain(|file| file.file_stem().is_none_or(|stem| stem != "tests"));
    files
}
