//! Metrics of loans, leased hits in the hands of clients: of exchanges, and of each rule that
//! lends, bounded as those of decisions.

use std::collections::HashSet;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::KindLabels;
use super::quotas::QuotaMetrics;
use crate::known_rules::{KnownRules, RuleLabels};

/// The counters of one rule that lends, in hits.
#[derive(Clone, Debug)]
pub struct LoanCounters {
    /// Lent to clients.
    pub lent: Counter,
    /// Reported as used by clients.
    pub used: Counter,
    /// Returned by clients.
    pub unused: Counter,
}

/// The metrics of loans.
#[derive(Debug)]
pub struct LoanMetrics {
    /// Calls of `LeaseService`.
    pub exchanges: Counter,
    /// Blocks of hits given to clients.
    pub blocks: Counter,
    /// Hits that may have been charged and were not handed over.
    pub lost: Counter,
    /// Hits in the hands of proxies.
    pub quotas: QuotaMetrics,
    answers: Family<KindLabels, Counter>,
    returns: Family<KindLabels, Counter>,
    hits: [(HitsName, Family<RuleLabels, Counter>); 3],
    known: KnownRules,
}

/// Name and help text of a counter of hits.
type HitsName = (&'static str, &'static str);

/// The counters of rules, in the order of the fields of [`LoanCounters`].
const HITS: [HitsName; 3] = [
    ("loan_hits_lent", "Number of hits lent to clients, by rule"),
    (
        "loan_hits_used",
        "Number of lent hits that clients reported as used, also counted as allowed decisions, by rule",
    ),
    ("loan_hits_returned", "Number of lent hits that clients returned unused, by rule"),
];

impl LoanMetrics {
    /// Creates the metrics, with series of their own for at most `max_rules` rules.
    pub(super) fn new(max_rules: usize) -> Self {
        Self {
            exchanges: Counter::default(),
            blocks: Counter::default(),
            lost: Counter::default(),
            quotas: QuotaMetrics::default(),
            answers: Family::default(),
            returns: Family::default(),
            hits: HITS.map(|name| (name, Family::default())),
            known: KnownRules::new(max_rules),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let exchanges = "Number of calls of LeaseService";
        registry.register("loan_exchanges", exchanges, self.exchanges.clone());
        let blocks = "Number of blocks of hits lent to clients";
        registry.register("loan_blocks", blocks, self.blocks.clone());
        let lost = "Number of hits possibly charged for loans and never handed over";
        registry.register("loan_hits_lost", lost, self.lost.clone());
        let answers = "Number of answers to clients that want leased hits, by kind";
        registry.register("loan_answers", answers, self.answers.clone());
        let returns = "Number of returned loans, by result";
        registry.register("loan_returns", returns, self.returns.clone());
        self.quotas.register(registry);
        for ((name, help), family) in &self.hits {
            registry.register(*name, *help, family.clone());
        }
    }

    /// Creates the series of answers and returns at zero: a rate over a series that appears with
    /// its first event would miss that event.
    pub fn show_kinds(&self, answers: &[&'static str], returns: &[&'static str]) {
        for (family, kinds) in [(&self.answers, answers), (&self.returns, returns)] {
            for kind in kinds {
                drop(family.get_or_create(&KindLabels { kind }));
            }
        }
    }

    /// Counts an answer to a client that wants leased hits.
    pub fn answered(&self, kind: &'static str) {
        self.answers.get_or_create(&KindLabels { kind }).inc();
    }

    /// Counts a returned loan.
    pub fn returned(&self, kind: &'static str) {
        self.returns.get_or_create(&KindLabels { kind }).inc();
    }

    /// Returns the counters of one rule. A reload keeps them. Rules beyond the bound share one set.
    pub fn of_rule(&self, domain: &str, rule: &str) -> LoanCounters {
        let (labels, _) = self.known.labels(domain, rule);
        let [lent, used, unused] =
            self.hits.each_ref().map(|(_, family)| family.get_or_create(&labels).clone());
        LoanCounters { lent, used, unused }
    }

    /// Removes the series of all rules except these.
    pub(super) fn keep(&self, rules: &HashSet<(&str, &str)>) {
        self.known.keep(rules, |labels| {
            for (_, family) in &self.hits {
                family.remove(labels);
            }
        });
    }
}
