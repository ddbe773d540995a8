//! Admitted calls that exceed a bound, whatever the instants at which they were judged.

use std::collections::BTreeMap;

use super::bound::{CounterBound, windows_of};
use super::history::ObservedCall;

/// Most aligned windows that are examined as one.
const MAX_JOINT: u64 = 4;

/// Calls that contradict a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// Indexes of the calls.
    pub calls: Vec<usize>,
    /// Hits that the bound allows them at most.
    pub allowed: u64,
}

impl CounterBound {
    /// Returns the fewest admitted calls that no instants of judgement explain.
    pub fn excess(&self, calls: &[ObservedCall], skew: u64) -> Option<Excess> {
        let admitted: Vec<usize> = calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.admitted() > 0)
            .map(|(index, _)| index)
            .collect();
        let found = match *self {
            Self::Aligned { limit, period } => aligned(calls, &admitted, limit, period, skew),
            Self::Rolling { limit, period, .. } => rolling(calls, &admitted, limit, period, skew),
            Self::Draining { burst, limit, period } => {
                let earned = |span: u64| {
                    let span = u128::from(span.saturating_add(skew));
                    let product = span.saturating_mul(u128::from(limit));
                    let hits = product.checked_div(period.into()).unwrap_or_default();
                    burst.saturating_add(u64::try_from(hits).unwrap_or(u64::MAX))
                };
                draining(calls, &admitted, &earned)
            }
        };
        found.into_iter().min_by_key(|excess| excess.calls.len())
    }
}

fn aligned(
    calls: &[ObservedCall],
    admitted: &[usize],
    limit: u64,
    period: u64,
    skew: u64,
) -> Vec<Excess> {
    let mut groups = BTreeMap::<(u64, u64), Vec<usize>>::new();
    for index in admitted {
        if let Some(call) = calls.get(*index) {
            groups.entry(windows_of(call, period, skew)).or_default().push(*index);
        }
    }
    let firsts: std::collections::BTreeSet<u64> = groups.keys().map(|(first, _)| *first).collect();
    let ranges = firsts
        .iter()
        .flat_map(|first| (0..MAX_JOINT).map(move |more| (*first, first.saturating_add(more))));
    let excess = ranges.filter_map(|(first, last)| {
        let inside = groups.range((first, 0)..).take_while(|((start, _), _)| *start <= last);
        let inside = inside.filter(|((_, end), _)| *end <= last);
        let members: Vec<usize> = inside.flat_map(|(_, members)| members).copied().collect();
        let windows = last.saturating_sub(first).saturating_add(1);
        fewest(calls, members, limit.saturating_mul(windows))
    });
    excess.collect()
}

fn rolling(
    calls: &[ObservedCall],
    admitted: &[usize],
    limit: u64,
    period: u64,
    skew: u64,
) -> Vec<Excess> {
    let starts = admitted.iter().filter_map(|index| calls.get(*index));
    let excess = starts.filter_map(|start| {
        let until = start.begin.saturating_add(period).saturating_sub(skew);
        let is_inside = |call: &ObservedCall| call.begin >= start.begin && call.end < until;
        let inside = admitted.iter().filter(|index| calls.get(**index).is_some_and(is_inside));
        fewest(calls, inside.copied().collect(), limit)
    });
    excess.collect()
}

fn draining(
    calls: &[ObservedCall],
    admitted: &[usize],
    earned: &dyn Fn(u64) -> u64,
) -> Vec<Excess> {
    let mut by_end: Vec<(u64, usize)> =
        admitted.iter().filter_map(|index| Some((calls.get(*index)?.end, *index))).collect();
    by_end.sort_unstable();
    let starts = admitted.iter().filter_map(|index| calls.get(*index)).map(|call| call.begin);
    let excess = starts.filter_map(|start| {
        let mut members = Vec::new();
        let mut sum = 0_u64;
        for (end, index) in &by_end {
            let Some(call) = calls.get(*index).filter(|call| call.begin >= start) else { continue };
            members.push(*index);
            sum = sum.saturating_add(call.hits);
            let allowed = earned(end.saturating_sub(start));
            if sum > allowed {
                return fewest(calls, members, allowed);
            }
        }
        None
    });
    excess.collect()
}

/// Returns the fewest of these calls with more hits than allowed.
fn fewest(calls: &[ObservedCall], mut members: Vec<usize>, allowed: u64) -> Option<Excess> {
    let hits = |index: &usize| calls.get(*index).map_or(0, |call| call.hits);
    members.sort_by_key(|index| std::cmp::Reverse(hits(index)));
    let mut sum = 0_u64;
    let mut chosen = Vec::new();
    for index in members {
        sum = sum.saturating_add(hits(&index));
        chosen.push(index);
        if sum > allowed {
            chosen.sort_unstable();
            return Some(Excess { calls: chosen, allowed });
        }
    }
    None
}
