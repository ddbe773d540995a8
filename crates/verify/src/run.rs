//! A run: the rules, the counters in use, and the calls so far.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, timeout};
use tollgate_core::algorithm::time::Micros;

use crate::bound::CounterBound;
use crate::check::{CheckedProperty, Checker};
use crate::clock::epoch_micros;
use crate::counters::CountersInUse;
use crate::history::ObservedCall;
use crate::open_holds::HoldsToEnd;
use crate::rules::VerifiedRule;
use crate::service::{LimitStatus, VerifiedService};
use crate::verdict::RunConditions;

/// Differences between clocks, in milliseconds, that are tried as explanations.
const SKEWS: [u64; 3] = [100, 1000, 10_000];

/// Result of a disturbance that was under way at the end of the run.
pub const STILL_RUNNING: &str = "still running at the end";

/// The rules, the counters in use, and the calls so far.
#[derive(Debug)]
pub struct VerifyRun {
    /// The rules that are checked.
    pub rules: Vec<VerifiedRule>,
    /// Why other rules are not checked.
    pub skipped: Vec<String>,
    /// Differences between the policies and the limits that the targets report.
    pub mismatches: Vec<String>,
    /// The counters of the calls.
    pub counters: Vec<VerifiedCounter>,
    /// The calls so far.
    pub calls: Vec<ObservedCall>,
    /// The requests so far, each of one or several calls.
    pub requests: usize,
    /// Results of the disturbances.
    pub disturbances: Vec<String>,
    /// Seconds for which requests were sent.
    pub seconds: f64,
    /// `true` if Ctrl-C ended the run.
    pub is_interrupted: bool,
    /// Most by which the clock moved against the monotonic clock, in microseconds.
    pub(crate) clock_moved: u64,
    /// Longest time for which this process did not run, in microseconds.
    pub paused: u64,
    /// Counters in use of each rule.
    pub(crate) in_use: Vec<CountersInUse>,
    /// Holds of each rule that can be ended.
    pub(crate) open: Vec<HoldsToEnd>,
    /// Holds so far.
    pub(crate) holds: usize,
    /// Prefix of the IDs of holds.
    hold_prefix: u64,
    pub(crate) random: StdRng,
    started: Instant,
    /// Microseconds since the epoch at which it started.
    pub(crate) epoch: u64,
}

/// A counter that takes calls of a run.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedCounter {
    /// Index of its rule.
    pub rule: usize,
    /// Random value of its descriptor.
    pub value: u64,
}

/// A target that cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No decision about a request, or an error.
    #[error(
        "{target} returned no decision: {error}\nIs it the right port? See its log: its store may be down."
    )]
    NoDecision {
        /// Name of the target.
        target: String,
        /// Text of the error.
        error: String,
    },
    /// No limit for a rule.
    #[error("{target} has no limit for {rule}\n--policy must match the policies of the service.")]
    NoLimit {
        /// Name of the target.
        target: String,
        /// Name of the rule.
        rule: String,
    },
}

impl VerifyRun {
    /// Creates a run without calls.
    pub fn new(rules: Vec<VerifiedRule>, skipped: Vec<String>) -> Self {
        Self {
            in_use: vec![CountersInUse::default(); rules.len()],
            open: vec![HoldsToEnd::default(); rules.len()],
            holds: 0,
            hold_prefix: rand::random(),
            requests: 0,
            rules,
            skipped,
            mismatches: Vec::new(),
            counters: Vec::new(),
            calls: Vec::new(),
            disturbances: Vec::new(),
            seconds: 0.0,
            is_interrupted: false,
            clock_moved: 0,
            paused: 0,
            random: StdRng::from_os_rng(),
            started: Instant::now(),
            epoch: epoch_micros(),
        }
    }

    /// Returns the rule of a counter.
    pub(crate) fn rule_of(&self, counter: usize) -> Option<&VerifiedRule> {
        self.rules.get(self.counters.get(counter)?.rule)
    }

    /// Returns the domain and the entries of a counter.
    pub fn counter_name(&self, counter: usize) -> Option<String> {
        let VerifiedCounter { rule, value } = self.counters.get(counter)?;
        Some(self.rules.get(*rule)?.counter_name(*value))
    }

    /// Returns the calls of each counter, oldest first.
    pub(crate) fn by_counter(&self) -> BTreeMap<usize, Vec<ObservedCall>> {
        let mut by_counter = BTreeMap::<usize, Vec<ObservedCall>>::new();
        for call in &self.calls {
            by_counter.entry(call.counter).or_default().push(call.clone());
        }
        by_counter
    }

    /// Returns the calls of a rule, by its index.
    pub fn calls_of(&self, rule: usize) -> impl Iterator<Item = &ObservedCall> {
        self.calls.iter().filter(move |call| self.is_of(call.counter, rule))
    }

    fn is_of(&self, counter: usize, rule: usize) -> bool {
        self.counters.get(counter).is_some_and(|counter| counter.rule == rule)
    }

    /// Returns the names of the rules under which no call was denied.
    pub fn never_reached(&self) -> Vec<String> {
        let rules = self.rules.iter().enumerate();
        rules
            .filter(|(index, _)| !self.calls_of(*index).any(ObservedCall::is_denied))
            .map(|(_, rule)| rule.name())
            .collect()
    }

    /// Returns the names of the rules whose limit was reached by counters that were not in use for
    /// long enough to show when their hits return, with that time.
    pub fn unseen_returns(&self, skew: u64) -> Vec<(String, Micros)> {
        let never_reached = self.never_reached();
        let mut counters = self.by_counter();
        let mut unseen = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let of_rule = counters.extract_if(.., |counter, _| self.is_of(*counter, index));
            let of_rule: Vec<_> = of_rule.map(|(_, calls)| calls).collect();
            if rule.model.is_leased || never_reached.contains(&rule.name()) {
                continue;
            }
            let bounds = rule.model.bounds.iter();
            let bounds =
                bounds.filter(|bound| !of_rule.iter().any(|calls| bound.shows_return(calls, skew)));
            if let Some(longest) = bounds.map(CounterBound::return_time).max() {
                unseen.push((rule.name(), Micros::new(longest)));
            }
        }
        unseen
    }

    /// Checks the calls of each counter, with a difference between clocks in milliseconds.
    pub fn check(&self, skew: u64) -> Checker {
        let mut checker = Checker::new(skew * 1000);
        for (counter, calls) in self.by_counter() {
            if let Some(rule) = self.rule_of(counter) {
                checker.examine(&rule.model, &calls);
            }
        }
        checker
    }

    /// Returns the circumstances that limit what the run shows, for a difference between clocks in
    /// milliseconds.
    pub fn conditions(&self, skew: u64, deadline: Duration) -> RunConditions {
        RunConditions {
            calls: self.calls.len(),
            unknown: self.calls.iter().filter(|call| call.is_unknown()).count(),
            unreached: self.never_reached().len(),
            skew: skew * 1000,
            clock_moved: self.clock_moved,
            deadline: u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX),
            paused: self.paused,
        }
    }

    /// Returns a larger difference between clocks than `skew`, in milliseconds, that would explain
    /// all answers.
    pub fn explaining_skew(&self, skew: u64) -> Option<u64> {
        let mut counters = self.by_counter();
        counters.retain(|counter, calls| self.is_violated(*counter, calls, skew));
        // With larger ones, nothing is found, whatever the answers.
        let rules = counters.keys().filter_map(|counter| self.rule_of(*counter));
        let max = rules.map(|rule| rule.max_skew).min().unwrap_or_default();
        SKEWS.into_iter().filter(|other| *other > skew && *other <= max).find(|other| {
            !counters.iter().any(|(counter, calls)| self.is_violated(*counter, calls, *other))
        })
    }

    /// Returns `true` if the calls of a counter violate a property that depends on clocks.
    fn is_violated(&self, counter: usize, calls: &[ObservedCall], skew: u64) -> bool {
        let mut checker = Checker::new(skew * 1000);
        if let Some(rule) = self.rule_of(counter) {
            checker.examine(&rule.model, calls);
        }
        checker.results().iter().any(|result| {
            result.property != CheckedProperty::AnsweredInTime && result.contradictions > 0
        })
    }

    /// Sends one request for each rule to a target.
    ///
    /// # Errors
    /// The target does not answer, or has no limit for a rule.
    pub async fn probe(
        &mut self,
        target: &str,
        service: &mut impl VerifiedService,
        deadline: Duration,
    ) -> Result<(), ProbeError> {
        for rule in &self.rules {
            let decided = service.decide(rule.request(self.random.random()), deadline);
            let no_decision = |error| ProbeError::NoDecision { target: target.to_owned(), error };
            let decision = timeout(deadline, decided)
                .await
                .map_err(|_| no_decision(format!("no answer within {deadline:?}")))?
                .map_err(|error| no_decision(error.to_string()))?;
            if rule.model.is_behind_gateway {
                continue;
            }
            let status = decision.descriptors.first().and_then(|one| one.status);
            let status = status.ok_or_else(|| ProbeError::NoLimit {
                target: target.to_owned(),
                rule: rule.name(),
            })?;
            if let Some(mismatch) = rule.mismatch(&status) {
                self.mismatches.push(format!("{target} {mismatch}"));
            }
        }
        Ok(())
    }

    /// Returns the ID of a hold.
    pub(crate) fn hold_id(&self, hold: usize) -> String {
        format!("v{:016x}-{hold}", self.hold_prefix)
    }

    pub(crate) fn now(&self) -> u64 {
        self.epoch + u64::try_from(self.started.elapsed().as_micros()).unwrap_or_default()
    }
}

impl VerifiedRule {
    /// Describes a reported limit that is none of the rule's.
    fn mismatch(&self, status: &LimitStatus) -> Option<String> {
        let LimitStatus { amount, period, .. } = *status;
        let is_reported = self.windows.iter().any(|(own_amount, own_period)| {
            *own_amount == amount && period.is_none_or(|period| period == *own_period)
        });
        if is_reported {
            return None;
        }
        let windows = self.windows.iter().map(|(amount, of)| {
            if self.model.is_in_flight() {
                format!("{amount} in flight")
            } else {
                format!("{amount} per {of}")
            }
        });
        Some(format!(
            "reports a limit of {amount}{} for {}, the policy has {}",
            period.map_or(String::new(), |period| format!(" per {period}")),
            self.name(),
            windows.collect::<Vec<_>>().join(" and "),
        ))
    }
}
