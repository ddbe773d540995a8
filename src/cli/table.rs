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
    let width = |column: usize| {
        let widths = all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        widths.max().unwrap_or_default().min(MAX_WIDTH)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all.iter().map(line).collect()
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
