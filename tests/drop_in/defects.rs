//! Defects of envoyproxy/ratelimit that this service does not have.
//!
//! Tested elsewhere: overrides with an unknown unit, and more hits than a counter can have
//! (`requests`), entries that join to the same text (in `tollgate-core`), a health watch that is
//! open at shutdown (`drain`), metadata that leaks between requests (`answers`), series of detailed
//! metrics and overrides (`statistics`), files next to certificates (`tls`).

use std::net::TcpListener;

use tokio::time::timeout;

use super::{ConfigMap, Istio, Ratelimit, listening, output};
use crate::support::TEST_TIMEOUT;
use crate::support::policy::daily;
use crate::support::rls::{descriptor, request};
use crate::support::web::Web;

#[tokio::test]
async fn a_hanging_redis_blocks_no_caller_and_is_not_reported_as_an_error_of_the_caller() {
    let istio = Istio::with(&daily("user", 5)).await;
    let mut service = istio.serve(&[]).await;
    let client = service.client().await;
    assert!(client.hit("user", "ann").await);
    istio.redis.pause();
    let undecided = client.decide(request(vec![descriptor(&[("user", "ann")])]));
    let undecided = timeout(TEST_TIMEOUT, undecided).await.unwrap().unwrap_err();
    assert_eq!(undecided.code(), tonic::Code::Unavailable);
    let body =
        r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
    let undecided = service.http.send("POST", "/json", body);
    assert_eq!(timeout(TEST_TIMEOUT, undecided).await.unwrap().status, 503);
    istio.redis.resume();
}

#[test]
fn a_signal_while_waiting_for_redis_ends_the_process() {
    let map = ConfigMap::of(&daily("user", 5));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), closed] {
        let url = address.to_string();
        let root = [
            ("RUNTIME_ROOT", map.root()),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("LOG_LEVEL", "info"),
        ];
        let redis = [("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", &url), ("USE_STATSD", "false")];
        let mut service = Ratelimit::start(&[&root[..], &redis].concat());
        assert_eq!(service.terminate().code(), Some(0));
    }
}

#[tokio::test]
async fn series_of_unknown_domains_and_of_values_are_bounded() {
    let policy = "domain: test\ndescriptors:\n- {key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}\n";
    let istio = Istio::with(policy).await;
    let more =
        [("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", ":0"), ("TOLLGATE_STATS_MAX_SERIES", "4")];
    let mut service = istio.serve(&more).await;
    let client = service.client().await;
    for number in 0..50 {
        client.hit("user", &number.to_string()).await;
        let mut elsewhere = request(vec![descriptor(&[("user", "ann")])]);
        elsewhere.domain = format!("domain-{number}");
        client.decide(elsewhere).await.unwrap();
    }
    let text = Web::new(listening(&mut service.process, "stats")).get("/metrics").await.body;
    let of = |what: &str| {
        text.lines()
            .filter(|line| !line.starts_with('#') && line.contains(what))
            .collect::<Vec<_>>()
    };
    let hits = of("_total_hits{");
    let domains = of("_domain_not_found");
    assert!(
        hits.len() <= 5 && hits.iter().any(|line| line.contains("key1=\"other\"")),
        "{hits:#?}"
    );
    assert!(
        domains.len() <= 5 && domains.iter().any(|line| line.contains("other")),
        "{domains:#?}"
    );
    let own = service.http.get("/metrics").await.body;
    assert!(!own.contains("domain-7"), "{own}");
}

#[tokio::test]
async fn a_config_map_is_read_once_though_files_with_a_dot_count() {
    let mut istio = Istio::with(&daily("user", 5)).await;
    let dots = [("RUNTIME_IGNOREDOTFILES", "false")];
    let mut service = istio.serve(&dots).await;
    let client = service.client().await;
    assert_eq!(client.limit("user", "ann").await, Some(5));
    istio.map.swap(&daily("user", 7));
    let limit = || client.limit("user", "ann");
    crate::support::becomes("the swap is served", crate::support::TEST_TIMEOUT, limit, |limit| {
        *limit == Some(7)
    })
    .await;
    // Two files are separate policies, independent of their names.
    istio.map.files.write("ratelimit/config/.policy.yaml", &daily("user", 9));
    service.wait_for("policy change rejected");
    service.wait_for(".policy.yaml:1:9");
    assert_eq!(client.limit("user", "ann").await, Some(7));
}

#[tokio::test]
async fn a_readme_among_the_policies_is_ignored() {
    let istio = Istio::with(&daily("user", 5)).await;
    let readme =
        "# Limits\n\nA file begins so:\n\n```yaml\ndomain: test\ndescriptors: [...]\n```\n";
    istio.map.files.write("ratelimit/config/README.md", readme);
    let mut service = istio.serve(&[]).await;
    assert_eq!(service.client().await.limit("user", "ann").await, Some(5));
}

#[tokio::test]
async fn a_second_instance_on_the_same_ports_is_an_error() {
    let istio = Istio::with(&daily("user", 5)).await;
    let mut first = istio.serve(&[]).await;
    let port = first.grpc().port().to_string();
    let ended = output(&istio.variables(&[("GRPC_PORT", &port)]));
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(
        error.contains(&format!("--grpc-listen 127.0.0.1:{port}: Address already in use")),
        "{error}"
    );
}
