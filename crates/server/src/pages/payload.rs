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

/// Bytes of HTML after which a tree takes no more values: some 4 KB of names and values.
const FULL: usize = 10 << 10;
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
        let mut tree = Tree { html: String::new(), is_cut: false, opens: true };
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
                let shown = fields.iter().take(WIDTH).map(|(key, value)| (key.clone(), value)).collect();
                let summary = format!("{{ <span class=\"size\">{count}</span>");
                self.node(path, name, &summary, shown, fields.len() > WIDTH, depth);
            }
            Value::Array(items) if !items.is_empty() => {
                let count = counted(items.len() as u64, "item", "items");
                let shown = items.iter().take(WIDTH).enumerate();
                let shown = shown.map(|(number, value)| (number.to_string(), value)).collect();
                let summary = format!("[ <span class=\"size\">{count}</span>");
                self.node(path, name, &summary, shown, items.len() > WIDTH, depth);
            }
            leaf => self.leaf(name, leaf),
        }
    }

    /// A value with values in it. `summary` is HTML; `is_cut` says that there are more values than these.
    fn node(
        &mut self,
        path: &str,
        name: Option<&str>,
        summary: &str,
        values: Vec<(String, &Value)>,
        mut is_cut: bool,
        depth: usize,
    ) {
        let is_open = depth == 0 || depth < OPEN.0 && values.len() <= OPEN.1 && self.opens;
        let opens = std::mem::replace(&mut self.opens, values.len() <= OPEN.1);
        let (node, open) = (escape(path), if is_open { " open" } else { "" });
        let name = named(name);
        let _ = write!(self.html, "<details data-node=\"{node}\"{open}><summary>{name}{summary}</summary>");
        for (key, value) in values {
            if self.html.len() >= FULL || depth >= DEPTH {
                is_cut = true;
                break;
            }
            // A long key only tells nodes apart.
            let short: String = key.chars().take(24).collect();
            self.value(&format!("{path}.{short}"), Some(&key), value, depth + 1);
        }
        if is_cut {
            self.html += "<div class=\"size\">…</div>";
            self.is_cut = true;
        }
        self.html += "</details>";
        self.opens = opens;
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
    }
}

fn named(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!("<span class=\"k\">{}</span>: ", Text::cut(name, 60)))
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
            assert!(html.len() < 16_000, "{} bytes", html.len());
            assert!(html.contains("This is a part"), "it says that it is cut");
        }
    }
}
