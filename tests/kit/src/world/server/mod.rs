//! Simulated Redis servers: data, clock, replication, and the commands that the store uses.
//!
//! A server runs the real scripts by the real interpreter. Everything else is as small as the
//! store needs: it is held equal to a real server by `redis::simulated`.

pub mod data;
pub mod fleet;
mod hash;
pub mod lua;
pub mod pack;
pub mod resp;
pub mod session;

/// Number of slots of a Cluster.
pub const SLOTS: u16 = 16_384;

/// Returns the slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    let crc = tag.unwrap_or(key).iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}
