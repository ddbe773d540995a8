//! The metrics of a request: per rule, and in the statistics of envoyproxy/ratelimit if enabled.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use super::candidates::Candidate;
use super::holds::HoldOperations;
use super::loans::RuleLoans;
use super::status::{AppliedLimit, Status, StatusKind};
use super::target::DescriptorTarget;
use crate::algorithm::judge::{Hits, InlineVec, Outcome};
use crate::descriptor::{Descriptor, Request};
use crate::policy::{MetricKey, Policy, PolicySet, Rule};
use crate::store::{StoreError, error_behind};
use crate::telemetry::candidates::CandidateSource;
use crate::telemetry::journal::rates::Counts;
use crate::telemetry::metrics::{Counter, Effect, Metrics, RuleMetrics};
use crate::telemetry::statistics::{RuleStats, StatName, Stats};

/// The counters of the rules of a policy set, by [`Rule::id`].
#[derive(Debug)]
pub(super) struct RuleCounters {
    metrics: Vec<RuleMetrics>,
    /// Ratio of a limit above which allowed hits count as near the limit.
    near_limit_ratio: f32,
    /// Candidates of individual rules, or all limits of a candidate policy set.
    candidates: HashMap<usize, Candidate>,
    holds: HoldOperations,
    loans: RuleLoans,
    statistics: Option<ServiceStatistics>,
}

#[derive(Debug)]
struct ServiceStatistics {
    stats: Arc<Stats>,
    rules: Vec<RuleStatistics>,
}

#[derive(Debug)]
enum RuleStatistics {
    /// One name for all requests.
    Fixed(Arc<RuleStats>),
    /// A name that contains values of the request; holds the rule's own name without its last part.
    ByRequest(String),
}

/// The statistics for one request, per descriptor with a limit. Empty if statistics are disabled.
pub(super) struct RequestTally<'a> {
    near_limit_ratio: f32,
    descriptors: InlineVec<Option<(CountedLimit<'a>, u64)>>,
}

enum CountedLimit<'a> {
    Fixed(&'a RuleStats),
    ByRequest(Arc<RuleStats>),
}

impl Deref for CountedLimit<'_> {
    type Target = RuleStats;

    fn deref(&self) -> &RuleStats {
        match self {
            Self::Fixed(stats) => stats,
            Self::ByRequest(stats) => stats,
        }
    }
}

impl RuleCounters {
    /// Looks up the counters that requests will increment.
    pub(super) fn of(policies: &PolicySet, metrics: &Metrics) -> Self {
        let statistics = metrics.stats().map(|stats| ServiceStatistics::new(stats, policies));
        let candidates = policies.rules().filter_map(Rule::candidate);
        Self {
            metrics: policies
                .rules()
                .map(|rule| metrics.of_rule(rule.domain(), rule.path()))
                .collect(),
            near_limit_ratio: metrics.options().near_limit_ratio,
            candidates: counted(candidates, CandidateSource::Rule, metrics),
            holds: HoldOperations::of(policies, metrics),
            loans: RuleLoans::of(policies, metrics),
            statistics,
        }
    }

    /// Returns the counts of each rule in rule ID order; zeros for rules that share a series.
    pub(super) fn of_rules(&self) -> impl Iterator<Item = Counts> + Clone {
        self.metrics.iter().map(counts)
    }

    /// Creates the counters of a candidate policy set: only those of its limits' outcomes.
    pub(super) fn of_candidates(policies: &PolicySet, metrics: &Metrics) -> Self {
        let limits = policies.rules().filter(|rule| rule.limit().is_some());
        Self {
            metrics: Vec::new(),
            near_limit_ratio: 0.0,
            candidates: counted(limits, CandidateSource::Policy, metrics),
            holds: HoldOperations::default(),
            loans: RuleLoans::default(),
            statistics: None,
        }
    }

    /// Returns the counters of operations on holds.
    pub(super) fn holds(&self) -> &HoldOperations {
        &self.holds
    }

    /// Returns the counters of loans.
    pub(super) fn loans(&self) -> &RuleLoans {
        &self.loans
    }

    /// Returns the counters of decisions by a rule.
    pub(super) fn of_rule(&self, rule: &Rule) -> Option<&RuleMetrics> {
        self.metrics.get(rule.id())
    }

    /// Returns the counters of a candidate limit.
    pub(super) fn of_candidate(&self, rule: &Rule) -> Option<&Candidate> {
        self.candidates.get(&rule.id())
    }

    /// Counts the hits of a request, whatever its decision, and returns the tally that its decision
    /// completes.
    pub(super) fn begin_tally(
        &self,
        policy: Option<&Policy>,
        request: &Request<'_>,
        statuses: &[Status<'_>],
    ) -> RequestTally<'_> {
        let Some((statistics, policy)) = self.statistics.as_ref().zip(policy) else {
            return RequestTally { near_limit_ratio: 0.0, descriptors: InlineVec::new() };
        };
        let descriptors = statuses.iter().zip(&request.descriptors);
        let counted =
            descriptors.map(|(status, one)| statistics.count_total(policy, status.target(), one));
        RequestTally {
            near_limit_ratio: statistics.stats.options().near_limit_ratio,
            descriptors: counted.collect(),
        }
    }

    /// Counts the store error that a descriptor met, if there is one. `is_failed`: its request
    /// ends without a decision.
    pub(super) fn count_error(
        &self,
        status: &Status<'_>,
        outcome: &Result<Outcome, StoreError>,
        is_failed: bool,
    ) {
        let metrics = status.rule().and_then(|rule| self.metrics.get(rule.id()));
        let Some(metrics) = metrics else { return };
        let Some(error) = error_behind(outcome) else { return };
        let effect = match outcome {
            Ok(_) => Effect::Local,
            Err(_) if is_failed => Effect::Failed,
            Err(_) => status.effect_of_error(),
        };
        metrics.undecided.inc(error, effect);
        if effect == Effect::Failed {
            metrics.failed.inc();
        }
    }

    /// Counts the decision on a descriptor.
    #[inline]
    pub(super) fn count(&self, status: &Status<'_>) {
        if let Some(metrics) = status.rule().and_then(|rule| self.metrics.get(rule.id())) {
            count(metrics, status, self.near_limit_ratio);
        }
    }
}

impl RequestTally<'_> {
    /// Counts the decisions on the descriptors of the request.
    #[inline]
    pub(super) fn count(&self, statuses: &[Status<'_>]) {
        if self.descriptors.is_empty() {
            return;
        }
        for (status, counted) in statuses.iter().zip(&self.descriptors) {
            if let Some((counted, hits)) = counted {
                count_hits(counted, status, *hits, self.near_limit_ratio);
            }
        }
    }
}

impl ServiceStatistics {
    fn new(stats: &Arc<Stats>, policies: &PolicySet) -> Self {
        let rules = policies.metric_keys().into_iter();
        let rules = rules.map(|key| RuleStatistics::new(stats, &key)).collect();
        Self { stats: Arc::clone(stats), rules }
    }

    /// Counts the hits of a descriptor, whatever its decision. Returns them with the statistics of
    /// its limit.
    fn count_total<'a>(
        &'a self,
        policy: &Policy,
        target: &DescriptorTarget<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Option<(CountedLimit<'a>, u64)> {
        let counted = self.of(policy, target, descriptor)?;
        let hits = match descriptor.hits {
            Hits::Charge(hits) => hits.into(),
            Hits::Peek(_) | Hits::Refund(_) => 0,
        };
        counted.total_hits.add(hits);
        if let Hits::Refund(hits) = descriptor.hits {
            counted.total_negative_hits.add(hits.into());
        }
        Some((counted, hits))
    }

    fn of<'a>(
        &'a self,
        policy: &Policy,
        target: &DescriptorTarget<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Option<CountedLimit<'a>> {
        let mut name = StatName::default();
        match target {
            DescriptorTarget::Nothing | DescriptorTarget::Unlimited(_) => None,
            // An override that inherits the other options of a rule counts for that rule.
            DescriptorTarget::Limited { rule: Some(rule), .. } => {
                match self.rules.get(Rule::id(rule))? {
                    RuleStatistics::Fixed(stats) => Some(CountedLimit::Fixed(stats)),
                    RuleStatistics::ByRequest(above) => {
                        policy.write_metric_key(&descriptor.entries, &mut |part| name.push(part));
                        Some(CountedLimit::ByRequest(self.stats.of_request(&mut name, above)))
                    }
                }
            }
            DescriptorTarget::Limited { rule: None, .. } => {
                policy.write_override_key(&descriptor.entries, &mut |part| name.push(part));
                Some(CountedLimit::ByRequest(self.stats.of_request(&mut name, policy.domain())))
            }
        }
    }
}

impl RuleStatistics {
    fn new(stats: &Stats, key: &MetricKey) -> Self {
        if key.is_by_request {
            Self::ByRequest(above(&key.text).to_owned())
        } else {
            Self::Fixed(stats.of_rule(&key.text))
        }
    }
}

/// Returns the counts of a rule; zeros if it shares its series.
fn counts(metrics: &RuleMetrics) -> Counts {
    if metrics.is_shared {
        return Counts::default();
    }
    let RuleMetrics { allowed, denied, near, shadow_denied, failed, .. } = metrics;
    let [allowed, denied, near, shadow_denied, failed] =
        [allowed, denied, near, shadow_denied, failed].map(Counter::get);
    [allowed, denied, near, shadow_denied, failed, metrics.undecided.unchecked()]
}

/// Returns the candidates of a source by the IDs of their rules, with the counters of each.
fn counted<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    from: CandidateSource,
    metrics: &Metrics,
) -> HashMap<usize, Candidate> {
    let mut candidates = HashMap::new();
    for rule in rules {
        let name = [rule.path(), from.mark()].concat().into();
        let metrics = metrics.candidates.of_rule(from, rule.domain(), rule.path());
        candidates.insert(rule.id(), Candidate { metrics, name });
    }
    candidates
}

/// Returns a name without its last part.
fn above(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(above, _)| above)
}

fn count(metrics: &RuleMetrics, status: &Status<'_>, near_limit_ratio: f32) {
    match status.kind() {
        StatusKind::NoLimit => return,
        StatusKind::Allowed => &metrics.allowed,
        StatusKind::Denied => &metrics.denied,
        StatusKind::ShadowDenied => &metrics.shadow_denied,
        StatusKind::Unlimited => &metrics.unlimited,
        StatusKind::PresumedAllowed => &metrics.presumed_allowed,
        StatusKind::PresumedDenied => &metrics.presumed_denied,
    }
    .inc();
    if status.kind() == StatusKind::Allowed && has_little_room(status, near_limit_ratio) {
        metrics.near.inc();
    }
}

/// Returns `true` if more than the ratio of the limit is used; for GCRA, of the burst.
fn has_little_room(status: &Status<'_>, ratio: f32) -> bool {
    let Some(applied) = status.limit() else { return false };
    let Some(remaining) = status.remaining() else { return false };
    let whole = applied.limit.burst().unwrap_or(applied.amount);
    u64::from(whole).saturating_sub(remaining) > threshold(whole, ratio)
}

/// Counts the hits of a judged descriptor. Unjudged hits are only in the total.
fn count_hits(stats: &RuleStats, status: &Status<'_>, hits: u64, near_limit_ratio: f32) {
    let kind = status.kind();
    match kind {
        StatusKind::Allowed => {
            stats.within_limit.add(hits);
            stats.near_limit.add(near(status, hits, near_limit_ratio));
        }
        StatusKind::Denied | StatusKind::ShadowDenied => {
            let (over, near) = over_and_near(status, hits, near_limit_ratio);
            stats.over_limit.add(over);
            stats.near_limit.add(near);
            if status.is_cached() {
                stats.over_limit_with_local_cache.add(hits);
            }
            if kind == StatusKind::ShadowDenied {
                stats.shadow_mode.add(over);
            }
        }
        StatusKind::NoLimit
        | StatusKind::Unlimited
        | StatusKind::PresumedAllowed
        | StatusKind::PresumedDenied => {}
    }
}

/// Returns the part of `hits` above the ratio of the limit, after the hits used before.
fn near(status: &Status<'_>, hits: u64, ratio: f32) -> u64 {
    let Some(AppliedLimit { amount, .. }) = status.limit() else { return 0 };
    let Some(remaining) = status.remaining() else { return 0 };
    let used = u64::from(amount).saturating_sub(remaining);
    used.saturating_sub(threshold(amount, ratio)).min(hits)
}

/// Splits the hits of a denial into those over the limit and those near it, as envoyproxy/ratelimit
/// does. Only the counter of a fixed window that is charged when it denies shows which of them
/// crossed the limit; of any other limit all are over it.
fn over_and_near(status: &Status<'_>, hits: u64, ratio: f32) -> (u64, u64) {
    let over = status.beyond();
    let all = (hits, 0);
    let Some(AppliedLimit { limit, amount, .. }) = status.limit() else { return all };
    let is_charged = limit.charge_mode().counts_denied() && !limit.is_ban();
    if status.is_cached() || !is_charged || !(1..hits).contains(&over) {
        return all;
    }
    let most = u64::from(amount);
    let before = most.saturating_add(over).saturating_sub(hits);
    (over, most.saturating_sub(before.max(threshold(amount, ratio))))
}

/// Computes the threshold in single precision, as envoyproxy/ratelimit does.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the same arithmetic; a cast from a float saturates, and neither factor is negative"
)]
fn threshold(limit: u32, ratio: f32) -> u64 {
    (limit as f32 * ratio).floor() as u64
}
