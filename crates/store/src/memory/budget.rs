//! Memory budget of the counters: in total, and per domain.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Used bytes in total and per domain, shared by all shards.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    total: MemoryAccount,
    domain_max: usize,
    domains: Mutex<HashMap<Box<str>, Arc<MemoryAccount>>>,
}

/// Used bytes of one bound.
#[derive(Debug)]
pub(super) struct MemoryAccount {
    /// The domain, empty for the total.
    domain: Box<str>,
    used: AtomicUsize,
    max: usize,
}

impl MemoryBudget {
    pub(super) fn new(max: usize, domain_max: usize) -> Self {
        Self {
            total: MemoryAccount::new("", max),
            domain_max: domain_max.min(max),
            domains: Mutex::default(),
        }
    }

    /// Returns the account of a domain. Shards cache it, so this is called once per shard and
    /// domain.
    pub(super) fn account(&self, domain: &str) -> Arc<MemoryAccount> {
        let mut domains = self.domains.lock();
        if let Some(account) = domains.get(domain) {
            return Arc::clone(account);
        }
        let account = Arc::new(MemoryAccount::new(domain, self.domain_max));
        domains.insert(domain.into(), Arc::clone(&account));
        account
    }

    /// Reserves `bytes` for a domain if both bounds allow.
    pub(super) fn take(&self, domain: &MemoryAccount, bytes: usize) -> bool {
        if !domain.take(bytes) {
            return false;
        }
        let taken = self.total.take(bytes);
        if !taken {
            domain.give(bytes);
        }
        taken
    }

    /// Adds `bytes` of a domain that are in use already, whatever the bounds.
    pub(super) fn book(&self, domain: &MemoryAccount, bytes: usize) {
        domain.book(bytes);
        self.total.book(bytes);
    }

    /// Releases `bytes` of a domain.
    pub(super) fn give(&self, domain: &MemoryAccount, bytes: usize) {
        domain.give(bytes);
        self.total.give(bytes);
    }

    /// Returns the total number of used bytes.
    pub(super) fn used(&self) -> usize {
        self.total.used.load(Ordering::Relaxed)
    }
}

impl MemoryAccount {
    fn new(domain: &str, max: usize) -> Self {
        Self { domain: domain.into(), used: AtomicUsize::new(0), max }
    }

    pub(super) fn domain(&self) -> &str {
        &self.domain
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.max)
        });
        taken.is_ok()
    }

    fn book(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give(&self, bytes: usize) {
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some(used.saturating_sub(bytes))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_whole_nor_a_domain_takes_more_than_its_bound() {
        let budget = MemoryBudget::new(100, 60);
        let a = budget.account("a");
        let b = budget.account("b");
        assert!(budget.take(&a, 60));
        assert!(!budget.take(&a, 1));
        assert!(!budget.take(&b, 41));
        assert!(budget.take(&b, 40));
        budget.give(&a, 10);
        assert_eq!(budget.used(), 90);
        assert!(budget.take(&budget.account("a"), 10));
        assert_eq!(["a", "b"].map(|name| budget.account(name).domain().to_owned()), ["a", "b"]);
        // What is in use already counts, whatever the bounds.
        budget.give(&b, 40);
        budget.book(&a, 20);
        assert_eq!(budget.used(), 80);
        budget.give(&a, 20);
        assert!(!budget.take(&a, 1));
    }
}
