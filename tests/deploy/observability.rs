//! `deploy/observability` with a real Prometheus: under load every query of the dashboard has data,
//! and every alert fires on its failure.
//!
//! The files differ from those shipped only in times: windows are seconds, and alerts fire without
//! `for`. promtool verifies the shipped times with `alerts_test.yaml`.

mod holds;
mod quotas;
mod releases;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::certificates::Authority;
use crate::support::control_plane::ControlPlane;
use crate::support::envoy::Envoy;
use crate::support::load::{Load, Traffic};
use crate::support::policy::Policies;
use crate::support::prometheus::Prometheus;
use crate::support::redis::{Redis, Setup};
use crate::support::rls::{descriptor, request};
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = "
domain: gateway
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 20 }
  - key: user
    rate_limit: { unit: day, requests_per_unit: 1000000 }
    candidate: { unit: day, requests_per_unit: 1 }
  - key: soft
    rate_limit: { unit: day, requests_per_unit: 1000000, on_store_error: allow, lease: { size: 1%, ttl: 1s, holders: [client] } }
";
const CLOSED: &str = "
domain: closed
descriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 1 } }]
";

#[tokio::test]
async fn every_query_has_data_under_load_and_every_alert_fires_on_its_fault() {
    let mut scene = Scene::start().await;
    scene.is_quiet().await;
    let mut fired = BTreeSet::new();
    for alerts in [
        scene.wrong_requests().await,
        scene.bad_policy().await,
        scene.store_that_refuses().await,
        scene.replica_with_another_clock().await,
        scene.store_that_hangs_and_drops().await,
        scene.holds_without_care().await,
        scene.proxy_beyond_its_quota().await,
        scene.another_process().await,
        scene.another_release().await,
    ] {
        fired.extend(alerts);
    }
    scene.has_data_for_every_panel().await;
    fired.extend(scene.end().await);
    assert_eq!(fired, alerts(), "an alert without a fault, or the other way round");
}

#[test]
fn promtool_finds_nothing_wrong_with_rules_their_tests_and_the_metrics() {
    let folder = root().join("deploy/observability");
    for name in ["alerts", "recording"] {
        promtool(&["check", "rules"], &folder.join(format!("{name}.yaml")));
        promtool(&["test", "rules"], &root().join(format!("tests/deploy/{name}_test.yaml")));
    }
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_metrics() {
    let tollgate = Tollgate::serve(Policies::of(POLICY).path());
    let web = crate::support::web::Web::new(tollgate.http);
    let plain = web.get("/metrics").await;
    assert!(plain.header("content-type").starts_with("text/plain"), "{plain:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), plain.body).unwrap();
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(file.path()).unwrap())
        .output()
        .unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
    let open = web
        .get_with(
            "/metrics",
            &[("accept", b"application/openmetrics-text;version=1.0.0,text/plain;q=0.5")],
        )
        .await;
    assert!(open.header("content-type").starts_with("application/openmetrics-text"), "{open:?}");
    assert!(open.body.ends_with("# EOF\n"));
}

#[test]
fn every_alert_has_a_severity_and_a_section_of_the_runbook() {
    let runbook = std::fs::read_to_string(root().join("docs/runbook.md")).unwrap();
    let text = rules();
    for alert in alerts() {
        assert!(
            runbook.lines().any(|line| line == format!("## {alert}")),
            "{alert} is not in docs/runbook.md"
        );
        let place = format!("runbook_url: docs/runbook.md#{}", alert.to_lowercase());
        assert!(text.contains(&place), "{alert} does not name {place}");
    }
    let sections: BTreeSet<_> =
        runbook.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    assert_eq!(sections, alerts(), "the runbook has other alerts");
    assert_eq!(
        text.matches("severity: ").count(),
        alerts().len() + 1,
        "one each, and one in the head"
    );
}

/// The alert of answers that take longer than a fixed time.
const OF_SLOW_MACHINES: &str = "TollgateAnswersSlow";

/// A tollgate on Redis with an Envoy and other clients, and a Prometheus that scrapes both.
struct Scene {
    prometheus: Prometheus,
    policies: Policies,
    redis: Redis,
    tollgate: Tollgate,
    envoy: std::sync::Arc<Envoy>,
    _load: Load,
    browsing: tokio::task::JoinHandle<()>,
}

impl Scene {
    async fn start() -> Self {
        let prometheus = Prometheus::start(&quick(&rules()));
        let policies = Policies::of(POLICY);
        let redis = Redis::start().await;
        policies.write("closed.yaml", CLOSED);
        let flags = ["--store", &redis.url(), "--store-timeout", "400ms"];
        let tollgate = Tollgate::serve_with(policies.path(), &flags);
        let port = tollgate.grpc.port().to_string();
        let envoy = std::sync::Arc::new(Envoy::start_by(&example(), &[("TOLLGATE", &port)]).await);
        let of = |key: &str| vec![request(vec![descriptor(&[(key, "ann")])])];
        let mut traffic = Traffic { rate: 50, groups: vec![of("user"), of("soft")], timeout: None };
        traffic
            .groups
            .iter_mut()
            .flatten()
            .for_each(|request| request.domain = "gateway".to_owned());
        let load = Load::with_another(tollgate.grpc, traffic);
        let browser = std::sync::Arc::clone(&envoy);
        let browsing = tokio::spawn(async move {
            loop {
                browser.edge.get("/").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let scene = Self { prometheus, policies, redis, tollgate, envoy, _load: load, browsing };
        scene.scrape(&[]);
        scene
    }

    fn scrape(&self, more: &[crate::support::prometheus::Target<'_>]) {
        let own = [
            ("tollgate", self.tollgate.http, "/metrics"),
            ("envoy", self.envoy.admin.server(), "/stats/prometheus"),
        ];
        self.prometheus.scrape(&[&own, more].concat());
    }

    /// Waits until load is visible, and asserts that no alert fires without a failure, but that of
    /// a slow machine: that of this test may be one.
    async fn is_quiet(&self) {
        let admitted = || {
            self.prometheus
                .query(r#"sum(rate(tollgate_decisions_total{outcome="allowed"}[3s])) > 10"#)
        };
        let _ = becomes("load is seen", TEST_TIMEOUT, admitted, |rate| {
            rate.as_ref().is_ok_and(|rate| !rate.is_empty())
        })
        .await;
        let firing = || async {
            let mut firing = self.prometheus.firing().await;
            firing.retain(|alert| alert != OF_SLOW_MACHINES);
            firing
        };
        becomes("no alert fires", TEST_TIMEOUT, firing, Vec::is_empty).await;
    }

    /// Repeats `fault` until these alerts fire.
    async fn fire<F: Future<Output = ()>>(
        &self,
        alerts: &[&'static str],
        fault: impl Fn() -> F,
    ) -> Vec<String> {
        let mut missing: BTreeSet<&str> = alerts.iter().copied().collect();
        let begun = std::time::Instant::now();
        while !missing.is_empty() {
            assert!(begun.elapsed() < TEST_TIMEOUT * 2, "{missing:?} do not fire");
            fault().await;
            for alert in self.prometheus.firing().await {
                missing.remove(alert.as_str());
            }
        }
        alerts.iter().map(|alert| (*alert).to_owned()).collect()
    }

    async fn wrong_requests(&self) -> Vec<String> {
        let client = crate::support::rls::Client::connect(self.tollgate.grpc).await;
        let send = async |domain: &str| {
            let message = request(vec![descriptor(&[("user", "ann")])]);
            let _ = client
                .decide(tollgate::grpc::proto::RateLimitRequest {
                    domain: domain.to_owned(),
                    ..message
                })
                .await;
        };
        let large = "v".repeat(4 << 20);
        let fault = async || {
            for domain in ["closed", "nobodys", ""] {
                send(domain).await;
            }
            let _ = client.decide(request(vec![descriptor(&[("user", &large)])])).await;
            soon().await;
        };
        let wrong = [
            "TollgateManyDenied",
            "TollgateDomainUnknown",
            "TollgateRequestsInvalid",
            "TollgateRequestsTooLarge",
        ];
        self.fire(&wrong, fault).await
    }

    async fn bad_policy(&self) -> Vec<String> {
        self.policies.write("bad.yaml", "domain: bad\ndescriptors: 7\n");
        self.fire(&["TollgatePolicyRefused"], soon).await
    }

    async fn store_that_refuses(&self) -> Vec<String> {
        let strange = async || {
            let keys: Vec<Vec<u8>> = self.redis.query(&["KEYS", "*"]).await.unwrap();
            self.redis.command(&["RPUSH", "list", "another's"]).await;
            for key in keys.iter().filter(|key| *key != b"list") {
                let _: Answer =
                    self.redis.query_bytes(&[b"COPY", b"list", key, b"REPLACE"]).await.unwrap();
            }
            soon().await;
        };
        let mut fired = self.fire(&["TollgateCounterUnreadable"], strange).await;
        self.redis.command(&["FLUSHALL"]).await;
        self.redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        fired.extend(self.fire(&["TollgateStoreFull"], soon).await);
        self.redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
        self.redis.command(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]).await;
        fired.extend(self.fire(&["TollgateStoreRefuses"], soon).await);
        self.redis.command(&["ACL", "SETUSER", "default", "+@all"]).await;
        fired
    }

    async fn replica_with_another_clock(&self) -> Vec<String> {
        let master = self.redis.address;
        let lines = vec![format!("replicaof {} {}", master.ip(), master.port())];
        let _replica =
            Redis::start_as(Setup { lines, clock_offset: -90, ..Setup::default() }).await;
        self.fire(&["TollgateReplicaClockApart"], soon).await
    }

    async fn store_that_hangs_and_drops(&self) -> Vec<String> {
        let hang = async || {
            self.redis.pause();
            tokio::time::sleep(Duration::from_millis(600)).await;
            self.redis.resume();
            soon().await;
        };
        let late = ["TollgateStoreLate", "TollgateAnswersSlow", "TollgateChargesUncertain"];
        let mut fired = self.fire(&late, hang).await;
        let drop = async || {
            let _ = self.redis.query::<Answer>(&["CLIENT", "KILL", "TYPE", "normal"]).await;
            soon().await;
        };
        fired.extend(self.fire(&["TollgateStoreConnectionsFlap"], drop).await);
        self.redis.kill();
        let away = ["TollgateStoreUnavailable", "TollgateDecidesAlone", "TollgateRuleUndecided"];
        fired.extend(self.fire(&away, soon).await);
        self.redis.restart().await;
        fired
    }

    /// Tests a process with in-memory counters, TLS and a control plane.
    async fn another_process(&self) -> Vec<String> {
        let authority = Authority::new();
        let folder = TempDir::new().unwrap();
        authority.sign("localhost").write(folder.path());
        let mut plane = ControlPlane::start(&[]);
        let [certificate, key] = crate::support::certificates::files(folder.path());
        let certificate = certificate.to_str().unwrap();
        let target = format!("127.0.0.1:{}", plane.port);
        let tls = ["--grpc-tls-cert", certificate, "--grpc-tls-key", key.to_str().unwrap()];
        let xds = ["--xds", &target, "--xds-backoff-min", "10ms", "--xds-backoff-max", "50ms"];
        let other = Tollgate::serve_by(&[&tls[..], &xds].concat());
        self.scrape(&[("tollgate", other.http, "/metrics")]);
        let babble = async || {
            let mut stream = TcpStream::connect(other.grpc).await.unwrap();
            let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            soon().await;
        };
        let mut fired = self.fire(&["TollgateCountsApart", "TollgateHandshakesFail"], babble).await;
        std::fs::write(certificate, "no certificate").unwrap();
        plane.kill();
        fired.extend(
            self.fire(&["TollgateCertificateRefused", "TollgateControlPlaneLost"], soon).await,
        );
        fired
    }

    /// Asserts that every panel has data. The windows of the queries cover the whole test.
    async fn has_data_for_every_panel(&self) {
        let text =
            std::fs::read_to_string(root().join("deploy/observability/dashboard.json")).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
        let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
        assert!(queries.len() > 25, "queries are missing");
        for query in queries {
            let filled = query.replace("$__rate_interval", "60s");
            let filled = ["$job", "$instance", "$envoys"]
                .iter()
                .fold(filled, |text, name| text.replace(name, ".*"));
            let samples = self
                .prometheus
                .query(&filled)
                .await
                .unwrap_or_else(|error| panic!("{query}: {error}"));
            assert!(!samples.is_empty(), "no data: {query}");
            assert!(samples.iter().all(|(_, value)| value.is_finite()), "{query}: {samples:?}");
        }
    }

    async fn end(&mut self) -> Vec<String> {
        self.tollgate.process.signal(rustix::process::Signal::KILL);
        let mut fired = self.fire(&["TollgateDown", "TollgateAnswersMissing"], soon).await;
        self.prometheus.scrape(&[]);
        fired.extend(self.fire(&["TollgateGone"], soon).await);
        self.browsing.abort();
        fired
    }
}

/// Waits for a scrape.
async fn soon() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// A reply whose content is ignored.
type Answer = ::redis::Value;

fn rules() -> String {
    std::fs::read_to_string(root().join("deploy/observability/alerts.yaml")).unwrap()
}

fn alerts() -> BTreeSet<String> {
    rules()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: ").map(str::to_owned))
        .collect()
}

/// Shortens the rules' windows to seconds, and removes `for`.
fn quick(rules: &str) -> String {
    let lines = rules.lines().filter(|line| !line.trim().starts_with("for: "));
    lines.collect::<Vec<_>>().join("\n").replace("[5m]", "[3s]").replace("[15m]", "[30s]")
}

/// Returns the README's example on free ports, with Envoy's statistics flushed as often as they are
/// scraped.
fn example() -> String {
    let text = crate::envoy::example::example();
    format!("stats_flush_interval: 0.2s\n{text}")
}

fn promtool(arguments: &[&str], file: &PathBuf) {
    let output = Command::new("promtool").args(arguments).arg(file).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&text));
}
