//! Instants and durations in whole microseconds, with saturating arithmetic.
//!
//! Values stay below 2^53, so that a Lua script gets the same results with doubles.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant in whole microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A duration in whole microseconds, at most `u64::MAX - 1`.
///
/// Stored as its value plus one, so that an `Option` of it takes no more room: the reports of a
/// request's limits are moved several times per decision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(NonZeroU64);

impl Timestamp {
    /// The Unix epoch: earlier than any instant at which a counter is written.
    pub const EPOCH: Self = Self(0);

    /// Creates the instant `us` microseconds after the Unix epoch.
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Micros {
        Micros::new(self.0.saturating_sub(earlier.0))
    }

    /// Returns the number of whole `width`s since the epoch: the index of a window or bucket.
    pub const fn index(self, width: Micros) -> u64 {
        match self.0.checked_div(width.get()) {
            Some(index) => index,
            None => 0,
        }
    }

    /// Returns the start of window or bucket number `index` of this `width`.
    pub const fn at_index(index: u64, width: Micros) -> Self {
        Self(index.saturating_mul(width.get()))
    }
}

impl Micros {
    /// A duration of zero.
    pub const ZERO: Self = Self(NonZeroU64::MIN);

    /// Creates a duration of `us` microseconds.
    pub const fn new(us: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(us))
    }

    /// Creates a duration of `seconds` whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self::new(seconds.saturating_mul(1_000_000))
    }

    /// Returns the whole microseconds.
    pub const fn get(self) -> u64 {
        self.0.get().saturating_sub(1)
    }

    /// Returns the seconds, rounded up: proxies truncate, and clients must not retry too early.
    pub const fn as_secs_ceil(self) -> u64 {
        self.get().div_ceil(1_000_000)
    }

    /// Returns the seconds, if they are whole.
    pub const fn as_whole_secs(self) -> Option<u64> {
        if self.get().is_multiple_of(1_000_000) { Some(self.get() / 1_000_000) } else { None }
    }
}

impl Add<Micros> for Timestamp {
    type Output = Self;
    fn add(self, length: Micros) -> Self {
        Self(self.0.saturating_add(length.get()))
    }
}

impl Sub<Micros> for Timestamp {
    type Output = Self;
    fn sub(self, length: Micros) -> Self {
        Self(self.0.saturating_sub(length.get()))
    }
}

impl Add for Micros {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.get().saturating_add(other.get()))
    }
}

impl Sub for Micros {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::new(self.get().saturating_sub(other.get()))
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Micros").field(&self.get()).finish()
    }
}

impl Default for Micros {
    fn default() -> Self {
        Self::ZERO
    }
}

impl From<Micros> for Duration {
    fn from(length: Micros) -> Self {
        Self::from_micros(length.get())
    }
}

impl fmt::Display for Micros {
    /// Formats as in a policy, in the largest unit that divides it: `90s`, `15m`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] = [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "m"),
            (1_000_000, "s"),
            (1_000, "ms"),
            (1, "us"),
        ];
        let whole =
            UNITS.iter().find(|(size, _)| self.get().is_multiple_of(*size) && self.get() > 0);
        let (size, unit) = whole.unwrap_or(&(1_000_000, "s"));
        write!(f, "{}{unit}", self.get().checked_div(*size).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_prints_as_a_policy_writes_it() {
        let printed: Vec<_> = [0, 1, 250_000, 1_000_000, 90_000_000, 900_000_000, 604_800_000_000]
            .map(|us| Micros::new(us).to_string())
            .into();
        assert_eq!(printed, ["0s", "1us", "250ms", "1s", "90s", "15m", "7d"]);
    }

    #[test]
    fn an_optional_length_takes_no_more_room() {
        assert_eq!(size_of::<Option<Micros>>(), size_of::<Micros>());
        for us in [0, 1, 1 << 53, u64::MAX - 1] {
            assert_eq!(Micros::new(us).get(), us);
            assert_eq!(format!("{:?}", Micros::new(us)), format!("Micros({us})"));
        }
    }

    #[test]
    fn a_length_is_a_duration_and_its_seconds_are_rounded_up_or_whole() {
        assert_eq!(Duration::from(Micros::new(1_500)), Duration::from_micros(1_500));
        let lengths = [0, 1, 1_000_000, 1_000_001].map(Micros::new);
        assert_eq!(lengths.map(Micros::as_secs_ceil), [0, 1, 1, 2]);
        assert_eq!(lengths.map(Micros::as_whole_secs), [Some(0), None, Some(1), None]);
    }

    #[test]
    fn time_saturates_at_both_ends() {
        assert_eq!(
            Timestamp::from_micros(u64::MAX) + Micros::new(1),
            Timestamp::from_micros(u64::MAX)
        );
        assert_eq!(Timestamp::EPOCH - Micros::new(1), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::from_micros(7)), Micros::ZERO);
    }
}
