//! Store errors that the limits of rules met, by kind and by effect on the decision.
//!
//! A rule has a counter for each pair, which a request only increments. Only those that are not
//! zero are exported: a rule would otherwise have 24 series that are nearly always zero.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::algorithm::store_error::StoreError;

const KINDS: usize = StoreError::ALL.len();
const EFFECTS: usize = Effect::ALL.len();

/// The effect of a store error on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The request ended without a decision.
    Failed,
    /// The limit was presumed to allow.
    Allowed,
    /// The limit was presumed to deny.
    Denied,
    /// This process decided alone, by its share of the limit.
    Local,
}

/// The numbers of store errors: by [`StoreError::index`], then by [`Effect::index`].
pub type UndecidedTable = [[u64; EFFECTS]; KINDS];

/// The store errors that a rule met.
#[derive(Debug, Default)]
pub struct UndecidedCounters([[AtomicU64; EFFECTS]; KINDS]);

impl Effect {
    /// All effects.
    pub const ALL: [Self; 4] = [Self::Failed, Self::Allowed, Self::Denied, Self::Local];

    /// Returns the effect as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Local => "local",
        }
    }

    /// Returns the position in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|effect| *effect == self).unwrap_or_default()
    }
}

impl UndecidedCounters {
    /// Counts an error and its effect.
    pub fn inc(&self, error: StoreError, effect: Effect) {
        let counter = self.0.get(error.index()).and_then(|effects| effects.get(effect.index()));
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of descriptors that were decided without the store.
    pub fn unchecked(&self) -> u64 {
        self.table().iter().map(|[_, allowed, denied, local]| allowed + denied + local).sum()
    }

    pub(super) fn table(&self) -> UndecidedTable {
        self.0
            .each_ref()
            .map(|effects| effects.each_ref().map(|counter| counter.load(Ordering::Relaxed)))
    }
}

/// Returns the kinds and effects of a table with their numbers, without those that are zero.
pub fn met(table: UndecidedTable) -> impl Iterator<Item = (StoreError, Effect, u64)> {
    StoreError::ALL
        .into_iter()
        .zip(table)
        .flat_map(|(error, effects)| {
            Effect::ALL.into_iter().zip(effects).map(move |(effect, count)| (error, effect, count))
        })
        .filter(|(_, _, count)| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind_and_effect() {
        let counters = UndecidedCounters::default();
        for (number, error) in StoreError::ALL.into_iter().enumerate() {
            (0..=number).for_each(|_| counters.inc(error, Effect::Failed));
            counters.inc(error, Effect::Local);
        }
        let counted: Vec<_> = met(counters.table())
            .map(|(error, effect, count)| (error.kind(), effect.label(), count))
            .collect();
        assert_eq!(
            counted[..3],
            [("no_room", "failed", 1), ("no_room", "local", 1), ("unreadable", "failed", 2)]
        );
        assert_eq!((counted.len(), counters.unchecked()), (12, 6));
    }
}
