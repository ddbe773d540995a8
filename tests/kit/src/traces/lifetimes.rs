//! Lifetimes of stored keys: as long as memory says that the counter matters, and no longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate::algorithm::GRACE;
use tollgate::algorithm::time::Timestamp;

use super::network::CalmNetwork;
use super::sides::Sides;
use crate::world::server::data::{StoredItem, StoredValue};

/// Minimum lifetime of a key of a store with given instants, in milliseconds.
const LEAST_GIVEN_MS: u64 = 3_600_000;
/// Keys of limits with holds live until a multiple of this.
const HOLDS_LIVE_BY_MS: u64 = 30_000;
/// Instants are rounded to milliseconds.
const ROUNDING_MS: u64 = 1;

/// From here on, the first byte of a value says that data follow which are not the state.
const WITH_DATA: u8 = 48;

/// A counter as memory knows it.
pub(super) struct RememberedCounter {
    pub(super) key: Vec<u8>,
    pub(super) matters_until: Timestamp,
    /// The latest end of an open hold.
    pub(super) held_until: Timestamp,
    pub(super) keeps_holds: bool,
}

/// Compares the lifetimes of items that were written.
pub(super) struct Lifetimes {
    /// Digests of the items of each network before a step.
    digests: Vec<BTreeMap<Vec<u8>, u64>>,
    has_given_time: bool,
}

impl Lifetimes {
    pub(super) fn new(networks: usize, has_given_time: bool) -> Self {
        Self { digests: vec![BTreeMap::new(); networks], has_given_time }
    }

    /// Compares the lifetimes of all items that have changed since the last call. Returns an error
    /// if one is too short or too long.
    pub(super) fn check(
        &mut self,
        sides: &Sides,
        networks: &[Arc<CalmNetwork>],
        now: u64,
    ) -> Result<(), String> {
        let mut counters = None;
        for (number, network) in networks.iter().enumerate() {
            for (name, item) in &network.changed_items(&mut self.digests[number]) {
                network.note(name, item);
                let counters = counters.get_or_insert_with(|| sides.remembered(now));
                // In a Cluster, a charge that another slot denies is taken back later.
                let bounds =
                    self.bounds(counters, (name, item), [now, network.latest_ms() * 1_000]);
                let (least, most) = if number == 0 { bounds } else { (bounds.0, u64::MAX) };
                let lives = item.expires_at.map(|at| at.saturating_sub(network.latest_ms()));
                if lives.is_none_or(|lives| lives < least || lives > most) {
                    let name = name.escape_ascii();
                    return Err(format!("at {now}: {name} lives {lives:?}, not {least} to {most}"));
                }
            }
        }
        Ok(())
    }

    /// Returns the least and the most milliseconds that an item is to live.
    fn bounds(
        &self,
        counters: &[RememberedCounter],
        (name, item): (&[u8], &StoredItem),
        [now, latest]: [u64; 2],
    ) -> (u64, u64) {
        let is_hash = matches!(item.value, StoredValue::Hash(_));
        let name = name.strip_suffix(b":holds").unwrap_or(name);
        let Some(counter) = counters.iter().find(|counter| name.ends_with(&counter.key)) else {
            return (0, u64::MAX);
        };
        let has_data = match &item.value {
            StoredValue::Text(text) => text.first().is_some_and(|tag| *tag >= WITH_DATA),
            StoredValue::Hash(_) | StoredValue::Sorted(_) => true,
        };
        let now = if has_data { latest } else { now };
        let lifetime = |until: Timestamp| {
            (until.as_micros().saturating_sub(now) + GRACE.get()).div_ceil(1_000)
        };
        let most = lifetime(counter.matters_until);
        let least = lifetime(if is_hash { counter.held_until } else { counter.matters_until });
        // A replica whose policy has no holds does not know those of others.
        let knows = counter.keeps_holds || counter.held_until == Timestamp::EPOCH;
        let least = if knows { least } else { 0 };
        let holds = if counter.keeps_holds { HOLDS_LIVE_BY_MS } else { 0 };
        if self.has_given_time && !has_data {
            return (least.max(LEAST_GIVEN_MS), most.max(LEAST_GIVEN_MS) + holds);
        }
        // What does not change how long the counter matters may leave the lifetime as it is.
        let is_needed = least > GRACE.get() / 1_000;
        let least = if is_needed { least - ROUNDING_MS } else { 0 };
        (least, if has_data { u64::MAX } else { most + holds + ROUNDING_MS })
    }
}
