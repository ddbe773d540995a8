//! `deploy/envoy/features.yaml`, `network.yaml` and the filter of the Istio overlay, unchanged
//! except for ports and timeouts: a real Envoy accepts them, and a request shows the effect of each
//! feature.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::envoy::{Envoy, binary, on_free_ports};
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

/// Bootstraps below `deploy`, in addition to `envoy/envoy.yaml`.
const EXAMPLES: [&str; 7] = [
    "envoy/features.yaml",
    "envoy/network.yaml",
    "envoy/llm.yaml",
    "envoy/llm-clamp.yaml",
    "envoy/in-flight.yaml",
    "envoy/rlqs.yaml",
    "playground/envoy.yaml",
];

#[test]
fn envoy_finds_nothing_wrong_with_the_examples() {
    for name in EXAMPLES {
        validate(&std::fs::read_to_string(root().join("deploy").join(name)).unwrap());
    }
}

#[tokio::test]
async fn a_route_counts_by_header_and_host_and_its_denial_is_as_configured() {
    let edge = Edge::start().await;
    for expected in [200, 200, 200] {
        assert_eq!(edge.envoy.edge.status("/user", "ann").await, expected);
    }
    let denied = edge.envoy.edge.get_with("/user", &[("x-user", b"ann")]).await;
    assert_eq!((denied.status, denied.header("x-limited-by")), (429, "edge"));
    assert_eq!(denied.header("x-envoy-ratelimited"), "", "disabled");
    assert!(denied.header("x-ratelimit-limit").starts_with("3, "), "{denied:?}");
    assert!(
        denied.header("x-ratelimit-limit").contains("1000000;w=86400"),
        "the host's limit too: {denied:?}"
    );
    assert!(denied.header("retry-after").parse::<u64>().unwrap() > 0);
    assert_eq!(edge.envoy.edge.status("/free", "ann").await, 200);
}

#[tokio::test]
async fn every_kind_of_action_makes_an_entry() {
    let edge = Edge::start().await;
    let reply = edge.envoy.edge.get_with("/actions?page=2", &[("x-user", b"ann")]).await;
    assert_eq!(
        (reply.status, reply.header("x-ratelimit-limit")),
        (200, "1, 1;w=86400;name=\"all-actions\"")
    );
    assert_eq!(edge.envoy.edge.status("/actions?page=2", "ann").await, 429);
    let robot =
        edge.envoy.edge.get_with("/actions?page=2", &[("x-user", b"ann"), ("x-robot", b"1")]).await;
    assert_eq!(
        (robot.status, robot.header("x-ratelimit-limit")),
        (200, ""),
        "an action has no entry, so no request is sent"
    );
}

#[tokio::test]
async fn hits_are_charged_peeked_at_refunded_and_charged_afterwards() {
    let edge = Edge::start().await;
    assert_eq!(edge.pay("/cost", b"7").await, (200, "3".to_owned()));
    assert_eq!(edge.pay("/balance", b"").await, (200, "3".to_owned()));
    assert_eq!(edge.pay("/cost", b"4").await.0, 429);
    assert_eq!(edge.pay("/refund", b"2").await, (200, "5".to_owned()));
    let tokens = || async { edge.pay("/tokens", b"").await };
    assert_eq!(
        edge.envoy
            .edge
            .get_with("/tokens", &[("x-user", b"ann"), ("x-answer-tokens", b"60")])
            .await
            .status,
        200
    );
    becomes("the answer is charged", TEST_TIMEOUT, tokens, |left| *left == (200, "40".to_owned()))
        .await;
}

#[tokio::test]
async fn a_request_carries_its_own_limit() {
    let edge = Edge::start().await;
    let reply = edge.envoy.edge.get_with("/contract", &[("x-user", b"ann")]).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, "2, 2;w=86400"));
}

#[tokio::test]
async fn a_second_stage_has_a_domain_and_a_status_of_its_own() {
    let edge = Edge::start().await;
    let send = async || edge.envoy.edge.get_with("/session", &[("x-session", b"one")]).await.status;
    assert_eq!([send().await, send().await, send().await], [200, 200, 402]);
    assert_eq!(
        edge.envoy.edge.get("/session").await.status,
        200,
        "without the header: an empty descriptor"
    );
}

#[tokio::test]
async fn without_a_response_the_first_stage_refuses_with_its_status() {
    let mut edge = Edge::start().await;
    assert!(edge.tollgate.terminate().success());
    assert_eq!(edge.envoy.edge.status("/user", "ann").await, 503);
    assert_eq!(
        edge.envoy.edge.get_with("/session", &[("x-session", b"one")]).await.status,
        200,
        "the second lets pass"
    );
}

#[tokio::test]
async fn a_draining_tollgate_reports_not_serving_before_it_exits() {
    let edge = Edge::start_with(&["--drain-delay", "60s"]).await;
    let healthy = || edge.envoy.counter("cluster.tollgate.membership_healthy");
    becomes("it is healthy", TEST_TIMEOUT, healthy, |count| *count == 1).await;
    edge.tollgate.process.signal(rustix::process::Signal::TERM);
    becomes("Envoy marks it unhealthy", TEST_TIMEOUT, healthy, |count| *count == 0).await;
    assert_eq!(
        edge.envoy.edge.status("/user", "ann").await,
        200,
        "it still answers, as the only instance"
    );
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    let tollgate = Tollgate::serve(&root().join("deploy/envoy/policies"));
    let envoy = start("network.yaml", &tollgate).await;
    for is_served in [true, true, false] {
        let mut stream = TcpStream::connect(envoy.edge.server()).await.unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(
            answer.starts_with(b"HTTP/1.1 200"),
            is_served,
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
}

#[tokio::test]
async fn a_gateway_with_the_istio_overlay_calls_tollgate() {
    let tollgate = Tollgate::serve(&root().join("config/policies"));
    let [cluster, filter, host] = istio_patches();
    let mut bootstrap: Value =
        serde_json::from_str(&json_of(&root().join("deploy/envoy/envoy.yaml"))).unwrap();
    let manager = &mut bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
        [0]["typed_config"];
    manager["http_filters"][0] = filter;
    manager["route_config"]["virtual_hosts"][0]["rate_limits"] = host["rate_limits"].clone();
    manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
        .as_object_mut()
        .unwrap()
        .remove("rate_limits");
    bootstrap["static_resources"]["clusters"][1] = cluster;
    let text = serde_json::to_string_pretty(&bootstrap).unwrap();
    validate(&text);
    // JSON is valid YAML, but the replacements for free ports match YAML syntax.
    let text = text
        .replace("\"port_value\": ", "port_value: ")
        .replace("\"0.02s\"", "5s")
        .replace("\"timeout\"", "timeout");
    let text = text.replace("tollgate.tollgate.svc.cluster.local", "127.0.0.1");
    let text = text
        .replace("port_value: 10000", "port_value: 0")
        .replace("port_value: 8081", "port_value: ${TOLLGATE}");
    let (listeners, clusters) = text.split_once("\"clusters\"").unwrap();
    let listeners = listeners.replace("port_value: 10001", "port_value: 0");
    let text = format!(
        "{listeners}\"clusters\"{}",
        clusters.replace("port_value: 10001", "port_value: ${UPSTREAM}")
    );
    let admin = "{\"admin\": { \"address\": { \"socket_address\": { \"address\": \"127.0.0.1\", port_value: 0 } } },";
    let text = format!("{admin}{}", text.trim_start().strip_prefix('{').unwrap());
    let port = tollgate.grpc.port().to_string();
    let envoy = Envoy::start_by(&text, &[("TOLLGATE", &port)]).await;
    let reply = envoy.edge.get("/").await;
    assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, "100, 100;w=60"));
}

/// Envoy with `features.yaml`, and its policies.
struct Edge {
    envoy: Envoy,
    tollgate: Tollgate,
}

impl Edge {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(flags: &[&str]) -> Self {
        let tollgate = Tollgate::serve_with(&root().join("deploy/envoy/policies"), flags);
        Self { envoy: start("features.yaml", &tollgate).await, tollgate }
    }

    /// Sends a request of user Ann with a cost. Returns the status and her remaining hits.
    async fn pay(&self, path: &str, cost: &[u8]) -> (u16, String) {
        let reply = self.envoy.edge.get_with(path, &[("x-user", b"ann"), ("x-cost", cost)]).await;
        (reply.status, reply.header("x-ratelimit-remaining").to_owned())
    }
}

async fn start(name: &str, tollgate: &Tollgate) -> Envoy {
    let port = tollgate.grpc.port().to_string();
    let text =
        on_free_ports(&std::fs::read_to_string(root().join("deploy/envoy").join(name)).unwrap());
    Envoy::start_by(&text.replace("interval: 1s", "interval: 0.1s"), &[("TOLLGATE", &port)]).await
}

/// Returns the values that the overlay patches in: a cluster, a filter, and the rate limits of a
/// host.
fn istio_patches() -> [Value; 3] {
    let filter: Value =
        serde_json::from_str(&json_of(&root().join("deploy/k8s/overlays/istio/filter.yaml")))
            .unwrap();
    [0, 1, 2].map(|number| filter["spec"]["configPatches"][number]["patch"]["value"].clone())
}

/// Converts a YAML file to JSON.
pub(crate) fn json_of(path: &std::path::Path) -> String {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let output = Command::new(root().join(".venv/bin/python"))
        .args(["-c", script])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn validate(bootstrap: &str) {
    let files = TempDir::new().unwrap();
    let path = files.path().join("bootstrap.yaml");
    std::fs::write(&path, bootstrap).unwrap();
    let mut command = Command::new(binary());
    let ended = command
        .args(["--mode", "validate", "--disable-hot-restart", "-c"])
        .arg(path)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
