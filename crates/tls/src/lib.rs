//! Verification of certificates, and the configuration of clients.
//!
//! Accepts certificates that a trusted authority signed, and those that are trusted themselves.
//!
//! `openssl req -x509` marks the certificates that it creates as those of an authority. OpenSSL and
//! Go accept such a certificate from a peer if it is trusted itself; webpki rejects an authority as
//! a server or client certificate.

// Certificates come from outside: an overflow would be a panic by input.
#![warn(clippy::arithmetic_side_effects)]

mod clients;
mod files;
pub mod names;
mod servers;

use std::sync::LazyLock;

use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error};

pub use self::clients::ClientVerifier;
pub use self::files::{ClientTlsError, client_config, read_pem};
pub use self::servers::ServerVerifier;

/// Returns the system's authorities. They are read only once, since there are many.
fn system_authorities() -> &'static [CertificateDer<'static>] {
    static AUTHORITIES: LazyLock<Vec<CertificateDer<'static>>> =
        LazyLock::new(|| rustls_native_certs::load_native_certs().certs);
    &AUTHORITIES
}

/// Returns `true` if a certificate was rejected for being an authority's and is itself trusted.
/// webpki has checked its validity period before that.
fn is_trusted_itself(
    error: &Error,
    certificate: &CertificateDer<'_>,
    trusted: &[CertificateDer<'_>],
) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    let is_of_authority =
        other.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity);
    is_of_authority && trusted.contains(certificate)
}
