//! What a key is called where people read it: the entries of its descriptor, as `key=value,key=value`.
//!
//! The one place that writes it. Injective: what a value has of the separators is escaped, and a text that is too long ends in
//! a digest of all of it.

use std::fmt::Write as _;
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

    proptest! {
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
