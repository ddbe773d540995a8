//! Names of types: each belongs to one type, so that a search finds it and a reader knows it.

use std::collections::BTreeMap;

/// Names that several modules may give to their own types.
const SHARED: [&str; 3] = ["Error", "Flags", "State"];

/// Returns the names that more than one type of these files has, with the places of the types.
pub(super) fn repeated<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut places = BTreeMap::<&str, Vec<String>>::new();
    for (path, text) in files {
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = defined(line) {
                places.entry(name).or_default().push(format!("{path}:{}", number + 1));
            }
        }
    }
    places.retain(|name, places| places.len() > 1 && !SHARED.contains(name));
    places
        .iter()
        .map(|(name, places)| {
            format!("`{name}` is the name of several types: {}", places.join(", "))
        })
        .collect()
}

/// Returns the name of the type that a line defines. Associated types are not types of their own.
fn defined(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let code = match code.strip_prefix("pub") {
        Some(rest) => rest
            .strip_prefix('(')
            .map_or(rest, |rest| rest.split_once(')').map_or("", |(_, rest)| rest)),
        None => code,
    };
    let (keyword, rest) = code.trim_start().split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "trait" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    (is_type && name.starts_with(|letter: char| letter.is_ascii_uppercase())).then_some(name)
}
