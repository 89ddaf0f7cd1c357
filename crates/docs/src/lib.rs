//! Compiles the Rust code in `README.md` and `docs/`, so that no page shows code which does not work.
//!
//! `cargo test -p windlass-docs --doc` compiles every block as a doctest that is named after its page and line:
//! `jobs::line_42`. None is run.
//!
//! A block that is a fragment says in a comment before it, which readers of the page do not see, what surrounds it. `…` stands for
//! the block:
//!
//! ```text
//! <!-- around: async fn example(engine: Engine) -> Done { … Ok(()) } -->
//! ```
//!
//! What all blocks of a page use and do not show is in `src/pages/PAGE.rs`: it is put in front of each of them. A type that a block
//! defines itself hides one of the same name there. Code that must not compile is a block `rust,compile_fail`.

#[cfg(test)]
mod extract;

/// What the pages use and do not show. Only the text of these files is used; they are modules so that `cargo fmt` finds them.
#[cfg(doctest)]
mod pages {
    mod branches;
    mod changing_workflows;
    mod codecs;
    mod compiler_errors;
    mod guarantees;
    mod jobs;
    mod machines;
    mod operating;
    mod rate_limits;
    mod readme;
    mod retention;
    mod schedules;
    mod serial_keys;
    mod signals;
    mod storage;
    mod telemetry;
    mod testing;
    mod transactions;
    mod types;
    mod unique;
    mod worker_protocol;
    mod workflows;
}

#[cfg(doctest)]
mod blocks {
    include!(concat!(env!("OUT_DIR"), "/blocks.rs"));
}

#[cfg(test)]
mod tests {
    use super::extract;

    #[test]
    fn every_rust_block_of_every_page_is_compiled() {
        let mut seen = 0;
        for page in extract::pages() {
            let text = std::fs::read_to_string(&page).expect("a page");
            let blocks = extract::blocks(&text).unwrap_or_else(|e| panic!("{}, {e}", page.display()));
            let opened = text.lines().filter(|line| line.trim_start().starts_with("```rust")).count();
            assert_eq!(blocks.len(), opened, "{}: a block is not found", page.display());
            for block in &blocks {
                let is_known = |word: &String| word == "compile_fail" || word.starts_with('E');
                assert!(
                    block.attributes.iter().all(is_known),
                    "{}:{}: {:?}: a block is compiled, or it is `compile_fail`",
                    page.display(),
                    block.line,
                    block.attributes
                );
            }
            seen += blocks.len();
        }
        assert!(seen > 60, "the pages were read: {seen}");
    }

    #[test]
    fn a_block_is_put_into_what_surrounds_it() {
        let page = "text\n\n<!-- around: fn f() { … } -->\n```rust\nlet a = 1;\n```\n\n  ```rust,compile_fail,E0308\n  let a: u8 = \"\";\n  ```\n";
        let blocks = extract::blocks(page).expect("a good page");
        assert_eq!(blocks[0].code, "fn f() { let a = 1;\n }");
        assert_eq!((blocks[1].line, blocks[1].code.as_str()), (8, "let a: u8 = \"\";\n"));
        assert_eq!(blocks[1].attributes, ["compile_fail", "E0308"]);
        for bad in ["<!-- around: x -->", "<!-- around: … -->\ntext", "```rust\n", "<!-- around: …\n"] {
            assert!(extract::blocks(bad).is_err(), "{bad}");
        }
    }
}
