//! The next request of a run, and the record of its answer.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use crate::counters::CountersInUse;
use crate::history::{CallAction, HoldEnd, ObservedAnswer, ObservedCall};
use crate::open_holds::HoldToEnd;
use crate::run::{VerifiedCounter, VerifyRun};
use crate::service::{DescriptorDecision, ServiceDecision, VerifyRequest};

const SECOND: u64 = 1_000_000;

/// A request that is under way.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    /// Index of the rule of its first counter.
    rule: usize,
    /// Index of the counter of each descriptor.
    counters: Vec<usize>,
    action: CallAction,
    hits: u64,
    begin: u64,
    /// The hold that it keeps.
    kept: Option<HoldToEnd>,
}

impl VerifyRun {
    /// Returns the next request.
    pub(crate) fn next(&mut self) -> (SentRequest, VerifyRequest) {
        let rule = self.random.random_range(0..self.rules.len().max(1));
        let sent = self.change_of_hold(rule).unwrap_or_else(|| self.charge(rule));
        let mut request =
            VerifyRequest { hits: sent.hits, action: sent.action, ..Default::default() };
        for counter in &sent.counters {
            if let Some((rule, value)) = self
                .counters
                .get(*counter)
                .and_then(|counter| Some((self.rules.get(counter.rule)?, counter.value)))
            {
                rule.domain().clone_into(&mut request.domain);
                request.descriptors.push(rule.values(value));
            }
        }
        request.hold = sent.action.hold().map_or(String::new(), |hold| self.hold_id(hold));
        (sent, request)
    }

    /// Returns a request about an open hold of a rule, for one in three requests.
    fn change_of_hold(&mut self, rule: usize) -> Option<SentRequest> {
        let begin = self.now();
        if !self.random.random_ratio(1, 3) {
            return None;
        }
        let open = self.open.get_mut(rule)?.take(begin, &mut self.random)?;
        let HoldToEnd { hold, hits, has_ended, .. } = open;
        let end = |by| {
            if has_ended { CallAction::EndAgain { hold, by } } else { CallAction::End { hold, by } }
        };
        let (action, hits) = match self.random.random_range(0..6) {
            0 => (end(HoldEnd::Cancel), 0),
            1 => (end(HoldEnd::Settle), 0),
            2 if !has_ended => (CallAction::Extend { hold }, hits),
            3 if !has_ended && open.is_recorded => (CallAction::Repeat { hold }, hits),
            _ => (end(HoldEnd::Commit), self.cost(&open)),
        };
        let counters = open.counters.clone();
        Some(SentRequest { rule, counters, action, hits, begin, kept: Some(open) })
    }

    /// Returns the cost of a hold: one in four is above its hits, if its counters allow that.
    fn cost(&mut self, hold: &HoldToEnd) -> u64 {
        let mut rules = hold.counters.iter().map(|counter| self.rule_of(*counter));
        let counts_overruns =
            rules.all(|rule| rule.is_some_and(|rule| rule.model.counts_overruns()));
        if counts_overruns && self.random.random_ratio(1, 4) {
            return hold.hits + self.random.random_range(1..=hold.hits.max(1));
        }
        self.random.random_range(0..=hold.hits)
    }

    /// Returns a charge or a reserve of a counter of a rule, or of counters of two rules.
    fn charge(&mut self, rule: usize) -> SentRequest {
        let begin = self.now();
        let is_single = self.rules.get(rule).is_some_and(|rule| rule.model.is_behind_gateway);
        let hits = match self.random.random_range(0..16) {
            0 if !is_single => 0,
            1..4 if !is_single => 2,
            _ => 1,
        };
        let mut counters: Vec<usize> = self.counter_of(rule, begin).into_iter().collect();
        let has_holds = self.rules.get(rule).is_some_and(|rule| rule.model.hold.is_some());
        let action = if has_holds && hits > 0 {
            self.holds += 1;
            CallAction::Reserve { hold: self.holds }
        } else {
            CallAction::Charge
        };
        if let Some(other) = self.companion(rule, begin) {
            counters.extend(self.counter_of(other, begin));
            for shared in [rule, other] {
                self.in_use.get_mut(shared).into_iter().for_each(CountersInUse::share);
            }
        }
        SentRequest { rule, counters, action, hits, begin, kept: None }
    }

    /// Returns another rule of the same domain, for half of the requests of every fifth second: one
    /// with holds as well, or none.
    ///
    /// In between, no request is denied by another limit: such a request may have been charged,
    /// which explains many answers.
    fn companion(&mut self, index: usize, now: u64) -> Option<usize> {
        let seconds = now.saturating_sub(self.epoch) / SECOND;
        if seconds % 5 != 1 || self.random.random() {
            return None;
        }
        let rule = self.rules.get(index).filter(|rule| !rule.model.is_behind_gateway)?;
        let others = self.rules.iter().enumerate().filter(|(other, of)| {
            let is_alike = of.model.hold.is_some() == rule.model.hold.is_some();
            *other != index && is_alike && of.domain() == rule.domain()
        });
        let others: Vec<usize> = others.map(|(other, _)| other).collect();
        others.choose(&mut self.random).copied()
    }

    /// Returns the counter of a rule for the next call.
    fn counter_of(&mut self, index: usize, now: u64) -> Option<usize> {
        let rule = self.rules.get(index)?;
        let new = self.counters.len();
        let counter = self.in_use.get_mut(index)?.next(&rule.model, now, new, &mut self.random);
        if counter == new {
            self.counters.push(VerifiedCounter { rule: index, value: self.random.random() });
        }
        Some(counter)
    }

    /// Records the answer to a request of a target.
    pub(crate) fn record(&mut self, target: usize, sent: &SentRequest, answer: &SentAnswer) {
        let end = self.now();
        self.requests += 1;
        let was_open = sent.kept.as_ref().is_none_or(|hold| hold.was_open(end));
        // A repeated reserve or commit may be charged once the store has forgotten the hold.
        let is_known = was_open && matches!(answer, SentAnswer::Decided(_));
        let may_charge = sent.action.is_again() && !is_known;
        let action = if may_charge && matches!(sent.action, CallAction::Repeat { .. }) {
            self.holds += 1;
            CallAction::Reserve { hold: self.holds }
        } else {
            sent.action
        };
        for (part, counter) in sent.counters.iter().enumerate() {
            let answer = answer.of_part(part, sent);
            self.calls.push(ObservedCall {
                counter: *counter,
                request: self.requests,
                target,
                action,
                hits: sent.hits,
                begin: sent.begin,
                end,
                answer: if may_charge { answer.unknown() } else { answer },
            });
        }
        // Some are left to end by themselves.
        if !may_charge
            && let SentAnswer::Decided(decision) = answer
            && !decision.is_denied
            && !self.random.random_ratio(1, 16)
            && let Some(hold) = self.hold_after(sent, decision, end)
            && let Some(open) = self.open.get_mut(sent.rule)
        {
            open.add(hold);
        }
    }

    /// Returns the hold that is open, or that the store remembers as ended, after a request that
    /// was answered at a time.
    fn hold_after(
        &self,
        sent: &SentRequest,
        decision: &ServiceDecision,
        now: u64,
    ) -> Option<HoldToEnd> {
        let is_recorded = decision.descriptors.iter().all(|one| one.status.is_some());
        match (sent.action, &sent.kept) {
            (CallAction::Reserve { hold }, _) => {
                let models = sent.counters.iter().filter_map(|counter| self.rule_of(*counter));
                let ttl = models.filter_map(|rule| rule.model.hold).map(|hold| hold.ttl).min();
                Some(HoldToEnd {
                    hold,
                    counters: sent.counters.clone(),
                    hits: sent.hits,
                    begin: sent.begin,
                    ttl: ttl.unwrap_or_default(),
                    is_recorded,
                    has_ended: false,
                })
            }
            (CallAction::Extend { .. }, Some(kept)) => {
                // Without a status of each counter, one of them was perhaps not extended.
                let begin = if is_recorded { sent.begin } else { kept.begin };
                Some(HoldToEnd { begin, ..kept.clone() })
            }
            (CallAction::Repeat { .. }, kept) => kept.clone(),
            (CallAction::End { .. }, Some(kept))
                if kept.is_recorded && is_recorded && kept.was_open(now) =>
            {
                Some(HoldToEnd { has_ended: true, ..kept.clone() })
            }
            (CallAction::Charge | CallAction::Extend { .. }, _)
            | (CallAction::End { .. } | CallAction::EndAgain { .. }, _) => None,
        }
    }
}

/// The answer to a request, or its absence.
#[derive(Clone, Debug)]
pub(crate) enum SentAnswer {
    Decided(ServiceDecision),
    Failed(String),
    Late,
}

impl SentAnswer {
    /// Returns the answer of one counter.
    fn of_part(&self, part: usize, sent: &SentRequest) -> ObservedAnswer {
        let decision = match self {
            Self::Decided(decision) => decision,
            Self::Failed(error) => return ObservedAnswer::Failed { error: error.clone() },
            Self::Late => return ObservedAnswer::Late,
        };
        let DescriptorDecision { is_denied, status } =
            decision.descriptors.get(part).copied().unwrap_or_default();
        // Without a status, the answer was given without the store, and admits as well.
        let remaining = status.map(|status| status.remaining);
        let reset = status.and_then(|status| status.reset);
        let is_alone = sent.counters.len() == 1;
        if decision.is_denied && (is_denied || is_alone) {
            ObservedAnswer::Denied { remaining, reset }
        } else if decision.is_denied {
            ObservedAnswer::DeniedByOther
        } else {
            match sent.action {
                CallAction::Charge | CallAction::Reserve { .. } => {
                    ObservedAnswer::Admitted { remaining, reset }
                }
                CallAction::Repeat { .. } | CallAction::Extend { .. } => {
                    ObservedAnswer::Kept { remaining, reset }
                }
                CallAction::End { .. } | CallAction::EndAgain { .. } => {
                    ObservedAnswer::Ended { remaining, reset }
                }
            }
        }
    }
}
