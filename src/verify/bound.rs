//! Limits as bounds on histories: what can be admitted in an interval, and what can deny.

use std::collections::BTreeMap;

use super::history::ObservedCall;
use crate::algorithm::sliding_window::Estimate;
use crate::algorithm::{Algorithm, Charge, Limit};

/// Most aligned windows that are examined as one.
const MAX_JOINT: u64 = 4;

/// A limit, as far as histories show it.
#[derive(Clone, Debug)]
pub struct CounterModel {
    /// Bounds that all hold.
    pub bounds: Vec<CounterBound>,
    /// `true` if denied hits may be charged.
    pub charges_denied: bool,
    /// `true` if replicas may charge blocks of hits in advance.
    pub is_leased: bool,
}

/// A bound on admitted hits. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub enum CounterBound {
    /// At most `limit` in each window of `period` since the epoch.
    Aligned {
        /// Hits per window.
        limit: u64,
        /// Length of the window.
        period: u64,
    },
    /// At most `limit` in any interval of `period`; hits count for up to `grain` longer.
    Rolling {
        /// Hits per interval.
        limit: u64,
        /// Length of the interval.
        period: u64,
        /// Time for which hits may count past the interval.
        grain: u64,
    },
    /// At most `burst` at once, and `limit` per `period` in addition.
    Draining {
        /// Hits at once.
        burst: u64,
        /// Hits per period.
        limit: u64,
        /// Length of the period.
        period: u64,
    },
}

/// Calls that contradict a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// Indexes of the calls.
    pub calls: Vec<usize>,
    /// Hits that the bound allows them at most.
    pub allowed: u64,
}

impl CounterModel {
    /// Returns the bounds of a limit.
    ///
    /// # Errors
    /// The reason if histories cannot show that the limit holds.
    pub fn of(limit: &Limit, is_leased: bool) -> Result<Self, &'static str> {
        if limit.hold().is_some() || limit.in_flight().is_some() {
            return Err("limits with holds are not checked");
        }
        if limit.is_ban() {
            return Err("a limit of 0 has no counter");
        }
        let charges_denied = match limit.charge_mode() {
            Charge::Admitted => false,
            Charge::Always | Charge::Blamed => true,
            Charge::Afterwards => return Err("charge: afterwards admits past the limit by design"),
        };
        if limit.windows().iter().any(|window| window.calendar().is_some()) {
            return Err("calendar windows are not checked");
        }
        let pairs =
            || limit.windows().iter().map(|one| (u64::from(one.limit()), one.period().get()));
        let bounds = match limit.algorithm() {
            Algorithm::FixedWindow(_) => {
                pairs().map(|(limit, period)| CounterBound::Aligned { limit, period }).collect()
            }
            _ if is_leased => return Err("leases of this algorithm may pass its limit by a block"),
            Algorithm::SlidingWindow(sliding) if sliding.estimate() == Estimate::Strict => pairs()
                .zip(sliding.widths())
                .map(|((limit, period), width)| {
                    let grain = width.get().saturating_mul(2);
                    CounterBound::Rolling { limit, period, grain }
                })
                .collect(),
            Algorithm::SlidingLog(_) => pairs()
                .map(|(limit, period)| CounterBound::Rolling { limit, period, grain: 0 })
                .collect(),
            Algorithm::Gcra(gcra) if !charges_denied => pairs()
                .map(|(limit, period)| CounterBound::Draining {
                    burst: gcra.burst().into(),
                    limit,
                    period,
                })
                .collect(),
            Algorithm::Gcra(_) | Algorithm::SlidingWindow(_) | Algorithm::Concurrency(_) => {
                return Err("this algorithm is not exact");
            }
        };
        Ok(Self { bounds, charges_denied, is_leased })
    }
}

impl CounterBound {
    /// Returns the largest number of hits that is admitted at once.
    pub fn at_once(&self) -> u64 {
        match *self {
            Self::Aligned { limit, .. } | Self::Rolling { limit, .. } => limit,
            Self::Draining { burst, .. } => burst,
        }
    }

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

    /// Returns `true` if hits of `charged` calls can have denied a call.
    pub fn can_deny(&self, denied: &ObservedCall, charged: &[&ObservedCall], skew: u64) -> bool {
        let earlier = charged.iter().filter(|call| call.begin <= denied.end.saturating_add(skew));
        let sum = |counts: &dyn Fn(&ObservedCall) -> bool| {
            let hits = earlier.clone().filter(|call| counts(call)).map(|call| call.hits);
            hits.fold(denied.hits, u64::saturating_add)
        };
        match *self {
            Self::Aligned { limit, period } => {
                let (first, last) = windows_of(denied, period, skew);
                (first..=last).any(|window| {
                    let is_in = |call: &ObservedCall| {
                        let (first, last) = windows_of(call, period, skew);
                        (first..=last).contains(&window)
                    };
                    sum(&is_in) > limit
                })
            }
            Self::Rolling { limit, period, grain } => {
                let kept = period.saturating_add(grain).saturating_add(skew);
                sum(&|call| call.end.saturating_add(kept) >= denied.begin) > limit
            }
            Self::Draining { burst, limit, period } => {
                // The backlog, in hits times `period`: every call as late as it can be.
                let scale = u128::from(period);
                let at = denied.begin.saturating_sub(skew);
                let mut calls: Vec<_> =
                    earlier.map(|call| (call.end.min(at), u128::from(call.hits))).collect();
                calls.sort_unstable();
                let mut backlog = 0_u128;
                let mut now = 0_u64;
                for (time, hits) in calls.into_iter().chain([(at, 0)]) {
                    let passed = u128::from(time.saturating_sub(now));
                    let drained = passed.saturating_mul(u128::from(limit));
                    let added = hits.saturating_mul(scale);
                    backlog = backlog.saturating_sub(drained).saturating_add(added);
                    now = time;
                }
                let hits = u128::from(denied.hits).saturating_mul(scale);
                backlog.saturating_add(hits) > u128::from(burst).saturating_mul(scale)
            }
        }
    }
}

/// Returns the first and the last aligned window in which a call may have been judged.
pub fn windows_of(call: &ObservedCall, period: u64, skew: u64) -> (u64, u64) {
    let index = |time: u64| time.checked_div(period).unwrap_or_default();
    (index(call.begin.saturating_sub(skew)), index(call.end.saturating_add(skew)))
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
