//! Clients of TLS, configured from PEM files as they are now.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tollgate_files::bounded_file;

use super::ServerVerifier;

/// The reason why a client of TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A file that cannot be read, or has other content.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: Box<dyn Error + Send + Sync>,
    },
    /// No certificate is trusted.
    #[error("no CA certificate in {place}")]
    NoAuthority {
        /// The file, or the trust store of the system.
        place: String,
    },
    /// The cryptographic library lacks the protocol.
    #[error("{0}")]
    Protocol(#[from] rustls::Error),
}

impl ClientTlsError {
    fn file(path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::File { path: path.to_owned(), error: error.into() }
    }
}

/// Returns the configuration of a client with this verifier, and with the files of its certificate
/// chain and key, if it has a certificate.
///
/// # Errors
/// A file is invalid.
pub fn client_config(
    verifier: ServerVerifier,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, ClientTlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some((chain, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let private = PrivateKeyDer::from_pem_slice(&read_pem(key)?);
    let private = private.map_err(|error| ClientTlsError::file(key, error))?;
    let configured = builder.with_client_auth_cert(certificates(chain)?, private);
    configured.map_err(|error| ClientTlsError::file(chain, error))
}

/// Reads the certificates of a file.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let read = CertificateDer::pem_slice_iter(&read_pem(path)?).collect::<Result<_, _>>();
    read.map_err(|error| ClientTlsError::file(path, error))
}

/// Reads a file.
///
/// # Errors
/// [`ClientTlsError::File`]
pub fn read_pem(path: &Path) -> Result<Vec<u8>, ClientTlsError> {
    bounded_file::read(path).map_err(|error| ClientTlsError::file(path, error))
}
