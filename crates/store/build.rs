//! Turns `src/<backend>/sql/<verb>.sql` into constants: the statement `done` of `commit.sql` is `sql::commit::DONE`.
//!
//! A file is a comment on the whole and a list of sections, each with a comment of its own. `-- name: done` begins a statement.
//! `-- fragment: guard` begins a piece of SQL that statements and other fragments include as `{{guard}}`, or as
//! `{{commit.guard}}` from another file. A fragment may take parameters: `-- fragment: in_ready(span)` uses `{{span}}`, and is
//! included as `{{in_ready($1)}}`. Arguments are separated by commas; the last one may contain commas itself, and all may
//! include fragments.
//!
//! Comments are for readers of the file: the constant has the statement alone, after a comment with its name by which it is
//! recognised in `pg_stat_statements`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

/// A statement, or a fragment with its parameters.
enum Kind {
    Statement,
    Fragment(Vec<String>),
}

struct Section {
    kind: Kind,
    sql: String,
}

/// Sections by file and name.
type Files = BTreeMap<String, BTreeMap<String, Section>>;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    for backend in ["sqlite", "postgres"] {
        if env::var_os(format!("CARGO_FEATURE_{}", backend.to_uppercase())).is_none() {
            continue;
        }
        let folder = Path::new("src").join(backend).join("sql");
        println!("cargo::rerun-if-changed={}", folder.display());
        let code = generate(&read(&folder));
        fs::write(out.join(format!("{backend}_sql.rs")), code).expect("the output folder is writable");
    }
}

fn read(folder: &Path) -> Files {
    let mut files = Files::new();
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

fn sections(path: &Path, text: &str) -> BTreeMap<String, Section> {
    let path = path.display();
    let mut sections: Vec<(String, Section)> = Vec::new();
    let mut has_head = false;
    for line in text.lines() {
        if let Some(section) = heading(line) {
            assert!(has_head, "{path}: the file must begin with a comment on the whole");
            sections.push(section);
        } else if let Some((_, section)) = sections.last_mut() {
            let sql = line.split("--").next().unwrap_or_default().trim_end();
            if !sql.is_empty() {
                section.sql += if section.sql.is_empty() { "" } else { "\n" };
                section.sql += sql;
            }
        } else {
            assert!(line.is_empty() || line.starts_with("--"), "{path}: SQL before the first name");
            has_head = true;
        }
    }
    let mut by_name = BTreeMap::new();
    for (name, section) in sections {
        assert!(!section.sql.is_empty(), "{path}: {name} is empty");
        let before = by_name.insert(name.clone(), section);
        assert!(before.is_none(), "{path}: two sections are named {name}");
    }
    by_name
}

/// The name and kind of the section that a line begins, if it begins one.
fn heading(line: &str) -> Option<(String, Section)> {
    let section = |kind| Section { kind, sql: String::new() };
    if let Some(name) = line.strip_prefix("-- name:") {
        return Some((name.trim().to_owned(), section(Kind::Statement)));
    }
    let (name, parameters) = call(line.strip_prefix("-- fragment:")?.trim());
    let parameters = parameters.into_iter().flat_map(|names| names.split(','));
    let parameters = parameters.map(|name| name.trim().to_owned()).collect();
    Some((name.to_owned(), section(Kind::Fragment(parameters))))
}

/// Splits `name(arguments)`.
fn call(text: &str) -> (&str, Option<&str>) {
    match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => {
            let arguments = rest.strip_suffix(')').unwrap_or_else(|| panic!("{text}: the last ) is missing"));
            (name, Some(arguments))
        }
    }
}

fn generate(files: &Files) -> String {
    let mut code = String::new();
    let mut all = String::new();
    let mut included = BTreeSet::new();
    for (file, sections) in files {
        code += &format!("pub(super) mod {file} {{\n");
        for (name, section) in sections.iter().filter(|(_, section)| matches!(section.kind, Kind::Statement))
        {
            let constant = name.to_uppercase();
            let sql = include(files, file, &section.sql, &mut included, 0);
            let sql = format!("/* {file}.{name} */ {sql}");
            code += &format!("    pub(in super::super) const {constant}: &str = {sql:?};\n");
            all += &format!("    ({file:?}, {name:?}, {file}::{constant}),\n");
        }
        code += "}\n";
    }
    for (file, sections) in files {
        for (name, section) in sections {
            let is_used = matches!(section.kind, Kind::Statement) || included.contains(&(file, name));
            assert!(is_used, "{file}.sql: the fragment {name} is included nowhere");
        }
    }
    code += "/// All statements, by file and name.\n#[cfg(feature = \"conformance\")]\n";
    code += "pub(super) const ALL: &[(&str, &str, &str)] = &[\n";
    code + &all + "];\n"
}

/// Splits the text after `{{` at the `}}` that belongs to it.
fn close(text: &str) -> Option<(&str, &str)> {
    let mut open = 1;
    let mut at = 0;
    while open > 0 {
        let next = at + text[at..].find(['{', '}'])?;
        open += match text.get(next..next + 2)? {
            "{{" => 1,
            "}}" => -1,
            other => panic!("{other} in SQL"),
        };
        at = next + 2;
    }
    Some((&text[..at - 2], &text[at..]))
}

/// Replaces `{{name}}` and `{{name(arguments)}}` by fragments, and notes which.
fn include<'a>(
    files: &'a Files,
    file: &str,
    sql: &str,
    included: &mut BTreeSet<(&'a String, &'a String)>,
    depth: usize,
) -> String {
    assert!(depth < 8, "{file}.sql: fragments include each other");
    let mut done = String::new();
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = close(after).unwrap_or_else(|| panic!("{file}.sql: {{{{ without }}}}"));
        let (path, arguments) = call(inside);
        let (from, name) = path.split_once('.').unwrap_or((file, path));
        let found = files.get_key_value(from);
        let found = found.and_then(|(from, sections)| Some((from, sections.get_key_value(name)?)));
        let Some((from, (name, Section { kind: Kind::Fragment(parameters), sql }))) = found else {
            panic!("{file}.sql: there is no fragment {path}")
        };
        included.insert((from, name));
        let arguments: Vec<&str> =
            arguments.map_or(Vec::new(), |text| text.splitn(parameters.len(), ',').collect());
        assert_eq!(arguments.len(), parameters.len(), "{file}.sql: the arguments of {inside}");
        let sql = parameters.iter().zip(arguments).fold(sql.clone(), |sql, (parameter, argument)| {
            sql.replace(&format!("{{{{{parameter}}}}}"), argument.trim())
        });
        done += before;
        done += &include(files, from, &sql, included, depth + 1);
        rest = after;
    }
    done + rest
}
