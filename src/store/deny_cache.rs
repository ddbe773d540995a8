//! A layer that remembers denials: who was denied n hits until an instant is denied n until then without asking; more than n
//! as well, where it is known how long that takes.
//!
//! A counter can only become freer by time, by a refund, or by a policy that allows more. Time is what `retry_after` tells. The
//! store's instant is one while the question was under way: a denial holds from the instant at which it was sent, so that it never
//! outlives the truth, and the times told are counted from the instant at which the answer came, so that nobody is told to come
//! back too early. A refund through this process (or hits of a lease that go back) and a change of the amounts end a memory at
//! once; and none is longer than a bound (1 s unless told otherwise), so that a refund through another replica is seen. What is
//! remembered is a table of fixed size, where the newest wins.
//!
//! **What is not remembered**: denials of limits whose denied hits are written, since each makes the wait longer, and those of
//! hits that others may pass by. A single fixed window is remembered all the same, since nothing makes it end later. Its denied
//! hits are not written then, and until its end three can tell: a refund, another amount for the same counter (an override that
//! inherits, a changed policy), and who looks at the counter. Where a limit records who is denied, they are written without waiting
//! for the answer.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::background::Background;
use super::owned::OwnedCheck;
use super::{Check, Lender, Lent, Outcomes, Store, StoreError};
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use crate::algorithm::quota::Report;
use crate::algorithm::time::Micros;
use crate::algorithm::verdict::{Overall, Prior, Role, Verdict, combine};
use crate::algorithm::{Algorithm, Charge, Limit, Receipt};
use crate::descriptor::OwnedKey;
use crate::telemetry::metrics::Metrics;

/// Denials that are remembered, about 10 MB of them.
const PLACES: usize = 1 << 16;

/// What denials may be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learns {
    /// All: one place judges whole requests.
    All,
    /// Those of limits that are not of a second alone, which other servers judge first; and these as below.
    AllButOfASecond,
    /// Those of limits whose hits are never taken back: elsewhere a denial may come from a charge that another slot makes void.
    WhatIsNeverTakenBack,
}

/// The denials that all workers of a process remember.
pub struct Denials {
    places: Box<[Mutex<Option<Denial>>]>,
    longest: Duration,
    learns: Learns,
    metrics: Arc<Metrics>,
}

struct Denial {
    key: OwnedKey,
    /// What was denied.
    hits: u64,
    amounts: u64,
    asked: Instant,
    until: Instant,
    /// The store's report, and when it arrived.
    report: Report,
    answered: Instant,
}

/// A store that asks another only what it does not remember.
pub struct DenyCache<S> {
    store: Arc<S>,
    denials: Arc<Denials>,
    owed: Background,
}

impl Denials {
    /// None yet. `longest`: how long one is remembered at most.
    pub fn new(longest: Duration, learns: Learns, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { places: (0..PLACES).map(|_| Mutex::default()).collect(), longest, learns, metrics })
    }

    fn place(&self, check: &Check<'_>) -> Option<&Mutex<Option<Denial>>> {
        let index = usize::try_from(check.key.hash()).unwrap_or_default().checked_rem(self.places.len())?;
        self.places.get(index)
    }

    /// The outcome of a check, where it is remembered.
    fn find(&self, check: &Check<'_>, now: Instant) -> Option<Outcome> {
        let wanted = needs(check).filter(|wanted| *wanted > 0)?;
        let place = self.place(check)?.lock();
        let denial = place.as_ref().filter(|denial| denial.key == check.key && denial.hits <= wanted)?;
        // How long more hits have to wait is known of a single fixed window: as long, where they can ever fit.
        let knows_more = is_single_fixed_window(check.limit) && fits_ever(check.limit, wanted);
        if denial.hits < wanted && !(knows_more && denial.report.retry_after.is_some()) {
            return None;
        }
        if now >= denial.until || denial.amounts != amounts_of(check.limit) {
            return None;
        }
        let passed =
            Micros::new(u64::try_from(now.saturating_duration_since(denial.answered).as_micros()).unwrap_or(u64::MAX));
        let later = |length: Option<Micros>| length.map(|length| length - passed);
        let Report { remaining, window, reset_after, retry_after } = denial.report;
        let report = Report { remaining, window, reset_after: later(reset_after), retry_after: later(retry_after) };
        Some(Outcome { allowed: false, report, by: JudgedBy::Memory })
    }

    /// Remembers a denial, or that there was a refund: what was asked before it is known no more.
    fn learn(&self, check: &Check<'_>, outcome: &Outcome, asked: Instant, answered: Instant) {
        let Some(place) = self.place(check) else { return };
        let (hits, asked, wait) = match (check.hits, needs(check)) {
            (Hits::Refund(_), _) => (u64::MAX, answered, Duration::ZERO),
            (_, Some(hits)) if hits > 0 && !outcome.allowed && self.lasts(check) => {
                // Never: until the counter is as new, when what was written and denied may be another story.
                let wait = outcome.report.retry_after.or(outcome.report.reset_after);
                (hits, asked, wait.map_or(Duration::ZERO, |wait| Duration::from(wait).min(self.longest)))
            }
            (Hits::Charge(_) | Hits::Peek(_), _) => return,
        };
        let mut place = place.lock();
        let is_known = |denial: &Denial| denial.key == check.key;
        let is_refund = matches!(check.hits, Hits::Refund(_));
        if place.as_ref().is_some_and(|denial| is_known(denial) && denial.asked > asked)
            || (wait.is_zero() && !is_refund)
        {
            return;
        }
        let (key, amounts) = (check.key.into(), amounts_of(check.limit));
        let until = asked.checked_add(wait).unwrap_or(asked);
        *place = Some(Denial { key, hits, amounts, asked, until, report: outcome.report, answered });
    }

    /// There is room again, as after a refund.
    fn forget(&self, check: &Check<'_>) {
        let report = Report { remaining: 1, window: 0, reset_after: None, retry_after: None };
        let outcome = Outcome { allowed: true, report, by: JudgedBy::Store };
        let now = Instant::now();
        self.learn(&Check { hits: Hits::Refund(1), ..*check }, &outcome, now, now);
    }

    /// Returns true if a denial holds as long as it says: it is the counter's own, not that of a charge which another slot makes
    /// void, and denied hits that are written do not make the wait longer.
    fn lasts(&self, check: &Check<'_>) -> bool {
        let is_certain = match self.learns {
            Learns::All => true,
            Learns::AllButOfASecond => !check.limit.is_of_a_second(),
            Learns::WhatIsNeverTakenBack => false,
        };
        let taken_back = matches!(check.limit.charge_mode(), Charge::Admitted | Charge::Blamed);
        let waits_longer = check.limit.charge_mode() != Charge::Admitted && !is_single_fixed_window(check.limit);
        (is_certain || !taken_back) && !waits_longer && !check.limit.is_ban()
    }

    /// Remembers what came of a question.
    fn learn_all(&self, checks: &[Check<'_>], outcomes: &Outcomes, asked: Instant) {
        for (check, outcome) in checks.iter().zip(outcomes) {
            let is_refund = matches!(check.hits, Hits::Refund(_));
            // What this process decides by its share of a limit says nothing of the counter.
            let tells = |outcome: &&Outcome| {
                outcome.by == JudgedBy::Store && (is_refund || (!outcome.allowed && is_alone(check, checks)))
            };
            if let Some(outcome) = outcome.as_ref().ok().filter(tells) {
                self.learn(check, outcome, asked, Instant::now());
            }
        }
    }
}

impl<S: Store> DenyCache<S> {
    /// `store`, asked less.
    pub fn new(store: S, denials: Arc<Denials>) -> Self {
        Self { store: Arc::new(store), denials, owed: Background::default() }
    }

    /// The store beneath.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Waits until what is written all the same has been.
    pub async fn settled(&self) {
        self.owed.settled().await;
    }

    /// Charges what is written all the same, in the background.
    fn charge_anyway(&self, checks: &[Check<'_>], known: &[Option<Outcome>], deadline: Instant) {
        let owed = checks.iter().zip(known).filter(|(check, known)| known.is_some() && is_owed(check));
        let owed: Few<OwnedCheck> = owed.map(|(check, _)| OwnedCheck::of(check)).collect();
        if owed.is_empty() {
            return;
        }
        let (store, count) = (Arc::clone(&self.store), u64::try_from(owed.len()).unwrap_or(u64::MAX));
        let begun = self.owed.spawn(async move {
            let checks: Few<Check<'_>> = owed.iter().map(OwnedCheck::check).collect();
            // What becomes of them is counted where they are written.
            let _ = store.decide(&checks, Prior::Denied, deadline).await;
        });
        if !begun {
            self.denials.metrics.dropped_charges.inc_by(count);
        }
    }
}

impl<S: Store> DenyCache<S> {
    /// What is remembered of each check; empty where nothing is of any.
    fn known(&self, checks: &[Check<'_>], now: Instant) -> Vec<Option<Outcome>> {
        let find = |check| if may_answer(check, checks) { self.denials.find(check, now) } else { None };
        let known: Few<Option<Outcome>> = checks.iter().map(find).collect();
        let hits = u64::try_from(known.iter().flatten().count()).unwrap_or(u64::MAX);
        let all = u64::try_from(known.len()).unwrap_or(u64::MAX);
        self.denials.metrics.deny_cache_misses.inc_by(all.saturating_sub(hits));
        if hits == 0 {
            return Vec::new();
        }
        self.denials.metrics.deny_cache_hits.inc_by(hits);
        known.into_vec()
    }

    /// Asks for what is not remembered.
    async fn decide_rest(
        &self,
        checks: &[Check<'_>],
        known: Vec<Option<Outcome>>,
        prior: Prior,
        asked: Instant,
        deadline: Instant,
    ) -> Outcomes {
        self.charge_anyway(checks, &known, deadline);
        // Denied, where it is not admitted even if all that is not remembered allows.
        let verdicts = checks.iter().zip(&known).map(|(check, known)| {
            let verdict = known.as_ref().map_or(Verdict::Allowed, |known| check.verdict(Ok(known)));
            (check.role, verdict)
        });
        let is_denied = combine(prior, verdicts) == Overall::Denied;
        let rest: Few<Check<'_>> =
            checks.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(check, _)| *check).collect();
        let answers = match rest.is_empty() {
            true => Outcomes::new(),
            false => self.store.decide(&rest, if is_denied { Prior::Denied } else { prior }, deadline).await,
        };
        self.denials.learn_all(&rest, &answers, asked);
        let mut answers = answers.into_iter();
        known
            .into_iter()
            .map(|known| known.map_or_else(|| answers.next().unwrap_or(Err(StoreError::Unavailable)), Ok))
            .collect()
    }
}

impl<S: Store> Store for DenyCache<S> {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> Outcomes {
        let asked = Instant::now();
        let known = self.known(checks, asked);
        if known.is_empty() {
            let outcomes = self.store.decide(checks, prior, deadline).await;
            self.denials.learn_all(checks, &outcomes, asked);
            return outcomes;
        }
        // On the heap, so that the usual way does not carry it along.
        Box::pin(self.decide_rest(checks, known, prior, asked, deadline)).await
    }

    async fn amend(&self, check: &Check<'_>, amendment: Amendment, deadline: Instant) -> Result<Amended, StoreError> {
        let amended = self.store.amend(check, amendment, deadline).await;
        if amendment != Amendment::Look {
            self.denials.forget(check);
        }
        amended
    }
}

/// Hits in advance are no request's: nothing is remembered of them.
impl<S: Lender> Lender for DenyCache<S> {
    async fn lend(&self, check: &Check<'_>, deadline: Instant) -> Result<Lent, StoreError> {
        self.store.lend(check, deadline).await
    }

    async fn take_back(&self, check: &Check<'_>, receipt: Receipt, deadline: Instant) -> Result<(), StoreError> {
        let taken = self.store.take_back(check, receipt, deadline).await;
        self.denials.forget(check);
        taken
    }
}

/// Hits that a check needs room for; a refund needs none.
fn needs(check: &Check<'_>) -> Option<u64> {
    check.hits.needs(check.limit.charge_mode()).map(u64::from)
}

/// Returns true if denied hits matter beyond the denial: they are tallied.
fn is_owed(check: &Check<'_>) -> bool {
    !check.recorded.is_empty() && matches!(check.hits, Hits::Charge(_))
}

fn is_single_fixed_window(limit: &Limit) -> bool {
    match limit.algorithm() {
        Algorithm::FixedWindow(_) => limit.windows().len() == 1,
        Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::Gcra(_) => false,
    }
}

/// Whether so many hits can be admitted at some time.
fn fits_ever(limit: &Limit, hits: u64) -> bool {
    limit.windows().iter().all(|window| hits <= u64::from(window.limit()))
}

/// Whether a memory can answer: a vote is counted with the others, where the store is.
fn may_answer(check: &Check<'_>, checks: &[Check<'_>]) -> bool {
    matches!(check.role, Role::Enforce | Role::Shadow) && is_alone(check, checks)
}

/// Whether no other check of the request is about the same counter.
fn is_alone(check: &Check<'_>, checks: &[Check<'_>]) -> bool {
    checks.iter().filter(|other| other.key == check.key).count() == 1
}

/// The amounts of a limit, as one number: with others a denial says nothing.
fn amounts_of(limit: &Limit) -> u64 {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    limit.windows().iter().for_each(|window| hasher.write_u32(window.limit()));
    match limit.algorithm() {
        Algorithm::Gcra(gcra) => {
            hasher.write_u32(gcra.burst());
            hasher.write_u64(gcra.max_debt());
        }
        // All of their amounts are those of the windows.
        Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => {}
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
