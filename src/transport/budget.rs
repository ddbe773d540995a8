//! Memory that clients can make the process hold, in bytes: a budget for all of them, an account for each connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that an account takes from the budget at a time.
const CHUNK: usize = 4 << 10;
/// Bytes that each account has besides the budget: a frame that has come in part and a call are never refused for what others
/// hold. The bound of connections bounds their sum.
const OWN: usize = 8 << 10;
/// Part of the budget that one connection may hold at most.
const SHARES: usize = 4;

/// Bytes that all connections together may hold.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    used: AtomicUsize,
}

/// The bytes that one connection holds; given back when dropped.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    /// Of this connection alone.
    max: usize,
    used: usize,
    /// [`OWN`], and whole chunks that are taken from the budget.
    reserved: usize,
}

/// Bytes of the budget that are held outside of a connection; given back when dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The budget, or the part of it that one connection may hold, is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("clients hold as much memory as they may")]
pub struct BudgetExceeded;

impl Budget {
    /// A budget of `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0) }
    }

    /// Returns the bytes that are in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes bytes until the result is dropped.
    ///
    /// # Errors
    /// [`BudgetExceeded`]
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, BudgetExceeded> {
        self.reserve(bytes)?;
        Ok(Held { budget: Arc::clone(self), bytes })
    }

    fn reserve(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map(drop).map_err(|_| BudgetExceeded)
    }
}

impl Account {
    /// An account of at most a quarter of the budget.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { max: budget.max.div_euclid(SHARES).max(OWN), budget, used: 0, reserved: OWN }
    }

    /// Charges bytes.
    ///
    /// # Errors
    /// [`BudgetExceeded`]; nothing is charged then.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let used = self.used.saturating_add(bytes);
        if used > self.max {
            return Err(BudgetExceeded);
        }
        if used > self.reserved {
            let missing = used.saturating_sub(self.reserved).div_ceil(CHUNK).saturating_mul(CHUNK);
            self.budget.reserve(missing)?;
            self.reserved = self.reserved.saturating_add(missing);
        }
        self.used = used;
        Ok(())
    }

    /// Gives charged bytes back.
    pub(super) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        let needed = self.used.max(OWN).div_ceil(CHUNK).saturating_mul(CHUNK);
        if self.reserved > needed.saturating_add(CHUNK) {
            self.budget.used.fetch_sub(self.reserved.saturating_sub(needed), Ordering::Relaxed);
            self.reserved = needed;
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn used(&self) -> usize {
        self.used
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.reserved.saturating_sub(OWN), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_is_held_than_the_budget_and_all_is_given_back(
            steps in prop::collection::vec((0usize..3, any::<bool>(), 0usize..20_000), 0..60),
        ) {
            let budget = Arc::new(Budget::new(64 << 10));
            let mut accounts: Vec<_> = (0..3).map(|_| Account::new(Arc::clone(&budget))).collect();
            for (which, is_charge, bytes) in steps {
                let account = &mut accounts[which];
                if is_charge {
                    let before = account.used();
                    let expected = if account.charge(bytes).is_ok() { before + bytes } else { before };
                    prop_assert_eq!(account.used(), expected);
                } else {
                    account.release(bytes.min(account.used()));
                }
                let held: usize = accounts.iter().map(Account::used).sum();
                prop_assert!(held <= budget.used() + accounts.len() * OWN && budget.used() <= 64 << 10);
                prop_assert!(budget.used() <= held + accounts.len() * 2 * CHUNK);
                prop_assert!(accounts.iter().all(|account| account.used() <= 16 << 10));
            }
            drop(accounts);
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
