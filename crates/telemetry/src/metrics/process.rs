//! Process metrics from the operating system, under the names that Prometheus client libraries use.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Collector of process metrics.
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

    /// Returns the CPU time of the living threads.
    fn cpu() -> Option<Duration> {
        // Sums the nanoseconds of each thread: /proc/self/stat counts clock ticks, whose length
        // only libc reports.
        let mut all = Duration::ZERO;
        for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let ns =
                text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or_default();
            all = all.saturating_add(Duration::from_nanos(ns));
        }
        Some(all)
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: Option<f64>| -> fmt::Result {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        let whole = |number: u64| u32::try_from(number).ok().map(f64::from);
        gauge(
            "process_start_time_seconds",
            "Start time of the process since the Unix epoch in seconds",
            Some(self.begun.as_secs_f64()),
        )?;
        let kib = Self::resident_bytes().and_then(|bytes| whole(bytes >> 10));
        gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            kib.map(|kib| kib * 1024.0),
        )?;
        gauge(
            "process_open_fds",
            "Number of open file descriptors",
            Self::open_files().and_then(whole),
        )?;
        if let Some(cpu) = Self::cpu() {
            let counter = ConstCounter::new(cpu.as_secs_f64());
            let help = "Total CPU time of the running threads of the process in seconds";
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}
