//! Metrics of loans, leased hits in the hands of clients: of exchanges, and of each rule that
//! lends, bounded as those of decisions.

use crate::count::Counter;
use crate::family::{Family, RuleFamily};
use crate::metrics::quotas::QuotaMetrics;
use crate::snapshot::MetricsSnapshot;

/// The counters of one rule that lends, in hits.
#[derive(Clone, Debug, Default)]
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
    /// Hits in the hands of proxies.
    pub quotas: QuotaMetrics,
    answers: Family<Counter, 1>,
    returns: Family<Counter, 1>,
    pub(super) rules: RuleFamily<LoanCounters>,
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
