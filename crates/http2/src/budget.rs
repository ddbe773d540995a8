//! Memory that clients can make the process hold, in bytes: one budget for all of them.
//!
//! Connections themselves and what their calls hold are charged to one budget. A quarter of it is
//! reserved for each of the two, so that calls do not lock out new connections, nor connections
//! calls. Of what calls may hold, heavy connections leave a quarter to calls that have begun and to
//! others: their messages that have not arrived in full, and what their streams keep, are refused
//! before that.
#![allow(clippy::arithmetic_side_effects, reason = "what is reserved is bounded by the budget")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Divisor of the budget for the share reserved for connections, and for calls.
const KEPT_SHARE: usize = 4;
/// Divisor of the budget for the share that heavy connections leave.
const BEGUN_SHARE: usize = 4;
/// Divisor of the budget for the share below which the rest is scarce.
const SCARCE_SHARE: usize = 16;

/// Budget of the bytes that all connections together may hold.
#[derive(Debug)]
pub struct Budget {
    pub(super) max: usize,
    /// Bytes held by connections and calls.
    pub(super) used: AtomicUsize,
    /// Bytes held by connections.
    connections: AtomicUsize,
    exceeded: Notify,
}

/// Purpose of bytes that calls reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A call that has begun.
    Call,
    /// A message that arrives on a heavy connection, or something that its stream keeps.
    Kept,
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
        self.reserve(bytes, Purpose::Call)?;
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

    /// Returns the total use up to which calls may reserve bytes for a purpose.
    fn max_with_calls(&self, purpose: Purpose) -> usize {
        let of_connections = self.connections.load(Ordering::Relaxed);
        let max = self.max - self.kept().saturating_sub(of_connections);
        match purpose {
            Purpose::Call => max,
            Purpose::Kept => max - self.max / BEGUN_SHARE,
        }
    }

    /// Returns `true` if almost nothing is left for messages that arrive.
    pub(super) fn is_scarce(&self) -> bool {
        self.used() > self.max_with_calls(Purpose::Kept) - self.max / SCARCE_SHARE
    }

    pub(super) fn reserve(&self, bytes: usize, purpose: Purpose) -> Result<(), BudgetExceeded> {
        let max = self.max_with_calls(purpose);
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_budget_is_scarce_when_a_sixteenth_is_left_for_what_arrives() {
        let budget = Arc::new(Budget::new(160));
        let calls = budget.hold(70).unwrap();
        assert!(!budget.is_scarce());
        let more = budget.hold(1).unwrap();
        assert!(budget.is_scarce());
        drop((calls, more));
        let connections = budget.hold_connection(60).unwrap();
        let calls = budget.hold(50).unwrap();
        assert!(!budget.is_scarce());
        let more = budget.hold(1).unwrap();
        assert!(budget.is_scarce());
        drop((connections, calls, more));
    }
}
