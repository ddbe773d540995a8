//! The checker: whether a history keeps the promises of `docs/promise.md`.
//!
//! It reads calls and answers, the faults that were injected, and the writes that servers lost
//! because of them. Each check names the exceptions of the promise that it allows for, and allows
//! for them only if they happened.

use super::claims::{Claim, CounterHistory};
use super::history::{CallRecord, Ending};
use super::hold_checker;
use super::loan_checker;
use super::plan::{Fault, PartHits};
use super::reported;
use super::rules::Counting;
use super::run::Report;
use super::server::fleet::Moment;

/// Timers have a granularity of a millisecond, and a call waits for two of them at most.
const TIMER_US: u64 = 2_000;

/// Returns the promises that a history breaks.
pub fn check(report: &Report) -> Vec<String> {
    let mut broken = Vec::new();
    answered_in_time(report, &mut broken);
    unknown_is_counted(report, &mut broken);
    receipts_are_valid(report, &mut broken);
    loan_checker::check_returns(report, &mut broken);
    decided_when_healed(report, &mut broken);
    for counter in 0..report.plan.counters.len() {
        let history = CounterHistory::of(report, counter);
        let mut found = Vec::new();
        if report.plan.rule_of(counter).hold.is_some() {
            hold_checker::check(&history, &mut found);
        } else if report.plan.rule_of(counter).is_long() {
            never_over(&history, &mut found);
            nothing_lost(&history, &mut found);
        } else {
            never_over_in_a_period(&history, &mut found);
        }
        if report.plan.rule_of(counter).hold.is_none() {
            no_unjustified_denial(&history, &mut found);
            reported::check(&history, &mut found);
            loan_checker::check(&history, &mut found);
        }
        broken.extend(found.into_iter().map(|text| format!("counter {counter}: {text}")));
    }
    broken
}

/// Every call is answered by its deadline.
fn answered_in_time(report: &Report, broken: &mut Vec<String>) {
    for record in report.chronicle.calls.iter().chain(&report.probes) {
        let took = record.ended - record.begun;
        let stopped = stopped_us(report, record);
        if took > record.call.timeout_us + TIMER_US + stopped {
            broken.push(format!("late: {} took {took} us", record.call));
        }
    }
}

/// Each charge without a reply is counted as unknown.
fn unknown_is_counted(report: &Report, broken: &mut Vec<String>) {
    let is_unknown = |record: &&CallRecord| {
        let [part] = record.call.parts.as_slice() else { return false };
        let is_charge = matches!(part.hits, PartHits::Charge(_));
        is_charge && matches!(record.ending, Ending::Failed("lost" | "late"))
    };
    let unknown = report.chronicle.calls.iter().filter(is_unknown).count() as u64;
    if unknown > report.unknown_charges {
        broken.push(format!(
            "not counted: {unknown} charges without a reply, the metrics have {}",
            report.unknown_charges
        ));
    }
}

/// Every receipt that a holder returns is one that it was given.
fn receipts_are_valid(report: &Report, broken: &mut Vec<String>) {
    if let Some(count) = report.counts.get("return INVALID_RECEIPT") {
        broken.push(format!("refused: {count} receipts are not valid"));
    }
}

/// Returns the time for which the process of a call was stopped while it was under way.
fn stopped_us(report: &Report, record: &CallRecord) -> u64 {
    let stops = report.chronicle.faults.iter().map(|(at, fault)| match fault {
        Fault::Stop { process, us } if *process == record.call.process => {
            (at + us).min(record.ended).saturating_sub(record.begun.max(*at))
        }
        _ => 0,
    });
    stops.sum()
}

/// After the last fault has healed, the store decides everything within two seconds.
fn decided_when_healed(report: &Report, broken: &mut Vec<String>) {
    for record in &report.probes {
        let is_decided = match &record.ending {
            Ending::Decided(_, statuses) => statuses.iter().all(|status| status.left.is_some()),
            Ending::Failed(_) | Ending::Cancelled => false,
        };
        if !is_decided {
            broken.push(format!(
                "undecided 2 s after all healed: {}: {:?}",
                record.call, record.ending
            ));
        }
    }
}

/// Hits admitted less hits refunded never exceed a limit whose period does not end.
///
/// Exceptions: lost writes (the limit once more for each loss), the shares of `local`, and changes
/// by operators.
fn never_over(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let bound =
        history.shapes() * history.limit_max() + history.allowed_for_losses() + history.shares();
    never_over_since(history, 0, bound + history.allowed_for_changes(), broken);
    // A reset lets the limit be used once more, and no more than once: charges that it voids are
    // not taken back from later ones. Blocks of leases may be used after it.
    for reset_by in history.resets_by() {
        let held = history.blocks() + history.lent_before(reset_by);
        let bound = bound + held + history.allowed_for_changes_after(reset_by);
        never_over_since(history, reset_by, bound, broken);
    }
}

/// Hits admitted by calls that began at a moment or later never exceed a bound.
fn never_over_since(
    history: &CounterHistory<'_>,
    from: Moment,
    bound: u64,
    broken: &mut Vec<String>,
) {
    let mut events: Vec<(u64, bool, u64)> = Vec::new();
    for claim in &history.claims {
        match *claim {
            Claim::Admitted { hits, begun, ended } if begun >= from => {
                events.push((ended, true, hits));
            }
            // A refund may take effect as soon as it is sent, and until it is answered.
            Claim::Refunded { hits, begun, ended, .. } if ended >= from => {
                events.push((begun, false, hits));
            }
            Claim::Admitted { .. }
            | Claim::Refunded { .. }
            | Claim::Possible { .. }
            | Claim::Lent { .. }
            | Claim::Transient { .. } => {}
        }
    }
    events.sort_unstable_by_key(|(at, is_charge, _)| (*at, *is_charge));
    let mut admitted = 0;
    let mut refunded = 0;
    for (at, is_charge, hits) in events {
        if is_charge {
            admitted += hits
        } else {
            refunded += hits
        }
        if admitted > bound + refunded {
            broken.push(format!(
                "over: at {at} us, {admitted} hits admitted since {from} us and {refunded} refunded of {bound}"
            ));
            return;
        }
    }
}

/// No period has more hits than its limit allows.
///
/// Exceptions: lost writes, the shares of `local`, clocks that move, blocks of leases, and changes
/// by operators.
pub(super) fn never_over_in_a_period(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let rule = history.rule();
    let limit = history.limit_max();
    // A fixed window admits twice the limit around its boundary, gcra the limit and a burst.
    let of_period = match rule.counting {
        _ if history.shapes() > 1 => 2 * limit * history.shapes(),
        Counting::Sliding | Counting::Log => limit,
        Counting::Fixed | Counting::Gcra | Counting::Permits => 2 * limit,
    };
    let allowed = history.allowed_for_losses()
        // As the store's, a local window admits its share twice around its boundary.
        + 2 * history.shares()
        + history.blocks()
        + history.allowed_for_changes()
        + history.clock_events() * limit;
    let admitted = history.admitted();
    for (begin, _, _) in &admitted {
        let end = begin + rule.period_us;
        let within = admitted.iter().filter(|(begun, ended, _)| begun >= begin && *ended < end);
        let hits: u64 = within.map(|(_, _, hits)| hits).sum();
        let allowed = allowed + history.outstanding(*begin);
        if hits > of_period + allowed {
            broken.push(format!(
                "over: {hits} hits from {begin} us on for {} us, at most {of_period} and {allowed}",
                rule.period_us
            ));
            return;
        }
    }
    if rule.counting == Counting::Fixed && history.clocks_agree() && history.shapes() == 1 {
        // Local windows follow the clock of the process: two of them may meet one of the store.
        never_over_in_a_window(history, limit + allowed, broken);
    }
}

/// No fixed window has more hits than its limit, while all clocks agree.
fn never_over_in_a_window(history: &CounterHistory<'_>, bound: u64, broken: &mut Vec<String>) {
    let mut windows = std::collections::BTreeMap::<u64, u64>::new();
    for (begun, ended, hits) in history.admitted() {
        // A server's clock is up to a millisecond ahead of the world's, see `Fleet::clock`.
        let window = |at: u64| (super::server::fleet::BASE_US + at) / history.rule().period_us;
        if window(begun) == window(ended + 1_000) {
            *windows.entry(window(begun)).or_default() += hits;
        }
    }
    if let Some((window, hits)) = windows.into_iter().find(|(_, hits)| *hits > bound) {
        broken.push(format!("over: {hits} hits in window {window}, at most {bound}"));
    }
}

/// After quiet, the store counts what was admitted less what was refunded, and no more than what
/// may have been charged without an answer.
///
/// Exceptions: lost writes; charges whose take-back was lost, and leased hits that were lost, as
/// far as metrics count them; blocks of processes that crashed.
fn nothing_lost(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let Some(used) = history.report.used[history.counter] else {
        broken.push("the store does not report its counts".to_owned());
        return;
    };
    let rounding = history.rounding();
    let (least, most) = history.expected();
    if used + rounding < least {
        broken.push(format!("forgotten: {used} hits counted, at least {least} admitted"));
    }
    if used > most + rounding {
        broken.push(format!("lost: {used} hits counted, at most {most} charged"));
    }
}

/// No hits are denied that fit: some charge that may have been counted then explains each denial.
fn no_unjustified_denial(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let rule = history.rule();
    // More hits than a proxy gets may be charged for a moment, which no message shows.
    if rule.is_local() || rule.quota_ttl_s.is_some() || (!rule.is_long() && !history.clocks_agree())
    {
        return;
    }
    for record in &history.report.chronicle.calls {
        let Ending::Decided(_, statuses) = &record.ending else { continue };
        // A denial by charges that a full server did not store may be for a request with other
        // limits, which would otherwise admit the request without its hits.
        if record.call.parts.len() > 1 && history.report.was_full_during(record) {
            continue;
        }
        for (part, status) in record.call.parts.iter().zip(statuses) {
            let PartHits::Charge(hits) = part.hits else { continue };
            if part.counter != history.counter || status.standing != "denied" {
                continue;
            }
            let known_for = if status.is_cached {
                history.report.plan.deny_cache_ms * 1_000 + TIMER_US + history.stops_us()
            } else {
                0
            };
            let from = record.begun.saturating_sub(known_for);
            let counted =
                history.most_counted(from, record.ended, (record.begun, record.call.process));
            if counted + u64::from(hits) <= history.limit_min() {
                broken.push(format!(
                    "unjustified denial: {} at {} us: {counted} hits counted at most, of {}; {status:?}",
                    record.call,
                    record.begun,
                    history.limit_min()
                ));
                return;
            }
        }
    }
}

/// Returns `true` if a fault may move the clock by which counters are judged ahead: a step, or a
/// move to a server whose clock is ahead.
pub fn moves_clock_ahead(fault: &Fault) -> bool {
    match fault {
        Fault::Clock { by_us, .. } => *by_us > 0,
        fault => matches!(fault, Fault::Promote { .. } | Fault::MoveSlots { .. }),
    }
}
