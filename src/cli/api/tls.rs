//! TLS of connections to an admin port, with a client certificate if one is set.

use std::path::Path;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::ClientTlsError;
use crate::http_client::{ClientIdentity, TlsConfigError, client_config};
use crate::tls::system_authorities;

/// Returns the configuration for the files of the flags.
///
/// # Errors
/// A file is invalid.
pub(super) fn configure(
    authority: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, ClientTlsError> {
    let trusted = authority.map_or_else(|| Ok(system_authorities().to_vec()), certificates)?;
    let own = identity.map(read_identity).transpose()?;
    client_config(trusted, own).map_err(|error| match (error, authority, identity) {
        (TlsConfigError::NoAuthority, Some(path), _) => {
            ClientTlsError::NoAuthority { source_name: path.display().to_string() }
        }
        (TlsConfigError::NoAuthority, None, _) => {
            ClientTlsError::NoAuthority { source_name: "the trust store of the system".to_owned() }
        }
        (TlsConfigError::Identity(error), _, Some((chain, _))) => {
            ClientTlsError::Identity { path: chain.to_owned(), error }
        }
        (error, _, _) => ClientTlsError::Config(error),
    })
}

fn read_identity((chain, key): (&Path, &Path)) -> Result<ClientIdentity, ClientTlsError> {
    let read = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| ClientTlsError::File { path: key.to_owned(), error })?;
    Ok((certificates(chain)?, read))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|error| ClientTlsError::File { path: path.to_owned(), error })
}
