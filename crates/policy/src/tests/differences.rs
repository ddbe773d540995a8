//! Differences of rules: effects on their counters, and who may hold hits.

use super::*;
use crate::diff::{ChangeKind, CounterEffect, Detail, diff};

fn changed(old: &str, new: &str) -> (CounterEffect, Vec<Detail>) {
    let changes = diff(&policies(&limited(old)), &policies(&limited(new)));
    let [change] = changes.try_into().unwrap_or_else(|changes| panic!("{changes:?}"));
    assert_eq!(change.kind, ChangeKind::Changed);
    (change.counters, change.details)
}

#[test]
fn counters_continue_under_another_amount_and_not_under_another_shape() {
    let old = "{unit: minute, requests_per_unit: 5}";
    for (new, effect) in [
        ("{unit: minute, requests_per_unit: 6}", CounterEffect::Kept),
        ("{unit: hour, requests_per_unit: 5}", CounterEffect::Anew),
        ("{unlimited: true}", CounterEffect::Dropped),
    ] {
        assert_eq!(changed(old, new).0, effect, "{new}");
    }
    assert_eq!(changed("{unlimited: true}", old).0, CounterEffect::Anew);
}

#[test]
fn holders_of_leased_hits_are_named() {
    let lent = |holders: &str| {
        let lease = format!("lease: {{size: 1%, ttl: 1s, holders: [{holders}]}}");
        format!("{{unit: minute, requests_per_unit: 60000, {lease}}}")
    };
    let old = lent("process");
    for (holders, shown) in [
        ("client", "client"),
        ("process, client", "process, client"),
        ("client, process", "process, client"),
    ] {
        let (_, details) = changed(&old, &lent(holders));
        let new = Some(shown.to_owned());
        assert_eq!(details, [Detail { what: "lease.holders", old: None, new }]);
    }
}
