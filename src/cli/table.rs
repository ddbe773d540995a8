//! Tables for terminals, with aligned columns.

use std::ops::Range;

use serde::Serialize;

use crate::printable::{escaped, escaped_json};

/// Maximum width to which a column is padded, in characters.
const MAX_WIDTH: usize = 60;

/// Formats rows under headings. Invisible characters from clients are escaped, so that each cell is
/// as wide as it looks.
pub(super) fn of<const N: usize>(
    headings: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    aligned([headings.map(str::to_owned)].into_iter().chain(rows), |_| true)
}

/// Formats rows as [`of`] does, without the columns of `optional` in which all cells are `empty`.
pub(super) fn without_empty<const N: usize>(
    headings: [&str; N],
    rows: Vec<[String; N]>,
    optional: &Range<usize>,
    empty: &str,
) -> String {
    let used: Vec<bool> = (0..N)
        .map(|column| {
            let mut cells = rows.iter().filter_map(|row| row.get(column));
            !optional.contains(&column) || cells.any(|cell| cell != empty)
        })
        .collect();
    let rows = [headings.map(str::to_owned)].into_iter().chain(rows);
    aligned(rows, |column| used.get(column) == Some(&true))
}

fn aligned<const N: usize>(
    rows: impl Iterator<Item = [String; N]>,
    is_shown: impl Fn(usize) -> bool,
) -> String {
    let rows = rows.map(|row| row.map(|cell| escaped(&cell).into_owned()));
    let all: Vec<Vec<String>> = rows
        .map(|row| {
            let shown = row.into_iter().enumerate().filter(|(column, _)| is_shown(*column));
            shown.map(|(_, cell)| cell).collect()
        })
        .collect();
    let mut widths = [0; N];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().min(MAX_WIDTH).max(*width);
        }
    }
    let mut text = String::new();
    for row in &all {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats a value as indented JSON, with invisible characters escaped as in JSON.
pub(super) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    text.map_or_else(|error| format!("{error}\n"), |text| format!("{}\n", escaped_json(&text)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned_and_invisible_characters_are_escaped() {
        let rows =
            [["a", "long text", "x"], ["bcd", "\u{1b}[2J", ""], ["e", "\u{202e}\u{9b}", "\n"]];
        let text =
            super::of(["one", "two", ""], rows.map(|row| row.map(str::to_owned)).into_iter());
        let shown = [
            "one  two",
            "a    long text       x",
            "bcd  \\u{1b}[2J",
            "e    \\u{202e}\\u{9b}  \\n",
            "",
        ];
        assert_eq!(text, shown.join("\n"));
    }

    #[test]
    fn only_optional_columns_without_a_value_are_left_out() {
        let rows = [["-", "-", "-"], ["a", "-", "-"]].map(|row| row.map(str::to_owned));
        let text = super::without_empty(["one", "two", "three"], rows.to_vec(), &(0..2), "-");
        assert_eq!(text, "one  three\n-    -\na    -\n");
    }
}
