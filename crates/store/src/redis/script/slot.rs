//! The slot of a key, one of a Cluster's 16,384.

/// Number of slots in a Cluster.
pub(in crate::redis) const SLOTS: u16 = 16_384;

/// Returns the slot of a key: the CRC16 (XMODEM) of its hash tag, or of the whole key if it has
/// none. The hash tag is the text between the first `{` and the next `}`, unless empty. Source: the
/// Redis Cluster specification, "Hash tags".
pub(in crate::redis) fn slot_of(key: &[u8]) -> u16 {
    crc16(in_braces(key).filter(|tag| !tag.is_empty()).unwrap_or(key)) % SLOTS
}

/// Returns the bytes between the first `{` and the next `}`. If they are empty, Redis looks no
/// further for a hash tag.
pub(super) fn in_braces(key: &[u8]) -> Option<&[u8]> {
    // Most keys have no brace, which `contains` finds out faster than `position` does.
    let open = key.contains(&b'{').then(|| key.iter().position(|byte| *byte == b'{')).flatten()?;
    let (_, after) = key.get(open..)?.split_first()?;
    after.get(..after.iter().position(|byte| *byte == b'}')?)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc16_of(crc, *byte))
}

/// Returns the CRC16 of bytes with this CRC16, followed by another byte.
pub(super) fn crc16_of(crc: u16, byte: u8) -> u16 {
    let [high, low] = crc.to_be_bytes();
    let of_high = CRC_OF.get(usize::from(high ^ byte)).copied().unwrap_or_default();
    u16::from_be_bytes([low, 0]) ^ of_high
}

/// The CRC16 of each byte.
#[allow(clippy::indexing_slicing, reason = "a constant, which would not compile")]
static CRC_OF: [u16; 256] = {
    const POLYNOMIAL: u16 = 0x1021;
    let mut table = [0; 256];
    let mut byte = 0u16;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
    }
}
