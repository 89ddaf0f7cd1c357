//! The diagram of a job: the stages of a machine with its path, or the calls of a workflow.

use std::collections::BTreeMap;

use windlass::{
    State,
    operate::{
        diagram::{JobDiagram, Transitions},
        graph::{CallState, Graph, Point},
    },
};

use crate::pages::{
    diagram::{Appearance, Diagram, Edge, Node},
    format::{Clock, counted},
    parts::Tone,
};

/// The most boxes that are drawn.
const MOST: usize = 60;

/// The drawing; `None` if there is nothing to draw.
pub(super) fn diagram(diagram: &JobDiagram, state: State, _clock: Clock) -> Option<Diagram> {
    match (&diagram.machine, &diagram.workflow) {
        (Some(machine), _) if !machine.edges.is_empty() => Some(stages(machine, state)),
        (_, Some(graph)) if !graph.nodes.is_empty() && graph.nodes.len() <= MOST => Some(calls(graph)),
        _ => None,
    }
}

fn node(name: &str, under: String, appearance: Appearance) -> Node {
    Node { name: name.to_owned(), under, appearance, icon: None, href: None }
}

fn stages(machine: &Transitions, state: State) -> Diagram {
    let mut nodes = vec![node("start", String::new(), Appearance::Start)];
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let current = machine.current.as_ref();
    let mut edges = Vec::new();
    let names = machine.starts.iter().map(String::as_str).chain(
        machine.edges.iter().flat_map(|edge| [Some(edge.from.as_str()), edge.to.as_deref()]).flatten(),
    );
    for name in names {
        if !numbers.contains_key(name) {
            let appearance = match current.filter(|current| current.stage == name) {
                Some(_) => Appearance::Here(state.into()),
                None => Appearance::Passed,
            };
            let under = current
                .filter(|current| current.stage == name)
                .map_or(String::new(), |current| current.state.clone());
            numbers.insert(name, nodes.len());
            nodes.push(node(name, under, appearance));
        }
    }
    let mut end = None;
    for start in &machine.starts {
        edges.push(Edge { from: 0, to: numbers[start.as_str()], label: String::new(), is_taken: true });
    }
    for edge in &machine.edges {
        let to = match &edge.to {
            Some(to) => numbers[to.as_str()],
            None => *end.get_or_insert_with(|| {
                nodes.push(node(
                    "end",
                    String::new(),
                    if state == State::Failed { Appearance::Failed } else { Appearance::End },
                ));
                nodes.len() - 1
            }),
        };
        let label =
            if edge.times > 1 { format!("{} ×{}", edge.outcome, edge.times) } else { edge.outcome.clone() };
        edges.push(Edge { from: numbers[edge.from.as_str()], to, label, is_taken: true });
    }
    Diagram::new("The stages that this machine went through, from its start", nodes, edges)
}

fn calls(graph: &Graph) -> Diagram {
    let mut nodes = vec![node("start", String::new(), Appearance::Start)];
    for call in &graph.nodes {
        let appearance = match call.fates.keys().next_back() {
            Some(CallState::Failed | CallState::NotUndone) => Appearance::Failed,
            Some(CallState::Waiting | CallState::Tried) => Appearance::Here(Tone::Wait),
            Some(CallState::Left) => Appearance::Apart,
            _ => Appearance::Passed,
        };
        let count: u64 = call.fates.values().sum();
        let under = match call.notes.first() {
            Some(note) => note.clone(),
            None if count > 1 => counted(count, "call", "calls"),
            None => call.call_kind.to_string(),
        };
        nodes.push(node(&call.name, under, appearance));
    }
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    let mut edges = Vec::new();
    for edge in &graph.edges {
        let mut number = |point: &Point| match point {
            Point::Start => 0,
            Point::Node(number) => number + 1,
            Point::End(state) => *ends.entry(state.to_string()).or_insert_with(|| {
                nodes.push(node(
                    &state.to_string(),
                    String::new(),
                    if *state == State::Done { Appearance::End } else { Appearance::Failed },
                ));
                nodes.len() - 1
            }),
        };
        let (from, to) = (number(&edge.from), number(&edge.to));
        edges.push(Edge { from, to, label: String::new(), is_taken: true });
    }
    Diagram::new("The calls of this workflow in their order", nodes, edges)
}
