//! Statistic names built from client text. Characters that would break a StatsD line are escaped,
//! and the length is bounded.

use smallvec::SmallVec;

/// Maximum length in bytes of a name built from request text. A longer name is counted under
/// `other`, like series beyond the bound.
const MAX_BYTES: usize = 512;

/// A name under construction; short names stay on the stack.
#[derive(Clone, Debug, Default)]
pub struct StatName {
    bytes: SmallVec<[u8; 256]>,
    too_long: bool,
}

impl StatName {
    /// Appends text, with `_` in place of `:` and `|`, which separate the parts of a line, control
    /// characters, which can end it, and bytes that are not UTF-8.
    pub fn push(&mut self, text: &[u8]) {
        if self.bytes.len() + text.len() > MAX_BYTES {
            self.too_long = true;
            return;
        }
        for chunk in text.utf8_chunks() {
            let plain = chunk.valid().bytes();
            self.bytes.extend(plain.map(|byte| if is_plain(byte.into()) { byte } else { b'_' }));
            self.bytes.extend((!chunk.invalid().is_empty()).then_some(b'_'));
        }
    }

    /// Returns the name, or `None` if it is too long. Dots within IPv4 addresses become `_`, since
    /// a dot separates levels.
    pub fn finish(&mut self) -> Option<&str> {
        escape_addresses(&mut self.bytes);
        std::str::from_utf8(&self.bytes).ok().filter(|_| !self.too_long)
    }
}

/// Returns a name built from policy text, with the same escapes but no length limit.
pub fn escaped(text: &str) -> String {
    let mut bytes = text
        .chars()
        .map(|letter| if is_plain(letter) { letter } else { '_' })
        .collect::<String>()
        .into_bytes();
    escape_addresses(&mut bytes);
    String::from_utf8(bytes).unwrap_or_default()
}

/// Returns `true` if a letter can be part of a name.
fn is_plain(letter: char) -> bool {
    !matches!(letter, ':' | '|') && !letter.is_ascii_control()
}

fn escape_addresses(name: &mut [u8]) {
    let mut at = 0_usize;
    while let Some(rest) = name.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let length = address_length(rest);
        rest.iter_mut().take(length).filter(|byte| **byte == b'.').for_each(|byte| *byte = b'_');
        at += length.max(1);
    }
}

/// Returns the length of the IPv4 address at the start of `text` (four groups of one to three
/// digits), or 0 if there is none.
fn address_length(text: &[u8]) -> usize {
    let mut length = 0_usize;
    for group in 0..4 {
        let rest = text.get(length..).unwrap_or_default();
        let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        let is_followed = group == 3 || rest.get(digits) == Some(&b'.');
        if digits == 0 || !is_followed {
            return 0;
        }
        length += digits + usize::from(group < 3);
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &[u8]) -> Option<String> {
        let mut name = StatName::default();
        name.push(text);
        name.finish().map(str::to_owned)
    }

    #[test]
    fn characters_that_break_lines_are_escaped() {
        assert_eq!(name(b"a:b|c\nd\0.e").unwrap(), "a_b_c_d_.e");
        assert_eq!(name(b"caf\xc3\xa9 \xff!").unwrap(), "caf\u{e9} _!");
        assert_eq!(escaped("a:b|c\nd.10.0.0.1"), "a_b_c_d.10_0_0_1");
    }

    #[test]
    fn dots_of_addresses_are_escaped_and_others_are_not() {
        assert_eq!(name(b"d.ip_10.0.0.1.sub").unwrap(), "d.ip_10_0_0_1.sub");
        assert_eq!(name(b"1234.1.1.1").unwrap(), "1234_1_1_1");
        assert_eq!(name(b"v1.2.3").unwrap(), "v1.2.3");
        assert_eq!(name(b"1.2.3.4.5.6.7.8").unwrap(), "1_2_3_4.5_6_7_8");
    }

    #[test]
    fn a_name_that_is_too_long_is_none() {
        assert_eq!(name(&[b'x'; MAX_BYTES]).map(|name| name.len()), Some(MAX_BYTES));
        assert_eq!(name(&[b'x'; MAX_BYTES + 1]), None);
    }
}
