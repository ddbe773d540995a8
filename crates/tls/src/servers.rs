//! Verification of server certificates.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::files::{ClientTlsError, certificates};
use super::{is_trusted_itself, system_authorities};

/// A verifier of server certificates against a list of trusted ones.
#[derive(Debug)]
pub struct ServerVerifier {
    by_chain: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    any_hostname: bool,
}

impl ServerVerifier {
    /// Creates a verifier for the certificates of the PEM file `ca` and, with `system`, those of
    /// the system, ignoring certificates that cannot be parsed.
    ///
    /// # Errors
    /// The file is invalid, or no certificate is left.
    pub fn new(ca: Option<&Path>, system: bool) -> Result<Self, ClientTlsError> {
        let mut trusted = ca.map_or_else(|| Ok(Vec::new()), certificates)?;
        if system {
            trusted.extend_from_slice(system_authorities());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let by_chain = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(default_provider()),
        );
        // Without revocation lists, it fails only if there are no roots.
        let by_chain = by_chain.build().map_err(|_| ClientTlsError::NoAuthority {
            place: ca
                .map_or("the trust store of the system".to_owned(), |ca| ca.display().to_string()),
        })?;
        Ok(Self { by_chain, trusted, any_hostname: false })
    }

    /// Returns the verifier; with `any_hostname`, the name in a certificate is not verified.
    pub fn with_any_hostname(self, any_hostname: bool) -> Self {
        Self { any_hostname, ..self }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            match self.by_chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
                Err(error) if is_trusted_itself(&error, certificate, &self.trusted) => {
                    rustls::client::verify_server_name(
                        &ParsedCertificate::try_from(certificate)?,
                        name,
                    )
                    .map(|()| ServerCertVerified::assertion())
                }
                verified => verified,
            };
        match verified {
            // The name is checked last, so the rest is valid.
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
