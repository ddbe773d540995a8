//! Listen addresses of the process.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{FlagError, FlagValue, Problems, deferred};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Listeners")]
pub(super) struct Flags {
    /// Address for gRPC, or unix:/path for a socket; port 0 picks a free port, which is logged.
    #[arg(long, env = "TOLLGATE_GRPC_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8081", value_parser = deferred(endpoint))]
    grpc_listen: FlagValue<Endpoint>,
    /// Address for probes, metrics and JSON decisions: /livez, /readyz, /healthcheck, /metrics,
    /// /json.
    #[arg(long, env = "TOLLGATE_HTTP_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8080", value_parser = deferred(address))]
    http_listen: FlagValue<ListenAddress>,
    /// Address for administration. It exposes the configured limits, so by default it listens on
    /// this machine only.
    #[arg(
        long,
        env = "TOLLGATE_ADMIN_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:6070",
        value_parser = deferred(address)
    )]
    admin_listen: FlagValue<ListenAddress>,
    /// Disable gRPC reflection; clients such as grpcurl then need the .proto files.
    #[arg(long, env = "TOLLGATE_NO_REFLECTION")]
    no_reflection: bool,
}

/// Listen addresses of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSettings {
    /// Endpoint for gRPC.
    pub grpc: Endpoint,
    /// Address for probes and metrics.
    pub http: SocketAddr,
    /// Address for administration.
    pub admin: SocketAddr,
    /// `true` if gRPC reflection is served.
    pub has_reflection: bool,
}

/// The endpoint of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address; `::` accepts IPv4 as well.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self::Tcp(ListenAddress::default().0)
    }
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> ListenSettings {
        ListenSettings {
            grpc: problems.take(self.grpc_listen),
            http: problems.take(self.http_listen).0,
            admin: problems.take(self.admin_listen).0,
            has_reflection: !self.no_reflection,
        }
    }
}

/// A socket address whose default replaces one that cannot be parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenAddress(pub(super) SocketAddr);

impl Default for ListenAddress {
    fn default() -> Self {
        Self((Ipv4Addr::UNSPECIFIED, 0).into())
    }
}

fn endpoint(text: &str) -> Result<Endpoint, FlagError> {
    const ALLOWED: &str = "an address and port such as 0.0.0.0:8081 or [::]:8081, or unix:/path";
    match text.trim().strip_prefix("unix:") {
        Some("") => Err(FlagError::unexpected("the path of a socket after `unix:`", text)),
        Some(path) => Ok(Endpoint::Unix(path.into())),
        None => match text.trim().parse() {
            Ok(address) => Ok(Endpoint::Tcp(address)),
            Err(_) => Err(FlagError::unexpected(ALLOWED, text)),
        },
    }
}

pub(super) fn address(text: &str) -> Result<ListenAddress, FlagError> {
    const ALLOWED: &str = "an address and port such as 0.0.0.0:8081 or [::]:8081";
    let address = text.trim().parse().map(ListenAddress);
    address.map_err(|_| FlagError::unexpected(ALLOWED, text))
}
