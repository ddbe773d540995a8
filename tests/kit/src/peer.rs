//! envoyproxy/ratelimit, of which a test or benchmark names the binary.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use super::process::Process;
use super::redis::port;
use super::{TEST_TIMEOUT, eventually};

/// A replica of envoyproxy/ratelimit, which can be started several times at one address.
pub struct Peer {
    binary: PathBuf,
    root: PathBuf,
    store: (&'static str, String),
    /// Size of the local cache; 0 for none.
    pub cache_bytes: usize,
    /// Its gRPC address.
    pub grpc: SocketAddr,
    ports: [u16; 2],
}

impl Peer {
    /// Prepares a replica without a local cache. `root`: the folder whose subfolder `config` has
    /// the limits; `store`: `REDIS_TYPE` and `REDIS_URL`.
    pub fn new(binary: PathBuf, root: PathBuf, store: (&'static str, String)) -> Self {
        let [grpc, http, debug] = [(); 3].map(|()| port::free());
        let grpc = SocketAddr::from(([127, 0, 0, 1], grpc));
        Self { binary, root, store, cache_bytes: 0, grpc, ports: [http, debug] }
    }

    /// Starts it, and waits until it listens.
    pub fn start(&self) -> Process {
        let (kind, url) = &self.store;
        let [http, debug] = self.ports;
        let mut command = Command::new(&self.binary);
        command.env("RUNTIME_ROOT", &self.root).env("RUNTIME_WATCH_ROOT", "false");
        command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_TYPE", kind).env("REDIS_URL", url);
        command.env("USE_STATSD", "false").env("LOG_LEVEL", "error");
        command.env("LOCAL_CACHE_SIZE_IN_BYTES", self.cache_bytes.to_string());
        for (name, port) in [("GRPC_PORT", self.grpc.port()), ("PORT", http), ("DEBUG_PORT", debug)]
        {
            command.env(name, port.to_string());
        }
        for name in ["GRPC_HOST", "HOST", "DEBUG_HOST"] {
            command.env(name, "127.0.0.1");
        }
        let process = Process::start("envoyproxy/ratelimit", &mut command);
        eventually("envoyproxy/ratelimit listens", TEST_TIMEOUT, || {
            TcpStream::connect(self.grpc).ok()
        });
        process
    }
}
