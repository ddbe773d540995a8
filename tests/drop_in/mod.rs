//! Drop-in replacement of envoyproxy/ratelimit: the binary under that service's name, configured by
//! environment variables only.
//!
//! | module | subject |
//! |---|---|
//! | `plain` | deployment by Istio's sample: a ConfigMap, a Redis, no TLS |
//! | `variables` | effects of one or two additional variables |
//! | `redis` | connection to Redis |
//! | `gateway` | deployment by Envoy Gateway: certificates, a control plane, an Envoy |
//! | `lifecycle` | its start, changed configuration, and end |
//! | `logs` | its log: the names of fields, and requests at level debug; spans |
//! | `migrate` | `tollgate migrate`: its files are served; `--live` compares answers |
//! | `defects` | defects of that service that this one does not have |
//!
//! More defects are tested in `requests`, `answers`, `drain`, `statistics` and `tls`.

mod defects;
mod gateway;
mod lifecycle;
mod logs;
mod migrate;
mod plain;
mod redis;
mod variables;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::policy::Policies;
use crate::support::process::Process;
use crate::support::redis::Redis;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Settings for tests: this machine and free ports; no drain delay, which is this service's own
/// addition, and a drain timeout that a test which waits for the end does not reach.
const HERE: [(&str, &str); 8] = [
    ("HOST", "127.0.0.1"),
    ("PORT", "0"),
    ("GRPC_HOST", "127.0.0.1"),
    ("GRPC_PORT", "0"),
    ("DEBUG_HOST", "127.0.0.1"),
    ("DEBUG_PORT", "0"),
    ("TOLLGATE_DRAIN_DELAY", "0s"),
    ("TOLLGATE_DRAIN_TIMEOUT", "60s"),
];

/// A running process under that service's name.
struct Ratelimit {
    process: Process,
    http: Web,
    admin: Web,
    _folder: TempDir,
}

impl Ratelimit {
    /// Starts it; later entries of `variables` take precedence.
    fn start(variables: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut process = Process::start("ratelimit", &mut command(folder.path(), variables));
        let http = Web::new(listening(&mut process, "http"));
        let admin = Web::new(listening(&mut process, "admin"));
        Self { process, http, admin, _folder: folder }
    }

    /// Starts it, and waits until it is healthy.
    async fn healthy(variables: &[(&str, &str)]) -> Self {
        let service = Self::start(variables);
        becomes("it is healthy", TEST_TIMEOUT, || service.health(), |status| *status == 200).await;
        service
    }

    fn grpc(&mut self) -> SocketAddr {
        listening(&mut self.process, "grpc")
    }

    async fn client(&mut self) -> crate::support::rls::Client {
        crate::support::rls::Client::connect(self.grpc()).await
    }

    async fn health(&self) -> u16 {
        self.http.get("/healthcheck").await.status
    }

    async fn health_becomes(&self, status: u16) {
        becomes("its health", TEST_TIMEOUT, || self.health(), |found| *found == status).await;
    }

    /// Waits for a log line that contains this text.
    fn wait_for(&mut self, words: &str) {
        self.process.wait_for_line(words, |line| line.contains(words).then_some(()));
    }

    fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait_for_end()
    }
}

/// Returns a command for the binary as `ratelimit` in `folder`, without arguments.
fn command(folder: &Path, variables: &[(&str, &str)]) -> Command {
    let binary = folder.join("ratelimit");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tollgate"), &binary).unwrap();
    let mut command = Command::new(binary);
    command.env_clear().envs(HERE).envs(variables.iter().copied());
    command
}

/// Runs it until it exits.
fn output(variables: &[(&str, &str)]) -> Output {
    let folder = TempDir::new().unwrap();
    command(folder.path(), variables).output().unwrap()
}

/// Returns its listening address from the log, with localhost in place of the unspecified address.
fn listening(process: &mut Process, protocol: &str) -> SocketAddr {
    let protocol = format!("listening protocol=\"{protocol}\" address=");
    let address: SocketAddr =
        process.wait_for_line(&protocol, |line| line.split_once(&protocol)?.1.trim().parse().ok());
    if address.ip().is_unspecified() {
        (IpAddr::from(Ipv4Addr::LOCALHOST), address.port()).into()
    } else {
        address
    }
}

/// A ConfigMap as Kubernetes mounts it at `<root>/ratelimit/config`: links into `..data`, which is
/// a link to a version.
struct ConfigMap {
    files: Policies,
    version: usize,
}

impl ConfigMap {
    /// Creates a ConfigMap with one file.
    fn of(text: &str) -> Self {
        let mut map = Self { files: Policies::none(), version: 0 };
        map.swap(text);
        map.files.link("ratelimit/config/policy.yaml", "..data/policy.yaml");
        map
    }

    /// Installs the next version: creates another directory, renames one link, removes the old
    /// directory.
    fn swap(&mut self, text: &str) {
        let folder = |version| format!("ratelimit/config/..{version}");
        let old = self.version;
        self.version += 1;
        self.files.write(&format!("{}/policy.yaml", folder(self.version)), text);
        self.files.link("ratelimit/config/..data", &format!("..{}", self.version));
        if old > 0 {
            std::fs::remove_dir_all(self.files.file(&folder(old))).unwrap();
        }
    }

    fn root(&self) -> &str {
        self.files.path().to_str().unwrap()
    }
}

/// The variables of Istio's sample, with a ConfigMap and a Redis.
struct Istio {
    map: ConfigMap,
    redis: Redis,
    url: String,
}

impl Istio {
    async fn with(policy: &str) -> Self {
        let redis = Redis::start().await;
        Self { map: ConfigMap::of(policy), url: redis.address.to_string(), redis }
    }

    /// Returns its variables, and more.
    fn variables<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [
            ("LOG_LEVEL", "debug"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", self.url.as_str()),
            ("USE_STATSD", "false"),
            ("RUNTIME_ROOT", self.map.root()),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
        ];
        [&own, more].concat()
    }

    async fn serve(&self, more: &[(&str, &str)]) -> Ratelimit {
        Ratelimit::healthy(&self.variables(more)).await
    }
}
