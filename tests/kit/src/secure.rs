//! A TLS client that behaves like Envoy: it verifies the CA of a server but not its name, and sends
//! no SNI.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion, version,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use super::certificates::{Authority, Pair, files};
use super::policy::Policies;
use super::rls::Client;
use super::tollgate::Tollgate;

/// The configuration of a TLS client.
#[derive(Clone)]
pub struct Secure {
    config: ClientConfig,
    /// The certificates of all servers connected to, as DER.
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Secure {
    /// Creates a client that trusts `authority`, offers h2 and presents no certificate.
    pub fn trusting(authority: &Authority) -> Self {
        Self::with(authority, None, &[&version::TLS13, &version::TLS12])
    }

    /// Creates a client that presents a certificate.
    pub fn showing(pair: &Pair, authority: &Authority) -> Self {
        Self::with(authority, Some(pair), &[&version::TLS13, &version::TLS12])
    }

    /// Creates a client restricted to these TLS versions.
    pub fn with(
        authority: &Authority,
        pair: Option<&Pair>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
        let by_name =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .unwrap();
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder =
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(by_name)));
        let mut config = match pair {
            Some(pair) => {
                let chain =
                    vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
                builder
                    .with_client_auth_cert(
                        chain,
                        PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap(),
                    )
                    .unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = false;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { config, seen: Arc::default() }
    }

    /// Removes ALPN.
    pub fn without_alpn(mut self) -> Self {
        self.config.alpn_protocols.clear();
        self
    }

    /// Connects and performs the handshake.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("absent").unwrap();
        let stream = TcpStream::connect(address).await?;
        let stream =
            TlsConnector::from(Arc::new(self.config.clone())).connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        self.seen.lock().unwrap().push(shown);
        Ok(stream)
    }

    /// Connects a client of the rate limit service.
    pub async fn client(&self, address: SocketAddr) -> Result<Client, tonic::transport::Error> {
        self.channel(address).await.map(Client::over)
    }

    /// Returns the most recent server certificate.
    pub fn last_seen(&self) -> Vec<u8> {
        self.seen.lock().unwrap().last().unwrap().clone()
    }

    /// Returns the number of connections made.
    pub fn seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Returns `true` if requests are answered.
    pub async fn is_accepted(&self, address: SocketAddr) -> bool {
        let Ok(client) = self.client(address).await else { return false };
        client
            .decide(super::rls::request(vec![super::rls::descriptor(&[("user", "ann")])]))
            .await
            .is_ok()
    }

    /// Connects a channel of tonic.
    pub async fn channel(&self, address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
        let connect = || {
            let this = self.clone();
            tower::service_fn(move |_| {
                let this = this.clone();
                async move { this.connect(address).await.map(TokioIo::new) }
            })
        };
        Endpoint::from_static("http://tollgate").connect_with_connector(connect()).await
    }
}

/// Verifies everything but the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The certificates of a service and of its clients.
pub struct SecureFiles {
    authority: Authority,
    folder: tempfile::TempDir,
}

impl SecureFiles {
    pub fn new() -> Self {
        let authority = Authority::new();
        let folder = tempfile::TempDir::new().unwrap();
        authority.sign("a.gateway").write(folder.path());
        std::fs::write(folder.path().join("ca.crt"), &authority.pem).unwrap();
        Self { authority, folder }
    }

    /// Returns the flags of a service. Each of `allowed` is `CLIENT=DOMAIN`.
    pub fn flags(&self, allowed: &[&str]) -> Vec<String> {
        let [certificate, key] = files(self.folder.path());
        let ca = self.folder.path().join("ca.crt");
        let flags = [
            ("--grpc-tls-cert", certificate),
            ("--grpc-tls-key", key),
            ("--grpc-tls-client-ca", ca),
        ];
        let tls = flags.map(|(flag, path)| (flag, path.display().to_string())).into_iter();
        let allowed = allowed.iter().map(|one| ("--allow", (*one).to_owned()));
        tls.chain(allowed).flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// Returns a client with a certificate for a name.
    pub fn client(&self, name: &str) -> Secure {
        Secure::showing(&self.authority.sign(name), &self.authority)
    }
}

/// A service with TLS, whose clients have the rights of their certificates.
pub struct SecureTollgate {
    pub service: Tollgate,
    files: SecureFiles,
}

impl SecureTollgate {
    /// Serves policies. Each of `allowed` is `CLIENT=DOMAIN`.
    pub fn serve(policies: &Policies, allowed: &[&str], flags: &[&str]) -> Self {
        let files = SecureFiles::new();
        let secure = files.flags(allowed);
        let secure = secure.iter().map(String::as_str);
        let flags: Vec<&str> = secure.chain(flags.iter().copied()).collect();
        let service = Tollgate::serve_with(policies.path(), &flags);
        Self { service, files }
    }

    /// Connects as a client.
    pub async fn connect(&self, name: &str) -> Channel {
        self.files.client(name).channel(self.service.grpc).await.unwrap()
    }
}
