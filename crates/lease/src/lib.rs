//! The contract of stores of counters, and blocks of leased hits.
//!
//! A [`Store`] judges all checks of a request; a [`Lender`] charges a block of hits in advance and
//! takes back those that were not used. A [`BlockTable`] decides which keys are worth a block, and
//! admits hits from blocks. It does no IO and needs no runtime: callers lend, take back and pass
//! the time. [`holder`] is the same for blocks that a service lends to another process.
//!
//! | file | contents |
//! |---|---|
//! | `table` | the demand for each key, and the blocks held for it |
//! | `block` | a block of hits: charged in advance, admitted in memory, closed once |
//! | `holder` | the keys, blocks and exchanges of a process to which a service lends |
//! | `owned` | a check that outlives its request |

// An overflow here could lift a limit.
#![warn(clippy::arithmetic_side_effects)]

mod block;
pub mod holder;
mod owned;
mod table;

use std::future::Future;
use std::time::Instant;

use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::hold::{HoldEffect, HoldRequest};
use tollgate_core::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use tollgate_core::algorithm::lease::Lease;
use tollgate_core::algorithm::quota::Report;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::{Prior, Role, Verdict};
use tollgate_core::algorithm::{Limit, Receipt};
use tollgate_core::descriptor::CounterKey;

pub use self::block::Block;
pub use self::owned::OwnedCheck;
pub use self::table::{BlockLookup, BlockTable, TakenHits};
pub use tollgate_core::algorithm::store_error::StoreError;

/// One limit of a request. Contains all that a store needs, since it judges all checks of a request
/// at once.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// Key of the counter.
    pub key: CounterKey<'a>,
    /// The limit to judge by.
    pub limit: &'a Limit,
    /// Hits to charge, peek or refund.
    pub hits: Hits,
    /// Effect of the verdict on the request.
    pub role: Role,
    /// Callers to tally with the counter: entries of the request, as `key=value`.
    pub recorded: &'a [Vec<u8>],
    /// Bounds on the hits that may be leased from it.
    pub lease: Option<Lease>,
    /// Operation on a hold, under a limit that keeps holds.
    pub hold: Option<&'a HoldRequest<'a>>,
}

impl Check<'_> {
    /// Returns `true` for an operation on existing holds, which has no vote.
    pub fn is_on_hold(&self) -> bool {
        self.hold.is_some_and(|hold| hold.is_on_existing())
    }

    /// Returns `true` if the check needs no counter: a ban, unless permits may be ended that were
    /// taken before it was one.
    pub fn is_ban(&self) -> bool {
        let ends_permits = self.limit.in_flight().is_some() && matches!(self.hits, Hits::Refund(_));
        self.limit.is_ban() && !ends_permits
    }

    /// Returns the verdict of an outcome.
    pub fn verdict(&self, outcome: Result<&Outcome, &StoreError>) -> Verdict {
        match (outcome, self.hits) {
            // An operation on existing holds has no vote, whether it was written or not; its hits
            // are a refund of nothing, also under a limit without holds.
            (Err(_), Hits::Refund(0)) => Verdict::Refund,
            (Err(_), _) => Verdict::Unknown(self.limit.on_store_error()),
            (Ok(_), Hits::Refund(_)) => Verdict::Refund,
            (Ok(outcome), Hits::Charge(_) | Hits::Peek(_)) if outcome.allowed => Verdict::Allowed,
            (Ok(outcome), _) if outcome.hold == HoldEffect::Conflict => Verdict::Conflict,
            (Ok(_), Hits::Charge(_) | Hits::Peek(_)) => Verdict::Denied,
        }
    }
}

/// An outcome or a store error for each check, in order.
pub type Outcomes = Few<Result<Outcome, StoreError>>;

/// Returns the error of the store behind an outcome, even if this process then decided alone.
pub fn error_behind(outcome: &Result<Outcome, StoreError>) -> Option<StoreError> {
    match outcome {
        Ok(Outcome { by: JudgedBy::Share(error), .. }) | Err(error) => Some(*error),
        Ok(_) => None,
    }
}

/// Denials of a store that no later take-back of a charge makes void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertainDenials {
    /// All: one server judges whole requests.
    All,
    /// All except those of per-second limits, which live on another server that judges first; for
    /// these, as [`IrrevocableOnly`](Self::IrrevocableOnly).
    AllButPerSecond,
    /// Only those of limits whose hits are never taken back: with other charge modes, a denial may
    /// be due to a charge that another slot voids.
    IrrevocableOnly,
}

/// Storage of counters.
pub trait Store: Send + Sync + 'static {
    /// Judges all `checks` of one request and writes the hits that their charge modes require.
    ///
    /// Returns one outcome or error per check, in order. `prior` is the decision that a layer above
    /// has already made. A check whose outcome is not known by `deadline` returns a store error.
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send;

    /// Amends the counter of a check at one instant; the check's hits and role are ignored. A ban
    /// has no counter.
    ///
    /// If the reply is late or lost, the amendment may have been applied.
    fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> impl Future<Output = Result<Amended, StoreError>> + Send;

    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Returns which denials are certain. It may change with the servers that are connected.
    fn certain_denials(&self) -> CertainDenials {
        CertainDenials::All
    }
}

/// Result of leasing hits.
#[derive(Clone, Debug)]
pub struct Lent {
    /// Report of the counter, with the hits if they were written, else without.
    pub report: Report,
    /// Receipt of the charge; `None` if the hits did not fit.
    pub receipt: Option<Receipt>,
}

/// A store from which hits can be leased, and returned if unused.
pub trait Lender: Store {
    /// Judges a charge on its own, as [`decide`](Store::decide) does, and returns the receipt of
    /// the hits written if they fit.
    fn lend(
        &self,
        check: &Check<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Lent, StoreError>> + Send;

    /// Takes back a charge or a part of it, as far as it still counts.
    fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: Instant,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl<S: Store> Store for std::sync::Arc<S> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        S::decide(self, checks, prior, deadline)
    }

    fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> impl Future<Output = Result<Amended, StoreError>> + Send {
        S::amend(self, check, amendment, deadline)
    }

    fn now(&self) -> Timestamp {
        S::now(self)
    }

    fn certain_denials(&self) -> CertainDenials {
        S::certain_denials(self)
    }
}

impl<S: Lender> Lender for std::sync::Arc<S> {
    fn lend(
        &self,
        check: &Check<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Lent, StoreError>> + Send {
        S::lend(self, check, deadline)
    }

    fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: Instant,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        S::take_back(self, check, receipt, deadline)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::concurrency::Concurrency;
    use tollgate_core::algorithm::gcra::Gcra;
    use tollgate_core::algorithm::hold::HoldAction;
    use tollgate_core::algorithm::quota::Window;
    use tollgate_core::algorithm::time::Micros;
    use tollgate_core::algorithm::{Algorithm, Charge, OnStoreError};

    use super::*;

    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new(algorithm, Charge::Admitted, OnStoreError::Deny).unwrap()
    }

    fn rate(amount: u32) -> Limit {
        let window = Window::new(amount, Micros::from_secs(60)).unwrap();
        limit(Algorithm::Gcra(Gcra::new(window, None, None).unwrap()))
    }

    fn check<'a>(limit: &'a Limit, hits: Hits, hold: Option<&'a HoldRequest<'a>>) -> Check<'a> {
        let key = CounterKey::of("d", b"key");
        Check { key, limit, hits, role: Role::Enforce, recorded: &[], lease: None, hold }
    }

    #[test]
    fn a_check_on_existing_holds_has_a_hold_and_is_no_reserve() {
        let limit = rate(1);
        let hold = |action| HoldRequest { id: b"a", action, ttl: None };
        let [reserve, settle] = [HoldAction::Reserve, HoldAction::Settle].map(hold);
        let is_on_hold = |hold| check(&limit, Hits::Refund(0), hold).is_on_hold();
        assert_eq!([None, Some(&reserve), Some(&settle)].map(is_on_hold), [false, false, true]);
    }

    #[test]
    fn an_owned_check_keeps_its_operation_on_a_hold_apart() {
        let limit = rate(1);
        let hold = HoldRequest { id: b"a", action: HoldAction::Settle, ttl: None };
        let owned = OwnedCheck::of(&check(&limit, Hits::Refund(0), Some(&hold)));
        assert_eq!(owned.hold(), Some(hold));
        assert!(!owned.check().is_on_hold() && owned.check_with(Some(&hold)).is_on_hold());
    }

    #[test]
    fn a_ban_needs_no_counter_but_to_end_permits() {
        let permits = |most| limit(Algorithm::Concurrency(Concurrency::new(most).unwrap()));
        let is_ban = |limit: &Limit| {
            [Hits::Charge(1), Hits::Refund(0)].map(|hits| check(limit, hits, None).is_ban())
        };
        let limits = [rate(1), rate(0), permits(1), permits(0)];
        let expected = [[false, false], [true, true], [false, false], [true, false]];
        assert_eq!([0, 1, 2, 3].map(|index: usize| is_ban(&limits[index])), expected);
    }

    #[test]
    fn the_verdict_is_that_of_the_outcome_or_the_failure_mode() {
        let limit = rate(1);
        let report = limit.report(&limit.unused(), None, Default::default()).unwrap();
        let outcome = |allowed, hold| Outcome { allowed, report, by: JudgedBy::Store, hold };
        let allowed = outcome(true, HoldEffect::Nothing);
        let denied = outcome(false, HoldEffect::Nothing);
        let conflict = outcome(false, HoldEffect::Conflict);
        let late = StoreError::Late;
        for (hits, outcome, verdict) in [
            (Hits::Charge(1), Ok(&allowed), Verdict::Allowed),
            (Hits::Peek(1), Ok(&denied), Verdict::Denied),
            (Hits::Charge(1), Ok(&conflict), Verdict::Conflict),
            (Hits::Refund(1), Ok(&denied), Verdict::Refund),
            (Hits::Refund(0), Err(&late), Verdict::Refund),
            (Hits::Refund(1), Err(&late), Verdict::Unknown(OnStoreError::Deny)),
            (Hits::Charge(1), Err(&late), Verdict::Unknown(OnStoreError::Deny)),
        ] {
            assert_eq!(check(&limit, hits, None).verdict(outcome), verdict);
        }
        let by_share = Outcome { by: JudgedBy::Share(late), ..allowed };
        let errors = [Ok(allowed), Ok(by_share), Err(late)].map(|outcome| error_behind(&outcome));
        assert_eq!(errors, [None, Some(late), Some(late)]);
    }
}
