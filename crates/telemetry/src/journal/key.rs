//! The text form of a key: the entries of its descriptor, as `key=value,key=value`.
//!
//! Formatting and parsing are both in this module. The form is injective: separators in values are
//! escaped, and a text that is too long ends in a digest of all of it.

use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::quality::FixedState;

use tollgate_core::descriptor::Entry;
use tollgate_core::printable::is_invisible;

/// Maximum length of a key's text in bytes, before the digest that a longer one ends in.
pub const MAX_TEXT: usize = 192;
/// Fixed seed, so that the output of several processes can be merged.
const DIGEST: FixedState = FixedState::with_seed(0x6a6f_7572_6e61_6c21);

/// Replaces the contents of `text` with the text form of `entries`.
pub fn write_text(entries: &[Entry<'_>], text: &mut String) {
    text.clear();
    for (number, entry) in entries.iter().enumerate() {
        if text.len() > MAX_TEXT {
            break;
        }
        if number > 0 {
            text.push(',');
        }
        push(entry.key, EntryPart::Key, text);
        text.push('=');
        push(entry.value, EntryPart::Value, text);
    }
    if text.len() > MAX_TEXT {
        text.truncate(last_boundary(text));
        let mut digest = DIGEST.build_hasher();
        for part in entries.iter().flat_map(|entry| [entry.key, entry.value]) {
            digest.write_usize(part.len());
            digest.write(part);
        }
        // Writing to a string never fails.
        let _ = write!(text, "…{:016x}", digest.finish());
    }
}

/// Returns the end of the last whole character or escape within the first [`MAX_TEXT`] bytes: half
/// of an escape would read as another one with the `…` that follows.
fn last_boundary(text: &str) -> usize {
    let mut end = 0usize;
    while let Some(rest) = text.get(end..) {
        let length = match rest.strip_prefix('\\') {
            None => rest.chars().next().map_or(usize::MAX, char::len_utf8),
            Some(escape) => match escape.chars().next() {
                Some('u') => escape.find('}').map_or(usize::MAX, |at| at + 2),
                Some('x') => 4,
                Some(letter) => letter.len_utf8() + 1,
                None => usize::MAX,
            },
        };
        let next = end.saturating_add(length);
        if next > MAX_TEXT {
            break;
        }
        end = next;
    }
    end
}

/// A part of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryPart {
    Key,
    Value,
}

/// Appends an escaped key or value, but reads only as much as exceeds the maximum: values may have
/// 60 KiB, and the caller truncates the text.
fn push(bytes: &[u8], part: EntryPart, text: &mut String) {
    let bytes = bytes.get(..MAX_TEXT + 4).unwrap_or(bytes);
    // Fast path for nearly all keys: runs for every denied request.
    if bytes.iter().all(is_plain)
        && let Ok(plain) = std::str::from_utf8(bytes)
    {
        return text.push_str(plain);
    }
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                ',' | '\\' | '…' => text.extend(['\\', letter]),
                '=' if part == EntryPart::Key => text.push_str("\\="),
                letter if is_invisible(letter) => text.extend(letter.escape_unicode()),
                letter => text.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

fn is_plain(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'\\' | b'=')
}

/// An error for a text that cannot be parsed as entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEntries {
    /// The text is truncated.
    CutShort,
    /// The escape is unknown.
    Escape(String),
}

impl fmt::Display for NoEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort => {
                f.write_str("the key is truncated (`…`); provide its entries in full")
            }
            Self::Escape(found) => {
                write!(
                    f,
                    r"expected one of \, \\ \= \… \u{{0}} \xff after a backslash, found `{found}`"
                )
            }
        }
    }
}

/// A list of owned entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedEntries(Vec<(Vec<u8>, Vec<u8>)>);

impl OwnedEntries {
    /// Returns the entries in the form of a descriptor.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|(key, value)| Entry { key, value }).collect()
    }
}

/// Parses a text of [`write_text`] or of an operator: a key alone has an empty value.
///
/// # Errors
/// If the text is truncated or has an unknown escape.
pub fn read_text(text: &str) -> Result<OwnedEntries, NoEntries> {
    let mut all = Vec::new();
    let mut key = None;
    let mut part = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        rest = match letter {
            ',' => {
                push_entry(&mut all, &mut key, &mut part);
                after
            }
            '=' if key.is_none() => {
                key = Some(std::mem::take(&mut part));
                after
            }
            '…' => return Err(NoEntries::CutShort),
            '\\' => unescape(after, &mut part)
                .ok_or_else(|| NoEntries::Escape(after.chars().take(8).collect()))?,
            letter => {
                part.extend(letter.encode_utf8(&mut [0; 4]).bytes());
                after
            }
        };
    }
    push_entry(&mut all, &mut key, &mut part);
    Ok(OwnedEntries(all))
}

fn push_entry(all: &mut Vec<(Vec<u8>, Vec<u8>)>, key: &mut Option<Vec<u8>>, part: &mut Vec<u8>) {
    let part = std::mem::take(part);
    match key.take() {
        Some(key) => all.push((key, part)),
        None if part.is_empty() => {}
        None => all.push((part, Vec::new())),
    }
}

/// Appends the decoded escape and returns the rest of the text; `None` if it is unknown.
fn unescape<'t>(after: &'t str, part: &mut Vec<u8>) -> Option<&'t str> {
    if let Some(hex) = after.strip_prefix("u{") {
        let (hex, rest) = hex.split_once('}')?;
        let letter = char::from_u32(u32::from_str_radix(hex, 16).ok()?)?;
        part.extend(letter.encode_utf8(&mut [0; 4]).bytes());
        return Some(rest);
    }
    if let Some(hex) = after.strip_prefix('x') {
        let (hex, rest) = hex.split_at_checked(2)?;
        part.push(u8::from_str_radix(hex, 16).ok()?);
        return Some(rest);
    }
    let letter = after.chars().next().filter(|letter| matches!(letter, ',' | '\\' | '=' | '…'))?;
    part.extend(letter.encode_utf8(&mut [0; 4]).bytes());
    after.get(letter.len_utf8()..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(entries: &[(&[u8], &[u8])]) -> String {
        let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
        let mut text = "before".to_owned();
        write_text(&entries, &mut text);
        text
    }

    #[test]
    fn it_reads_as_the_command_line_writes_descriptors() {
        assert_eq!(text(&[(b"plan", b"free"), (b"user", b"a=b")]), "plan=free,user=a=b");
        assert_eq!(text(&[(b"a=b", b"c,d\\\n\xff")]), r"a\=b=c\,d\\\u{a}\xff");
        let unseen = "\u{202e}\u{2028}\u{9b}";
        assert_eq!(text(&[(b"a", unseen.as_bytes())]), r"a=\u{202e}\u{2028}\u{9b}");
    }

    #[test]
    fn long_values_end_in_a_digest_of_all_of_them() {
        let one = text(&[(b"k", &[b'x'; 60_000])]);
        let other = text(&[(b"k", &[b'x'; 60_001])]);
        assert!(one.len() < MAX_TEXT + 24 && other.len() < MAX_TEXT + 24);
        assert_ne!(one, other);
    }

    #[test]
    fn a_truncated_key_is_recognized_wherever_it_is_cut() {
        for escaped in
            ["\u{18}".as_bytes(), b",", b"\\", b"\xff", "…".as_bytes(), "ü".as_bytes(), b"a"]
        {
            for before in 0..12 {
                let value = [vec![b'x'; before], escaped.repeat(MAX_TEXT)].concat();
                let text = text(&[(b"k", &value)]);
                assert!(text.len() <= MAX_TEXT + "…".len() + 16, "{text}");
                assert_eq!(read_text(&text), Err(NoEntries::CutShort), "{text}");
            }
        }
    }

    #[test]
    fn typed_descriptors_are_parsed_as_on_the_command_line() {
        for typed in ["plan=free,user=a=b", "user", "", ",a=1,,b", "user=ü", "="] {
            assert_eq!(
                read_text(typed).unwrap().entries(),
                tollgate_core::descriptor::entries(typed),
                "{typed}"
            );
        }
        assert_eq!(read_text("user=…0123"), Err(NoEntries::CutShort));
        for wrong in
            [r"user=\", r"user=\n", r"user=\x0", r"user=\u{}", r"user=\u{110000}", r"user=\xü"]
        {
            assert!(matches!(read_text(wrong), Err(NoEntries::Escape(_))), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            entries in prop::collection::vec(("[a=,\\\\x…\n]{0,4}", prop::collection::vec(any::<u8>(), 0..6)), 0..4),
        ) {
            // An entry with neither key nor value cannot be written.
            let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_slice())).collect();
            let read = read_text(&text(&entries)).unwrap();
            let read: Vec<(&[u8], &[u8])> = read.entries().iter().map(|entry| (entry.key, entry.value)).collect();
            prop_assert_eq!(read, entries);
        }
    }
}
