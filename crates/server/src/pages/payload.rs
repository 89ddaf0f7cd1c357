//! Payloads as trees that open and close: `<details>`, bounded in depth and size.
//!
//! What always holds: the HTML of a tree is bounded however large the payload is. What is left out is a link to the whole.

use std::fmt::Write;

use askama::{Template, filters::HtmlSafe};
use serde_json::Value;

use super::{
    format::{bytes, counted},
    html::{Html, Text, escape},
    icon::Icon,
};

/// Bytes of names and values of a preview.
const PREVIEW: usize = 4 << 10;
/// What a value counts besides its name and text: many small ones are long HTML.
const LEAF: usize = 16;
/// Levels of a tree.
const DEPTH: usize = 12;
/// Levels that may be open at first, and the most values of a node that is, below the first level.
const OPEN: (usize, usize) = (2, 8);
/// Fields or items of one value.
const WIDTH: usize = 100;
/// Characters of a string.
const STRING: usize = 200;

/// An input, an output, a signal, a result: a tree with its size and a way to copy it.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/payload.html")]
pub(crate) struct Payload {
    /// What it is: "Input".
    name: String,
    /// Its size; empty if it is unknown.
    size: String,
    /// Where all of it is, for copying and saving; `None` if there is nothing else.
    whole: Option<String>,
    tree: Html,
    is_cut: bool,
}

impl HtmlSafe for Payload {}

impl Payload {
    /// A payload as a tree. `id` is unique on its page: open nodes are kept under it.
    pub(crate) fn tree(id: &str, name: &str, size: u64, value: &Value, whole: &str) -> Payload {
        let mut tree = Tree { html: String::new(), left: PREVIEW, is_cut: false, opens: true };
        tree.value(id, None, value, 0);
        Payload {
            name: name.to_owned(),
            size: bytes(size),
            whole: Some(whole.to_owned()),
            tree: Html::trusted(tree.html),
            is_cut: tree.is_cut,
        }
    }

    /// A payload that cannot be shown, or none: why, in a sentence.
    pub(crate) fn absent(name: &str, why: Html) -> Payload {
        Payload {
            name: name.to_owned(),
            size: String::new(),
            whole: None,
            tree: Html::new()
                .add(Html::trusted("<p class=\"dim\">".to_owned()))
                .add(why)
                .add(Html::trusted("</p>".to_owned())),
            is_cut: false,
        }
    }
}

/// Writes a tree until it is full.
struct Tree {
    html: String,
    /// Bytes of names and values that still fit.
    left: usize,
    is_cut: bool,
    /// Whether the node above has few values, so that those are open at first.
    opens: bool,
}

impl Tree {
    /// A value with its name, if it has one. `path` names the node.
    fn value(&mut self, path: &str, name: Option<&str>, value: &Value, depth: usize) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                let count = counted(fields.len() as u64, "field", "fields");
                self.node(path, name, '{', &count, fields.len(), depth, |tree| {
                    for (key, value) in fields.iter().take(WIDTH) {
                        if !tree.has_room() {
                            break;
                        }
                        tree.value(&format!("{path}.{}", short(key)), Some(key), value, depth + 1);
                    }
                });
            }
            Value::Array(items) if !items.is_empty() => {
                let count = counted(items.len() as u64, "item", "items");
                self.node(path, name, '[', &count, items.len(), depth, |tree| {
                    for (number, value) in items.iter().take(WIDTH).enumerate() {
                        if !tree.has_room() {
                            break;
                        }
                        tree.value(&format!("{path}.{number}"), Some(&number.to_string()), value, depth + 1);
                    }
                });
            }
            leaf => self.leaf(name, leaf),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn node(
        &mut self,
        path: &str,
        name: Option<&str>,
        bracket: char,
        count: &str,
        children: usize,
        depth: usize,
        inner: impl FnOnce(&mut Tree),
    ) {
        let is_open = depth == 0 || depth < OPEN.0 && children <= OPEN.1 && self.opens;
        let open = if is_open { " open" } else { "" };
        let opens = std::mem::replace(&mut self.opens, children <= OPEN.1);
        self.left = self.left.saturating_sub(name.map_or(0, str::len).min(60) + 2 * LEAF);
        let name = named(name);
        let _ = write!(
            self.html,
            "<details data-node=\"{}\"{open}><summary>{name}{bracket} <span class=\"size\">{count}</span></summary>",
            escape(path)
        );
        match depth < DEPTH {
            true => inner(self),
            false => self.is_cut = true,
        }
        self.opens = opens;
        self.is_cut |= children > WIDTH;
        if depth >= DEPTH || children > WIDTH {
            self.leave_out();
        }
        self.html += "</details>";
    }

    fn leaf(&mut self, name: Option<&str>, value: &Value) {
        let (class, text) = match value {
            Value::String(text) => ("s", format!("\"{text}\"")),
            Value::Number(number) => ("n", number.to_string()),
            Value::Object(_) => ("z", "{}".to_owned()),
            Value::Array(_) => ("z", "[]".to_owned()),
            other => ("z", other.to_string()),
        };
        self.is_cut |= text.chars().nth(STRING).is_some();
        let _ = write!(
            self.html,
            "<div>{}<span class=\"{class}\">{}</span></div>",
            named(name),
            Text::cut(&text, STRING)
        );
        self.left =
            self.left.saturating_sub(name.map_or(0, str::len).min(60) + text.len().min(STRING) + LEAF);
    }

    /// Whether another value fits. If not, the tree says that something is left out.
    fn has_room(&mut self) -> bool {
        if self.left == 0 {
            self.leave_out();
        }
        self.left > 0
    }

    /// Says that something is left out here.
    fn leave_out(&mut self) {
        if !self.html.ends_with("…</div>") {
            self.html += "<div class=\"size\">…</div>";
        }
        self.is_cut = true;
    }
}

fn named(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!("<span class=\"k\">{}</span>: ", Text::cut(name, 60)))
}

/// A key as part of a node's name: long ones only tell nodes apart.
fn short(key: &str) -> String {
    key.chars().take(24).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_has_names_sizes_and_values() {
        let value = json!({ "number": 48_213, "goods": [{ "sku": "LAMP <7>" }], "express": false, "note": null, "none": [] });
        let html = Payload::tree("input", "Input", 412, &value, "/jobs/1/input").to_string();
        for part in [
            "412 bytes",
            "5 fields",
            "<span class=\"k\"><bdi>number</bdi></span>: <span class=\"n\"><bdi>48213</bdi></span>",
            "data-node=\"input.goods\" open",
            "data-node=\"input.goods.0\"><summary>",
            "&quot;LAMP &lt;7&gt;&quot;",
            "<span class=\"z\"><bdi>[]</bdi></span>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("This is a part"));
    }

    #[test]
    fn the_html_is_bounded() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        let long_key: serde_json::Map<String, Value> =
            (0..1_000).map(|n| (format!("{n}{}", "k".repeat(10_000)), json!(n))).collect();
        let wide = json!(vec!["<".repeat(1_000); 10_000]);
        for value in
            [deep, Value::Object(long_key), wide, json!("x".repeat(1 << 20)), json!(vec![json!([]); 50_000])]
        {
            let html = Payload::tree("input", "Input", 1, &value, "/whole").to_string();
            assert!(html.len() < 40_000, "{} bytes", html.len());
            assert!(html.contains("This is a part"), "it says that it is cut");
        }
    }
}
