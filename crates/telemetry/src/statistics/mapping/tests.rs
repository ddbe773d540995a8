use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::statistics::{Stats, StatsOptions};

fn stats(mappings: &Mappings) -> Stats {
    Stats::new(StatsOptions { near_limit_ratio: 0.8, max_series: 10 }, |timer| {
        mappings.buckets_of(timer)
    })
}

fn mapped(mappings: &Mappings, name: &str, kind: &str) -> String {
    mappings.map(name, kind).map_or("dropped".to_owned(), |mapped| {
        let labels = mapped.labels.iter().map(|(name, value)| format!("{name}={value}"));
        format!("{}{{{}}}", mapped.name, labels.collect::<Vec<_>>().join(","))
    })
}

fn read(text: &str) -> (Mappings, Vec<String>) {
    Mappings::read("map.yaml", text).unwrap()
}

#[test]
fn the_built_in_mapping_has_the_names_of_the_dashboards() {
    let mappings = Mappings::builtin(false);
    let cases = [
        (
            "ratelimit.service.rate_limit.d.a.total_hits",
            "ratelimit_service_rate_limit_total_hits{domain=d,key1=a}",
        ),
        (
            "ratelimit.service.rate_limit.d.a.b.over_limit",
            "ratelimit_service_rate_limit_over_limit{domain=d,key1=a,key2=b}",
        ),
        (
            "ratelimit.service.rate_limit.d.a.b.c.e.near_limit",
            "ratelimit_service_rate_limit_near_limit{domain=d,key1=a,key2=b}",
        ),
        (
            "ratelimit.service.rate_limit.d.a.over_limit_with_local_cache",
            "ratelimit_service_rate_limit_d_a_over_limit_with_local_cache{}",
        ),
        (
            "ratelimit.service.call.should_rate_limit.redis_error",
            "ratelimit_service_should_rate_limit_error{err_type=redis_error}",
        ),
        (
            "ratelimit_server.ShouldRateLimit.total_requests",
            "ratelimit_service_total_requests{grpc_method=ShouldRateLimit}",
        ),
        ("ratelimit.service.config_load_success", "ratelimit_service_config_load_success{}"),
        ("ratelimit.service.config_load_error", "ratelimit_service_config_load_error{}"),
        ("ratelimit.service.global_shadow_mode", "ratelimit_service_global_shadow_mode{}"),
        (
            "ratelimit.service.rate_limit.d.domain_not_found",
            "ratelimit_service_rate_limit_d_domain_not_found{}",
        ),
    ];
    for (name, expected) in cases {
        assert_eq!(mapped(&mappings, name, "counter"), expected);
    }
    assert_eq!(
        mapped(&mappings, "ratelimit.localcache.hitCount", "gauge"),
        "ratelimit_localcache_hitCount{}"
    );
}

#[test]
fn a_mapping_file_has_the_forms_that_statsd_exporter_documents() {
    let (mappings, warnings) = read(
        r#"
defaults: {observer_type: histogram, buckets: [.1, 1], match_type: glob, ttl: 0s}
mappings:
- match: "test.dispatcher.*.*.*"
  name: "dispatcher_events_total"
  labels: {processor: "$1", action: "$2", outcome: "$3", job: "test_dispatcher"}
- match: "*.signup.*.*"
  name: "signup_events_total"
  labels: {provider: "$2", outcome: "$3", job: "${1}_server"}
- match: 'test\.(\w+)\.(\w+)\.counter'
  match_type: regex
  name: "${2}_total"
  labels: {provider: "$1"}
- {match: test.foo.*, match_metric_type: gauge, name: test_foo, labels: {provider: "$1"}}
- {match: ., match_type: regex, action: drop, name: dropped, match_metric_type: counter}
"#,
    );
    assert_eq!(warnings, [""; 0]);
    let cases = [
        (
            "test.dispatcher.Foo.send.success",
            "dispatcher_events_total{action=send,job=test_dispatcher,outcome=success,processor=Foo}",
        ),
        (
            "shop.signup.web.failure",
            "signup_events_total{job=shop_server,outcome=failure,provider=web}",
        ),
        ("test.a.b.counter", "b_total{provider=a}"),
        ("test.foo.bar", "dropped"),
    ];
    for (name, expected) in cases {
        assert_eq!(mapped(&mappings, name, "counter"), expected);
    }
    assert_eq!(mapped(&mappings, "test.foo.bar", "gauge"), "test_foo{provider=bar}");
    assert_eq!(mapped(&mappings, "9test.web-server", "gauge"), "_9test_web_server{}");
    assert_eq!(mappings.buckets_of("any.timer"), [100, 1000].into());
}

#[test]
fn unsupported_parts_of_a_mapping_file_are_reported_with_their_lines() {
    let (mappings, warnings) = read(
        "mappings:\n- {match: a.*, name: a, ttl: 1m, colour: red}\n- {match: 'a*.b', name: b}\n- {match: c}\n\
         - match: '('\n  match_type: regex\n  name: d\n- {match: e, name: e, labels: {'1x': y}}\n- {match: f, name: f, buckets: [2, 1]}\n",
    );
    assert_eq!(mappings.globs.len(), 2);
    let expected = [
        "map.yaml:2: `ttl` is not supported and has no effect",
        "map.yaml:2: `colour` is unknown and has no effect",
        "map.yaml:3: mapping ignored: a `*` must be a whole level, found `a*`",
        "map.yaml:4: mapping ignored: missing `name`",
        "map.yaml:5: mapping ignored: regex parse error",
        "map.yaml:8: mapping ignored: `1x` is not a valid label name",
        "map.yaml:9: expected buckets to be ascending numbers",
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(expected), "{warning}");
    }
    for reserved in ["le", "quantile", "__name__"] {
        let (mappings, warnings) =
            read(&format!("mappings:\n- {{match: a, name: a, labels: {{{reserved}: b}}}}\n"));
        assert!(mappings.globs.is_empty(), "{reserved}");
        let expected =
            format!("map.yaml:2: mapping ignored: `{reserved}` is not a valid label name");
        assert_eq!(warnings, [expected]);
    }
    let error = |text| {
        let report = Mappings::read("map.yaml", text).unwrap_err();
        report.iter().next().unwrap().headline()
    };
    assert!(error("a: [").starts_with("map.yaml:"));
    assert!(error("- a").contains("expected `mappings:`"));
    assert!(Mappings::read("map.yaml", "").is_ok());
}

#[test]
fn the_text_adds_up_what_falls_on_one_series_and_has_the_tags_of_the_process() {
    let mappings = Mappings::builtin(false);
    let stats = stats(&mappings);
    stats.service.sources.cache_hits.inc_by(2);
    for (key, hits) in [("d.a.b", 1), ("d.a.b.c", 2), ("d.a", 4), ("d.q\"", 8)] {
        stats.of_rule(key).total_hits.add(hits);
    }
    for ms in [3, 7, 20_000] {
        stats.of_method("ShouldRateLimit").unwrap().response_time.record(Duration::from_millis(ms));
    }
    let tags = vec![("zone".to_owned(), "b".to_owned())];
    insta::assert_snapshot!(Exposition::new(Arc::new(stats), mappings, tags).render());
}

#[test]
fn the_response_time_stays_in_milliseconds_if_configured() {
    let mappings = Mappings::builtin(true);
    let stats = stats(&mappings);
    stats.of_method("ShouldRateLimit").unwrap().response_time.record(Duration::from_millis(7));
    let text = Exposition::new(Arc::new(stats), mappings, Vec::new()).render();
    assert!(
        text.contains(
            "ratelimit_service_response_time_seconds_sum{grpc_method=\"ShouldRateLimit\"} 7\n"
        ),
        "{text}"
    );
    assert!(text.contains("le=\"5\"} 0\n") && text.contains("le=\"10\"} 1\n"), "{text}");
}
