//! Admitted calls that exceed a bound, whatever the instants at which they were judged.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::bound::CounterBound;
use crate::charge::TimedCharge;
use crate::history::ObservedCall;

/// Most aligned windows that are examined as one.
const MAX_JOINT: u64 = 4;

/// Calls that contradict a bound.
#[derive(Clone, Debug)]
pub(crate) struct Excess<'a> {
    /// The charges, and the hits of each that certainly count.
    charges: Vec<(TimedCharge<'a>, u64)>,
    /// A time at which they do.
    time: u64,
    /// Hits that the bound allows them at most.
    pub(crate) allowed: u64,
}

impl<'a> Excess<'a> {
    /// Returns the hits that certainly count.
    pub(crate) fn hits(&self) -> u64 {
        self.charges.iter().map(|(_, hits)| hits).sum()
    }

    /// Returns the calls.
    pub(crate) fn calls(&self) -> Vec<&'a ObservedCall> {
        self.charges.iter().flat_map(|(charge, _)| charge.evidence(self.time)).collect()
    }

    /// Returns the fewest of these charges, whose calls have ended by a time, that have more hits
    /// at that time than allowed.
    fn fewest(charges: &[&TimedCharge<'a>], time: u64, allowed: u64) -> Option<Self> {
        let ended = charges.iter().filter(|charge| charge.call.end <= time);
        let mut counted: Vec<_> = ended.map(|charge| (**charge, charge.least_at(time))).collect();
        counted.sort_by_key(|(_, hits)| Reverse(*hits));
        let mut sum = 0;
        let enough = counted.iter().position(|(_, hits)| {
            sum += hits;
            sum > allowed
        })?;
        counted.truncate(enough.saturating_add(1));
        Some(Self { charges: counted, time, allowed })
    }
}

impl CounterBound {
    /// Returns the fewest admitted calls that no instants of judgement explain.
    pub(crate) fn excess<'a>(&self, charges: &[TimedCharge<'a>], skew: u64) -> Option<Excess<'a>> {
        let mut admitted: Vec<&TimedCharge<'a>> =
            charges.iter().filter(|charge| charge.call.is_admitted()).collect();
        admitted.sort_by_key(|charge| charge.call.end);
        let found = match *self {
            Self::Aligned { limit, .. } => self.aligned(&admitted, limit, skew),
            Self::InFlight { limit, .. } => at_once(&admitted, |_| limit).into_iter().collect(),
            Self::Rolling { .. } | Self::Draining { .. } => self.after_each(&admitted, skew),
        };
        found.into_iter().min_by_key(|excess| excess.charges.len())
    }

    fn aligned<'a>(&self, admitted: &[&TimedCharge<'a>], limit: u64, skew: u64) -> Vec<Excess<'a>> {
        let mut groups = BTreeMap::<(u64, u64), Vec<&TimedCharge<'a>>>::new();
        for charge in admitted {
            groups.entry(self.windows(charge.call, skew).into_inner()).or_default().push(*charge);
        }
        let firsts: BTreeSet<u64> = groups.keys().map(|(first, _)| *first).collect();
        let mut found = Vec::new();
        for first in firsts {
            for windows in 1..=MAX_JOINT {
                let last = first.saturating_add(windows - 1);
                let inside =
                    groups.range((first, 0)..).take_while(|((start, _), _)| *start <= last);
                let inside = inside.filter(|((_, end), _)| *end <= last);
                let mut members: Vec<_> =
                    inside.flat_map(|(_, members)| members).copied().collect();
                members.sort_by_key(|charge| charge.call.end);
                found.extend(at_once(&members, |_| limit.saturating_mul(windows)));
            }
        }
        found
    }

    /// Examines the calls since each of them.
    fn after_each<'a>(&self, admitted: &[&TimedCharge<'a>], skew: u64) -> Vec<Excess<'a>> {
        let mut found = Vec::new();
        for start in admitted {
            let begin = start.call.begin;
            let until = match *self {
                Self::Rolling { period, .. } => begin.saturating_add(period).saturating_sub(skew),
                Self::Aligned { .. } | Self::Draining { .. } | Self::InFlight { .. } => u64::MAX,
            };
            let mut members = admitted.to_vec();
            members.retain(|charge| charge.call.begin >= begin && charge.call.end < until);
            found.extend(at_once(&members, |end| {
                self.admits_within(end.saturating_sub(begin).saturating_add(skew))
            }));
        }
        found
    }

    /// Returns the most hits that are admitted within a time.
    fn admits_within(&self, span: u64) -> u64 {
        match *self {
            Self::Aligned { limit, .. }
            | Self::Rolling { limit, .. }
            | Self::InFlight { limit, .. } => limit,
            Self::Draining { burst, limit, period } => {
                let product = u128::from(span) * u128::from(limit);
                let hits = product.checked_div(period.into()).unwrap_or_default();
                burst.saturating_add(u64::try_from(hits).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Returns the fewest of these charges that together have more hits than allowed when one of their
/// calls ends. They are in the order of these ends.
fn at_once<'a>(charges: &[&TimedCharge<'a>], allowed: impl Fn(u64) -> u64) -> Option<Excess<'a>> {
    let mut sum = 0_u64;
    let mut lowerings = BinaryHeap::new();
    let mut first = None;
    let mut worst: Option<(u64, u64)> = None;
    for charge in charges {
        let time = charge.call.end;
        while let Some(Reverse((from, hits))) = lowerings.peek().copied()
            && from <= time
        {
            sum = sum.saturating_sub(hits);
            lowerings.pop();
        }
        sum = sum.saturating_add(charge.least_at(time));
        lowerings.extend(charge.lowering_after(time).map(Reverse));
        let excess = sum.saturating_sub(allowed(time));
        if excess > 0 {
            first.get_or_insert(time);
            worst = worst.filter(|(most, _)| *most > excess).or(Some((excess, time)));
        }
    }
    let times = first.into_iter().chain(worst.map(|(_, time)| time));
    let found = times.filter_map(|time| Excess::fewest(charges, time, allowed(time)));
    found.min_by_key(|excess| excess.charges.len())
}
