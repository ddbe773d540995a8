//! Identities of rules, as parts of the keys of their counters.

use sha2::{Digest as _, Sha256};

use super::{FORMAT, PERIOD, truncated};

/// Length of a rule's identity in bytes: of policies with 10^6 rules, one in 10^12 has a collision
/// in 80 bits.
pub(super) const IDENTITY_BYTES: usize = 10;

/// The common part of a rule's counter keys: 80 bits of a digest of its domain, its path as
/// written, and its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub(super) [u8; IDENTITY_BYTES]);

impl Identity {
    /// Computes the identity of `parts`. Each part is hashed with its length, so that no two lists
    /// of parts have the same input.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
        Self(truncated(digest))
    }

    /// Returns the identity in the bytes of a key; `None` if they are no key, or that of a limit
    /// whose period the request set.
    pub fn in_key(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let has_own_period = tag >> 4 == FORMAT && tag & PERIOD == 0;
        rest.first_chunk().filter(|_| has_own_period).copied().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::time::Micros;
    use crate::descriptor::KeyBuffer;

    fn key(identity: &Identity, part: &[u8], period: Option<Micros>) -> Vec<u8> {
        let mut buffer = KeyBuffer::default();
        buffer.begin();
        buffer.push(part);
        let range = buffer.finish(identity, period);
        buffer.key("d", &range).bytes().to_vec()
    }

    #[test]
    fn the_identity_of_a_rule_is_found_in_its_keys() {
        let rule = Identity::of([b"rule".as_slice()]);
        for text in [&b"ann"[..], &[7; 100]] {
            assert_eq!(Identity::in_key(&key(&rule, text, None)), Some(rule));
            assert_eq!(Identity::in_key(&key(&rule, text, Some(Micros::new(1)))), None);
        }
        for bytes in [&b""[..], b"\x10short", b"not a key at all"] {
            assert_eq!(Identity::in_key(bytes), None);
        }
    }
}
