//! A graph of transitions as a Mermaid diagram.

use std::collections::{BTreeMap, BTreeSet};

use windlass::operate::diagram::{CurrentStage, TransitionEdge, Transitions};

use crate::out;

/// Keywords of Mermaid at the beginning of a line, in any case.
const KEYWORDS: [&str; 14] = [
    "state",
    "note",
    "end",
    "class",
    "classdef",
    "style",
    "direction",
    "scale",
    "hide",
    "as",
    "click",
    "default",
    "acctitle",
    "accdescr",
];

/// The diagram; with `counts`, each edge has the number of its transitions.
pub(super) fn draw(title: &str, graph: &Transitions, counts: bool) -> String {
    let names = Names::of(graph);
    let mut text = format!("%% {}\nstateDiagram-v2\n", out::plain(title));
    for (name, alias) in &names.aliases {
        text += &format!("    state \"{}\" as {alias}\n", escaped(name));
    }
    for start in &graph.starts {
        text += &format!("    [*] --> {}\n", names.get(start));
    }
    for TransitionEdge { from, to, outcome, times } in &graph.edges {
        let to = to.as_deref().map_or("[*]", |to| names.get(to));
        let count =
            if counts || *times > 1 { format!(" ×{}", out::thousands(*times)) } else { String::new() };
        text += &format!("    {} --> {to}: {}{count}\n", names.get(from), out::plain(outcome));
    }
    if let Some(CurrentStage { stage, state }) = &graph.current {
        text += &format!("    note right of {}: {state}\n", names.get(stage));
    }
    text
}

/// The names of stages in the diagram: an alias stands for a name that Mermaid does not accept.
struct Names<'a> {
    aliases: BTreeMap<&'a str, String>,
}

impl<'a> Names<'a> {
    fn of(graph: &'a Transitions) -> Names<'a> {
        let ends = graph.edges.iter().flat_map(|edge| [Some(&edge.from), edge.to.as_ref()]).flatten();
        let current = graph.current.iter().map(|current| &current.stage);
        let all: BTreeSet<&str> = ends.chain(&graph.starts).chain(current).map(String::as_str).collect();
        let mut free = (1..).map(|number| format!("s{number}")).filter(|alias| !all.contains(alias.as_str()));
        let odd = all.iter().filter(|name| !is_plain(name));
        Names { aliases: odd.map(|name| (*name, free.next().unwrap_or_default())).collect() }
    }

    fn get<'b>(&'b self, name: &'b str) -> &'b str {
        self.aliases.get(name).map_or(name, String::as_str)
    }
}

fn is_plain(name: &str) -> bool {
    let word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    word && !KEYWORDS.contains(&name.to_lowercase().as_str())
}

/// A name for use in quotes, with Mermaid's entity codes.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for c in out::plain(name).chars() {
        match c {
            '"' => text += "#quot;",
            '#' => text += "#35;",
            ';' => text += "#59;",
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: Option<&str>, outcome: &str, times: u64) -> TransitionEdge {
        TransitionEdge { from: from.into(), to: to.map(String::from), outcome: outcome.into(), times }
    }

    #[test]
    fn a_graph_is_drawn_with_its_end_and_counts() {
        let graph = Transitions {
            version: 1,
            starts: BTreeSet::from(["Start".to_owned()]),
            edges: vec![
                edge("Start", Some("Pay"), "wait", 1_200),
                edge("Pay", None, "done", 1_000),
                edge("Pay", None, "failed", 200),
            ],
            current: None,
        };
        let expected = "%% order version 1\nstateDiagram-v2\n    [*] --> Start\n    Start --> Pay: wait ×1,200\n    \
                        Pay --> [*]: done ×1,000\n    Pay --> [*]: failed ×200\n";
        assert_eq!(draw("order version 1", &graph, true), expected);
    }

    #[test]
    fn names_that_mermaid_does_not_accept_have_an_alias() {
        let graph = Transitions {
            version: 1,
            starts: BTreeSet::from(["End".to_owned()]),
            edges: vec![edge("End", Some("a \"jar\"; #1\n"), "next", 1), edge("s1", Some("s1"), "next", 3)],
            current: Some(CurrentStage { stage: "a \"jar\"; #1\n".into(), state: "waiting".into() }),
        };
        let expected = "%% t\nstateDiagram-v2\n    state \"End\" as s2\n    \
                        state \"a #quot;jar#quot;#59; #35;1 \" as s3\n    [*] --> s2\n    s2 --> s3: next\n    \
                        s1 --> s1: next ×3\n    note right of s3: waiting\n";
        assert_eq!(draw("t", &graph, false), expected);
    }
}
