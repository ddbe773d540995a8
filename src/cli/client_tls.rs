//! TLS flags of the subcommands that call a service.

use std::path::PathBuf;

use crate::grpc::client::ClientTls;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct ClientTlsFlags {
    /// Use TLS and trust the CA certificates of the system.
    #[arg(long)]
    tls: bool,
    /// PEM file with additional CA certificates to trust.
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca: Option<PathBuf>,
    /// PEM file with the client certificate.
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Expected name in the server's certificate, if it differs from the host.
    #[arg(long, value_name = "NAME", requires = "tls")]
    server_name: Option<String>,
}

impl ClientTlsFlags {
    /// Returns the options of connections; `None` without TLS.
    pub(super) fn options(&self) -> Option<ClientTls> {
        self.tls.then(|| ClientTls {
            ca: self.ca.clone(),
            certificate: self.cert.clone().zip(self.key.clone()),
            server_name: self.server_name.clone(),
        })
    }
}
