//! The open holds of a counter, for operators.

use crate::algorithm::concurrency::Permit;

/// The open holds of a counter, as far as its store lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldList {
    /// The permits, or for each ID its first charge, expiry and hits; the oldest first.
    pub holds: Vec<Permit>,
    /// Number of records that were not read: a store may list a sample of a counter that has many.
    pub unread: u64,
}

impl HoldList {
    /// Sorts holds, those taken at one instant by ID. Permits of one ID keep their order.
    pub fn oldest_first(mut holds: Vec<Permit>, unread: u64) -> Self {
        holds.sort_by(|one, other| {
            one.taken_at.cmp(&other.taken_at).then_with(|| one.id.cmp(&other.id))
        });
        Self { holds, unread }
    }
}
