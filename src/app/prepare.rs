//! What has to be there before the service can run: listeners, policies, certificates and tokens.

use std::fmt;

use tokio::net::TcpListener;
use tracing::info;

use super::certificates::Certificates;
use super::listener::Listener;
use super::policies::First;
use super::rights::Admission;
use super::statistics;
use crate::settings::{Endpoint, ListenSettings, Settings};

/// What has to be there before the service can run.
pub struct Prepared {
    pub(super) listeners: Listeners,
    pub(super) policies: First,
    pub(super) certificates: Option<Certificates>,
    /// Who may do what on the admin port, and what it shakes hands by.
    pub(super) admission: Admission,
    pub(super) admin_certificates: Option<Certificates>,
    /// Where Prometheus reads the statistics of envoyproxy/ratelimit, if anywhere.
    pub(super) stats: Option<TcpListener>,
}

/// Where is listened.
pub(super) struct Listeners {
    pub(super) grpc: Listener,
    pub(super) http: TcpListener,
    pub(super) admin: TcpListener,
}

impl Listeners {
    /// Logs where they listen, and what to try where they serve examples.
    pub(super) fn announce(&self, are_examples: bool) {
        announce("grpc", self.grpc.endpoint());
        announce("http", self.http.local_addr());
        announce("admin", self.admin.local_addr());
        if let (true, Ok(Endpoint::Tcp(address))) = (are_examples, self.grpc.endpoint()) {
            let port = address.port();
            info!(
                "these are the examples of config/policies; try: tollgate hit 127.0.0.1:{port} gateway remote_address=203.0.113.7"
            );
        }
    }
}

/// Everything that keeps the service from starting.
#[derive(Debug, Default)]
pub struct CannotStart(pub(super) Vec<String>);

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "{}", problem.trim_end()))
    }
}

impl std::error::Error for CannotStart {}

/// Binds the listeners, loads the policies and the certificates.
///
/// # Errors
/// All that failed, not only the first.
pub async fn prepare(settings: &Settings) -> Result<Prepared, CannotStart> {
    let mut problems = CannotStart::default();
    let policies = First::load(settings);
    if let (Some(problem), false) = (policies.problem(), settings.readiness.start_without_policy) {
        problems.0.push(problem.to_owned());
    }
    let listeners = bind(&settings.listen, &mut problems).await;
    let stats = statistics::bind(&settings.stats, &mut problems).await;
    let mut told = |found: Vec<String>| problems.0.extend(found.iter().map(|what| format!("error: {what}")));
    let certificates = settings.tls.clone().map(Certificates::load).transpose().map_err(&mut told);
    let admin_certificates = settings.admin.tls.clone().map(Certificates::load).transpose().map_err(&mut told);
    let admission = Admission::load(&settings.admin, settings.listen.admin.ip().is_loopback()).map_err(&mut told);
    match (listeners, certificates, admin_certificates, admission, problems.0.as_slice()) {
        (Some(listeners), Ok(certificates), Ok(admin_certificates), Ok(admission), []) => {
            Ok(Prepared { listeners, policies, certificates, admission, admin_certificates, stats })
        }
        (..) => Err(problems),
    }
}

async fn bind(settings: &ListenSettings, problems: &mut CannotStart) -> Option<Listeners> {
    let mut cannot = |flag: &str, endpoint: &dyn fmt::Display, error: std::io::Error| {
        problems.0.push(format!("error: {flag} {endpoint}: {error}"));
    };
    let grpc = Listener::bind(&settings.grpc).await;
    let grpc = grpc.map_err(|error| cannot("--grpc-listen", &settings.grpc, error));
    let http = TcpListener::bind(settings.http).await;
    let http = http.map_err(|error| cannot("--http-listen", &settings.http, error));
    let admin = TcpListener::bind(settings.admin).await;
    let admin = admin.map_err(|error| cannot("--admin-listen", &settings.admin, error));
    Some(Listeners { grpc: grpc.ok()?, http: http.ok()?, admin: admin.ok()? })
}

pub(super) fn announce(protocol: &str, address: std::io::Result<impl fmt::Display>) {
    if let Ok(address) = address {
        info!(protocol, %address, "listening");
    }
}
