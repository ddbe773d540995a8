//! Real gateways, with the configurations of `deploy/gateways`.

mod hostile;

use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::envoy::{Envoy, on_free_ports};
use crate::support::policy::Policies;
use crate::support::process::Process;
use crate::support::redis::port;
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// A gateway in front of a stub application.
struct Gateway {
    edge: Web,
    _process: Process,
    _files: TempDir,
}

/// Serves the policy of the examples, with a window that does not end during a test.
fn tollgate() -> Tollgate {
    let policy = std::fs::read_to_string(root().join("deploy/gateways/policy.yaml")).unwrap();
    Tollgate::serve(Policies::of(&policy.replace("unit: hour", "unit: year")).path())
}

/// Returns a file of the examples with other ports, and longer timeouts for busy machines.
fn adapted(name: &str, ports: &[u16; 2], tollgate: SocketAddr) -> String {
    let text = std::fs::read_to_string(root().join("deploy/gateways").join(name)).unwrap();
    text.replace("127.0.0.1:10000", &format!("127.0.0.1:{}", ports[0]))
        .replace("127.0.0.1:10001", &format!("127.0.0.1:{}", ports[1]))
        .replace("127.0.0.1:8080", &tollgate.to_string())
        // One process, which ends with its test.
        .replace("daemon off;", "daemon off;\nmaster_process off;")
        .replace("proxy_connect_timeout 50ms", "proxy_connect_timeout 5s")
        .replace("proxy_read_timeout 200ms", "proxy_read_timeout 5s")
        .replace("TIMEOUT_MS = 200", "TIMEOUT_MS = 5000")
        .replace("dial_timeout 50ms", "dial_timeout 5s")
        .replace("response_header_timeout 200ms", "response_header_timeout 5s")
}

impl Gateway {
    /// Starts a program. `command` makes its command line from a folder with `files`.
    async fn start(
        name: &'static str,
        files: &[&str],
        tollgate: SocketAddr,
        command: impl FnOnce(&TempDir) -> Command,
    ) -> Self {
        let ports = [port::free(), port::free()];
        let folder = TempDir::new().unwrap();
        for file in files {
            let text = adapted(file, &ports, tollgate);
            let text = text.replace("deploy/gateways/", &format!("{}/", folder.path().display()));
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let process = Process::start(name, &mut command(&folder));
        let address: SocketAddr = format!("127.0.0.1:{}", ports[0]).parse().unwrap();
        let listens = || async { tokio::net::TcpStream::connect(address).await.is_ok() };
        becomes("the gateway listens", TEST_TIMEOUT, listens, |is| *is).await;
        Self { edge: Web::new(address), _process: process, _files: folder }
    }

    async fn nginx(tollgate: SocketAddr) -> Self {
        Self::start("nginx", &["nginx.conf"], tollgate, |folder| {
            let mut nginx = Command::new("nginx");
            nginx.arg("-p").arg(folder.path()).args(["-e", "stderr"]);
            nginx.arg("-c").arg(folder.path().join("nginx.conf"));
            nginx
        })
        .await
    }

    async fn haproxy(tollgate: SocketAddr) -> Self {
        Self::start("haproxy", &["haproxy.cfg", "tollgate.lua"], tollgate, |folder| {
            let mut haproxy = Command::new("haproxy");
            haproxy.args(["-db", "-f"]).arg(folder.path().join("haproxy.cfg"));
            haproxy
        })
        .await
    }

    async fn caddy(tollgate: SocketAddr) -> Self {
        Self::start("caddy", &["Caddyfile"], tollgate, |folder| {
            let mut caddy = Command::new("caddy");
            caddy.args(["run", "--adapter", "caddyfile", "--config"]);
            caddy.arg(folder.path().join("Caddyfile"));
            caddy.env("HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
            caddy.env("XDG_DATA_HOME", folder.path());
            caddy
        })
        .await
    }
}

/// Sends requests that a client varies: all are of one address, which has 100.
async fn admits_100(edge: &Web) {
    for number in 0..100 {
        let forwarded = format!("198.51.100.{number}");
        let target = format!("/page/{number}");
        let headers = [
            ("x-forwarded-for", forwarded.as_str()),
            ("x-forwarded-uri", "/elsewhere"),
            ("x-forwarded-method", "DELETE"),
        ];
        let reply = edge.send_with("GET", &target, &headers, "").await;
        assert_eq!((reply.status, reply.body.trim()), (200, "hello"), "request {number}");
    }
    let denied = edge.get("/").await;
    assert_eq!(denied.status, 429, "{denied:?}");
    let seconds: u64 = denied.header("retry-after").parse().unwrap();
    assert!((1..=366 * 86_400).contains(&seconds), "{seconds}");
}

/// Sends attempts to log in, of which five pass, by several spellings of the path.
async fn limits_the_path(edge: &Web) {
    for path in ["/login", "/login?next=/", "/%6cogin", "/x/%2e%2e/login", "/login;x"] {
        assert_eq!(edge.send("POST", path, "user=ann").await.status, 200, "{path}");
    }
    let denied = edge.send("POST", "/login", "user=ann").await;
    assert_eq!(denied.status, 429, "{denied:?}");
    assert_eq!(edge.get("/login").await.status, 200, "another method");
}

/// Sends a request while the service does not answer, and one after it has ended.
async fn denies_without_a_decision(edge: &Web, mut tollgate: Tollgate, [hung, ended]: [u16; 2]) {
    tollgate.process.stop();
    assert_eq!(edge.get("/").await.status, hung, "no answer");
    tollgate.process.signal(Signal::CONT);
    tollgate.terminate();
    assert_eq!(edge.get("/").await.status, ended);
}

#[tokio::test]
async fn nginx_admits_100_and_then_answers_429() {
    let tollgate = tollgate();
    let nginx = Gateway::nginx(tollgate.http).await;
    limits_the_path(&nginx.edge).await;
    let mut refused = Vec::new();
    for path in ["/x/..%2flogin", "/x/..;/login"] {
        refused.push(nginx.edge.get(path).await.status);
    }
    assert_eq!(refused, [400, 400]);
    denies_without_a_decision(&nginx.edge, tollgate, [503, 503]).await;

    let tollgate = self::tollgate();
    let nginx = Gateway::nginx(tollgate.http).await;
    admits_100(&nginx.edge).await;
}

#[tokio::test]
async fn haproxy_admits_100_and_then_answers_429() {
    let tollgate = tollgate();
    let haproxy = Gateway::haproxy(tollgate.http).await;
    limits_the_path(&haproxy.edge).await;
    assert_eq!(haproxy.edge.get("/x/..%2flogin").await.status, 400);
    denies_without_a_decision(&haproxy.edge, tollgate, [503, 503]).await;

    let tollgate = self::tollgate();
    let haproxy = Gateway::haproxy(tollgate.http).await;
    admits_100(&haproxy.edge).await;
}

#[tokio::test]
async fn caddy_admits_100_and_then_answers_429() {
    let tollgate = tollgate();
    let caddy = Gateway::caddy(tollgate.http).await;
    limits_the_path(&caddy.edge).await;
    assert_eq!(caddy.edge.get("/x/..%2flogin").await.status, 400);
    denies_without_a_decision(&caddy.edge, tollgate, [504, 502]).await;

    let tollgate = self::tollgate();
    let caddy = Gateway::caddy(tollgate.http).await;
    admits_100(&caddy.edge).await;
}

#[tokio::test]
async fn envoy_admits_100_and_then_answers_429() {
    let hello = Hello::start().await;
    let tollgate = tollgate();
    let envoy = envoy_of(&tollgate, &hello).await;
    limits_the_path(&envoy.edge).await;
    assert_eq!(envoy.edge.get("/x/..%2flogin").await.status, 400);
    denies_without_a_decision(&envoy.edge, tollgate, [503, 503]).await;

    let tollgate = self::tollgate();
    let envoy = envoy_of(&tollgate, &hello).await;
    admits_100(&envoy.edge).await;
}

/// Starts Envoy in front of an application.
async fn envoy_of(tollgate: &Tollgate, hello: &Hello) -> Envoy {
    envoy_by("gateways/envoy.yaml", tollgate, hello, str::to_owned).await
}

/// Starts an Envoy in front of `hello` by a file of `deploy`, which `change` changes.
async fn envoy_by(
    file: &str,
    tollgate: &Tollgate,
    hello: &Hello,
    change: impl Fn(&str) -> String,
) -> Envoy {
    let bootstrap = std::fs::read_to_string(root().join("deploy").join(file)).unwrap();
    let bootstrap = on_free_ports(&change(&bootstrap))
        .replace("port_value: ${UPSTREAM}", "port_value: ${HELLO}");
    let [grpc, port] = [tollgate.grpc, hello.address].map(|address| address.port().to_string());
    Envoy::start_by(&bootstrap, &[("TOLLGATE", &grpc), ("HELLO", &port)]).await
}

/// An application that answers like the stubs of the other gateways.
struct Hello {
    address: SocketAddr,
    server: tokio::task::JoinHandle<()>,
}

impl Hello {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(async || "hello\n");
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, server }
    }
}

impl Drop for Hello {
    fn drop(&mut self) {
        self.server.abort();
    }
}
