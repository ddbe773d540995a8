//! Holds: charges that are remembered by an ID, to be put right once their cost is known.
//!
//! - A *reserve* is a charge of an estimate; its receipt is kept in the record of its ID.
//! - A *commit* puts the oldest hold of an ID to its actual cost, for good: less is taken back from
//!   that charge, more is charged now, whether it fits or not. Without a hold the cost is charged.
//! - A *settle* ends the oldest hold: its hits stay, or are taken back (`on_settle: release`).
//! - Hits that a grant admitted return to that grant or to none, and what they cost more is taken
//!   from it first. Tallies of entries are put right with the counter.
//!
//! A record is kept for its TTL after the latest reserve or commit, also once all its holds have
//! ended: a repeated commit changes nothing. A permit of a [`concurrency`] limit is a hold as well;
//! any commit or settle ends it.
//!
//! Example, 500 tokens a minute: a reserve of 75 is admitted; its commit of 20 takes 55 back, a
//! second commit nothing; a settle that comes without a commit leaves the 75.
//!
//! The same steps are in `lua/holds.lua`.

mod list;
mod operations;
mod records;

use super::marks::Marks;
use super::time::{Micros, Timestamp};
use super::{AlgorithmState, Limit, State, Unreadable, concurrency, gcra, words};
pub use list::HoldList;
use records::Records;
pub use records::{HoldReceipt, MAX_RECEIPTS, Record};

/// Maximum length of an ID in bytes.
pub const MAX_ID: usize = 128;

/// Configuration of the holds of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Time after which a hold ends by itself.
    pub ttl: Micros,
    /// Effect of a settle.
    pub on_settle: OnSettle,
}

words! {
    /// The effect of a settle: the end of a hold whose cost is not known.
    #[derive(Default)]
    pub enum OnSettle {
        /// The estimate stands.
        #[default]
        Charge = "charge",
        /// Nothing was used: the estimate is taken back.
        Release = "release",
    }
}

/// An operation on the holds of an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRequest<'a> {
    /// The ID: 1 to [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// The operation.
    pub action: HoldAction,
    /// TTL in the place of the limit's, for a reserve or an extension.
    pub ttl: Option<Micros>,
}

/// The kind of operation on a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldAction {
    /// Remembers the charge of the request, or the permit that it takes.
    Reserve,
    /// Reserves unless the ID has open holds: then nothing is charged, so a retry is free.
    ReserveOnce,
    /// Ends the oldest hold with this cost in hits; once per request, counter and ID.
    Commit(u32),
    /// Ends the oldest hold with this cost in hits; for each descriptor, as it was reserved.
    CommitEach(u32),
    /// Ends the oldest hold, without a cost.
    Settle,
    /// Ends the oldest hold and takes its hits back; for each descriptor, as it was reserved.
    Cancel,
    /// Gives all open holds a new TTL.
    Extend,
    /// Returns the hits of the open holds.
    Look,
}

/// The effect of an operation on a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldEffect {
    /// Nothing changed.
    #[default]
    Nothing,
    /// Hits are held. `repeated`: by an ID that had an open hold.
    Reserved {
        /// `true` if the ID had an open hold already.
        repeated: bool,
    },
    /// The ID has the requested hits already, by an earlier reserve: nothing is charged.
    Held,
    /// The ID has holds of other hits: nothing is charged, and the request is denied.
    Conflict,
    /// Hits are charged but not remembered: too many holds of the ID or the counter.
    Unrecorded,
    /// A hold was put to its cost.
    Committed {
        /// Hits that were held.
        reserved: u32,
        /// Hits that it cost.
        cost: u32,
    },
    /// A cost without a hold was charged.
    Unknown {
        /// Hits that it cost.
        cost: u32,
    },
    /// A hold or permit ended without a cost.
    Settled,
    /// Open holds have a new TTL.
    Extended,
    /// Hits of the open holds, which did not change.
    Open {
        /// Their sum.
        hits: u32,
    },
}

impl HoldEffect {
    /// Returns `true` if the counter, a record or a permit changed.
    pub(super) fn is_write(self) -> bool {
        !matches!(self, Self::Nothing | Self::Held | Self::Conflict | Self::Open { .. })
    }
}

/// The records of a counter, and the marks by which its charges are taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    /// Instant since which the marks are complete: all writes were under a limit with holds. `None`
    /// if the last one was not.
    since: Option<Timestamp>,
    pub(super) marks: Marks,
    records: Records,
}

impl HoldAction {
    /// Returns the cost of a commit.
    pub fn cost(self) -> Option<u32> {
        match self {
            Self::Commit(cost) | Self::CommitEach(cost) => Some(cost),
            Self::Reserve
            | Self::ReserveOnce
            | Self::Settle
            | Self::Cancel
            | Self::Extend
            | Self::Look => None,
        }
    }

    /// Returns `true` for an operation that has no effect after one of the same request that ended
    /// a hold of the same ID and counter: a request ends one, unless each of its descriptors does.
    pub(super) fn is_once(self) -> bool {
        match self {
            Self::Commit(_) | Self::Settle => true,
            Self::Reserve
            | Self::ReserveOnce
            | Self::CommitEach(_)
            | Self::Cancel
            | Self::Extend
            | Self::Look => false,
        }
    }
}

impl HoldRequest<'static> {
    /// A charge that is not remembered.
    pub const PLAIN: Self = Self { id: &[], action: HoldAction::Reserve, ttl: None };
}

impl HoldRequest<'_> {
    /// Returns `true` if the ID has an allowed length.
    pub fn is_valid(&self) -> bool {
        (1..=MAX_ID).contains(&self.id.len())
    }

    /// Returns `true` for an operation on holds that are there, which has no vote: each but a
    /// reserve.
    pub fn is_on_existing(&self) -> bool {
        !matches!(self.action, HoldAction::Reserve | HoldAction::ReserveOnce)
    }

    /// Returns `true` for a reserve that the caller sends again until it is decided.
    pub fn is_retried(&self) -> bool {
        self.action == HoldAction::ReserveOnce
    }

    /// Returns the TTL of the hold under a limit.
    fn ttl(&self, hold: Hold) -> Micros {
        self.ttl.unwrap_or(hold.ttl)
    }
}

impl Holds {
    /// Returns the holds of a counter that is written under a limit with them, creating them first.
    fn of(holds: &mut Option<Box<Self>>, now: Timestamp) -> &mut Self {
        let holds = holds.get_or_insert_default();
        holds.since.get_or_insert(now);
        holds
    }

    /// Returns the number of bytes that a receipt for an ID may allocate.
    fn growth_bytes(&self, id: &[u8], entries: &[Vec<u8>], has_grant: bool) -> usize {
        let has_extras = has_grant || !entries.is_empty();
        let records = self.records.growth_bytes(id, entries, has_extras);
        records.saturating_add(self.marks.growth_bytes())
    }

    /// Returns the record with one more hold; `None` if it or the counter has too many.
    fn with_receipt(
        &mut self,
        before: Option<Record>,
        held: HoldReceipt,
        until: Timestamp,
        now: Timestamp,
    ) -> Option<Record> {
        match before {
            Some(record) if record.receipts.len() >= MAX_RECEIPTS => None,
            Some(mut record) => {
                record.receipts.push(held);
                record.until = until;
                Some(record)
            }
            None if self.records.is_full(now) => None,
            None => {
                let receipts = std::iter::once(held).collect();
                Some(Record { until, has_ended: false, receipts })
            }
        }
    }

    /// Returns `true` if nothing would be lost without them.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.marks.is_empty()
    }

    /// Returns the instant from which no record counts.
    pub(super) fn matters_until(&self) -> Timestamp {
        self.records.latest()
    }

    /// Returns `true` if the marks reach back to an instant.
    pub(super) fn covers(&self, then: Timestamp) -> bool {
        self.since.is_some_and(|since| since <= then)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.marks.heap_bytes())
            .saturating_add(self.records.heap_bytes())
    }
}

impl State {
    /// Returns the holds of the counter, if there are any.
    pub(super) fn holds(&self) -> Option<&Holds> {
        self.extended()?.holds.as_deref()
    }

    /// Changes the holds of the counter, creating them first.
    pub(super) fn with_holds<T>(
        &mut self,
        limit: &Limit,
        now: Timestamp,
        change: impl FnOnce(&mut Holds) -> T,
    ) -> T {
        self.attach(limit, |extended| change(Holds::of(&mut extended.holds, now)))
    }

    /// Changes the state of gcra together with its marks, creating them first.
    pub(super) fn with_marks<T>(
        &mut self,
        limit: &Limit,
        now: Timestamp,
        change: impl FnOnce(&mut gcra::State, &mut Holds) -> T,
    ) -> Result<T, Unreadable> {
        self.attach(limit, |extended| {
            let holds = Holds::of(&mut extended.holds, now);
            match extended.state.inner_mut() {
                AlgorithmState::Gcra(state) => Ok(change(state, holds)),
                AlgorithmState::FixedWindow(_)
                | AlgorithmState::SlidingWindow(_)
                | AlgorithmState::SlidingLog(_)
                | AlgorithmState::Concurrency(_)
                | AlgorithmState::Extended(_) => Err(Unreadable),
            }
        })
    }

    /// Drops the marks, since the counter is written under a limit without holds. The records stay:
    /// replicas with two policies may share the counter, and a hold ends under either.
    pub(super) fn drop_marks(&mut self) {
        if let AlgorithmState::Extended(extended) = &mut self.0
            && let Some(holds) = &mut extended.holds
        {
            holds.marks = Marks::default();
            holds.since = None;
        }
    }

    /// Returns the open holds at `now`: ID, first charge, expiry and hits of each ID, unordered.
    pub fn open_holds(&self, now: Timestamp) -> Vec<concurrency::Permit> {
        if let AlgorithmState::Concurrency(permits) = self.inner() {
            return permits.live(now).cloned().collect();
        }
        let records = self.holds().into_iter().flat_map(|holds| holds.records.live(now));
        let open = records.filter_map(|(id, record)| {
            let first = record.receipts.first()?;
            let hits = record.hits();
            let ends_at = record.until;
            Some(concurrency::Permit { id: id.into(), hits, taken_at: first.at, ends_at })
        });
        open.collect()
    }

    /// Returns the hits of the open holds of an ID at `now`, an instant that is not before the
    /// counter's.
    pub(super) fn open_hits(&self, id: &[u8], now: Timestamp) -> u32 {
        if let AlgorithmState::Concurrency(permits) = self.inner() {
            let own = permits.live(now).filter(|permit| *permit.id == *id);
            return own.fold(0, |sum, permit| sum.saturating_add(permit.hits));
        }
        let record = self.holds().and_then(|holds| holds.records.get(id, now));
        record.map_or(0, |record| record.hits())
    }

    /// Returns `true` if a request is on existing holds and needs no memory for a record.
    pub fn has_hold(&self, request: &HoldRequest<'_>, now: Timestamp) -> bool {
        let is_commit = request.action.cost().is_some();
        let is_permit = matches!(self.inner(), AlgorithmState::Concurrency(_));
        request.is_on_existing()
            && (!is_commit
                || is_permit
                || self.holds().is_some_and(|holds| holds.records.get(request.id, now).is_some()))
    }

    /// Returns the number of bytes by which an operation on a hold may grow the counter. `entries`:
    /// those to whose tallies its hits are counted.
    pub fn holding_bytes(&self, request: &HoldRequest<'_>, entries: &[Vec<u8>]) -> usize {
        if let AlgorithmState::Concurrency(permits) = self.inner() {
            return permits.growth_bytes(request.id);
        }
        let has_grant = self.has_grant();
        match self.holds() {
            Some(holds) => holds.growth_bytes(request.id, entries, has_grant),
            None => Self::EXTENSION_BYTES
                .saturating_add(size_of::<Holds>())
                .saturating_add(32)
                .saturating_add(Holds::default().growth_bytes(request.id, entries, has_grant)),
        }
    }
}
