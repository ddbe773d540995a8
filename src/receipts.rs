//! Receipts of loans: bytes that a client returns with the hits that it did not use.
//!
//! A receipt names no counter: a return names its descriptor again, the counter is found by the
//! policies in force, and the receipt has a digest of it. With a key, a receipt is authenticated
//! for its domain and client; without one, clients are trusted with what they return, as they are
//! with refunds.
//!
//! Encoding: version (1), digest of the counter (16), instant of the charge in us (8), hits (4),
//! time for which they can be admitted in us (8), number of the loan (16), authentication code if
//! there is a key (16). Numbers are big-endian.

#![warn(clippy::arithmetic_side_effects)]

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::algorithm::lease::{LONGEST_LOAN, Lease};
use crate::algorithm::time::{Micros, Timestamp};
use crate::algorithm::{Limit, Receipt};
use crate::bounded_file;
use crate::descriptor::{HashKey, Keyed, OwnedKey, RECEIPT_BYTES};

/// Maximum number of keys: the first signs, both verify.
const MAX_KEYS: usize = 2;
const VERSION: u8 = 1;
/// Length of a receipt without its authentication code.
const BYTES: usize = 53;

/// The contents of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanReceipt {
    /// Digest of the counter.
    pub counter: CounterDigest,
    /// The charge. Never one to an operator's grant.
    pub charge: Receipt,
    /// The time for which the hits can be admitted.
    pub usable_for: Micros,
    /// Random number of the loan.
    pub number: [u8; 16],
}

/// Digest of a counter and its shape, of which its key consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterDigest([u8; 16]);

/// Reason why bytes are no receipt of this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// Not in the format of receipts.
    #[error("malformed receipt")]
    Malformed,
    /// Not signed for this domain and client by a key in use.
    #[error("receipt without a valid signature")]
    Forged,
}

/// Reason why a file has no keys for receipts. Two readings of a file can be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum ReceiptKeysError {
    /// The file cannot be read.
    #[error("{reason}")]
    Unreadable { reason: String },
    /// No line with a key, or too many.
    #[error("expected 1 or {MAX_KEYS} lines with a key, found {found}")]
    Lines { found: usize },
    /// A key that can be guessed.
    #[error("a key must have at least {} bytes", HashKey::MIN_BYTES)]
    Short,
}

/// The owner of a receipt: the client that got it, in a domain.
#[derive(Clone, Copy, Debug)]
pub struct ReceiptOwner<'a> {
    /// The domain.
    pub domain: &'a str,
    /// The client's names.
    pub client: &'a str,
}

/// The keys that authenticate receipts; without any, receipts are not signed. Clones share them.
#[derive(Clone, Default)]
pub struct ReceiptKeys(Arc<ArcSwap<Vec<Keyed>>>);

impl CounterDigest {
    /// Returns the digest of a counter.
    pub fn of(domain: &str, key: &OwnedKey) -> Self {
        let key = key.within(domain);
        let length = u64::try_from(domain.len()).unwrap_or(u64::MAX).to_be_bytes();
        let slot = [u8::from(key.is_in_one_slot())];
        let parts = [&length[..], domain.as_bytes(), &slot, key.bytes()];
        Self(first_bytes(&parts))
    }
}

/// Returns a number that differs for another counter, for limits of other amounts, and for blocks
/// of another size or time. It is the same on all replicas.
pub fn generation(counter: CounterDigest, limit: &Limit, lease: &Lease) -> u64 {
    let mut text = format!("{} {}", lease.hits, lease.ttl.get());
    for window in limit.windows() {
        text.push_str(&format!(" {window}"));
    }
    for parameter in limit.algorithm().parameters() {
        text.push_str(&format!(" {} {}", parameter.name, parameter.value));
    }
    u64::from_be_bytes(first_bytes(&[&counter.0, text.as_bytes()]))
}

impl LoanReceipt {
    /// Encodes the receipt for its owner.
    pub fn encode(&self, keys: &ReceiptKeys, owner: ReceiptOwner<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES.saturating_add(RECEIPT_BYTES));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.counter.0);
        bytes.extend_from_slice(&self.charge.at.as_micros().to_be_bytes());
        let hits = u32::try_from(self.charge.hits).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&hits.to_be_bytes());
        bytes.extend_from_slice(&self.usable_for.get().to_be_bytes());
        bytes.extend_from_slice(&self.number);
        let code = keys.0.load().first().map(|key| key.of_receipt(&signed(&bytes, owner)));
        bytes.extend(code.into_iter().flatten());
        bytes
    }

    /// Decodes the receipt of an owner.
    ///
    /// # Errors
    /// [`ReceiptError`]
    pub fn decode(
        bytes: &[u8],
        keys: &ReceiptKeys,
        owner: ReceiptOwner<'_>,
    ) -> Result<Self, ReceiptError> {
        let (text, code) = bytes.split_at_checked(BYTES).ok_or(ReceiptError::Malformed)?;
        let keys = keys.0.load();
        if keys.is_empty() {
            if !code.is_empty() {
                return Err(ReceiptError::Malformed);
            }
        } else {
            let signed = signed(text, owner);
            if !keys.iter().any(|key| key.of_receipt(&signed).ct_eq(code).into()) {
                return Err(ReceiptError::Forged);
            }
        }
        Self::read(text).ok_or(ReceiptError::Malformed)
    }

    fn read(text: &[u8]) -> Option<Self> {
        let (version, rest) = text.split_first()?;
        let (counter, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let (hits, rest) = rest.split_first_chunk()?;
        let (usable_for, rest) = rest.split_first_chunk()?;
        let number = *rest.first_chunk()?;
        let usable_for = Micros::new(u64::from_be_bytes(*usable_for));
        let charge = Receipt {
            at: Timestamp::from_micros(u64::from_be_bytes(*at)),
            hits: u32::from_be_bytes(*hits).into(),
            of_grant: false,
        };
        let is_valid = *version == VERSION && usable_for <= LONGEST_LOAN;
        let counter = CounterDigest(*counter);
        is_valid.then_some(Self { counter, charge, usable_for, number })
    }
}

impl ReceiptKeys {
    /// Reads the keys of a file: one or two lines, of which the first signs.
    ///
    /// # Errors
    /// [`ReceiptKeysError`]
    pub fn read(path: &Path) -> Result<Vec<HashKey>, ReceiptKeysError> {
        let text = bounded_file::read(path)
            .map_err(|error| ReceiptKeysError::Unreadable { reason: error.to_string() })?;
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
        if !(1..=MAX_KEYS).contains(&lines.len()) {
            return Err(ReceiptKeysError::Lines { found: lines.len() });
        }
        if lines.iter().any(|line| line.len() < HashKey::MIN_BYTES) {
            return Err(ReceiptKeysError::Short);
        }
        Ok(lines.into_iter().map(HashKey::of).collect())
    }

    /// Creates keys of which the first signs.
    pub fn new(keys: &[HashKey]) -> Self {
        let all = Self::default();
        all.replace(keys);
        all
    }

    /// Replaces the keys.
    pub fn replace(&self, keys: &[HashKey]) {
        self.0.store(Arc::new(keys.iter().map(Keyed::new).collect()));
    }
}

impl fmt::Debug for ReceiptKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiptKeys(***)")
    }
}

/// Returns the text of which the authentication code is made.
fn signed(text: &[u8], owner: ReceiptOwner<'_>) -> Vec<u8> {
    let length = u64::try_from(owner.domain.len()).unwrap_or(u64::MAX).to_be_bytes();
    [text, &length, owner.domain.as_bytes(), owner.client.as_bytes()].concat()
}

/// Returns the first bytes of the digest of `parts`.
fn first_bytes<const COUNT: usize>(parts: &[&[u8]]) -> [u8; COUNT] {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part));
    let mut bytes = [0; COUNT];
    bytes.iter_mut().zip(digest.finalize()).for_each(|(byte, new)| *byte = new);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: ReceiptOwner<'_> = ReceiptOwner { domain: "d", client: "c" };

    fn receipt() -> LoanReceipt {
        LoanReceipt {
            counter: CounterDigest::of("d", &OwnedKey::of(b"key", false)),
            charge: Receipt { at: Timestamp::from_micros(1_000_000), hits: 50, of_grant: false },
            usable_for: Micros::new(500_000),
            number: [7; 16],
        }
    }

    fn key(text: &str) -> HashKey {
        HashKey::of(text.as_bytes())
    }

    #[test]
    fn a_receipt_reads_as_it_was_written() {
        for keys in [ReceiptKeys::default(), ReceiptKeys::new(&[key("one")])] {
            let bytes = receipt().encode(&keys, OWNER);
            assert!(bytes.len() <= 256, "the bound in lease.proto");
            assert_eq!(LoanReceipt::decode(&bytes, &keys, OWNER), Ok(receipt()));
        }
    }

    #[test]
    fn a_signature_is_of_all_bytes_the_domain_and_the_client() {
        let keys = ReceiptKeys::new(&[key("one")]);
        let bytes = receipt().encode(&keys, OWNER);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let found = LoanReceipt::decode(&other, &keys, OWNER);
            assert_eq!(found, Err(ReceiptError::Forged), "byte {at}");
        }
        for other in [
            ReceiptOwner { domain: "e", client: "c" },
            ReceiptOwner { domain: "d", client: "e" },
            ReceiptOwner { domain: "dc", client: "" },
        ] {
            assert_eq!(LoanReceipt::decode(&bytes, &keys, other), Err(ReceiptError::Forged));
        }
        let unsigned = receipt().encode(&ReceiptKeys::default(), OWNER);
        assert_eq!(LoanReceipt::decode(&unsigned, &keys, OWNER), Err(ReceiptError::Forged));
    }

    #[test]
    fn a_receipt_of_the_previous_key_is_valid_until_that_is_removed() {
        let old = ReceiptKeys::new(&[key("one")]);
        let bytes = receipt().encode(&old, OWNER);
        old.replace(&[key("two"), key("one")]);
        assert_eq!(LoanReceipt::decode(&bytes, &old, OWNER), Ok(receipt()));
        assert_ne!(receipt().encode(&old, OWNER), bytes, "the first key signs");
        old.replace(&[key("two")]);
        assert_eq!(LoanReceipt::decode(&bytes, &old, OWNER), Err(ReceiptError::Forged));
    }

    #[test]
    fn bytes_that_are_no_receipt_are_refused() {
        let keys = ReceiptKeys::default();
        let bytes = receipt().encode(&keys, OWNER);
        let long = LoanReceipt { usable_for: LONGEST_LOAN + Micros::new(1), ..receipt() };
        let mut versioned = bytes.clone();
        versioned[0] = 9;
        let others = [
            Vec::new(),
            bytes[1..].to_vec(),
            [&bytes[..], &[0]].concat(),
            versioned,
            long.encode(&keys, OWNER),
        ];
        for other in others {
            let found = LoanReceipt::decode(&other, &keys, OWNER);
            assert_eq!(found, Err(ReceiptError::Malformed));
        }
    }

    #[test]
    fn counters_have_digests_of_their_own() {
        let of = |domain, key: &[u8]| CounterDigest::of(domain, &OwnedKey::of(key, false));
        assert_ne!(of("d", b"a"), of("d", b"b"));
        assert_ne!(of("d", b"a"), of("e", b"a"));
        assert_ne!(of("da", b"b"), of("d", b"ab"));
    }
}
