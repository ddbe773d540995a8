//! TLS with the servers, configured from the current contents of the files.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_tls::{ServerVerifier, system_authorities};

use crate::redis::config::access::{Access, ConnectError, read};

/// Performs the TLS handshake with the server of this name, using the current contents of the
/// files.
pub(in crate::redis) async fn handshake(
    access: &Access,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(host.to_owned()).map_err(tls_error)?;
    Ok(TlsConnector::from(Arc::new(config(access)?)).connect(name, stream).await?)
}

fn config(access: &Access) -> Result<ClientConfig, ConnectError> {
    let mut trusted =
        access.ca.as_ref().map(|path| certificates(path)).transpose()?.unwrap_or_default();
    if access.system_roots {
        trusted.extend_from_slice(system_authorities());
    }
    let Some(verifier) = ServerVerifier::new(trusted) else {
        let place = access
            .ca
            .as_ref()
            .map_or_else(|| "the system".to_owned(), |path| path.display().to_string());
        return Err(ConnectError::Tls(format!("no CA certificate in {place}")));
    };
    let verifier = Arc::new(verifier.with_any_hostname(access.any_hostname));
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier);
    match &access.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(&read(key)?)
                .map_err(|error| ConnectError::Tls(format!("{}: {error}", key.display())))?;
            builder.with_client_auth_cert(certificates(chain)?, key).map_err(tls_error)
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| ConnectError::Tls(format!("{}: {error}", path.display())))
}

fn tls_error(error: impl std::fmt::Display) -> ConnectError {
    ConnectError::Tls(error.to_string())
}
