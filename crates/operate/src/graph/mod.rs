//! The graph of a workflow, computed from journals: the calls of one job, or of the jobs of a kind.
//!
//! It contains only calls that happened: a path that no job has taken is unknown to the store. Calls of one name are one node,
//! regardless of their keys. A call follows another if its first entry comes after the other's last; otherwise both were in progress
//! together.

mod mermaid;
mod read;
mod svg;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use windlass_model::{JournalEntry, State, WaitCondition, journal::CallKind, merge::BranchProgress};
use windlass_store::Branch;

use read::Call;

/// One job, as the graph needs it.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Its journal.
    pub entries: &'a [JournalEntry],
    /// Its state.
    pub state: State,
    /// What it waits for.
    pub wait: Option<&'a WaitCondition>,
    /// Its branches.
    pub branches: &'a [Branch],
}

/// The calls of a workflow, and their order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Graph {
    /// How many jobs it was computed from.
    pub jobs: u64,
    /// The calls, in order.
    pub nodes: Vec<Node>,
    /// Which call followed which.
    pub edges: Vec<Edge>,
}

/// All calls of one name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// What was called.
    pub call_kind: CallKind,
    /// Its name.
    pub name: String,
    /// How many of the calls are in each state.
    pub fates: BTreeMap<CallState, u64>,
    /// Details for people.
    pub notes: Vec<String>,
    /// The progress of a branch, summed over all jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<BranchProgress>,
    /// Its distance from the start, from 0. Nodes of one level are drawn side by side.
    pub level: usize,
}

/// The state of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It is done.
    Done,
    /// It failed.
    Failed,
    /// The job waits for it.
    Waiting,
    /// An attempt failed, and another follows.
    Tried,
    /// It was done, and was undone.
    Undone,
    /// It was done, and could not be undone.
    NotUndone,
    /// Its end no longer matters: another call was first, or the job has ended.
    Left,
}

/// One point followed another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Edge {
    /// Where it starts.
    pub from: Point,
    /// Where it ends.
    pub to: Point,
    /// In how many jobs.
    pub jobs: u64,
}

/// A point of a graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The beginning.
    Start,
    /// A node, by its number.
    Node(usize),
    /// The end, in this state.
    End(State),
}

impl CallState {
    /// All states, in the order of a legend.
    pub const ALL: [CallState; 7] = [
        CallState::Done,
        CallState::Failed,
        CallState::Waiting,
        CallState::Tried,
        CallState::Undone,
        CallState::NotUndone,
        CallState::Left,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CallState::Done => "done",
            CallState::Failed => "failed",
            CallState::Waiting => "waiting",
            CallState::Tried => "tried",
            CallState::Undone => "undone",
            CallState::NotUndone => "not undone",
            CallState::Left => "left",
        }
    }

    /// The colours of its box: fill and border.
    fn colours(self) -> (&'static str, &'static str) {
        match self {
            CallState::Done => ("#dcf3e3", "#2f8f57"),
            CallState::Failed => ("#fbdcdc", "#c23b3b"),
            CallState::Waiting => ("#dbe9fb", "#2f6fc4"),
            CallState::Tried => ("#fdf0cd", "#b98a13"),
            CallState::Undone => ("#ece0f7", "#7d4fb3"),
            CallState::NotUndone => ("#f9d9ec", "#b3307f"),
            CallState::Left => ("#eeeeee", "#8a8a8a"),
        }
    }
}

impl Graph {
    /// The graph of one job.
    pub fn of_job(run: Run<'_>) -> Graph {
        Graph::of_kind([run])
    }

    /// The graph of several jobs, overlaid.
    pub fn of_kind<'a>(runs: impl IntoIterator<Item = Run<'a>>) -> Graph {
        let mut overlay = Overlay::default();
        let mut jobs = 0;
        for run in runs {
            jobs += 1;
            overlay.add(&read::calls(run), run.state);
        }
        let one = jobs == 1;
        let Overlay { nodes, positions, edges } = overlay;
        // By their average position.
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        let mean = |node: usize| positions[node].0 as f64 / positions[node].1 as f64;
        order.sort_by(|a, b| mean(*a).total_cmp(&mean(*b)).then(a.cmp(b)));
        let mut new = vec![0; nodes.len()];
        for (position, node) in order.iter().enumerate() {
            new[*node] = position;
        }
        let renumbered = |point: Point| match point {
            Point::Node(node) => Point::Node(new[node]),
            other => other,
        };
        let mut edges: Vec<Edge> = edges
            .into_iter()
            .map(|((from, to), jobs)| Edge { from: renumbered(from), to: renumbered(to), jobs })
            .collect();
        edges.sort_by_key(|edge| (edge.from, edge.to));
        let mut sorted: Vec<Node> = order.iter().map(|node| nodes[*node].to_node(one)).collect();
        for node in 0..sorted.len() {
            let before = edges.iter().filter_map(|edge| match (edge.from, edge.to) {
                (Point::Node(from), Point::Node(to)) if to == node && from < node => {
                    Some(sorted[from].level + 1)
                }
                _ => None,
            });
            sorted[node].level = before.max().unwrap_or(0);
        }
        Graph { jobs, nodes: sorted, edges }
    }

    /// A Mermaid flowchart, which GitHub and most wikis render.
    pub fn to_mermaid(&self, title: &str) -> String {
        mermaid::draw(self, title)
    }

    /// A self-contained SVG: no scripts, no fonts.
    pub fn to_svg(&self, title: &str) -> String {
        svg::draw(self, title)
    }

    /// The states in which jobs ended.
    fn ends(&self) -> Vec<State> {
        let mut states: Vec<State> = Vec::new();
        for edge in &self.edges {
            if let Point::End(state) = edge.to
                && !states.contains(&state)
            {
                states.push(state);
            }
        }
        states.sort_unstable();
        states
    }

    /// The call states that occur, in the order of a legend.
    fn legend(&self) -> Vec<CallState> {
        let occurs = |state: &CallState| self.nodes.iter().any(|node| node.fates.contains_key(state));
        CallState::ALL.into_iter().filter(occurs).collect()
    }
}

impl Node {
    /// The number of calls.
    pub fn calls(&self) -> u64 {
        self.fates.values().sum()
    }

    /// The call state that decides its colour: the most urgent one.
    fn colour(&self) -> CallState {
        let urgent = [
            CallState::NotUndone,
            CallState::Failed,
            CallState::Waiting,
            CallState::Tried,
            CallState::Undone,
            CallState::Done,
            CallState::Left,
        ];
        urgent.into_iter().find(|state| self.fates.contains_key(state)).unwrap_or(CallState::Done)
    }

    /// Its operation and the states of its calls, on one line.
    fn summary(&self) -> String {
        let count = |(state, calls): (&CallState, &u64)| match self.calls() {
            1 => state.name().to_owned(),
            _ => format!("{calls} {}", state.name()),
        };
        let states: Vec<String> = self.fates.iter().map(count).collect();
        format!("{}: {}", self.call_kind.to_string().replace('_', " "), states.join(", "))
    }
}

/// Several runs, overlaid.
#[derive(Default)]
struct Overlay {
    nodes: Vec<OverlayNode>,
    /// For each node, the sum of its first positions in runs, and in how many runs it occurs.
    positions: Vec<(usize, usize)>,
    edges: BTreeMap<(Point, Point), u64>,
}

struct OverlayNode {
    node: Node,
    /// Notes of single calls, shown only in the graph of one job.
    call_notes: Vec<String>,
}

impl OverlayNode {
    fn to_node(&self, one: bool) -> Node {
        let mut node = self.node.clone();
        node.notes.extend(node.children.as_ref().map(children));
        if one {
            node.notes.extend_from_slice(&self.call_notes);
        }
        node
    }
}

impl Overlay {
    fn add(&mut self, calls: &[Call], state: State) {
        let numbers: Vec<usize> = calls.iter().map(|call| self.node(call)).collect();
        let mut seen = BTreeSet::new();
        for (position, number) in numbers.iter().enumerate() {
            if seen.insert(*number) {
                self.positions[*number].0 += position;
                self.positions[*number].1 += 1;
            }
        }
        for edge in followed(calls, &numbers, state) {
            *self.edges.entry(edge).or_default() += 1;
        }
    }

    /// Counts a call in its node. Returns the node's number.
    fn node(&mut self, call: &Call) -> usize {
        let is_same =
            |known: &OverlayNode| known.node.call_kind == call.call_kind && known.node.name == call.name;
        let number = self.nodes.iter().position(is_same).unwrap_or_else(|| {
            let node = Node {
                call_kind: call.call_kind,
                name: call.name.clone(),
                fates: BTreeMap::new(),
                notes: Vec::new(),
                children: None,
                level: 0,
            };
            self.nodes.push(OverlayNode { node, call_notes: Vec::new() });
            self.positions.push((0, 0));
            self.nodes.len() - 1
        });
        let known = &mut self.nodes[number];
        *known.node.fates.entry(call.fate).or_default() += 1;
        if let Some(progress) = call.children {
            known.node.children =
                Some(BranchProgress::sum(&[known.node.children.unwrap_or_default(), progress]));
        }
        known.call_notes.extend(call.note());
        number
    }
}

/// The progress of a branch as text.
fn children(progress: &BranchProgress) -> String {
    let BranchProgress { spawned, counts } = progress;
    let mut text = if *spawned == 1 { "1 child".to_owned() } else { format!("{spawned} children") };
    for (count, how) in
        [(counts.failed, "failed"), (counts.cancelled, "cancelled"), (spawned - counts.ended(), "pending")]
    {
        if count > 0 {
            text += &format!(", {count} {how}");
        }
    }
    text
}

/// The direct successions in one run, as pairs of points.
fn followed(calls: &[Call], numbers: &[usize], state: State) -> BTreeSet<(Point, Point)> {
    let mut edges = BTreeSet::new();
    let mut ends: Vec<(i32, usize)> =
        calls.iter().enumerate().filter_map(|(place, call)| Some((call.last?, place))).collect();
    ends.sort_unstable();
    // For each end, the latest start among the calls that have ended by then.
    let mut latest = Vec::with_capacity(ends.len());
    for (_, place) in &ends {
        let before = latest.last().copied().unwrap_or(i32::MIN);
        latest.push(calls[*place].first.max(before));
    }
    let mut between = |first: i32, to: Point| {
        let before = ends.partition_point(|(last, _)| *last < first);
        // A call is no direct predecessor if another call started after its end and ended as well.
        let since = before.checked_sub(1).map_or(i32::MIN, |place| latest[place]);
        for (_, place) in ends[..before].iter().rev().take_while(|(last, _)| *last >= since) {
            let from = Point::Node(numbers[*place]);
            if from != to {
                edges.insert((from, to));
            }
        }
        if before == 0 {
            edges.insert((Point::Start, to));
        }
    };
    for (call, number) in calls.iter().zip(numbers) {
        between(call.first, Point::Node(*number));
    }
    if state.is_final() {
        between(i32::MAX, Point::End(state));
    }
    edges
}

/// Truncates a text.
fn short(text: &str, most: usize) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.chars().count() > most {
        true => plain.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => plain,
    }
}
