//! The deployment by Envoy Gateway: certificates everywhere, a control plane, an Envoy with its
//! filter.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Ratelimit, listening};
use crate::support::certificates::{Authority, files};
use crate::support::control_plane::ControlPlane;
use crate::support::envoy::Envoy;
use crate::support::redis::Redis;
use crate::support::root;
use crate::support::secure::Secure;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const APP: &str = "httproute/default/app/rule/0/match/0/*";
const PAID: &str = "httproute/default/paid/rule/0/match/0/*";

/// An excerpt of the mapping file that Envoy Gateway mounts.
const MAPPER: &str = r#"
mappings:
- match: "ratelimit.service.rate_limit.*.*.*.total_hits"
  name: "eg_total_hits"
  timer_type: "histogram"
  labels: {domain: "$1", key1: "$2", key2: "$3"}
"#;

/// Everything except the Envoys.
struct Gateway {
    plane: ControlPlane,
    redis: Redis,
    authority: Authority,
    /// Mounted files: `tls.crt`, `tls.key`, `ca.crt`; and `plane`, with those of the control plane.
    files: TempDir,
    /// Path of the mapping file, which does not exist by default.
    mapper: String,
}

impl Gateway {
    async fn with(resources: &[Value]) -> Self {
        let authority = Authority::new();
        let files = TempDir::new().unwrap();
        authority.sign_rsa("*.envoy-gateway-system").write(files.path());
        std::fs::write(files.path().join("ca.crt"), &authority.pem).unwrap();
        let own = files.path().join("plane");
        std::fs::create_dir(&own).unwrap();
        // In a deployment the host name is `envoy-gateway`; here it is `localhost`.
        authority.sign_rsa("localhost").write(&own);
        let [certificate, key] = self::files(&own);
        let tls = [certificate, key, files.path().join("ca.crt")]
            .map(|path| path.to_str().unwrap().to_owned());
        let plane = ControlPlane::start_with(&["--tls", &tls[0], &tls[1], &tls[2]], resources);
        let mapper = files.path().join("conf.yaml").to_str().unwrap().to_owned();
        Self { plane, redis: Redis::start().await, authority, files, mapper }
    }

    /// Starts the service with all variables that Envoy Gateway sets; those in `more` take
    /// precedence.
    fn start(&self, more: &[(&str, &str)]) -> Ratelimit {
        let path = |name: &str| self.files.path().join(name).to_str().unwrap().to_owned();
        let [certificate, key, authority] = ["tls.crt", "tls.key", "ca.crt"].map(path);
        let plane = format!("localhost:{}", self.plane.port);
        let redis = self.redis.address.to_string();
        let variables = [
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("LOG_LEVEL", "info"),
            ("USE_STATSD", "false"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", &plane),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
            ("GRPC_SERVER_USE_TLS", "true"),
            ("GRPC_SERVER_TLS_CERT", &certificate),
            ("GRPC_SERVER_TLS_KEY", &key),
            ("GRPC_SERVER_TLS_CA_CERT", &authority),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &certificate),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &key),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &authority),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", &redis),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", ":0"),
            ("PROMETHEUS_MAPPER_YAML", &self.mapper),
            ("TRACING_ENABLED", "true"),
            ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
            ("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
            ("TRACING_SERVICE_INSTANCE_ID", "envoy-ratelimit-0"),
            ("TRACING_SAMPLING_RATE", "1.0"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        ];
        Ratelimit::start(&[&variables[..], more].concat())
    }

    /// Starts the service, and an Envoy in front of it once the policies are loaded.
    async fn serve(&self) -> (Ratelimit, Envoy) {
        let mut service = self.start(&[]);
        becomes("it is healthy", TEST_TIMEOUT, || service.health(), |status| *status == 200).await;
        service.wait_for("policies in force");
        let port = service.grpc().port().to_string();
        let path = |name: &str| self.files.path().join(name).to_str().unwrap().to_owned();
        let [certificate, key, authority] = ["tls.crt", "tls.key", "ca.crt"].map(path);
        let values = [
            ("TOLLGATE", port.as_str()),
            ("CERT", &certificate),
            ("KEY", &key),
            ("CA", &authority),
        ];
        let template = std::fs::read_to_string(root().join("tests/drop_in/gateway.yaml")).unwrap();
        (service, Envoy::start_by(&template, &values).await)
    }
}

/// Returns the limits of the listener, as Envoy Gateway writes them.
fn listener(ann: u32) -> Value {
    let limit = |unit: &str, amount: u32| json!({ "unit": unit, "requests_per_unit": amount });
    let rule = |key: &str, value: &str, limit: Value| json!({ "key": key, "value": value, "rate_limit": limit });
    let mut shadow = rule("masked_remote_address", "127.0.0.0/8", limit("YEAR", 1));
    shadow["shadow_mode"] = json!(true);
    let app = [
        rule("rule-0-match-0", "rule-0-match-0", limit("YEAR", ann)),
        json!({ "key": "rule-1-match-0", "rate_limit": limit("YEAR", 2) }),
        shadow,
    ];
    let paid = [rule("rule-0-match--1", "rule-0-match--1", limit("YEAR", 10))];
    let route =
        |name: &str, rules: &[Value]| json!({ "key": name, "value": name, "descriptors": rules });
    json!({
        "name": "default/eg/http",
        "domain": "default/eg/http",
        "descriptors": [route(APP, &app), route(PAID, &paid)],
    })
}

async fn pay(envoy: &Envoy, cost: &[u8]) -> u16 {
    envoy.edge.get_with("/paid", &[("x-cost", cost)]).await.status
}

async fn as_tenant(envoy: &Envoy, tenant: &[u8]) -> u16 {
    envoy.edge.get_with("/app", &[("x-tenant", tenant)]).await.status
}

#[tokio::test]
async fn clients_of_envoy_get_429_after_the_limits_of_the_control_plane() {
    let gateway = Gateway::with(&[listener(3)]).await;
    let (mut service, envoy) = gateway.serve().await;
    for expected in [200, 200, 200, 429, 429] {
        assert_eq!(envoy.edge.status("/app", "ann").await, expected);
    }
    let refused = envoy.edge.get_with("/app", &[("x-user", b"ann")]).await;
    assert_eq!(
        (refused.header("x-envoy-ratelimited"), refused.header("x-ratelimit-remaining")),
        ("", "0")
    );
    assert!(refused.header("x-ratelimit-limit").starts_with("3, 3;w=31536000"), "{refused:?}");
    // Each tenant has a limit of its own; all of them together exceed the one in shadow mode.
    for tenant in [b"a", b"b"] {
        assert_eq!([as_tenant(&envoy, tenant).await, as_tenant(&envoy, tenant).await], [200, 200]);
        assert_eq!(as_tenant(&envoy, tenant).await, 429);
    }
    assert_eq!(
        [pay(&envoy, b"7").await, pay(&envoy, b"3").await, pay(&envoy, b"1").await],
        [200, 200, 429]
    );
    assert_eq!(envoy.counter("cluster.upstream.ratelimit.error").await, 0);

    let statistics = Web::new(listening(&mut service.process, "stats"));
    let name = |what: &str, key: &str, rule: &str| {
        format!(
            "ratelimit_service_rate_limit_{what}{{domain=\"default/eg/http\",key1=\"{key}_{key}\",key2=\"{rule}\"}}"
        )
    };
    let of_ann = "rule-0-match-0_rule-0-match-0";
    assert_eq!(statistics.metric(&name("total_hits", APP, of_ann)).await, 6);
    assert_eq!(statistics.metric(&name("over_limit", APP, of_ann)).await, 3);
    assert_eq!(
        statistics.metric(&name("total_hits", PAID, "rule-0-match--1_rule-0-match--1")).await,
        11
    );
    let shadow = name("shadow_mode", APP, "masked_remote_address_127_0_0_0/8");
    assert_eq!(statistics.metric(&shadow).await, 11, "all but the first");
}

#[tokio::test]
async fn another_snapshot_changes_the_limits_a_bad_one_does_not_and_an_empty_one_lifts_them() {
    let mut gateway = Gateway::with(&[listener(1)]).await;
    let (mut service, envoy) = gateway.serve().await;
    assert_eq!(
        [envoy.edge.status("/app", "ann").await, envoy.edge.status("/app", "ann").await],
        [200, 429]
    );
    let first = gateway.plane.wait_for_request("the first request", |_| true);
    assert_eq!(
        first["type_url"],
        "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
    );
    assert_eq!(
        (&first["node"]["id"], &first["resource_names"]),
        (&json!("envoy-ratelimit"), &Value::Null)
    );

    let mut broken = listener(1000);
    broken["descriptors"][0]["descriptors"][0]["rate_limit"]["unit"] = json!("UNKNOWN");
    gateway.plane.serve("2", &[broken]);
    let refused = gateway
        .plane
        .wait_for_request("that it is refused", |request| request["error_detail"].is_object());
    assert_eq!(refused["version_info"], "1");
    assert_eq!(envoy.edge.status("/app", "ann").await, 429);

    gateway.plane.serve("3", &[listener(1000)]);
    let answer = || envoy.edge.status("/app", "ann");
    becomes("the new limit admits", TEST_TIMEOUT, answer, |status| *status == 200).await;
    gateway.plane.serve("4", &[listener(1)]);
    becomes("the new limit denies", TEST_TIMEOUT, answer, |status| *status == 429).await;
    gateway.plane.serve("5", &[]);
    becomes("no limit is left", TEST_TIMEOUT, answer, |status| *status == 200).await;
    gateway.plane.wait_for_request("that it is taken", |request| request["version_info"] == "5");
    assert_eq!(service.admin.get("/rlconfig").await.body, "");
    assert!(service.terminate().success());
}

#[tokio::test]
async fn a_client_without_a_certificate_of_the_gateway_is_refused() {
    let gateway = Gateway::with(&[listener(3)]).await;
    let mut service = gateway.start(&[]);
    becomes("it is healthy", TEST_TIMEOUT, || service.health(), |status| *status == 200).await;
    service.wait_for("policies in force");
    let grpc = service.grpc();
    let authority = &gateway.authority;
    assert!(
        Secure::showing(&authority.sign_rsa("*.envoy-gateway-system"), authority)
            .is_accepted(grpc)
            .await
    );
    assert!(!Secure::trusting(authority).is_accepted(grpc).await, "without a certificate");
    let strange = Authority::new().sign_rsa("*.envoy-gateway-system");
    assert!(!Secure::showing(&strange, authority).is_accepted(grpc).await, "another authority's");
}

#[tokio::test]
async fn a_mounted_file_of_names_is_used() {
    let gateway = Gateway::with(&[listener(3)]).await;
    let mut without = gateway.start(&[]);
    without.wait_for("using the built-in mapping");
    std::fs::write(&gateway.mapper, MAPPER).unwrap();
    let (mut service, envoy) = gateway.serve().await;
    assert_eq!(envoy.edge.status("/app", "ann").await, 200);
    let statistics = Web::new(listening(&mut service.process, "stats"));
    let rule = "rule-0-match-0_rule-0-match-0";
    let name =
        format!("eg_total_hits{{domain=\"default/eg/http\",key1=\"{APP}_{APP}\",key2=\"{rule}\"}}");
    assert_eq!(statistics.metric(&name).await, 1);
}

#[tokio::test]
async fn a_signal_before_the_first_configuration_ends_the_process_at_once() {
    let mut gateway = Gateway::with(&[listener(3)]).await;
    gateway.plane.kill();
    // Ready before the first configuration, as Envoy Gateway sets it, or only after it.
    for (force, health) in [("true", 200), ("false", 500)] {
        let mut service = gateway.start(&[("FORCE_START_WITHOUT_INITIAL_CONFIG", force)]);
        service.wait_for("store connected");
        becomes(
            "its health is as expected",
            TEST_TIMEOUT,
            || service.health(),
            |status| *status == health,
        )
        .await;
        assert_eq!(service.terminate().code(), Some(0));
    }
}
