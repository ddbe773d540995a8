//! Memory of requests by their descriptors and entries.
//!
//! While a store call is pending, a two-byte descriptor takes a thousand times as much memory, so
//! messages within their bounds could hold gigabytes. The cost of a call covers usual requests;
//! large ones are charged beside it, to a part of the connection's account of their own.

use std::sync::Arc;

use tonic::Status;

use super::PREFIX;
use super::request::{self, RequestBounds, memory_of};
use crate::descriptor::Request;
use crate::http2::{Budget, BudgetExceeded, CallAccount, CallHold};

/// Maximum numbers of descriptors and entries of a request that is not large.
pub(super) const USUAL_DESCRIPTORS: usize = 16;
const USUAL_ENTRIES: usize = 64;
/// Number of descriptors that [`STORE_CALL`] covers.
const COVERED_DESCRIPTORS: usize = 2;
/// Memory of a pending store call of up to two checks in bytes, measured and rounded up: its
/// encoded request, its replies, its part of a batch.
const STORE_CALL: usize = 1536;

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
    STORE_CALL + memory_of(descriptors.saturating_sub(COVERED_DESCRIPTORS), 0)
}

/// Returns a budget of which a connection has room for a request of the maximum size within the
/// bounds.
pub(super) fn budget_for(bounds: &RequestBounds) -> Arc<Budget> {
    Arc::new(Budget::new(bounds.memory().saturating_mul(8)))
}

/// Charges a large request until the result is dropped. Returns `None` for usual requests.
/// `covered`: number of descriptors that are in the cost of the call already.
///
/// # Errors
/// RESOURCE_EXHAUSTED if less memory is left to the connection, or to all.
pub(super) fn hold(
    account: &CallAccount,
    request: &Request<'_>,
    covered: usize,
) -> Result<Option<CallHold>, Status> {
    let descriptors = request.descriptors.len();
    let entries = request.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
    if descriptors <= USUAL_DESCRIPTORS && entries <= USUAL_ENTRIES {
        return Ok(None);
    }
    hold_bytes(account, memory_of(descriptors.saturating_sub(covered), entries)).map(Some)
}

/// Charges a request of a gateway until the result is dropped: the cost of its call does not cover
/// its descriptors, which are not in its message.
///
/// # Errors
/// RESOURCE_EXHAUSTED, as [`hold`].
pub(super) fn hold_mapped(
    account: &CallAccount,
    request: &Request<'_>,
) -> Result<CallHold, Status> {
    let entries = request.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
    hold_bytes(account, MAPPED_CALL + memory_of(request.descriptors.len(), entries))
}

/// Charges memory of a call beside its request until the result is dropped.
///
/// # Errors
/// RESOURCE_EXHAUSTED, as [`hold`].
pub(super) fn hold_bytes(account: &CallAccount, bytes: usize) -> Result<CallHold, Status> {
    let refused =
        |error: BudgetExceeded| Status::resource_exhausted(format!("large requests: {error}"));
    account.hold_large(bytes).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::judge::Hits;
    use crate::descriptor::{Descriptor, Entry};

    #[test]
    fn large_requests_of_a_connection_leave_memory_to_others() {
        let entry = Entry { key: b"user", value: b"ann" };
        let one = || Descriptor::new([entry].into_iter().collect(), Hits::Charge(1), None, None);
        let of =
            |count| Request { domain: "test", descriptors: (0..count).map(|_| one()).collect() };
        let budget = Arc::new(Budget::new(64 * memory_of(24, 40)));
        let [first, second] = [(); 2].map(|()| CallAccount::new(Arc::clone(&budget)));
        assert!(hold(&first, &of(16), 16).unwrap().is_none(), "a usual one");
        let held: Vec<_> = std::iter::from_fn(|| hold(&first, &of(40), 16).ok()).collect();
        assert_eq!(held.len(), 16, "a quarter");
        assert!(hold_mapped(&first, &of(1)).is_err());
        assert!(first.hold(64 * memory_of(24, 40) / 4).is_ok(), "as much for other calls");
        assert!(hold(&second, &of(40), 16).unwrap().is_some());
        drop(held);
        assert!(hold_mapped(&first, &of(1)).is_ok());
    }
}
