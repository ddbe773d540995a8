//! The pages of `docs/reference`, generated from the code's own tables so that they cannot diverge.

mod api;
mod commands;
mod holds;
mod leases;
mod metrics;
mod policy;

use serde_json::Value;

/// Formats a Markdown table; each row has as many cells as the header.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rows: Vec<_> = rows.into_iter().collect();
    let rule = format!("|{}\n", "---|".repeat(N));
    let head = line(&head.map(str::to_owned));
    head + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// Formats text for a table cell: on one line, with Markdown and HTML escaped except for `code`.
fn cell(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = words.split('`').enumerate().map(|(part, text)| match part % 2 {
        0 => text
            .replace('|', "\\|")
            .replace('*', "\\*")
            .replace('_', "\\_")
            .replace('<', "&lt;")
            .replace('[', "\\["),
        _ => text.replace('|', "\\|"),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Formats text as inline code; empty text stays empty.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// Returns the types that a JSON Schema permits.
fn types(schema: &Value) -> Vec<&str> {
    let many = schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str);
    schema["type"].as_str().into_iter().chain(many).collect()
}

/// Returns the header of a generated page.
fn head(title: &str, text: &str) -> String {
    format!("# {title}\n\n<!-- Generated from the code by {} -->\n\n{text}\n\n", super::WRITE)
}

#[test]
fn a_cell_shows_what_it_is_given() {
    assert_eq!(cell("a | b\n  <c> of `d|e_f`, g_h"), "a \\| b &lt;c> of `d\\|e_f`, g\\_h");
    assert_eq!(table(["a", "b"], [["1".into(), "2".into()]]), "| a | b |\n|---|---|\n| 1 | 2 |\n");
}
