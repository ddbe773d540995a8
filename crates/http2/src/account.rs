//! Accounts of connections: the memory of the budget that each holds, for itself and by its calls.
#![allow(clippy::arithmetic_side_effects, reason = "what is reserved is bounded by the budget")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::budget::{Budget, BudgetExceeded, Purpose};

/// Bytes that an account reserves from the budget at a time.
const CHUNK: usize = 4 << 10;
/// Bytes that each account has on top of the budget, so that a partial frame and a call are never
/// refused because of other connections. The bound on connections bounds their sum.
pub(super) const OWN: usize = 8 << 10;
/// Divisor of the budget for the share that the calls of one connection may hold.
const SHARES: usize = 4;
/// Divisor of the budget: heavier connections leave a part of it to others, and may be evicted;
/// usual clients hold far less.
pub(super) const HEAVY_SHARE: usize = 256;

/// The bytes that one connection holds; released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionAccount {
    calls: CallAccount,
    /// Bytes reserved: [`OWN`], and whole chunks taken from the budget.
    reserved: usize,
}

/// Account of what the calls of a connection take of it: memory that they keep, and work. Clones
/// are of the same account.
#[derive(Clone, Debug)]
pub struct CallAccount(Arc<AccountState>);

#[derive(Debug)]
struct AccountState {
    budget: Arc<Budget>,
    /// Maximum of bytes for this connection.
    max: usize,
    /// Bytes charged by the connection, which alone writes them.
    used: AtomicUsize,
    /// Bytes that calls keep.
    kept: AtomicUsize,
    /// Bytes that large requests keep, beside those.
    large: AtomicUsize,
    /// Bytes that calls have handled besides those that came.
    work: AtomicUsize,
}

/// Bytes that a call keeps; released when dropped.
#[derive(Debug)]
pub struct CallHold {
    account: CallAccount,
    bytes: usize,
    is_large: bool,
}

impl CallAccount {
    /// Creates the account of a connection: of at most a quarter of the budget.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self(Arc::new(AccountState {
            max: (budget.max / SHARES).max(OWN),
            budget,
            used: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            work: AtomicUsize::new(0),
        }))
    }

    /// Reserves bytes for a call until the result is dropped.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if fewer bytes are available to the connection, or to all.
    pub fn hold(&self, bytes: usize) -> Result<CallHold, BudgetExceeded> {
        self.reserve(bytes, Purpose::Call, false)
    }

    /// Reserves bytes for a large request, as [`Self::hold`] does, of a quarter of the budget of
    /// their own: other calls of the connection are not refused for them.
    ///
    /// # Errors
    /// [`BudgetExceeded`]
    pub fn hold_large(&self, bytes: usize) -> Result<CallHold, BudgetExceeded> {
        self.reserve(bytes, Purpose::Call, true)
    }

    /// Reserves bytes for what a stream keeps, as [`Self::hold`] does: a part of the memory is left
    /// to the calls of others.
    ///
    /// # Errors
    /// [`BudgetExceeded`]
    pub fn keep(&self, bytes: usize) -> Result<CallHold, BudgetExceeded> {
        self.reserve(bytes, Purpose::Kept, false)
    }

    fn reserve(
        &self,
        bytes: usize,
        purpose: Purpose,
        is_large: bool,
    ) -> Result<CallHold, BudgetExceeded> {
        let state = &*self.0;
        let purpose = state.purpose(bytes, purpose);
        let used = if is_large { 0 } else { state.used.load(Ordering::Relaxed) };
        let left = state.max.saturating_sub(used);
        let held = state.held(is_large);
        let added = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|sum| *sum <= left)
        });
        added.map_err(|_| BudgetExceeded)?;
        if let Err(error) = state.budget.reserve(bytes, purpose) {
            held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(error);
        }
        Ok(CallHold { account: self.clone(), bytes, is_large })
    }

    /// Records bytes that a call has handled besides those received, such as those of inflated
    /// messages. The connection yields to others sooner for them.
    pub fn add_work(&self, bytes: usize) {
        if bytes > 0 {
            self.0.work.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the work since the last call. Connections without any pay for one read.
    pub fn take_work(&self) -> usize {
        let work = &self.0.work;
        if work.load(Ordering::Relaxed) == 0 { 0 } else { work.swap(0, Ordering::Relaxed) }
    }
}

impl AccountState {
    /// Returns the purpose for which `bytes` more are reserved: a light connection reserves
    /// anything as if it were for a call.
    fn purpose(&self, bytes: usize, purpose: Purpose) -> Purpose {
        let held = self.all().saturating_add(bytes);
        if held > self.budget.max / HEAVY_SHARE { purpose } else { Purpose::Call }
    }

    /// Returns the bytes that calls keep, or those of large requests.
    fn held(&self, is_large: bool) -> &AtomicUsize {
        if is_large { &self.large } else { &self.kept }
    }

    /// Returns all bytes that the connection has of the budget.
    fn all(&self) -> usize {
        let parts = [&self.used, &self.kept, &self.large];
        parts.map(|bytes| bytes.load(Ordering::Relaxed)).into_iter().fold(0, usize::saturating_add)
    }
}

impl Drop for CallHold {
    fn drop(&mut self) {
        let state = &*self.account.0;
        state.held(self.is_large).fetch_sub(self.bytes, Ordering::Relaxed);
        state.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl ConnectionAccount {
    /// Creates an account of at most a quarter of the budget.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { calls: CallAccount::new(budget), reserved: OWN }
    }

    /// Returns the account of the connection's calls.
    pub(super) fn calls(&self) -> &CallAccount {
        &self.calls
    }

    /// Charges bytes.
    ///
    /// # Errors
    /// [`BudgetExceeded`]; nothing is charged then.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.charge_for(bytes, Purpose::Call)
    }

    /// Charges bytes of a message that arrives.
    ///
    /// # Errors
    /// [`BudgetExceeded`]; nothing is charged then.
    pub(super) fn charge_arriving(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.charge_for(bytes, Purpose::Kept)
    }

    fn charge_for(&mut self, bytes: usize, purpose: Purpose) -> Result<(), BudgetExceeded> {
        let state = &*self.calls.0;
        let used = self.charged().saturating_add(bytes);
        if used.saturating_add(state.kept.load(Ordering::Relaxed)) > state.max {
            return Err(BudgetExceeded);
        }
        if used > self.reserved {
            let purpose = state.purpose(bytes, purpose);
            let missing = (used - self.reserved).div_ceil(CHUNK) * CHUNK;
            state.budget.reserve(missing, purpose)?;
            self.reserved += missing;
        }
        state.used.store(used, Ordering::Relaxed);
        Ok(())
    }

    /// Releases charged bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        let state = &*self.calls.0;
        let used = self.charged().saturating_sub(bytes);
        state.used.store(used, Ordering::Relaxed);
        let needed = used.max(OWN).div_ceil(CHUNK) * CHUNK;
        if self.reserved > needed + CHUNK {
            state.budget.used.fetch_sub(self.reserved - needed, Ordering::Relaxed);
            self.reserved = needed;
        }
    }

    /// Returns the number of bytes charged by the connection.
    pub(super) fn charged(&self) -> usize {
        self.calls.0.used.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes charged by the connection and kept by its calls.
    pub(super) fn used(&self) -> usize {
        self.calls.0.all()
    }
}

impl Drop for ConnectionAccount {
    fn drop(&mut self) {
        self.calls.0.budget.used.fetch_sub(self.reserved - OWN, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_is_held_than_the_budget_and_all_is_given_back(
            steps in prop::collection::vec((0usize..3, any::<bool>(), 0usize..20_000), 0..60),
        ) {
            let budget = Arc::new(Budget::new(64 << 10));
            let mut accounts: Vec<_> = (0..3).map(|_| ConnectionAccount::new(Arc::clone(&budget))).collect();
            for (which, is_charge, bytes) in steps {
                let account = &mut accounts[which];
                if is_charge {
                    let before = account.used();
                    let expected = if account.charge(bytes).is_ok() { before + bytes } else { before };
                    prop_assert_eq!(account.used(), expected);
                } else {
                    account.release(bytes.min(account.used()));
                }
                let held: usize = accounts.iter().map(ConnectionAccount::used).sum();
                prop_assert!(held <= budget.used() + accounts.len() * OWN && budget.used() <= 64 << 10);
                prop_assert!(budget.used() <= held + accounts.len() * 2 * CHUNK);
                prop_assert!(accounts.iter().all(|account| account.used() <= 16 << 10));
            }
            drop(accounts);
            prop_assert_eq!(budget.used(), 0);
        }
    }
    #[test]
    fn what_arrives_or_is_kept_leaves_a_quarter_to_calls_that_have_begun() {
        let budget = Arc::new(Budget::new(160 << 10));
        let accounts = [(); 4].map(|()| CallAccount::new(Arc::clone(&budget)));
        let kept: Vec<_> = accounts.iter().map(|account| account.keep(20 << 10)).collect();
        assert!(kept.iter().all(Result::is_ok));
        let mut account = ConnectionAccount::new(Arc::clone(&budget));
        assert_eq!(accounts[0].keep(1).err(), Some(BudgetExceeded));
        assert_eq!(account.charge_arriving(OWN + 1), Err(BudgetExceeded));
        assert!(account.charge(OWN + 1).is_ok() && accounts[0].hold(20 << 10).is_ok());
        assert_eq!(accounts[0].hold((20 << 10) + 1).err(), Some(BudgetExceeded), "its own quarter");
    }

    #[test]
    fn an_account_reserves_chunks_beyond_its_own_bytes_and_keeps_one() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut account = ConnectionAccount::new(Arc::clone(&budget));
        let chunks = |bytes: usize, chunks: usize| (bytes, chunks * CHUNK);
        let mut charged = |bytes| {
            account.charge(bytes).unwrap();
            (account.used(), budget.used())
        };
        assert_eq!(charged(OWN), chunks(OWN, 0));
        assert_eq!(charged(1), chunks(OWN + 1, 1));
        assert_eq!(charged(CHUNK - 1), chunks(OWN + CHUNK, 1));
        assert_eq!(charged(CHUNK + 1), chunks(OWN + 2 * CHUNK + 1, 3));
        let mut released = |bytes| {
            account.release(bytes);
            (account.used(), budget.used())
        };
        assert_eq!(released(CHUNK), chunks(OWN + CHUNK + 1, 3));
        assert_eq!(released(1), chunks(OWN + CHUNK, 1));
        assert_eq!(released(CHUNK), chunks(OWN, 1));
        assert_eq!(released(OWN), chunks(0, 1));
        assert_eq!(account.charge((256 << 10) + 1), Err(BudgetExceeded));
        assert_eq!(account.charge(256 << 10), Ok(()));
        drop(account);
        assert_eq!(budget.used(), 0);
    }
}
