//! Metrics of loads of policies and of certificates.

use std::time::SystemTime;

use parking_lot::Mutex;

use crate::count::{Counter, Gauge};
use crate::snapshot::{Labels, MetricSeries, MetricsSnapshot, SampleValue};

/// Numbers of loads by result.
#[derive(Debug, Default)]
struct LoadCounters {
    loaded: Counter,
    refused: Counter,
    /// 1 if the last load was refused.
    is_refused: Gauge,
}

/// Metrics of policy loads.
#[derive(Debug, Default)]
pub struct PolicyMetrics {
    loads: LoadCounters,
    /// Time of the last successful load, in seconds since the epoch.
    loaded_at: Gauge,
    /// Version of the policies in force; empty before the first load.
    version: Mutex<String>,
}

/// Metrics of loads of certificates.
#[derive(Debug, Default)]
pub struct TlsMetrics(LoadCounters);

impl LoadCounters {
    fn loaded(&self) {
        self.loaded.inc();
        self.is_refused.set(0);
    }

    fn refused(&self) {
        self.refused.inc();
        self.is_refused.set(1);
    }

    fn series(&self) -> Vec<MetricSeries> {
        let kinds = [("loaded", &self.loaded), ("refused", &self.refused)];
        let series = kinds.map(|(kind, counter)| {
            let labels: Labels = [("kind", kind)].into_iter().collect();
            MetricSeries { labels, value: counter.into() }
        });
        series.into()
    }
}

impl PolicyMetrics {
    /// Counts policies that came into force, and exports their version.
    pub fn loaded(&self, version: &str) {
        self.loads.loaded();
        version.clone_into(&mut self.version.lock());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.loaded_at.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    }

    /// Counts refused policies.
    pub fn refused(&self) {
        self.loads.refused();
    }

    /// Returns the counters of loads that came into force, and of those that were refused.
    pub(super) fn counters(&self) -> [Counter; 2] {
        [&self.loads.loaded, &self.loads.refused].map(Counter::clone)
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let at = "Time of the last successful policy load since the Unix epoch in seconds.";
        out.gauge("policy_loaded_timestamp_seconds", at, &self.loaded_at);
        let version = self.version.lock();
        if !version.is_empty() {
            let labels: Labels = [("version", version.as_str())].into_iter().collect();
            let help = "Always 1; the label has the version of the policies in force, which is the same in all processes with equal policies.";
            out.gauges(
                "policy_info",
                help,
                vec![MetricSeries { labels, value: SampleValue::Level(1) }],
            );
        }
        let loads = "Number of policy loads, by result.";
        out.counters("policy_loads", loads, self.loads.series());
        let help = "1 if the last policy load was refused, so that older policies or none are in force; otherwise 0.";
        out.gauge("policy_refused", help, &self.loads.is_refused);
    }
}

impl TlsMetrics {
    /// Counts certificates that came into force.
    pub fn loaded(&self) {
        self.0.loaded();
    }

    /// Counts refused certificates.
    pub fn refused(&self) {
        self.0.refused();
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let loads = "Number of certificate loads of listeners, by result.";
        out.counters("tls_loads", loads, self.0.series());
        let help = "1 if the last certificate load was refused, so that older certificates are in force; otherwise 0.";
        out.gauge("tls_refused", help, &self.0.is_refused);
    }
}
