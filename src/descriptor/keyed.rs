//! Values by which people are known, under names that only who has the key can make: HMAC-SHA256, truncated.
//!
//! A plain digest would hide nothing: addresses and mail addresses are few enough to try them all.

use std::fmt;

use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::Entry;

/// Bytes of a hashed value that is shown: 80 bits, in a tally or a log two alike among 10^9 by one in a million.
const SHOWN_BYTES: usize = 10;
/// What it begins with.
const MARK: &str = "hash-";

/// The secret that values are hashed with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; 32]);

impl HashKey {
    /// Bytes that a secret has at least.
    pub const MIN_BYTES: usize = 16;

    /// Of a secret text, without the white space around it.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret.trim_ascii()).into())
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(***)")
    }
}

/// A key made ready, so that a value costs two rounds of SHA-256.
#[derive(Clone)]
pub struct Keyed(Hmac<Sha256>);

/// What is hashed. The same text for another use is another hash.
#[derive(Clone, Copy)]
enum Use {
    Counter = 0,
    Shown = 1,
}

impl Keyed {
    /// With this key.
    pub fn new(key: &HashKey) -> Self {
        // A key of any length is one; the error is of other algorithms.
        let hmac = Hmac::new_from_slice(&key.0).unwrap_or_else(|_| Hmac::new(&Default::default()));
        Self(hmac)
    }

    /// What stands for a value where people read it: in tallies, logs and names of series. The same for one value everywhere.
    pub fn shown(&self, value: &[u8]) -> String {
        let digest: [u8; SHOWN_BYTES] = self.digest(Use::Shown, value);
        digest.iter().fold(MARK.to_owned(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// Whether a text is one that stands for a value, as far as can be seen.
    pub fn is_shown(text: &[u8]) -> bool {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = text.strip_prefix(MARK.as_bytes());
        digits.is_some_and(|digits| digits.len() == 2 * SHOWN_BYTES && digits.iter().all(is_digit))
    }

    /// Calls `then` with entries as people may read them: their values hashed, where there is a key for that.
    pub fn show<R>(keyed: Option<&Self>, entries: &[Entry<'_>], then: impl FnOnce(&[Entry<'_>]) -> R) -> R {
        let Some(keyed) = keyed else { return then(entries) };
        let values: SmallVec<[String; 4]> = entries.iter().map(|entry| keyed.shown(entry.value)).collect();
        let shown = entries.iter().zip(&values).map(|(entry, value)| Entry { value: value.as_bytes(), ..*entry });
        then(&shown.collect::<SmallVec<[Entry<'_>; 4]>>())
    }

    /// What stands for the text of a counter's key.
    pub(super) fn of_counter<const BYTES: usize>(&self, text: &[u8]) -> [u8; BYTES] {
        self.digest(Use::Counter, text)
    }

    fn digest<const BYTES: usize>(&self, what: Use, text: &[u8]) -> [u8; BYTES] {
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
        // RFC 4231, case 2: by the primitive beneath, whose key is "Jefe".
        let hmac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap().chain_update(b"what do ya want for nothing?");
        assert_eq!(hmac.finalize().into_bytes()[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }

    #[test]
    fn one_key_makes_one_name_of_a_value_and_another_key_another() {
        let (own, other) = (Keyed::new(&HashKey::of(b"own")), Keyed::new(&HashKey::of(b"other")));
        assert_eq!(own.shown(b"ann"), Keyed::new(&HashKey::of(b" own\n")).shown(b"ann"), "white space is none of it");
        assert_ne!(own.shown(b"ann"), other.shown(b"ann"));
        assert_ne!(own.shown(b"ann"), own.shown(b"bob"));
        assert!(Keyed::is_shown(own.shown(b"").as_bytes()));
        assert!(
            ["", "hash-", "ann", "hash-00112233445566778899a", "hash-0011223344556677889G"]
                .iter()
                .all(|text| !Keyed::is_shown(text.as_bytes()))
        );
        let (shown, counted) = (own.shown(b"ann"), own.of_counter::<SHOWN_BYTES>(b"ann"));
        assert!(!shown.contains(&format!("{:02x}{:02x}", counted[0], counted[1])));
    }

    #[test]
    fn no_key_is_shown() {
        let key = HashKey::of(b"marker");
        assert_eq!(format!("{key:?} {:?}", Keyed::new(&key)), "HashKey(***) Keyed(***)");
    }
}
