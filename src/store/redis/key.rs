//! What a counter's key is called in Redis.

use smallvec::SmallVec;

use crate::descriptor::CounterKey;

/// A key as Redis has it.
pub(super) type Key = SmallVec<[u8; 112]>;

/// The prefix and the key; before the key a hash tag where all counters of the domain have to be in one slot.
pub(super) fn key_of(prefix: &[u8], key: &CounterKey<'_>) -> Key {
    let mut whole = Key::from_slice(prefix);
    if key.is_in_one_slot() {
        whole.extend_from_slice(b"{d:");
        whole.extend_from_slice(key.domain().as_bytes());
        whole.extend_from_slice(b"}");
    }
    whole.extend_from_slice(key.bytes());
    whole
}
