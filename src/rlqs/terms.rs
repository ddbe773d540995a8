//! The terms of a bucket, its loans, and the assignments of a proxy, as values.

use std::time::Instant;

use crate::algorithm::Receipt;
use crate::algorithm::lease::Lease;
use crate::algorithm::time::Micros;

/// The treatment of a bucket by policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketTerms {
    /// All requests are allowed; there is nothing to charge.
    Open,
    /// All requests are allowed, and charged afterwards.
    Shadow,
    /// All requests are denied.
    Closed,
    /// Hits are lent.
    Lent(LentTerms),
}

impl BucketTerms {
    /// Returns `true` if hits that are admitted without a loan are charged.
    pub fn are_charged(&self) -> bool {
        matches!(self, Self::Shadow | Self::Lent(_))
    }
}

/// The terms of a bucket with loans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentTerms {
    /// Bounds of a loan.
    pub lease: Lease,
    /// Maximum hits admitted at one instant.
    pub at_once: u32,
    /// Digest of the counter and the limit; another one is another limit.
    pub generation: u64,
    /// The assignment while the store fails, once the loan has run out; `None` for none.
    pub on_failure: Option<Blanket>,
}

/// An assignment that does not depend on the number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blanket {
    /// ALLOW_ALL.
    Allow,
    /// DENY_ALL.
    Deny,
}

/// A loan that is charged, and not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargedLoan {
    /// The charge.
    pub receipt: Receipt,
    /// Instants before the charge was requested and after it was reported.
    pub asked_at: Instant,
    /// See `asked_at`.
    pub charged_at: Instant,
    /// Time from the charge to the end of the shortest window; `None` for limits without windows.
    pub window_rest: Option<Micros>,
}

/// The result of a want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantResult {
    /// Hits were charged.
    Charged(ChargedLoan),
    /// No hits remain for this proxy, or none for a time.
    Denied(Option<Micros>),
    /// The store failed.
    Failed,
}

/// An assignment to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The same for all requests, for whole seconds.
    Blanket(Blanket, u64),
    /// Exactly the hits of a loan, for whole seconds.
    Loan(ChargedLoan, u64),
}

/// A report of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketUsage {
    /// Requests allowed since the last report.
    pub allowed: u64,
    /// Requests denied since the last report.
    pub denied: u64,
}

/// The effect of a report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Allowed hits that were lent.
    pub spent: u64,
    /// Allowed hits to be charged afterwards: beyond all loans, in shadow mode, or before the first
    /// assignment.
    pub afterwards: u64,
    /// `true` if those were allowed beyond loans of this stream.
    pub is_overrun: bool,
    /// Hits to give back.
    pub returns: Vec<Receipt>,
}
