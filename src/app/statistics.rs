//! The statistics of envoyproxy/ratelimit: collected, exposed and sent according to the settings.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::cannot_start::CannotStart;
use super::listener::announce;
use super::threads;
use crate::admin;
use crate::settings::{PrometheusSettings, StatsSettings};
use crate::telemetry::metrics::{Metrics, MetricsOptions};
use crate::telemetry::statistics::Stats;
use crate::telemetry::statistics::mapping::{Exposition, Mappings};
use crate::telemetry::statistics::statsd::{self, StatsdExporter};

/// Timeout for the last send at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The configured statistics.
pub(super) struct StatisticsServices {
    settings: StatsSettings,
    mappings: Mappings,
}

/// Binds the listener for Prometheus, if configured.
pub(super) async fn bind(
    settings: &StatsSettings,
    problems: &mut CannotStart,
) -> Option<TcpListener> {
    let addresses = settings.prometheus.as_ref()?.listen.as_slice();
    let bound = TcpListener::bind(addresses).await;
    problems.bound("--stats-prometheus-listen", format_args!("{addresses:?}"), bound)
}

impl StatisticsServices {
    /// Loads the mapping. Problems are logged as warnings; the built-in mapping replaces a file
    /// that cannot be read or parsed.
    pub(super) fn new(settings: StatsSettings) -> Self {
        let mappings = settings.prometheus.as_ref().map(mappings).unwrap_or_default();
        Self { settings, mappings }
    }

    /// Creates the metrics of the process, including the statistics if they are enabled.
    pub(super) fn metrics(&self, max_rules: usize) -> Arc<Metrics> {
        let StatsSettings { options, .. } = &self.settings;
        let stats = self
            .settings
            .are_on()
            .then(|| Stats::new(*options, |timer| self.mappings.buckets_of(timer)));
        let near_limit_ratio = self.settings.options.near_limit_ratio;
        Metrics::with(MetricsOptions { max_rules, near_limit_ratio }, stats)
    }

    /// Exposes the statistics to Prometheus until `shutdown` completes, if there is a listener for
    /// them. Runs on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn serve(
        self,
        listener: Option<TcpListener>,
        connections: usize,
        metrics: &Arc<Metrics>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Option<JoinHandle<()>>> {
        let wanted = (listener, self.settings.prometheus, metrics.stats().cloned());
        let (Some(listener), Some(PrometheusSettings { path, .. }), Some(stats)) = wanted else {
            return Ok(None);
        };
        announce("stats", listener.local_addr());
        let exposition = Arc::new(Exposition::new(stats, self.mappings, self.settings.tags));
        let metrics = Arc::clone(&metrics.http);
        let serve = move |listener| {
            admin::serve_stats(listener, connections, path, exposition, metrics, shutdown)
        };
        threads::serve("stats", listener, serve).map(Some)
    }

    /// Starts to send the statistics to statsd, if configured.
    pub(super) fn send(&self, metrics: &Metrics) -> io::Result<Option<StatsdExporter>> {
        let wanted = self.settings.statsd.clone().zip(metrics.stats().cloned());
        wanted.map(|(options, stats)| statsd::start(stats, options)).transpose()
    }

    /// Sends the remaining statistics.
    pub(super) fn end(sending: Option<StatsdExporter>) {
        if let Some(sending) = sending
            && !sending.stop(FLUSH_TIMEOUT)
        {
            warn!("timed out sending the last statistics");
        }
    }
}

fn mappings(settings: &PrometheusSettings) -> Mappings {
    let builtin = Mappings::builtin(settings.milliseconds);
    let Some(path) = &settings.mapper else { return builtin };
    let file = path.display().to_string();
    let read = std::fs::read_to_string(path).map_err(|error| format!("{file}: {error}"));
    let read = read.and_then(|text| {
        let read = Mappings::read(&file, &text);
        read.map_err(|report| {
            report.iter().next().map(|first| first.headline()).unwrap_or_default()
        })
    });
    match read {
        Ok((mappings, warnings)) => {
            warnings.iter().for_each(|warning| warn!("--stats-prometheus-mapper: {warning}"));
            info!(file, "statistics mapping loaded");
            mappings
        }
        Err(error) => {
            warn!("--stats-prometheus-mapper: {error}; using the built-in mapping");
            builtin
        }
    }
}
