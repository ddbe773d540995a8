//! Fuzz targets for connections without IO and for HPACK: run by cargo-fuzz, and for seconds by the
//! tests below.
//!
//! They are compiled into the crate, for tests and fuzzing only, because connections are private:
//! no caller needs one without its socket, and a public type for tests alone would be one more API
//! to keep stable.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::arithmetic_side_effects,
    reason = "a target that panics has found something"
)]

mod client;
pub mod connection;
pub mod frames;
pub mod hpack;
pub(super) mod service;
#[cfg(test)]
mod tests;
mod wire;

/// Input of a target, read as numbers; zeros after its end.
#[derive(Clone, Copy, Debug)]
struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    fn u16(&mut self) -> u16 {
        u16::from(self.u8()) << 8 | u16::from(self.u8())
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// Returns a number below 2^16; small ones are as frequent as large ones.
    fn size(&mut self) -> usize {
        let bits = self.u8() % 17;
        usize::from(self.u16()) & ((1 << bits) - 1)
    }

    /// Returns at most `length` bytes.
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
