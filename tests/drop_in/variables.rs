//! Effects of one or two additional variables; the flags that they become are tested in
//! `src/settings/envoyproxy/tests.rs`.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};

use rustix::process::Signal;
use tempfile::TempDir;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{Istio, Ratelimit, listening, output};
use crate::support::TEST_TIMEOUT;
use crate::support::policy::daily;
use crate::support::rls::{Client, descriptor, request};
use crate::support::web::Web;

const PROMETHEUS: [(&str, &str); 2] = [("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", ":0")];

/// Returns a policy for domain `test`, with rules given as `key: rate_limit`.
pub(super) fn policy(rules: &[(&str, &str)]) -> String {
    let rule =
        |(key, limit): &(&str, &str)| format!("  - key: {key}\n    rate_limit: {{ {limit} }}\n");
    format!("domain: test\ndescriptors:\n{}", rules.iter().map(rule).collect::<String>())
}

async fn left(client: &Client, key: &str) -> u32 {
    let mut peek = descriptor(&[(key, "")]);
    peek.hits_addend = Some(0);
    client.status(peek).await.limit_remaining
}

fn statistics(service: &mut Ratelimit) -> Web {
    Web::new(listening(&mut service.process, "stats"))
}

#[tokio::test]
async fn the_local_cache_denies_without_redis_and_prometheus_reads_the_old_names() {
    let istio = Istio::with(&daily("user", 3)).await;
    let mut service =
        istio.serve(&[&PROMETHEUS[..], &[("LOCAL_CACHE_SIZE_IN_BYTES", "1000000")]].concat()).await;
    let client = service.client().await;
    let statistics = statistics(&mut service);
    for admitted in [true, true, true, false] {
        assert_eq!(client.hit("user", "ann").await, admitted);
    }
    istio.redis.pause();
    assert!(!client.hit("user", "ann").await, "Redis gets no command");
    istio.redis.resume();
    for (name, expected) in [
        (r#"ratelimit_service_rate_limit_total_hits{domain="test",key1="user"}"#, 5),
        (r#"ratelimit_service_rate_limit_within_limit{domain="test",key1="user"}"#, 3),
        (r#"ratelimit_service_rate_limit_over_limit{domain="test",key1="user"}"#, 2),
        (r#"ratelimit_service_rate_limit_near_limit{domain="test",key1="user"}"#, 1),
        ("ratelimit_service_rate_limit_test_user_over_limit_with_local_cache", 1),
        ("ratelimit_localcache_hitCount", 1),
        (r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#, 5),
        ("ratelimit_service_config_load_success", 1),
    ] {
        assert_eq!(statistics.metric(name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_denial_stops_the_counting_of_the_rest_if_configured() {
    let rules = [
        ("tight", "unit: year, requests_per_unit: 1"),
        ("wide", "unit: year, requests_per_unit: 10"),
    ];
    for (stop, left_of_wide) in [("false", 7), ("true", 9)] {
        let istio = Istio::with(&policy(&rules)).await;
        let mut service = istio.serve(&[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", stop)]).await;
        let client = service.client().await;
        for expected in [Code::Ok, Code::OverLimit, Code::OverLimit] {
            let both = request(vec![descriptor(&[("tight", "")]), descriptor(&[("wide", "")])]);
            assert_eq!(client.decide(both).await.unwrap().overall_code(), expected);
        }
        assert_eq!(left(&client, "wide").await, left_of_wide, "{stop}");
    }
}

// Waiting for the exit blocks a thread, and the client's connection must be closed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn grpc_uds_is_a_socket_that_is_removed_at_exit() {
    let istio = Istio::with(&daily("user", 5)).await;
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("ratelimit.sock");
    let mut service = istio.serve(&[("GRPC_UDS", socket.to_str().unwrap())]).await;
    assert!(Client::connect_unix(&socket).await.hit("user", "ann").await);
    assert_eq!(service.terminate().code(), Some(0));
    assert!(!socket.exists());
}

#[tokio::test]
async fn headers_show_the_tightest_limit_under_the_configured_names() {
    let rules = [
        ("tight", "unit: year, requests_per_unit: 2"),
        ("wide", "unit: year, requests_per_unit: 10"),
    ];
    let istio = Istio::with(&policy(&rules)).await;
    let more = [("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_RESET_HEADER", "X-Reset")];
    let mut service = istio.serve(&more).await;
    let both = request(vec![descriptor(&[("wide", "")]), descriptor(&[("tight", "")])]);
    let answer = service.client().await.decide(both).await.unwrap();
    let reset = answer.statuses[1].duration_until_reset.unwrap().seconds.to_string();
    let headers: Vec<_> =
        answer.response_headers_to_add.into_iter().map(|one| (one.key, one.value)).collect();
    let expected = [("RateLimit-Limit", "2"), ("RateLimit-Remaining", "1"), ("X-Reset", &reset)];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[tokio::test]
async fn statsd_is_sent_over_tcp_unless_udp_is_configured() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = |address: SocketAddr| address.port().to_string();
    let istio = Istio::with(&daily("user", 5)).await;
    let name = "ratelimit.service.rate_limit.test.user.total_hits.__zone=b:1|c";
    for (protocol, port) in
        [(None, port(tcp.local_addr().unwrap())), (Some("udp"), port(udp.local_addr().unwrap()))]
    {
        let more = [
            ("USE_STATSD", "true"),
            ("STATSD_HOST", "127.0.0.1"),
            ("STATSD_PORT", &port),
            ("STATS_FLUSH_INTERVAL", "50ms"),
            ("EXTRA_TAGS", "zone:b"),
        ];
        let protocol = protocol.map(|protocol| ("STATSD_PROTOCOL", protocol));
        let mut service = istio.serve(&more.into_iter().chain(protocol).collect::<Vec<_>>()).await;
        assert!(service.client().await.hit("user", "ann").await);
        if protocol.is_none() {
            let stream = tcp.accept().unwrap().0;
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            assert!(BufReader::new(stream).lines().any(|line| line.unwrap() == name));
        } else {
            udp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            let mut packet = [0; 65_536];
            let mut lines = || {
                let length = udp.recv(&mut packet).unwrap();
                std::str::from_utf8(&packet[..length]).unwrap().to_owned()
            };
            while !lines().lines().any(|line| line == name) {}
        }
    }
}

#[tokio::test]
async fn a_domain_in_two_files_is_merged_if_configured() {
    let istio = Istio::with(&daily("user", 5)).await;
    istio.map.files.write("ratelimit/config/more/other.yml", &daily("plan", 7));
    let mut refusing = Ratelimit::start(&istio.variables(&[]));
    refusing.wait_for("policies rejected");
    let mut service = istio.serve(&[("MERGE_DOMAIN_CONFIG", "true")]).await;
    let client = service.client().await;
    assert_eq!(
        (client.limit("user", "ann").await, client.limit("plan", "free").await),
        (Some(5), Some(7))
    );
}

#[tokio::test]
async fn in_shadow_mode_nothing_is_denied_and_the_statuses_show_it() {
    let istio = Istio::with(&daily("user", 1)).await;
    let mut service = istio.serve(&[&PROMETHEUS[..], &[("SHADOW_MODE", "true")]].concat()).await;
    let client = service.client().await;
    let statistics = statistics(&mut service);
    for code in [Code::Ok, Code::OverLimit, Code::OverLimit] {
        let answer = client.decide(request(vec![descriptor(&[("user", "ann")])])).await.unwrap();
        assert_eq!((answer.overall_code(), answer.statuses[0].code()), (Code::Ok, code));
    }
    assert_eq!(statistics.metric("ratelimit_service_global_shadow_mode").await, 2);
}

#[test]
fn one_report_has_every_invalid_variable() {
    let wrong = [
        ("BACKEND_TYPE", "memcache"),
        ("MEMCACHE_HOST_PORT", "memcached:11211"),
        ("PORT", "eighty"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1MB"),
        ("STATS_FLUSH_INTERVAL", "10"),
        ("USE_STATSD", "maybe"),
        ("LOG_LEVEL", "loud"),
    ];
    let ended = output(&wrong);
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    for (name, _) in wrong {
        let names = error.lines().filter_map(|line| line.strip_prefix("error: ")?.split_once(": "));
        let count = names.filter(|(names, _)| names.split(", ").any(|one| one == name)).count();
        assert_eq!(count, 1, "{name} is not in\n{error}");
    }
}

/// Values that are validated only by the flags that they become; the errors name the variables.
#[test]
fn a_value_that_its_flag_rejects_fails_startup() {
    for (name, value, expected) in [
        ("NEAR_LIMIT_RATIO", "2", "NEAR_LIMIT_RATIO: expected"),
        ("REDIS_URL", "redis:port", "REDIS_URL: "),
        ("PROMETHEUS_ADDR", "nowhere", "PROMETHEUS_ADDR: expected"),
        ("LIMIT_LIMIT_HEADER", "a b", "LIMIT_LIMIT_HEADER: "),
        ("GRPC_SERVER_TLS_CERT", "/nowhere.crt", "GRPC_SERVER_TLS_KEY: must be set"),
        ("GRPC_UDS", "/nowhere/ratelimit.sock", "grpc-listen"),
    ] {
        let usual = [
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", "127.0.0.1:1"),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", ":0"),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
            ("GRPC_SERVER_USE_TLS", if name == "GRPC_SERVER_TLS_CERT" { "true" } else { "false" }),
        ];
        let ended = output(&[&usual[..], &[(name, value)]].concat());
        let report = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{name}: {report}");
        assert!(report.contains(expected), "{name}: {report}");
    }
}

#[tokio::test]
async fn different_behavior_is_reported_and_does_not_fail_startup() {
    let istio = Istio::with(&daily("user", 5)).await;
    let more = [("MEMCACHE_SRV", "_memcache._tcp"), ("REDIS_POOL_SIZE", "")];
    let mut service = istio.serve(&more).await;
    service.wait_for("MEMCACHE_SRV: ");
    service.process.signal(Signal::TERM);
    let error = service.process.final_log();
    assert!(!error.contains("REDIS_POOL_SIZE"), "{error}");
}

#[tokio::test]
async fn the_page_has_the_counters_without_a_sink_unless_they_are_disabled() {
    let istio = Istio::with(&daily("user", 10)).await;
    for (disabled, expected) in [("false", Some("7")), ("true", None)] {
        let more = [("DISABLE_STATS", disabled), ("CACHE_KEY_PREFIX", disabled)];
        let mut service = istio.serve(&more).await;
        let mut seven = descriptor(&[("user", "ann")]);
        seven.hits_addend = Some(7);
        service.client().await.status(seven).await;
        let page = service.admin.get("/stats").await.body;
        for name in ["total_hits", "within_limit"] {
            let name = format!("ratelimit.service.rate_limit.test.user.{name}: ");
            let count = page.lines().find_map(|line| line.strip_prefix(&name));
            assert_eq!(count.map(str::trim), expected, "{disabled}: {page}");
        }
    }
}
