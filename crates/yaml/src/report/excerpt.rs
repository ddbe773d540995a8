//! A line of a file as a report shows it.

use tollgate_core::printable::is_invisible;

/// Maximum number of columns shown of a long line, around the caret.
const MAX_COLUMNS: usize = 140;
/// Maximum number of characters shown of a text from a file.
pub(super) const MAX_SHOWN: usize = 60;

/// A line and its marked part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) line: String,
    pub(super) indent: usize,
    pub(super) carets: usize,
}

impl Excerpt {
    pub(super) fn of(
        line: impl Iterator<Item = char> + Clone,
        indent: usize,
        carets: usize,
    ) -> Self {
        let is_long = line.clone().nth(MAX_COLUMNS).is_some();
        // Show at most a third of the columns before the caret.
        let cut = if is_long { indent.saturating_sub(MAX_COLUMNS / 3) } else { 0 };
        let mut shown = if cut > 0 { "...".to_owned() } else { String::new() };
        let indent = indent.saturating_sub(cut).saturating_add(shown.len());
        let mut line = line.skip(cut).map(printable);
        shown.extend(line.by_ref().take(MAX_COLUMNS));
        if line.next().is_some() {
            shown.push_str("...");
        }
        let carets = carets.min(MAX_COLUMNS.saturating_sub(indent)).max(1);
        Self { line: shown.trim_end().to_owned(), indent, carets }
    }
}

/// Returns the character to show: one column for a tab, and nothing that could control the
/// terminal.
fn printable(letter: char) -> char {
    match letter {
        '\t' => ' ',
        letter if is_invisible(letter) => '\u{fffd}',
        letter => letter,
    }
}

/// Returns a text from a file as messages show it, cut to the length of a line.
pub fn shown(text: &str) -> String {
    let mut letters = text.chars().map(printable);
    let mut shown: String = letters.by_ref().take(MAX_SHOWN).collect();
    if letters.next().is_some() {
        shown.push_str("...");
    }
    shown
}
