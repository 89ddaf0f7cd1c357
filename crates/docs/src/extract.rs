//! Reads the Rust blocks of the Markdown pages. The build script makes doctests of them, and tests check that none is left out.

use std::path::{Path, PathBuf};

/// What surrounds a block begins with this comment; its `…` stands for the block.
const AROUND: &str = "<!-- around:";

/// A Rust block of a page.
pub(crate) struct Block {
    /// The line of the page on which it begins, from 1.
    pub(crate) line: usize,
    /// What follows `rust` in the line that opens it, e.g. `compile_fail`.
    pub(crate) attributes: Vec<String>,
    /// The code, with what surrounds it.
    pub(crate) code: String,
}

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

/// All pages: the Markdown files of the workspace's folder, of `docs` and of `docs/decisions`.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in [root().to_owned(), root().join("docs"), root().join("docs/decisions")] {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let files = entries.map(|entry| entry.expect("an entry").path());
        pages.extend(files.filter(|file| file.extension().is_some_and(|extension| extension == "md")));
    }
    pages.sort();
    pages
}

/// Returns the Rust blocks of a page, or what is wrong with it.
pub(crate) fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let (mut blocks, mut around) = (Vec::new(), None);
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let begin = line.trim_start();
        if begin.starts_with(AROUND) {
            let mut comment = begin.to_owned();
            while !comment.trim_end().ends_with("-->") {
                let (next, _) = lines.next().ok_or(format!("line {number}: the comment has no end"))?;
                comment = format!("{comment}\n{next}");
            }
            let text = comment.trim_end().trim_start_matches(AROUND).trim_end_matches("-->").to_owned();
            if text.matches('…').count() != 1 {
                return Err(format!("line {number}: write `…` once, where the block belongs"));
            }
            around = Some((text, number));
            continue;
        }
        let Some(info) = begin.strip_prefix("```") else {
            if let Some((_, number)) = around.as_ref().filter(|_| !begin.is_empty()) {
                return Err(format!("line {number}: no Rust block follows"));
            }
            continue;
        };
        let indent = line.len() - begin.len();
        let mut code = String::new();
        loop {
            let (next, _) = lines.next().ok_or(format!("line {number}: the block has no end"))?;
            if next.trim() == "```" {
                break;
            }
            code.push_str(next.get(indent..).unwrap_or_default());
            code.push('\n');
        }
        let mut words = info.split(',').map(|word| word.trim().to_owned());
        if words.next().as_deref() != Some("rust") {
            continue;
        }
        if let Some((text, _)) = around.take() {
            code = text.trim().replace('…', &code);
        }
        blocks.push(Block { line: number, attributes: words.collect(), code });
    }
    Ok(blocks)
}
