//! Gateways as targets: ext_authz and RLQS behind real Envoys.

use serde_json::{Value, json};

use super::{report, verdict, verify};
use crate::support::envoy::{Envoy, on_free_ports};
use crate::support::policy::Policies;
use crate::support::quotas::{QuotaServer, whole_limit};
use crate::support::root;
use crate::support::tollgate::{Tollgate, output};

/// Length of the windows of RLQS in seconds, and its limit.
const PERIOD: u32 = 30;
const LIMIT: u32 = 60;

/// Returns a policy with this limit for the header x-user of a gateway's requests.
fn mapped(limit: u32) -> Policies {
    Policies::of(&format!(
        "domain: test
requests:
  - name: shop
    descriptors: [{{ entries: {{ user: {{ header: x-user }} }} }}]
descriptors:
  - key: user
    rate_limit: {{ unit: day, requests_per_unit: {limit} }}
  - key: group
    rate_limit: {{ unit: day, requests_per_unit: {limit} }}
"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ext_authz_behind_an_envoy_keeps_its_limits_and_one_more_is_found() {
    let policies = mapped(10);
    let service = Tollgate::serve(policies.path());
    let bootstrap = std::fs::read_to_string(root().join("deploy/gateways/envoy.yaml")).unwrap();
    let port = service.grpc.port().to_string();
    let envoy = Envoy::start_by(&on_free_ports(&bootstrap), &[("TOLLGATE", &port)]).await;
    let url = format!("http://{}/", envoy.edge.server());
    let flags = ["--header", "user=x-user"];
    let ended = verify(&policies, &[&url], &flags);
    let right = report(&ended);
    assert_eq!(ended.status.code(), Some(0), "{right:#}");
    for property in ["never_over", "no_unjustified_denial", "answered_in_time"] {
        assert_eq!(verdict(&right, property), "held", "{right:#}");
    }
    for property in ["remaining_accurate", "reset_accurate"] {
        assert_eq!(verdict(&right, property), "not_checked", "{right:#}");
    }
    assert!(right["calls"].as_u64().unwrap() > 100, "{right:#}");
    let skipped = json!(["test group: --header is missing for one of its keys"]);
    assert_eq!(right["not_checked"], skipped, "{right:#}");

    let ended = verify(&mapped(9), &[&url], &flags);
    let wrong = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{wrong:#}");
    assert_eq!(verdict(&wrong, "never_over"), "violated", "{wrong:#}");
    let ended = verify(&mapped(11), &[&url], &flags);
    let wrong = report(&ended);
    assert_eq!(verdict(&wrong, "no_unjustified_denial"), "violated", "{wrong:#}");
}

/// Verifies two Envoys that get their quotas from a server.
async fn quotas_of(port: u16, policies: &Policies) -> (Option<i32>, Value) {
    let template = std::fs::read_to_string(root().join("tests/rlqs/envoy.yaml")).unwrap();
    let port = port.to_string();
    let mut envoys = Vec::new();
    for _ in 0..2 {
        envoys.push(Envoy::start_by(&template, &[("TOLLGATE", &port)]).await);
    }
    let urls: Vec<_> =
        envoys.iter().map(|envoy| format!("http://{}/", envoy.edge.server())).collect();
    let flags = ["--header", "bucket=x-bucket", "--rate", "100", "--duration", "8"];
    let ended = verify(policies, &[&urls[0], &urls[1]], &flags);
    (ended.status.code(), report(&ended))
}

fn leased() -> Policies {
    Policies::of(&format!(
        "domain: test\ndescriptors:\n  - key: bucket\n    rate_limit: {{ unit: {PERIOD}s, requests_per_unit: {LIMIT}, \
         lease: {{ size: 10, ttl: 1s, rlqs: {{ ttl: 7s, size: 60% }} }} }}\n"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_of_two_envoys_are_never_over_the_limit() {
    let policies = leased();
    let service = Tollgate::serve(policies.path());
    let (code, report) = quotas_of(service.grpc.port(), &policies).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "not_checked", "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_gives_each_envoy_the_whole_limit_is_found() {
    let period = i64::from(PERIOD);
    let server = QuotaServer::that_assigns(period, whole_limit(LIMIT, period)).await;
    let (code, report) = quotas_of(server.address.port(), &leased()).await;
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "violated", "{report:#}");
}

#[test]
fn targets_of_both_kinds_and_other_headers_are_refused() {
    let policies = mapped(10);
    let policy = policies.path().to_str().unwrap();
    let refused = |flags: &[&str], expected: &str| {
        let ended = output([&["verify", "--policy", policy][..], flags].concat());
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    let header = ["--header", "user=x-user"];
    refused(&[&["--target", "127.0.0.1:1"][..], &header].concat(), "expected http://HOST:PORT");
    let both = ["--target", "http://127.0.0.1:1/", "--target", "127.0.0.1:1"];
    refused(&[&both[..], &header].concat(), "--target 127.0.0.1:1: expected http://HOST:PORT");
    let other = ["--target", "http://127.0.0.1:1/", "--header", "group_of=x-group"];
    refused(&other, "no rule can be verified");
    refused(&[&["--target", "https://a/"][..], &header].concat(), "a gateway with TLS");
    refused(&[&["--target", "http://a/", "--tls"][..], &header].concat(), "--tls does not apply");
}

#[test]
fn a_gateway_that_does_not_answer_is_given_up_after_the_deadline() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let policies = mapped(10);
    let policy = policies.path().to_str().unwrap();
    let flags = ["--policy", policy, "--target", &url, "--header", "user=x-user"];
    let ended = output([&["verify", "--deadline", "200"][..], &flags].concat());
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{error}");
    assert!(error.contains("returned no decision: no answer within 200ms"), "{error}");
}
