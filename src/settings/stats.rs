//! Statistics under the names of envoyproxy/ratelimit, for Prometheus and StatsD.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::{Problems, SettingProblem, listen, parse};
use crate::telemetry::statistics::StatsOptions;
use crate::telemetry::statistics::statsd::{
    self, LineFormat, Rewrite, StatsdServer, StatsdTransport,
};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Statistics of envoyproxy/ratelimit")]
pub(super) struct Flags {
    /// Address that exposes the statistics of envoyproxy/ratelimit to Prometheus; `:9090` is that
    /// port on all addresses.
    #[arg(long, env = "TOLLGATE_STATS_PROMETHEUS_LISTEN", value_name = "ADDR")]
    stats_prometheus_listen: Option<String>,
    /// Path of the statistics at that address.
    #[arg(
        long,
        env = "TOLLGATE_STATS_PROMETHEUS_PATH",
        value_name = "PATH",
        default_value = "/metrics"
    )]
    stats_prometheus_path: String,
    /// A statsd_exporter mapping file that replaces the built-in names and labels.
    #[arg(long, env = "TOLLGATE_STATS_PROMETHEUS_MAPPER", value_name = "FILE")]
    stats_prometheus_mapper: Option<PathBuf>,
    /// Report the response time in milliseconds, although its built-in name ends in seconds.
    #[arg(long, env = "TOLLGATE_STATS_MILLISECONDS")]
    stats_milliseconds: bool,
    /// StatsD server to send the statistics to: tcp://HOST:PORT, udp://HOST:PORT.
    #[arg(long, env = "TOLLGATE_STATSD", value_name = "URL")]
    statsd: Option<String>,
    /// Format of StatsD lines: plain, or dogstatsd.
    #[arg(long, env = "TOLLGATE_STATSD_DIALECT", value_name = "DIALECT", default_value = "plain")]
    statsd_dialect: String,
    /// Interval at which statistics are sent.
    #[arg(long, env = "TOLLGATE_STATS_INTERVAL", value_name = "DURATION", default_value = "10s")]
    stats_interval: String,
    /// Tag to add to every statistic. May be repeated.
    #[arg(long, env = "TOLLGATE_STATS_TAG", value_name = "KEY=VALUE", value_delimiter = ',')]
    stats_tag: Vec<String>,
    /// Rewrite rule for dogstatsd: names that match PATTERN become NAME with TAGS, such as
    /// 'domain:$1,key:$2'. The first matching pattern applies. May be repeated; three lines each in
    /// the environment.
    #[arg(long, env = "TOLLGATE_STATSD_REWRITE", value_names = ["PATTERN", "NAME", "TAGS"], num_args = 3, allow_hyphen_values = true, value_delimiter = '\n')]
    statsd_rewrite: Vec<String>,
    /// Share of a limit above which hits count as near_limit.
    #[arg(long, env = "TOLLGATE_NEAR_LIMIT_RATIO", value_name = "RATIO", default_value = "0.8")]
    near_limit_ratio: String,
    /// Count the statistics and show them on the admin port's /stats, even if they are neither
    /// exposed nor sent.
    #[arg(long, env = "TOLLGATE_STATS_PAGE")]
    stats_page: bool,
    /// Maximum number of series that requests may create through detailed_metric, value_to_metric
    /// and limits of their own; further ones are counted as `other`.
    #[arg(long, env = "TOLLGATE_STATS_MAX_SERIES", value_name = "N", default_value = "10000")]
    stats_max_series: String,
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
    pub statsd: Option<statsd::StatsdOptions>,
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
        let mut tags: Vec<_> =
            self.stats_tag.iter().map(|text| problems.read("--stats-tag", text, tag)).collect();
        tags.sort();
        let path = problems.read("--stats-prometheus-path", &self.stats_prometheus_path, path);
        let prometheus = self.stats_prometheus_listen.as_ref().map(|address| PrometheusSettings {
            listen: problems.read("--stats-prometheus-listen", address, addresses),
            path,
            mapper: self.stats_prometheus_mapper.clone(),
            milliseconds: self.stats_milliseconds,
        });
        StatsSettings {
            options: StatsOptions {
                near_limit_ratio: problems.read(
                    "--near-limit-ratio",
                    &self.near_limit_ratio,
                    ratio,
                ),
                max_series: problems.read("--stats-max-series", &self.stats_max_series, number),
            },
            page: self.stats_page,
            prometheus,
            statsd: self.statsd(&tags, problems),
            tags,
        }
    }

    fn statsd(
        &self,
        tags: &[(String, String)],
        problems: &mut Problems,
    ) -> Option<statsd::StatsdOptions> {
        let dialect = problems.read("--statsd-dialect", &self.statsd_dialect, dialect);
        let interval = problems.read("--stats-interval", &self.stats_interval, interval);
        let mut rewrites = Vec::new();
        for three in self.statsd_rewrite.chunks(3) {
            let rewrite = match three {
                [pattern, name, tags] => {
                    Rewrite::new(pattern, name, tags).map_err(|error| error.to_string())
                }
                _ => Err(format!("expected PATTERN, NAME and TAGS, found `{}`", three.join(" "))),
            };
            rewrite.map(|rewrite| rewrites.push(rewrite)).unwrap_or_else(|what| {
                problems.0.push(SettingProblem { flag: "--statsd-rewrite", what });
            });
        }
        let target = problems.read("--statsd", self.statsd.as_ref()?, target)?;
        Some(statsd::StatsdOptions { target, dialect, interval, tags: tags.to_vec(), rewrites })
    }
}

fn tag(text: &str) -> Result<(String, String), String> {
    let is_plain = |text: &str| {
        !text.is_empty()
            && !text.contains(|letter: char| ":|,#".contains(letter) || letter.is_control())
    };
    match text.trim().split_once('=') {
        Some((key, value)) if is_plain(key) && is_plain(value) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err(format!("expected a tag such as zone=a without any of `:|,#`, found `{text}`")),
    }
}

fn path(text: &str) -> Result<String, String> {
    // A router treats these characters as a pattern.
    let is_plain = text.starts_with('/') && !text.contains(['{', '}', ':', '*', '?', '#']);
    if is_plain {
        Ok(text.to_owned())
    } else {
        Err(format!("expected a path such as /metrics, found `{text}`"))
    }
}

/// Parses an address. `:9090` is every address, of IPv6 if the system supports it.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    match text.trim().strip_prefix(':').map(str::parse::<u16>) {
        Some(Ok(port)) => {
            Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()])
        }
        Some(Err(_)) | None => listen::address(text).map(|address| vec![address.0]),
    }
}

fn dialect(text: &str) -> Result<LineFormat, String> {
    match text.trim() {
        "plain" => Ok(LineFormat::Plain),
        "dogstatsd" => Ok(LineFormat::DogStatsd),
        other => Err(format!("expected plain or dogstatsd, found `{other}`")),
    }
}

fn target(text: &str) -> Result<Option<StatsdServer>, String> {
    let error = || format!("expected tcp://HOST:PORT or udp://HOST:PORT, found `{text}`");
    let (scheme, address) = text.trim().split_once("://").ok_or_else(error)?;
    let protocol = match scheme {
        "tcp" => StatsdTransport::Tcp,
        "udp" => StatsdTransport::Udp,
        _ => return Err(error()),
    };
    let address = address.trim_end_matches('/');
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if has_port {
        Ok(Some(StatsdServer { protocol, address: address.to_owned() }))
    } else {
        Err(error())
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    parse::duration(text).and_then(|interval| match interval {
        Duration::ZERO => Err(format!("expected a duration above 0, found `{text}`")),
        interval => Ok(interval),
    })
}

fn ratio(text: &str) -> Result<f32, String> {
    let ratio = text.trim().parse::<f32>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("expected a number from 0 to 1 such as 0.8, found `{text}`"))
}

fn number(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("expected a whole number, found `{text}`"))
}
