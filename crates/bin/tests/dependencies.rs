//! What the workspace depends on, as `cargo metadata` resolves it: licences, sources, duplicate versions, and version
//! requirements whose lower bounds are really built.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;

/// Licences that a dependency may have.
const LICENCES: [&str; 12] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "CC0-1.0",
    "Unicode-3.0",
    "Unlicense",
    "BSL-1.0",
    "0BSD",
];

/// Crates that are there in more than one version, with the reason. All others must be there once.
const DUPLICATES: [(&str, &str); 17] = [
    ("base64", "0.22 of postgres-protocol next to 0.23 of reqwest, with the feature otel only"),
    ("bitflags", "1.3 of defmt, for embedded systems only"),
    ("block-buffer", "RustCrypto: 0.10 of sqlx, in tests only, next to 0.11 of postgres-protocol"),
    ("cpufeatures", "RustCrypto, as above"),
    ("crypto-common", "RustCrypto, as above"),
    ("digest", "RustCrypto, as above"),
    ("fallible-iterator", "0.2 of tokio-postgres next to 0.3 of rusqlite"),
    ("getrandom", "0.3 of rand 0.9 next to 0.4"),
    ("hashbrown", "0.16 of rusqlite next to 0.17 of indexmap, in tests only"),
    ("r-efi", "of getrandom, on UEFI only"),
    ("rand", "0.9 of opentelemetry_sdk, with the feature otel only, next to 0.10 of postgres-protocol"),
    ("rand_core", "as rand"),
    ("sha2", "RustCrypto, as above"),
    ("syn", "2 next to 3, at build time only"),
    ("synstructure", "0.13 of x509-parser, which rcgen may use and we do not"),
    ("wasi", "0.11 next to 0.14, on WebAssembly only"),
    ("windows-sys", "0.52 of ring, on Windows only"),
];

/// Crates that must not come in, and why.
const REFUSED: [(&str, &str); 2] =
    [("openssl-sys", "TLS is rustls"), ("native-tls", "TLS is rustls; no library of the system is needed")];

static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
});

fn packages() -> impl Iterator<Item = &'static Value> {
    METADATA["packages"].as_array().expect("packages").iter()
}

fn is_member(package: &Value) -> bool {
    package["source"].is_null()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Whether an SPDX expression can be met by allowed licences. Handles `OR`, `AND`, parentheses around alternatives and the
/// old form with slashes, which is all that crates use.
fn is_allowed(expression: &str) -> bool {
    let is_listed = |term: &str| LICENCES.contains(&term.trim_matches(['(', ')', ' ']));
    let one_of = |terms: &str| terms.split(" OR ").any(is_listed);
    expression.replace(" / ", "/").replace('/', " OR ").split(" AND ").all(one_of)
}

#[test]
fn licences_are_read_as_they_are_meant() {
    for good in [
        "MIT",
        "MIT/GPL-3.0",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "GPL-3.0 OR Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in ["GPL-3.0", "", "MIT AND GPL-3.0", "(MIT OR ISC) AND LGPL-2.1"] {
        assert!(!is_allowed(bad), "{bad}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_the_registry() {
    let mut seen = 0;
    for package in packages().filter(|package| !is_member(package)) {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let licence = text(package, "license");
        assert!(
            is_allowed(licence),
            "{name} {version} has the licence {licence:?}, which is not among those allowed"
        );
        let source = text(package, "source");
        assert!(source.starts_with("registry+"), "{name} {version} comes from {source}, not from a registry");
        seen += 1;
    }
    assert!(seen > 100, "the dependencies were read: {seen}");
}

#[test]
fn no_crate_is_there_twice_without_a_reason() {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages() {
        versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
    }
    let twice: BTreeSet<&str> =
        versions.iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| *name).collect();
    let known: BTreeSet<&str> = DUPLICATES.iter().map(|(name, _)| *name).collect();
    let new: Vec<_> = twice.difference(&known).map(|name| (name, &versions[name])).collect();
    assert!(new.is_empty(), "crates in several versions, without a reason in DUPLICATES: {new:?}");
    let gone: Vec<_> = known.difference(&twice).collect();
    assert!(gone.is_empty(), "no longer there twice, so take them out of DUPLICATES: {gone:?}");
    for (name, why) in REFUSED {
        assert!(!versions.contains_key(name), "{name} must not come in: {why}");
    }
}

/// A program that uses Windlass may have any version that our requirements allow. The highest are built by the program
/// outside the workspace; the lowest are built here, because `Cargo.lock` has exactly those.
#[test]
fn the_lockfile_has_the_lowest_versions_that_manifests_allow() {
    let resolved: BTreeMap<&str, &Value> = packages().map(|package| (text(package, "id"), package)).collect();
    let nodes = METADATA["resolve"]["nodes"].as_array().expect("nodes");
    let mut wrong = BTreeSet::new();
    for node in nodes.iter().filter(|node| is_member(resolved[text(node, "id")])) {
        let requirements = resolved[text(node, "id")]["dependencies"].as_array().expect("dependencies");
        for dependency in node["deps"].as_array().expect("deps") {
            let package = resolved[text(dependency, "pkg")];
            if is_member(package) {
                continue;
            }
            let (name, version) = (text(package, "name"), text(package, "version"));
            // What follows a plus says nothing of the order of versions.
            let version = version.split('+').next().unwrap_or_default();
            for requirement in requirements.iter().filter(|requirement| text(requirement, "name") == name) {
                let asked = text(requirement, "req");
                let lowest =
                    asked.split(',').next().unwrap_or_default().trim_start_matches(['^', '>', '=', ' ']);
                if lowest != version {
                    wrong.insert(format!("{name}: a manifest asks for {asked}, the lockfile has {version}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "lower bounds that nobody builds (raise the bound, or `cargo update -p NAME --precise VERSION`):\n{}",
        wrong.into_iter().collect::<Vec<_>>().join("\n")
    );
}

/// The ids of the packages that these packages are built from, themselves included and tests aside.
fn built_from(names: &[&str]) -> BTreeSet<&'static str> {
    let nodes = METADATA["resolve"]["nodes"].as_array().expect("nodes");
    let nodes: BTreeMap<&str, &Value> = nodes.iter().map(|node| (text(node, "id"), node)).collect();
    let roots = packages().filter(|package| names.contains(&text(package, "name")));
    let mut open: Vec<&str> = roots.map(|package| text(package, "id")).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            for dependency in nodes[id]["deps"].as_array().expect("deps") {
                let kinds = dependency["dep_kinds"].as_array().expect("kinds");
                if kinds.iter().any(|kind| text(kind, "kind") != "dev") {
                    open.push(text(dependency, "pkg"));
                }
            }
        }
    }
    found
}

#[test]
fn programs_with_windlass_in_them_are_built_without_tools_of_tests_and_benchmarks() {
    let built = built_from(&["windlass", "windlass-cli"]);
    assert!(built.len() > 50, "the dependencies were read: {built:?}");
    for package in packages().filter(|package| built.contains(text(package, "id"))) {
        let name = text(package, "name");
        let tools = ["hdrhistogram", "tempfile", "windlass-bench", "windlass-testpg"];
        assert!(!tools.contains(&name), "windlass or windlass-cli depends on {name}");
    }
}

#[test]
fn no_dependency_needs_a_newer_rust_than_the_manifests_claim() {
    let number = |version: &str| -> Vec<u32> {
        version.split('.').map(|part| part.parse().expect("a number")).collect()
    };
    let versions: BTreeMap<&str, &Value> = packages().map(|package| (text(package, "id"), package)).collect();
    let claimed = packages().find(|package| text(package, "name") == "windlass").expect("the facade");
    let claimed = number(text(claimed, "rust_version"));
    for package in built_from(&["windlass", "windlass-bin"]).into_iter().map(|id| versions[id]) {
        let needs = text(package, "rust_version");
        let name = text(package, "name");
        assert!(needs.is_empty() || number(needs)[..2] <= claimed[..2], "{name} needs Rust {needs}");
    }
}
