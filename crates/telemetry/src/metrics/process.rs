//! Process metrics from the operating system, under the names that Prometheus client libraries use,
//! and the build of the program.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::build_info::BuildInfo;
use crate::snapshot::{
    Labels, MetricFamily, MetricKind, MetricSeries, MetricsSnapshot, SampleValue,
};

/// Process metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Start time of the process, since the Unix epoch.
    pub begun: Duration,
}

impl Process {
    /// Returns the resident memory in bytes, if the system reports it (Linux).
    pub fn resident_bytes() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Returns the number of open file descriptors.
    fn open_files() -> Option<u64> {
        u64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()
    }

    /// Returns the CPU time of the process, with that of threads that have ended.
    fn cpu() -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }

    /// Adds the metrics that the system reports.
    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let start = ("process_start_time_seconds", Some(self.begun.as_secs_f64()));
        let help = "Start time of the process since the Unix epoch in seconds";
        add(out, MetricKind::Gauge, help, start);
        let memory = ("process_resident_memory_bytes", Self::resident_bytes().map(float));
        add(out, MetricKind::Gauge, "Resident memory size in bytes", memory);
        let files = ("process_open_fds", Self::open_files().map(float));
        add(out, MetricKind::Gauge, "Number of open file descriptors", files);
        let cpu = ("process_cpu_seconds", Some(Self::cpu().as_secs_f64()));
        let help = "Total CPU time of the process in seconds";
        add(out, MetricKind::Counter, help, cpu);
    }
}

/// Adds the build of the program, as labels.
pub(super) fn collect_build(build: BuildInfo, out: &mut MetricsSnapshot) {
    let BuildInfo { version, revision, rust } = build;
    let labels: Labels =
        [("version", version), ("revision", revision), ("rust", rust)].into_iter().collect();
    let help = "Always 1; the labels have the version of the program, the revision of its sources if it is known, and the version of the Rust compiler.";
    out.gauges("build_info", help, vec![MetricSeries { labels, value: SampleValue::Level(1) }]);
}

/// Adds a metric whose value is known, under its full name.
fn add(
    out: &mut MetricsSnapshot,
    kind: MetricKind,
    help: &str,
    (name, value): (&str, Option<f64>),
) {
    if let Some(value) = value {
        out.push_family(MetricFamily {
            name: name.to_owned(),
            kind,
            unit: None,
            help: help.to_owned(),
            series: vec![MetricSeries::plain(SampleValue::Float(value))],
        });
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}
