//! Returns of loans: hits that a holder outside of the process did not use.

use tollgate_core::algorithm::Receipt;
use tollgate_core::algorithm::time::{Micros, Timestamp};

use super::StoreError;

/// Time after the end of a loan for which its return is still accepted.
const RETURN_TIME: Micros = Micros::from_secs(5);

/// The number of a loan, by which a store accepts its return only once. Random, so that no client
/// can use up the number of another loan.
pub type LoanNumber = [u8; 16];

/// The return of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanReturn {
    /// The charge, with the unused hits; may be none.
    pub unused: Receipt,
    /// The number of the loan.
    pub number: LoanNumber,
    /// The time for which the hits could be admitted.
    pub usable_for: Micros,
}

/// The result of a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The unused hits are taken back, as far as they still count.
    Accepted,
    /// Nothing is changed: the loan was returned before.
    Repeated,
    /// Nothing is changed: the loan ended too long ago, or is ahead of the store's clock.
    Late,
}

impl LoanReturn {
    /// Returns the time for which its number is kept.
    pub(super) fn kept_for(&self) -> Micros {
        self.usable_for + RETURN_TIME
    }

    /// Returns `true` if the return is too late at `now`, or the charge is ahead of it: the clock
    /// has stepped back, or the receipt is made up. The number would be kept for another time than
    /// that in which the return is accepted.
    pub(super) fn is_untimely(&self, now: Timestamp) -> bool {
        now < self.unused.at || now >= self.unused.at + self.kept_for()
    }
}

/// The result for a store that keeps no numbers of loans: it takes nothing back.
pub(super) const NOT_KEPT: Result<Returned, StoreError> = Err(StoreError::Refused);
