//! TLS with the servers, configured from the current contents of the files.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_tls::{ServerVerifier, client_config};

use super::connect_error::ConnectError;
use crate::redis::config::access::Access;

/// Performs the TLS handshake with the server of this name, using the current contents of the
/// files.
pub(in crate::redis) async fn handshake(
    access: &Access,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(host.to_owned()).map_err(ConnectError::tls)?;
    let verifier = ServerVerifier::new(access.ca.as_deref(), access.system_roots);
    let verifier = verifier.map_err(ConnectError::tls)?.with_any_hostname(access.any_hostname);
    let identity = access.certificate.as_ref().map(|(chain, key)| (&**chain, &**key));
    let config = client_config(verifier, identity).map_err(ConnectError::tls)?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}
