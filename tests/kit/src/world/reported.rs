//! Checks of reports in answers: remaining hits, and times after which hits fit.

use super::claims::{Claim, CounterHistory};
use super::history::{CallRecord, Ending, PartStatus};
use super::plan::PartHits;
use super::rules::Counting;
use super::server::fleet::{BASE_US, Moment};

/// A server's clock is up to a millisecond ahead, and so are timers.
const CLOCK_US: u64 = 3_000;

/// The longest timeout of a call. The time of a remembered denial counts from the moment at which
/// the reply of the store arrived: later than at the store, by less than that.
const LONGEST_CALL_US: u64 = 200_000;

/// A status of the counter, judged by the store.
struct Judged<'a> {
    record: &'a CallRecord,
    status: &'a PartStatus,
    hits: u64,
}

impl Judged<'_> {
    /// Returns the time by which a time after which hits fit may be too long.
    fn slack_us(&self) -> u64 {
        CLOCK_US + if self.status.is_cached { LONGEST_CALL_US } else { 0 }
    }
}

/// Checks the reports of the answers about a counter, unless an event makes them uncertain.
pub(super) fn check(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    remaining_is_true(history, broken);
    let rule = history.rule();
    if rule.is_local() || !history.clocks_agree() || history.stops_us() > 0 {
        return;
    }
    if rule.counting == Counting::Fixed && history.shapes() == 1 {
        windows_end_in_time(history, broken);
    }
    if is_certain(history) {
        retries_are_true(history, broken);
    }
}

/// Hits that are left, with all that certainly counts, are no more than the limit; and with all
/// that may count, no less.
fn remaining_is_true(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let rule = history.rule();
    let is_simple = rule.is_long() && !rule.is_local() && rule.lease_us.is_none();
    let is_changed = history.changes().next().is_some() || history.losses > 0;
    if !is_simple || is_changed || history.shapes() > 1 {
        return;
    }
    for Judged { record, status, .. } in judged(history) {
        if status.is_cached {
            continue;
        }
        let Some(left) = status.left else { continue };
        let from = record.begun.saturating_sub(history.lag_us());
        let mut certain = 0u64;
        let mut refunded = 0;
        for claim in &history.claims {
            match *claim {
                Claim::Admitted { hits, ended, .. } if ended < from => certain += hits,
                Claim::Refunded { hits, begun, .. } if begun <= record.ended => refunded += hits,
                _ => {}
            }
        }
        let most = history.limit_max() + history.rounding();
        if certain.saturating_sub(refunded) + left > most {
            broken.push(format!(
                "left: {left} reported, {certain} admitted and {refunded} refunded before: {} at {} us",
                record.call, record.begun
            ));
            return;
        }
        let counted = history.most_counted(from, record.ended, (record.begun, record.call.process));
        if left + counted + history.rounding() < history.limit_min() {
            broken.push(format!(
                "left: {left} reported, {counted} counted at most: {} at {} us",
                record.call, record.begun
            ));
            return;
        }
    }
}

/// The hits of a denied call fit when the fixed window ends, and not before.
fn windows_end_in_time(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let period = history.rule().period_us;
    for judged in denied(history) {
        let Judged { record, status, hits } = judged;
        let Some(after) = status.retry_after_us else { continue };
        let window = |at: Moment| (BASE_US + at) / period;
        if window(record.begun) != window(record.ended + CLOCK_US) {
            continue;
        }
        let ends = (window(record.begun) + 1) * period - BASE_US;
        let retry = [record.begun, record.ended].map(|at| at + after);
        if hits <= history.limit_min()
            && (retry[0] > ends + judged.slack_us() || retry[1] + CLOCK_US < ends)
        {
            broken.push(format!(
                "retry after: {after} us reported, the window ends at {ends} us: {} at {} us: {status:?}",
                record.call, record.begun
            ));
            return;
        }
    }
}

/// Returns `true` if the counter of each moment is known: nothing was given back, lost or changed.
fn is_certain(history: &CounterHistory<'_>) -> bool {
    let is_admitted = |claim: &Claim| matches!(claim, Claim::Admitted { .. });
    history.claims.iter().all(is_admitted)
        && history.losses == 0
        && history.shapes() == 1
        && history.limit_max() == history.limit_min()
        && history.rule().lease_us.is_none()
        && history.changes().next().is_none()
}

/// No hits are admitted before the time after which fewer fit according to an answer; and
/// they are admitted after it, if no others were.
fn retries_are_true(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let admitted = history.admitted();
    for judged in denied(history) {
        let Judged { record, status, hits } = judged;
        let Some(after) = status.retry_after_us else { continue };
        let early = admitted.iter().find(|(begun, ended, other)| {
            *other >= hits
                && *begun > record.ended
                && *ended + judged.slack_us() < record.begun + after
        });
        if let Some((begun, ended, other)) = early {
            broken.push(format!(
                "retry after: {after} us reported for {hits} hits, {other} admitted from {begun} to {ended} us: \
                 {} at {} us",
                record.call, record.begun
            ));
            return;
        }
        let fits_from = record.ended + after + CLOCK_US + history.lag_us();
        // A cached denial does not include later charges.
        let known_for =
            if status.is_cached { history.report.plan.deny_cache_ms * 1_000 } else { 0 };
        let known_at = record.begun.saturating_sub(known_for + judged.slack_us());
        let is_undisturbed = |until: Moment| {
            admitted.iter().all(|(begun, ended, _)| *ended < known_at || *begun > until)
        };
        let late = denied(history).find(|other| {
            let other_begun = other.record.begun;
            !other.status.is_cached
                && other.hits <= hits
                && other_begun > fits_from
                && is_undisturbed(other.record.ended)
        });
        if let Some(late) = late {
            broken.push(format!(
                "retry after: {after} us reported for {hits} hits at {} us, denied at {} us: {}",
                record.begun, late.record.begun, late.record.call
            ));
            return;
        }
    }
}

/// Returns the statuses of the counter that the store judged.
fn judged<'a>(history: &CounterHistory<'a>) -> impl Iterator<Item = Judged<'a>> + use<'a> {
    let counter = history.counter;
    history.report.chronicle.calls.iter().flat_map(move |record| {
        let statuses = match &record.ending {
            Ending::Decided(_, statuses) => statuses.as_slice(),
            Ending::Failed(_) | Ending::Cancelled => &[],
        };
        record.call.parts.iter().zip(statuses).filter_map(move |(part, status)| {
            let PartHits::Charge(hits) = part.hits else { return None };
            let is_own = part.counter == counter && status.left.is_some();
            is_own.then_some(Judged { record, status, hits: hits.into() })
        })
    })
}

/// Returns the statuses of the counter that are denied.
fn denied<'a>(history: &CounterHistory<'a>) -> impl Iterator<Item = Judged<'a>> + use<'a> {
    judged(history).filter(|judged| judged.status.standing == "denied")
}
