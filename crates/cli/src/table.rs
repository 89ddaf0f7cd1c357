//! Tables that fit the terminal: wide columns are truncated, and the least important ones are left out.

use console::{measure_text_width, truncate_str};
use windlass::operate::views::CAP;

/// A column.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// How narrow it may become; `None` if it is never truncated.
    pub(crate) min_width: Option<usize>,
    /// The column with the highest number is left out first; 0 is never left out.
    pub(crate) expendable: u8,
    pub(crate) align_right: bool,
}

/// A column that is never truncated or left out.
pub(crate) const fn column(heading: &'static str) -> Column {
    Column { heading, min_width: None, expendable: 0, align_right: false }
}

/// A count that stops at [`CAP`].
pub(crate) fn capped(count: u64) -> String {
    crate::out::thousands(count.min(CAP)) + if count >= CAP { "+" } else { "" }
}

const GAP: &str = "  ";

/// Renders rows under their headings. Empty columns are left out.
pub(crate) fn render(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let natural = |index: usize| {
        let cells = rows.iter().map(|row| measure_text_width(&row[index]));
        cells.max().unwrap_or(0).max(columns[index].heading.len())
    };
    let empty = |index: usize| rows.iter().all(|row| row[index].is_empty());
    let mut widths: Vec<(usize, usize)> =
        (0..columns.len()).filter(|index| !empty(*index)).map(|index| (index, natural(index))).collect();
    if let Some(width) = width {
        fit(columns, &mut widths, width);
    }
    let mut text = String::new();
    let headings: Vec<String> = columns.iter().map(|column| column.heading.to_owned()).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let cells: Vec<String> =
            widths.iter().map(|(index, width)| cell(&row[*index], *width, &columns[*index])).collect();
        text += cells.join(GAP).trim_end();
        text.push('\n');
    }
    text
}

fn cell(text: &str, width: usize, column: &Column) -> String {
    let text = truncate_str(text, width, "…");
    let pad = " ".repeat(width.saturating_sub(measure_text_width(&text)));
    if column.align_right { pad + &text } else { text.into_owned() + &pad }
}

/// Leaves out the most expendable columns until the rest can fit, then narrows the widest of them until they do.
fn fit(columns: &[Column], widths: &mut Vec<(usize, usize)>, available: usize) {
    let min_width =
        |(index, width): &(usize, usize)| columns[*index].min_width.map_or(*width, |min| min.min(*width));
    let total = |widths: &mut dyn Iterator<Item = usize>| {
        widths.map(|width| width + GAP.len()).sum::<usize>() - GAP.len()
    };
    while total(&mut widths.iter().map(min_width)) > available {
        let expendable = |(_, (index, _)): &(usize, &(usize, usize))| columns[*index].expendable;
        match widths.iter().enumerate().max_by_key(expendable) {
            Some((position, (index, _))) if columns[*index].expendable > 0 => widths.remove(position),
            _ => break,
        };
    }
    while total(&mut widths.iter().map(|(_, width)| *width)) > available {
        let narrower = widths.iter_mut().filter(|column| column.1 > min_width(column));
        match narrower.max_by_key(|(_, width)| *width) {
            Some((_, width)) => *width -= 1,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> [Column; 3] {
        [
            column("ID"),
            Column { min_width: Some(4), ..column("KEY") },
            Column { expendable: 1, align_right: true, ..column("TRIES") },
        ]
    }

    #[test]
    fn columns_are_truncated_then_left_out_and_empty_ones_are_never_shown() {
        let rows = vec![vec!["abc".into(), "a-long-key".into(), "3".into()]];
        let render = |rows: &[Vec<String>], width| super::render(&columns(), rows, width);
        assert_eq!(render(&rows, None), "ID   KEY         TRIES\nabc  a-long-key      3\n");
        assert_eq!(render(&rows, Some(16)), "ID   KEY   TRIES\nabc  a-l…      3\n");
        assert_eq!(render(&rows, Some(13)), "ID   KEY\nabc  a-long-…\n");
        assert_eq!(render(&rows, Some(3)), "ID   KEY\nabc  a-l…\n");
        let rows = vec![vec!["abc".into(), String::new(), "3".into()]];
        assert_eq!(render(&rows, None), "ID   TRIES\nabc      3\n");
    }
}
