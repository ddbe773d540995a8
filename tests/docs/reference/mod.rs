//! The pages of `docs/reference`: made from the code's own tables, so that they cannot say anything else.

mod api;
mod commands;
mod metrics;
mod policy;

use serde_json::Value;

/// A table in Markdown, of rows that each have as many cells as the head.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rows: Vec<_> = rows.into_iter().collect();
    let rule = format!("|{}\n", "---|".repeat(N));
    let head = line(&head.map(str::to_owned));
    head + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// Text that stands in a table: on one line, and nothing of it is Markdown or HTML but for `code`.
fn cell(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = words.split('`').enumerate().map(|(part, text)| match part % 2 {
        0 => text.replace('|', "\\|").replace('*', "\\*").replace('_', "\\_").replace('<', "&lt;").replace('[', "\\["),
        _ => text.replace('|', "\\|"),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The same as code, or nothing where there is none.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// The types that a JSON Schema allows.
fn types(schema: &Value) -> Vec<&str> {
    let many = schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str);
    schema["type"].as_str().into_iter().chain(many).collect()
}

/// The head of a page that is made.
fn head(title: &str, text: &str) -> String {
    format!("# {title}\n\n<!-- Made from the code: {} -->\n\n{text}\n\n", super::WRITE)
}

#[test]
fn a_cell_shows_what_it_is_given() {
    assert_eq!(cell("a | b\n  <c> of `d|e_f`, g_h"), "a \\| b &lt;c> of `d\\|e_f`, g\\_h");
    assert_eq!(table(["a", "b"], [["1".into(), "2".into()]]), "| a | b |\n|---|---|\n| 1 | 2 |\n");
}
