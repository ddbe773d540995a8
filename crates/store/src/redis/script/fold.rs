//! Preparation of the text of a script: constants become their values, and comments go.
//!
//! A constant in Lua 5.1 is a local. One that a function uses costs each call of the script an
//! allocation, and each use a lookup; a value in its place costs neither.

use std::collections::HashMap;

/// Returns a text with the names of constants replaced by their values: names in capital letters
/// that are declared as literals, on one line. A name with different values in different places
/// stays what it is.
pub(super) fn fold(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    let lines: Vec<(&str, Declaration<'_>)> =
        lines.map(|line| (line, declaration(line).unwrap_or_default())).collect();
    // `None` for a name with different values.
    let mut constants: HashMap<&str, Option<&str>> = HashMap::new();
    for &(name, value) in lines.iter().flat_map(|(_, names)| names) {
        let known = constants.entry(name).or_insert(Some(value));
        *known = known.filter(|known| *known == value);
    }
    // The names of one line go together.
    let mut is_stable = false;
    while !is_stable {
        is_stable = true;
        for (_, names) in &lines {
            let stay =
                names.iter().any(|(name, _)| constants.get(name).copied().flatten().is_none());
            for (name, _) in names.iter().filter(|_| stay) {
                is_stable &= constants.insert(name, None) == Some(None);
            }
        }
    }
    let mut folded = String::with_capacity(text.len());
    for (line, names) in &lines {
        let mut values = names.iter().map(|(name, _)| constants.get(name).copied().flatten());
        if !names.is_empty() && values.all(|value| value.is_some()) {
            continue;
        }
        for token in Tokens(line) {
            let value = constants.get(token).copied().flatten();
            folded.push_str(value.unwrap_or(token));
        }
        folded.push('\n');
    }
    folded
}

/// Names and values of constants.
type Declaration<'a> = Vec<(&'a str, &'a str)>;

/// Returns the names and values of a line that declares constants; `None` for any other line.
fn declaration(line: &str) -> Option<Declaration<'_>> {
    let (names, values) = line.strip_prefix("local ")?.split_once(" = ")?;
    let pairs: Vec<_> = names.split(", ").zip(values.split(", ")).collect();
    let is_whole = names.split(", ").count() == values.split(", ").count();
    let is_constant = pairs.iter().all(|(name, value)| is_name(name) && is_literal(value));
    (is_whole && is_constant).then_some(pairs)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.chars().all(|one| one == '_' || one.is_ascii_uppercase() || one.is_ascii_digit())
}

fn is_literal(value: &str) -> bool {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let text = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    is_number || text.is_some_and(|text| !text.contains('\''))
}

/// Returns `true` for a character of a name, or of the tables before it.
fn is_of_name(one: char) -> bool {
    one == '_' || one == '.' || one.is_ascii_alphanumeric()
}

/// Splits a line into strings, names, with the tables before them, and what is between.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = self.0.chars().next()?;
        let length = if first == '\'' {
            let mut is_escaped = false;
            let mut rest = self.0.char_indices().skip(1).skip_while(|(_, one)| {
                let is_closing = *one == '\'' && !is_escaped;
                is_escaped = *one == '\\' && !is_escaped;
                !is_closing
            });
            rest.nth(1).map_or(self.0.len(), |(after, _)| after)
        } else if is_of_name(first) {
            self.0.find(|one| !is_of_name(one)).unwrap_or(self.0.len())
        } else {
            self.0.find(|one| one == '\'' || is_of_name(one)).unwrap_or(self.0.len())
        };
        let (token, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_become_their_values_outside_of_strings_and_fields() {
        let text =
            "-- A comment.\nlocal A, LONG_1 = 1, 'x\\2'\n\n  local b = A + t.A .. 'A' .. LONG_1\n";
        assert_eq!(fold(text), "local b = 1 + t.A .. 'A' .. 'x\\2'\n");
    }

    #[test]
    fn what_is_no_constant_stays() {
        for text in [
            "local A = f(1)\nlocal b = A\n",
            "local a, B = 1, 2\nlocal c = B\n",
            "local A, B = 1\nlocal c = A\n",
        ] {
            assert_eq!(fold(text), text);
        }
        let twice = "do\nlocal A, B = 1, 2\nlocal c = A + B\nend\nlocal A = 2\nlocal d = A\n";
        assert_eq!(fold(twice), twice, "A has two values, and B is declared beside it");
    }
}
