//! Memory of requests by their descriptors and entries.
//!
//! While a store call is pending, a two-byte descriptor takes a thousand times as much memory, so
//! messages within their bounds could hold gigabytes. The cost of a call covers usual requests, and
//! is charged to its connection; large ones are also charged to the budget of all clients.

use std::sync::Arc;

use super::PREFIX;
use super::request::{self, RequestBounds};
use crate::descriptor::Request;
use crate::http2::{Budget, BudgetExceeded, BudgetHold};

/// Maximum numbers of descriptors and entries of a request that is not large.
const USUAL_DESCRIPTORS: usize = 16;
const USUAL_ENTRIES: usize = 64;
/// Number of descriptors that [`STORE_CALL`] covers.
const COVERED_DESCRIPTORS: usize = 2;
/// Memory of a pending store call of up to two checks in bytes, measured and rounded up: its
/// encoded request, its replies, its part of a batch.
const STORE_CALL: usize = 1536;
/// Memory of a descriptor with its check, outcome, status and part of a Redis call, in bytes.
const OF_DESCRIPTOR: usize = 1536;
/// Memory of an entry in a list that doubles when full, in bytes.
const OF_ENTRY: usize = 64;

/// Memory of the call of a gateway that waits for its store in bytes, without its descriptors:
/// its future, the attributes that its mapping reads.
const MAPPED_CALL: usize = 4 << 10;

/// Returns the memory that a call allocates while it is pending, for up to the descriptors of a
/// usual request.
pub(super) fn heap_of(body: &[u8]) -> usize {
    let descriptors = match body.split_first_chunk::<PREFIX>() {
        Some((&[0, ..], message)) => request::count_descriptors(message, USUAL_DESCRIPTORS),
        // Compressed: it is not known yet.
        Some(_) => USUAL_DESCRIPTORS,
        None => 0,
    };
    STORE_CALL + descriptors.saturating_sub(COVERED_DESCRIPTORS) * OF_DESCRIPTOR
}

/// Returns a budget that has room for a request of the maximum size within the bounds.
pub(super) fn budget_for(bounds: &RequestBounds) -> Arc<Budget> {
    Arc::new(Budget::new(bytes(bounds.descriptors, bounds.all_entries).saturating_mul(2)))
}

/// Charges a large request until the result is dropped. Returns `None` for usual requests.
///
/// # Errors
/// If the budget of clients is exhausted.
pub(super) fn hold(
    budget: &Arc<Budget>,
    request: &Request<'_>,
) -> Result<Option<BudgetHold>, BudgetExceeded> {
    let descriptors = &request.descriptors;
    let entries = descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
    if descriptors.len() <= USUAL_DESCRIPTORS && entries <= USUAL_ENTRIES {
        return Ok(None);
    }
    budget.hold(bytes(descriptors.len(), entries)).map(Some)
}

/// Charges a request of a gateway until the result is dropped: the cost of its call does not cover
/// its descriptors, which are not in its message.
///
/// # Errors
/// If the budget of clients is exhausted.
pub(super) fn hold_mapped(
    budget: &Arc<Budget>,
    request: &Request<'_>,
) -> Result<BudgetHold, BudgetExceeded> {
    let entries = request.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
    budget.hold(MAPPED_CALL + bytes(request.descriptors.len(), entries))
}

/// Returns the memory of that many descriptors and entries. The bounds may be of any size.
fn bytes(descriptors: usize, entries: usize) -> usize {
    descriptors.saturating_mul(OF_DESCRIPTOR).saturating_add(entries.saturating_mul(OF_ENTRY))
}
