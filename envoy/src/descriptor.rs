//! A descriptor of a request: a list of entries.

use tollgate_lease::holder::{ENTRY_BYTES, LeaseKey, MAX_KEY_BYTES, is_on_hold};

use crate::wire;

/// A descriptor, encoded: the lengths and bytes of all keys and values, so that no two lists of
/// entries have the same encoding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Descriptor {
    name: Vec<u8>,
    entries: usize,
    ends_with_hold: bool,
}

/// Capacity for the names of most descriptors, so that they are allocated once.
const USUAL_BYTES: usize = 96;

impl Default for Descriptor {
    fn default() -> Self {
        Self { name: Vec::with_capacity(USUAL_BYTES), entries: 0, ends_with_hold: false }
    }
}

impl Descriptor {
    /// Adds an entry.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        for text in [key, value] {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            self.name.extend_from_slice(&length.to_be_bytes());
            self.name.extend_from_slice(text);
        }
        self.entries = self.entries.saturating_add(1);
        self.ends_with_hold = is_on_hold(key);
    }

    /// Returns `true` if an exchange may have it.
    pub(crate) fn is_leasable(&self) -> bool {
        self.entries > 0 && self.size() <= MAX_KEY_BYTES && !self.ends_with_hold
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> wire::Descriptor {
        let mut entries = Vec::with_capacity(self.entries);
        let mut rest = self.name.as_slice();
        while let Some((key, after)) = text(rest)
            && let Some((value, after)) = text(after)
        {
            entries.push(wire::Entry { key: key.to_vec(), value: value.to_vec() });
            rest = after;
        }
        wire::Descriptor { entries }
    }
}

impl LeaseKey for Descriptor {
    /// Empty: all keys of a holder are of one domain.
    fn domain(&self) -> &str {
        ""
    }

    fn size(&self) -> usize {
        self.name.len().saturating_add(self.entries.saturating_mul(ENTRY_BYTES))
    }
}

/// Splits the first text off.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, &str)]) -> Descriptor {
        let mut descriptor = Descriptor::default();
        for (key, value) in entries {
            descriptor.push(key.as_bytes(), value.as_bytes());
        }
        descriptor
    }

    #[test]
    fn its_entries_are_those_of_the_message_and_no_two_lists_are_alike() {
        let entry = |key: &str, value: &str| wire::Entry {
            key: key.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
        };
        let entries = of(&[("user", "ann"), ("path", "")]).message().entries;
        assert_eq!(entries, [entry("user", "ann"), entry("path", "")]);
        let alike = [of(&[("a", "bc")]), of(&[("ab", "c")]), of(&[("a", "bc"), ("", "")])];
        assert!(alike[0] != alike[1] && alike[0] != alike[2]);
    }

    #[test]
    fn holds_and_large_descriptors_are_not_for_an_exchange() {
        assert!(of(&[("user", "ann")]).is_leasable());
        assert!(!of(&[]).is_leasable());
        assert!(of(&[("tollgate.reserve", "a"), ("user", "ann")]).is_leasable());
        assert!(!of(&[("user", "ann"), ("tollgate.commit", "a")]).is_leasable());
        assert!(!of(&[("user", &"x".repeat(1_000))]).is_leasable());
        assert!(!of(&[("", ""); 33]).is_leasable());
    }
}
