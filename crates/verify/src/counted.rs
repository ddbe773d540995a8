//! Hits that count against a call: those that certainly do, and those that may.

use crate::bound::CounterBound;
use crate::charge::TimedCharge;
use crate::history::ObservedCall;

/// A window of a bound, in which a call may have been judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the bound.
    pub(crate) bound: usize,
    /// Index of the aligned window; 0 for other bounds.
    pub(crate) window: u64,
}

/// A charge that may have been made.
#[derive(Clone, Debug)]
pub(crate) struct PossibleCharge<'a> {
    charge: TimedCharge<'a>,
    /// The windows in which it can have been denied; empty if it was not.
    denied_in: Vec<Place>,
}

impl<'a> PossibleCharge<'a> {
    /// Returns a charge in any window that the time of its call allows.
    pub(crate) fn anywhere(charge: TimedCharge<'a>) -> Self {
        Self { charge, denied_in: Vec::new() }
    }

    /// Returns the charge of a denied call, in one of the windows that can have denied it.
    pub(crate) fn at(call: &'a ObservedCall, denied_in: Vec<Place>) -> Self {
        Self { charge: TimedCharge::of(call), denied_in }
    }

    /// Returns `false` if it was not made there. A denial by another bound does not say in which
    /// window of this one.
    fn may_be_in(&self, place: Place) -> bool {
        self.denied_in.is_empty()
            || self.denied_in.iter().any(|one| one.bound != place.bound || *one == place)
    }
}

/// Charges to one counter, in the orders in which they are summed up.
#[derive(Debug)]
pub(crate) struct SortedCharges<'a> {
    /// Charges that were made, by the begin of their calls.
    certain: Vec<TimedCharge<'a>>,
    /// Charges that may have been made, by the time by which they were.
    possible: Vec<PossibleCharge<'a>>,
}

impl<'a> SortedCharges<'a> {
    /// Sorts charges that were made, and charges that may have been.
    pub(crate) fn new(
        certain: impl Iterator<Item = TimedCharge<'a>>,
        possible: impl Iterator<Item = PossibleCharge<'a>>,
    ) -> Self {
        let mut certain: Vec<_> = certain.collect();
        certain.sort_by_key(|charge| charge.call.begin);
        let mut possible: Vec<_> = possible.collect();
        possible.sort_by_key(|possible| possible.charge.call.charged_by());
        Self { certain, possible }
    }

    /// Returns the charges made by calls that ended before a call began, by their begin.
    pub(crate) fn before(&self, call: &ObservedCall) -> Vec<TimedCharge<'a>> {
        self.certain.iter().filter(|other| other.call.end < call.begin).copied().collect()
    }
}

impl CounterBound {
    /// Returns the parts of a hit in which hits are counted here.
    fn parts(&self) -> u128 {
        match *self {
            Self::Aligned { .. } | Self::Rolling { .. } | Self::InFlight { .. } => 1,
            Self::Draining { period, .. } => period.into(),
        }
    }

    /// Returns `true` if the limit can have been reached when a call was judged in a window. A peek
    /// may be denied where no hit fits.
    pub(crate) fn can_deny(
        &self,
        call: &ObservedCall,
        place: Place,
        charges: &SortedCharges<'_>,
        skew: u64,
    ) -> bool {
        let most = self.most_parts(call, place, charges, skew);
        most + self.parts_of(call.charged().max(1)) > self.parts_of(self.at_once())
    }

    /// Returns the largest number of hits that can have counted when a call was judged by the bound
    /// of this index.
    pub(crate) fn most_used(
        &self,
        bound: usize,
        call: &ObservedCall,
        charges: &SortedCharges<'_>,
        skew: u64,
    ) -> u64 {
        let windows = self.windows(call, skew);
        let parts =
            windows.map(|window| self.most_parts(call, Place { bound, window }, charges, skew));
        let hits = parts.max().unwrap_or_default().div_ceil(self.parts().max(1));
        u64::try_from(hits).unwrap_or(u64::MAX)
    }

    /// Returns the smallest number of hits that can have counted, given charges of calls that ended
    /// before the call began, by their begin.
    pub(crate) fn least_used(
        &self,
        call: &ObservedCall,
        before: &[TimedCharge<'_>],
        skew: u64,
    ) -> u64 {
        let least = |other: &TimedCharge<'_>| u128::from(other.least_for(call));
        let parts = match *self {
            Self::Aligned { .. } => {
                let windows = self.windows(call, skew);
                let is_one = windows.start() == windows.end();
                let here = before
                    .iter()
                    .filter(|other| is_one && self.windows(other.call, skew) == windows);
                here.map(least).sum()
            }
            Self::Rolling { period, .. } => {
                let until = call.end.saturating_add(skew);
                let counting =
                    before.iter().filter(|other| other.call.begin.saturating_add(period) > until);
                counting.map(least).sum()
            }
            Self::Draining { limit, .. } => {
                // The earlier a charge, the more of it has drained.
                let charges = before
                    .iter()
                    .map(|other| (other.call.begin, self.parts_of(other.least_for(call))));
                backlog(charges, call.end + skew, limit)
            }
            Self::InFlight { .. } => before.iter().map(least).sum(),
        };
        u64::try_from(parts.div_ceil(self.parts().max(1))).unwrap_or(u64::MAX)
    }

    fn most_parts(
        &self,
        call: &ObservedCall,
        place: Place,
        charges: &SortedCharges<'_>,
        skew: u64,
    ) -> u128 {
        let earlier = charges.possible.iter().filter(|possible| {
            let other = possible.charge.call;
            other.begin <= call.end && !std::ptr::eq(other, call) && possible.may_be_in(place)
        });
        let earlier = earlier.map(|possible| &possible.charge);
        let most = |other: &TimedCharge<'_>| u128::from(other.most_for(call));
        match *self {
            Self::Aligned { .. } => earlier
                .filter(|other| self.windows(other.call, skew).contains(&place.window))
                .map(most)
                .sum(),
            Self::Rolling { period, grain, .. } => {
                let kept = period.saturating_add(grain).saturating_add(skew);
                let counting = earlier
                    .filter(|other| other.call.charged_by().saturating_add(kept) >= call.begin);
                counting.map(most).sum()
            }
            Self::Draining { limit, .. } => {
                // The later a charge, the less of it has drained.
                let at = call.begin.saturating_sub(skew);
                let charges = earlier.map(|other| {
                    (other.call.charged_by().min(at), self.parts_of(other.most_for(call)))
                });
                backlog(charges, at, limit)
            }
            Self::InFlight { .. } => earlier.map(most).sum(),
        }
    }

    fn parts_of(&self, hits: u64) -> u128 {
        u128::from(hits) * self.parts()
    }
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
