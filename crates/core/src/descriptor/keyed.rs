//! Keyed hashes of personal values: HMAC-SHA256, truncated.
//!
//! A plain digest would hide nothing: IP and email addresses are few enough to try them all.

use std::fmt;

use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::Entry;

/// Length of a displayed hash in bytes: with 80 bits, two among 10^9 values in a tally or log
/// collide with a probability of one in a million.
const SHOWN_BYTES: usize = 10;
/// Length of the authentication code of a receipt in bytes.
pub const RECEIPT_BYTES: usize = 16;
/// Prefix of a displayed hash.
const MARK: &str = "hash-";

/// The secret that values are hashed with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; 32]);

impl HashKey {
    /// Minimum length of a secret in bytes.
    pub const MIN_BYTES: usize = 16;

    /// Derives the key from a secret text, without the white space around it.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret.trim_ascii()).into())
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(***)")
    }
}

/// A hasher with its key set up, so that hashing a value costs two rounds of SHA-256.
#[derive(Clone)]
pub struct Keyed(Hmac<Sha256>);

/// The use of a hash. The same text has a different hash for each use.
#[derive(Clone, Copy)]
enum HashPurpose {
    Counter = 0,
    Shown = 1,
    Receipt = 2,
}

impl Keyed {
    /// Creates a hasher with this key.
    pub fn new(key: &HashKey) -> Self {
        // HMAC accepts keys of any length; the error exists for other algorithms.
        let hmac = Hmac::new_from_slice(&key.0).unwrap_or_else(|_| Hmac::new(&Default::default()));
        Self(hmac)
    }

    /// Returns the hash to display in place of a value in tallies, logs and metric names. It is the
    /// same for one value everywhere.
    pub fn shown(&self, value: &[u8]) -> String {
        let digest: [u8; SHOWN_BYTES] = self.digest(HashPurpose::Shown, value);
        digest.iter().fold(MARK.to_owned(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// Returns `true` if a text has the form of a displayed hash.
    pub fn is_shown(text: &[u8]) -> bool {
        text.strip_prefix(MARK.as_bytes()).is_some_and(|digits| {
            digits.len() == 2 * SHOWN_BYTES
                && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    }

    /// Calls `then` with entries as they may be displayed: with hashed values if there is a hasher.
    pub fn show<R>(
        keyed: Option<&Self>,
        entries: &[Entry<'_>],
        then: impl FnOnce(&[Entry<'_>]) -> R,
    ) -> R {
        let Some(keyed) = keyed else { return then(entries) };
        let values: SmallVec<[String; 4]> =
            entries.iter().map(|entry| keyed.shown(entry.value)).collect();
        let shown = entries
            .iter()
            .zip(&values)
            .map(|(entry, value)| Entry { value: value.as_bytes(), ..*entry });
        then(&shown.collect::<SmallVec<[Entry<'_>; 4]>>())
    }

    /// Returns the hash that replaces the text of a counter key.
    pub(super) fn of_counter<const BYTES: usize>(&self, text: &[u8]) -> [u8; BYTES] {
        self.digest(HashPurpose::Counter, text)
    }

    /// Returns the authentication code of the receipt of a loan.
    pub fn of_receipt(&self, text: &[u8]) -> [u8; RECEIPT_BYTES] {
        self.digest(HashPurpose::Receipt, text)
    }

    fn digest<const BYTES: usize>(&self, what: HashPurpose, text: &[u8]) -> [u8; BYTES] {
        let hmac = self.0.clone().chain_update([what as u8]).chain_update(text);
        let mut bytes = [0; BYTES];
        bytes.iter_mut().zip(hmac.finalize().into_bytes()).for_each(|(byte, new)| *byte = new);
        bytes
    }
}

impl fmt::Debug for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyed(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_hmac_sha256_as_others_reckon_it() {
        // RFC 4231, test case 2, on the underlying primitive, because its key is "Jefe".
        let hmac = Hmac::<Sha256>::new_from_slice(b"Jefe")
            .unwrap()
            .chain_update(b"what do ya want for nothing?");
        assert_eq!(hmac.finalize().into_bytes()[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }

    #[test]
    fn one_key_makes_one_name_of_a_value_and_another_key_another() {
        let own = Keyed::new(&HashKey::of(b"own"));
        let other = Keyed::new(&HashKey::of(b"other"));
        assert_eq!(
            own.shown(b"ann"),
            Keyed::new(&HashKey::of(b" own\n")).shown(b"ann"),
            "white space is none of it"
        );
        assert_ne!(own.shown(b"ann"), other.shown(b"ann"));
        assert_ne!(own.shown(b"ann"), own.shown(b"bob"));
        assert!(Keyed::is_shown(own.shown(b"").as_bytes()));
        assert!(
            ["", "hash-", "ann", "hash-00112233445566778899a", "hash-0011223344556677889G"]
                .iter()
                .all(|text| !Keyed::is_shown(text.as_bytes()))
        );
        let shown = own.shown(b"ann");
        let counted = own.of_counter::<SHOWN_BYTES>(b"ann");
        assert!(!shown.contains(&format!("{:02x}{:02x}", counted[0], counted[1])));
    }

    #[test]
    fn no_key_is_shown() {
        let key = HashKey::of(b"marker");
        assert_eq!(format!("{key:?} {:?}", Keyed::new(&key)), "HashKey(***) Keyed(***)");
    }
}
