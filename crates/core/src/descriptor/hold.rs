//! Operations on holds, as requests carry them: in a reserved last entry of a descriptor.

use smallvec::SmallVec;

use super::{Descriptor, Entry, Override};
use crate::algorithm::hold::{HoldAction, HoldRequest};
use crate::algorithm::judge::Hits;

/// Key of the entry that remembers a charge by an ID.
pub const RESERVE: &str = "tollgate.reserve";
/// Key of the entry that ends a hold with its actual cost.
pub const COMMIT: &str = "tollgate.commit";
/// Key of the entry that ends a hold without a cost.
pub const SETTLE: &str = "tollgate.settle";
/// All keys of operations on holds.
pub const RESERVED: [&str; 3] = [RESERVE, COMMIT, SETTLE];

impl<'a> Descriptor<'a> {
    /// Creates a descriptor. A reserved last entry is taken off: it is an operation on the holds of
    /// an ID. `cost`: the hits at the descriptor itself, the cost of a commit; a commit without
    /// them is a settle.
    #[inline]
    pub fn new(
        mut entries: SmallVec<[Entry<'a>; 4]>,
        hits: Hits,
        cost: Option<u32>,
        limit: Option<Override>,
    ) -> Self {
        let hold = entries.last().and_then(|last| hold_of(last, cost));
        if hold.is_some() {
            entries.pop();
        }
        // To a limit without holds, an end is a refund of nothing, and a reserve a charge.
        let hits =
            if hold.is_some_and(|hold| hold.is_on_existing()) { Hits::Refund(0) } else { hits };
        Self { entries, hits, hold: hold.map(Box::new), limit }
    }

    /// Returns `true` if it neither charges, checks nor refunds hits: an operation on existing
    /// holds, or a refund of nothing.
    pub fn changes_no_hits(&self) -> bool {
        self.hits == Hits::Refund(0)
    }
}

/// Returns `true` for the key of an operation on a hold.
pub fn is_reserved(key: &[u8]) -> bool {
    RESERVED.iter().any(|reserved| reserved.as_bytes() == key)
}

fn hold_of<'a>(entry: &Entry<'a>, cost: Option<u32>) -> Option<HoldRequest<'a>> {
    // Almost no key begins like this, so almost every request is compared only here.
    let name = entry.key.strip_prefix(b"tollgate.")?;
    let action = match (name, cost) {
        (b"reserve", _) => HoldAction::Reserve,
        (b"commit", Some(cost)) => HoldAction::Commit(cost),
        (b"commit", None) | (b"settle", _) => HoldAction::Settle,
        _ => return None,
    };
    Some(HoldRequest { id: entry.value, action, ttl: None })
}

#[cfg(test)]
mod tests {
    use super::super::entries;
    use super::*;

    fn descriptor(text: &str, cost: Option<u32>) -> Descriptor<'_> {
        let hits = cost.map_or(Hits::Charge(1), Hits::Charge);
        Descriptor::new(entries(text).into(), hits, cost, None)
    }

    #[test]
    fn the_last_entry_is_an_operation_on_a_hold_and_is_taken_off_once() {
        let reserve = descriptor("user=a,tollgate.reserve=r,tollgate.reserve=s", Some(7));
        let hold = HoldRequest { id: b"s", action: HoldAction::Reserve, ttl: None };
        assert_eq!((reserve.hold, reserve.hits), (Some(Box::new(hold)), Hits::Charge(7)));
        assert_eq!(reserve.entries.len(), 2);
        assert_eq!(descriptor("tollgate.reserve=r,user=a", None).hold, None);
        assert_eq!(descriptor("user=a,tollgate.other=r", None).hold, None);
    }

    #[test]
    fn an_end_has_no_hits_and_a_commit_without_a_cost_is_a_settle() {
        let action = |text, cost| descriptor(text, cost).hold.unwrap().action;
        assert_eq!(action("tollgate.commit=r", Some(0)), HoldAction::Commit(0));
        assert_eq!(action("tollgate.commit=r", None), HoldAction::Settle);
        assert_eq!(action("tollgate.settle=r", Some(9)), HoldAction::Settle);
        assert_eq!(descriptor("tollgate.commit=r", Some(5)).hits, Hits::Refund(0));
    }
}
