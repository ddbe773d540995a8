//! Statistics as exposed to Prometheus.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{address, known_requests, own_limit, serve};
use crate::support::policy::Policies;
use crate::support::process::Process;
use crate::support::rls::{Client, channel};
use crate::support::tollgate::{Tollgate, command, quiet};
use crate::support::web::Web;

/// Returns the metrics exposed at `path`, without comments and response times.
async fn shown(service: &mut Tollgate, path: &str) -> String {
    let reply = Web::new(address(&mut service.process)).get(path).await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    let lines =
        reply.body.lines().filter(|line| !line.starts_with('#') && !line.contains("response_time"));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn queries_of_envoyproxy_ratelimit_dashboards_find_their_series() {
    let mut serving = serve(&["--stats-prometheus-listen", "127.0.0.1:0"]).await;
    known_requests(&serving.client).await;
    let mut health = HealthClient::new(channel(serving.service.grpc).await);
    health.check(HealthCheckRequest::default()).await.unwrap();
    insta::assert_snapshot!(shown(&mut serving.service, "/metrics").await, @r#"
    ratelimit_localcache_hitCount 0
    ratelimit_localcache_lookupCount 0
    ratelimit_localcache_missCount 0
    ratelimit_redis_pool_cx_active 0
    ratelimit_service_config_load_success 1
    ratelimit_service_rate_limit_elsewhere_domain_not_found 1
    ratelimit_service_rate_limit_near_limit{domain="test",key1="user"} 1
    ratelimit_service_rate_limit_over_limit{domain="test",key1="user"} 1
    ratelimit_service_rate_limit_total_hits{domain="test",key1="plan_free",key2="user"} 1
    ratelimit_service_rate_limit_total_hits{domain="test",key1="user"} 3
    ratelimit_service_rate_limit_within_limit{domain="test",key1="plan_free",key2="user"} 1
    ratelimit_service_rate_limit_within_limit{domain="test",key1="user"} 2
    ratelimit_service_total_requests{grpc_method="Check"} 1
    ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 5
    "#);
    let text = Web::new(address(&mut serving.service.process)).get("/metrics").await.body;
    assert!(text.contains("# TYPE ratelimit_service_rate_limit_total_hits counter\n"), "{text}");
    let times = "ratelimit_service_response_time_seconds";
    assert!(text.contains(&format!("# TYPE {times} histogram\n")), "{text}");
    assert!(
        text.contains(&format!(
            "{times}_bucket{{grpc_method=\"ShouldRateLimit\",le=\"+Inf\"}} 5\n"
        )),
        "{text}"
    );
    assert!(
        !Web::new(serving.service.http).get("/metrics").await.body.contains("ratelimit_service")
    );
}

#[tokio::test]
async fn series_of_requests_are_bounded_and_tags_are_labels() {
    let flags = [
        "--stats-prometheus-listen",
        ":0",
        "--stats-prometheus-path",
        "/all",
        "--stats-max-series",
        "2",
    ];
    let mut serving = serve(&[&flags[..], &["--stats-tag", "zone=b"]].concat()).await;
    for value in ["1", "2", "3", "4"] {
        serving.client.hit("each", value).await;
        own_limit(&serving.client, value).await;
    }
    let port = address(&mut serving.service.process).port();
    let text = Web::new(([127, 0, 0, 1], port).into()).get("/all").await.body;
    let hits: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ratelimit_service_rate_limit_total_hits"))
        .collect();
    insta::assert_snapshot!(hits.join("\n"), @r#"
    ratelimit_service_rate_limit_total_hits{domain="test",key1="each_1",zone="b"} 1
    ratelimit_service_rate_limit_total_hits{domain="test",key1="other",zone="b"} 6
    ratelimit_service_rate_limit_total_hits{domain="test",key1="own_1",zone="b"} 1
    "#);
}

/// An excerpt of the mapping that Envoy Gateway mounts.
const MAPPER: &str = r#"
mappings:
- match: "ratelimit.service.rate_limit.*.*.total_hits"
  name: "hits"
  timer_type: "histogram"
  labels: {domain: "$1", key1: "$2"}
- match: "ratelimit_server.*.response_time"
  name: "response_seconds"
  observer_type: histogram
  scale: 0.001
  buckets: [1000]
  labels: {grpc_method: "${1}"}
- {match: "ratelimit.service.call.should_rate_limit.*", name: x, honor_labels: true}
- {match: 'ratelimit\..*', match_type: regex, action: drop, name: dropped}
"#;

#[tokio::test]
async fn a_mapping_file_renames_metrics_and_unsupported_parts_are_reported() {
    let files = Policies::none();
    files.write("conf.yaml", MAPPER);
    let mapper = files.file("conf.yaml");
    let flags = [
        "--stats-prometheus-listen",
        "127.0.0.1:0",
        "--stats-prometheus-mapper",
        mapper.to_str().unwrap(),
    ];
    let mut serving = serve(&flags).await;
    serving.client.hit("user", "ann").await;
    let warning = "conf.yaml:13: `honor_labels` is not supported and has no effect";
    serving.service.process.wait_for_line(warning, |line| line.contains(warning).then_some(()));
    let text = Web::new(address(&mut serving.service.process)).get("/metrics").await.body;
    let is_known =
        |line: &&str| !line.starts_with("# HELP") && !line.starts_with("response_seconds_sum");
    let lines: Vec<&str> = text.lines().filter(is_known).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    # TYPE hits counter
    hits{domain="test",key1="user"} 1
    # TYPE ratelimit_server_ShouldRateLimit_total_requests counter
    ratelimit_server_ShouldRateLimit_total_requests 1
    # TYPE response_seconds histogram
    response_seconds_bucket{grpc_method="ShouldRateLimit",le="1000"} 1
    response_seconds_bucket{grpc_method="ShouldRateLimit",le="+Inf"} 1
    response_seconds_count{grpc_method="ShouldRateLimit"} 1
    "#);
}

/// Envoy Gateway's settings, under our names, work without the mapping file, an optional mount.
#[tokio::test]
async fn settings_of_envoy_gateway_work_without_its_file() {
    let policies = Policies::of(super::POLICY);
    let mut serve = command(["serve", "--policy"]);
    serve.arg(policies.path()).args(quiet(&[])).env("TOLLGATE_STATS_PROMETHEUS_LISTEN", ":0");
    serve.env("TOLLGATE_STATS_PROMETHEUS_MAPPER", "/etc/statsd-exporter/conf.yaml");
    let mut process = Process::start("tollgate", &mut serve);
    let shown = address(&mut process);
    process.wait_for_line("the missing file", |line| {
        line.contains("using the built-in mapping").then_some(())
    });
    let grpc = process.wait_for_line("its address", |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        (line["fields"]["protocol"] == "grpc")
            .then(|| line["fields"]["address"].as_str().unwrap().parse().unwrap())
    });
    assert!(Client::connect(grpc).await.hit("user", "ann").await);
    let text = Web::new(([127, 0, 0, 1], shown.port()).into()).get("/metrics").await.body;
    let hits = "ratelimit_service_rate_limit_total_hits{domain=\"test\",key1=\"user\"} 1\n";
    assert!(text.contains(hits), "{text}");
}

#[test]
fn a_port_in_use_fails_startup() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let policies = Policies::of(super::POLICY);
    let mut serve = command(["serve", "--stats-prometheus-listen", &address]);
    let ended = serve.args(quiet(&[])).arg("--policy").arg(policies.path()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("--stats-prometheus-listen"));
}
