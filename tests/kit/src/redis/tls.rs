//! A test's own CA, and the certificates that it has signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// The clients that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Any client.
    Anyone,
    /// Clients with a certificate of the CA.
    Certified,
}

/// A CA with a server certificate and a client certificate, as files. Clones share the files.
#[derive(Clone)]
pub struct Tls {
    pub clients: Clients,
    files: Arc<TempDir>,
}

impl Tls {
    /// Creates a CA that only explicitly configured clients trust.
    pub fn new(clients: Clients) -> Self {
        let tls = Self { clients, files: Arc::new(TempDir::new().unwrap()) };
        let key = KeyPair::generate().unwrap();
        let mut authority = named("authority", &[]);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        std::fs::write(tls.authority(), authority.self_signed(&key).unwrap().pem()).unwrap();

        let issuer = Issuer::new(authority, key);
        for (name, (certificate, key_file)) in [("server", tls.server()), ("client", tls.client())]
        {
            let key = KeyPair::generate().unwrap();
            let signed = named(name, &["127.0.0.1", "localhost"]).signed_by(&key, &issuer).unwrap();
            std::fs::write(certificate, signed.pem()).unwrap();
            std::fs::write(key_file, key.serialize_pem()).unwrap();
        }
        tls
    }

    /// Creates a certificate that is both CA and server certificate, as `openssl req -x509` does.
    pub fn of_itself() -> Self {
        let tls = Self::new(Clients::Anyone);
        let key = KeyPair::generate().unwrap();
        let mut itself = named("itself", &["127.0.0.1", "localhost"]);
        itself.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = itself.self_signed(&key).unwrap().pem();
        let (place, key_place) = tls.server();
        for path in [tls.authority(), place] {
            std::fs::write(path, &certificate).unwrap();
        }
        std::fs::write(key_place, key.serialize_pem()).unwrap();
        tls
    }

    /// Returns the CA certificate.
    pub fn authority(&self) -> PathBuf {
        self.path().join("authority.crt")
    }

    /// Returns the certificate for 127.0.0.1 and localhost, and its key.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.path().join("server.crt"), self.path().join("server.key"))
    }

    /// Returns the client certificate and its key.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.path().join("client.crt"), self.path().join("client.key"))
    }

    /// Returns the server's configuration lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let (certificate, key) = self.server();
        let demanded = if self.clients == Clients::Certified { "yes" } else { "no" };
        vec![
            format!("tls-cert-file {}", certificate.display()),
            format!("tls-key-file {}", key.display()),
            format!("tls-ca-cert-file {}", self.authority().display()),
            format!("tls-auth-clients {demanded}"),
            "tls-replication yes".to_owned(),
            "tls-cluster yes".to_owned(),
        ]
    }

    fn path(&self) -> &Path {
        self.files.path()
    }
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut certificate = CertificateParams::new(hosts).unwrap();
    certificate.distinguished_name.push(DnType::CommonName, name);
    certificate
}
