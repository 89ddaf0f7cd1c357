//! Turns `src/<backend>/sql/<verb>.sql` into constants: the statement `done` of `commit.sql` is `sql::commit::DONE`.
//!
//! A file is a list of sections. `-- name: done` begins a statement, `-- fragment: guard` a piece of SQL that statements
//! include as `{{guard}}` (or `{{commit.guard}}` from another file). Comments are for readers of the file: the constant has the
//! statement alone, after a comment with its name by which it is recognised in `pg_stat_statements`.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

/// The sections of one file by name, and whether each is a statement.
type Sections = BTreeMap<String, (bool, String)>;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    for backend in ["sqlite", "postgres"] {
        if env::var_os(format!("CARGO_FEATURE_{}", backend.to_uppercase())).is_none() {
            continue;
        }
        let folder = Path::new("src").join(backend).join("sql");
        println!("cargo::rerun-if-changed={}", folder.display());
        let files = read(&folder);
        let code = generate(&files);
        fs::write(out.join(format!("{backend}_sql.rs")), code).expect("the output folder is writable");
    }
}

fn read(folder: &Path) -> BTreeMap<String, Sections> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "sql") {
            let text = fs::read_to_string(&path).expect("readable");
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            files.insert(name, sections(&path, &text));
        }
    }
    files
}

fn sections(path: &Path, text: &str) -> Sections {
    let mut sections = Sections::new();
    let mut current: Option<(String, bool, Vec<&str>)> = None;
    let mut keep = |section: Option<(String, bool, Vec<&str>)>| {
        let Some((name, is_statement, lines)) = section else { return };
        let code = lines.join("\n").trim().to_owned();
        assert!(!code.is_empty(), "{}: {name} is empty", path.display());
        let known = sections.insert(name.clone(), (is_statement, code));
        assert!(known.is_none(), "{}: {name} is there twice", path.display());
    };
    for line in text.lines() {
        let begins = |mark: &str| line.strip_prefix(mark).map(|name| name.trim().to_owned());
        if let Some(name) = begins("-- name:") {
            keep(current.replace((name, true, Vec::new())));
        } else if let Some(name) = begins("-- fragment:") {
            keep(current.replace((name, false, Vec::new())));
        } else if let Some((_, _, lines)) = &mut current {
            let code = line.split("--").next().unwrap_or_default().trim_end();
            if !code.is_empty() {
                lines.push(code);
            }
        } else {
            assert!(
                line.is_empty() || line.starts_with("--"),
                "{}: SQL before the first name",
                path.display()
            );
        }
    }
    keep(current);
    sections
}

fn generate(files: &BTreeMap<String, Sections>) -> String {
    let mut code = String::new();
    for (file, sections) in files {
        code += &format!("pub(super) mod {file} {{\n");
        for (name, (is_statement, text)) in sections {
            if *is_statement {
                let text = format!("/* {file}.{name} */ {}", include(files, file, text, 0));
                code +=
                    &format!("    pub(in super::super) const {}: &str = {text:?};\n", name.to_uppercase());
            }
        }
        code += "}\n";
    }
    code += "/// All statements, by file and name.\n#[cfg(feature = \"conformance\")]\n";
    code += "pub(super) const ALL: &[(&str, &str, &str)] = &[\n";
    for (file, sections) in files {
        for name in sections.iter().filter(|(_, (is_statement, _))| *is_statement).map(|(name, _)| name) {
            code += &format!("    ({file:?}, {name:?}, {file}::{}),\n", name.to_uppercase());
        }
    }
    code + "];\n"
}

/// Replaces `{{name}}` by fragments.
fn include(files: &BTreeMap<String, Sections>, file: &str, text: &str, depth: u32) -> String {
    assert!(depth < 8, "{file}.sql: fragments include each other");
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or_else(|| panic!("{file}.sql: {{{{ without }}}}"));
        let (from, name) = name.split_once('.').unwrap_or((file, name));
        let fragment = files.get(from).and_then(|sections| sections.get(name));
        let Some((false, fragment)) = fragment else {
            panic!("{file}.sql: there is no fragment {from}.{name}")
        };
        done += before;
        done += &include(files, from, fragment, depth + 1);
        rest = after;
    }
    done + rest
}
