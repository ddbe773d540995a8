//! The plain-text pages of the admin port.

use std::sync::Arc;

use crate::admin::PlainPage;
use crate::limiter::InForce;
use crate::telemetry::metrics::Metrics;

/// Returns all pages.
pub(super) fn all(policies: &Arc<InForce>, metrics: &Arc<Metrics>) -> Vec<PlainPage> {
    let policies = Arc::clone(policies);
    let metrics = Arc::clone(metrics);
    vec![
        PlainPage {
            path: "/rlconfig",
            help: "all limits in force, one per line",
            text: Arc::new(move || rlconfig(&policies)),
        },
        PlainPage {
            path: "/stats",
            help: "version, process ID and statistics",
            text: Arc::new(move || stats(&metrics)),
        },
    ]
}

fn rlconfig(policies: &InForce) -> String {
    policies.snapshot().as_deref().map_or_else(String::new, |live| live.policies().listing())
}

fn stats(metrics: &Metrics) -> String {
    let name = env!("CARGO_PKG_NAME");
    let version = env!("CARGO_PKG_VERSION");
    let counted = match metrics.stats() {
        Some(stats) => stats.text(),
        None => metrics.render(),
    };
    format!("# {name} {version}, process {}\n{counted}", std::process::id())
}
