//! Encodes operations on holds, in the formats that the heads of `lua/holds.lua` and
//! `lua/fast/holds.lua` define.

use super::ScriptRequest;
use crate::algorithm::hold::{Hold, HoldAction, OnSettle};
use crate::algorithm::time::{Micros, Timestamp};
use crate::store::Check;
use crate::store::redis::script::key::hold_key_of;

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
    /// Appends how the limit of a check keeps holds, if it does, and the operation on them.
    /// `record`: expiries of the record of a reserve that is taken back.
    pub(super) fn hold(
        &mut self,
        prefix: &[u8],
        check: &Check<'_>,
        record: Option<(Timestamp, Timestamp)>,
    ) {
        let Some(hold) = check.limit.hold() else { return };
        self.needs.add_holds();
        let key = self.key(hold_key_of(prefix, &check.key));
        let (operation, cost) = operation(check);
        self.put(key, 2);
        self.put(ttl(check, hold).get(), 7);
        self.text.extend([u8::from(hold.on_settle == OnSettle::Release), operation]);
        self.put(cost.into(), 4);
        self.id(check);
        if let Some((until, before)) = record {
            self.put(until.as_micros(), 7);
            self.put(before.as_micros(), 7);
        }
    }

    /// Appends the operation of a check on holds, in the format of `lua/fast/holds.lua`; returns
    /// `None` if that does not support it.
    pub(in crate::store::redis) fn fast_hold(
        &mut self,
        check: &Check<'_>,
        hold: Hold,
    ) -> Option<()> {
        let operation = match operation(check) {
            (COMMIT_EACH, _) => COMMIT,
            (supported @ (NONE | RESERVE | COMMIT | SETTLE | RESERVE_ONCE), _) => supported,
            _ => return None,
        };
        self.needs.add_holds();
        self.put(operation.into(), 1);
        self.put(ttl(check, hold).get(), 7);
        self.text.extend([u8::from(hold.on_settle == OnSettle::Release)]);
        self.id(check);
        Some(())
    }

    /// Appends the ID of a check's hold, empty if there is none.
    fn id(&mut self, check: &Check<'_>) {
        let id = check.hold.map_or(&[][..], |hold| hold.id);
        self.put(u64::try_from(id.len()).unwrap_or(u64::MAX), 1);
        self.text.extend_from_slice(id);
    }
}

/// Returns the number of the operation on a hold, and the cost of a commit.
pub(in crate::store::redis) fn operation(check: &Check<'_>) -> (u8, u32) {
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
