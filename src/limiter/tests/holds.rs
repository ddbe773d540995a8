//! Operations on holds: their counters, and their statuses if the store fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

use super::*;

const RULES: &str = "
  - key: tenant
    rate_limit:
      { requests_per_unit: 100, unit: minute, on_store_error: deny, hold: { ttl: 1m } }
  - key: permits
    rate_limit: { algorithm: concurrency, in_flight: 2, hold: { ttl: 1m } }
  - key: plain
    rate_limit: { requests_per_unit: 100, unit: minute, on_store_error: deny }";

fn charge(entries: &str, count: u32) -> DescriptorInput<'_> {
    hits(entries, Hits::Charge(count))
}

impl LimiterFixture {
    /// Returns the value of a metric of the rule `tenant`.
    fn of_tenant(&self, name: &str) -> String {
        self.value(&format!("tollgate_{name}_total{{domain=\"d\",rule=\"tenant\"}} "))
    }

    fn value(&self, series: &str) -> String {
        let text = self.metrics.render();
        text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or("absent").to_owned()
    }
}

#[test]
fn effects_are_counted_by_rule() {
    let bench = bench(RULES);
    bench.decide(&[charge("tenant=a,tollgate.reserve=r", 40)]);
    bench.decide(&[charge("tenant=a,tollgate.reserve=r", 10)]);
    assert_eq!(bench.decide(&[charge("tenant=a,tollgate.commit=r", 50)]), "OK: 40");
    bench.decide(&[charge("tenant=a,tollgate.commit=unknown", 3)]);
    bench.decide(&[charge("tenant=a,tollgate.settle=r", 1)]);
    bench.decide(&[charge("tenant=a,tollgate.commit=r", 5)]);
    bench.decide(&[charge(&format!("tenant=a,tollgate.reserve={}", "x".repeat(129)), 1)]);
    for (name, expected) in [
        ("hold_reserved", "2"),
        ("hold_ids_repeated", "1"),
        ("hold_committed", "1"),
        ("hold_overrun_hits", "10"),
        ("hold_unknown", "1"),
        ("hold_unknown_hits", "3"),
        ("hold_settled", "1"),
        ("hold_ids_refused", "1"),
        ("hold_unrecorded", "0"),
    ] {
        assert_eq!(bench.of_tenant(name), expected, "{name}");
    }
    let bucket = |le: &str| {
        bench.value(&format!(
            "tollgate_hold_cost_ratio_bucket{{le=\"{le}\",domain=\"d\",rule=\"tenant\"}} "
        ))
    };
    assert_eq!([bucket("1.1"), bucket("1.25")], ["0", "1"].map(str::to_owned));
}

#[test]
fn a_fifth_hold_of_an_id_is_charged_but_not_recorded() {
    let bench = bench(RULES);
    let last = bench.times(5, charge("tenant=a,tollgate.reserve=r", 10));
    assert_eq!(last, "OK: 50");
    assert_eq!([bench.of_tenant("hold_reserved"), bench.of_tenant("hold_unrecorded")], ["4", "1"]);
}

#[test]
fn permits_are_counted_as_holds() {
    let bench = bench(RULES);
    assert_eq!(bench.times(3, charge("permits=a,tollgate.reserve=r", 1)), "OVER: OVER");
    assert_eq!(bench.decide(&[charge("permits=a,tollgate.settle=r", 1)]), "OK: 1");
    let of_permits = |name: &str| {
        bench.value(&format!("tollgate_{name}_total{{domain=\"d\",rule=\"permits\"}} "))
    };
    assert_eq!([of_permits("hold_reserved"), of_permits("hold_settled")], ["2", "1"]);
}

#[test]
fn an_operation_on_a_rule_without_holds_is_counted() {
    let bench = bench(RULES);
    assert_eq!(bench.decide(&[charge("plain=a,tollgate.reserve=r", 40)]), "OK: 60");
    assert_eq!(bench.decide(&[charge("plain=a,tollgate.commit=r", 90)]), "OK: 60");
    assert_eq!(bench.decide(&[charge("other=a,tollgate.settle=r", 1)]), "OK: -");
    assert_eq!(bench.value("tollgate_hold_unsupported_total "), "3");
    let series = "tollgate_hold_reserved_total{domain=\"d\",rule=\"plain\"} ";
    assert_eq!(bench.value(series), "absent");
}

#[test]
fn a_descriptor_that_is_only_recorded_needs_no_holds() {
    let bench = bench(
        "
  - key: tenant
    rate_limit: { requests_per_unit: 100, unit: minute, record: [user], hold: { ttl: 1m } }",
    );
    let reserve = |other: &str| {
        let other = format!("{other}=ann,tollgate.reserve=r");
        bench.decide(&[charge("tenant=a,tollgate.reserve=r", 4), charge(&other, 4)]);
        bench.value("tollgate_hold_unsupported_total ")
    };
    assert_eq!(reserve("user"), "0");
    assert_eq!(reserve("usr"), "1");
}

/// Counts log entries.
struct LogCounter(Arc<AtomicUsize>);

impl Subscriber for LogCounter {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn each_rule_without_holds_is_warned_of_once() {
    let bench = bench(RULES);
    let warnings = Arc::new(AtomicUsize::new(0));
    with_default(LogCounter(Arc::clone(&warnings)), || {
        for entries in ["plain=a,tollgate.reserve=r", "other=a,tollgate.settle=r"] {
            bench.times(3, charge(entries, 1));
        }
    });
    assert_eq!(warnings.load(Ordering::Relaxed), 2);
}

#[test]
fn a_commit_that_fails_in_the_store_is_ok_and_counted() {
    let full = || bench_of(load(&format!("domain: d\ndescriptors:{RULES}")), Modes::default(), 1);
    let bench = full();
    assert_eq!(bench.decide(&[charge("tenant=a,tollgate.reserve=r", 40)]), "OVER: OVER");
    assert_eq!(bench.decide(&[charge("tenant=a,tollgate.commit=r", 40)]), "OK: -");
    assert_eq!(bench.value("tollgate_hold_end_failures_total "), "1");
    // A settle of an ID that the same request commits changes nothing, and has no vote either.
    let both = [charge("tenant=a,tollgate.commit=r", 40), charge("tenant=a,tollgate.settle=r", 1)];
    assert!(full().decide(&both).starts_with("OK:"));
}

#[test]
fn without_holds_or_by_a_refused_id_a_reserve_is_a_plain_charge_and_a_commit_changes_nothing() {
    let bench = bench(RULES);
    let refused = "x".repeat(129);
    for (entries, id) in [("plain=a", "r"), ("tenant=a", refused.as_str())] {
        let reserve = format!("{entries},tollgate.reserve={id}");
        assert_eq!(bench.decide(&[charge(&reserve, 40)]), "OK: 60", "{entries}");
        let commit = format!("{entries},tollgate.commit={id}");
        assert_eq!(bench.decide(&[charge(&commit, 10)]), "OK: 60", "{entries}");
    }
}

#[test]
fn a_settle_beside_a_commit_of_its_id_at_its_counter_changes_nothing() {
    for (settle, settled) in [
        ("tenant=a,tollgate.settle=r", "0"),
        ("tenant=a,tollgate.settle=s", "1"),
        ("tenant=b,tollgate.settle=r", "1"),
    ] {
        let bench = bench(RULES);
        for held in [
            "tenant=a,tollgate.reserve=r",
            "tenant=a,tollgate.reserve=s",
            "tenant=b,tollgate.reserve=r",
        ] {
            bench.decide(&[charge(held, 10)]);
        }
        bench.decide(&[charge(settle, 1), charge("tenant=a,tollgate.commit=r", 5)]);
        let counts = ["hold_settled", "hold_committed"].map(|name| bench.of_tenant(name));
        assert_eq!(counts, [settled, "1"], "{settle}");
    }
}
