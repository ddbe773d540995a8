//! A real Envoy, which `tests/run` installs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use super::process::Process;
use super::release;
use super::upstream::Upstream;
use super::web::Web;
use super::{TEST_TIMEOUT, becomes, eventually};
use crate::root;

/// Admin interface of the examples, which have none.
const ADMIN: &str =
    "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n";

/// A running Envoy with its upstream.
pub struct Envoy {
    /// Client of its listener.
    pub edge: Web,
    /// Client of its admin interface.
    pub admin: Web,
    _upstream: Upstream,
    _process: Process,
    _files: TempDir,
}

impl Envoy {
    /// Starts Envoy with `tests/envoy/<template>`, in which each `${NAME}` is replaced with its
    /// value from `values`.
    pub async fn start(template: &str, values: &[(&str, &str)]) -> Self {
        let text = std::fs::read_to_string(root().join("tests/envoy").join(template)).unwrap();
        Self::start_by(&text, values).await
    }

    /// Starts Envoy with a template text, which must define `admin` and a listener `edge`.
    pub async fn start_by(template: &str, values: &[(&str, &str)]) -> Self {
        Self::start_with_flags(&["--concurrency", "1"], template, values).await
    }

    /// Starts Envoy with flags, among them its number of worker threads.
    pub async fn start_with_flags(flags: &[&str], template: &str, values: &[(&str, &str)]) -> Self {
        Self::start_binary(&binary(), flags, template, values).await
    }

    /// Starts another Envoy than the usual one.
    pub async fn start_binary(
        binary: &Path,
        flags: &[&str],
        template: &str,
        values: &[(&str, &str)],
    ) -> Self {
        let upstream = Upstream::start().await;
        let files = TempDir::new().unwrap();
        let upstream_port = upstream.address.port().to_string();
        let values = [values, &[("UPSTREAM", upstream_port.as_str())]].concat();
        let bootstrap = files.path().join("bootstrap.yaml");
        let admin = files.path().join("admin");
        std::fs::write(&bootstrap, filled(template, &values)).unwrap();

        let mut command = Command::new(binary);
        command.arg("-c").arg(&bootstrap).arg("--admin-address-path").arg(&admin);
        // Hot restart would need a base ID that is unique among the Envoys on this machine.
        command.args(["--disable-hot-restart", "--log-level", "warning"]);
        command.args(flags);
        let mut process = Process::start("envoy", &mut command);
        let admin =
            eventually("envoy logs the address of its admin interface", TEST_TIMEOUT, || {
                assert!(process.is_running(), "envoy ended:\n{}", process.log().join("\n"));
                std::fs::read_to_string(&admin).ok()?.trim().parse().ok()
            });
        let admin = Web::new(admin);
        let edge =
            becomes("envoy listens", TEST_TIMEOUT, || listener(&admin), Option::is_some).await;
        Self {
            edge: Web::new(edge.unwrap()),
            admin,
            _upstream: upstream,
            _process: process,
            _files: files,
        }
    }

    /// Returns one of Envoy's own counters.
    pub async fn counter(&self, name: &str) -> u64 {
        let stats = self.admin.get(&format!("/stats?format=json&filter=^{name}$")).await.body;
        let stats: Value = serde_json::from_str(&stats).unwrap();
        stats["stats"]
            .as_array()
            .unwrap()
            .iter()
            .find_map(|stat| stat["value"].as_u64())
            .unwrap_or_default()
    }
}

/// Returns the listener's address once Envoy is ready.
async fn listener(admin: &Web) -> Option<SocketAddr> {
    if admin.get("/ready").await.status != 200 {
        return None;
    }
    let listeners: Value =
        serde_json::from_str(&admin.get("/listeners?format=json").await.body).unwrap();
    let edge = listeners["listener_statuses"]
        .as_array()?
        .iter()
        .find(|listener| listener["name"] == "edge")?;
    let address = &edge["local_address"]["socket_address"];
    let port = u16::try_from(address["port_value"].as_u64()?).ok().filter(|port| *port > 0)?;
    Some((address["address"].as_str()?.parse::<std::net::IpAddr>().ok()?, port).into())
}

fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let text = values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value)
    });
    let left = text.lines().find(|line| line.contains("${") && !line.trim_start().starts_with('#'));
    assert_eq!(left, None, "a place is not filled in");
    text
}

/// Returns the binary that `tests/run` names in TOLLGATE_ENVOY, or the one that an earlier run
/// installed in `.venv`.
pub fn binary() -> PathBuf {
    let left_by_run = root().join(".venv/bin/envoy");
    let named = std::env::var_os("TOLLGATE_ENVOY").map(PathBuf::from);
    let binary = named.or_else(|| left_by_run.exists().then_some(left_by_run));
    binary.expect(
        "these tests need Envoy: run `tests/run` once, which installs it in .venv and runs them",
    )
}

/// Returns the oldest Envoy that loads the module, which `tests/run` installs, too.
pub fn oldest_binary() -> PathBuf {
    let binary = root().join(".venv/oldest_envoy/envoy/_bin/envoy");
    assert!(binary.exists(), "this test needs an older Envoy: run `tests/run` once");
    binary
}

/// Returns the module of `envoy/`, which the first call builds.
pub fn module() -> PathBuf {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE
        .get_or_init(|| {
            let mut cargo = release::cargo();
            cargo.args(["build", "--locked", "--package", "tollgate-envoy"]);
            let build = cargo.args(["--message-format", "json"]).current_dir(root());
            let built = build.output().unwrap();
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            let messages = String::from_utf8(built.stdout).unwrap();
            let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
            let names =
                messages.flat_map(|message: Value| message["filenames"].as_array().cloned());
            let files = names.flatten().filter_map(|name| Some(PathBuf::from(name.as_str()?)));
            let is_module = |file: &PathBuf| file.ends_with("libtollgate_envoy.so");
            files.into_iter().find(is_module).expect("cargo names the file")
        })
        .clone()
}

/// Adapts a bootstrap of `deploy/envoy` or `deploy/gateways`: free ports, the tests' upstream as
/// the application, and longer timeouts for busy machines, since Envoy retries a late call or
/// admits its request.
pub fn on_free_ports(text: &str) -> String {
    let text = text
        .replace("timeout: 0.02s", "timeout: 5s")
        .replace("max_interval: 0.02s", "max_interval: 5s");
    let (listeners, clusters) = text.split_once("\n  clusters:\n").unwrap();
    let listeners = listeners
        .replace("port_value: 10000", "port_value: 0")
        .replace("port_value: 10001", "port_value: 0");
    let clusters = clusters.replace("port_value: 10001", "port_value: ${UPSTREAM}");
    let clusters = clusters.replace("port_value: 8081", "port_value: ${TOLLGATE}");
    format!("{ADMIN}{listeners}\n  clusters:\n{clusters}")
}
