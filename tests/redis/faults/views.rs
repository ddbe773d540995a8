//! Each fault of a store, and the text with which every view, probe and command reports it: the
//! rows of the table in `docs/faults.md`.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::faults::{Service, values};
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::{Redis, Setup};
use crate::support::rls::channel;
use crate::support::tollgate::output;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// A fault, with a part of each text that reports it; empty if none does.
struct Fault {
    name: &'static str,
    make: Make,
    /// `/readyz`, and with it gRPC health and `/healthcheck`.
    readyz: &'static str,
    /// A line of `degraded` in `/api/v1/status`: also the banner of the page and of `top`.
    degraded: &'static str,
    /// The key view, `inspect`, and a dry run of a request.
    dry_run: &'static str,
    check_store: &'static str,
    /// `tollgate hit` of one hit.
    hit: &'static str,
    /// A log line of the service.
    log: &'static str,
    /// The `kind` of the series that increase.
    metric: &'static str,
    /// The alert that this kind makes fire.
    alert: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Make {
    Killed,
    MasterDown,
    Frozen,
    PasswordAtStart,
    PasswordLater,
    WrongPassword,
    MissingRight,
    NoRights,
    Full,
    Evicting,
    Replica,
    Unreadable,
}

/// So short that timeouts keep being counted while a server hangs.
const TIMEOUT: &str = "100ms";

/// Decisions at once: more than those without a reply that open a circuit breaker.
const WAITING: usize = 16;

const READY: &str = "ok";
const OF_USER: &str = r#"{domain="test",rule="user",kind=""#;

const FAULTS: &[Fault] = &[
    Fault {
        name: "Redis is killed",
        make: Make::Killed,
        readyz: READY,
        degraded: "decisions/s failed: store unavailable (rule user)",
        dry_run: "no decision: store unavailable",
        check_store: "cannot connect to the store",
        hit: "no decision: store unavailable",
        log: "Redis unreachable; retrying",
        metric: "unavailable",
        alert: "TollgateStoreUnavailable",
    },
    Fault {
        name: "Cluster: a master is down",
        make: Make::MasterDown,
        readyz: READY,
        degraded: "decisions/s failed: store unavailable (rule user)",
        dry_run: "no decision: store unavailable",
        check_store: "cannot connect: ",
        hit: "no decision: store unavailable",
        log: "Redis unreachable; retrying",
        metric: "unavailable",
        alert: "TollgateStoreUnavailable",
    },
    Fault {
        name: "Redis hangs",
        make: Make::Frozen,
        readyz: READY,
        degraded: "circuit breaker open in",
        dry_run: "no decision: store",
        check_store: "cannot connect to the store",
        hit: "no decision: store",
        log: "Redis unreachable; retrying",
        metric: "late",
        alert: "TollgateStoreLate",
    },
    Fault {
        name: "a password is required, none configured",
        make: Make::PasswordAtStart,
        readyz: "store refuses the login",
        degraded: "store refuses the login; set --redis-password-file",
        dry_run: "no decision: store unavailable",
        check_store: "requires a password, but none is configured",
        hit: "no decision: store unavailable",
        log: "Redis refuses the login; not ready until it is accepted",
        metric: "unavailable",
        alert: "TollgateStoreUnavailable",
    },
    Fault {
        name: "a password is set while it runs",
        make: Make::PasswordLater,
        readyz: "store refuses the login",
        degraded: "store refuses the login; set --redis-password-file",
        dry_run: "no decision: store unavailable",
        check_store: "requires a password, but none is configured",
        hit: "no decision: store unavailable",
        log: "Redis refuses the login; not ready until it is accepted",
        metric: "unavailable",
        alert: "TollgateStoreUnavailable",
    },
    Fault {
        name: "a wrong user or password",
        make: Make::WrongPassword,
        readyz: "store refuses the login",
        degraded: "store refuses the login; set --redis-password-file",
        dry_run: "no decision: store unavailable",
        check_store: "correct --redis-user and --redis-password-file",
        hit: "no decision: store unavailable",
        log: "Redis refuses the login; not ready until it is accepted",
        metric: "unavailable",
        alert: "TollgateStoreUnavailable",
    },
    Fault {
        name: "the user loses a permission while it runs",
        make: Make::MissingRight,
        readyz: "store user lacks permissions",
        degraded: "store user lacks permissions",
        dry_run: "no decision: store",
        check_store: "run ACL SETUSER default +evalsha",
        hit: "no decision: store",
        log: "Redis denies commands that decisions require",
        metric: "refused",
        alert: "TollgateStoreRefuses",
    },
    Fault {
        name: "the user lacks permissions at the start",
        make: Make::NoRights,
        readyz: "store user lacks permissions",
        degraded: "store user lacks permissions",
        dry_run: "no decision: store unavailable",
        check_store: "run ACL SETUSER app +evalsha",
        hit: "no decision: store unavailable",
        log: "Redis denies commands that decisions require",
        metric: "unavailable",
        alert: "TollgateStoreUnavailable",
    },
    Fault {
        name: "Redis is full (`noeviction`)",
        make: Make::Full,
        readyz: READY,
        degraded: "decisions/s failed: store full (rule user); raise maxmemory",
        dry_run: "store full: ",
        check_store: "a key cannot be written: ",
        hit: "no decision: store full",
        log: "",
        metric: "no_room",
        alert: "TollgateStoreFull",
    },
    Fault {
        name: "Redis is full, with an eviction policy",
        make: Make::Evicting,
        readyz: READY,
        degraded: "counters are evicted when it is full",
        dry_run: "",
        check_store: "may evict live counters",
        hit: "",
        log: "",
        metric: "",
        alert: "",
    },
    Fault {
        name: "the server is a replica",
        make: Make::Replica,
        readyz: "store is a read-only replica",
        degraded: "store is a read-only replica",
        dry_run: "no decision: store unavailable",
        check_store: "server is a read-only replica",
        hit: "no decision: store unavailable",
        log: "Redis is a read-only replica; waiting for a master",
        metric: "unavailable",
        alert: "TollgateStoreUnavailable",
    },
    Fault {
        name: "a key has other contents",
        make: Make::Unreadable,
        readyz: READY,
        degraded: "decisions/s failed: counter state unreadable",
        dry_run: "no decision: counter state unreadable",
        check_store: "",
        hit: "no decision: counter state unreadable",
        log: "",
        metric: "unreadable",
        alert: "TollgateCounterUnreadable",
    },
];

impl Fault {
    /// Returns the row of the table in `docs/faults.md`.
    fn row(&self) -> String {
        let code =
            |text: &str| if text.is_empty() { "–".to_owned() } else { format!("`{text}`") };
        let Self { name, degraded, dry_run, check_store, hit, log, .. } = self;
        let readyz =
            if self.readyz == READY { "200".to_owned() } else { format!("503 `{}`", self.readyz) };
        let texts = [degraded, dry_run, check_store, hit, log, self.metric].map(code).join(" | ");
        let alert = if self.alert.is_empty() { "–" } else { self.alert };
        format!("| {name} | {readyz} | {texts} | {alert} |")
    }
}

/// Starts a Cluster and a service, and kills the master of the counter of the first value.
async fn without_a_master() -> (Cluster, Service, String) {
    let layout = Layout { replicas: 0, needs_all_slots: false, ..Layout::default() };
    let cluster = Cluster::start_as(layout).await;
    let url = cluster.url();
    let service = Service::begin_within(TIMEOUT, &url, &[]).await.started().await;
    let counter = format!("*{}*", values(1)[0]);
    for node in &cluster.nodes {
        if !node.redis.query::<Vec<Vec<u8>>>(&["KEYS", &counter]).await.unwrap().is_empty() {
            node.redis.kill();
        }
    }
    (cluster, service, url)
}

/// Starts a server and a service, and makes a fault.
async fn made(make: Make) -> (Redis, Service, String) {
    if make == Make::NoRights {
        let lines = vec!["user app on >first ~* -@all +auth +hello +client +ping".to_owned()];
        let redis = Redis::start_as(Setup { lines, ..Setup::default() }).await;
        let url = format!("redis://app:first@{}", redis.address);
        return (redis, Service::begin(&url, &[]).await, url);
    }
    let password = matches!(make, Make::PasswordAtStart | Make::WrongPassword).then_some("right");
    let redis = Redis::start_as(Setup { password, ..Setup::default() }).await;
    let login = if make == Make::WrongPassword { ":wrong@" } else { "" };
    let url = format!("redis://{login}{}", redis.address);
    if password.is_some() {
        return (redis, Service::begin(&url, &[]).await, url);
    }
    let service = Service::begin_within(TIMEOUT, &url, &[]).await.started().await;
    match make {
        Make::Killed => redis.kill(),
        Make::Frozen => redis.pause(),
        Make::PasswordLater => {
            redis.command(&["ACL", "SETUSER", "operator", "on", ">own", "~*", "+@all"]).await;
            redis.command(&["CONFIG", "SET", "requirepass", "later"]).await;
            let operator = format!("redis://operator:own@{}", redis.address);
            let operator = redis::Client::open(operator).unwrap();
            let mut operator = operator.get_multiplexed_async_connection().await.unwrap();
            let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
            redis::Cmd::new().arg(&kill).exec_async(&mut operator).await.unwrap();
        }
        Make::MissingRight => {
            redis.command(&["ACL", "SETUSER", "default", "-evalsha"]).await;
        }
        Make::Full => {
            redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        }
        Make::Evicting => {
            redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
            redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        }
        Make::Replica => {
            redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        }
        Make::Unreadable => {
            for key in redis.query::<Vec<Vec<u8>>>(&["KEYS", "*value-*"]).await.unwrap() {
                redis.query_bytes::<()>(&[b"SET", &key, b"no counter"]).await.unwrap();
            }
        }
        Make::PasswordAtStart | Make::WrongPassword | Make::NoRights | Make::MasterDown => {}
    }
    (redis, service, url)
}

/// Returns the report of a dry run: the error, or the reason why a write would fail.
async fn dry_run(admin: &Web) -> String {
    let entries = json!([{ "key": "user", "value": values(1)[0] }]);
    let request = json!({ "domain": "test", "descriptors": [{ "entries": entries }] });
    let headers = [("content-type", "application/json")];
    let reply = admin.send_with("POST", "/api/v1/try", &headers, request.to_string()).await;
    let body: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    [&body["write_error"], &body["error"]]
        .iter()
        .filter_map(|text| text.as_str())
        .collect::<Vec<_>>()
        .concat()
}

/// Returns both outputs of a command.
fn printed(arguments: &[&str]) -> String {
    let printed = output(arguments);
    String::from_utf8([printed.stdout, printed.stderr].concat()).unwrap()
}

async fn is_made_and_reported(fault: &Fault) {
    if fault.make == Make::MasterDown {
        let (_cluster, service, url) = without_a_master().await;
        return is_reported(fault, &service, &url).await;
    }
    let (redis, service, url) = made(fault.make).await;
    is_reported(fault, &service, &url).await;
    if fault.make == Make::Frozen {
        redis.resume();
    }
}

async fn is_reported(fault: &Fault, service: &Service, url: &str) {
    let admin = Web::new(service.tollgate.admin);
    let name = fault.name;
    let user = &values(1)[0];
    let has = |part: &'static str| move |text: &String| text.contains(part);
    let degraded = async || {
        // Faults that only a decision meets are reported while decisions meet them; a circuit
        // breaker opens if several wait in vain before their connection is given up.
        join_all((0..WAITING).map(|_| service.decide("user", user))).await;
        admin.get("/api/v1/status").await.body
    };
    becomes(&format!("{name}: degraded"), TEST_TIMEOUT, degraded, has(fault.degraded)).await;
    let readyz = async || service.web.get("/readyz").await.body;
    becomes(&format!("{name}: readyz"), TEST_TIMEOUT, readyz, has(fault.readyz)).await;
    assert_eq!(service.readiness().await == 200, fault.readyz == READY, "{name}");
    let health = service.web.get("/healthcheck").await.status;
    assert_eq!(health == 200, fault.readyz == READY, "{name}");
    let mut health = HealthClient::new(channel(service.tollgate.grpc).await);
    let health = health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status();
    assert_eq!(health == ServingStatus::Serving, fault.readyz == READY, "{name}");
    let grpc = service.tollgate.grpc.to_string();
    let hit = async || printed(&["hit", &grpc, "test", &format!("user={user}")]);
    becomes(&format!("{name}: hit"), TEST_TIMEOUT, hit, has(fault.hit)).await;
    let log = async || service.tollgate.process.log().join("\n");
    becomes(&format!("{name}: log"), TEST_TIMEOUT, log, has(fault.log)).await;
    becomes(&format!("{name}: dry run"), TEST_TIMEOUT, || dry_run(&admin), has(fault.dry_run))
        .await;
    if !fault.metric.is_empty() {
        let series =
            format!("tollgate_undecided_total{OF_USER}{}\",effect=\"failed\"}}", fault.metric);
        assert!(service.web.metric(&series).await > 0, "{name}: {series}");
        let errors = format!("tollgate_store_errors_total{{kind=\"{}\"}}", fault.metric);
        assert!(service.web.metric(&errors).await > 0, "{name}: {errors}");
        let failed = r#"tollgate_decisions_total{domain="test",rule="user",outcome="failed"}"#;
        assert!(service.web.metric(failed).await > 0, "{name}");
    }
    // A busy machine may not connect in the time of the command.
    let check_store = async || printed(&["check-store", url]);
    let what = format!("{name}: check-store");
    becomes(&what, TEST_TIMEOUT, check_store, has(fault.check_store)).await;
}

/// Most of the time of a fault is the wait for timeouts, so some are made at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_fault_is_reported_by_every_view() {
    const AT_ONCE: usize = 4;
    let some = |first| async move {
        for fault in FAULTS.iter().skip(first).step_by(AT_ONCE) {
            is_made_and_reported(fault).await;
        }
    };
    let reported: JoinSet<()> = (0..AT_ONCE).map(some).collect();
    reported.join_all().await;
}

#[test]
fn the_table_in_the_book_lists_every_fault() {
    let page = std::fs::read_to_string("docs/faults.md").unwrap();
    let missing: Vec<String> =
        FAULTS.iter().map(Fault::row).filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/faults.md lacks:\n{}", missing.join("\n"));
}

#[test]
fn the_alert_of_every_fault_is_about_its_kind_of_error() {
    let alerts = std::fs::read_to_string("deploy/observability/alerts.yaml").unwrap();
    for fault in FAULTS.iter().filter(|fault| !fault.alert.is_empty()) {
        let begin = alerts.find(&format!("- alert: {}\n", fault.alert)).expect(fault.name);
        let expression = alerts[begin..].split("labels: ").next().unwrap();
        let is_of = |text: &str| text.split(['"', '|']).any(|kind| kind == fault.metric);
        assert!(is_of(expression), "{}: {expression}", fault.name);
    }
}
