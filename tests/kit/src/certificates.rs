//! Certificates like those of Envoy Gateway: with names but without extended key usage.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};

/// A certificate authority that only explicitly configured clients trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = authority.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(authority, key), pem }
    }

    /// Signs a certificate for a name, which may be a wildcard or a URI.
    pub fn sign(&self, name: &str) -> Pair {
        self.sign_for(&KeyPair::generate().unwrap(), name)
    }

    /// Signs a certificate with a key of the kind that Envoy Gateway generates: RSA, in PKCS#1.
    pub fn sign_rsa(&self, name: &str) -> Pair {
        let key = openssl(&["genrsa", "-traditional", "2048"], "");
        let in_pkcs8 = openssl(&["pkcs8", "-topk8", "-nocrypt"], &key);
        Pair { key, ..self.sign_for(&KeyPair::from_pem(&in_pkcs8).unwrap(), name) }
    }

    fn sign_for(&self, key: &KeyPair, name: &str) -> Pair {
        let mut certificate = CertificateParams::default();
        certificate.subject_alt_names = vec![if name.contains("://") {
            SanType::URI(name.try_into().unwrap())
        } else {
            SanType::DnsName(name.try_into().unwrap())
        }];
        let certificate = certificate.signed_by(key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

impl Pair {
    /// Creates a self-signed certificate that is marked as a CA, as `openssl req -x509` does.
    pub fn signed_by_itself(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut certificate = CertificateParams::new([name.to_owned()]).unwrap();
        certificate.distinguished_name.push(DnType::CommonName, name);
        certificate.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { certificate: certificate.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Creates a self-signed certificate with a P-521 key.
    pub fn p521() -> Self {
        let key =
            openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"], "");
        let own = ["req", "-x509", "-key", "/dev/stdin", "-subj", "/CN=localhost", "-days", "1"];
        Self { certificate: openssl(&own, &key), key }
    }

    /// Overwrites `tls.crt` and `tls.key` in place.
    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join("tls.crt"), &self.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &self.key).unwrap();
    }
}

/// Returns the paths that [`Pair::write`] writes to.
pub fn files(folder: &Path) -> [PathBuf; 2] {
    [folder.join("tls.crt"), folder.join("tls.key")]
}

fn openssl(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("openssl");
    let command =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut openssl = command.spawn().unwrap();
    openssl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = openssl.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}: {:?}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
