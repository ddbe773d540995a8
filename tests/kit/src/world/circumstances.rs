//! Circumstances of a history that make claims about it uncertain.

use super::history::{CallRecord, Ending};
use super::plan::{Fault, PartHits};
use super::rules::SimRule;
use super::run::Report;
use super::server::fleet::Moment;

/// Time after which a process knows that a master has become a replica: two health checks.
const DEMOTION_NOTICED_US: u64 = 2_000_000;

impl Report {
    /// Returns `true` if a master had just become a replica at a moment: until its clients notice,
    /// it may find nothing to refund although its new master has hits.
    pub(super) fn has_just_promoted(&self, at: Moment) -> bool {
        self.chronicle.faults.iter().any(|(from, fault)| match fault {
            Fault::Promote { stale_us, .. } => {
                *from <= at && at <= from + stale_us + DEMOTION_NOTICED_US
            }
            _ => false,
        })
    }

    /// Returns `true` if a server was full while a call was under way.
    pub fn was_full_during(&self, record: &CallRecord) -> bool {
        self.chronicle.faults.iter().any(|(from, fault)| match fault {
            Fault::Full { us, .. } => *from <= record.ended && from + us >= record.begun,
            _ => false,
        })
    }

    /// Returns the versions of the policy that were in force at any process at any time.
    pub(super) fn versions(&self) -> impl Iterator<Item = usize> {
        let versions = self.chronicle.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::Reload { version, .. } => Some(*version),
            _ => None,
        });
        std::iter::once(0).chain(versions)
    }

    /// Returns the number of algorithms of a rule that were in force.
    pub(super) fn shapes(&self, rule: &SimRule) -> u64 {
        let has_other = self.versions().any(|version| rule.counting_of(version) != rule.counting);
        1 + u64::from(has_other)
    }

    /// Returns `true` if an operator changed a counter.
    pub(super) fn is_changed(&self, of: usize) -> bool {
        let mut faults = self.chronicle.faults.iter();
        faults.any(|(_, fault)| matches!(fault, Fault::Amend { counter, .. } if *counter == of))
    }

    /// Returns the hits of a counter that were certainly charged and not given back; `None` if that
    /// is not certain of a refund.
    pub fn certainly_charged(&self, counter: usize) -> Option<u64> {
        let mut charged = 0u64;
        let mut refunded = 0;
        for record in &self.chronicle.calls {
            for (number, part) in record.call.parts.iter().enumerate() {
                let status = match &record.ending {
                    Ending::Decided(false, statuses) => Some(&statuses[number]),
                    Ending::Decided(true, _) | Ending::Failed(_) | Ending::Cancelled => None,
                };
                let is_judged = status.is_some_and(|status| status.left.is_some());
                match part.hits {
                    _ if part.counter != counter => {}
                    PartHits::Charge(hits) if is_judged => charged += u64::from(hits),
                    PartHits::Refund(hits) if is_judged => refunded += u64::from(hits),
                    PartHits::Refund(_) => return None,
                    PartHits::Charge(_)
                    | PartHits::Peek
                    | PartHits::Reserve { .. }
                    | PartHits::End { .. } => {}
                }
            }
        }
        charged.checked_sub(refunded)
    }
}
