//! Tables that fit the terminal: columns that can give way are cut, and those that matter least are left out.

use console::{measure_text_width, truncate_str};

/// A column.
pub(crate) struct Column {
    /// Its heading.
    pub(crate) head: &'static str,
    /// How narrow it may become; `None` if it is shown whole or not at all.
    pub(crate) least: Option<usize>,
    /// Which column is left out first when there is no room: the highest number; 0 is never left out.
    pub(crate) expendable: u8,
    /// Whether it is set to the right, as numbers are.
    pub(crate) right: bool,
}

/// A column with a heading, shown whole, never left out.
pub(crate) const fn column(head: &'static str) -> Column {
    Column { head, least: None, expendable: 0, right: false }
}

/// A count that stops at `cap`.
pub(crate) fn capped(count: u64, cap: u64) -> String {
    crate::out::thousands(count.min(cap)) + if count >= cap { "+" } else { "" }
}

const GAP: &str = "  ";

/// Sets rows under their headings, in as many columns as there is room for.
pub(crate) fn set(columns: &[Column], rows: &[Vec<String>], room: Option<usize>) -> String {
    let natural = |index: usize| {
        let cells = rows.iter().map(|row| measure_text_width(&row[index]));
        cells.max().unwrap_or(0).max(columns[index].head.len())
    };
    let empty = |index: usize| rows.iter().all(|row| row[index].is_empty());
    let mut widths: Vec<(usize, usize)> =
        (0..columns.len()).filter(|index| !empty(*index)).map(|index| (index, natural(index))).collect();
    if let Some(room) = room {
        fit(columns, &mut widths, room);
    }
    let mut text = String::new();
    let head: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
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
    if column.right { pad + &text } else { text.into_owned() + &pad }
}

/// Leaves out the most expendable columns until the rest can fit, then narrows the widest of these until they do.
fn fit(columns: &[Column], widths: &mut Vec<(usize, usize)>, room: usize) {
    let least =
        |(index, width): &(usize, usize)| columns[*index].least.map_or(*width, |least| least.min(*width));
    let set = |widths: &mut dyn Iterator<Item = usize>| {
        widths.map(|width| width + GAP.len()).sum::<usize>() - GAP.len()
    };
    while set(&mut widths.iter().map(least)) > room {
        let expendable = |(_, (index, _)): &(usize, &(usize, usize))| columns[*index].expendable;
        match widths.iter().enumerate().max_by_key(expendable) {
            Some((place, (index, _))) if columns[*index].expendable > 0 => widths.remove(place),
            _ => break,
        };
    }
    while set(&mut widths.iter().map(|(_, width)| *width)) > room {
        let narrower = widths.iter_mut().filter(|column| column.1 > least(column));
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
            Column { least: Some(4), ..column("KEY") },
            Column { expendable: 1, right: true, ..column("TRIES") },
        ]
    }

    #[test]
    fn columns_are_cut_then_left_out_and_empty_ones_never_shown() {
        let rows = vec![vec!["abc".into(), "a-long-key".into(), "3".into()]];
        let set = |rows: &[Vec<String>], room| super::set(&columns(), rows, room);
        assert_eq!(set(&rows, None), "ID   KEY         TRIES\nabc  a-long-key      3\n");
        assert_eq!(set(&rows, Some(16)), "ID   KEY   TRIES\nabc  a-l…      3\n");
        assert_eq!(set(&rows, Some(13)), "ID   KEY\nabc  a-long-…\n");
        assert_eq!(set(&rows, Some(3)), "ID   KEY\nabc  a-l…\n");
        let rows = vec![vec!["abc".into(), String::new(), "3".into()]];
        assert_eq!(set(&rows, None), "ID   TRIES\nabc      3\n");
    }
}
