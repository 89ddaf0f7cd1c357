//! The documents name everything that there is: pages, tables, source files; and the glossary stays small.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files in a folder and the folders in it, as paths from there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        let name = PathBuf::from(path.file_name().expect("a name"));
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().map(|file| name.join(file))),
            false => found.push(name),
        }
    }
    found
}

/// The lines between a heading and the next one of its level or above.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    let level = heading.split(' ').next().expect("a level").len();
    let ends = (1..=level).filter_map(|level| rest.find(&format!("\n{} ", "#".repeat(level)))).min();
    &rest[..ends.unwrap_or(rest.len())]
}

/// The words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The first cell of each row of the tables in a text, without their heads.
fn first_cells(text: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: &str| line.starts_with("| ") && !line.starts_with("|---");
    let rows = (0..lines.len())
        .filter(move |n| is_row(lines[*n]) && !lines.get(n + 1).is_some_and(|next| next.starts_with("|--")));
    let lines: Vec<&str> = text.lines().collect();
    rows.map(move |n| lines[n].split(" | ").next().expect("a cell").trim_start_matches("| "))
}

#[test]
fn the_index_has_every_page() {
    let index = read("docs/README.md");
    for page in files(&root().join("docs")) {
        let page = page.to_string_lossy().into_owned();
        if page.ends_with(".md") && page != "README.md" {
            assert!(index.contains(&format!("]({page})")), "docs/README.md lacks a line for {page}");
        }
    }
}

#[test]
fn decisions_begin_with_their_number() {
    for file in files(&root().join("docs/decisions")) {
        let name = file.to_string_lossy().into_owned();
        let text = read(&format!("docs/decisions/{name}"));
        let number = name.split('-').next().expect("a number");
        let title = text.lines().next().unwrap_or_default();
        assert!(title.starts_with(&format!("# {number} — ")), "docs/decisions/{name} begins with {title:?}");
    }
}

#[test]
fn the_glossary_has_at_most_sixty_words() {
    let page = read("docs/concepts.md");
    let glossary = section(&page, "## Glossary");
    let words: Vec<&str> = glossary.split("**").skip(1).step_by(2).collect();
    assert!(words.len() <= 60, "{} words: merge some, or drop those with their usual meaning", words.len());
    for cell in first_cells(glossary) {
        assert!(cell.starts_with("**"), "{cell:?} is not bold, so it is not counted");
    }
    for word in ["API token", "role", "lane", "heartbeat"] {
        assert!(words.contains(&word), "the glossary lacks {word:?}");
    }
}

/// The tables that a migration creates, without the prefix of SQLite's.
fn tables(backend: &str) -> BTreeSet<String> {
    let folder = format!("crates/store/src/{backend}/migrations");
    let up =
        files(&root().join(&folder)).into_iter().find(|file| file.to_string_lossy().ends_with(".up.sql"));
    let text = read(&format!("{folder}/{}", up.expect("a baseline").display()));
    let names = text.lines().filter_map(|line| line.strip_prefix("create table "));
    let name = |rest: &str| {
        rest.split([' ', '(']).next().expect("a name").trim_start_matches("windlass_").to_owned()
    };
    names.map(name).collect()
}

#[test]
fn the_page_about_storage_has_every_table() {
    let page = read("docs/storage.md");
    let mut listed = BTreeSet::new();
    for cell in first_cells(section(&page, "## The tables")) {
        let only = [("PostgreSQL only", "postgres"), ("SQLite only", "sqlite")];
        let only = only.iter().find(|(text, _)| cell.contains(text)).map(|(_, backend)| *backend);
        for name in quoted(cell) {
            for backend in ["postgres", "sqlite"] {
                let exists = tables(backend).contains(name);
                let expected = only.is_none_or(|only| only == backend);
                assert_eq!(exists, expected, "docs/storage.md has {cell:?}; of {backend}, {name:?}");
            }
            assert!(listed.insert(name.to_owned()), "docs/storage.md has {name:?} twice");
        }
    }
    let all: BTreeSet<String> = tables("postgres").union(&tables("sqlite")).cloned().collect();
    assert_eq!(listed, all, "docs/storage.md, \"The tables\"");
}

/// The tables of ARCHITECTURE.md: what each source folder's rows name.
fn map() -> BTreeMap<String, Vec<String>> {
    let text = read("ARCHITECTURE.md");
    let (mut map, mut folder) = (BTreeMap::new(), String::new());
    for line in section(&text, "## What is in which file").lines() {
        if line.starts_with("| `") && line.ends_with("| |") {
            folder = quoted(line).next().expect("a folder").to_owned();
            let before = map.insert(folder.clone(), Vec::new());
            assert!(before.is_none(), "ARCHITECTURE.md has two tables of {folder}");
        } else if line.starts_with("| `") {
            let cell = line.split(" | ").next().expect("a cell");
            map.get_mut(&folder).expect("a table").extend(quoted(cell).map(String::from));
        }
    }
    map
}

/// Whether a name in a table stands for a file: it is that file, or the module whose folder has the file.
fn covers(name: &str, file: &str) -> bool {
    let module = name.trim_end_matches(".rs").trim_end_matches(".py");
    name == file || file == format!("{module}.rs") || file.starts_with(&format!("{module}/"))
}

#[test]
fn the_map_has_every_source_file_once() {
    let map = map();
    let mut folders = vec!["clients/python/src/windlass".to_owned()];
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates") {
        folders.push(format!("crates/{}/src", entry.expect("an entry").file_name().to_string_lossy()));
    }
    for folder in folders {
        let key = folder.trim_start_matches("crates/");
        let names = map.get(key).unwrap_or_else(|| panic!("ARCHITECTURE.md has no table of {key}"));
        let mut used = BTreeSet::new();
        for file in files(&root().join(&folder)) {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_source = file.extension().is_some_and(|end| end == "rs" || end == "py");
            // Title pages and unit tests.
            if !is_source || ["lib", "main", "mod", "tests", "__init__"].contains(&stem.as_str()) {
                continue;
            }
            let file = file.to_string_lossy().into_owned();
            let covering: Vec<&String> = names.iter().filter(|name| covers(name, &file)).collect();
            let longest = covering.iter().map(|name| name.len()).max();
            let longest: Vec<&&String> = covering.iter().filter(|name| Some(name.len()) == longest).collect();
            assert_eq!(longest.len(), 1, "ARCHITECTURE.md, table of {key}: {file} is in {covering:?}");
            used.extend(covering);
        }
        for name in names {
            // A folder of SQL, migrations and the like is named where it helps.
            assert!(
                used.contains(name) || root().join(&folder).join(name).exists(),
                "ARCHITECTURE.md, table of {key}: there is no {name}"
            );
        }
    }
}
