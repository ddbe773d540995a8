//! Statistics under the names of envoyproxy/ratelimit, for Prometheus and StatsD.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::{FlagError, FlagValue, Problems, deferred, listen, parse};
use crate::telemetry::statistics::StatsOptions;
use crate::telemetry::statistics::statsd::{
    LineFormat, Rewrite, StatsdOptions, StatsdServer, StatsdTransport,
};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Statistics of envoyproxy/ratelimit")]
pub(super) struct Flags {
    /// Address that exposes the statistics of envoyproxy/ratelimit to Prometheus; `:9090` is that
    /// port on all addresses.
    #[arg(long, env = "TOLLGATE_STATS_PROMETHEUS_LISTEN", value_name = "ADDR", value_parser = deferred(addresses))]
    stats_prometheus_listen: Option<FlagValue<Vec<SocketAddr>>>,
    /// Path of the statistics at that address.
    #[arg(
        long,
        env = "TOLLGATE_STATS_PROMETHEUS_PATH",
        value_name = "PATH",
        default_value = "/metrics",
        value_parser = deferred(path)
    )]
    stats_prometheus_path: FlagValue<String>,
    /// A statsd_exporter mapping file that replaces the built-in names and labels.
    #[arg(long, env = "TOLLGATE_STATS_PROMETHEUS_MAPPER", value_name = "FILE")]
    stats_prometheus_mapper: Option<PathBuf>,
    /// Report the response time in milliseconds, although its built-in name ends in seconds.
    #[arg(long, env = "TOLLGATE_STATS_MILLISECONDS")]
    stats_milliseconds: bool,
    /// StatsD server to send the statistics to: tcp://HOST:PORT, udp://HOST:PORT.
    #[arg(long, env = "TOLLGATE_STATSD", value_name = "URL", value_parser = deferred(target))]
    statsd: Option<FlagValue<Option<StatsdServer>>>,
    /// Format of StatsD lines: plain, or dogstatsd.
    #[arg(long, env = "TOLLGATE_STATSD_DIALECT", value_name = "DIALECT", default_value = "plain", value_parser = deferred(dialect))]
    statsd_dialect: FlagValue<LineFormat>,
    /// Interval at which statistics are sent.
    #[arg(long, env = "TOLLGATE_STATS_INTERVAL", value_name = "DURATION", default_value = "10s", value_parser = deferred(parse::some_time))]
    stats_interval: FlagValue<Duration>,
    /// Tag to add to every statistic. May be repeated.
    #[arg(long, env = "TOLLGATE_STATS_TAG", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = deferred(tag))]
    stats_tag: Vec<FlagValue<(String, String)>>,
    /// Rewrite rule for dogstatsd: names that match PATTERN become NAME with TAGS, such as
    /// 'domain:$1,key:$2'. The first matching pattern applies. May be repeated; three lines each in
    /// the environment.
    #[arg(long, env = "TOLLGATE_STATSD_REWRITE", value_names = ["PATTERN", "NAME", "TAGS"], num_args = 3, allow_hyphen_values = true, value_delimiter = '\n')]
    statsd_rewrite: Vec<String>,
    /// Share of a limit above which hits count as near_limit.
    #[arg(long, env = "TOLLGATE_NEAR_LIMIT_RATIO", value_name = "RATIO", default_value = "0.8", value_parser = deferred(ratio))]
    near_limit_ratio: FlagValue<f32>,
    /// Count the statistics and show them on the admin port's /stats, even if they are neither
    /// exposed nor sent.
    #[arg(long, env = "TOLLGATE_STATS_PAGE")]
    stats_page: bool,
    /// Maximum number of series that requests may create through detailed_metric, value_to_metric
    /// and limits of their own; further ones are counted as `other`.
    #[arg(long, env = "TOLLGATE_STATS_MAX_SERIES", value_name = "N", default_value = "10000", value_parser = deferred(number))]
    stats_max_series: FlagValue<usize>,
}

/// Statistics under the names of envoyproxy/ratelimit.
#[derive(Clone, Debug)]
pub struct StatsSettings {
    /// Options of the statistics.
    pub options: StatsOptions,
    /// Set to count the statistics for the admin port even without an endpoint or a target.
    pub page: bool,
    /// Endpoint for Prometheus, if any.
    pub prometheus: Option<PrometheusSettings>,
    /// Target of StatsD, if any.
    pub statsd: Option<StatsdOptions>,
    /// Tags of every statistic, sorted.
    pub tags: Vec<(String, String)>,
}

/// Endpoint and names of the statistics for Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusSettings {
    /// Addresses to listen on; the first that is available is used.
    pub listen: Vec<SocketAddr>,
    /// Path of the statistics.
    pub path: String,
    /// A statsd_exporter mapping file.
    pub mapper: Option<PathBuf>,
    /// Set if the response time stays in milliseconds.
    pub milliseconds: bool,
}

impl StatsSettings {
    /// Returns `true` if statistics are counted.
    pub fn are_on(&self) -> bool {
        self.page || self.prometheus.is_some() || self.statsd.is_some()
    }
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> StatsSettings {
        let mut tags: Vec<_> = self.stats_tag.into_iter().map(|tag| problems.take(tag)).collect();
        tags.sort();
        let path = problems.take(self.stats_prometheus_path);
        let prometheus = self.stats_prometheus_listen.map(|addresses| PrometheusSettings {
            listen: problems.take(addresses),
            path,
            mapper: self.stats_prometheus_mapper,
            milliseconds: self.stats_milliseconds,
        });
        let options = StatsOptions {
            near_limit_ratio: problems.take(self.near_limit_ratio),
            max_series: problems.take(self.stats_max_series),
        };
        let dialect = problems.take(self.statsd_dialect);
        let interval = problems.take(self.stats_interval);
        let rewrites = rewrites(&self.statsd_rewrite, problems);
        let target = self.statsd.and_then(|target| problems.take(target));
        let statsd = target.map(|target| StatsdOptions {
            target,
            dialect,
            interval,
            tags: tags.clone(),
            rewrites,
        });
        StatsSettings { options, page: self.stats_page, prometheus, statsd, tags }
    }
}

/// Returns the rules of `--statsd-rewrite`, each of which has three values.
fn rewrites(values: &[String], problems: &mut Problems) -> Vec<Rewrite> {
    let mut rewrites = Vec::new();
    for three in values.chunks(3) {
        let rewrite = match three {
            [pattern, name, tags] => Rewrite::new(pattern, name, tags).map_err(FlagError::refused),
            _ => Err(FlagError::unexpected("PATTERN, NAME and TAGS", &three.join(" "))),
        };
        match rewrite {
            Ok(rewrite) => rewrites.push(rewrite),
            Err(what) => problems.add("--statsd-rewrite", what),
        }
    }
    rewrites
}

fn tag(text: &str) -> Result<(String, String), FlagError> {
    match text.trim().split_once('=') {
        Some((key, value)) if is_part_of_tag(key) && is_part_of_tag(value) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err(FlagError::unexpected("a tag such as zone=a without any of `:|,#`", text)),
    }
}

fn is_part_of_tag(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(|letter: char| ":|,#".contains(letter) || letter.is_control())
}

fn path(text: &str) -> Result<String, FlagError> {
    // A router treats these characters as a pattern.
    let is_plain = text.starts_with('/') && !text.contains(['{', '}', ':', '*', '?', '#']);
    if is_plain {
        Ok(text.to_owned())
    } else {
        Err(FlagError::unexpected("a path such as /metrics", text))
    }
}

/// Parses an address. `:9090` is every address, of IPv6 if the system supports it.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, FlagError> {
    match text.trim().strip_prefix(':').map(str::parse::<u16>) {
        Some(Ok(port)) => {
            Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()])
        }
        Some(Err(_)) | None => listen::address(text).map(|address| vec![address.0]),
    }
}

fn dialect(text: &str) -> Result<LineFormat, FlagError> {
    match text.trim() {
        "plain" => Ok(LineFormat::Plain),
        "dogstatsd" => Ok(LineFormat::DogStatsd),
        other => Err(FlagError::unexpected("plain or dogstatsd", other)),
    }
}

fn target(text: &str) -> Result<Option<StatsdServer>, FlagError> {
    let server = text.trim().split_once("://").and_then(|(scheme, address)| {
        let protocol = match scheme {
            "tcp" => StatsdTransport::Tcp,
            "udp" => StatsdTransport::Udp,
            _ => return None,
        };
        let address = address.trim_end_matches('/');
        let (host, port) = address.rsplit_once(':')?;
        let has_port = !host.is_empty() && port.parse::<u16>().is_ok();
        has_port.then(|| StatsdServer { protocol, address: address.to_owned() })
    });
    match server {
        Some(_) => Ok(server),
        None => Err(FlagError::unexpected("tcp://HOST:PORT or udp://HOST:PORT", text)),
    }
}

fn ratio(text: &str) -> Result<f32, FlagError> {
    let ratio = text.trim().parse::<f32>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| FlagError::unexpected("a number from 0 to 1 such as 0.8", text))
}

fn number(text: &str) -> Result<usize, FlagError> {
    text.trim().parse().map_err(|_| FlagError::unexpected("a whole number", text))
}
