//! Diagrams: the stages of a machine, the calls of a workflow, with the way of one job drawn over them.
//!
//! [`layers`](super::layers) decides where boxes and edges are. A graph runs to the right if that fits a page, and down otherwise.

use askama::{Template, filters::HtmlSafe};

use super::{
    bars::round,
    html::Html,
    icon::Icon,
    layers::{self, Flow, Layout, Link, Size},
    parts::Tone,
};

/// The width of a letter of a name and of small text, nearly always at most.
const LETTER: f64 = 7.4;
const SMALL_LETTER: f64 = 6.1;
/// The room of an icon.
const ICON: f64 = 16.0;
/// Characters of a name and of the line below it.
const NAME: usize = 26;
const UNDER: usize = 34;
/// A graph that is wider than this runs down.
const WIDE: f64 = 860.0;
/// The width of a panel on a phone.
const PHONE: f64 = 332.0;

/// A graph with its layout.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/diagram.html")]
pub(crate) struct Diagram {
    /// What it shows, in a sentence.
    sentence: String,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    layout: Layout,
    /// That of a phone, if the other one runs to the right.
    narrow: Option<Layout>,
}

impl HtmlSafe for Diagram {}

/// A box.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// A second line: "here for 2 d 4 h", "3 attempts". May be empty.
    pub(crate) under: String,
    pub(crate) appearance: Appearance,
    pub(crate) icon: Option<Icon>,
    pub(crate) href: Option<String>,
}

/// How a box looks.
#[allow(dead_code, reason = "a part that no page uses yet")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Appearance {
    /// The dot where the graph begins.
    Start,
    /// The ring where it ends.
    End,
    /// The job was here.
    Passed,
    /// The job is here, and this is how it is.
    Here(Tone),
    /// It ended badly here.
    Failed,
    /// Only others came here.
    Apart,
    /// Nothing is said of one job.
    Plain,
}

/// An edge between boxes, by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// How often, or by what: "×842". May be empty.
    pub(crate) label: String,
    /// Whether the job took it.
    pub(crate) is_taken: bool,
}

impl Diagram {
    pub(crate) fn new(sentence: &str, nodes: Vec<Node>, edges: Vec<Edge>) -> Diagram {
        let sizes: Vec<Size> = nodes.iter().map(Node::size).collect();
        let link = |edge: &Edge| Link { from: edge.from, to: edge.to, label: edge.label_width() };
        let links: Vec<Link> = edges.iter().map(link).collect();
        let right = layers::layout(&sizes, &links, Flow::Right);
        let down = layers::layout(&sizes, &links, Flow::Down);
        let (layout, narrow) = match right.width > WIDE && right.layers > 3 {
            true => (down, None),
            false => (right, Some(down)),
        };
        let narrow = narrow.filter(|down| layout.width > PHONE && down.width < layout.width);
        Diagram { sentence: sentence.to_owned(), nodes, edges, layout, narrow }
    }

    /// The drawings and their classes: one is shown.
    fn drawings(&self) -> Vec<(&'static str, Drawing<'_>)> {
        let drawing = |layout| Drawing { nodes: &self.nodes, edges: &self.edges, layout };
        let narrow = self.narrow.iter().map(|layout| (" narrow", drawing(layout)));
        std::iter::once(("", drawing(&self.layout))).chain(narrow).collect()
    }
}

/// A graph with one of its layouts.
struct Drawing<'a> {
    nodes: &'a [Node],
    edges: &'a [Edge],
    layout: &'a Layout,
}

impl Drawing<'_> {
    fn width(&self) -> u32 {
        self.layout.width.ceil() as u32
    }

    fn height(&self) -> u32 {
        self.layout.height.ceil() as u32
    }

    /// The edges: path, classes, label and where it is. Taken ones are last, so that they are drawn over the others.
    fn edges(&self) -> Vec<(&str, &'static str, &str, f64, f64)> {
        let mut drawn: Vec<_> = self
            .edges
            .iter()
            .zip(&self.layout.routes)
            .map(|(edge, route)| {
                let class = if edge.is_taken { "taken" } else { "" };
                (route.path.as_str(), class, edge.label.as_str(), route.label.0, route.label.1)
            })
            .collect();
        drawn.sort_by_key(|(_, class, ..)| *class == "taken");
        drawn
    }

    fn nodes(&self) -> Vec<DrawnNode<'_>> {
        self.nodes.iter().zip(&self.layout.places).map(|(node, place)| DrawnNode::new(node, *place)).collect()
    }
}

/// A box with its place.
struct DrawnNode<'a> {
    node: &'a Node,
    shape: Html,
    /// The middle of its text.
    x: f64,
    y: f64,
    /// Its icon and where that is.
    icon: Option<(&'static str, f64, f64)>,
}

impl DrawnNode<'_> {
    fn new(node: &Node, place: layers::Place) -> DrawnNode<'_> {
        let layers::Place { x: left, y: top, width, height } = place;
        let (x, y) = (round(left + width / 2.0), round(top + height / 2.0));
        let shape = match node.appearance {
            Appearance::Start => format!("<circle class=\"dot\" cx=\"{x}\" cy=\"{y}\" r=\"5\"/>"),
            Appearance::End => {
                let circle =
                    |class, r| format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\"/>");
                circle("ring", 7.0) + &circle("dot", 3.5)
            }
            _ => format!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"6\"/>"
            ),
        };
        let aside = if node.icon.is_some() { ICON / 2.0 } else { 0.0 };
        let icon = node.icon.map(|icon| (icon.name(), round(left + 9.0), round(y - 7.0)));
        DrawnNode { node, shape: Html::trusted(shape), x: x + aside, y, icon }
    }
}

impl Node {
    fn is_box(&self) -> bool {
        !matches!(self.appearance, Appearance::Start | Appearance::End)
    }

    fn size(&self) -> Size {
        if !self.is_box() {
            return Size { width: 16.0, height: 16.0 };
        }
        let icon = if self.icon.is_some() { ICON } else { 0.0 };
        let name = letters(&self.short_name(), LETTER);
        let under = letters(&self.short_under(), SMALL_LETTER);
        let height = if self.under.is_empty() { 34.0 } else { 44.0 };
        Size { width: (name.max(under) + icon + 26.0).max(88.0).round(), height }
    }

    fn class(&self) -> &'static str {
        match self.appearance {
            Appearance::Start => "start",
            Appearance::End => "end",
            Appearance::Passed => "passed t-ok",
            Appearance::Here(tone) => match tone {
                Tone::Run => "here t-run",
                Tone::Ok => "here t-ok",
                Tone::Bad => "here t-bad",
                Tone::Warn => "here t-warn",
                Tone::Wait => "here t-wait",
                Tone::Idle => "here t-idle",
            },
            Appearance::Failed => "here t-bad",
            Appearance::Apart => "apart",
            Appearance::Plain => "plain",
        }
    }

    fn short_name(&self) -> String {
        cut(&self.name, NAME)
    }

    fn short_under(&self) -> String {
        cut(&self.under, UNDER)
    }
}

impl Edge {
    fn label_width(&self) -> f64 {
        if self.label.is_empty() { 0.0 } else { letters(&self.short_label(), SMALL_LETTER) }
    }

    fn short_label(&self) -> String {
        cut(&self.label, UNDER)
    }
}

fn letters(text: &str, width: f64) -> f64 {
    text.chars().count() as f64 * width
}

/// Text of a user within an SVG: one line, without control characters.
fn cut(text: &str, most: usize) -> String {
    let mut plain: String = text
        .chars()
        .take(most + 1)
        .map(|c| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { '␦' } else { c })
        .collect();
    if plain.chars().count() > most {
        plain = plain.chars().take(most - 1).chain(['…']).collect();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        Node {
            name: name.into(),
            under: String::new(),
            appearance: Appearance::Passed,
            icon: None,
            href: None,
        }
    }

    fn edge(from: usize, to: usize) -> Edge {
        Edge { from, to, label: "×842".into(), is_taken: true }
    }

    #[test]
    fn long_graphs_run_down_and_short_ones_to_the_right() {
        let chain = |length: usize| {
            let nodes = (0..length).map(|n| node(&format!("Stage{n}"))).collect();
            Diagram::new("A chain", nodes, (1..length).map(|n| edge(n - 1, n)).collect())
        };
        assert!(chain(4).layout.width > chain(4).layout.height);
        assert!(chain(12).layout.height > chain(12).layout.width);
    }

    #[test]
    fn names_of_users_are_cut_and_escaped() {
        let diagram =
            Diagram::new("One", vec![node("<b>\u{202e}a\nb"), node(&"x".repeat(10_000))], vec![edge(0, 1)]);
        let html = diagram.to_string();
        assert!(html.contains("&#60;b&#62;␦a␦b"), "{html}");
        assert!(html.len() < 3_000, "{} bytes", html.len());
    }
}
