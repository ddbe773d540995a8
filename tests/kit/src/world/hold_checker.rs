//! The checks of limits that keep holds, and of permits.
//!
//! Admitted hits, as reserved and corrected by commits, never exceed the limit but by what
//! commits charge past their holds. A second end of a hold changes nothing. After the last TTL
//! no call is in flight, and the store counts the charged hits.

use super::checker::never_over_in_a_period;
use super::claims::{Claim, CounterHistory};
use super::history::{CallRecord, Ending};
use super::hold_steps::{HeldList, has_excess, ids_of};
use super::holds::{Bounds, IdHistory};
use super::plan::{Fault, Part, PartHits};
use super::process::id_of;
use super::rules::Counting;
use super::server::fleet::Moment;

/// A server's clock is up to a millisecond ahead, and so are timers.
const CLOCK_US: u64 = 3_000;

/// Checks a counter whose limit keeps holds.
pub(super) fn check(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let ids = ids_of(history);
    ends_are_answered(history, broken);
    explained(&ids, broken);
    let rule = history.rule();
    if rule.counting == Counting::Permits {
        nothing_in_flight(history, broken);
    } else if rule.is_long() {
        nothing_lost(history, &ids, broken);
    }
    if rule.counting == Counting::Permits || rule.is_long() {
        never_over(history, &ids, broken);
    } else {
        let charges = as_charges(history, &ids);
        never_over_in_a_period(&charges, broken);
        if rule.counting == Counting::Gcra && history.clocks_agree() {
            never_over_in_a_span(&charges, broken);
        }
    }
    held_as_listed(history, &ids, broken);
    no_unjustified_denial(history, &ids, broken);
}

/// The end of a hold is answered with OK, even if the store fails.
fn ends_are_answered(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    for record in &history.report.chronicle.calls {
        let parts = &record.call.parts;
        let is_end = |part: &Part| matches!(part.hits, PartHits::End { .. });
        let is_refused = !matches!(record.ending, Ending::Decided(false, _) | Ending::Cancelled);
        let has_denied_end = match &record.ending {
            Ending::Decided(_, statuses) => parts.iter().zip(statuses).any(|(part, status)| {
                let is_denied = matches!(status.standing, "denied" | "presumed denied");
                is_end(part) && is_denied
            }),
            Ending::Failed(_) | Ending::Cancelled => false,
        };
        let is_own = parts.iter().any(|part| part.counter == history.counter);
        if is_own && (has_denied_end || parts.iter().all(is_end) && is_refused) {
            broken.push(format!("end refused: {}: {:?}", record.call, record.ending));
        }
    }
}

/// Some order of the calls about an ID explains their answers: a repeated commit and a settle
/// after it change nothing, nor does a commit after a settle while the record lives.
///
/// Exceptions: lost writes, holds of `local`.
fn explained(ids: &[IdHistory<'_>], broken: &mut Vec<String>) {
    for id in ids.iter().filter(|id| !id.is_explained()) {
        broken.push(format!("unexplained: ID {}: {:?}", id.id, id.steps));
    }
}

/// After the last TTL no permit is taken.
fn nothing_in_flight(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    match history.report.used[history.counter] {
        Some(0) => {}
        used => broken.push(format!("in flight: {used:?} after the last TTL")),
    }
}

/// After quiet, the store counts the charged hits, less the returned ones.
fn nothing_lost(history: &CounterHistory<'_>, ids: &[IdHistory<'_>], broken: &mut Vec<String>) {
    let Some(used) = history.report.used[history.counter] else {
        broken.push("the store does not report its counts".to_owned());
        return;
    };
    let (mut least, mut most) = history.expected();
    for id in ids {
        let ((of_id, at_most), _) = id.counted(Moment::MAX, Moment::MAX);
        least += of_id;
        most = most.saturating_add(at_most);
    }
    if history.losses > 0 || history.rule().is_local() {
        least = 0;
    }
    let rounding = history.rounding();
    if used + rounding < least {
        broken.push(format!("forgotten: {used} hits counted, at least {least} charged"));
    }
    if used > most.saturating_add(rounding) {
        broken.push(format!("lost: {used} hits counted, at most {most} charged"));
    }
}

/// Admitted hits never exceed the limit: neither together with all that certainly counts
/// before, overruns too, nor all of it without overruns at any moment.
///
/// Exceptions: lost writes (the limit once more for each loss), and the shares of `local`.
fn never_over(history: &CounterHistory<'_>, ids: &[IdHistory<'_>], broken: &mut Vec<String>) {
    let bound = history.limit_max() + history.allowed_for_losses() + history.shares();
    let plain = history.admitted();
    let reserved = ids.iter().flat_map(|id| id.admitted().map(move |one| (Some(id.id), one)));
    let admissions: Vec<_> = plain.iter().map(|one| (None, *one)).chain(reserved).collect();
    for (id, (begun, ended, hits)) in admissions {
        let before: u64 = plain_between(history, begun, ended);
        let others = ids.iter().filter(|other| Some(other.id) != id);
        let of_others: u64 = others.map(|other| other.counted(begun, ended).0.0).sum();
        if before + of_others + hits > bound {
            broken.push(format!(
                "over: {hits} hits of ID {id:?} admitted between {begun} and {ended} us, though \
                 {} of {bound} were used",
                before + of_others
            ));
            return;
        }
        // A moment at which the answer was there.
        let at = ended + 1;
        let all: u64 = ids.iter().map(|id| id.counted(at, at).1).sum();
        let all = all + plain_between(history, at, at);
        if all > bound {
            broken.push(format!("over: {all} hits at {at} us, at most {bound}"));
            return;
        }
    }
}

/// Returns the plain charges that certainly count at all moments between two.
fn plain_between(history: &CounterHistory<'_>, from: Moment, to: Moment) -> u64 {
    let lives_us = permit_lives_us(history).map(|(least, _)| least);
    let counts = |(begun, ended, _): &(Moment, Moment, u64)| {
        *ended < from && lives_us.is_none_or(|lives| begun + lives > to + CLOCK_US)
    };
    let admitted = history.admitted();
    admitted.iter().filter(|one| counts(one)).map(|(_, _, hits)| hits).sum()
}

/// Returns the shortest and the longest life of a permit; `None` for a rate limit.
fn permit_lives_us(history: &CounterHistory<'_>) -> Option<(u64, u64)> {
    let rule = history.rule();
    let hold = rule.hold.as_ref().filter(|_| rule.counting == Counting::Permits)?;
    let steps = history.report.chronicle.faults.iter().map(|(_, fault)| match fault {
        Fault::Clock { by_us, .. } => by_us.unsigned_abs(),
        _ => 0,
    });
    let steps: u64 = steps.sum();
    let least = if steps > 0 { 0 } else { hold.ttl_min() };
    Some((least, hold.ttl_max() + steps))
}

/// Returns the counter with its reserves as charges of their final cost.
fn as_charges<'a>(history: &CounterHistory<'a>, ids: &[IdHistory<'_>]) -> CounterHistory<'a> {
    let mut claims = history.claims.clone();
    for id in ids {
        let (_, within) = id.counted(Moment::MAX, Moment::MAX);
        let mut left = within;
        for (begun, ended, hits) in id.admitted() {
            let hits = hits.min(left);
            left -= hits;
            claims.push(Claim::Admitted { hits, begun, ended });
        }
    }
    CounterHistory { claims, ..*history }
}

/// No span of time has more hits than its burst and what its rate frees in that time: what is
/// given back was not free before.
///
/// Exceptions: lost writes, the shares of `local`.
fn never_over_in_a_span(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let limit = history.limit_max();
    let bound = limit + history.rounding() + history.allowed_for_losses() + 2 * history.shares();
    let mut admitted = history.admitted();
    admitted.sort_unstable_by_key(|(_, ended, _)| *ended);
    for (first, _, _) in &admitted {
        let mut hits = 0;
        for (_, ended, of_call) in admitted.iter().filter(|(begun, _, _)| begun >= first) {
            hits += of_call;
            let freed = (ended + CLOCK_US - first) * limit / history.rule().period_us;
            if hits > bound + freed {
                broken.push(format!(
                    "over: {hits} hits from {first} to {ended} us, at most {bound} and {freed}"
                ));
                return;
            }
        }
    }
}

/// The holds that the store lists are those that are open.
///
/// Exceptions: lost writes, holds of `local`.
fn held_as_listed(history: &CounterHistory<'_>, ids: &[IdHistory<'_>], broken: &mut Vec<String>) {
    let rule = history.rule();
    if history.losses > 0 || rule.is_local() {
        return;
    }
    let lists = history.report.held.iter().filter(|held| held.counter == history.counter);
    for HeldList { begun, ended, list, .. } in lists {
        let Some(list) = list else {
            broken.push("the store does not list its holds".to_owned());
            continue;
        };
        let listed = |id: u32| {
            let name = id_of(id);
            let of_id = list.iter().filter(|permit| *permit.id == *name.as_bytes());
            of_id.map(|permit| u64::from(permit.hits)).sum::<u64>()
        };
        for id in ids {
            let (least, most) = id.open(*begun, *ended);
            let hits = listed(id.id);
            if hits < least || hits > most {
                broken.push(format!(
                    "held: {hits} hits of ID {} listed, from {least} to {most} are open at {begun} us: {:?}",
                    id.id, id.steps
                ));
            }
        }
        let known = list.iter().all(|permit| {
            permit.id.is_empty() || ids.iter().any(|id| *permit.id == *id_of(id.id).as_bytes())
        });
        if !known {
            broken.push(format!("held: an ID that none reserved: {list:?}"));
        }
    }
}

/// No hits are denied that fit, and no denial is remembered, since holds end early.
fn no_unjustified_denial(
    history: &CounterHistory<'_>,
    ids: &[IdHistory<'_>],
    broken: &mut Vec<String>,
) {
    let rule = history.rule();
    let is_short = rule.counting != Counting::Permits && !rule.is_long();
    // What goes past the limit of a log moves its newest entry, which then counts for longer.
    let moves_entries = rule.counting == Counting::Log && has_excess(history);
    if rule.is_local() || is_short && (moves_entries || !history.clocks_agree()) {
        return;
    }
    for (record, part, hits) in denials(history) {
        let Ending::Decided(_, statuses) = &record.ending else { continue };
        let status = &statuses[part];
        if status.is_cached {
            broken.push(format!("remembered: {}: {status:?}", record.call));
            return;
        }
        let from = record.begun.saturating_sub(history.lag_us());
        let begun = from;
        let ended = record.ended;
        let mut counted = plain_most(history, record, from);
        for id in ids.iter().filter(|id| !is_short || id.acts_after(since(history, begun))) {
            let ((_, most), _): (Bounds, u64) = id.counted(begun, ended);
            counted = counted.saturating_add(most);
        }
        if counted.saturating_add(hits) <= history.limit_min() {
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

/// Returns the denied parts of calls at a counter, with their hits.
fn denials<'a>(
    history: &CounterHistory<'a>,
) -> impl Iterator<Item = (&'a CallRecord, usize, u64)> + use<'a> {
    let counter = history.counter;
    history.report.chronicle.calls.iter().flat_map(move |record| {
        let parts = record.call.parts.iter().enumerate();
        parts.filter_map(move |(number, part)| {
            let hits = match part.hits {
                PartHits::Charge(hits) | PartHits::Reserve { hits, .. } => u64::from(hits),
                PartHits::Peek | PartHits::Refund(_) | PartHits::End { .. } => return None,
            };
            let Ending::Decided(_, statuses) = &record.ending else { return None };
            let is_denied = statuses[number].standing == "denied" && part.counter == counter;
            is_denied.then_some((record, number, hits))
        })
    })
}

/// Returns the most hits of plain charges that may have counted when a call was denied.
fn plain_most(history: &CounterHistory<'_>, record: &CallRecord, from: Moment) -> u64 {
    let Some((_, lives_us)) = permit_lives_us(history) else {
        return history.most_counted(from, record.ended, (from, record.call.process));
    };
    let counts = history.claims.iter().map(|claim| match *claim {
        Claim::Admitted { hits, begun, ended }
            if begun <= record.ended && ended + lives_us + CLOCK_US >= from =>
        {
            hits
        }
        // Without an answer it may have been charged at any later moment.
        Claim::Possible { hits, begun, until }
            if begun <= record.ended && until.is_none_or(|until| until >= from) =>
        {
            hits
        }
        _ => 0,
    });
    counts.sum()
}

/// Returns the moment before which charges no longer count when another is judged.
fn since(history: &CounterHistory<'_>, from: Moment) -> Moment {
    let rule = history.rule();
    // A cost past the limit of a log moves its newest entry, with all of its hits.
    if rule.counting == Counting::Gcra || rule.counting == Counting::Log && has_excess(history) {
        return 0;
    }
    from.saturating_sub(rule.period_us + rule.period_us / 50 + CLOCK_US)
}
