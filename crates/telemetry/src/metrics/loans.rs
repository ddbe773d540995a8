//! Metrics of loans, leased hits in the hands of clients: of exchanges, and of each rule that
//! lends, bounded as those of decisions.

use std::collections::HashSet;

use super::held::{ClientHits, HeldHits, ProxyHits};
use super::quotas::QuotaMetrics;
use crate::count::{Counter, Gauge};
use crate::family::{Family, RuleFamily};
use crate::snapshot::{MetricSeries, MetricsSnapshot, SampleValue};

/// The counters of one rule that lends, in hits.
#[derive(Clone, Debug, Default)]
pub struct LoanCounters {
    /// Lent to clients.
    pub lent: Counter,
    /// Reported as used by clients.
    pub used: Counter,
    /// Returned by clients.
    pub unused: Counter,
    /// In the hands of clients.
    pub held: ClientHits,
}

/// The metrics of loans.
#[derive(Debug)]
pub struct LoanMetrics {
    /// Calls of `LeaseService`.
    pub exchanges: Counter,
    /// Hits in the hands of proxies.
    pub quotas: QuotaMetrics,
    answers: Family<Counter, 1>,
    returns: Family<Counter, 1>,
    rules: RuleFamily<LoanCounters>,
    proxies: RuleFamily<Gauge>,
}

/// The metrics of loans at the store.
#[derive(Debug, Default)]
pub struct BlockMetrics {
    /// Blocks of hits given to clients.
    pub blocks: Counter,
    /// Hits that may have been charged and were not handed over.
    pub lost: Counter,
}

impl LoanMetrics {
    /// Creates the metrics, with series of their own for at most `max_rules` rules.
    pub(super) fn new(max_rules: usize) -> Self {
        Self {
            exchanges: Counter::default(),
            quotas: QuotaMetrics::default(),
            answers: Family::default(),
            returns: Family::default(),
            rules: RuleFamily::new(max_rules, LoanCounters::default()),
            proxies: RuleFamily::new(max_rules, Gauge::default()),
        }
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        out.counter("loan_exchanges", "Number of calls of LeaseService.", &self.exchanges);
        let answers = "Number of answers to clients that want leased hits, by kind.";
        out.counters("loan_answers", answers, self.answers.series(["kind"]));
        let returns = "Number of returned loans, by result.";
        out.counters("loan_returns", returns, self.returns.series(["kind"]));
        self.quotas.collect(out);
        let lent = "Number of hits lent to clients, by rule.";
        out.counters("loan_hits_lent", lent, self.rules.series(|rule| &rule.lent));
        let used = "Number of lent hits that clients reported as used, also counted as allowed decisions, by rule.";
        out.counters("loan_hits_used", used, self.rules.series(|rule| &rule.used));
        let unused = "Number of lent hits that clients returned unused, by rule.";
        out.counters("loan_hits_returned", unused, self.rules.series(|rule| &rule.unused));
        let held = "Number of hits lent by this process that clients or proxies hold, less those taken back for other processes.";
        out.gauges("loan_hits_held", held, self.held_series());
    }

    fn held_series(&self) -> Vec<MetricSeries> {
        let mut series = Vec::new();
        let mut add = |domain: &str, rule: &str, holder: &str, hits| {
            let labels = [("domain", domain), ("rule", rule), ("holder", holder)];
            let labels = labels.into_iter().collect();
            series.push(MetricSeries { labels, value: SampleValue::Level(hits) });
        };
        self.rules.each(|domain, rule, loans| add(domain, rule, "client", loans.held.held()));
        self.proxies.each(|domain, rule, hits| add(domain, rule, "proxy", hits.get()));
        series
    }

    /// Removes the series of all rules except these.
    pub(super) fn keep_rules(&self, rules: &HashSet<(&str, &str)>) {
        self.rules.keep(rules);
        self.proxies.keep(rules);
    }

    /// Returns the hits of a rule in the hands of others; `None` if it has lent none, or shares its
    /// series.
    pub fn held(&self, domain: &str, rule: &str) -> Option<HeldHits> {
        let clients = self.rules.own(domain, rule).map(|loans| loans.held.held());
        let proxies = self.proxies.own(domain, rule).map(|hits| hits.get());
        let is_lent = clients.is_some() || proxies.is_some();
        is_lent.then(|| HeldHits {
            clients: clients.unwrap_or_default(),
            proxies: proxies.unwrap_or_default(),
        })
    }

    /// Returns the part of a proxy in the hits of a rule.
    pub fn proxy_hits(&self, domain: &str, rule: &str) -> ProxyHits {
        ProxyHits::of(self.proxies.of(domain, rule))
    }

    /// Creates the series of answers and returns at zero.
    pub fn show_kinds(&self, answers: &[&'static str], returns: &[&'static str]) {
        self.answers.show(answers.iter().map(|kind| [*kind]));
        self.returns.show(returns.iter().map(|kind| [*kind]));
    }

    /// Counts an answer to a client that wants leased hits.
    pub fn count_answer(&self, kind: &'static str) {
        self.answers.of([kind]).inc();
    }

    /// Counts a returned loan.
    pub fn count_return(&self, kind: &'static str) {
        self.returns.of([kind]).inc();
    }

    /// Returns the counters of one rule. A reload keeps them. Rules beyond the bound share one set.
    pub fn of_rule(&self, domain: &str, rule: &str) -> LoanCounters {
        self.rules.of(domain, rule)
    }
}

impl BlockMetrics {
    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        out.counter("loan_blocks", "Number of blocks of hits lent to clients.", &self.blocks);
        let lost = "Number of hits possibly charged for loans and never handed over.";
        out.counter("loan_hits_lost", lost, &self.lost);
    }
}
