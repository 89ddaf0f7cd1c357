//! JSON on the command line: the value itself, `-` for standard input, or `@FILE`.

use std::io::Read;

use anyhow::{Context, anyhow};
use serde_json::Value;

/// Reads a JSON argument. `what` names it in errors, for example "input".
pub(crate) fn json(what: &str, text: &str) -> anyhow::Result<Value> {
    let mut read = String::new();
    let text = match text.strip_prefix('@') {
        Some(path) => {
            read = std::fs::read_to_string(path)
                .with_context(|| format!("the {what} file {path} cannot be read"))?;
            &read
        }
        None if text == "-" => {
            std::io::stdin()
                .read_to_string(&mut read)
                .with_context(|| format!("the {what} cannot be read from standard input"))?;
            &read
        }
        None => text,
    };
    serde_json::from_str(text).map_err(|error| {
        let hint = if text.contains('"') { "" } else { "; a string needs quotes of its own: '\"text\"'" };
        anyhow!("the {what} is not JSON ({error}); pass it in quotes, like '{{\"ms\": 100}}'{hint}")
    })
}
