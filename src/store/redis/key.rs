//! What a counter's key is called in Redis.

use crate::descriptor::CounterKey;

/// The prefix and the key; before the key a hash tag where all counters of the domain have to be in one slot.
pub(super) fn key_of(prefix: &[u8], key: &CounterKey<'_>) -> Vec<u8> {
    match key.is_in_one_slot() {
        true => [prefix, b"{d:", key.domain().as_bytes(), b"}", key.bytes()].concat(),
        false => [prefix, key.bytes()].concat(),
    }
}
