//! Decision counters of rules: one set of series per rule, up to a bound. A reload removes the
//! series of rules that no longer exist.

use std::sync::Arc;

use super::undecided::{UndecidedCounters, met};
use crate::count::Counter;
use crate::family::RuleFamily;
use crate::snapshot::{MetricKind, MetricSeries, MetricsSnapshot, SampleValue};

/// The counters of one rule: descriptors that matched it, by outcome.
#[derive(Clone, Debug, Default)]
pub struct RuleMetrics {
    /// Within the limit.
    pub allowed: Counter,
    /// Over the limit.
    pub denied: Counter,
    /// Over the limit of a rule in shadow mode.
    pub shadow_denied: Counter,
    /// Matched an unlimited rule.
    pub unlimited: Counter,
    /// Allowed by `on_store_error` after a store error.
    pub presumed_allowed: Counter,
    /// Denied by `on_store_error` after a store error.
    pub presumed_denied: Counter,
    /// Without a decision after a store error.
    pub failed: Counter,
    /// Allowed descriptors near the limit.
    pub near: Counter,
    /// Store errors met, by kind and effect.
    pub undecided: Arc<UndecidedCounters>,
    /// `true` if other rules share these counters.
    pub is_shared: bool,
}

impl RuleMetrics {
    /// Creates the counters that the rules beyond the bound share.
    pub(super) fn shared() -> Self {
        Self { is_shared: true, ..Self::default() }
    }

    /// Returns the counters of decisions with their labels.
    fn outcomes(&self) -> [(&'static str, &Counter); 7] {
        [
            ("allowed", &self.allowed),
            ("denied", &self.denied),
            ("shadow_denied", &self.shadow_denied),
            ("unlimited", &self.unlimited),
            ("presumed_allowed", &self.presumed_allowed),
            ("presumed_denied", &self.presumed_denied),
            ("failed", &self.failed),
        ]
    }
}

pub(super) fn collect(rules: &RuleFamily<RuleMetrics>, out: &mut MetricsSnapshot) {
    let mut decisions = Vec::new();
    let mut undecided = Vec::new();
    rules.each(|domain, rule, metrics| {
        for (outcome, counter) in metrics.outcomes() {
            let labels = [("domain", domain), ("rule", rule), ("outcome", outcome)];
            let labels = labels.into_iter().collect();
            decisions.push(MetricSeries { labels, value: counter.into() });
        }
        for (error, effect, count) in met(metrics.undecided.table()) {
            let labels = [
                ("domain", domain),
                ("rule", rule),
                ("kind", error.kind()),
                ("effect", effect.label()),
            ];
            let labels = labels.into_iter().collect();
            undecided.push(MetricSeries { labels, value: SampleValue::Count(count) });
        }
    });
    out.counters("decisions", "Number of descriptors, by rule and outcome.", decisions);
    let near = "Number of allowed descriptors near their limit, by rule.";
    out.counters("near_limit", near, rules.series(|rule| &rule.near));
    let help = "Number of descriptors that met a store error, by rule, kind and effect; not exported while 0";
    out.push(MetricKind::Counter, "undecided", help, undecided);
}
