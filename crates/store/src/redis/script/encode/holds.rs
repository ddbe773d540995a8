//! Encodes operations on holds, in the format that the head of `lua/holds.lua` defines.

use tollgate_core::algorithm::hold::{Hold, HoldAction, OnSettle};
use tollgate_core::algorithm::time::Micros;

use super::ScriptRequest;
use crate::Check;

/// Operations by number.
const NONE: u8 = 0;
const RESERVE: u8 = 1;
const COMMIT: u8 = 2;
const SETTLE: u8 = 3;
const CANCEL: u8 = 4;
const EXTEND: u8 = 5;
const LOOK: u8 = 6;
const RESERVE_ONCE: u8 = 7;
const COMMIT_EACH: u8 = 8;

impl ScriptRequest {
    /// Appends the operation of a check on holds, if its limit keeps them.
    pub(super) fn hold(&mut self, check: &Check<'_>) {
        let Some(hold) = check.limit.hold() else { return };
        self.put(operation(check).0.into(), 1);
        self.put(ttl(check, hold).get(), 7);
        self.text.extend([u8::from(hold.on_settle == OnSettle::Release)]);
        self.id(check);
    }

    /// Appends the ID of a check's hold, empty if there is none.
    fn id(&mut self, check: &Check<'_>) {
        let id = check.hold.map_or(&[][..], |hold| hold.id);
        self.put(id.len() as u64, 1);
        self.text.extend_from_slice(id);
    }
}

/// Returns the number of the operation on a hold, and the cost of a commit.
pub(super) fn operation(check: &Check<'_>) -> (u8, u32) {
    match check.hold.map(|hold| hold.action) {
        None => (NONE, 0),
        Some(HoldAction::Reserve) => (RESERVE, 0),
        Some(HoldAction::Commit(cost)) => (COMMIT, cost),
        Some(HoldAction::Settle) => (SETTLE, 0),
        Some(HoldAction::Cancel) => (CANCEL, 0),
        Some(HoldAction::Extend) => (EXTEND, 0),
        Some(HoldAction::Look) => (LOOK, 0),
        Some(HoldAction::ReserveOnce) => (RESERVE_ONCE, 0),
        Some(HoldAction::CommitEach(cost)) => (COMMIT_EACH, cost),
    }
}

/// Returns the TTL of a hold: that of the request, or of the limit.
fn ttl(check: &Check<'_>, hold: Hold) -> Micros {
    check.hold.and_then(|hold| hold.ttl).unwrap_or(hold.ttl)
}
