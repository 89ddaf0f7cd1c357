//! Renders a graph as a Mermaid flowchart.

use super::{Graph, Point, short};

/// How many characters of a text are drawn.
const LETTERS: usize = 60;
/// How many notes of a node are drawn.
const NOTES: usize = 3;

pub(super) fn draw(graph: &Graph, title: &str) -> String {
    let mut text = format!("%% {}\nflowchart TD\n    start((start))\n", short(title, 200));
    for (number, node) in graph.nodes.iter().enumerate() {
        let mut lines = vec![format!("<b>{}</b>", escaped(&node.name)), escaped(&node.summary())];
        lines.extend(node.notes.iter().take(NOTES).map(|note| escaped(note)));
        if node.notes.len() > NOTES {
            lines.push(format!("and {} more", node.notes.len() - NOTES));
        }
        let class = node.colour().name().replace(' ', "_");
        text += &format!("    n{number}[\"{}\"]:::{class}\n", lines.join("<br/>"));
    }
    for state in graph.ends() {
        text += &format!("    end_{state}(({state}))\n");
    }
    for edge in &graph.edges {
        let count = if graph.jobs > 1 { format!("|{}|", edge.jobs) } else { String::new() };
        text += &format!("    {} -->{count} {}\n", name(edge.from), name(edge.to));
    }
    for state in graph.legend() {
        let (fill, border) = state.colours();
        let class = state.name().replace(' ', "_");
        text += &format!("    classDef {class} fill:{fill},stroke:{border},color:#222\n");
    }
    text
}

fn name(point: Point) -> String {
    match point {
        Point::Start => "start".to_owned(),
        Point::Node(number) => format!("n{number}"),
        Point::End(state) => format!("end_{state}"),
    }
}

/// Escapes text within quotes: a character that would end them, or that Mermaid interprets, becomes an entity.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for c in short(text, LETTERS).chars() {
        match c {
            '"' => safe += "#quot;",
            '<' => safe += "#lt;",
            '>' => safe += "#gt;",
            '&' => safe += "#amp;",
            '#' | ';' | '`' | '\\' | '[' | ']' | '{' | '}' | '|' => safe += &format!("#{};", c as u32),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_box() {
        assert_eq!(escaped("a\"]; <b> #1 `x`\n&"), "a#quot;#93;#59; #lt;b#gt; #35;1 #96;x#96; #amp;");
        assert_eq!(escaped(&"x".repeat(70)).chars().count(), 60);
    }
}
