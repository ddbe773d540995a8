//! The part of a limit that one of several processes admits when it decides alone.
//!
//! Idea: of the hits 0, 1, 2, … of a limit, the process of rank r of N has every Nth from r on. The
//! shares of all ranks sum to the limit, and the last rank has the smallest.
//!
//! Example: of a limit of 5, three processes have 2, 2 and 1; of a limit of 1, they have 1, 0, 0.

use std::num::NonZeroU32;

/// One of several shares of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    parts: NonZeroU32,
    rank: u32,
}

impl Share {
    /// Nothing of any limit.
    pub const NONE: Self = Self { parts: NonZeroU32::MIN, rank: u32::MAX };

    /// Creates the share of a rank, from 0. Without one, the smallest share: that of the last rank.
    pub fn of(parts: NonZeroU32, rank: Option<u32>) -> Self {
        Self { parts, rank: rank.unwrap_or(parts.get().saturating_sub(1)) }
    }

    /// Returns the part of an amount, which may be 0.
    pub fn amount(self, whole: u32) -> u32 {
        whole.saturating_sub(self.rank).div_ceil(self.parts.get())
    }

    /// Returns the share as one number.
    pub fn to_bits(self) -> u64 {
        u64::from(self.parts.get()) << 32 | u64::from(self.rank)
    }

    /// Returns the share of a number that [`Self::to_bits`] returned.
    pub fn from_bits(bits: u64) -> Self {
        let [parts, rank] = [bits >> 32, bits & u64::from(u32::MAX)]
            .map(|half| u32::try_from(half).unwrap_or(u32::MAX));
        NonZeroU32::new(parts).map_or(Self::NONE, |parts| Self { parts, rank })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::concurrency::Concurrency;
    use crate::algorithm::fixed_window::FixedWindow;
    use crate::algorithm::gcra::Gcra;
    use crate::algorithm::quota::{MAX_IN_FLIGHT, Window};
    use crate::algorithm::time::Micros;
    use crate::algorithm::{Algorithm, Charge, Limit, OnStoreError};

    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new(algorithm, Charge::Admitted, OnStoreError::Local).unwrap()
    }

    fn per_hour(amount: u32) -> Window {
        Window::new(amount, Micros::from_secs(3600)).unwrap()
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_amount(parts in 1..300_u32, whole in prop_oneof![0..700_u32, any::<u32>()]) {
            let count = NonZeroU32::new(parts).unwrap();
            let of = |rank| u64::from(Share::of(count, rank).amount(whole));
            prop_assert_eq!((0..parts).map(|rank| of(Some(rank))).sum::<u64>(), u64::from(whole));
            // Processes without a rank never have more together, whatever others know.
            prop_assert!((0..parts).all(|rank| of(None) <= of(Some(rank))));
            prop_assert_eq!(of(None), u64::from(whole / parts));
            prop_assert_eq!(Share::NONE.amount(whole), 0);
            let share = Share::of(count, Some(parts - 1));
            prop_assert_eq!(Share::from_bits(share.to_bits()), share);
        }

        #[test]
        fn shares_of_limits_never_sum_to_more(
            parts in 1..9_u32,
            amounts in prop::array::uniform2(0..40_u32),
            burst in 1..20_u32,
        ) {
            let [first, second] = amounts;
            let windows = || vec![per_hour(first), Window::new(second, Micros::from_secs(7)).unwrap()];
            let fixed = limit(Algorithm::FixedWindow(FixedWindow::new(windows()).unwrap()));
            let gcra = limit(Algorithm::Gcra(Gcra::new(per_hour(first), Some(burst), None).unwrap()));
            let permits = limit(Algorithm::Concurrency(
                Concurrency::new(first.min(MAX_IN_FLIGHT)).unwrap(),
            ));
            let count = NonZeroU32::new(parts).unwrap();
            let shares = |limit: &Limit| -> Vec<Limit> {
                (0..parts).map(|rank| limit.share(Share::of(count, Some(rank)))).collect()
            };
            let fixed = shares(&fixed);
            for (number, amount) in amounts.into_iter().enumerate() {
                let sum: u32 = fixed.iter().map(|limit| limit.windows()[number].limit()).sum();
                prop_assert_eq!(sum, amount);
            }
            let permits = shares(&permits);
            prop_assert_eq!(permits.iter().filter_map(Limit::in_flight).sum::<u32>(), first);
            let gcra = shares(&gcra);
            // A ban has no burst. A process whose share of either is 0 has no use for the other.
            prop_assert!(gcra.iter().filter_map(Limit::burst).sum::<u32>() <= burst);
            prop_assert!(gcra.iter().map(|limit| limit.windows()[0].limit()).sum::<u32>() <= first);
            prop_assert!(burst < parts || first < parts || gcra.iter().all(|limit| !limit.is_ban()));
            for limit in fixed.iter().chain(&permits).chain(&gcra) {
                let is_nothing = limit.in_flight() == Some(0)
                    || limit.windows().iter().any(|window| window.limit() == 0);
                prop_assert_eq!(limit.is_ban(), is_nothing);
            }
        }
    }
}
