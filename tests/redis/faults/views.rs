//! Each fault of a store, and the text with which every view, probe and command reports it: the
//! rows of the table in `docs/faults.md`.

use serde_json::{Value, json};

use super::{Service, values};
use crate::support::redis::{Redis, Setup};
use crate::support::tollgate::output;
use crate::support::web::Web;
use crate::support::{PATIENCE, becomes};

/// A fault, with a part of each text that reports it; empty if nothing does.
struct Fault {
    name: &'static str,
    make: Make,
    /// `/readyz`, and with it gRPC health.
    readyz: &'static str,
    /// A line of `degraded` in `/api/v1/status`: also the banner of the page and of `top`.
    degraded: &'static str,
    /// The key view, `inspect`, and a dry run of a request.
    dry_run: &'static str,
    check_store: &'static str,
    /// A series that increases.
    metric: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Make {
    Killed,
    Frozen,
    PasswordAtStart,
    PasswordLater,
    WrongPassword,
    MissingRight,
    Full,
    Evicting,
    Replica,
    Unreadable,
}

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
        metric: "unavailable",
    },
    Fault {
        name: "Redis hangs",
        make: Make::Frozen,
        readyz: READY,
        degraded: "circuit breaker open in",
        dry_run: "no decision: store",
        check_store: "cannot connect to the store",
        metric: "late",
    },
    Fault {
        name: "a password is required, none configured",
        make: Make::PasswordAtStart,
        readyz: "store refuses the login",
        degraded: "store refuses the login; set --redis-password-file",
        dry_run: "no decision: store unavailable",
        check_store: "requires a password, but none is configured",
        metric: "unavailable",
    },
    Fault {
        name: "a password is set while it runs",
        make: Make::PasswordLater,
        readyz: "store refuses the login",
        degraded: "store refuses the login; set --redis-password-file",
        dry_run: "no decision: store unavailable",
        check_store: "requires a password, but none is configured",
        metric: "unavailable",
    },
    Fault {
        name: "a wrong user or password",
        make: Make::WrongPassword,
        readyz: "store refuses the login",
        degraded: "store refuses the login; set --redis-password-file",
        dry_run: "no decision: store unavailable",
        check_store: "correct --redis-user and --redis-password-file",
        metric: "unavailable",
    },
    Fault {
        name: "the user loses a permission while it runs",
        make: Make::MissingRight,
        readyz: "store user lacks permissions",
        degraded: "store user lacks permissions",
        dry_run: "no decision: store",
        check_store: "run ACL SETUSER default +evalsha",
        metric: "refused",
    },
    Fault {
        name: "Redis is full (`noeviction`)",
        make: Make::Full,
        readyz: READY,
        degraded: "decisions/s failed: store full (rule user); raise maxmemory",
        dry_run: "store full: ",
        check_store: "a key cannot be written: ",
        metric: "no_room",
    },
    Fault {
        name: "Redis is full, with an eviction policy",
        make: Make::Evicting,
        readyz: READY,
        degraded: "counters are evicted when it is full",
        dry_run: "",
        check_store: "may evict live counters",
        metric: "",
    },
    Fault {
        name: "the server is a replica",
        make: Make::Replica,
        readyz: "store is a read-only replica",
        degraded: "store is a read-only replica",
        dry_run: "no decision: store unavailable",
        check_store: "server is a read-only replica",
        metric: "unavailable",
    },
    Fault {
        name: "a key has other contents",
        make: Make::Unreadable,
        readyz: READY,
        degraded: "decisions/s failed: counter state unreadable",
        dry_run: "no decision: counter state unreadable",
        check_store: "",
        metric: "unreadable",
    },
];

impl Fault {
    /// Returns the row of the table in `docs/faults.md`.
    fn row(&self) -> String {
        let code =
            |text: &str| if text.is_empty() { "–".to_owned() } else { format!("`{text}`") };
        let Self { name, degraded, dry_run, check_store, .. } = self;
        let readyz =
            if self.readyz == READY { "200".to_owned() } else { format!("503 `{}`", self.readyz) };
        let [degraded, dry_run, check_store, metric] =
            [degraded, dry_run, check_store, self.metric].map(code);
        format!("| {name} | {readyz} | {degraded} | {dry_run} | {check_store} | {metric} |")
    }
}

/// Starts a server and a service, and makes a fault.
async fn made(make: Make) -> (Redis, Service, String) {
    let password = matches!(make, Make::PasswordAtStart | Make::WrongPassword).then_some("right");
    let redis = Redis::start_as(Setup { password, ..Setup::default() }).await;
    let login = if make == Make::WrongPassword { ":wrong@" } else { "" };
    let url = format!("redis://{login}{}", redis.address);
    if password.is_some() {
        return (redis, Service::begin(&url, &[]).await, url);
    }
    let service = Service::start(&url, &[]).await;
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
            for key in redis.ask::<Vec<Vec<u8>>>(&["KEYS", "*value-*"]).await.unwrap() {
                redis.ask_bytes::<()>(&[b"SET", &key, b"no counter"]).await.unwrap();
            }
        }
        Make::PasswordAtStart | Make::WrongPassword => {}
    }
    (redis, service, url)
}

/// Returns what a dry run reports: the error, or the reason why a write would fail.
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

async fn is_reported(fault: &Fault) {
    let (redis, service, url) = made(fault.make).await;
    let admin = Web::new(service.tollgate.admin);
    let name = fault.name;
    let user = &values(1)[0];
    let has = |part: &'static str| move |text: &String| text.contains(part);
    let degraded = async || {
        // Faults that only a decision meets are reported while decisions meet them.
        let _ = service.ask("user", user).await;
        admin.get("/api/v1/status").await.body
    };
    becomes(&format!("{name}: degraded"), PATIENCE, degraded, has(fault.degraded)).await;
    let readyz = async || service.web.get("/readyz").await.body;
    becomes(&format!("{name}: readyz"), PATIENCE, readyz, has(fault.readyz)).await;
    assert_eq!(service.readiness().await == 200, fault.readyz == READY, "{name}");
    let health = service.web.get("/healthcheck").await.status;
    assert_eq!(health == 200, fault.readyz == READY, "{name}");
    becomes(&format!("{name}: dry run"), PATIENCE, || dry_run(&admin), has(fault.dry_run)).await;
    if !fault.metric.is_empty() {
        let series =
            format!("tollgate_undecided_total{OF_USER}{}\",effect=\"failed\"}}", fault.metric);
        assert!(service.web.metric(&series).await > 0, "{name}: {series}");
        let failed = r#"tollgate_decisions_total{domain="test",rule="user",outcome="failed"}"#;
        assert!(service.web.metric(failed).await > 0, "{name}");
    }
    let checked = output(["check-store", &url]);
    let checked = [checked.stdout, checked.stderr].concat();
    let checked = String::from_utf8_lossy(&checked);
    assert!(checked.contains(fault.check_store), "{name}: check-store: {checked}");
    if fault.make == Make::Frozen {
        redis.resume();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_fault_is_reported_by_every_view() {
    for fault in FAULTS {
        is_reported(fault).await;
    }
}

#[test]
fn the_table_in_the_book_lists_every_fault() {
    let page = std::fs::read_to_string("docs/faults.md").unwrap();
    let missing: Vec<String> =
        FAULTS.iter().map(Fault::row).filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/faults.md lacks:\n{}", missing.join("\n"));
}
