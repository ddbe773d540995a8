//! Verification of client certificates.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::is_trusted_itself;

/// A verifier that accepts what another one does, and trusted certificates themselves.
#[derive(Debug)]
struct TrustingItself {
    by_chain: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

/// Returns a verifier that also accepts a certificate which is itself in `trusted`.
pub fn trusting_itself(
    by_chain: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
) -> Arc<dyn ClientCertVerifier> {
    Arc::new(TrustingItself { by_chain, trusted })
}

impl ClientCertVerifier for TrustingItself {
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.by_chain.verify_client_cert(certificate, intermediates, now) {
            Err(error) if is_trusted_itself(&error, certificate, &self.trusted) => Ok(ClientCertVerified::assertion()),
            verified => verified,
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
