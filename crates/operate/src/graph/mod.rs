//! The graph of a workflow, read from journals: what one job did, or what the jobs of a kind did.
//!
//! Only what happened is in it: a path that no job has gone is not known to the store. Calls of one name are one node,
//! whatever their keys. Which calls were under way together is told by the places of their entries: a call stands after
//! another if its first entry follows the other's end.

mod mermaid;
mod read;
mod svg;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use windlass_model::{JournalEntry, State, WaitCondition, journal::CallKind, merge::BranchProgress};
use windlass_store::Branch;

use read::Call;

/// What is known of one job.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Its journal.
    pub entries: &'a [JournalEntry],
    /// Where it stands.
    pub state: State,
    /// What it waits for.
    pub wait: Option<&'a WaitCondition>,
    /// Its branches.
    pub branches: &'a [Branch],
}

/// The calls of a workflow, and in which order they were made.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Graph {
    /// How many jobs it is made of.
    pub jobs: u64,
    /// The calls, in the order in which they were made.
    pub nodes: Vec<Node>,
    /// What followed what.
    pub edges: Vec<Edge>,
}

/// All calls of one name.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Node {
    /// What was called.
    pub op: CallKind,
    /// Its name.
    pub name: String,
    /// How far the calls got: how many there are of each.
    pub fates: BTreeMap<CallState, u64>,
    /// What else there is to say of it.
    pub notes: Vec<String>,
    /// Of a branch: how its children have ended, of all jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<BranchProgress>,
    /// How far from the beginning it stands, from 0. Those of one level are side by side.
    pub level: usize,
}

/// How far a call got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It ended well.
    Done,
    /// It ended badly.
    Failed,
    /// It is waited for.
    Waiting,
    /// A try at it failed, and another follows.
    Tried,
    /// It ended well, and was undone.
    Undone,
    /// It ended well, and could not be undone.
    NotUndone,
    /// Nobody waits for its end any more: another was first, or the job has ended.
    Left,
}

/// That one thing followed another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Edge {
    /// From where.
    pub from: Point,
    /// To where.
    pub to: Point,
    /// In how many jobs.
    pub jobs: u64,
}

/// A place in a graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
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
    /// All of them, in the order in which a legend has them.
    pub const ALL: [CallState; 7] = [
        CallState::Done,
        CallState::Failed,
        CallState::Waiting,
        CallState::Tried,
        CallState::Undone,
        CallState::NotUndone,
        CallState::Left,
    ];

    /// What it is called.
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

    /// The colours of its box: inside, and of its border.
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
    /// What one job did.
    pub fn of_job(run: Run<'_>) -> Graph {
        Graph::of_kind([run])
    }

    /// What several jobs did, one over the other.
    pub fn of_kind<'a>(runs: impl IntoIterator<Item = Run<'a>>) -> Graph {
        let mut gathered = Gathered::default();
        let mut jobs = 0;
        for run in runs {
            jobs += 1;
            gathered.add(&read::calls(run), run.state);
        }
        let one = jobs == 1;
        let Gathered { nodes, places, edges } = gathered;
        // In the order in which they are come by, on average.
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        let mean = |node: usize| places[node].0 as f64 / places[node].1 as f64;
        order.sort_by(|a, b| mean(*a).total_cmp(&mean(*b)).then(a.cmp(b)));
        let mut new = vec![0; nodes.len()];
        for (place, node) in order.iter().enumerate() {
            new[*node] = place;
        }
        let moved = |point: Point| match point {
            Point::Node(node) => Point::Node(new[node]),
            other => other,
        };
        let mut edges: Vec<Edge> = edges
            .into_iter()
            .map(|((from, to), jobs)| Edge { from: moved(from), to: moved(to), jobs })
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

    /// As a Mermaid flowchart, which GitHub and most wikis draw.
    pub fn to_mermaid(&self, title: &str) -> String {
        mermaid::draw(self, title)
    }

    /// As a picture that needs nothing else: no scripts, no fonts.
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

    /// The fates that occur, in the order of a legend.
    fn legend(&self) -> Vec<CallState> {
        let occurs = |fate: &CallState| self.nodes.iter().any(|node| node.fates.contains_key(fate));
        CallState::ALL.into_iter().filter(occurs).collect()
    }
}

impl Node {
    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.fates.values().sum()
    }

    /// The fate that it is coloured by: the one that most needs to be seen.
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
        urgent.into_iter().find(|fate| self.fates.contains_key(fate)).unwrap_or(CallState::Done)
    }

    /// What it is and how far it got, in a line.
    fn about(&self) -> String {
        let count = |(fate, calls): (&CallState, &u64)| match self.calls() {
            1 => fate.name().to_owned(),
            _ => format!("{calls} {}", fate.name()),
        };
        let fates: Vec<String> = self.fates.iter().map(count).collect();
        format!("{}: {}", self.op.to_string().replace('_', " "), fates.join(", "))
    }
}

/// What is gathered of several runs.
#[derive(Default)]
struct Gathered {
    nodes: Vec<Gathering>,
    /// The sum of the places at which a node first stands in a run, and in how many it does.
    places: Vec<(usize, usize)>,
    edges: BTreeMap<(Point, Point), u64>,
}

struct Gathering {
    node: Node,
    /// Notes of single calls: they are shown of one job only.
    own: Vec<String>,
}

impl Gathering {
    fn to_node(&self, one: bool) -> Node {
        let mut node = self.node.clone();
        node.notes.extend(node.children.as_ref().map(children));
        if one {
            node.notes.extend_from_slice(&self.own);
        }
        node
    }
}

impl Gathered {
    fn add(&mut self, calls: &[Call], state: State) {
        let numbers: Vec<usize> = calls.iter().map(|call| self.node(call)).collect();
        let mut met = BTreeSet::new();
        for (place, number) in numbers.iter().enumerate() {
            if met.insert(*number) {
                self.places[*number].0 += place;
                self.places[*number].1 += 1;
            }
        }
        for edge in followed(calls, &numbers, state) {
            *self.edges.entry(edge).or_default() += 1;
        }
    }

    /// The node of a call, with the call counted in.
    fn node(&mut self, call: &Call) -> usize {
        let is_it = |known: &Gathering| known.node.op == call.op && known.node.name == call.name;
        let number = self.nodes.iter().position(is_it).unwrap_or_else(|| {
            let node = Node {
                op: call.op,
                name: call.name.clone(),
                fates: BTreeMap::new(),
                notes: Vec::new(),
                children: None,
                level: 0,
            };
            self.nodes.push(Gathering { node, own: Vec::new() });
            self.places.push((0, 0));
            self.nodes.len() - 1
        });
        let known = &mut self.nodes[number];
        *known.node.fates.entry(call.fate).or_default() += 1;
        if let Some(stand) = call.children {
            known.node.children =
                Some(BranchProgress::sum(&[known.node.children.unwrap_or_default(), stand]));
        }
        known.own.extend(call.note());
        number
    }
}

/// How many children a branch has, and how they have ended.
fn children(stand: &BranchProgress) -> String {
    let BranchProgress { spawned, counts } = stand;
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

/// What directly followed what in one run, as pairs of nodes.
fn followed(calls: &[Call], numbers: &[usize], state: State) -> BTreeSet<(Point, Point)> {
    let mut edges = BTreeSet::new();
    let mut ends: Vec<(i32, usize)> =
        calls.iter().enumerate().filter_map(|(place, call)| Some((call.last?, place))).collect();
    ends.sort_unstable();
    // The latest beginning among the calls that have ended by each of those.
    let mut latest = Vec::with_capacity(ends.len());
    for (_, place) in &ends {
        let before = latest.last().copied().unwrap_or(i32::MIN);
        latest.push(calls[*place].first.max(before));
    }
    let mut between = |first: i32, to: Point| {
        let before = ends.partition_point(|(last, _)| *last < first);
        // Those that something else stands after, which itself had ended, are not the direct ones.
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

/// Text that is cut when it is too long.
fn short(text: &str, most: usize) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.chars().count() > most {
        true => plain.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => plain,
    }
}
