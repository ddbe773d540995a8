//! Mutants of the scripts: each is one small change of a line, to learn which tests find it.
//!
//! A line is changed in the text that a simulated server runs, in all scripts that have it, so that
//! no build is needed for a mutant. Only the thread that chose a mutant runs it.

pub mod program;
pub mod sources;

use std::collections::BTreeSet;
use std::fmt;

/// A change of a line of the scripts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mutant {
    /// The line in the text of a script, with constants replaced.
    pub line: String,
    /// The line that replaces it, empty for one that is dropped.
    pub mutated: String,
    pub kind: MutationKind,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MutationKind {
    /// Another comparison: `<` and `<=`, `>` and `>=`, `==` and `~=`.
    Comparison,
    /// `+` and `-`, `max` and `min`.
    Arithmetic,
    /// `and` and `or`; `not` dropped; `true` and `false`.
    Logic,
    /// A number plus one.
    Constant,
    /// A statement without effect: an assignment or a call is dropped.
    Dropped,
    /// The first two arguments of a call in the other order.
    Swapped,
    /// A key that is written without its time to live.
    Lifetime,
}

impl fmt::Display for MutationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Comparison => "comparison",
            Self::Arithmetic => "arithmetic",
            Self::Logic => "logic",
            Self::Constant => "constant",
            Self::Dropped => "dropped",
            Self::Swapped => "swapped",
            Self::Lifetime => "lifetime",
        })
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}", self.kind, self.line, self.mutated)
    }
}

impl Mutant {
    /// Returns a script's text with the change.
    #[must_use]
    pub fn applied(&self, text: &str) -> String {
        let mut lines = Vec::new();
        for line in text.lines() {
            lines.push(if line == self.line { self.mutated.as_str() } else { line });
        }
        lines.join("\n")
    }
}

/// Words and operators, and those that replace them.
const REPLACED: [(&str, &str, MutationKind); 15] = [
    ("<", "<=", MutationKind::Comparison),
    ("<=", "<", MutationKind::Comparison),
    (">", ">=", MutationKind::Comparison),
    (">=", ">", MutationKind::Comparison),
    ("==", "~=", MutationKind::Comparison),
    ("~=", "==", MutationKind::Comparison),
    ("+", "-", MutationKind::Arithmetic),
    ("-", "+", MutationKind::Arithmetic),
    ("max", "min", MutationKind::Arithmetic),
    ("min", "max", MutationKind::Arithmetic),
    ("and", "or", MutationKind::Logic),
    ("or", "and", MutationKind::Logic),
    ("not", "", MutationKind::Logic),
    ("true", "false", MutationKind::Logic),
    ("false", "true", MutationKind::Logic),
];

/// Returns the mutants of all lines of some scripts, each once, in a fixed order.
#[must_use]
pub fn mutants_of<'a>(scripts: impl IntoIterator<Item = &'a str>) -> Vec<Mutant> {
    let lines: BTreeSet<&str> = scripts.into_iter().flat_map(str::lines).collect();
    let mut mutants = BTreeSet::new();
    for line in lines.into_iter().filter(|line| !line.starts_with("--")) {
        let mut add = |mutated: String, kind| {
            if mutated != line {
                mutants.insert(Mutant { line: line.to_owned(), mutated, kind });
            }
        };
        replace_tokens(line, &mut add);
        drop_statement(line, &mut add);
        swap_arguments(line, &mut add);
        drop_lifetime(line, &mut add);
    }
    mutants.into_iter().collect()
}

fn replace_tokens(line: &str, add: &mut impl FnMut(String, MutationKind)) {
    let tokens = tokens(line);
    for (index, token) in tokens.iter().enumerate() {
        let mut replace = |new: &str, kind| {
            let mut changed = tokens.clone();
            changed[index] = new;
            add(changed.concat(), kind);
        };
        let is_sign = *token == "-" && is_unary(&tokens[..index]);
        for (old, new, kind) in REPLACED {
            if *token == old && !is_sign {
                replace(new, kind);
            }
        }
        if let Ok(number) = token.parse::<u64>() {
            replace(&(number + 1).to_string(), MutationKind::Constant);
        }
    }
}

/// Returns `true` if a minus after these tokens is a sign.
fn is_unary(before: &[&str]) -> bool {
    let last = before.iter().rev().find(|token| !token.trim().is_empty());
    let Some(last) = last else { return true };
    matches!(*last, "and" | "or" | "return" | "not")
        || !last.ends_with(|one: char| one.is_ascii_alphanumeric() || "_)]'".contains(one))
}

/// Adds the line without its statement, if it is an assignment or a call of its own.
fn drop_statement(line: &str, add: &mut impl FnMut(String, MutationKind)) {
    let first = line.split(|one: char| !(one == '_' || one.is_ascii_alphanumeric())).next();
    let controls = [
        "and", "or", "not", "local", "return", "if", "elseif", "else", "end", "for", "while",
        "function",
    ];
    let is_name = first.is_some_and(|first| !first.is_empty() && !controls.contains(&first));
    let is_open = line.ends_with(['{', '(', ',']) || line.ends_with(" do");
    let is_open = is_open || line.ends_with(" and") || line.ends_with(" or");
    let is_function = line.contains("function(");
    let is_statement = line.contains(" = ") || line.ends_with(')');
    if is_name && is_statement && !is_open && !is_function {
        add(String::new(), MutationKind::Dropped);
    }
}

/// Adds the line with the first two arguments of each call swapped, if both are plain.
fn swap_arguments(line: &str, add: &mut impl FnMut(String, MutationKind)) {
    for (open, _) in line.match_indices('(') {
        let (before, rest) = line.split_at(open + 1);
        let is_call = before
            .trim_end_matches('(')
            .ends_with(|one: char| one == '_' || one.is_ascii_alphanumeric());
        let end = rest.find([')', '(']).unwrap_or(rest.len());
        let (arguments, after) = rest.split_at(end);
        let mut parts: Vec<&str> = arguments.split(", ").collect();
        let is_nested = after.starts_with('(');
        // The last part before a nested call is no whole argument.
        let whole = if is_nested { parts.len().saturating_sub(1) } else { parts.len() };
        let is_commutative = before.ends_with("max(") || before.ends_with("min(");
        if is_call && whole >= 2 && !is_commutative && !before.contains("function") {
            parts.swap(0, 1);
            add(format!("{before}{}{after}", parts.join(", ")), MutationKind::Swapped);
        }
    }
}

/// Adds the line without the time to live of a `SET`.
fn drop_lifetime(line: &str, add: &mut impl FnMut(String, MutationKind)) {
    for option in [", 'PX', ", ", 'KEEPTTL'"] {
        let Some((before, rest)) = line.split_once(option) else { continue };
        let mut depth = 0;
        let end = rest.find(|one| {
            depth += match one {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth < 0
        });
        if let Some(end) = end {
            add(format!("{before}{}", &rest[end..]), MutationKind::Lifetime);
        }
    }
}

/// Splits a line into texts, names and numbers, operators, and what is between.
fn tokens(line: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let is_word = |one: char| one == '_' || one.is_ascii_alphanumeric();
        let length = if first == '\'' {
            rest[1..].find('\'').map_or(rest.len(), |end| end + 2)
        } else if is_word(first) {
            rest.find(|one| !is_word(one)).unwrap_or(rest.len())
        } else {
            let operators = ["<=", ">=", "==", "~=", "..."];
            let long = operators.iter().find(|operator| rest.starts_with(**operator));
            long.map_or(first.len_utf8(), |operator| operator.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutated(line: &str) -> Vec<String> {
        mutants_of([line]).into_iter().map(|mutant| mutant.mutated).collect()
    }

    #[test]
    fn a_line_has_the_mutants_of_its_tokens() {
        assert_eq!(mutated("if a <= -1 then"), ["if a < -1 then", "if a <= -2 then"]);
        assert_eq!(mutated("local b = 'a < 1' and c"), ["local b = 'a < 1' or c"]);
        assert_eq!(
            mutated("used = max(a - 1, b)"),
            ["", "used = max(a + 1, b)", "used = max(a - 2, b)", "used = min(a - 1, b)",]
        );
        assert_eq!(
            mutated("call('SET', key, new, 'PX', f(ms))"),
            ["", "call('SET', key, new)", "call(key, 'SET', new, 'PX', f(ms))",]
        );
        assert!(mutated("end").is_empty());
    }

    #[test]
    fn a_mutant_changes_all_scripts_with_its_line_and_no_other() {
        let mutants = mutants_of(["a = b + 1\nreturn a"]);
        let dropped = mutants.iter().find(|mutant| mutant.mutated.is_empty()).unwrap();
        assert_eq!(dropped.applied("x = a\na = b + 1\nreturn a"), "x = a\n\nreturn a");
        assert_eq!(dropped.applied("return a"), "return a");
    }
}
