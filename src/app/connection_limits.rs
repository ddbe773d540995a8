//! File descriptors: raises the limit of the process and divides it, so that clients of gRPC cannot
//! starve probes, the admin port or the store.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::admin::{ADMIN_CONNECTIONS, ALL_HEADS, PUBLIC_CONNECTIONS, STATS_CONNECTIONS};
use crate::http2::registry::ConnectionBounds;
use crate::settings::{BASE_BYTES, Settings};

/// Descriptors besides connections: reloads of policies, certificates and tokens, DNS resolution, a
/// control plane, a collector, and one connection per listener that is accepted and closed at once.
const OTHER_FILES: usize = 64;
/// Descriptors per runtime.
const FILES_OF_RUNTIME: usize = 4;
/// Number of runtimes besides those of the workers.
const OTHER_RUNTIMES: usize = 7;
/// Number of services connected to the store besides those of the workers and of HTTP.
const OTHER_SERVICES: usize = 3;
/// Minimum number of connections with which a listener is useful.
const LEAST_HTTP: usize = 8;
const LEAST_GRPC: usize = 16;

/// Maximum number of connections per listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// gRPC.
    pub(super) grpc: ConnectionBounds,
    /// Probes, metrics and decisions.
    pub(super) http: usize,
    /// Admin port.
    pub(super) admin: usize,
    /// Statistics of envoyproxy/ratelimit.
    pub(super) stats: usize,
    /// Limit of file descriptors; `None` if unlimited.
    files: Option<usize>,
    /// Number of gRPC connections requested by the settings.
    wanted: usize,
}

/// File descriptors needed besides client connections, and the connections requested by the
/// settings.
#[derive(Clone, Copy, Debug)]
struct FileNeeds {
    /// Descriptors that are already open, those of runtimes, and [`OTHER_FILES`].
    own: usize,
    /// Connections to the store.
    store: usize,
    /// gRPC connections requested by the settings.
    grpc: ConnectionBounds,
    has_stats: bool,
}

/// The reason why a process with so few file descriptors cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit of open files (RLIMIT_NOFILE) is {files}, and --workers {workers} requires at least {least}: \
     raise the limit, for example with `ulimit -n` or LimitNOFILE="
)]
pub(super) struct TooFewFiles {
    files: usize,
    workers: usize,
    least: usize,
}

/// Raises the soft limit of file descriptors to the hard limit. Returns the resulting limit, or
/// `None` if it is unlimited.
fn raise_limit() -> Option<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = if current == maximum || setrlimit(Resource::Nofile, raised).is_err() {
        current
    } else {
        maximum
    };
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

impl ConnectionLimits {
    /// Raises the limit of file descriptors, and divides them among the listeners of these
    /// settings, which are already bound.
    ///
    /// # Errors
    /// There are too few file descriptors.
    pub(super) fn new(settings: &Settings) -> Result<Self, TooFewFiles> {
        let files = raise_limit();
        let workers = settings.limits.workers;
        let open = std::fs::read_dir("/proc/self/fd").map_or(OTHER_FILES, Iterator::count);
        let of_runtimes = workers.saturating_add(OTHER_RUNTIMES).saturating_mul(FILES_OF_RUNTIME);
        let services = workers.saturating_add(1).saturating_add(OTHER_SERVICES);
        let needs = FileNeeds {
            own: open.saturating_add(of_runtimes).saturating_add(OTHER_FILES),
            store: services.saturating_mul(settings.store.place.connections()),
            grpc: settings.limits.connections,
            has_stats: settings.stats.prometheus.is_some(),
        };
        Self::divide(files, needs).map_err(|least| {
            let files = files.unwrap_or(usize::MAX);
            TooFewFiles { files, workers, least }
        })
    }

    /// Divides the open files among the listeners.
    ///
    /// # Errors
    /// Returns the minimum number of file descriptors.
    fn divide(files: Option<usize>, needs: FileNeeds) -> Result<Self, usize> {
        let most_stats = if needs.has_stats { STATS_CONNECTIONS } else { 0 };
        let Some(all) = files else {
            let http = PUBLIC_CONNECTIONS;
            let admin = ADMIN_CONNECTIONS;
            let stats = most_stats;
            return Ok(Self {
                grpc: needs.grpc,
                http,
                admin,
                stats,
                files,
                wanted: needs.grpc.total,
            });
        };
        // A store with many servers must not use up a low limit.
        let own = needs.own.saturating_add(needs.store.min(all / 4));
        let rest = all.saturating_sub(own);
        let http = (rest / 8).clamp(LEAST_HTTP, PUBLIC_CONNECTIONS);
        let admin = (rest / 16).clamp(LEAST_HTTP, ADMIN_CONNECTIONS);
        let stats = (rest / 16).max(LEAST_HTTP).min(most_stats);
        let left = rest.saturating_sub(http).saturating_sub(admin).saturating_sub(stats);
        // If there are too few for all, a ninth is reserved for connections closing after GOAWAY.
        let leaving = needs.grpc.leaving.min(left.saturating_sub(needs.grpc.total).max(left / 9));
        let total = needs.grpc.total.min(left - leaving);
        if total < LEAST_GRPC.min(needs.grpc.total) {
            let least_of_listeners = 2 * LEAST_GRPC + 3 * LEAST_HTTP;
            return Err(needs
                .own
                .saturating_add(needs.store.min(all))
                .saturating_add(least_of_listeners));
        }
        let grpc = ConnectionBounds { total, leaving, ..needs.grpc };
        Ok(Self { grpc, http, admin, stats, files, wanted: needs.grpc.total })
    }

    /// Warns if the settings request more connections than fit.
    pub(super) fn announce(&self) {
        let Self { grpc: ConnectionBounds { total, .. }, wanted, files, .. } = self;
        if let Some(files) = files
            && total < wanted
        {
            warn!(
                "--max-connections {wanted} exceeds the limit of open files (RLIMIT_NOFILE {files}); \
                 gRPC connections are limited to {total}"
            );
        }
    }
}

// The heads of HTTP requests are not charged to a budget: they are part of the base.
const _: () = assert!(ALL_HEADS <= BASE_BYTES / 2);

#[cfg(test)]
mod tests {
    use super::*;

    const GRPC: ConnectionBounds =
        ConnectionBounds { total: 16_384, per_address: None, leaving: 1_024 };
    const NEEDS: FileNeeds = FileNeeds { own: 150, store: 40, grpc: GRPC, has_stats: false };

    /// Returns the number of descriptors in use when all connections are taken.
    fn taken(limits: ConnectionLimits, needs: FileNeeds, files: usize) -> usize {
        let ConnectionLimits { grpc, http, admin, stats, .. } = limits;
        [grpc.total, grpc.leaving, http, admin, stats, needs.own, needs.store.min(files / 4)]
            .iter()
            .sum()
    }

    #[test]
    fn all_requested_connections_are_granted_if_they_fit() {
        for files in [None, Some(20_000), Some(1_048_576)] {
            let limits = ConnectionLimits::divide(files, NEEDS).unwrap();
            let all = (limits.grpc.total, limits.http, limits.admin, limits.stats);
            assert_eq!(all, (16_384, 512, 256, 0), "{files:?}");
        }
        let with_stats =
            ConnectionLimits::divide(None, FileNeeds { has_stats: true, ..NEEDS }).unwrap();
        assert_eq!(with_stats.stats, 64);
    }

    #[test]
    fn the_shares_never_exceed_the_limit() {
        for (store, has_stats) in [(0, false), (40, true), (100_000, true)] {
            let needs = FileNeeds { store, has_stats, ..NEEDS };
            for files in (256..20_000).step_by(97) {
                let Ok(limits) = ConnectionLimits::divide(Some(files), needs) else {
                    assert!(files < 400, "{files} {needs:?}");
                    continue;
                };
                assert!(taken(limits, needs, files) <= files, "{files} {limits:?}");
                assert!(
                    limits.grpc.total >= LEAST_GRPC
                        && limits.http >= LEAST_HTTP
                        && limits.admin >= LEAST_HTTP
                );
            }
        }
        let usual = ConnectionLimits::divide(Some(1_024), NEEDS).unwrap();
        assert_eq!((usual.grpc.total, usual.http, usual.admin), (603, 104, 52));
    }

    #[test]
    fn too_low_a_limit_is_reported_with_the_required_number() {
        let least = ConnectionLimits::divide(Some(180), NEEDS).unwrap_err();
        assert!(least > 180 && ConnectionLimits::divide(Some(least), NEEDS).is_ok(), "{least}");
    }
}
