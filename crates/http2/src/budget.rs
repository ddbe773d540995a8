//! Memory that clients can make the process hold, in bytes: one budget for all of them, and an
//! account for each connection.
//!
//! Connections themselves and what their calls hold are charged to one budget. A quarter of it is
//! reserved for each of the two, so that calls do not lock out new connections, nor connections
//! calls.
#![allow(clippy::arithmetic_side_effects, reason = "what is reserved is bounded by the budget")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Bytes that an account reserves from the budget at a time.
const CHUNK: usize = 4 << 10;
/// Bytes that each account has on top of the budget, so that a partial frame and a call are never
/// refused because of other connections. The bound on connections bounds their sum.
pub(super) const OWN: usize = 8 << 10;
/// Divisor of the budget for the share reserved for connections, and for calls.
const KEPT_SHARE: usize = 4;
/// Divisor of the budget for the share below which the rest is scarce.
const SCARCE_SHARE: usize = 16;
/// Divisor of the budget for the share that the calls of one connection may hold.
const SHARES: usize = 4;

/// Budget of the bytes that all connections together may hold.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    /// Bytes held by connections and calls.
    used: AtomicUsize,
    /// Bytes held by connections.
    connections: AtomicUsize,
    exceeded: Notify,
}

/// The bytes that one connection holds; released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionAccount {
    budget: Arc<Budget>,
    /// Maximum for this connection.
    max: usize,
    used: usize,
    /// Bytes reserved: [`OWN`], and whole chunks taken from the budget.
    reserved: usize,
}

/// Bytes of the budget held outside of a connection; released when dropped.
#[derive(Debug)]
pub struct BudgetHold {
    budget: Arc<Budget>,
    bytes: usize,
}

/// Bytes of the budget that a connection itself takes; released when dropped.
#[derive(Debug)]
pub(super) struct HeldByConnection {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for HeldByConnection {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.connections.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for BudgetHold {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The budget, or the share of one connection, is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory limit for clients reached")]
pub struct BudgetExceeded;

impl Budget {
    /// Creates a budget of `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            used: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            exceeded: Notify::new(),
        }
    }

    /// Returns the maximum number of bytes in use.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns the number of bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes until the result is dropped.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if fewer bytes are available.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Result<BudgetHold, BudgetExceeded> {
        self.reserve(bytes)?;
        Ok(BudgetHold { budget: Arc::clone(self), bytes })
    }

    /// Reserves bytes for a connection until the result is dropped.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if fewer bytes are available.
    pub(super) fn hold_connection(
        self: &Arc<Self>,
        bytes: usize,
    ) -> Result<HeldByConnection, BudgetExceeded> {
        let held = HeldByConnection { budget: Arc::clone(self), bytes };
        let of_all = self.connections.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if of_all > self.max - self.kept() || used > self.max {
            drop(held);
            self.exceeded.notify_one();
            return Err(BudgetExceeded);
        }
        Ok(held)
    }

    /// Returns the number of bytes reserved for connections, and as many for calls.
    fn kept(&self) -> usize {
        self.max / KEPT_SHARE
    }

    /// Waits until a reservation fails.
    pub(super) async fn exceeded(&self) {
        self.exceeded.notified().await;
    }

    /// Returns the total use up to which calls may reserve bytes.
    fn max_with_calls(&self) -> usize {
        self.max - self.kept().saturating_sub(self.connections.load(Ordering::Relaxed))
    }

    /// Returns `true` if almost nothing is left for calls.
    pub(super) fn is_scarce(&self) -> bool {
        self.used() > self.max_with_calls() - self.max / SCARCE_SHARE
    }

    fn reserve(&self, bytes: usize) -> Result<(), BudgetExceeded> {
        let max = self.max_with_calls();
        let reserved = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= max)
        });
        if reserved.is_err() {
            self.exceeded.notify_one();
            return Err(BudgetExceeded);
        }
        Ok(())
    }
}

impl ConnectionAccount {
    /// Creates an account of at most a quarter of the budget.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { max: (budget.max / SHARES).max(OWN), budget, used: 0, reserved: OWN }
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
            let missing = (used - self.reserved).div_ceil(CHUNK) * CHUNK;
            self.budget.reserve(missing)?;
            self.reserved += missing;
        }
        self.used = used;
        Ok(())
    }

    /// Releases charged bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        let needed = self.used.max(OWN).div_ceil(CHUNK) * CHUNK;
        if self.reserved > needed + CHUNK {
            self.budget.used.fetch_sub(self.reserved - needed, Ordering::Relaxed);
            self.reserved = needed;
        }
    }

    /// Returns the number of charged bytes.
    pub(super) fn used(&self) -> usize {
        self.used
    }
}

impl Drop for ConnectionAccount {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.reserved - OWN, Ordering::Relaxed);
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
    fn connections_and_calls_each_have_a_quarter_that_the_other_cannot_take() {
        use futures_util::FutureExt as _;
        let budget = Arc::new(Budget::new(160));
        let was_exceeded = || budget.exceeded().now_or_never().is_some();
        let calls = budget.hold(120).unwrap();
        assert!(!was_exceeded());
        assert!(budget.hold(1).is_err() && was_exceeded() && !was_exceeded());
        // What connections hold of their own part is no part of what they leave to calls.
        let connection = budget.hold_connection(30).unwrap();
        assert!(budget.hold(1).is_err() && was_exceeded());
        drop((calls, connection));
        assert_eq!(budget.used(), 0);
        let connections = budget.hold_connection(120).unwrap();
        assert!(budget.hold_connection(1).is_err() && was_exceeded());
        assert!(budget.hold(41).is_err() && was_exceeded());
        let calls = budget.hold(40).unwrap();
        assert!(budget.hold_connection(0).is_ok() && budget.hold(0).is_ok() && !was_exceeded());
        drop(connections);
        assert_eq!((budget.used(), budget.connections.load(Ordering::Relaxed)), (40, 0));
        drop(calls);
    }

    #[test]
    fn the_budget_is_scarce_when_a_sixteenth_is_left_for_calls() {
        let budget = Arc::new(Budget::new(160));
        let calls = budget.hold(110).unwrap();
        assert!(!budget.is_scarce());
        let more = budget.hold(1).unwrap();
        assert!(budget.is_scarce());
        drop((calls, more));
        let connections = budget.hold_connection(60).unwrap();
        let calls = budget.hold(90).unwrap();
        assert!(!budget.is_scarce());
        let more = budget.hold(1).unwrap();
        assert!(budget.is_scarce());
        drop((connections, calls, more));
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
