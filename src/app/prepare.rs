//! Preparation: binds the listeners and loads policies, certificates and tokens before the service
//! starts.

use std::net::SocketAddr;
use std::{fmt, io};

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tracing::info;

use super::cannot_start::CannotStart;
use super::certificates::Certificates;
use super::files::{self, ConnectionLimits};
use super::listener::announce;
use super::listener::{self, BACKLOG, Bound, Listener};
use super::policies::InitialPolicies;
use super::rights::Admission;
use super::{readiness, statistics};
use crate::settings::{Endpoint, ListenSettings, Settings, program_name};

/// Everything that must be ready before the service can run.
pub struct Prepared {
    pub(super) listeners: Listeners,
    pub(super) policies: InitialPolicies,
    pub(super) certificates: Option<Certificates>,
    /// Tokens and rights of the admin port.
    pub(super) admission: Admission,
    pub(super) admin_certificates: Option<Certificates>,
    /// Maximum number of connections per listener.
    pub(super) connections: ConnectionLimits,
    /// Listener for Prometheus to scrape the statistics of envoyproxy/ratelimit, if configured.
    pub(super) stats: Option<TcpListener>,
}

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
        let cannot = |flag: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("error: {flag}: {error}"))
        };
        let grpc = self.grpc.listen().map_err(|error| cannot("--grpc-listen", error))?;
        let http = self.http.listen(BACKLOG).map_err(|error| cannot("--http-listen", error))?;
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

/// Binds the listeners, and loads policies, certificates and tokens.
///
/// # Errors
/// All failures, not only the first.
pub async fn prepare(settings: &Settings) -> Result<Prepared, CannotStart> {
    let mut problems = CannotStart::default();
    let open_files = files::raise_limit();
    let policies = InitialPolicies::load(settings);
    if !settings.readiness.start_without_policy
        && let Some(problem) = policies.problem()
    {
        problems.0.push(problem.to_owned());
    }
    let listeners = bind(&settings.listen, &mut problems).await;
    let stats = statistics::bind(&settings.stats, &mut problems).await;
    let mut report =
        |found: Vec<String>| problems.0.extend(found.iter().map(|what| format!("error: {what}")));
    let certificates =
        settings.tls.clone().map(Certificates::load).transpose().map_err(&mut report);
    let admin_certificates =
        settings.admin.tls.clone().map(Certificates::load).transpose().map_err(&mut report);
    let admission = Admission::load(&settings.admin, settings.listen.admin.ip().is_loopback())
        .map_err(&mut report);
    let connections =
        ConnectionLimits::new(settings, open_files).map_err(|what| report(vec![what]));
    match (
        listeners,
        certificates,
        admin_certificates,
        admission,
        connections,
        problems.0.as_slice(),
    ) {
        (
            Some(listeners),
            Ok(certificates),
            Ok(admin_certificates),
            Ok(admission),
            Ok(connections),
            [],
        ) => Ok(Prepared {
            listeners,
            policies,
            certificates,
            admission,
            admin_certificates,
            connections,
            stats,
        }),
        (..) => Err(problems),
    }
}

async fn bind(settings: &ListenSettings, problems: &mut CannotStart) -> Option<Listeners> {
    let mut cannot = |flag: &str, endpoint: &dyn fmt::Display, error: std::io::Error| {
        problems.0.push(format!("error: {flag} {endpoint}: {error}"));
    };
    let grpc = Bound::bind(&settings.grpc).await;
    let grpc = grpc.map_err(|error| cannot("--grpc-listen", &settings.grpc, error));
    let http = listener::bind(settings.http);
    let http = http.map_err(|error| cannot("--http-listen", &settings.http, error));
    let admin = TcpListener::bind(settings.admin).await;
    let admin = admin.map_err(|error| cannot("--admin-listen", &settings.admin, error));
    let admin = admin.ok()?;
    let public =
        BoundListeners { grpc: grpc.ok()?, http: http.ok()?, admin: admin.local_addr().ok() };
    Some(Listeners { public, admin })
}
