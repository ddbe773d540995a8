//! Where counters live: the trait that every store is, what it is asked, and what it answers.
//!
//! A store judges all checks of a request at one instant of its own clock and writes what their charge modes ask for. It
//! knows limits and keys; of policies, protocols and callers it knows nothing. A layer is a store around a store.

pub mod any;
mod background;
pub mod clock;
pub mod deny_cache;
pub mod fallback;
pub mod lease;
pub mod memory;
mod owned;
pub mod redis;

use std::future::Future;
use std::time::Instant;

use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::judge::{Few, Hits, Outcome};
use crate::algorithm::lease::Lease;
use crate::algorithm::quota::Report;
use crate::algorithm::verdict::{Prior, Role, Verdict};
use crate::algorithm::{Limit, Receipt};
use crate::descriptor::CounterKey;

/// One limit's part in a request. A store has to know all of it, since it judges all checks of a request at once.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// Which counter.
    pub key: CounterKey<'a>,
    /// The limit to judge by.
    pub limit: &'a Limit,
    /// What is wanted of it.
    pub hits: Hits,
    /// What its verdict means for the request.
    pub role: Role,
    /// Who wants it: entries of the request, as `key=value`, to tally with the counter.
    pub recorded: &'a [Vec<u8>],
    /// What may be taken of it in advance.
    pub lease: Option<Lease>,
}

impl Check<'_> {
    /// What an outcome says of the check.
    pub fn verdict(&self, outcome: Result<&Outcome, &StoreError>) -> Verdict {
        match (outcome, self.hits) {
            (Err(_), _) => Verdict::Unknown(self.limit.on_store_error()),
            (Ok(_), Hits::Refund(_)) => Verdict::Refund,
            (Ok(outcome), Hits::Charge(_) | Hits::Peek(_)) if outcome.allowed => Verdict::Allowed,
            (Ok(_), Hits::Charge(_) | Hits::Peek(_)) => Verdict::Denied,
        }
    }
}

/// Why a store could not judge one check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no room for a new counter.
    #[error("the store has no room for another counter")]
    NoRoom,
    /// The counter's state belongs to another algorithm or format.
    #[error("the counter's state cannot be read")]
    Unreadable,
    /// The store cannot be reached; nothing was asked of it.
    #[error("the store cannot be reached")]
    Unavailable,
    /// No answer came in time; what was asked for may have been written.
    #[error("the store did not answer in time")]
    Late,
    /// The connection broke before the answer; what was asked for may have been written.
    #[error("the connection to the store broke")]
    Lost,
    /// The store refused, for a reason that is in the log.
    #[error("the store refused")]
    Refused,
}

impl StoreError {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::NoRoom, Self::Unreadable, Self::Unavailable, Self::Late, Self::Lost, Self::Refused];

    /// The kind of error in a word, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoRoom => "no_room",
            Self::Unreadable => "unreadable",
            Self::Unavailable => "unavailable",
            Self::Late => "late",
            Self::Lost => "lost",
            Self::Refused => "refused",
        }
    }
}

/// An outcome or a store error for each check, in their order.
pub type Outcomes = Few<Result<Outcome, StoreError>>;

/// A place where counters live.
pub trait Store: Send + Sync + 'static {
    /// Judges all `checks` of one request and writes what their charge modes ask for.
    ///
    /// Order and length of the answer are those of the question. `prior` says what a layer above has decided already.
    /// What is not known by `deadline` is answered by a store error.
    fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> impl Future<Output = Outcomes> + Send;

    /// Does something to the counter of a check, whose hits and role do not matter, at one instant. Of a ban there is none.
    ///
    /// Where an answer is late or lost, it may have been done.
    fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> impl Future<Output = Result<Amended, StoreError>> + Send;
}

/// What became of hits that were to be charged in advance.
#[derive(Clone, Debug)]
pub struct Lent {
    /// The counter with them, or without them where they do not fit.
    pub report: Report,
    /// The charge; `None`: they do not fit.
    pub receipt: Option<Receipt>,
}

/// A store that can be charged in advance, and told later what of that was not used.
pub trait Lender: Store {
    /// Judges a charge alone, as [`decide`](Store::decide) does, and gives the receipt of what was written.
    fn lend(&self, check: &Check<'_>, deadline: Instant) -> impl Future<Output = Result<Lent, StoreError>> + Send;

    /// Undoes a charge, or a part of it, as far as it still counts.
    fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: Instant,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl<S: Store> Store for std::sync::Arc<S> {
    fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> impl Future<Output = Outcomes> + Send {
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
}

impl<S: Lender> Lender for std::sync::Arc<S> {
    fn lend(&self, check: &Check<'_>, deadline: Instant) -> impl Future<Output = Result<Lent, StoreError>> + Send {
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
