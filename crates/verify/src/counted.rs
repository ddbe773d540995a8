//! Hits that count against a call: those that certainly do, and those that may.

use crate::bound::{CounterBound, windows_of};
use crate::history::ObservedCall;

/// A window of a bound, in which a call may have been judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the bound.
    pub(crate) bound: usize,
    /// Index of the aligned window; 0 for other bounds.
    pub(crate) window: u64,
}

/// A call whose hits may have been charged.
#[derive(Clone, Debug)]
pub(crate) struct PossibleCharge<'a> {
    call: &'a ObservedCall,
    /// The windows in which it can have been denied; empty if it was not.
    denied_in: Vec<Place>,
}

impl<'a> PossibleCharge<'a> {
    /// Returns the charge of a call in any window that its time allows.
    pub(crate) fn anywhere(call: &'a ObservedCall) -> Self {
        Self { call, denied_in: Vec::new() }
    }

    /// Returns the charge of a denied call, in one of the windows that can have denied it.
    pub(crate) fn at(call: &'a ObservedCall, denied_in: Vec<Place>) -> Self {
        Self { call, denied_in }
    }

    /// Returns `false` if it was not charged there. A denial by another bound does not say in which
    /// window of this one.
    fn may_be_in(&self, place: Place) -> bool {
        self.denied_in.is_empty()
            || self.denied_in.iter().any(|one| one.bound != place.bound || *one == place)
    }
}

/// Calls of one counter, in the orders in which they are summed up.
#[derive(Debug)]
pub(crate) struct SortedCalls<'a> {
    /// Calls whose hits were charged, by their begin.
    certain: Vec<&'a ObservedCall>,
    /// Calls whose hits may have been charged, by the time by which they were.
    possible: Vec<PossibleCharge<'a>>,
}

impl<'a> SortedCalls<'a> {
    /// Sorts calls that were charged, and calls that may have been.
    pub(crate) fn new(
        certain: impl Iterator<Item = &'a ObservedCall>,
        possible: impl Iterator<Item = PossibleCharge<'a>>,
    ) -> Self {
        let mut certain: Vec<_> = certain.collect();
        certain.sort_by_key(|call| call.begin);
        let mut possible: Vec<_> = possible.collect();
        possible.sort_by_key(|charge| charge.call.charged_by());
        Self { certain, possible }
    }

    /// Returns the charged calls that ended before a call began, by their begin.
    pub(crate) fn before(&self, call: &ObservedCall) -> Vec<&'a ObservedCall> {
        self.certain.iter().filter(|other| other.end < call.begin).copied().collect()
    }
}

impl CounterBound {
    /// Returns the parts of a hit in which hits are counted here.
    fn parts(&self) -> u128 {
        match *self {
            Self::Aligned { .. } | Self::Rolling { .. } => 1,
            Self::Draining { period, .. } => period.into(),
        }
    }

    /// Returns `true` if the limit can have been reached when a call was judged in a window. A peek
    /// may be denied where no hit fits.
    pub(crate) fn can_deny(
        &self,
        call: &ObservedCall,
        place: Place,
        calls: &SortedCalls<'_>,
        skew: u64,
    ) -> bool {
        let most = self.most_parts(call, place, calls, skew);
        most + self.parts_of(call.hits.max(1)) > self.parts_of(self.at_once())
    }

    /// Returns the largest number of hits that can have counted when a call was judged by the bound
    /// of this index.
    pub(crate) fn most_used(
        &self,
        bound: usize,
        call: &ObservedCall,
        calls: &SortedCalls<'_>,
        skew: u64,
    ) -> u64 {
        let windows = self.windows(call, skew);
        let parts =
            windows.map(|window| self.most_parts(call, Place { bound, window }, calls, skew));
        let hits = parts.max().unwrap_or_default().div_ceil(self.parts().max(1));
        u64::try_from(hits).unwrap_or(u64::MAX)
    }

    /// Returns the smallest number of hits that can have counted, given charged calls that ended
    /// before the call began, by their begin.
    pub(crate) fn least_used(
        &self,
        call: &ObservedCall,
        before: &[&ObservedCall],
        skew: u64,
    ) -> u64 {
        let parts = match *self {
            Self::Aligned { period, .. } => {
                let (first, last) = windows_of(call, period, skew);
                sum(before, |other| {
                    first == last && windows_of(other, period, skew) == (first, last)
                })
            }
            Self::Rolling { period, .. } => {
                sum(before, |other| other.begin.saturating_add(period) > call.end + skew)
            }
            Self::Draining { limit, .. } => {
                // The earlier a charge, the more of it has drained.
                let charges = before.iter().map(|other| (other.begin, self.parts_of(other.hits)));
                backlog(charges, call.end + skew, limit)
            }
        };
        u64::try_from(parts.div_ceil(self.parts().max(1))).unwrap_or(u64::MAX)
    }

    fn most_parts(
        &self,
        call: &ObservedCall,
        place: Place,
        calls: &SortedCalls<'_>,
        skew: u64,
    ) -> u128 {
        let earlier: Vec<&ObservedCall> = calls
            .possible
            .iter()
            .filter(|charge| charge.call.begin <= call.end && !std::ptr::eq(charge.call, call))
            .filter(|charge| charge.may_be_in(place))
            .map(|charge| charge.call)
            .collect();
        match *self {
            Self::Aligned { .. } => {
                sum(&earlier, |other| self.windows(other, skew).contains(&place.window))
            }
            Self::Rolling { period, grain, .. } => {
                let kept = period.saturating_add(grain).saturating_add(skew);
                sum(&earlier, |other| other.charged_by().saturating_add(kept) >= call.begin)
            }
            Self::Draining { limit, .. } => {
                // The later a charge, the less of it has drained.
                let at = call.begin.saturating_sub(skew);
                let charges = earlier
                    .iter()
                    .map(|other| (other.charged_by().min(at), self.parts_of(other.hits)));
                backlog(charges, at, limit)
            }
        }
    }

    fn parts_of(&self, hits: u64) -> u128 {
        u128::from(hits) * self.parts()
    }
}

fn sum(calls: &[&ObservedCall], counts: impl Fn(&ObservedCall) -> bool) -> u128 {
    calls.iter().filter(|call| counts(call)).map(|call| u128::from(call.hits)).sum()
}

/// Returns the backlog of charges, in the order of their times, after draining until `until`.
fn backlog(charges: impl Iterator<Item = (u64, u128)>, until: u64, limit: u64) -> u128 {
    let mut backlog = 0_u128;
    let mut now = 0_u64;
    for (time, parts) in charges.chain([(until, 0)]) {
        let drained = u128::from(time.saturating_sub(now)) * u128::from(limit);
        backlog = backlog.saturating_sub(drained) + parts;
        now = time.max(now);
    }
    backlog
}
