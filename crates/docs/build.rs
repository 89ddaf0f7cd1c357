//! Makes a doctest of every Rust block in the documentation.

use std::{fmt::Write, path::Path};

#[path = "src/extract.rs"]
mod extract;

fn main() {
    let root = extract::root();
    for watched in ["docs", "docs/decisions", "crates/docs/src"] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    let mut modules = String::new();
    for page in extract::pages() {
        println!("cargo::rerun-if-changed={}", page.display());
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        let blocks = extract::blocks(&text).unwrap_or_else(|e| panic!("{}, {e}", page.display()));
        if blocks.is_empty() {
            continue;
        }
        let name = module_name(&page);
        let set_up = set_up(&root.join(format!("crates/docs/src/pages/{name}.rs")));
        writeln!(modules, "mod {name} {{").expect("a string");
        for block in blocks {
            // `#[test]` functions are not compiled outside of tests.
            let code = block.code.replace("#[tokio::test]\n", "");
            let attributes = block.attributes.join(",");
            let main = if code.contains("fn main()") { "" } else { "fn main() {}\n" };
            // Compiled and not run: what runs is in `examples` and in tests.
            let doc = format!("```no_run,{attributes}\n{set_up}{code}\n{main}```");
            writeln!(modules, "#[doc = {doc:?}]\nmod line_{} {{}}", block.line).expect("a string");
        }
        modules.push_str("}\n");
    }
    let out = std::env::var_os("OUT_DIR").expect("set by cargo");
    std::fs::write(Path::new(&out).join("blocks.rs"), modules).expect("the doctests are written");
}

/// What the blocks of a page use and do not show.
fn set_up(file: &Path) -> String {
    match std::fs::read_to_string(file) {
        Ok(code) => {
            let code: String = code
                .lines()
                .filter(|line| !line.starts_with("//!"))
                .map(|line| format!("{line}\n"))
                .collect();
            format!("mod set_up {{\n{code}}}\nuse set_up::*;\n")
        }
        Err(_) => String::new(),
    }
}

/// The name of a page as a module: `docs/serial-keys.md` is `serial_keys`, `README.md` is `readme`.
fn module_name(page: &Path) -> String {
    let path = page.strip_prefix(extract::root()).unwrap_or(page).with_extension("");
    let name = path.to_string_lossy().to_lowercase().replace(['-', '/'], "_");
    name.strip_prefix("docs_").unwrap_or(&name).to_owned()
}
