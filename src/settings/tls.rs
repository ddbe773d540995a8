//! Certificates of the gRPC listener, and of its clients.

use std::path::PathBuf;

use super::{Problem, Problems};
use crate::grpc::rights::Allowance;
use crate::grpc::tls::{Clients, TlsFiles};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "TLS of gRPC")]
pub(super) struct Flags {
    /// PEM file of the certificate for gRPC with its chain. It is read again when it changes, together with its key.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_CERT", value_name = "FILE")]
    grpc_tls_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_KEY", value_name = "FILE")]
    grpc_tls_key: Option<PathBuf>,
    /// PEM file of the authorities, and no other, by which clients have to be certified. It is read again when it changes.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_CLIENT_CA", value_name = "FILE")]
    grpc_tls_client_ca: Option<PathBuf>,
    /// A DNS name or URI that the certificates of clients have to be for.
    #[arg(long, env = "TOLLGATE_GRPC_TLS_CLIENT_SAN", value_name = "NAME")]
    grpc_tls_client_san: Option<String>,
    /// Domains that clients may ask for by a name of their certificate: a DNS name or URI, *.parent, a URI that ends in /*, or *
    /// for all; a domain may end in *. May be given again; in the environment separated by semicolons. Once given, what is not
    /// allowed is refused with PERMISSION_DENIED, and decisions in JSON over HTTP are, which knows no clients.
    #[arg(long, env = "TOLLGATE_ALLOW", value_name = "SAN=DOMAIN,...", value_delimiter = ';')]
    allow: Vec<String>,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> Option<TlsFiles> {
        let mut lacks = |flag, what: &str| problems.0.push(Problem { flag, what: what.to_owned() });
        if self.grpc_tls_client_san.is_some() && self.grpc_tls_client_ca.is_none() {
            lacks("--grpc-tls-client-san", "needs --grpc-tls-client-ca, or nobody vouches for the name");
        }
        if !self.allow.is_empty() && self.grpc_tls_client_ca.is_none() {
            let needed = "--grpc-tls-client-ca, --grpc-tls-cert and --grpc-tls-key";
            lacks("--allow", &format!("needs {needed}, or nobody vouches for the names of clients"));
        }
        let read = self.allow.iter().map(|text| Allowance::parse(text));
        let allowances = read.filter_map(|read| read.map_err(|what| lacks("--allow", &what)).ok()).collect();
        let name = self.grpc_tls_client_san;
        let clients = self.grpc_tls_client_ca.map(|authorities| Clients { authorities, name, allowances });
        match (self.grpc_tls_cert, self.grpc_tls_key, clients) {
            (Some(certificate), Some(key), clients) => return Some(TlsFiles { certificate, key, clients }),
            (Some(_), None, _) => lacks("--grpc-tls-cert", "needs --grpc-tls-key"),
            (None, Some(_), _) => lacks("--grpc-tls-key", "needs --grpc-tls-cert"),
            (None, None, Some(_)) => lacks("--grpc-tls-client-ca", "needs --grpc-tls-cert and --grpc-tls-key"),
            (None, None, None) => {}
        }
        None
    }
}
