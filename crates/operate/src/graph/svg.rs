//! Renders a graph as SVG: levels from top to bottom, calls of one level side by side, edges that skip a level at the sides.

use windlass_model::State;

use super::{CallState, Edge, Graph, Node, Point, short};

/// Sizes, in pixels.
const WIDTH: f64 = 276.0;
const HEIGHT: f64 = 64.0;
const ROUND: f64 = 40.0;
const PILL: f64 = 92.0;
const APART: f64 = 32.0;
const BELOW: f64 = 44.0;
const MARGIN: f64 = 28.0;
const TOP: f64 = 56.0;
/// How far one edge at the side is from the next.
const LANE: f64 = 18.0;
/// How high a legend is.
const LEGEND: f64 = 52.0;
/// How wide a character of the title is, nearly always at most.
const LETTER: f64 = 9.0;

/// How many characters of a name, and of the lines below it, fit.
const NAME: usize = 30;
const LINE: usize = 40;

struct Layout {
    /// The middle of each node and its top.
    nodes: Vec<(f64, f64)>,
    start: (f64, f64),
    ends: Vec<(State, f64, f64)>,
    /// Where the boxes begin and end.
    left: f64,
    right: f64,
    width: f64,
    height: f64,
}

pub(super) fn draw(graph: &Graph, title: &str) -> String {
    let sides: Vec<Side> = graph.edges.iter().map(|edge| side(graph, edge)).collect();
    let layout = compute_layout(graph, &sides, title);
    let (width, height) = (layout.width, layout.height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\" role=\"img\">\n\
         <title>{title}</title>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"#667\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"32\" font-size=\"14\" font-weight=\"600\" fill=\"#222\">{title}</text>\n",
        title = escaped(&short(title, 200)),
    );
    let (mut left, mut right) = (0.0, 0.0);
    for (edge, side) in graph.edges.iter().zip(&sides) {
        let lane = match side {
            Side::Straight => 0.0,
            Side::Left => {
                left += LANE;
                layout.left - left
            }
            Side::Right => {
                right += LANE;
                layout.right + right
            }
        };
        svg += &path(graph, edge, side, lane, &layout);
    }
    svg += &circle(layout.start, "start", "#445");
    for (state, x, y) in &layout.ends {
        let colour = match state {
            State::Done => CallState::Done.colours().1,
            State::Failed => CallState::Failed.colours().1,
            _ => CallState::Left.colours().1,
        };
        svg += &circle((*x, *y), &state.to_string(), colour);
    }
    for (node, position) in graph.nodes.iter().zip(&layout.nodes) {
        svg += &node_box(node, *position);
    }
    svg + &legend(graph, height) + "</svg>\n"
}

/// The route of an edge: straight down to the next level, or past others at a side.
enum Side {
    Straight,
    Left,
    Right,
}

fn side(graph: &Graph, edge: &Edge) -> Side {
    let deepest = graph.nodes.iter().map(|node| node.level + 2).max().unwrap_or(1);
    let level = |point: Point| match point {
        Point::Start => 0,
        Point::Node(node) => graph.nodes[node].level + 1,
        Point::End(_) => deepest,
    };
    match (level(edge.from), level(edge.to)) {
        (from, to) if to == from + 1 => Side::Straight,
        (from, to) if to > from => Side::Right,
        _ => Side::Left,
    }
}

fn compute_layout(graph: &Graph, sides: &[Side], title: &str) -> Layout {
    let levels = graph.nodes.iter().map(|node| node.level + 1).max().unwrap_or(0);
    let of = |level: usize| graph.nodes.iter().enumerate().filter(move |(_, node)| node.level == level);
    let wide = |boxes: usize| boxes as f64 * (WIDTH + APART) - APART;
    let most = (0..levels).map(|level| of(level).count()).max().unwrap_or(1).max(1);
    let lanes = |is: fn(&Side) -> bool| match sides.iter().filter(|side| is(side)).count() {
        0 => 0.0,
        lanes => (lanes as f64 + 1.0) * LANE,
    };
    let (before, after) =
        (lanes(|side| matches!(side, Side::Left)), lanes(|side| matches!(side, Side::Right)));
    let words = title.chars().count().min(200) as f64 * LETTER + 2.0 * MARGIN;
    let drawn = before + wide(most) + after + 2.0 * MARGIN;
    let legend = graph.legend().into_iter().map(room).sum::<f64>() + MARGIN;
    let width = drawn.max(words).max(legend);
    let left = MARGIN + before + (width - drawn) / 2.0;
    let right = left + wide(most);
    let middle = (left + right) / 2.0;
    let mut nodes = vec![(0.0, 0.0); graph.nodes.len()];
    let mut y = TOP + ROUND + BELOW;
    for level in 0..levels {
        let count = of(level).count();
        let begin = middle - wide(count) / 2.0 + WIDTH / 2.0;
        for (place, (node, _)) in of(level).enumerate() {
            nodes[node] = (begin + place as f64 * (WIDTH + APART), y);
        }
        y += HEIGHT + BELOW;
    }
    let states = graph.ends();
    let begin = middle - (states.len().saturating_sub(1)) as f64 * 60.0;
    let ends: Vec<(State, f64, f64)> =
        states.iter().enumerate().map(|(place, state)| (*state, begin + place as f64 * 120.0, y)).collect();
    if !ends.is_empty() {
        y += ROUND + BELOW;
    }
    Layout { nodes, start: (middle, TOP), ends, left, right, width, height: y - BELOW / 2.0 + LEGEND }
}

fn path(graph: &Graph, edge: &Edge, side: &Side, lane: f64, layout: &Layout) -> String {
    // The middle, top and bottom of a place, and half its width.
    let place = |point: Point| match point {
        Point::Start => (layout.start.0, layout.start.1, ROUND, PILL / 2.0),
        Point::Node(node) => (layout.nodes[node].0, layout.nodes[node].1, HEIGHT, WIDTH / 2.0),
        Point::End(state) => {
            let end = layout.ends.iter().find(|(known, ..)| *known == state);
            end.map_or((0.0, 0.0, ROUND, 0.0), |(_, x, y)| (*x, *y, ROUND, PILL / 2.0))
        }
    };
    let ((x1, top1, high1, half1), (x2, top2, high2, half2)) = (place(edge.from), place(edge.to));
    let (path, at) = match side {
        Side::Straight => {
            let (y1, y2) = (top1 + high1, top2 - 3.0);
            let bend = (y2 - y1) * 0.55;
            (
                format!(
                    "M{x1:.1} {y1:.1} C{x1:.1} {:.1} {x2:.1} {:.1} {x2:.1} {y2:.1}",
                    y1 + bend,
                    y2 - bend
                ),
                ((x1 + x2) / 2.0, (y1 + y2) / 2.0),
            )
        }
        Side::Left | Side::Right => {
            let way = if matches!(side, Side::Left) { -1.0 } else { 1.0 };
            let (y1, y2) = (top1 + high1 * 0.7, top2 + high2 * 0.3);
            let (from, to) = (x1 + way * half1, x2 + way * (half2 + 3.0));
            (
                format!(
                    "M{from:.1} {y1:.1} C{lane:.1} {y1:.1} {lane:.1} {y1:.1} {lane:.1} {:.1} L{lane:.1} {:.1} C{lane:.1} \
                     {y2:.1} {lane:.1} {y2:.1} {to:.1} {y2:.1}",
                    y1 + (y2 - y1).signum() * 22.0,
                    y2 - (y2 - y1).signum() * 22.0,
                ),
                (lane, (y1 + y2) / 2.0),
            )
        }
    };
    let mut text = format!(
        "<path d=\"{path}\" fill=\"none\" stroke=\"#667\" stroke-width=\"1.4\" marker-end=\"url(#tip)\"/>\n"
    );
    if graph.jobs > 1 {
        text += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#223\" stroke=\"#fff\" \
             stroke-width=\"4\" paint-order=\"stroke\">{}</text>\n",
            at.0,
            at.1 + 4.0,
            edge.jobs
        );
    }
    text
}

fn circle((x, y): (f64, f64), name: &str, colour: &str) -> String {
    let radius = ROUND / 2.0;
    let middle = y + radius;
    format!(
        "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{PILL}\" height=\"{ROUND}\" rx=\"{radius}\" fill=\"#fff\" stroke=\"{colour}\" \
         stroke-width=\"2\"/>\n<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"13\" text-anchor=\"middle\" fill=\"{colour}\">{}</text>\n",
        x - PILL / 2.0,
        middle + 4.5,
        escaped(name)
    )
}

fn node_box(node: &Node, (x, y): (f64, f64)) -> String {
    let (fill, border) = node.colour().colours();
    let left = x - WIDTH / 2.0;
    let calls = node.calls();
    let times = if calls > 1 { format!(" ×{calls}") } else { String::new() };
    let name = short(&node.name, NAME - times.chars().count()) + &times;
    let all: Vec<&str> = node.notes.iter().map(String::as_str).collect();
    let mut tooltip = format!("{}\n{}", node.name, node.summary());
    for note in &all {
        tooltip += &format!("\n{note}");
    }
    let note = match all.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, rest @ ..] => format!("{}, and {} more", short(first, LINE - 14), rest.len()),
    };
    let dashed = if node.colour() == CallState::Left { " stroke-dasharray=\"5 4\"" } else { "" };
    let first = if note.is_empty() { y + 27.0 } else { y + 22.0 };
    let mut text = format!(
        "<g><title>{}</title><rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\" fill=\"{fill}\" \
         stroke=\"{border}\" stroke-width=\"1.6\"{dashed}/>\n\
         <text x=\"{x:.1}\" y=\"{first:.1}\" font-size=\"14\" font-weight=\"600\" text-anchor=\"middle\" fill=\"#1d1d22\">{}</text>\n\
         <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"12\" text-anchor=\"middle\" fill=\"#3a3a44\">{}</text>\n",
        escaped_lines(&tooltip),
        escaped(&name),
        first + 18.0,
        escaped(&short(&node.summary(), LINE)),
    );
    if !note.is_empty() {
        text += &format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10.5\" text-anchor=\"middle\" fill=\"#55555f\">{}</text>\n",
            first + 34.0,
            escaped(&short(&note, LINE + 4))
        );
    }
    if node.fates.len() > 1 {
        text += &shares(node, left, y + HEIGHT - 5.0, calls);
    }
    text + "</g>\n"
}

/// A bar with the share of each call state.
fn shares(node: &Node, left: f64, y: f64, calls: u64) -> String {
    let room = WIDTH - 16.0;
    let mut x = left + 8.0;
    let mut text = String::new();
    for (state, count) in &node.fates {
        let width = room * *count as f64 / calls as f64;
        let colour = state.colours().1;
        text += &format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"3\" fill=\"{colour}\"/>\n"
        );
        x += width;
    }
    text
}

fn legend(graph: &Graph, height: f64) -> String {
    let y = height - 24.0;
    let mut x = MARGIN;
    let mut text = String::new();
    for state in graph.legend() {
        let (fill, border) = state.colours();
        let dashed = if state == CallState::Left { " stroke-dasharray=\"3 2\"" } else { "" };
        let words = meaning(state);
        text += &format!(
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{fill}\" stroke=\"{border}\"{dashed}/>\n\
             <text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"12\" fill=\"#3a3a44\">{}</text>\n",
            y - 11.5,
            x + 19.0,
            words
        );
        x += room(state);
    }
    text
}

/// The meaning of a colour.
fn meaning(state: CallState) -> &'static str {
    match state {
        CallState::Left => "left: nobody waits for it",
        state => state.name(),
    }
}

/// How wide that is in a legend.
fn room(state: CallState) -> f64 {
    34.0 + meaning(state).len() as f64 * 7.0
}

/// Escapes text for XML; characters that it cannot have are removed by [`short`].
fn escaped(text: &str) -> String {
    escaped_lines(&short(text, usize::MAX))
}

fn escaped_lines(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            '\n' => safe.push('\n'),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
