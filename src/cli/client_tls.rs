//! TLS flags of the subcommands that call a service.

use std::path::{Path, PathBuf};

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

/// The error of a file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub(super) struct UnreadableFile {
    path: PathBuf,
    error: std::io::Error,
}

impl ClientTlsFlags {
    /// Reads the files; returns `None` without TLS.
    pub(super) fn read(&self) -> Result<Option<ClientTls>, UnreadableFile> {
        if !self.tls {
            return Ok(None);
        }
        let authorities = self.ca.as_deref().map(read).transpose()?;
        let identity = match self.cert.as_deref().zip(self.key.as_deref()) {
            Some((chain, key)) => Some((read(chain)?, read(key)?)),
            None => None,
        };
        Ok(Some(ClientTls { authorities, identity, name: self.server_name.clone() }))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UnreadableFile> {
    crate::bounded_file::read(path).map_err(|error| UnreadableFile { path: path.to_owned(), error })
}
