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
    metrics.policies.loaded("a1b2");
    assert!(
        shows("tollgate_policy_loads_total{kind=\"loaded\"} 1")
            && shows("tollgate_policy_refused 0")
    );
}

#[test]
fn the_version_of_policies_is_that_of_the_last_load() {
    let metrics = Metrics::new();
    let shown = || {
        let text = metrics.render();
        let lines = text.lines().filter(|line| line.starts_with("tollgate_policy_info"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(shown(), [""; 0]);
    metrics.policies.loaded("a1b2");
    metrics.policies.loaded("c3d4");
    metrics.policies.refused();
    assert_eq!(shown(), ["tollgate_policy_info{version=\"c3d4\"} 1"]);
}
