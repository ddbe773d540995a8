//! A double of Envoy's client, as `tests/rlqs` measures it.

use std::time::{Duration, Instant};

use super::super::terms::{Assignment, Blanket, BucketUsage};

/// A proxy with one bucket.
#[derive(Debug, Default)]
pub(super) struct Proxy {
    pub(super) usage: BucketUsage,
    /// Tokens that are left, and the instant at which the assignment expires.
    pub(super) tokens: u64,
    pub(super) allows_all: bool,
    pub(super) expires_at: Option<Instant>,
    pub(super) is_known: bool,
    pub(super) reports_at: Option<Instant>,
    pub(super) waiting: u64,
    pub(super) is_dead: bool,
    /// `true` if all requests are allowed while there is no assignment.
    pub(super) allows_without: bool,
    pub(super) suspended_until: Option<Instant>,
}

impl Proxy {
    pub(super) fn has_hits(&self) -> bool {
        self.tokens > 0 && self.expires_at.is_some()
    }

    /// Returns `true` once the bucket was abandoned.
    pub(super) fn is_forgotten(&self) -> bool {
        !self.is_known
    }

    /// Decides waiting requests, and returns how many are admitted.
    pub(super) fn decide(&mut self, now: Instant) -> u64 {
        if self.expires_at.is_some_and(|at| at <= now) {
            (self.tokens, self.allows_all, self.expires_at) = (0, false, None);
        }
        let hits = std::mem::take(&mut self.waiting);
        let allows_all = self.allows_all || self.allows_without && self.expires_at.is_none();
        let allowed = if allows_all { hits } else { hits.min(self.tokens) };
        self.tokens = self.tokens.saturating_sub(allowed);
        self.usage.allowed += allowed;
        self.usage.denied += hits - allowed;
        allowed
    }

    /// Applies an assignment that arrives now: its time counts from here.
    pub(super) fn apply(&mut self, assignment: &Assignment, now: Instant) {
        let (tokens, allows_all, ttl) = match assignment {
            Assignment::Blanket(Blanket::Allow, ttl) => (0, true, ttl),
            Assignment::Blanket(Blanket::Deny, ttl) => (0, false, ttl),
            Assignment::Loan(loan, ttl) => (loan.receipt.hits, false, ttl),
        };
        (self.tokens, self.allows_all) = (tokens, allows_all);
        self.expires_at = Some(now + Duration::from_secs(*ttl));
    }
}
