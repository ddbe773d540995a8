//! Certificates as Envoy Gateway makes them: names and no word of what they are for (no extended key usage).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};

/// An authority, which nobody trusts who is not told to.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let (key, mut authority) = (KeyPair::generate().unwrap(), CertificateParams::default());
        authority.distinguished_name.push(DnType::CommonName, "authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = authority.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(authority, key), pem }
    }

    /// Signs a certificate for a name, which may be a wildcard or a URI.
    pub(crate) fn sign(&self, name: &str) -> Pair {
        self.sign_for(&KeyPair::generate().unwrap(), name)
    }

    /// The same with a key of the kind that Envoy Gateway makes: RSA, in PKCS#1.
    pub(crate) fn sign_rsa(&self, name: &str) -> Pair {
        let key = openssl(&["genrsa", "-traditional", "2048"], "");
        let in_pkcs8 = openssl(&["pkcs8", "-topk8", "-nocrypt"], &key);
        Pair { key, ..self.sign_for(&KeyPair::from_pem(&in_pkcs8).unwrap(), name) }
    }

    fn sign_for(&self, key: &KeyPair, name: &str) -> Pair {
        let mut certificate = CertificateParams::default();
        certificate.subject_alt_names = vec![match name.contains("://") {
            true => SanType::URI(name.try_into().unwrap()),
            false => SanType::DnsName(name.try_into().unwrap()),
        }];
        let certificate = certificate.signed_by(key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

impl Pair {
    /// Writes `tls.crt` and `tls.key`, in place.
    pub(crate) fn write(&self, folder: &Path) {
        std::fs::write(folder.join("tls.crt"), &self.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &self.key).unwrap();
    }
}

/// Where [`Pair::write`] writes.
pub(crate) fn files(folder: &Path) -> [PathBuf; 2] {
    [folder.join("tls.crt"), folder.join("tls.key")]
}

fn openssl(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("openssl");
    let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut openssl = command.spawn().unwrap();
    openssl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = openssl.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}: {:?}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
