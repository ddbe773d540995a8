//! What a key is called where people read it: the entries of its descriptor, as `key=value,key=value`.
//!
//! The one place that writes it and reads it again. Injective: what a value has of the separators is escaped, and a text that is too long ends in
//! a digest of all of it.

use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::quality::FixedState;

use crate::descriptor::Entry;

/// Bytes of a key's text, but for the digest that one of more ends in.
pub const MAX_TEXT: usize = 192;
/// The same in every process, so that what several have written can be put together.
const DIGEST: FixedState = FixedState::with_seed(0x6a6f_7572_6e61_6c21);

/// Writes the text of `entries` in the place of what `text` holds.
pub fn write_text(entries: &[Entry<'_>], text: &mut String) {
    text.clear();
    for (number, entry) in entries.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        push(entry.key, true, text);
        text.push('=');
        push(entry.value, false, text);
    }
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        let mut digest = DIGEST.build_hasher();
        for part in entries.iter().flat_map(|entry| [entry.key, entry.value]) {
            digest.write_usize(part.len());
            digest.write(part);
        }
        // A string takes all.
        let _ = write!(text, "…{:016x}", digest.finish());
    }
}

/// No more of it than shows that it is too long: a value may have 60 KiB.
fn push(bytes: &[u8], is_key: bool, text: &mut String) {
    let bytes = bytes.get(..MAX_TEXT.saturating_add(4)).unwrap_or(bytes);
    // Nearly all: this is on the way of every denied request.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'\\' | b'=');
    if let (true, Ok(plain)) = (bytes.iter().all(is_plain), std::str::from_utf8(bytes)) {
        return text.push_str(plain);
    }
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                ',' | '\\' | '…' => text.extend(['\\', letter]),
                '=' if is_key => text.push_str("\\="),
                letter if letter.is_control() => text.extend(letter.escape_unicode()),
                letter => text.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

/// Why a text is none of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEntries {
    /// It is cut short.
    CutShort,
    /// There is no such escape.
    Escape(String),
}

impl fmt::Display for NoEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort => f.write_str("the key is cut short (`…`): give its entries in full"),
            Self::Escape(found) => {
                write!(f, r"expected one of \, \\ \= \… \u{{0}} \xff after a backslash, found `{found}`")
            }
        }
    }
}

/// Entries that nobody else has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedEntries(Vec<(Vec<u8>, Vec<u8>)>);

impl OwnedEntries {
    /// As a descriptor has them.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|(key, value)| Entry { key, value }).collect()
    }
}

/// Reads a text as [`write_text`] writes it, or as people do: a key alone has an empty value.
///
/// # Errors
/// Where the text is cut short, or has an escape that is none.
pub fn read_text(text: &str) -> Result<OwnedEntries, NoEntries> {
    let (mut all, mut key, mut part, mut rest) = (Vec::new(), None, Vec::new(), text);
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
            '\\' => unescape(after, &mut part).ok_or_else(|| NoEntries::Escape(after.chars().take(8).collect()))?,
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

/// Adds what an escape stands for, and gives the text after it; `None`: it is none.
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
    }

    #[test]
    fn long_values_end_in_a_digest_of_all_of_them() {
        let (one, other) = (text(&[(b"k", &[b'x'; 60_000])]), text(&[(b"k", &[b'x'; 60_001])]));
        assert!(one.len() < MAX_TEXT + 24 && other.len() < MAX_TEXT + 24);
        assert_ne!(one, other);
    }

    #[test]
    fn what_people_type_is_read_as_the_command_line_reads_it() {
        for typed in ["plan=free,user=a=b", "user", "", ",a=1,,b", "user=ü", "="] {
            assert_eq!(read_text(typed).unwrap().entries(), crate::descriptor::entries(typed), "{typed}");
        }
        assert_eq!(read_text("user=…0123"), Err(NoEntries::CutShort));
        for wrong in [r"user=\", r"user=\n", r"user=\x0", r"user=\u{}", r"user=\u{110000}", r"user=\xü"] {
            assert!(matches!(read_text(wrong), Err(NoEntries::Escape(_))), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            entries in prop::collection::vec(("[a=,\\\\x…\n]{0,4}", prop::collection::vec(any::<u8>(), 0..6)), 0..4),
        ) {
            // Nothing can be written for an entry that has neither.
            let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_slice())).collect();
            let read = read_text(&text(&entries)).unwrap();
            let read: Vec<(&[u8], &[u8])> = read.entries().iter().map(|entry| (entry.key, entry.value)).collect();
            prop_assert_eq!(read, entries);
        }

        #[test]
        fn different_entries_have_different_texts(
            one in prop::collection::vec(("[a=,\\\\x…]{0,3}", prop::collection::vec(any::<u8>(), 0..4)), 0..3),
            other in prop::collection::vec(("[a=,\\\\x…]{0,3}", prop::collection::vec(any::<u8>(), 0..4)), 0..3),
        ) {
            fn as_bytes(entries: &[(String, Vec<u8>)]) -> Vec<(&[u8], &[u8])> {
                entries.iter().map(|(key, value)| (key.as_bytes(), value.as_slice())).collect()
            }
            prop_assert_eq!(one == other, text(&as_bytes(&one)) == text(&as_bytes(&other)));
        }
    }
}
