//! Names of keys in Redis.

use std::sync::LazyLock;

use smallvec::SmallVec;
use tollgate_core::descriptor::{CounterKey, OwnedKey};

use super::slot::{SLOTS, crc16_of, in_braces, slot_of};
use crate::loan::LoanNumber;

/// The name of a key in Redis.
pub(in crate::redis) type RedisKey = SmallVec<[u8; 112]>;

/// Returns the name of a counter's key: the prefix, followed by the bytes of the key.
///
/// If all counters of the domain must be in one slot, the hash tag `{d:DOMAIN}` is inserted between
/// the two. Otherwise no byte of the key may form a hash tag, since clients choose values and could
/// send all their counters to one node: a key with braces is preceded by an empty tag, after which
/// Redis looks for no other and hashes the whole name. A hash tag in the prefix is closed there
/// ([`check_prefix`]), and is therefore the only one. The mapping is injective: a key that begins
/// with `{}` contains braces itself.
pub(in crate::redis) fn key_of(prefix: &[u8], key: &CounterKey<'_>) -> RedisKey {
    let mut name = RedisKey::from_slice(prefix);
    if key.is_in_one_slot() {
        name.extend_from_slice(b"{d:");
        name.extend_from_slice(key.domain().as_bytes());
        name.extend_from_slice(b"}");
    } else if in_braces(key.bytes()).is_some() && !prefix.contains(&b'{') {
        name.extend_from_slice(b"{}");
    }
    name.extend_from_slice(key.bytes());
    name
}

/// Returns the key with this name, the inverse of [`key_of`]; `None` without the prefix.
pub(in crate::redis) fn key_in(prefix: &[u8], name: &[u8]) -> Option<OwnedKey> {
    let rest = name.strip_prefix(prefix)?;
    if let Some(tagged) = rest.strip_prefix(b"{d:") {
        // A domain may contain a brace, and is followed by the first byte of a key.
        let end = tagged.windows(2).position(|pair| matches!(pair, [b'}', 0x10..=0x1f]))?;
        let (_, bytes) = tagged.get(end..)?.split_first()?;
        return Some(OwnedKey::of(bytes, true));
    }
    Some(OwnedKey::of(rest.strip_prefix(b"{}").unwrap_or(rest), false))
}

/// Returns the name of the key of a counter's holds, in the slot of the counter: a name of its own
/// for each counter, which no counter has.
///
/// A hash tag in the counter's name is in this name too. Without one, a short tag of the same slot
/// follows the prefix; the names of counters have no such tag.
pub(in crate::redis) fn hold_key_of(prefix: &[u8], key: &CounterKey<'_>) -> RedisKey {
    let mut name = in_slot_of(prefix, key);
    name.extend_from_slice(b":holds");
    name
}

/// Returns the name of the key of a returned loan of a counter, in the slot of the counter, as
/// [`hold_key_of`] does.
pub(in crate::redis) fn loan_key_of(
    prefix: &[u8],
    key: &CounterKey<'_>,
    number: &LoanNumber,
) -> RedisKey {
    let mut name = in_slot_of(prefix, key);
    name.extend_from_slice(b":loan:");
    name.extend_from_slice(number);
    name
}

/// Returns the beginning of names in the slot of a counter, which differ from those of counters.
fn in_slot_of(prefix: &[u8], key: &CounterKey<'_>) -> RedisKey {
    let mut name = key_of(prefix, key);
    if !key.is_in_one_slot() && !prefix.contains(&b'{') {
        let tag = tag_of(slot_of(&name));
        name = RedisKey::from_slice(prefix);
        name.extend_from_slice(b"{");
        name.extend_from_slice(tag.to_string().as_bytes());
        name.extend_from_slice(b"}");
        name.extend_from_slice(key.bytes());
    }
    name
}

/// The smallest number whose decimal digits are in each slot. Computed in about 2 ms.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut left = tags.len();
    // The CRC16 of a number continues that of its digits but the last.
    let mut crcs: Vec<u16> = Vec::new();
    for (number, digit) in (0..=u32::MAX).zip((b'0'..=b'9').cycle()) {
        let before = crcs.get(crcs.len() / 10).filter(|_| number >= 10);
        let crc = crc16_of(before.copied().unwrap_or_default(), digit);
        crcs.push(crc);
        if let Some(free @ None) = tags.get_mut(usize::from(crc % SLOTS)) {
            *free = Some(number);
            left = left.saturating_sub(1);
        }
        if left == 0 {
            break;
        }
    }
    tags.into_iter().map(Option::unwrap_or_default).collect()
});

/// Computes the tags of all slots, so that no decision waits for them.
pub(in crate::redis) fn prepare_tags() {
    LazyLock::force(&TAGS);
}

/// Returns the smallest number whose decimal digits are in a slot.
fn tag_of(slot: u16) -> u32 {
    TAGS.get(usize::from(slot)).copied().unwrap_or_default()
}

/// A prefix with which keys cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// A hash tag that is not closed, so that values can close it.
    #[error("unclosed hash tag `{{` in `{0}`")]
    UnclosedTag(String),
    /// An empty hash tag, which disables that of `atomicity: domain`.
    #[error("empty hash tag `{{}}` in `{0}`")]
    EmptyTag(String),
}

/// Checks that values cannot complete a hash tag opened by the prefix, and that no empty tag in it
/// disables the tag of `atomicity: domain`.
///
/// # Errors
/// If keys cannot begin with this prefix.
pub fn check_prefix(prefix: &str) -> Result<(), PrefixError> {
    match in_braces(prefix.as_bytes()) {
        None if prefix.contains('{') => Err(PrefixError::UnclosedTag(prefix.to_owned())),
        Some([]) => Err(PrefixError::EmptyTag(prefix.to_owned())),
        None | Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use tollgate_core::descriptor::{Identity, KeyBuffer};

    use super::super::slot::slot_of;
    use super::*;

    /// Returns the bytes of the key of a rule for a value.
    fn bytes_of(rule: &[u8], value: &[u8]) -> Vec<u8> {
        let mut keys = KeyBuffer::default();
        keys.begin();
        keys.push(value);
        let range = keys.finish(&Identity::of([rule]), None);
        keys.key("d", &range).bytes().to_vec()
    }

    fn name(prefix: &str, bytes: &[u8]) -> Vec<u8> {
        key_of(prefix.as_bytes(), &CounterKey::of("d", bytes)).to_vec()
    }

    /// Returns a rule whose identity contains this byte.
    fn rule_with(byte: u8) -> String {
        let has_it = |rule: &String| bytes_of(rule.as_bytes(), b"").contains(&byte);
        (0..).map(|number| number.to_string()).find(has_it).unwrap()
    }

    #[test]
    fn values_with_braces_are_spread_over_all_slots() {
        let mut masters = HashMap::<u16, usize>::new();
        for number in 0..1_000 {
            let bytes = bytes_of(b"rule", format!("{{x}}{number}").as_bytes());
            *masters.entry(slot_of(&name("", &bytes)) * 3 / 16_384).or_default() += 1;
        }
        assert!(masters.len() == 3 && masters.values().all(|keys| *keys > 250), "{masters:?}");
    }

    #[test]
    fn no_byte_of_a_key_is_a_hash_tag() {
        let opening = rule_with(b'{');
        let closing = rule_with(b'}');
        for rule in ["rule", &opening, &closing] {
            for value in ["", "{x}1", "}", "{", "{}", "}{", "x}{y}z", "{}{x}", "{{x}}"] {
                let name = name("p:", &bytes_of(rule.as_bytes(), value.as_bytes()));
                assert!(in_braces(&name).is_none_or(<[u8]>::is_empty), "{rule} {value}");
            }
        }
    }

    #[test]
    fn the_key_is_found_in_its_name() {
        let one = [false, true];
        for (prefix, in_one_slot) in ["", "p:", "{t}"].iter().flat_map(|p| one.map(|o| (p, o))) {
            for value in ["", "ann", "{x}1", "}", "{}", "{}{x}", "}{"] {
                let bytes = bytes_of(b"rule", value.as_bytes());
                let key = CounterKey::of("a}{b", &bytes).in_one_slot(in_one_slot);
                let name = key_of(prefix.as_bytes(), &key);
                assert_eq!(key_in(prefix.as_bytes(), &name), Some(OwnedKey::from(key)), "{value}");
            }
        }
        assert_eq!(key_in(b"p:", b"q:name"), None);
    }

    #[test]
    fn no_two_keys_have_one_name() {
        let parts = ["{", "}", "{}", "x", "d:d"];
        let mut all = vec![Vec::new()];
        for _ in 0..4 {
            all = all
                .iter()
                .flat_map(|key| parts.iter().map(move |part| [key, part.as_bytes()].concat()))
                .collect();
        }
        let keys: HashSet<Vec<u8>> = all.into_iter().collect();
        let names: HashSet<Vec<u8>> = keys.iter().map(|key| name("", key)).collect();
        assert_eq!(names.len(), keys.len());
    }

    #[test]
    fn keys_without_a_pair_of_braces_have_the_names_that_they_always_had() {
        let rule = rule_with(b'{');
        for value in ["", "ann", "{", "}", "}{"] {
            let bytes = bytes_of(b"rule", value.as_bytes());
            assert_eq!(name("p:", &bytes), [b"p:", &bytes[..]].concat(), "{value}");
        }
        let bytes = bytes_of(rule.as_bytes(), b"ann");
        assert_eq!(name("p:", &bytes), [b"p:", &bytes[..]].concat());
        let golden = b"p:\x10\xe0\xfb\x3b\x62\x76\x96\xd3\x4f\x76\xdd\x03ann";
        assert_eq!(name("p:", &bytes_of(b"rule", b"ann")), golden);
    }

    #[test]
    fn after_a_tag_of_ours_or_of_the_prefix_names_stay() {
        let bytes = bytes_of(b"rule", b"{x}1");
        assert_eq!(name("{t}", &bytes), [b"{t}", &bytes[..]].concat());
        let key = CounterKey::of("a}{b", &bytes).in_one_slot(true);
        let in_one_slot = key_of(b"p:", &key);
        assert_eq!(in_one_slot.to_vec(), [b"p:{d:a}{b}", &bytes[..]].concat());
        assert_eq!(slot_of(&in_one_slot), slot_of(b"{d:a}"));
    }

    #[test]
    fn the_tag_of_a_slot_is_the_smallest_number_in_it() {
        let mut smallest = HashMap::new();
        let mut numbers = 0..;
        while smallest.len() < usize::from(SLOTS) {
            let number: u32 = numbers.next().unwrap();
            smallest.entry(slot_of(number.to_string().as_bytes())).or_insert(number);
        }
        assert!(smallest.iter().all(|(slot, number)| tag_of(*slot) == *number));
    }

    #[test]
    fn a_prefix_opens_no_tag_that_it_does_not_close() {
        for good in ["", "p:", "}", "{t}", "a{t}b{", "{{}"] {
            assert_eq!(check_prefix(good), Ok(()));
        }
        for bad in ["{", "a{b", "}{", "{}", "a{}{t}"] {
            assert!(check_prefix(bad).unwrap_err().to_string().contains(bad));
        }
    }
}
