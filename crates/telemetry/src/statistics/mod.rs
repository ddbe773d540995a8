//! Statistics under the names that envoyproxy/ratelimit sends to StatsD, for dashboards built for
//! it.
//!
//! Off by default, and then nothing here is allocated. Rules resolve their counters once, when a
//! policy is installed, so a request only increments. Only names that contain values of the request
//! are looked up on the request path, and their number is bounded.
//!
//! The counts of the service are those of the metrics, read again. Those of rules cannot be:
//! metrics count descriptors by decision, statistics hits, also those of requests without a
//! decision, and split a charge into hits within, near and over the limit.
//!
//! | file | contents |
//! |---|---|
//! | `counters` | counters of a rule, of the service, of a method |
//! | `name` | escaping of client text in names |
//! | `series` | counters by name, bounded |
//! | `timer` | call durations |
//! | [`statsd`] | sending them |
//! | [`mapping`] | mapping files of statsd_exporter, and the text for Prometheus |

mod counters;
pub mod mapping;
mod name;
mod series;
pub mod statsd;
mod timer;

use std::fmt::Write as _;
use std::sync::Arc;

pub use self::counters::{
    CallTimer, MethodStats, RuleStats, ServiceStats, StatCount, StatCounter, StatSources,
};
pub use self::name::{StatName, escaped};
use self::series::Series;
pub use self::timer::Timer;

/// Last segment of the name that collects series beyond the bound.
const OTHER: &str = "other";
const RULES: &str = "ratelimit.service.rate_limit.";
/// The methods with statistics.
const METHODS: [&str; 2] = ["ShouldRateLimit", "Check"];
/// Options of the statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatsOptions {
    /// Fraction of a limit above which hits count as near the limit.
    pub near_limit_ratio: f32,
    /// Maximum number of series that requests can create.
    pub max_series: usize,
}

/// The current value of a statistic.
#[derive(Clone, Copy, Debug)]
pub enum StatReading<'a> {
    /// Monotonic. Consumers omit counters at zero, as envoyproxy/ratelimit exports a counter only
    /// after its first increment.
    Counter(StatCount<'a>),
    /// Goes up and down.
    Gauge(i64),
    /// Durations.
    Timer(&'a Timer),
}

/// All statistics.
#[derive(Debug)]
pub struct Stats {
    options: StatsOptions,
    rules: Series<RuleStats>,
    unknown_domains: Series<StatCounter>,
    /// Service-wide counters.
    pub service: ServiceStats,
    methods: [Arc<MethodStats>; METHODS.len()],
}

impl Stats {
    /// Creates statistics, all at zero. `buckets_of` returns the upper bounds of the named timer's
    /// buckets, in microseconds, ascending.
    pub fn new(options: StatsOptions, buckets_of: impl Fn(&str) -> Box<[u64]>) -> Self {
        Self {
            rules: Series::new(options.max_series),
            unknown_domains: Series::new(options.max_series),
            service: ServiceStats::default(),
            methods: METHODS.map(|name| {
                let buckets = buckets_of(&time_of(name));
                let total_requests = StatCounter::default();
                Arc::new(MethodStats { total_requests, response_time: Timer::new(buckets) })
            }),
            options,
        }
    }

    /// Shows these counts of the metrics.
    #[must_use]
    pub fn of(mut self, sources: StatSources) -> Self {
        self.service.sources = sources;
        self
    }

    /// Returns the options.
    pub fn options(&self) -> &StatsOptions {
        &self.options
    }

    /// Returns the counters of a rule by its metric key, which comes from the policy. A reload
    /// keeps them.
    pub fn of_rule(&self, key: &str) -> Arc<RuleStats> {
        self.rules.of_policy(&escaped(key))
    }

    /// Returns the counters of a metric key that contains values of a request. If the key is too
    /// long or would exceed the bound on series, returns those of `other` below `above`, which
    /// comes from the policy.
    pub fn of_request(&self, key: &mut StatName, above: &str) -> Arc<RuleStats> {
        self.rules.of_request(key.finish(), || escaped(&format!("{above}.{OTHER}")))
    }

    /// Counts a request for a domain without a policy.
    pub fn domain_not_found(&self, domain: &str) {
        let mut name = StatName::default();
        name.push(domain.as_bytes());
        self.unknown_domains.of_request(name.finish(), || OTHER.to_owned()).add(1);
    }

    /// Returns the statistics of the gRPC method that `path` ends with, or `None` if the method has
    /// none.
    pub fn of_method(&self, path: &str) -> Option<&Arc<MethodStats>> {
        let name = path.rsplit('/').next()?;
        METHODS
            .iter()
            .zip(&self.methods)
            .find_map(|(method, stats)| (*method == name).then_some(stats))
    }

    /// Counts a call of the gRPC method that `path` ends with. Returns `None` if the method has no
    /// statistics.
    pub fn begin(&self, path: &str) -> Option<CallTimer> {
        self.of_method(path).cloned().map(CallTimer::begin)
    }

    /// Returns the timers with their names.
    pub fn timers(&self) -> impl Iterator<Item = (String, &Timer)> {
        METHODS
            .iter()
            .zip(&self.methods)
            .map(|(name, method)| (time_of(name), &method.response_time))
    }

    /// Calls `see` with every statistic and its name, in no particular order.
    pub fn visit(&self, mut see: impl FnMut(&str, StatReading<'_>)) {
        for (name, counter) in self.service.counters() {
            see(name, StatReading::Counter(counter));
        }
        for (name, method) in METHODS.iter().zip(&self.methods) {
            see(
                &format!("ratelimit_server.{name}.total_requests"),
                StatReading::Counter(method.total_requests.read()),
            );
        }
        for (name, timer) in self.timers() {
            see(&name, StatReading::Timer(timer));
        }
        for (name, value) in self.service.gauges() {
            see(name, StatReading::Gauge(value));
        }
        let mut name = String::new();
        for (key, counter) in self.unknown_domains.all() {
            write_name(&mut name, &key, "domain_not_found");
            see(&name, StatReading::Counter(counter.read()));
        }
        for (key, rule) in self.rules.all() {
            for (what, counter) in rule.named().into_iter().filter(|(_, counter)| counter.get() > 0)
            {
                write_name(&mut name, &key, what);
                see(&name, StatReading::Counter(counter.read()));
            }
        }
    }

    /// Renders the statistics as `name: value` lines, sorted by name. Counters at zero are omitted;
    /// a timer shows the number of calls and their mean.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        self.visit(|name, reading| match reading {
            StatReading::Counter(counter) if counter.get() > 0 => {
                lines.push(format!("{name}: {}\n", counter.get()))
            }
            StatReading::Counter(_) => {}
            StatReading::Gauge(value) => lines.push(format!("{name}: {value}\n")),
            StatReading::Timer(timer) => {
                let histogram = timer.read();
                if let Some(mean) = histogram.sum.checked_div(histogram.count()) {
                    lines.push(format!("{name}: count {}, mean {}\n", histogram.count(), ms(mean)));
                }
            }
        });
        lines.sort_unstable();
        lines.concat()
    }
}

/// Returns the name of a method's timer.
fn time_of(method: &str) -> String {
    format!("ratelimit_server.{method}.response_time")
}

/// Formats microseconds as milliseconds, with the unit.
fn ms(us: u64) -> String {
    format!("{} ms", millis(us))
}

/// Formats microseconds as exact milliseconds: `1.5` for 1500.
pub fn millis(us: u64) -> String {
    let whole = us / 1000;
    let rest = us % 1000;
    let text = format!("{whole}.{rest:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn write_name(name: &mut String, key: &str, what: &str) {
    name.clear();
    // Writing to a `String` cannot fail.
    let _ = write!(name, "{RULES}{key}.{what}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stats(max_series: usize) -> Stats {
        Stats::new(StatsOptions { near_limit_ratio: 0.8, max_series }, |_| [1_000].into())
    }

    #[test]
    fn the_text_lists_statistics_sorted_by_name() {
        let stats = stats(10);
        let sources = &stats.service.sources;
        sources.cache_hits.inc_by(7);
        sources.config_loads.inc();
        sources.invalid.inc();
        stats.of_rule("d.ip_10.0.0.1").total_hits.add(3);
        stats.domain_not_found("no:body");
        let method = stats.of_method("/a.Service/ShouldRateLimit").unwrap();
        method.total_requests.add(2);
        method.response_time.record(Duration::from_micros(1500));
        assert!(stats.of_method("/a.Service/Watch").is_none());
        insta::assert_snapshot!(stats.text(), @r"
        ratelimit.localcache.hitCount: 7
        ratelimit.localcache.lookupCount: 7
        ratelimit.localcache.missCount: 0
        ratelimit.redis_pool.cx_active: 0
        ratelimit.service.call.should_rate_limit.service_error: 1
        ratelimit.service.config_load_success: 1
        ratelimit.service.rate_limit.d.ip_10_0_0_1.total_hits: 3
        ratelimit.service.rate_limit.no_body.domain_not_found: 1
        ratelimit_server.ShouldRateLimit.response_time: count 1, mean 1.5 ms
        ratelimit_server.ShouldRateLimit.total_requests: 2
        ");
    }

    #[test]
    fn series_of_requests_beyond_the_bound_are_counted_together() {
        let stats = stats(1);
        for value in ["d.k_1", "d.k_2", "d.k_3"] {
            let mut name = StatName::default();
            name.push(value.as_bytes());
            stats.of_request(&mut name, "d").total_hits.add(1);
            stats.domain_not_found(value);
        }
        insta::assert_snapshot!(stats.text(), @r"
        ratelimit.localcache.hitCount: 0
        ratelimit.localcache.lookupCount: 0
        ratelimit.localcache.missCount: 0
        ratelimit.redis_pool.cx_active: 0
        ratelimit.service.rate_limit.d.k_1.domain_not_found: 1
        ratelimit.service.rate_limit.d.k_1.total_hits: 1
        ratelimit.service.rate_limit.d.other.total_hits: 2
        ratelimit.service.rate_limit.other.domain_not_found: 2
        ");
    }

    #[test]
    fn a_counter_reports_each_increment_once() {
        let counter = StatCounter::default();
        counter.add(2);
        let read = counter.read();
        assert_eq!((read.unsent(), counter.read().unsent(), counter.get()), (2, 0, 2));
    }
}
