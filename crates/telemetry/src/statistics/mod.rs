//! Statistics under the names that envoyproxy/ratelimit sends to StatsD, for dashboards built for
//! it.
//!
//! Off by default, and then nothing here is allocated. Rules resolve their counters once, when a
//! policy is installed, so a request only increments. Only names that contain values of the request
//! are looked up on the request path, and their number is bounded.
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

pub use self::counters::{CallTimer, Counter, MethodStats, RuleStats, ServiceStats};
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
    Counter(&'a Counter),
    /// Goes up and down.
    Gauge(i64),
    /// Durations.
    Timer(&'a Timer),
}

/// A gauge whose value is stored elsewhere.
struct Gauge {
    name: &'static str,
    read: Box<dyn Fn() -> i64 + Send + Sync>,
}

/// All statistics.
pub struct Stats {
    options: StatsOptions,
    rules: Series<RuleStats>,
    unknown_domains: Series<Counter>,
    /// Service-wide counters.
    pub service: ServiceStats,
    methods: [Arc<MethodStats>; METHODS.len()],
    gauges: Vec<Gauge>,
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stats")
    }
}

impl Stats {
    /// Creates statistics, all at zero. `buckets_of` returns the upper bounds of the named timer's
    /// buckets, in microseconds, ascending.
    pub fn new(options: StatsOptions, buckets_of: impl Fn(&str) -> Box<[u64]>) -> Self {
        let method = |name| {
            let buckets = buckets_of(&format!("ratelimit_server.{name}.response_time"));
            Arc::new(MethodStats {
                total_requests: Counter::default(),
                response_time: Timer::new(buckets),
            })
        };
        Self {
            rules: Series::new(options.max_series),
            unknown_domains: Series::new(options.max_series),
            service: ServiceStats::default(),
            methods: METHODS.map(method),
            gauges: Vec::new(),
            options,
        }
    }

    /// Adds a gauge whose value `read` returns.
    pub fn with_gauge(
        mut self,
        name: &'static str,
        read: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Self {
        self.gauges.push(Gauge { name, read: Box::new(read) });
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
        let named = |(name, method)| (format!("ratelimit_server.{name}.response_time"), method);
        METHODS
            .iter()
            .zip(&self.methods)
            .map(named)
            .map(|(name, method)| (name, &method.response_time))
    }

    /// Calls `see` with every statistic and its name, in no particular order.
    pub fn visit(&self, mut see: impl FnMut(&str, StatReading<'_>)) {
        for (name, counter) in self.service.named() {
            see(name, StatReading::Counter(counter));
        }
        for (name, method) in METHODS.iter().zip(&self.methods) {
            see(
                &format!("ratelimit_server.{name}.total_requests"),
                StatReading::Counter(&method.total_requests),
            );
        }
        for (name, timer) in self.timers() {
            see(&name, StatReading::Timer(timer));
        }
        for gauge in &self.gauges {
            see(gauge.name, StatReading::Gauge((gauge.read)()));
        }
        let mut name = String::new();
        for (key, counter) in self.unknown_domains.all() {
            write_name(&mut name, &key, "domain_not_found");
            see(&name, StatReading::Counter(&counter));
        }
        for (key, rule) in self.rules.all() {
            for (what, counter) in rule.named().into_iter().filter(|(_, counter)| counter.get() > 0)
            {
                write_name(&mut name, &key, what);
                see(&name, StatReading::Counter(counter));
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
        let stats = stats(10).with_gauge("ratelimit.localcache.hitCount", || 7);
        stats.of_rule("d.ip_10.0.0.1").total_hits.add(3);
        stats.domain_not_found("no:body");
        stats.service.config_load_success.add(1);
        stats.service.service_error.add(1);
        let method = stats.of_method("/a.Service/ShouldRateLimit").unwrap();
        method.total_requests.add(2);
        method.response_time.record(Duration::from_micros(1500));
        assert!(stats.of_method("/a.Service/Watch").is_none());
        insta::assert_snapshot!(stats.text(), @r"
        ratelimit.localcache.hitCount: 7
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
        ratelimit.service.rate_limit.d.k_1.domain_not_found: 1
        ratelimit.service.rate_limit.d.k_1.total_hits: 1
        ratelimit.service.rate_limit.d.other.total_hits: 2
        ratelimit.service.rate_limit.other.domain_not_found: 2
        ");
    }

    #[test]
    fn a_counter_reports_each_increment_once() {
        let counter = Counter::default();
        counter.add(2);
        assert_eq!((counter.unsent(), counter.unsent(), counter.get()), (2, 0, 2));
    }
}
