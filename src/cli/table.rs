//! Tables for terminals, with aligned columns.

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
    let mut all: Vec<[String; N]> = vec![headings.map(str::to_owned)];
    all.extend(rows.map(|row| row.map(|cell| escaped(&cell).into_owned())));
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
}
