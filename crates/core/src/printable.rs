//! Text for logs, terminals and pages: escapes invisible characters, bounds the length, and masks
//! the passwords of URLs.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns `true` for characters that are not displayed but affect how others are: terminal
/// controls (C0, C1), line separators, text direction marks, zero-width characters and tags.
pub fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}' // soft hyphen
            // text direction
            | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // zero width
            | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
            | '\u{2028}' | '\u{2029}' // line and paragraph separators
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}' // tags
        )
}

/// Returns `1 hit` or `7 hits`.
pub fn counted(number: impl TryInto<u64>, word: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {word}{end}")
}

/// Escapes all invisible characters, as in Rust: `\n`, `\u{202e}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, is_invisible, |letter, shown| shown.extend(letter.escape_default()))
}

/// Escapes all invisible characters except line feeds.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    replaced(
        text,
        |letter| letter != '\n' && is_invisible(letter),
        |letter, shown| shown.extend(letter.escape_default()),
    )
}

/// Escapes invisible characters in serialized JSON, as in JSON: `\u202e`. The value stays the same.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    replaced(
        json,
        |letter| letter != '\n' && is_invisible(letter),
        |letter, shown| {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        },
    )
}

/// Returns about the first `max` bytes of a text, escaped; if truncated, the full length follows.
pub fn excerpt(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return escaped(text);
    }
    let begin = text.get(..text.floor_char_boundary(max)).unwrap_or_default();
    format!("{}… ({} bytes)", escaped(begin), text.len()).into()
}

fn replaced(
    text: &str,
    is_escaped: impl Fn(char) -> bool + Copy,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_escaped(letter) {
            escape(letter, &mut shown);
        } else {
            shown.push(letter);
        }
    }
    shown.into()
}

/// Returns a word quoted for a shell, if that is necessary.
pub fn shell_quoted(word: &str) -> String {
    const PLAIN: &str = "_./:=,@%+-";
    if word.is_empty()
        || word.contains(|letter: char| !letter.is_ascii_alphanumeric() && !PLAIN.contains(letter))
    {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    word.to_owned()
}

/// Returns a URL fit for display: without the password, and without what may be one if its `@` is
/// missing.
pub fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    if rest.starts_with('/') {
        return text.to_owned();
    }
    let (access, rest) =
        rest.rsplit_once('@').map_or((None, rest), |(access, rest)| (Some(access), rest));
    let access = access.map(|access| match access.split_once(':') {
        Some((user, _)) => format!("{user}:***@"),
        None => format!("{access}@"),
    });
    let (hosts, database) =
        rest.split_once('/').map_or((rest, None), |(hosts, rest)| (hosts, Some(rest)));
    let hosts: Vec<_> = hosts.split(',').map(without_word).collect();
    let database =
        database.map(|text| if is_number(text) { format!("/{text}") } else { "/***".to_owned() });
    format!(
        "{scheme}://{}{}{}",
        access.unwrap_or_default(),
        hosts.join(","),
        database.unwrap_or_default()
    )
}

/// Returns a host with its port, which is masked unless it is a number.
fn without_word(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((before, after)) if !is_number(after) && !after.ends_with(']') => {
            format!("{before}:***")
        }
        _ => host.to_owned(),
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted_for_a_shell() {
        assert_eq!(shell_quoted("plan=free,user=a@b.c"), "plan=free,user=a@b.c");
        assert_eq!(shell_quoted("path=/a b"), "'path=/a b'");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn invisible_characters_are_escaped_and_readable_ones_are_not() {
        for (text, shown) in [
            ("ann\u{202e}nimda", r"ann\u{202e}nimda"),
            ("a\u{2028}b\u{2029}c\nd\te", r"a\u{2028}b\u{2029}c\nd\te"),
            ("\u{9b}2J\u{1b}[2J\u{7f}\u{0}", r"\u{9b}2J\u{1b}[2J\u{7f}\u{0}"),
            ("a\u{200b}\u{2066}b\u{feff}\u{e0041}", r"a\u{200b}\u{2066}b\u{feff}\u{e0041}"),
        ] {
            assert_eq!(escaped(text), shown);
        }
        for plain in ["", "a=b,c \\ \"", "für", "עברית", "हिन्दी", "日本", "e\u{301}", "…", "👍🏽"]
        {
            assert_eq!(escaped(plain), plain);
        }
        assert_eq!(escaped_lines("a\u{9b}\nb\n"), "a\\u{9b}\nb\n");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({"key\u{202e}": ["\u{9b}\u{e0041}\u{2028}\n", 1]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = escaped_json(&text);
        assert!(
            shown.contains(r"\u202e") && shown.contains(r"\u009b\udb40\udc41\u2028\n"),
            "{shown}"
        );
        assert!(!shown.chars().any(|letter| letter != '\n' && is_invisible(letter)));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn an_excerpt_is_short_and_has_the_length_of_the_whole() {
        assert_eq!(excerpt("a\u{202e}", 8), r"a\u{202e}");
        assert_eq!(excerpt(&"ü".repeat(1_000), 5), "üü… (2000 bytes)");
        assert_eq!(excerpt(&"\u{1b}".repeat(300_000), 100).len(), 600 + "… (300000 bytes)".len());
    }
}
