//! Verification of client certificates.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::{is_trusted_itself, names};

/// A verifier that accepts what another one does, and trusted certificates themselves, if they are
/// issued for a required name.
#[derive(Debug)]
pub struct ClientVerifier {
    by_chain: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    /// A DNS name or a URI; `None` to accept any name.
    name: Option<String>,
}

impl ClientVerifier {
    /// Creates a verifier that also accepts a certificate which is itself in `trusted`, and
    /// requires `name`, a DNS name or a URI, if it is set.
    pub fn new(
        by_chain: Arc<dyn ClientCertVerifier>,
        trusted: Vec<CertificateDer<'static>>,
        name: Option<String>,
    ) -> Self {
        Self { by_chain, trusted, name }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.by_chain.verify_client_cert(certificate, intermediates, now) {
            Err(error) if !is_trusted_itself(&error, certificate, &self.trusted) => {
                return Err(error);
            }
            Ok(_) | Err(_) => {}
        }
        // A name counts only once the certificate is trusted.
        match &self.name {
            Some(name) if !names::is_for(certificate, name) => {
                Err(CertificateError::NotValidForName.into())
            }
            Some(_) | None => Ok(ClientCertVerified::assertion()),
        }
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.by_chain.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_chain.supported_verify_schemes()
    }
}
