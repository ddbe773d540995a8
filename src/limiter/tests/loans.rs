//! Loans: what is counted and recorded of the hits that clients and proxies hold.

use super::*;
use crate::limiter::LoanTarget;
use crate::telemetry::journal::{DenialFilter, Journal};
use crate::telemetry::metrics::LoanCounters;

const RULES: &str = "
  - key: lent
    rate_limit: {unit: minute, requests_per_unit: 6000, lease: {size: 1%, ttl: 1s, holders: [client]}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 60}}
";

fn with_target<T>(
    bench: &LimiterFixture,
    entries: &str,
    then: impl FnOnce(&Live, &LoanTarget<'_>, &Descriptor<'_>) -> T,
) -> T {
    let snapshot = bench.limiter.snapshot();
    let live = snapshot.as_deref().unwrap();
    let descriptor =
        Descriptor::new([entry(entries)].into_iter().collect(), Hits::Peek(0), None, None);
    let target = bench.limiter.loan_target(live, "d", &descriptor).unwrap();
    then(live, &target, &descriptor)
}

/// Returns the hits of a rule by its metrics: lent, used, unused and held, allowed and denied.
fn counted(bench: &LimiterFixture, rule: &str) -> ([u64; 3], i64, [u64; 2]) {
    let LoanCounters { lent, used, unused, .. } = bench.metrics.loans.of_rule("d", rule);
    let decisions = bench.metrics.of_rule("d", rule);
    let decided = [&decisions.allowed, &decisions.denied].map(|counter| counter.get());
    let held = bench.metrics.loans.held("d", rule).map_or(0, |held| held.clients);
    ([lent.get(), used.get(), unused.get()], held, decided)
}

#[test]
fn hits_of_loans_are_counted_by_rule_and_those_used_as_decisions_too() {
    let bench = bench(RULES);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let end =
        Timestamp::from_micros(u64::try_from(now.as_micros()).unwrap()) + Micros::from_secs(900);
    for rule in ["lent", "plain"] {
        with_target(&bench, rule, |_, target, _| {
            target.count_lent(10, end);
            target.count_returned(3, 4, end);
            target.count_decided(20, 5);
        });
    }
    assert_eq!(counted(&bench, "lent"), ([10, 3, 4], 3, [23, 5]));
    assert_eq!(counted(&bench, "plain"), ([0; 3], 0, [23, 5]), "it lends nothing");
}

#[test]
fn a_denial_of_a_loan_is_recorded_where_there_is_a_journal() {
    let mut bench = bench(RULES);
    let journal = Journal::new(1 << 20, 1);
    let deny = |bench: &LimiterFixture| {
        with_target(bench, "lent=1", |live, target, descriptor| {
            bench.limiter.record_loan_denial(live, target, descriptor, Micros::from_secs(7));
        });
    };
    deny(&bench);
    bench.limiter = bench.limiter.with_recorder(journal.recorder());
    deny(&bench);
    let found = journal.read().find(&DenialFilter::default());
    let [found] = found.as_slice() else { panic!("{} keys", found.len()) };
    assert_eq!((found.rule.as_str(), found.key.as_str()), ("lent", "lent=1"));
    assert_eq!((found.record.count, found.record.hits), (1, 1));
    let wait = found.record.retry_at.map(|at| at.since(found.record.last));
    assert_eq!(wait, Some(Micros::from_secs(7)));
}
