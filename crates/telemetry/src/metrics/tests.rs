//! Metrics that are shown before their first event.

use super::*;

#[test]
fn series_of_loads_and_refusals_exist_from_the_start() {
    let metrics = Metrics::new();
    let shows = |line: &str| metrics.render().lines().any(|shown| shown == line);
    assert!(
        shows("tollgate_policy_loads_total{kind=\"refused\"} 0")
            && shows("tollgate_policy_refused 0")
    );
    metrics.policies.refused();
    assert!(
        shows("tollgate_policy_loads_total{kind=\"refused\"} 1")
            && shows("tollgate_policy_refused 1")
    );
    metrics.policies.loaded();
    assert!(
        shows("tollgate_policy_loads_total{kind=\"loaded\"} 1")
            && shows("tollgate_policy_refused 0")
    );
}
