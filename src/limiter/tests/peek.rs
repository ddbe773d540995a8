//! Peeks with hits: decided like a charge of the same hits in every mode, but nothing is taken.

use super::*;
use crate::telemetry::statistics::{Stats, StatsOptions};

const ROLES: [&str; 4] =
    ["", "quota_mode: true, ", "shadow_mode: true, ", "quota_mode: true, shadow_mode: true, "];
const BOTH: Modes = Modes { shadow: true, quota: true };

impl LimiterFixture {
    fn peek(&self, asked: &[(&str, u32)]) -> String {
        let asked: Vec<_> =
            asked.iter().map(|(entries, wanted)| hits(entries, Hits::Peek(*wanted))).collect();
        self.run("d", &asked, true).unwrap()
    }

    fn charge(&self, asked: &[(&str, u32)]) -> String {
        let asked: Vec<_> =
            asked.iter().map(|(entries, wanted)| hits(entries, Hits::Charge(*wanted))).collect();
        self.decide(&asked)
    }
}

/// Returns the codes of a response, without the remaining hits.
fn codes(said: &str) -> Vec<&str> {
    said.split(' ').map(|word| if word.starts_with("OVER") { "OVER" } else { "OK" }).collect()
}

/// Peeks and then charges a request for two limits. Returns `true` if it is denied.
fn is_denied(modes: Modes, [first, second]: [&str; 2], [a, b]: [u32; 2]) -> bool {
    let limit = "rate_limit: {unit: minute, requests_per_unit: 2}";
    let rules = format!("  - {{key: a, {first}{limit}}}\n  - {{key: b, {second}{limit}}}\n");
    let bench = bench_of(load(&format!("domain: d\ndescriptors:\n{rules}")), modes, 1 << 20);
    let peeked = bench.peek(&[("a", a), ("b", b)]);
    let charged = bench.charge(&[("a", a), ("b", b)]);
    assert_eq!(codes(&peeked), codes(&charged), "{modes:?} `{first}` `{second}` {a} {b}");
    peeked.starts_with("OVER:")
}

/// Counts the denied requests for two limits in all pairs of roles, with room and without.
fn denied_of_two(modes: Modes) -> usize {
    let pairs = ROLES.iter().flat_map(|first| ROLES.map(|second| [*first, second]));
    let all =
        pairs.flat_map(|roles| [[1, 1], [1, 3], [3, 1], [3, 3]].map(|wanted| (roles, wanted)));
    all.filter(|(roles, wanted)| is_denied(modes, *roles, *wanted)).count()
}

#[test]
fn of_two_limits_in_any_roles_and_modes_it_is_decided_as_the_charge_that_follows() {
    // Of the 4 requests of each pair: 3 + 6 * 2 by an enforced limit without room, and 7 more
    // because no vote passes.
    assert_eq!(denied_of_two(Modes::default()), 15 + 7);
    assert_eq!(denied_of_two(SHADOW), 0);
    // All limits are votes: in each of the 4 pairs without a rule in shadow mode, only the request
    // that fits neither limit is denied.
    assert_eq!(denied_of_two(QUOTA), 4);
    assert_eq!(denied_of_two(BOTH), 0);
}

#[test]
fn a_second_check_of_one_counter_sees_the_first() {
    let bench =
        bench("  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5, charge: admitted}}\n");
    assert_eq!(
        bench.peek(&[("a", 3), ("a", 2)]),
        "OK: 5 5",
        "what is left is as the counter stands"
    );
    assert_eq!(bench.peek(&[("a", 3), ("a", 3)]), "OVER: 5 OVER");
    assert_eq!(bench.peek(&[("a", 6), ("a", 5)]), "OVER: OVER 5", "what is denied is not taken");
    assert_eq!(bench.charge(&[("a", 6), ("a", 5)]), "OVER: OVER 5");
    assert_eq!(bench.charge(&[("a", 3), ("a", 2)]), "OK: 0 0");
}

#[test]
fn at_a_limit_that_is_charged_afterwards_a_peek_of_nothing_needs_room_for_one() {
    let bench = bench(
        "  - {key: t, rate_limit: {unit: minute, requests_per_unit: 2, charge: afterwards}}\n",
    );
    assert_eq!(bench.peek(&[("t", 2), ("t", 0)]), "OVER: 2 OVER");
    assert_eq!(bench.peek(&[("t", 1), ("t", 0)]), "OK: 2 2");
    assert_eq!(bench.peek(&[("t", 3)]), "OVER: OVER");
}

#[test]
fn it_needs_no_room_in_the_store_and_is_counted_nowhere() {
    let stats =
        Stats::new(StatsOptions { near_limit_ratio: 0.8, max_series: 10 }, |_| Box::new([]));
    let metrics = Metrics::with_stats(Some(stats));
    let policies = load(&format!("domain: d\ndescriptors:\n{PLAIN}"));
    let bench = bench_with(metrics, policies, SHADOW, 0);
    assert_eq!(bench.peek(&[("a", 2), ("b", 9)]), "OK: 2 OVER");
    assert_eq!(bench.metrics.stats().unwrap().service.global_shadow_mode.get(), 0);
    assert!(bench.limiter.store().is_empty());
}
