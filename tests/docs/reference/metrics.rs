//! `reference/metrics.md`, generated from the metrics themselves, with a series of each family.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tollgate::store::StoreError;
use tollgate::telemetry::candidates::CandidateSource;
use tollgate::telemetry::http::{HttpCloseReason, HttpPort, HttpRefusal};
use tollgate::telemetry::metrics::Metrics;

use super::super::is_written;
use super::{cell, head, table};
use crate::support::root;

/// Placeholder for a label value that comes from policies or addresses.
const SOME: &str = "…";

/// A metric: its type, help text, and labels with their values.
#[derive(Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

#[test]
fn the_metrics_are_those_of_the_process() {
    let metrics = all();
    let text = "The metrics at `/metrics` of the HTTP port (8080), in the text formats of Prometheus and OpenMetrics. The number of \
                series is bounded by `--metrics-max-rules` and by the number of Redis servers. The alerts are described in [the \
                runbook](../runbook.md). For the statistics of envoyproxy/ratelimit, see [migrating](../migrating.md).";
    let rows = metrics.iter().map(|(name, metric)| {
        let labels = metric.labels.iter().map(|(label, values)| {
            match values.iter().collect::<Vec<_>>().as_slice() {
                [one] if *one == SOME => format!("`{label}`"),
                values => {
                    format!(
                        "`{label}`: {}",
                        values
                            .iter()
                            .map(|value| format!("`{value}`"))
                            .collect::<Vec<_>>()
                            .join(", ")
                    )
                }
            }
        });
        [
            format!("`{name}`"),
            metric.kind.clone(),
            labels.collect::<Vec<_>>().join("<br>"),
            cell(&metric.help),
        ]
    });
    let mut page = head("Metrics", text);
    write!(page, "{}", table(["metric", "kind", "labels", "meaning"], rows)).unwrap();
    is_written("reference/metrics.md", &page);
}

/// Every registered metric has a series above; without one it is not exposed, and would be missing
/// from the page.
#[test]
fn every_metric_that_is_registered_is_in_the_reference() {
    let known: Vec<String> = all().into_keys().collect();
    let mut folders = vec![root().join("crates/telemetry/src")];
    let mut registered = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text =
                std::fs::read_to_string(&path).unwrap_or_default().replace(char::is_whitespace, "");
            let names = [
                "out.counter(\"",
                "out.counters(\"",
                "out.gauge(\"",
                "out.gauges(\"",
                "out.histograms(\"",
            ]
            .into_iter()
            .flat_map(|call| text.split(call).skip(1));
            for name in names.filter_map(|rest| rest.split('"').next()) {
                registered += 1;
                let is_it = |known: &&String| known.starts_with(&format!("tollgate_{name}"));
                assert!(
                    known.iter().any(|known| is_it(&known)),
                    "{name} of {} is given no series here",
                    path.display()
                );
            }
        }
    }
    assert!(registered > 80, "only {registered} were found");
}

/// Returns all metrics by name.
fn all() -> BTreeMap<String, Metric> {
    let metrics = Metrics::new();
    let _rule = metrics.of_rule(SOME, SOME);
    let _holds = metrics.holds.of_rule(SOME, SOME);
    let _loans = metrics.loans.of_rule(SOME, SOME);
    metrics.loans.show_kinds(&[SOME], &[SOME]);
    metrics.loans.quotas.show_kinds(&["silent", "unacknowledged"]);
    for from in [CandidateSource::Rule, CandidateSource::Policy] {
        drop(metrics.candidates.of_rule(from, SOME, SOME));
    }
    let _latencies = [metrics.call_latency(), metrics.store.node_latency(SOME)];
    StoreError::ALL.iter().for_each(|error| metrics.store.show_store_error(error.kind()));
    metrics.store.servers.set(SOME, 0, 0.0);
    metrics.store.servers.set_replica(SOME, SOME, 0.0);
    metrics.clients.handshake_failed(SOME);
    drop(metrics.http.connections(HttpPort::Stats));
    metrics.http.cut(HttpPort::Stats, HttpCloseReason::Full);
    metrics.http.refused(HttpPort::Stats, HttpRefusal::Busy);
    metrics.policies.loaded(SOME);
    let mut all = read(&metrics.render_plain());
    // Another toolchain or release is no change of the reference.
    for values in all.get_mut("tollgate_build_info").unwrap().labels.values_mut() {
        *values = BTreeSet::from([SOME.to_owned()]);
    }
    all
}

fn read(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            metrics.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            metrics.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((name, labels)) = line.split_once('{') {
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(name);
            let (labels, _) = labels.rsplit_once('}').unwrap();
            for (label, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
                if label != "le" {
                    let values = metrics
                        .entry(name.to_owned())
                        .or_default()
                        .labels
                        .entry(label.to_owned())
                        .or_default();
                    values.insert(value.trim_end_matches('"').to_owned());
                }
            }
        }
    }
    metrics
}
