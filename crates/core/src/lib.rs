//! Values and pure functions that all parts of Tollgate share: no clock, IO, locks, async or serde.
//!
//! | module | responsibility |
//! |---|---|
//! | [`algorithm`] | arithmetic of limits; new algorithms go here |
//! | [`backoff`] | waits between attempts |
//! | [`descriptor`] | requests and counter keys, as values |
//! | [`printable`] | the characters that are escaped in text for people |
//!
//! Small functions that each decision calls have `#[inline]`. Without link-time optimization, as in
//! the profile `release`, a decision takes up to 3 % more instructions without them.

// An overflow here could lift a limit.
#![warn(clippy::arithmetic_side_effects)]

pub mod algorithm;
pub mod backoff;
pub mod descriptor;
pub mod printable;
