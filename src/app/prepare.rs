//! The first phase: binds the listeners and loads policies, certificates and tokens.

use tokio::net::TcpListener;

use super::cannot_start::CannotStart;
use super::certificates::Certificates;
use super::connection_limits::ConnectionLimits;
use super::policies::InitialPolicies;
use super::ports::Listeners;
use super::rights::Admission;
use super::statistics;
use crate::settings::Settings;

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

/// Binds the listeners, and loads policies, certificates and tokens.
///
/// # Errors
/// All failures, not only the first.
pub async fn prepare(settings: &Settings) -> Result<Prepared, CannotStart> {
    let mut problems = CannotStart::default();
    let policies = InitialPolicies::load(settings);
    if !settings.readiness.start_without_policy
        && let Err(problem) = &policies.loaded
    {
        problems.0.push(problem.to_string());
    }
    let listeners = Listeners::bind(&settings.listen, &mut problems).await;
    let stats = statistics::bind(&settings.stats, &mut problems).await;
    let certificates = problems.loaded(settings.tls.clone().map(Certificates::load).transpose());
    let admin_certificates =
        problems.loaded(settings.admin.tls.clone().map(Certificates::load).transpose());
    let is_loopback = settings.listen.admin.ip().is_loopback();
    let admission = problems.loaded(Admission::load(&settings.admin, is_loopback));
    let connections = ConnectionLimits::new(settings);
    let connections = problems.loaded(connections.map_err(|error| vec![error.to_string()]));
    match (listeners, certificates, admin_certificates, admission, connections) {
        (
            Some(listeners),
            Some(certificates),
            Some(admin_certificates),
            Some(admission),
            Some(connections),
        ) if problems.0.is_empty() => Ok(Prepared {
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
