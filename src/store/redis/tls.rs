//! Certificates of the servers: whom to trust, and which name to ask for.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::access::{Access, ConnectError, read};

/// The authorities of the system, read once: there are many.
static SYSTEM_ROOTS: LazyLock<Vec<CertificateDer<'static>>> =
    LazyLock::new(|| rustls_native_certs::load_native_certs().certs);

/// Begins TLS with the server of this name, by what is in the files now.
pub(super) async fn shake_hands(
    access: &Access,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(host.to_owned()).map_err(said)?;
    Ok(TlsConnector::from(Arc::new(config(access)?)).connect(name, stream).await?)
}

fn config(access: &Access) -> Result<ClientConfig, ConnectError> {
    let mut trusted = access.ca.as_ref().map(|path| certificates(path)).transpose()?.unwrap_or_default();
    if access.system_roots {
        trusted.extend_from_slice(&SYSTEM_ROOTS);
    }
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(trusted.iter().cloned());
    if taken == 0 {
        let place = access.ca.as_ref().map_or_else(|| "the system".to_owned(), |path| path.display().to_string());
        return Err(ConnectError::Tls(format!("no certificate of an authority in {place}")));
    }
    let by_chain = WebPkiServerVerifier::builder(Arc::new(roots)).build().map_err(said)?;
    let verifier = Arc::new(Verifier { by_chain, trusted, any_hostname: access.any_hostname });
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier);
    match &access.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(&read(key)?)
                .map_err(|error| ConnectError::Tls(format!("{}: {error}", key.display())))?;
            builder.with_client_auth_cert(certificates(chain)?, key).map_err(said)
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| ConnectError::Tls(format!("{}: {error}", path.display())))
}

fn said(error: impl std::fmt::Display) -> ConnectError {
    ConnectError::Tls(error.to_string())
}

/// Trusts what an authority vouches for, as usual, and two things that others do too.
#[derive(Debug)]
struct Verifier {
    by_chain: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    any_hostname: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = match self.by_chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // A server that shows the trusted certificate itself, as `openssl req -x509` makes one: OpenSSL and Go take it,
            // while webpki holds that an authority is no server. It has looked at the dates before that.
            Err(Error::InvalidCertificate(CertificateError::Other(other))) if is_of_an_authority(&other) => {
                match self.trusted.contains(certificate) {
                    true => rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
                        .map(|()| ServerCertVerified::assertion()),
                    false => Err(Error::InvalidCertificate(CertificateError::Other(other))),
                }
            }
            verified => verified,
        };
        match verified {
            // The name is looked at last, so the rest is good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_hostname => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_chain.supported_verify_schemes()
    }
}

fn is_of_an_authority(error: &rustls::OtherError) -> bool {
    error.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
}
