//! Encodes operations on holds, in the format that the head of `lua/holds.lua` defines.

use super::ScriptRequest;
use crate::algorithm::hold::{HoldAction, OnSettle};
use crate::algorithm::time::Timestamp;
use crate::store::Check;
use crate::store::redis::script::key::hold_key_of;

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
        let id = check.hold.map_or(&[][..], |hold| hold.id);
        let ttl = check.hold.and_then(|hold| hold.ttl).unwrap_or(hold.ttl);
        let (operation, cost) = match check.hold.map(|hold| hold.action) {
            None => (0, 0),
            Some(HoldAction::Reserve) => (1, 0),
            Some(HoldAction::Commit(cost)) => (2, cost),
            Some(HoldAction::Settle) => (3, 0),
            Some(HoldAction::Cancel) => (4, 0),
            Some(HoldAction::Extend) => (5, 0),
            Some(HoldAction::Look) => (6, 0),
        };
        self.put(key, 2);
        self.put(ttl.get(), 7);
        self.text.extend([u8::from(hold.on_settle == OnSettle::Release), operation]);
        self.put(cost.into(), 4);
        self.put(u64::try_from(id.len()).unwrap_or(u64::MAX), 1);
        self.text.extend_from_slice(id);
        if let Some((until, before)) = record {
            self.put(until.as_micros(), 7);
            self.put(before.as_micros(), 7);
        }
    }
}
