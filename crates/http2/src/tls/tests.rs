//! Handshakes of clients with and without certificates, and files that are no configuration.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use super::*;

const CLIENT: &str = "proxy.example";

/// Files of a server, and what a client needs.
struct HandshakeFixture {
    folder: TempDir,
    roots: Arc<RootCertStore>,
    client: (CertificateDer<'static>, KeyPair),
}

impl HandshakeFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let [server_key, client_key] = [(); 2].map(|()| KeyPair::generate().unwrap());
        let sign = |name: &str, key: &KeyPair| {
            CertificateParams::new([name.to_owned()]).unwrap().signed_by(key, &issuer).unwrap()
        };
        let server = sign("localhost", &server_key);
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text);
        write("authority", root.pem()).unwrap();
        write("certificate", server.pem()).unwrap();
        write("key", server_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let client = (sign(CLIENT, &client_key).der().clone(), client_key);
        Self { folder, roots: Arc::new(roots), client }
    }

    fn files(&self, with_clients: bool, speaks: TlsProtocol) -> TlsFiles {
        let [certificate, key, authorities] =
            ["certificate", "key", "authority"].map(|name| self.folder.path().join(name));
        let clients = with_clients.then_some(Clients { authorities, name: None });
        TlsFiles { certificate, key, clients, speaks }
    }

    fn config(&self, with_clients: bool, speaks: TlsProtocol) -> ServerConfig {
        let files = self.files(with_clients, speaks);
        files.configure(&files.read()).unwrap()
    }

    /// Returns the protocol of a handshake, and the name in the client's certificate.
    async fn handshake(&self, tls: &ServerTls) -> (Option<Vec<u8>>, Option<String>) {
        let (certificate, key) = &self.client;
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_auth_cert(vec![certificate.clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (there, here) = tokio::io::duplex(1 << 14);
        let name = ServerName::try_from("localhost").unwrap();
        let client = TlsConnector::from(Arc::new(config)).connect(name, there);
        let (_client, server) = tokio::try_join!(client, tls.accept(here)).unwrap();
        (server.get_ref().1.alpn_protocol().map(<[u8]>::to_vec), client_name(&server))
    }
}

#[tokio::test]
async fn a_handshake_has_the_protocol_and_the_clients_of_the_latest_configuration() {
    let fixture = HandshakeFixture::new();
    let tls = ServerTls::new(fixture.config(true, TlsProtocol::Http2));
    let known = (Some(b"h2".to_vec()), Some(CLIENT.to_owned()));
    assert_eq!(fixture.handshake(&tls).await, known);
    tls.replace(fixture.config(false, TlsProtocol::Http1));
    assert_eq!(fixture.handshake(&tls).await, (Some(b"http/1.1".to_vec()), None));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_begin_its_handshake_is_left_in_time() {
    let fixture = HandshakeFixture::new();
    let tls = ServerTls::new(fixture.config(false, TlsProtocol::Http2));
    let (_client, here) = tokio::io::duplex(1 << 14);
    let begun = tokio::time::Instant::now();
    let error = tls.accept(here).await.unwrap_err();
    assert_eq!((kind(&error), begun.elapsed()), ("timeout", HANDSHAKE_TIMEOUT));
}

#[test]
fn each_file_that_is_wrong_is_named() {
    let fixture = HandshakeFixture::new();
    let files = fixture.files(true, TlsProtocol::Http2);
    for path in [&files.certificate, &files.key, &files.clients.as_ref().unwrap().authorities] {
        let text = std::fs::read(path).unwrap();
        for wrong in [&b""[..], b"-----BEGIN CERTIFICATE-----"] {
            std::fs::write(path, wrong).unwrap();
            let problems = files.configure(&files.read()).unwrap_err();
            let name = path.display().to_string();
            assert!(problems.len() == 1 && problems[0].starts_with(&name), "{problems:?}");
        }
        std::fs::remove_file(path).unwrap();
        let problems = files.configure(&files.read()).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains("failed to read"), "{problems:?}");
        std::fs::write(path, text).unwrap();
    }
    assert!(files.configure(&files.read()).is_ok());
    assert_eq!(format!("{:?}", files.read()), "Contents");
}

#[test]
fn failed_handshakes_are_named_by_their_kind() {
    use rustls::{CertificateError, Error, InvalidMessage};
    let tls = |error: Error| io::Error::new(io::ErrorKind::InvalidData, error);
    for (error, name) in [
        (io::ErrorKind::TimedOut.into(), "timeout"),
        (tls(Error::NoCertificatesPresented), "client_certificate"),
        (tls(Error::InvalidCertificate(CertificateError::Expired)), "client_certificate"),
        (tls(Error::InvalidMessage(InvalidMessage::InvalidCcs)), "protocol"),
        (io::ErrorKind::UnexpectedEof.into(), "closed"),
    ] {
        assert_eq!(kind(&error), name, "{error}");
    }
}
