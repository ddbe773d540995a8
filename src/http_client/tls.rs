//! TLS of HTTP/1.1 connections.

use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, Error};

use crate::tls::ServerVerifier;

/// The certificate chain of a client, and its key.
pub type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The reason why there is no configuration of TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// No certificate is trusted.
    #[error("no CA certificates found on this system")]
    NoAuthority,
    /// The cryptographic library lacks the protocol.
    #[error("{0}")]
    Protocol(Error),
    /// The certificate of the client and its key are invalid, or do not belong together.
    #[error("{0}")]
    Identity(Error),
}

/// Returns the configuration of a client of HTTP/1.1 that trusts these certificates.
///
/// # Errors
/// [`TlsConfigError`]
pub fn client_config(
    trusted: Vec<CertificateDer<'static>>,
    identity: Option<ClientIdentity>,
) -> Result<ClientConfig, TlsConfigError> {
    let verifier = ServerVerifier::new(trusted).ok_or(TlsConfigError::NoAuthority)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(TlsConfigError::Protocol)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(TlsConfigError::Identity)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
