//! Certificates of the gRPC listener and of its clients.

use std::path::PathBuf;

use super::{FlagError, FlagValue, Problems, deferred};
use crate::grpc::rights::Allowance;
use crate::http2::tls::{Clients, TlsFiles, TlsProtocol};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "gRPC TLS")]
pub(super) struct Flags {
    /// PEM file with the certificate chain for gRPC. It is reloaded when it changes, together with
    /// its key.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_CERT", value_name = "FILE")]
    grpc_tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_KEY", value_name = "FILE")]
    grpc_tls_key: Option<PathBuf>,
    /// Require client certificates issued by a CA in this PEM file; no other CA is trusted. The
    /// file is reloaded when it changes.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_CLIENT_CA", value_name = "FILE")]
    grpc_tls_client_ca: Option<PathBuf>,
    /// DNS name or URI that client certificates must contain.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_CLIENT_SAN", value_name = "NAME")]
    grpc_tls_client_san: Option<String>,
    /// Domains that clients may use, by a name in their certificate: a DNS name or URI, *.parent, a
    /// URI that ends in /*, or * for all; a domain may end in *. May be repeated; separated by
    /// semicolons in the environment. Once set, requests for other domains are refused with
    /// PERMISSION_DENIED, and so are all JSON decisions over HTTP, which cannot identify clients.
    #[arg(long, env = "TOLLGATE_ALLOW", value_name = "SAN=DOMAIN,...", value_delimiter = ';', value_parser = deferred(allowance))]
    allow: Vec<FlagValue<Option<Allowance>>>,
}

impl Flags {
    /// Returns the files, and the domains that clients may use by the names in their certificates.
    pub(super) fn resolve(self, problems: &mut Problems) -> (Option<TlsFiles>, Vec<Allowance>) {
        if self.grpc_tls_client_san.is_some() && self.grpc_tls_client_ca.is_none() {
            let what = "requires --grpc-tls-client-ca, which verifies the name";
            problems.add("--grpc-tls-client-san", what);
        }
        if !self.allow.is_empty() && self.grpc_tls_client_ca.is_none() {
            let needed = "--grpc-tls-client-ca, --grpc-tls-cert and --grpc-tls-key";
            problems.add(
                "--allow",
                format_args!("requires {needed}, which verify the names of clients"),
            );
        }
        let allowances = problems.take_all(self.allow);
        let name = self.grpc_tls_client_san;
        let clients = self.grpc_tls_client_ca.map(|authorities| Clients { authorities, name });
        let identity = (self.grpc_tls_cert, self.grpc_tls_key);
        (files("--grpc-tls", identity, clients, TlsProtocol::Http2, problems), allowances)
    }
}

/// Returns the certificates of a listener if they are complete, else records what is missing.
/// `prefix`: that of the listener's flags.
pub(super) fn files(
    prefix: &str,
    identity: (Option<PathBuf>, Option<PathBuf>),
    clients: Option<Clients>,
    speaks: TlsProtocol,
    problems: &mut Problems,
) -> Option<TlsFiles> {
    let [certificate, key, authorities] =
        ["cert", "key", "client-ca"].map(|name| format!("{prefix}-{name}"));
    let (flag, what) = match (identity, clients) {
        ((Some(certificate), Some(key)), clients) => {
            return Some(TlsFiles { certificate, key, clients, speaks });
        }
        ((Some(_), None), _) => (certificate, format!("requires {key}")),
        ((None, Some(_)), _) => (key, format!("requires {certificate}")),
        ((None, None), Some(_)) => (authorities, format!("requires {certificate} and {key}")),
        ((None, None), None) => return None,
    };
    problems.add(&flag, what);
    None
}

fn allowance(text: &str) -> Result<Option<Allowance>, FlagError> {
    Allowance::parse(text).map(Some).map_err(FlagError::refused)
}
