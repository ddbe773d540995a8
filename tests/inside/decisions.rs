//! Decisions of the module, and those that it leaves to the rate limit filter.

use std::process::Command;

use super::{InsideEnvoy, all_returned, policy, start};
use crate::envoy::holds::manager_with_filters_in_both;
use crate::support::envoy::{Envoy, binary, module, on_free_ports};
use crate::support::policy::Policies;
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn the_example_admits_requests_in_envoy() {
    let service = Tollgate::serve(&root().join("deploy/envoy/policies"));
    let text = std::fs::read_to_string(root().join("deploy/envoy/inside.yaml")).unwrap();
    let text = on_free_ports(&text).replace("/usr/local/lib/libtollgate_envoy.so", "${MODULE}");
    let port = service.grpc.port().to_string();
    let module = module();
    let values = [("TOLLGATE", port.as_str()), ("MODULE", module.to_str().unwrap())];
    let envoy = InsideEnvoy(Envoy::start_by(&text, &values).await);
    envoy.heat("ann").await;
    let reply = envoy.send("ann").await;
    assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, "100000, 100000;w=60"));
}

#[test]
fn the_files_for_istio_and_envoy_gateway_have_the_filters_of_the_example() {
    manager_with_filters_in_both("inside", 2);
    // The image has the module where the filters expect it.
    let text = std::fs::read_to_string(root().join("deploy/envoy/inside.yaml")).unwrap();
    let image = std::fs::read_to_string(root().join("deploy/envoy/Dockerfile")).unwrap();
    let (_, module) = text.split_once("filename: ").unwrap();
    let module = module.split_whitespace().next().unwrap();
    assert_eq!(image.trim_end().rsplit(' ').next(), Some(module));
}

#[tokio::test]
async fn a_hot_key_is_decided_in_envoy_and_each_hit_is_charged_once() {
    // On a busy machine, an exchange may take most of a second.
    let (service, envoy) = start(&policy(1_000_000, "day", "5s")).await;
    envoy.heat("ann").await;
    // The first blocks are small.
    for _ in 0..500 {
        envoy.send("ann").await;
    }
    let before = [envoy.stat("decided").await, envoy.stat("passed_on").await];
    for _ in 0..2_000 {
        assert_eq!(envoy.send("ann").await.status, 200);
    }
    let after = [envoy.stat("decided").await, envoy.stat("passed_on").await];
    let counts = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(counts[0] + counts[1], 2_000);
    assert!(counts[1] <= 20, "{counts:?}: less than 99 % are decided in Envoy");
    assert!(envoy.stat("exchanges").await < 200 && envoy.stat("exchange_errors").await == 0);
    let times = || async { envoy.0.admin.get("/stats?filter=decision_ns").await.body };
    let has_values = |text: &String| text.contains("tollgate.decision_ns: P0(");
    println!("{}", becomes("Envoy has times", TEST_TIMEOUT, times, has_values).await);
    // When its blocks have been returned, the counter has exactly the requests.
    let web = Web::new(service.http);
    assert_eq!(all_returned(&web).await, after[0], "used hits");
    let expected = 1_000_000 - after[0] - after[1] - 1;
    let remaining = envoy.send_plain("ann").await.header("x-ratelimit-remaining").to_owned();
    assert_eq!(remaining, expected.to_string());
}

#[tokio::test]
async fn a_decided_request_has_the_headers_of_the_rate_limit_filter() {
    let (_service, envoy) = start(&policy(1_000_000, "day", "500ms")).await;
    envoy.heat("ann").await;
    let [plain, decided] = [envoy.send_plain("ann").await, envoy.send("ann").await];
    let header = |name| [plain.header(name).to_owned(), decided.header(name).to_owned()];
    for name in ["x-ratelimit-limit", "x-ratelimit-reset"] {
        let [plain, decided] = header(name);
        assert!(!decided.is_empty() && plain == decided, "{name}: {plain}, {decided}");
    }
    let [plain, decided] = header("x-ratelimit-remaining").map(|text| text.parse::<u64>().unwrap());
    assert!(decided < 1_000_000 && decided.abs_diff(plain) <= 100_000, "{plain}, {decided}");
}

#[tokio::test]
async fn a_denial_in_envoy_is_that_of_the_rate_limit_filter() {
    let (_service, envoy) = start(&policy(200, "day", "1s")).await;
    let sends = || async {
        let reply = envoy.send("ann").await;
        (envoy.stat("over_limit").await, reply.status)
    };
    becomes("the module denies", TEST_TIMEOUT, sends, |(denied, _)| *denied > 0).await;
    let mut plain = envoy.send_plain("ann").await;
    let mut denied = envoy.send("ann").await;
    assert_eq!((plain.status, denied.status), (429, 429));
    for volatile in ["date", "x-ratelimit-reset", "retry-after"] {
        assert!(denied.headers.contains_key(volatile), "{volatile}: {denied:?}");
        plain.headers.remove(volatile);
        denied.headers.remove(volatile);
    }
    assert_eq!(plain.headers, denied.headers);
}

/// Actions of all kinds that the module supports.
const ALL: &str = r#"[{"actions": [
    {"generic_key": {"descriptor_key": "region", "descriptor_value": "north"}},
    {"request_headers": {"header_name": "X-Tenant", "descriptor_key": "tenant"}},
    {"request_headers": {"header_name": "x-none", "descriptor_key": "none", "skip_if_absent": true}},
    {"remote_address": {}},
    {"destination_cluster": {}},
    {"header_value_match": {"descriptor_key": "long", "descriptor_value": "yes", "headers": [
        {"name": "x-tenant", "string_match": {"prefix": "AN", "ignore_case": true}},
        {"name": "x-none", "present_match": false}]}},
    {"metadata": {"descriptor_key": "plan", "source": "ROUTE_ENTRY",
        "metadata_key": {"key": "test", "path": [{"key": "plan"}]}}},
    {"metadata": {"descriptor_key": "user", "default_value": "guest",
        "metadata_key": {"key": "test", "path": [{"key": "user"}]}}}
]}]"#;

/// A rule for exactly the descriptor of these actions.
const ALL_RULES: [&str; 7] = [
    "key: region, value: north",
    "key: tenant",
    "key: remote_address, value: 127.0.0.1",
    "key: destination_cluster, value: application",
    "key: long, value: yes",
    "key: plan, value: gold",
    "key: user, value: guest",
];

#[tokio::test]
async fn the_descriptor_of_all_actions_is_that_of_the_rate_limit_filter() {
    let limit = "rate_limit: { requests_per_unit: 1000000, unit: day, charge: admitted, lease: { size: 10%, ttl: 500ms, holders: [client] } }";
    let rules = ALL_RULES.iter().rev().fold(limit.to_owned(), |inner, rule| {
        format!("descriptors: [{{ {rule}, {inner} }}]").replace("value: yes", "value: \"yes\"")
    });
    let policies = Policies::of(&format!("domain: test\n{rules}\n"));
    let service = Tollgate::serve(policies.path());
    let envoy = InsideEnvoy::start(service.grpc, ALL).await;
    assert_eq!(envoy.send_plain("ann").await.header("x-ratelimit-remaining"), "999999");
    envoy.heat("ann").await;
    let total = envoy.stat("decided").await + envoy.stat("passed_on").await;
    let remaining = || async {
        let remaining = envoy.send_plain("ann").await.header("x-ratelimit-remaining").to_owned();
        remaining.parse::<u64>().unwrap()
    };
    // Each look takes a hit; the rest is in blocks, which come back.
    let at_most = 1_000_000 - total - 1;
    let at_least = at_most - 500;
    becomes("one counter has all requests", TEST_TIMEOUT, remaining, |left| {
        (at_least..at_most).contains(left)
    })
    .await;
}

#[tokio::test]
async fn forged_headers_do_not_skip_the_rate_limit_filter() {
    let rule = "domain: test\ndescriptors:\n  - key: tenant\n    rate_limit: { requests_per_unit: 3, unit: day }\n";
    let (_service, envoy) = start(&Policies::of(rule)).await;
    let forged: [(&'static str, &[u8]); 6] = [
        ("x-tenant", b"ann"),
        ("tollgate.decided", b"true"),
        ("x-tollgate-decided", b"true"),
        ("x-envoy-filter-state", b"tollgate.decided=true"),
        ("x-envoy-original-path", b"/plain"),
        ("baggage", b"tollgate.decided=true"),
    ];
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(envoy.0.edge.get_with("/", &forged).await.status);
    }
    assert_eq!(statuses[..4], [200, 200, 200, 429]);
    assert!(statuses[3..].iter().all(|status| *status == 429), "{statuses:?}");
    assert_eq!((envoy.stat("decided").await, envoy.stat("over_limit").await), (0, 0));
}

#[test]
fn an_action_that_is_not_supported_is_an_error_at_start() {
    let text = std::fs::read_to_string(root().join("deploy/envoy/inside.yaml")).unwrap();
    let text = text.replace("/usr/local/lib/libtollgate_envoy.so", module().to_str().unwrap());
    let ended = |text: &str| {
        let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut envoy = Command::new(binary());
        envoy.args(["--mode", "validate", "-c"]).arg(file.path());
        let output = envoy.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(ended(&text).0);
    let action = "- request_headers: { header_name: x-tenant, descriptor_key: tenant }";
    assert!(text.contains(action));
    let (is_valid, log) = ended(&text.replace(action, "- source_cluster: {}"));
    assert!(!is_valid);
    let expected =
        "tollgate: filter_config.rate_limits[0].actions[0].source_cluster is not supported";
    assert!(log.contains(expected), "{log}");
    assert!(log.contains("ABI version v0.2.0 matched"), "{log}");
}
