//! TLS connections to an admin port, with a client certificate if one is set.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls::{ServerVerifier, system_authorities};

/// Performs the TLS handshake with `host`.
///
/// # Errors
/// A file is invalid, or the handshake fails.
pub(super) async fn connect(
    stream: TcpStream,
    host: &str,
    authority: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<TlsStream<TcpStream>, String> {
    let config = configure(authority, identity)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| format!("{host}: {error}"))
}

fn configure(
    authority: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, String> {
    let trusted = authority.map_or_else(|| Ok(system_authorities().to_vec()), certificates)?;
    let source = authority.map_or_else(
        || "the trust store of the system".to_owned(),
        |path| path.display().to_string(),
    );
    let verifier = ServerVerifier::new(trusted);
    let verifier = verifier.ok_or_else(|| format!("no CA certificate in {source}"))?;
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let read = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("{}: {error}", key.display()))?;
            let built = builder.with_client_auth_cert(certificates(chain)?, read);
            built.map_err(|error| format!("{}: {error}", chain.display()))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|error| format!("{}: {error}", path.display()))
}
