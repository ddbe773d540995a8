//! Admitted calls that exceed a bound, whatever the instants at which they were judged.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::bound::{CounterBound, windows_of};
use crate::history::ObservedCall;

/// Most aligned windows that are examined as one.
const MAX_JOINT: u64 = 4;

/// Calls that contradict a bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Excess {
    /// Indexes of the calls.
    pub(crate) calls: Vec<usize>,
    /// Hits that the bound allows them at most.
    pub(crate) allowed: u64,
}

impl CounterBound {
    /// Returns the fewest admitted calls that no instants of judgement explain.
    pub(crate) fn excess(&self, calls: &[ObservedCall], skew: u64) -> Option<Excess> {
        let admitted: Vec<usize> = calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.admitted() > 0)
            .map(|(index, _)| index)
            .collect();
        let found = match *self {
            Self::Aligned { limit, period } => aligned(calls, &admitted, limit, period, skew),
            Self::Rolling { limit, period, .. } => rolling(calls, &admitted, limit, period, skew),
            Self::Draining { .. } => self.draining(calls, &admitted, skew),
        };
        found.into_iter().min_by_key(|excess| excess.calls.len())
    }

    fn draining(&self, calls: &[ObservedCall], admitted: &[usize], skew: u64) -> Vec<Excess> {
        let mut by_end: Vec<(u64, usize)> =
            admitted.iter().filter_map(|index| Some((calls.get(*index)?.end, *index))).collect();
        by_end.sort_unstable();
        let mut found = Vec::new();
        for start in admitted.iter().filter_map(|index| calls.get(*index)) {
            let mut members = Vec::new();
            let mut sum = 0;
            for (end, index) in &by_end {
                let Some(call) = calls.get(*index).filter(|call| call.begin >= start.begin) else {
                    continue;
                };
                members.push(*index);
                sum += call.hits;
                let allowed = self.admits_within(end.saturating_sub(start.begin) + skew);
                if sum > allowed {
                    found.extend(fewest(calls, members, allowed));
                    break;
                }
            }
        }
        found
    }

    /// Returns the most hits that are admitted within a time.
    fn admits_within(&self, span: u64) -> u64 {
        match *self {
            Self::Aligned { limit, .. } | Self::Rolling { limit, .. } => limit,
            Self::Draining { burst, limit, period } => {
                let product = u128::from(span) * u128::from(limit);
                let hits = product.checked_div(period.into()).unwrap_or_default();
                burst.saturating_add(u64::try_from(hits).unwrap_or(u64::MAX))
            }
        }
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
    let firsts: BTreeSet<u64> = groups.keys().map(|(first, _)| *first).collect();
    let mut found = Vec::new();
    for first in firsts {
        for windows in 1..=MAX_JOINT {
            let last = first.saturating_add(windows - 1);
            let inside = groups.range((first, 0)..).take_while(|((start, _), _)| *start <= last);
            let inside = inside.filter(|((_, end), _)| *end <= last);
            let members: Vec<usize> = inside.flat_map(|(_, members)| members).copied().collect();
            found.extend(fewest(calls, members, limit.saturating_mul(windows)));
        }
    }
    found
}

fn rolling(
    calls: &[ObservedCall],
    admitted: &[usize],
    limit: u64,
    period: u64,
    skew: u64,
) -> Vec<Excess> {
    let mut found = Vec::new();
    for start in admitted.iter().filter_map(|index| calls.get(*index)) {
        let until = start.begin.saturating_add(period).saturating_sub(skew);
        let mut members = admitted.to_vec();
        members.retain(|index| {
            let call = calls.get(*index);
            call.is_some_and(|call| call.begin >= start.begin && call.end < until)
        });
        found.extend(fewest(calls, members, limit));
    }
    found
}

/// Returns the fewest of these calls with more hits than allowed.
fn fewest(calls: &[ObservedCall], mut members: Vec<usize>, allowed: u64) -> Option<Excess> {
    members.sort_by_key(|index| Reverse(calls.get(*index).map(|call| call.hits)));
    let mut sum = 0;
    let mut chosen = Vec::new();
    for index in members {
        sum += calls.get(index).map_or(0, |call| call.hits);
        chosen.push(index);
        if sum > allowed {
            chosen.sort_unstable();
            return Some(Excess { calls: chosen, allowed });
        }
    }
    None
}
