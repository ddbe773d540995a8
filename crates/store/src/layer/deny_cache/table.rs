//! The table of cached denials.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use tollgate_core::algorithm::quota::Report;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::descriptor::OwnedKey;
use tollgate_telemetry::metrics::StoreMetrics;

use super::limits::{amounts_of, fits_ever, is_single_fixed_window};
use crate::clock::instant;
use crate::duplicates::are_alone;
use crate::{CertainDenials, Check, Outcomes};

/// Number of entries for denials, about 10 MB.
const ENTRIES: usize = 1 << 16;

/// The cached denials, shared by all workers of a process.
pub struct DenialTable {
    entries: Box<[Mutex<Option<CachedDenial>>]>,
    longest: Duration,
    pub(super) metrics: Arc<StoreMetrics>,
}

struct CachedDenial {
    key: OwnedKey,
    /// Number of denied hits.
    hits: u64,
    amounts: u64,
    sent: Instant,
    until: Instant,
    /// The store's report, and the time of its arrival.
    report: Report,
    received: Instant,
}

impl DenialTable {
    /// Creates an empty cache. `longest` bounds the lifetime of an entry.
    pub fn new(longest: Duration, metrics: Arc<StoreMetrics>) -> Arc<Self> {
        Arc::new(Self {
            entries: (0..ENTRIES).map(|_| Mutex::default()).collect(),
            longest,
            metrics,
        })
    }

    fn entry(&self, check: &Check<'_>) -> Option<&Mutex<Option<CachedDenial>>> {
        self.entries.get(usize::try_from(check.key.hash()).unwrap_or_default() % ENTRIES)
    }

    /// Returns the outcome of a check, if it is cached.
    pub(super) fn find(&self, check: &Check<'_>, now: Instant) -> Option<Outcome> {
        // A limit that keeps holds since a reload may have a denial from before.
        let wanted = needs(check).filter(|wanted| *wanted > 0 && check.limit.hold().is_none())?;
        let entry = self.entry(check)?.lock();
        let denial =
            entry.as_ref().filter(|denial| denial.key == check.key && denial.hits <= wanted)?;
        // More hits wait equally long in a single fixed window, if they can ever fit.
        let holds_for_more = is_single_fixed_window(check.limit) && fits_ever(check.limit, wanted);
        if denial.hits < wanted && !(holds_for_more && denial.report.retry_after.is_some()) {
            return None;
        }
        if now >= denial.until || denial.amounts != amounts_of(check.limit) {
            return None;
        }
        let passed = Micros::new(
            u64::try_from(now.saturating_duration_since(denial.received).as_micros())
                .unwrap_or(u64::MAX),
        );
        let Report { reset_after, retry_after, .. } = denial.report;
        let report = Report {
            reset_after: reset_after.map(|length| length - passed),
            retry_after: retry_after.map(|length| length - passed),
            ..denial.report
        };
        Some(Outcome { allowed: false, report, by: JudgedBy::Memory, hold: HoldEffect::Nothing })
    }

    /// Caches a denial, or records a refund, which invalidates replies to all earlier requests.
    pub(super) fn record(
        &self,
        check: &Check<'_>,
        outcome: &Outcome,
        sent: Instant,
        received: Instant,
    ) {
        let Some(entry) = self.entry(check) else { return };
        let (hits, sent, wait) = match (check.hits, needs(check)) {
            // Also an operation on holds, whose denials are not cached.
            (Hits::Refund(0), _) => return,
            (Hits::Refund(_), _) => (u64::MAX, received, Duration::ZERO),
            (_, Some(hits)) if hits > 0 && !outcome.allowed && lasts(check) => {
                // A denial without `retry_after` holds until the counter resets; later it may be a
                // different one.
                let wait = outcome.report.retry_after.or(outcome.report.reset_after);
                (
                    hits,
                    sent,
                    wait.map_or(Duration::ZERO, |wait| Duration::from(wait).min(self.longest)),
                )
            }
            (Hits::Charge(_) | Hits::Peek(_), _) => return,
        };
        let mut entry = entry.lock();
        let is_refund = matches!(check.hits, Hits::Refund(_));
        // Of a refund and a request at one instant, the store may have judged the request first.
        let is_outdated = entry.as_ref().is_some_and(|cached| {
            cached.key == check.key
                && if is_refund { cached.sent > sent } else { cached.sent >= sent }
        });
        if is_outdated || (wait.is_zero() && !is_refund) {
            return;
        }
        let key = check.key.into();
        let amounts = amounts_of(check.limit);
        let until = sent.checked_add(wait).unwrap_or(sent);
        *entry = Some(CachedDenial {
            key,
            hits,
            amounts,
            sent,
            until,
            report: outcome.report,
            received,
        });
    }

    /// Invalidates the entry of a counter, like a refund.
    pub(super) fn invalidate(&self, check: &Check<'_>) {
        let report =
            Report { remaining: 1, beyond: 0, window: 0, reset_after: None, retry_after: None };
        let outcome =
            Outcome { allowed: true, report, by: JudgedBy::Store, hold: HoldEffect::Nothing };
        let now = instant();
        self.record(&Check { hits: Hits::Refund(1), ..*check }, &outcome, now, now);
    }

    /// Caches the denials in the store's reply that are certain.
    pub(super) fn record_all(
        &self,
        checks: &[Check<'_>],
        outcomes: &Outcomes,
        certain: CertainDenials,
        sent: Instant,
    ) {
        let has_denial = outcomes.iter().flatten().any(|outcome| !outcome.allowed);
        let alone = if has_denial { are_alone(checks) } else { Few::new() };
        for (number, (check, outcome)) in checks.iter().zip(outcomes).enumerate() {
            let is_alone = alone.get(number) == Some(&true);
            let is_refund = matches!(check.hits, Hits::Refund(_));
            let is_relevant = is_refund || is_alone && is_certain(check, certain);
            match outcome {
                // A decision by this process's share of a limit is not about the counter.
                Ok(outcome) if outcome.by == JudgedBy::Store && is_relevant => {
                    self.record(check, outcome, sent, instant());
                }
                // A refund without a reply may have been made.
                Err(_) if is_refund && check.hits != Hits::Refund(0) => self.invalidate(check),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Returns the cached outcome of each check; empty if there is none at all.
    pub(super) fn cached(&self, checks: &[Check<'_>], now: Instant) -> Vec<Option<Outcome>> {
        let cached = checks.iter().zip(are_alone(checks)).map(|(check, is_alone)| {
            let may_answer = is_alone && !is_vote(check);
            if may_answer { self.find(check, now) } else { None }
        });
        let cached: Few<Option<Outcome>> = cached.collect();
        let misses = cached.iter().filter(|cached| cached.is_none()).count();
        self.metrics.deny_cache_misses.inc_by(misses as u64);
        if misses == cached.len() {
            return Vec::new();
        }
        self.metrics.deny_cache_hits.inc_by(cached.iter().flatten().count() as u64);
        cached.into_vec()
    }
}

/// Returns `true` if a denial is not due to a charge that another slot voids.
fn is_certain(check: &Check<'_>, certain: CertainDenials) -> bool {
    let is_revocable = check.limit.charge_mode().is_revocable();
    match certain {
        CertainDenials::All => true,
        CertainDenials::AllButPerSecond => !is_revocable || !check.limit.is_of_a_second(),
        CertainDenials::IrrevocableOnly => !is_revocable,
    }
}

/// Returns `true` if a denial holds as long as it claims: it is the counter's own, and no written
/// denied hits extend the wait.
fn lasts(check: &Check<'_>) -> bool {
    let waits_longer =
        check.limit.charge_mode().counts_denied() && !is_single_fixed_window(check.limit);
    // Hits that are held may be given back at any time.
    let may_end = check.limit.hold().is_some();
    !waits_longer && !check.limit.is_ban() && !may_end
}

/// Returns the hits that must fit for a check; `None` for a refund.
fn needs(check: &Check<'_>) -> Option<u64> {
    check.hits.needs(check.limit.charge_mode()).map(u64::from)
}

/// Returns `true` for a quota vote. The store counts it with the other votes, so the cache does not
/// answer it.
fn is_vote(check: &Check<'_>) -> bool {
    matches!(check.role, Role::Quota | Role::QuotaShadow)
}
