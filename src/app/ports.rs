//! The ports of the process: bound at startup, and opened once the process is ready.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tracing::info;

use super::cannot_start::CannotStart;
use super::listener::{self, BACKLOG, Bound, Listener, announce};
use super::readiness;
use crate::settings::{Endpoint, ListenSettings, program_name};

/// Bound addresses. The admin port already listens: it responds at once.
pub(super) struct Listeners {
    /// gRPC and HTTP, which serve decisions and health.
    pub(super) public: BoundListeners,
    pub(super) admin: TcpListener,
}

/// Bound addresses that do not listen yet.
pub(super) struct BoundListeners {
    grpc: Bound,
    http: TcpSocket,
    /// Local address of the admin port, for the log.
    admin: Option<SocketAddr>,
}

impl Listeners {
    /// Binds all addresses; `None` if one cannot be bound.
    pub(super) async fn bind(
        settings: &ListenSettings,
        problems: &mut CannotStart,
    ) -> Option<Self> {
        let ListenSettings { grpc, http, admin, .. } = settings;
        let grpc = problems.bound("--grpc-listen", grpc, Bound::bind(grpc).await);
        let http = problems.bound("--http-listen", http, listener::bind(*http));
        let admin = problems.bound("--admin-listen", admin, TcpListener::bind(admin).await)?;
        let public = BoundListeners { grpc: grpc?, http: http?, admin: admin.local_addr().ok() };
        Some(Self { public, admin })
    }
}

impl BoundListeners {
    /// Starts to listen for gRPC and HTTP once health is SERVING or the wait for it times out. Logs
    /// the addresses and, if the example policies are served, a command to try.
    ///
    /// # Errors
    /// Another process listens on one of the addresses.
    pub(super) async fn open(
        self,
        is_serving: watch::Receiver<bool>,
        are_examples: bool,
    ) -> io::Result<(Listener, TcpListener)> {
        readiness::wait_to_open(is_serving).await;
        let grpc = self.grpc.listen().map_err(|error| cannot_listen("--grpc-listen", &error))?;
        let http = self.http.listen(BACKLOG);
        let http = http.map_err(|error| cannot_listen("--http-listen", &error))?;
        announce("grpc", grpc.endpoint());
        announce("http", http.local_addr());
        self.admin.into_iter().for_each(|address| announce("admin", Ok(address)));
        if are_examples && let Ok(Endpoint::Tcp(address)) = grpc.endpoint() {
            let program = program_name();
            let port = address.port();
            info!(
                "serving the examples in config/policies; try: \
                 {program} hit 127.0.0.1:{port} gateway remote_address=203.0.113.7"
            );
        }
        Ok((grpc, http))
    }
}

fn cannot_listen(flag: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("error: {flag}: {error}"))
}
