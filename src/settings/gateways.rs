//! The gateways whose attributes of HTTP requests are trusted.

use super::{FlagError, FlagValue, Problems, deferred};
use crate::grpc::service::gateway::TrustedGateways;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "HTTP gateways")]
pub(super) struct Flags {
    /// Addresses and networks of the gateways that may ask for decisions on HTTP requests, by
    /// ext_authz or at /auth/NAME; other peers are refused. The attributes that a gateway sends are
    /// trusted, the client address among them.
    #[arg(
        long,
        env = "TOLLGATE_GATEWAYS",
        value_name = "ADDRESS[/BITS],...",
        default_value = "127.0.0.1,::1",
        value_parser = deferred(trusted)
    )]
    gateways: FlagValue<TrustedGateways>,
}

impl Flags {
    /// Returns the gateways.
    pub(super) fn resolve(self, problems: &mut Problems) -> TrustedGateways {
        problems.take(self.gateways)
    }
}

fn trusted(text: &str) -> Result<TrustedGateways, FlagError> {
    TrustedGateways::parse(text).map_err(FlagError::refused)
}
