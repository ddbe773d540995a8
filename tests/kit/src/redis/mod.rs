//! Real servers of the Redis family: a single server, a cluster, or a master with sentinels. All
//! listen on 127.0.0.1, with folders of their own and without persistence, and are killed when
//! dropped.
//!
//! | module | contents |
//! |---|---|
//! | this one | a server: start, pause, kill, restart in place |
//! | `cluster`, `view` | masters with replicas, and failovers |
//! | `migration`, `partition` | slots in migration, isolated nodes |
//! | `pair` | a master and its replica behind one name |
//! | `sentinels` | a master, its replicas, and the sentinels that watch them |
//! | `wire` | a proxy that can fall silent, or redirect |
//! | `flavor`, `tls`, `port`, `client` | binaries, certificates, free ports, commands |
#![allow(dead_code, reason = "complete, although not every test binary uses all of it")]

pub mod client;
pub mod cluster;
pub mod flavor;
pub mod migration;
pub mod pair;
pub mod partition;
pub mod sentinels;
pub mod tls;
pub mod wire;

pub mod port;
mod view;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::task::JoinSet;

use self::flavor::Flavor;
use self::tls::Tls;
use super::process::{Process, set_clock};
use super::{TEST_TIMEOUT, becomes};

/// The setup of a server; applies to every node of a cluster or of a sentinel group.
#[derive(Clone, Default)]
pub struct Setup {
    /// The server program.
    pub flavor: Flavor,
    /// Lines of the configuration file, such as `maxmemory 10mb`; these override the defaults.
    pub lines: Vec<String>,
    /// The password of the default user, which the tests' own commands use.
    pub password: Option<&'static str>,
    /// Enables TLS for all TCP connections.
    pub tls: Option<Tls>,
    /// Offset of its clock from the machine's, in seconds.
    pub clock_offset: i32,
}

/// Returns addresses as the lists in URLs and settings have them.
pub fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(",")
}

/// A running server.
pub struct Redis {
    pub address: SocketAddr,
    setup: Setup,
    kind: Kind,
    process: Mutex<Process>,
    is_paused: AtomicBool,
    files: TempDir,
}

/// The role of a server, with the settings that the role needs.
#[derive(Clone)]
enum Kind {
    Server(Vec<String>),
    Sentinel(Vec<String>),
}

/// The progress of a start.
#[derive(Debug)]
enum Start {
    Pending,
    Ready,
    PortTaken,
}

impl Redis {
    /// Starts the distribution's Redis.
    pub async fn start() -> Self {
        Self::start_as(Setup::default()).await
    }

    /// Starts the distribution's Redis with more configuration lines, such as `maxmemory 10mb`.
    pub async fn start_with(lines: &[&str]) -> Self {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Self::start_as(Setup { lines, ..Setup::default() }).await
    }

    /// Starts a server with the given setup.
    pub async fn start_as(setup: Setup) -> Self {
        Self::start_kind(setup, Kind::Server(Vec::new())).await
    }

    /// Returns the path of its Unix socket, which works without TLS.
    pub fn socket(&self) -> PathBuf {
        self.files.path().join("socket")
    }

    /// Returns the ID of the process.
    pub fn id(&self) -> u32 {
        self.process().id()
    }

    /// Returns its log since the last start.
    pub fn log(&self) -> Vec<String> {
        self.process().log()
    }

    /// Returns `true` if it is running and not paused.
    pub fn is_up(&self) -> bool {
        !self.is_paused.load(Ordering::Relaxed) && self.process().is_running()
    }

    /// Pauses the process at any point: connections stay open, without answers.
    pub fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
        self.process().stop();
    }

    /// Resumes the process after a pause.
    pub fn resume(&self) {
        self.process().signal(Signal::CONT);
        self.is_paused.store(false, Ordering::Relaxed);
    }

    /// Kills the process as a crash would: `kill -9`.
    pub fn kill(&self) {
        self.process().signal(Signal::KILL);
        self.process().wait_for_end();
    }

    /// Restarts the server after it has ended, at the same address and without data. Cluster nodes
    /// and sentinels keep their identity.
    pub async fn restart(&self) {
        assert!(!self.process().is_running(), "{} runs still", self.address);
        self.is_paused.store(false, Ordering::Relaxed);
        *self.process() = launch(&self.setup, &self.kind, &self.files);
        let start = self.started().await;
        assert!(
            matches!(start, Start::Ready),
            "{}: {start:?}\n{}",
            self.address,
            self.log().join("\n")
        );
    }

    async fn start_kind(setup: Setup, kind: Kind) -> Self {
        for _ in 0..10 {
            let port = port::free();
            let files = TempDir::new().unwrap();
            std::fs::write(
                files.path().join("server.conf"),
                configuration(&setup, &kind, port, &files),
            )
            .unwrap();
            let process = Mutex::new(launch(&setup, &kind, &files));
            let address = (Ipv4Addr::LOCALHOST, port).into();
            let is_paused = AtomicBool::new(false);
            let redis = Self {
                address,
                setup: setup.clone(),
                kind: kind.clone(),
                process,
                is_paused,
                files,
            };
            if matches!(redis.started().await, Start::Ready) {
                return redis;
            }
        }
        panic!("ten ports that were free have been taken before a server had them")
    }

    /// Starts several servers concurrently; the results are in the order of `kinds`.
    async fn start_all(setup: &Setup, kinds: impl IntoIterator<Item = Kind>) -> Vec<Self> {
        let mut starts = JoinSet::new();
        for (index, kind) in kinds.into_iter().enumerate() {
            let setup = setup.clone();
            starts.spawn(async move { (index, Self::start_kind(setup, kind).await) });
        }
        let mut started = starts.join_all().await;
        started.sort_by_key(|(index, _)| *index);
        started.into_iter().map(|(_, redis)| redis).collect()
    }

    async fn started(&self) -> Start {
        let is_decided = |start: &Start| !matches!(start, Start::Pending);
        becomes(
            &format!("{:?} answers", self.setup.flavor),
            TEST_TIMEOUT,
            || self.progress(),
            is_decided,
        )
        .await
    }

    /// Checks for a reply with this process's ID, since another process's server could own the
    /// port.
    async fn progress(&self) -> Start {
        let id = {
            let mut process = self.process();
            if !process.is_running() {
                let log = process.final_log();
                assert!(log.contains("in use"), "{:?} ended:\n{log}", self.setup.flavor);
                return Start::PortTaken;
            }
            process.id().to_string()
        };
        let answer = self.try_info("server").await;
        if answer.is_ok_and(|info| info.get("process_id") == Some(&id)) {
            Start::Ready
        } else {
            Start::Pending
        }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap()
    }
}

fn launch(setup: &Setup, kind: &Kind, files: &TempDir) -> Process {
    let mut command = Command::new(setup.flavor.binary());
    command.arg(files.path().join("server.conf"));
    set_clock(&mut command, setup.clock_offset);
    match kind {
        Kind::Server(_) => Process::start("redis", &mut command),
        Kind::Sentinel(_) => Process::start("sentinel", command.arg("--sentinel")),
    }
}

/// Returns the complete configuration file; later lines override earlier ones.
fn configuration(setup: &Setup, kind: &Kind, port: u16, files: &TempDir) -> String {
    let folder = files.path().display();
    let listen = if setup.tls.is_some() {
        format!("port 0\ntls-port {port}")
    } else {
        format!("port {port}")
    };
    let mut lines = vec!["bind 127.0.0.1".to_owned(), "protected-mode no".to_owned(), listen];
    // `Process` reads standard error.
    lines.extend([format!("dir {folder}"), "logfile /dev/stderr".to_owned()]);
    lines.extend(setup.tls.iter().flat_map(Tls::lines));
    lines.extend(setup.password.map(|password| format!("requirepass {password}")));
    match kind {
        Kind::Sentinel(own) => lines.extend_from_slice(own),
        Kind::Server(own) => {
            lines.extend([
                r#"save """#.to_owned(),
                "appendonly no".to_owned(),
                format!("unixsocket {folder}/socket"),
            ]);
            // Sync replicas immediately, instead of after the seconds for which a master waits for
            // more of them.
            lines.extend([
                "repl-diskless-sync yes".to_owned(),
                "repl-diskless-sync-delay 0".to_owned(),
            ]);
            if setup.flavor.is_modern() {
                lines.push("enable-debug-command local".to_owned());
            }
            lines.extend(setup.password.map(|password| format!("masterauth {password}")));
            lines.extend_from_slice(own);
        }
    }
    lines.extend_from_slice(&setup.lines);
    lines.join("\n") + "\n"
}
