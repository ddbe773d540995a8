//! Real servers of the Redis family: one, a cluster, or a master under sentinels. All on 127.0.0.1, in folders of their
//! own, without persistence; killed when dropped.
//!
//! | module | what it starts |
//! |---|---|
//! | here | one server: stopped for a while, killed, started again where it was |
//! | `cluster`, `view` | masters with replicas, and failovers |
//! | `migration`, `partition` | slots that move, nodes that the others cannot reach |
//! | `pair` | a master and its replica behind one name |
//! | `sentinels` | a master, its replicas, and those who decide which is which |
//! | `wire` | a connection that can fall silent, or lead elsewhere |
//! | `flavor`, `tls`, `port`, `client` | which program, certificates, free ports, commands |
#![allow(dead_code, reason = "what the tests of a store ask of servers stands here whole, used yet or not")]

pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod flavor;
pub(crate) mod migration;
pub(crate) mod pair;
pub(crate) mod partition;
pub(crate) mod sentinels;
pub(crate) mod tls;
pub(crate) mod wire;

mod port;
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
use super::process::Process;
use super::{PATIENCE, becomes};

/// How a server is to be. All of it holds for every node of a cluster or below sentinels.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    /// Which program.
    pub(crate) flavor: Flavor,
    /// Settings as a configuration file has them, `maxmemory 10mb`; one given here wins.
    pub(crate) lines: Vec<String>,
    /// The password of the default user, whom these tests' own commands come as.
    pub(crate) password: Option<&'static str>,
    /// Encrypts all that comes by TCP.
    pub(crate) tls: Option<Tls>,
    /// How far its clock is from this machine's, in seconds.
    pub(crate) clock_offset: i32,
}

/// A running server.
pub(crate) struct Redis {
    pub(crate) address: SocketAddr,
    setup: Setup,
    kind: Kind,
    process: Mutex<Process>,
    is_paused: AtomicBool,
    files: TempDir,
}

/// What a server is part of, with the settings that this brings.
#[derive(Clone)]
enum Kind {
    Server(Vec<String>),
    Sentinel(Vec<String>),
}

/// How a start went.
#[derive(Debug)]
enum Start {
    Pending,
    Ready,
    PortTaken,
}

impl Redis {
    /// Starts the distribution's Redis.
    pub(crate) async fn start() -> Self {
        Self::start_as(Setup::default()).await
    }

    /// The same with more settings, each as a line of a configuration file: `maxmemory 10mb`.
    pub(crate) async fn start_with(lines: &[&str]) -> Self {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Self::start_as(Setup { lines, ..Setup::default() }).await
    }

    /// Starts what `setup` says.
    pub(crate) async fn start_as(setup: Setup) -> Self {
        Self::start_kind(setup, Kind::Server(Vec::new())).await
    }

    /// Its unix socket, which TLS does not change.
    pub(crate) fn socket(&self) -> PathBuf {
        self.files.path().join("socket")
    }

    /// What it has logged since it was started last.
    pub(crate) fn log(&self) -> Vec<String> {
        self.process().log()
    }

    /// Whether it runs and is not paused.
    pub(crate) fn is_up(&self) -> bool {
        !self.is_paused.load(Ordering::Relaxed) && self.process().is_running()
    }

    /// Stops it in the middle of whatever it does: connections stay open, and nothing is answered.
    pub(crate) fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
        self.process().signal(Signal::STOP);
    }

    /// Lets it go on after a pause.
    pub(crate) fn resume(&self) {
        self.process().signal(Signal::CONT);
        self.is_paused.store(false, Ordering::Relaxed);
    }

    /// Ends it as a crash does: `kill -9`.
    pub(crate) fn kill(&self) {
        self.process().signal(Signal::KILL);
        self.process().wait_for_end();
    }

    /// Starts it again after its end, at the same address, and without data. Nodes of a cluster and sentinels know still
    /// who they were.
    pub(crate) async fn restart(&self) {
        assert!(!self.process().is_running(), "{} runs still", self.address);
        self.is_paused.store(false, Ordering::Relaxed);
        *self.process() = launch(&self.setup, &self.kind, &self.files);
        let start = self.started().await;
        assert!(matches!(start, Start::Ready), "{}: {start:?}\n{}", self.address, self.log().join("\n"));
    }

    async fn start_kind(setup: Setup, kind: Kind) -> Self {
        for _ in 0..10 {
            let (port, files) = (port::free(), TempDir::new().unwrap());
            std::fs::write(files.path().join("server.conf"), configuration(&setup, &kind, port, &files)).unwrap();
            let process = Mutex::new(launch(&setup, &kind, &files));
            let (address, is_paused) = ((Ipv4Addr::LOCALHOST, port).into(), AtomicBool::new(false));
            let redis = Self { address, setup: setup.clone(), kind: kind.clone(), process, is_paused, files };
            if matches!(redis.started().await, Start::Ready) {
                return redis;
            }
        }
        panic!("ten ports that were free have been taken before a server had them")
    }

    /// Starts many at once, in this order.
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
        becomes(&format!("{:?} answers", self.setup.flavor), PATIENCE, || self.progress(), is_decided).await
    }

    /// Ready is who answers with our process's id: at this port could be another process's server.
    async fn progress(&self) -> Start {
        let id = {
            let mut process = self.process();
            if !process.is_running() {
                let log = process.last_words();
                assert!(log.contains("in use"), "{:?} ended:\n{log}", self.setup.flavor);
                return Start::PortTaken;
            }
            process.id().to_string()
        };
        let answer = self.try_info("server").await;
        if answer.is_ok_and(|info| info.get("process_id") == Some(&id)) { Start::Ready } else { Start::Pending }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap()
    }
}

fn launch(setup: &Setup, kind: &Kind, files: &TempDir) -> Process {
    let mut command = Command::new(setup.flavor.binary());
    command.arg(files.path().join("server.conf"));
    if setup.clock_offset != 0 {
        // The C library too, before the jemalloc that Debian's Redis is linked to: that asks for the time while libfaketime begins.
        command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1 libc.so.6");
        command.env("FAKETIME", format!("{:+}", setup.clock_offset)).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
    match kind {
        Kind::Server(_) => Process::start("redis", &mut command),
        Kind::Sentinel(_) => Process::start("sentinel", command.arg("--sentinel")),
    }
}

/// The whole configuration file; what stands later in it wins.
fn configuration(setup: &Setup, kind: &Kind, port: u16, files: &TempDir) -> String {
    let folder = files.path().display();
    let listen = if setup.tls.is_some() { format!("port 0\ntls-port {port}") } else { format!("port {port}") };
    let mut lines = vec!["bind 127.0.0.1".to_owned(), "protected-mode no".to_owned(), listen];
    // `Process` reads standard error.
    lines.extend([format!("dir {folder}"), "logfile /dev/stderr".to_owned()]);
    lines.extend(setup.tls.iter().flat_map(Tls::lines));
    lines.extend(setup.password.map(|password| format!("requirepass {password}")));
    match kind {
        Kind::Sentinel(own) => lines.extend_from_slice(own),
        Kind::Server(own) => {
            lines.extend([r#"save """#.to_owned(), "appendonly no".to_owned(), format!("unixsocket {folder}/socket")]);
            // A replica is there at once, instead of after the seconds that a master waits for a second one.
            lines.extend(["repl-diskless-sync yes".to_owned(), "repl-diskless-sync-delay 0".to_owned()]);
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
