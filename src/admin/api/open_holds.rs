//! The open holds of a counter.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use crate::algorithm::concurrency::Permit;
use crate::algorithm::hold::HoldList;

/// Maximum number of open holds in a view.
const MAX_HOLDS: usize = 100;

/// The open holds of a counter.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeldView {
    /// Number of IDs with open holds; of a `concurrency` limit, of permits.
    pub count: usize,
    /// Hits of all open holds.
    pub hits: u64,
    /// The oldest holds, at most 100.
    pub holds: Vec<HoldView>,
    /// Number of IDs that were not read, with open holds or without: a counter in Redis with more
    /// than 500 is listed by a random sample, and `count` and `hits` are those of the sample.
    #[serde(default)]
    pub unread: u64,
}

impl HeldView {
    /// Returns a view of holds, the oldest first.
    pub(super) fn of(HoldList { holds: open, unread }: &HoldList) -> Self {
        Self {
            count: open.len(),
            hits: open.iter().fold(0, |sum: u64, permit| sum.saturating_add(permit.hits.into())),
            holds: open.iter().take(MAX_HOLDS).map(HoldView::of).collect(),
            unread: *unread,
        }
    }
}

/// The open holds of one ID, or a permit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HoldView {
    /// The ID; hashed if the rule has `hash_values`. Absent for a charge without an ID.
    pub id: Option<String>,
    /// Number of hits.
    pub hits: u32,
    /// Time of the reserve, RFC 3339.
    pub since: String,
    /// Time at which they end by themselves.
    pub until: String,
}

impl HoldView {
    fn of(Permit { id, hits, taken_at, ends_at }: &Permit) -> Self {
        Self {
            id: (!id.is_empty()).then(|| String::from_utf8_lossy(id).into_owned()),
            hits: *hits,
            since: rfc3339(*taken_at),
            until: rfc3339(*ends_at),
        }
    }
}
