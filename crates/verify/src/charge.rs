//! The hits of a call over time: all of them, and what is left once they are lowered.
//!
//! A plain charge is never lowered. The hits of a hold are lowered to its cost by a commit, and
//! return by a cancel. A cost above them is charged by the commit. A permit ends with its TTL,
//! which an extension begins anew, at the latest. A repeated reserve charges nothing, and an end of
//! a hold that has ended changes nothing. Hits that were charged before another limit denied the
//! request are taken back.

use std::collections::BTreeMap;

use crate::bound::CounterModel;
use crate::history::{CallAction, HoldEnd, ObservedAnswer, ObservedCall};

/// Time, in microseconds, within which a service takes back the hits of a request that another
/// limit denied. It may do so after its answer, if the counters are in different places.
pub(crate) const TAKE_BACK: u64 = 2_500_000;

/// Charges to a draining counter after which a charge can be lowered exactly: the service keeps the
/// level of the bucket before so many charges.
const EXACT_CHARGES: usize = 128;

/// Times from which the TTL of a hold runs.
#[derive(Clone, Copy, Debug)]
struct TtlBegin {
    /// Earliest time.
    from: u64,
    /// Latest time.
    by: u64,
}

/// The hits of a call, over time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedCharge<'a> {
    /// The call that charges.
    pub(crate) call: &'a ObservedCall,
    /// The call that lowers it.
    pub(crate) ended_by: Option<&'a ObservedCall>,
    /// Hits that certainly and possibly count.
    hits: CountedHits,
    /// The same, after it was lowered.
    lowered: CountedHits,
    /// Earliest time at which it is lowered.
    lowered_from: u64,
    /// Time by which it is lowered.
    lowered_by: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountedHits {
    least: u64,
    most: u64,
}

impl<'a> TimedCharge<'a> {
    /// Returns the charge of a call that nothing lowers.
    pub(crate) fn of(call: &'a ObservedCall) -> Self {
        let least = if call.is_admitted() { call.hits } else { 0 };
        Self::unchanged(call, CountedHits { least, most: call.hits })
    }

    /// Returns a charge by a call that nothing lowers.
    fn unchanged(call: &'a ObservedCall, hits: CountedHits) -> Self {
        let never = u64::MAX;
        Self { call, ended_by: None, hits, lowered: hits, lowered_from: never, lowered_by: never }
    }

    /// Returns the least and the most hits that its call has charged.
    pub(crate) fn charged(&self) -> (u64, u64) {
        (self.hits.least, self.hits.most)
    }

    /// Returns the charge that a repeated end may have made: of the cost of a commit, if the store
    /// may have forgotten the hold by then.
    fn again(call: &'a ObservedCall, by: HoldEnd, model: &CounterModel) -> Option<Self> {
        let may_charge = call.is_unknown() && by == HoldEnd::Commit && !model.is_in_flight();
        may_charge.then(|| Self::unchanged(call, CountedHits { least: 0, most: call.hits }))
    }

    /// Returns the hits that certainly count at a time after the call.
    pub(crate) fn least_at(&self, time: u64) -> u64 {
        if time < self.lowered_from {
            self.hits.least
        } else {
            self.hits.least.min(self.lowered.least)
        }
    }

    /// Returns the hits that certainly count when a later call is decided.
    pub(crate) fn least_for(&self, call: &ObservedCall) -> u64 {
        if self.is_ended_by(call) { self.lowered.least } else { self.least_at(call.end) }
    }

    /// Returns the most hits that can count when another call is decided.
    pub(crate) fn most_for(&self, call: &ObservedCall) -> u64 {
        if self.is_ended_by(call) || self.lowered_by < call.begin {
            self.lowered.most
        } else {
            self.hits.most.max(self.lowered.most)
        }
    }

    /// Returns the earliest time after another at which it is lowered, and the hits that then
    /// certainly count no more.
    pub(crate) fn lowering_after(&self, time: u64) -> Option<(u64, u64)> {
        let hits = self.hits.least.saturating_sub(self.lowered.least);
        (time < self.lowered_from && hits > 0).then_some((self.lowered_from, hits))
    }

    /// Returns the calls that show the hits that certainly count at a time.
    pub(crate) fn evidence(&self, time: u64) -> impl Iterator<Item = &'a ObservedCall> + use<'a> {
        let end = self.ended_by.filter(|end| end.begin <= time);
        [self.call].into_iter().chain(end)
    }

    fn is_ended_by(&self, call: &ObservedCall) -> bool {
        self.ended_by.is_some_and(|end| std::ptr::eq(end, call))
    }

    /// Lowers it by a call that ends its hold in some way. The TTL then began at `begun` or later.
    fn end(
        &mut self,
        (end, by): (&'a ObservedCall, HoldEnd),
        model: &CounterModel,
        begun: u64,
        skew: u64,
    ) {
        let reserved = self.call.hits;
        let keeps = model.hold.is_some_and(|hold| hold.settle_keeps);
        let cost = match by {
            HoldEnd::Commit | HoldEnd::Cancel | HoldEnd::Settle if model.is_in_flight() => 0,
            HoldEnd::Commit => end.hits.min(reserved),
            HoldEnd::Settle if keeps => reserved,
            HoldEnd::Settle | HoldEnd::Cancel => 0,
        };
        self.ended_by = Some(end);
        self.lowered_from = end.begin;
        self.lowered = CountedHits { least: cost.min(self.hits.least), most: cost };
        if self.has_hold(end, model, begun, skew) && end.remaining().is_some() {
            self.lowered_by = end.end;
        } else if by == HoldEnd::Commit && !model.is_in_flight() {
            // Nothing returns of a hold that is not there.
            self.lowered.most = reserved;
        }
    }

    /// Returns the charge that the end of its hold makes: of a cost above the reserved hits. The
    /// cost of a hold that is not there is charged in whole.
    fn overrun(
        &self,
        (end, by): (&'a ObservedCall, HoldEnd),
        model: &CounterModel,
        begun: u64,
        skew: u64,
    ) -> Option<Self> {
        if by != HoldEnd::Commit || model.is_in_flight() {
            return None;
        }
        let has_hold = self.has_hold(end, model, begun, skew);
        let most = end.hits.saturating_sub(if has_hold { self.call.hits } else { 0 });
        // Debt beyond a bound is forgiven.
        let is_certain = has_hold && end.remaining().is_some() && !model.is_draining();
        let hits = CountedHits { least: if is_certain { most } else { 0 }, most };
        (most > 0).then(|| Self::unchanged(end, hits))
    }

    /// Returns `true` if its hold is certainly there when a call ends it.
    fn has_hold(&self, end: &ObservedCall, model: &CounterModel, begun: u64, skew: u64) -> bool {
        self.call.remaining().is_some() && model.is_open_at(end.end, begun, skew)
    }

    /// Lowers it to nothing between two times, if it is not lowered earlier.
    fn expire(&mut self, from: u64, by: u64) {
        if self.lowered_by > by {
            self.lowered = CountedHits { least: 0, most: 0 };
            self.lowered_by = by;
        }
        if self.lowered_from > from {
            self.lowered.least = 0;
            self.lowered_from = from;
        }
    }
}

impl TtlBegin {
    /// Returns those of a reserve.
    fn of(reserve: &ObservedCall) -> Self {
        Self { from: reserve.begin, by: reserve.charged_by() }
    }

    /// Begins it anew by the next call that keeps the hold: with certainty by an extension that
    /// came in time. If the hold may have ended by then, at another counter it may not have: that
    /// suffices for an answer without an error.
    fn keep(&mut self, call: &ObservedCall, model: &CounterModel, skew: u64) {
        // A call without a status was perhaps answered without the store.
        let is_in_time = call.remaining().is_some() && model.is_open_at(call.end, self.from, skew);
        if is_in_time && matches!(call.action, CallAction::Extend { .. }) {
            self.from = self.from.max(call.begin);
        }
        self.by = self.by.max(call.charged_by());
    }
}

/// Returns the charges of the calls to one counter, also of those that were denied.
pub(crate) fn charges_of<'a>(
    model: &CounterModel,
    calls: &'a [ObservedCall],
    skew: u64,
) -> Vec<TimedCharge<'a>> {
    let mut ends = BTreeMap::<usize, (&ObservedCall, HoldEnd)>::new();
    let mut keeping = BTreeMap::<usize, Vec<&ObservedCall>>::new();
    let mut overruns = Vec::new();
    for call in calls {
        match call.action {
            CallAction::End { hold, by } => {
                ends.entry(hold).or_insert((call, by));
            }
            CallAction::Repeat { hold } | CallAction::Extend { hold } => {
                keeping.entry(hold).or_default().push(call);
            }
            CallAction::EndAgain { by, .. } => overruns.extend(TimedCharge::again(call, by, model)),
            CallAction::Charge | CallAction::Reserve { .. } => {}
        }
    }
    let charging = calls.iter().filter(|call| call.action.is_charge());
    let mut charges: Vec<TimedCharge<'a>> = charging.map(TimedCharge::of).collect();
    let times = model.is_draining().then(|| ChargeTimes::of(calls));
    for charge in &mut charges {
        let hold = charge.call.action.hold();
        let kept = hold.and_then(|hold| keeping.get(&hold));
        let mut ttl = TtlBegin::of(charge.call);
        for call in kept.into_iter().flatten() {
            ttl.keep(call, model, skew);
        }
        if let Some((end, by)) = hold.and_then(|hold| ends.get(&hold)) {
            charge.end((end, *by), model, ttl.from, skew);
            overruns.extend(charge.overrun((end, *by), model, ttl.from, skew));
            let between = times.as_ref().map(|times| times.between(charge.call, end));
            if between.is_some_and(|between| between > EXACT_CHARGES) {
                charge.lowered_by = u64::MAX;
                charge.lowered.most = charge.lowered.most.max(charge.hits.most);
            }
        }
        if charge.call.answer == ObservedAnswer::DeniedByOther && !model.charges_denied {
            let by = charge.call.end.saturating_add(TAKE_BACK);
            charge.expire(charge.call.begin, by);
        }
        if let Some(hold) = model.hold.filter(|_| model.is_in_flight()) {
            let from = ttl.from.saturating_add(hold.ttl).saturating_sub(skew);
            let by = ttl.by.saturating_add(hold.ttl).saturating_add(skew);
            charge.expire(from, by);
        }
    }
    charges.extend(overruns);
    charges
}

/// The times of calls that may charge, in order.
struct ChargeTimes {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl ChargeTimes {
    fn of(calls: &[ObservedCall]) -> Self {
        let is_commit = |call: &&ObservedCall| call.action.end() == Some(HoldEnd::Commit);
        let charging = calls.iter().filter(|call| call.action.is_charge() || is_commit(call));
        let mut begins: Vec<u64> = charging.clone().map(|call| call.begin).collect();
        let mut ends: Vec<u64> = charging.map(ObservedCall::charged_by).collect();
        begins.sort_unstable();
        ends.sort_unstable();
        Self { begins, ends }
    }

    /// Returns the most charges that can have been made from a reserve to the end of its hold.
    fn between(&self, reserve: &ObservedCall, end: &ObservedCall) -> usize {
        let begun = self.begins.partition_point(|begin| *begin <= end.end);
        let before = self.ends.partition_point(|time| *time < reserve.begin);
        begun.saturating_sub(before)
    }
}
