//! Text for terminals: columns that stand under each other.

use serde::Serialize;

/// Letters of one column, but for the last.
const MAX_WIDTH: usize = 60;

/// Rows under headings. What a caller has sent cannot move the cursor: signs that are none are shown as escapes.
pub(super) fn of<const N: usize>(headings: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut all: Vec<[String; N]> = vec![headings.map(str::to_owned)];
    all.extend(rows.map(|row| row.map(|cell| clean(&cell))));
    let width = |column: usize| {
        let widths = all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        widths.max().unwrap_or_default().min(MAX_WIDTH)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

/// `1 hit`, `7 hits`.
pub(super) fn counted(number: impl TryInto<u64>, word: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {word}{end}")
}

/// A value as JSON, to read.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).map_or_else(|error| format!("{error}\n"), |text| format!("{text}\n"))
}

/// A text without signs that would move the cursor: they are shown as escapes.
pub(super) fn clean(text: &str) -> String {
    text.chars().flat_map(shown).collect()
}

fn shown(letter: char) -> impl Iterator<Item = char> {
    let escaped = letter.is_control().then(|| letter.escape_default());
    let plain = (!letter.is_control()).then_some(letter);
    escaped.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_stand_under_each_other_and_nothing_moves_the_cursor() {
        let rows = [["a", "long text", "x"], ["bcd", "\u{1b}[2J", ""]].map(|row| row.map(str::to_owned));
        let text = super::of(["one", "two", ""], rows.into_iter());
        assert_eq!(text, "one  two\na    long text  x\nbcd  \\u{1b}[2J\n");
    }
}
