//! Env files: `NAME=VALUE` lines that Docker, Compose and a shell parse in the same way.

use std::collections::BTreeSet;

use tollgate_envoyproxy::Variables;

use crate::failure::UnreadablePart;

/// The variables of an env file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvFile {
    pub(crate) variables: Variables,
    /// Names that are set on several lines; the last value applies.
    pub(crate) repeated: BTreeSet<String>,
}

/// Parses the lines of an env file.
///
/// `#` begins a comment at the start of a line, and after a blank. A byte order mark, `export` and
/// quotes around a value are dropped; `$` is literal. Lines that some parsers reject, or parse
/// differently, are errors.
///
/// # Errors
/// The first line that cannot be parsed, with its number.
pub(crate) fn parse(text: &str) -> Result<EnvFile, UnreadablePart> {
    let mut file = EnvFile::default();
    for (line, number) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().zip(1_u64..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = variable(line)
            .map_err(|UnreadablePart(what)| UnreadablePart(format!("{number}: {what}")))?;
        if file.variables.insert(name.to_owned(), value).is_some() {
            file.repeated.insert(name.to_owned());
        }
    }
    Ok(file)
}

fn variable(line: &str) -> Result<(&str, String), UnreadablePart> {
    let exported = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t']));
    let line = exported.unwrap_or(line).trim_start();
    let Some((name, text)) = line.split_once('=') else {
        return Err(UnreadablePart("expected NAME=VALUE, found no `=`".to_owned()));
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        let what = "expected NAME=VALUE, found no name or a space before the `=`";
        return Err(UnreadablePart(what.to_owned()));
    }
    match text.chars().next() {
        Some(quote @ ('"' | '\'')) => Ok((name, quoted(text, quote)?)),
        _ => Ok((name, bare(text)?.to_owned())),
    }
}

/// Returns a value without quotes, up to a comment.
fn bare(text: &str) -> Result<&str, UnreadablePart> {
    let value = without_comment(text).trim_end();
    if value.starts_with([' ', '\t']) {
        let what = "expected NAME=VALUE, found a space after the `=`";
        return Err(UnreadablePart(what.to_owned()));
    }
    Ok(value)
}

/// Returns a text up to the first `#` that begins it or follows a blank.
fn without_comment(text: &str) -> &str {
    for (at, _) in text.match_indices('#') {
        let before = text.get(..at).unwrap_or_default();
        if before.is_empty() || before.ends_with([' ', '\t']) {
            return before;
        }
    }
    text
}

/// Returns a value without its quotes. Between double quotes, a backslash escapes `"`, `\`, `$` and
/// `` ` ``, as in a shell.
fn quoted(text: &str, quote: char) -> Result<String, UnreadablePart> {
    let mut value = String::new();
    let mut letters = text.chars();
    letters.next();
    while let Some(letter) = letters.next() {
        if letter == quote {
            let rest = letters.as_str();
            let is_comment = rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#');
            return if rest.trim().is_empty() || is_comment {
                Ok(value)
            } else {
                let after = "expected the end of the line or a comment after the closing";
                Err(UnreadablePart(format!("{after} {quote}")))
            };
        }
        let escaped = letters.as_str().chars().next().filter(|next| "\"\\$`".contains(*next));
        match escaped {
            Some(next) if letter == '\\' && quote == '"' => {
                value.push(next);
                letters.next();
            }
            _ => value.push(letter),
        }
    }
    let what = "on the same line; multi-line values are not supported";
    Err(UnreadablePart(format!("expected a closing {quote} {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_in_docker_and_shells() {
        let text = "\u{feff}A=1\r\n\t# comment\n  export\tB=two words \t# comment\nC='#3' # c\nD=\"a\\\"b\\n$X\"\t\n\
                    E=x#y\nF=\nG= # none\nH='a\"b'\nI=a=b\nJ=it's\n";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "#3"),
            ("D", "a\"b\\n$X"),
            ("E", "x#y"),
            ("F", ""),
            ("G", ""),
            ("H", "a\"b"),
            ("I", "a=b"),
            ("J", "it's"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(text).map(|file| file.variables), Ok(Variables::from(expected)));
    }

    #[test]
    fn ambiguous_lines_are_rejected_by_number() {
        for line in [
            "hunter2",
            "A = hunter2",
            "A= hunter2",
            "=hunter2",
            "A=\"hunter2",
            "A='hunter'2",
            "B C=hunter2",
        ] {
            let error =
                parse(&format!("# comment\nOK=1\n{line}\nhunter2\"\n")).unwrap_err().to_string();
            assert!(
                error.starts_with("3: expected") && !error.contains("hunter"),
                "{line}: {error}"
            );
        }
    }
}
