//! Requests and counter keys as values: domains, descriptors, entries and keys.
//!
//! Everything borrows from the request. A key is encoded and hashed once, and passed by reference.

pub mod hold;
mod identity;
mod keyed;

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::OnceLock;

use foldhash::quality::SeedableRandomState;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use self::identity::IDENTITY_BYTES;
pub use self::identity::Identity;
pub use self::keyed::{HashKey, Keyed, RECEIPT_BYTES};
use crate::algorithm::hold::HoldRequest;
use crate::algorithm::judge::Hits;
use crate::algorithm::time::Micros;

/// A key and a value, as bytes: proxies forward header bytes that are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Key of the entry.
    pub key: &'a [u8],
    /// Value of the entry; may be empty.
    pub value: &'a [u8],
}

/// Parses `key=value,key=value` into entries; a key alone has an empty value, and a value may
/// contain further `=`.
pub fn entries(text: &str) -> Vec<Entry<'_>> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    pairs.map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() }).collect()
}

/// An amount and a period that a request sets for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// Hits per period.
    pub limit: u32,
    /// The period.
    pub period: Micros,
}

/// An ordered list of entries, with the operation on the limit that they match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// Entries in order; may be empty.
    pub entries: SmallVec<[Entry<'a>; 4]>,
    /// Hits to charge, peek or refund; a refund of none for the end of a hold.
    pub hits: Hits,
    /// Operation on the holds of an ID. Boxed, since few requests have one.
    pub hold: Option<Box<HoldRequest<'a>>>,
    /// Limit that the request itself sets.
    pub limit: Option<Override>,
}

/// A request: a domain and at least one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Namespace of policies.
    pub domain: &'a str,
    /// Descriptors to judge, in order.
    pub descriptors: SmallVec<[Descriptor<'a>; 2]>,
}

/// Version of the key format; a new version starts with empty counters.
const FORMAT: u8 = 1;
/// Flag of the first byte of a key with a period.
const PERIOD: u8 = 2;
/// Maximum length of key text that is stored in full; longer text is stored as a digest.
const MAX_TEXT: usize = 64;
/// Length of the digest of long text in bytes: 128 bits, because clients choose the text.
const DIGEST_BYTES: usize = 16;
/// Length of the version and kind byte and the rule's identity.
const PREFIX_BYTES: usize = 1 + IDENTITY_BYTES;

/// The key of one counter: injective in the format version, the rule identity and the values.
#[derive(Clone, Copy, Debug)]
pub struct CounterKey<'a> {
    domain: &'a str,
    bytes: &'a [u8],
    hash: u64,
    in_one_slot: bool,
}

impl<'a> CounterKey<'a> {
    /// Creates a key from bytes that were encoded before.
    pub fn of(domain: &'a str, bytes: &'a [u8]) -> Self {
        Self { domain, bytes, hash: hash_of(bytes), in_one_slot: false }
    }

    /// Returns the key, to be kept in the same slot as all others of its domain if `in_one_slot`.
    pub fn in_one_slot(self, in_one_slot: bool) -> Self {
        Self { in_one_slot, ..self }
    }

    /// Returns `true` if the counter must be in the same slot as all others of its domain.
    pub fn is_in_one_slot(&self) -> bool {
        self.in_one_slot
    }

    /// Returns the domain, which shares the capacity of a store with other domains.
    pub fn domain(&self) -> &'a str {
        self.domain
    }

    /// Returns the key, at most 75 bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns a hash of the bytes that clients cannot predict, stable within this process only.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// Equality covers the slot: in another one, the same bytes are another counter of a shared store.
impl PartialEq for CounterKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.in_one_slot == other.in_one_slot
    }
}

impl Eq for CounterKey<'_> {}

/// The key of a counter, kept beyond the request. Leaves out the domain, which the bytes identify.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnedKey {
    bytes: Box<[u8]>,
    in_one_slot: bool,
}

impl OwnedKey {
    /// Creates a key from bytes that were encoded before.
    pub fn of(bytes: &[u8], in_one_slot: bool) -> Self {
        Self { bytes: bytes.into(), in_one_slot }
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the key in its domain.
    pub fn within<'a>(&'a self, domain: &'a str) -> CounterKey<'a> {
        CounterKey::of(domain, &self.bytes).in_one_slot(self.in_one_slot)
    }
}

impl From<CounterKey<'_>> for OwnedKey {
    fn from(key: CounterKey<'_>) -> Self {
        Self { bytes: key.bytes.into(), in_one_slot: key.in_one_slot }
    }
}

impl PartialEq<CounterKey<'_>> for OwnedKey {
    fn eq(&self, other: &CounterKey<'_>) -> bool {
        *self.bytes == *other.bytes && self.in_one_slot == other.in_one_slot
    }
}

/// A buffer for the encoded keys of one request.
///
/// A key is started, extended with the matched values part by part, and finished with the identity
/// of the matched rule.
#[derive(Debug, Default)]
pub struct KeyBuffer {
    bytes: SmallVec<[u8; 128]>,
    start: usize,
}

/// The range of a key in a [`KeyBuffer`]. Its keys are those of one request, each truncated to a
/// digest if long, and take far less than 4 GiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange(Range<u32>);

/// The encoding of a key's text. The bit in between marks a period.
#[derive(Clone, Copy)]
enum KeyEncoding {
    Text = 0,
    Digest = 1,
    Keyed = 4,
}

impl KeyBuffer {
    /// Starts a key; drops one that was started but not finished.
    pub fn begin(&mut self) {
        self.bytes.truncate(self.start);
        self.bytes.extend_from_slice(&[0; PREFIX_BYTES]);
    }

    /// Appends a part, prefixed with its length.
    pub fn push(&mut self, part: &[u8]) {
        let mut length = part.len();
        // A protobuf varint: seven bits per byte, lowest first.
        while length >= 0x80 {
            self.bytes.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
            length >>= 7;
        }
        self.bytes.push(u8::try_from(length).unwrap_or_default());
        self.bytes.extend_from_slice(part);
    }

    /// Finishes the key. `period` is that of an override, if it differs from the rule's own.
    pub fn finish(&mut self, identity: &Identity, period: Option<Micros>) -> KeyRange {
        self.finish_keyed(identity, period, None)
    }

    /// Like [`finish`](Self::finish), for values that must not be readable in the key.
    pub fn finish_keyed(
        &mut self,
        identity: &Identity,
        period: Option<Micros>,
        keyed: Option<&Keyed>,
    ) -> KeyRange {
        if let Some(period) = period {
            self.bytes.extend_from_slice(&period.get().to_be_bytes());
        }
        let text_at = self.start.saturating_add(PREFIX_BYTES);
        let text = self.bytes.get(text_at..).unwrap_or_default();
        let (kind, digest): (_, Option<[u8; DIGEST_BYTES]>) = match keyed {
            Some(keyed) => (KeyEncoding::Keyed, Some(keyed.of_counter(text))),
            None if text.len() > MAX_TEXT => {
                (KeyEncoding::Digest, Some(truncated(Sha256::new_with_prefix(text))))
            }
            None => (KeyEncoding::Text, None),
        };
        if let Some(digest) = digest {
            self.bytes.truncate(text_at);
            self.bytes.extend_from_slice(&digest);
        }
        // The first byte distinguishes encodings that could otherwise collide: full text or digest,
        // with or without a period.
        let tag = (FORMAT << 4) | if period.is_some() { PERIOD } else { 0 } | kind as u8;
        if let Some([first, rest @ ..]) = self.bytes.get_mut(self.start..)
            && let Some(written) = rest.first_chunk_mut()
        {
            *first = tag;
            *written = identity.0;
        }
        let [start, end] =
            [self.start, self.bytes.len()].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        let range = KeyRange(start..end);
        self.start = self.bytes.len();
        range
    }

    /// Returns a finished key.
    pub fn key<'a>(&'a self, domain: &'a str, range: &KeyRange) -> CounterKey<'a> {
        let [start, end] =
            [range.0.start, range.0.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let bytes = self.bytes.get(start..end).unwrap_or_default();
        CounterKey::of(domain, bytes)
    }
}

/// The hash function of keys.
static HASHES: OnceLock<SeedableRandomState> = OnceLock::new();

/// Makes the hashes of keys the same in every process, for simulations that are replayed. Clients
/// could then predict them. Returns `false` without effect if a key was hashed before.
pub fn fix_hashes() -> bool {
    HASHES.set(SeedableRandomState::fixed()).is_ok()
}

/// Returns the hash of a key's bytes, as [`CounterKey::hash`] does.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = HASHES.get_or_init(SeedableRandomState::random).build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

fn truncated<const BYTES: usize>(digest: Sha256) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.iter_mut().zip(digest.finalize()).for_each(|(byte, new)| *byte = new);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identity: &Identity, parts: &[&[u8]], period: Option<u64>) -> Vec<u8> {
        let mut buffer = KeyBuffer::default();
        buffer.begin();
        parts.iter().for_each(|part| buffer.push(part));
        let range = buffer.finish(identity, period.map(Micros::new));
        buffer.key("d", &range).bytes().to_vec()
    }

    #[test]
    fn keys_that_read_the_same_when_joined_are_different() {
        let rule = Identity::of([b"rule".as_slice()]);
        assert_ne!(key(&rule, &[b"a", b"b_c"], None), key(&rule, &[b"a_b", b"c"], None));
        assert_ne!(key(&rule, &[b"", b"a"], None), key(&rule, &[b"a", b""], None));
        assert_ne!(Identity::of([b"ab".as_slice(), b"c"]), Identity::of([b"a".as_slice(), b"bc"]));
        let eight = [b'x'; 8];
        assert_ne!(
            key(&rule, &[b"a"], Some(u64::from_be_bytes(eight))),
            key(&rule, &[b"a", &eight[1..]], None)
        );
    }

    #[test]
    fn long_text_is_a_digest_that_no_text_can_imitate() {
        let rule = Identity::of([b"rule".as_slice()]);
        let short = key(&rule, &[&[7; 63]], None);
        let long = key(&rule, &[&[7; 64]], None);
        assert_eq!((short.len(), long.len()), (PREFIX_BYTES + 64, PREFIX_BYTES + DIGEST_BYTES));
        let imitation = &long[PREFIX_BYTES + 1..];
        assert_ne!(key(&rule, &[imitation], None), long);
        assert_ne!(key(&rule, &[&[7; 60_000]], None), key(&rule, &[&[7; 60_001]], None));
    }

    #[test]
    fn hashed_values_have_a_counter_per_value_and_key_and_are_not_shown() {
        let rule = Identity::of([b"rule".as_slice()]);
        let key = |secret: &[u8], part: &[u8]| {
            let mut buffer = KeyBuffer::default();
            buffer.begin();
            buffer.push(part);
            let range = buffer.finish_keyed(&rule, None, Some(&Keyed::new(&HashKey::of(secret))));
            buffer.key("d", &range).bytes().to_vec()
        };
        let ann = key(b"secret", b"ann");
        assert_eq!(ann.len(), PREFIX_BYTES + DIGEST_BYTES);
        assert!(!ann.windows(3).any(|bytes| bytes == b"ann"));
        assert_eq!(ann, key(b"secret", b"ann"));
        assert_ne!(ann, key(b"secret", b"bob"));
        assert_ne!(ann, key(b"another", b"ann"));
        assert_eq!(key(b"secret", &[7; 60_000]).len(), ann.len());
    }

    #[test]
    fn a_counter_beside_the_others_of_its_domain_is_not_the_one_that_is_not() {
        let bytes = key(&Identity::of([b"rule".as_slice()]), &[b"a"], None);
        let [apart, beside] =
            [false, true].map(|in_one_slot| CounterKey::of("d", &bytes).in_one_slot(in_one_slot));
        assert_ne!(apart, beside);
        for key in [apart, beside] {
            let owned = OwnedKey::from(key);
            assert!(owned == key && owned.within("d") == key);
            assert_eq!(owned == apart, key == apart);
        }
    }

    #[test]
    fn a_buffer_holds_the_keys_of_a_request_and_drops_unfinished_ones() {
        let rule = Identity::of([b"rule".as_slice()]);
        let mut buffer = KeyBuffer::default();
        buffer.begin();
        buffer.push(b"first");
        let first = buffer.finish(&rule, None);
        buffer.begin();
        buffer.push(b"dropped");
        buffer.begin();
        buffer.push(b"second");
        let second = buffer.finish(&rule, None);
        assert_eq!(buffer.key("d", &first).bytes(), key(&rule, &[b"first"], None));
        assert_eq!(buffer.key("d", &second).bytes(), key(&rule, &[b"second"], None));
    }
}
