//! TLS of listeners: turns files into a configuration that can be replaced under running
//! connections.
//!
//! All files are read and validated together: certificate and key are either both replaced or not
//! at all.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use tollgate_files::bounded_file;
use tollgate_tls::ClientVerifier;
use tollgate_tls::names::{self, CertificateName};

/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Suffix of the error for a key that cannot be read.
const KNOWN_KEYS: &str = "; supported keys: RSA, ECDSA on P-256 or P-384, Ed25519";

/// Paths of certificates and keys, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain presented to clients, the server's own certificate first.
    pub certificate: PathBuf,
    /// The certificate's key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    /// Requirements on client certificates; `None` if none are requested.
    pub clients: Option<Clients>,
    /// Protocol above TLS.
    pub speaks: TlsProtocol,
}

/// Protocol above TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsProtocol {
    /// gRPC.
    Http2,
    /// Administration.
    Http1,
}

/// Requirements on client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    /// Trusted authorities; those of the system are not trusted.
    pub authorities: PathBuf,
    /// A DNS name or URI that the certificate must be issued for.
    pub name: Option<String>,
}

/// Contents of the files at one time.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsContents {
    certificate: FileContents,
    key: FileContents,
    authorities: Option<FileContents>,
}

/// Bytes, or the reason why there are none.
type FileContents = Result<Vec<u8>, TlsFileFault>;

/// A fault of a file. Texts are those of the system and of the parser.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum TlsFileFault {
    #[error("failed to read: {0}")]
    Unreadable(String),
    #[error("invalid PEM certificate: {0}")]
    Certificate(String),
    #[error("no PEM certificate found")]
    NoCertificate,
    #[error("invalid PEM private key: {0}")]
    Key(String),
}

/// The problems of a configuration, each with the file that it is in.
#[derive(Default)]
struct TlsProblems(Vec<String>);

impl TlsProblems {
    /// Returns what was read from a file, or adds the problem with it.
    fn check<T>(&mut self, path: &Path, read: Result<T, impl fmt::Display>) -> Option<T> {
        read.map_err(|problem| self.0.push(format!("{}: {problem}", path.display()))).ok()
    }
}

impl fmt::Debug for TlsContents {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contents")
    }
}

impl TlsFiles {
    /// Reads these files and no others; blocks.
    pub fn read(&self) -> TlsContents {
        let authorities = self.clients.as_ref().map(|clients| &clients.authorities);
        TlsContents {
            certificate: read(&self.certificate),
            key: read(&self.key),
            authorities: authorities.map(|path| read(path)),
        }
    }

    /// Builds the configuration from the contents of these files.
    ///
    /// # Errors
    /// All problems, each with the file that it is in.
    pub fn configure(&self, contents: &TlsContents) -> Result<ServerConfig, Vec<String>> {
        let provider = Arc::new(default_provider());
        let mut problems = TlsProblems::default();
        let chain = problems.check(&self.certificate, certificates(&contents.certificate));
        let key = problems.check(&self.key, key(&contents.key));
        let verifier = self.verifier(contents, &provider, &mut problems);
        let Some((chain, key)) = chain.zip(key).filter(|_| problems.0.is_empty()) else {
            return Err(problems.0);
        };

        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12]);
        let configured = builder.and_then(|builder| {
            let builder = match verifier {
                Some(verifier) => builder.with_client_cert_verifier(verifier),
                None => builder.with_no_client_auth(),
            };
            builder.with_single_cert(chain, key)
        });
        let mut config = configured.map_err(|error| {
            // A key that ring cannot read, for example on P-521.
            let known = if matches!(error, rustls::Error::General(_)) { KNOWN_KEYS } else { "" };
            vec![format!(
                "{} and {}: {error}{known}",
                self.certificate.display(),
                self.key.display()
            )]
        })?;
        config.alpn_protocols = match self.speaks {
            TlsProtocol::Http2 => vec![b"h2".to_vec()],
            TlsProtocol::Http1 => vec![b"http/1.1".to_vec()],
        };
        Ok(config)
    }

    fn verifier(
        &self,
        contents: &TlsContents,
        provider: &Arc<CryptoProvider>,
        problems: &mut TlsProblems,
    ) -> Option<Arc<dyn ClientCertVerifier>> {
        let clients = self.clients.as_ref()?;
        let contents = contents.authorities.as_ref()?;
        let mut roots = RootCertStore::empty();
        let trusted = problems.check(&clients.authorities, certificates(contents))?;
        for certificate in &trusted {
            problems.check(&clients.authorities, roots.add(certificate.clone()));
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build();
        let verifier = problems.check(&clients.authorities, verifier)?;
        Some(Arc::new(ClientVerifier::new(verifier, trusted, clients.name.clone())))
    }
}

fn read(path: &Path) -> FileContents {
    bounded_file::read(path).map_err(|error| TlsFileFault::Unreadable(error.to_string()))
}

fn certificates(contents: &FileContents) -> Result<Vec<CertificateDer<'static>>, TlsFileFault> {
    let pem = contents.as_ref().map_err(Clone::clone)?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| TlsFileFault::Certificate(error.to_string()))?;
    if found.is_empty() { Err(TlsFileFault::NoCertificate) } else { Ok(found) }
}

fn key(contents: &FileContents) -> Result<PrivateKeyDer<'static>, TlsFileFault> {
    let pem = contents.as_ref().map_err(Clone::clone)?;
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| TlsFileFault::Key(error.to_string()))
}

/// The active configuration. Clones share it.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ArcSwap<ServerConfig>>);

impl ServerTls {
    /// Creates a configuration that handshakes use until it is replaced.
    pub fn new(config: ServerConfig) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(config)))
    }

    /// Replaces the configuration of handshakes that begin from now on; earlier ones are not
    /// affected.
    pub fn replace(&self, config: ServerConfig) {
        self.0.store(Arc::new(config));
    }

    /// Performs the handshake, within a timeout.
    ///
    /// # Errors
    /// If the client's certificate is not accepted, the client speaks another protocol, or it takes
    /// too long.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let handshake = TlsAcceptor::from(self.0.load_full()).accept(stream);
        tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await?
    }
}

/// Returns the verified certificate of a client.
pub(super) fn client_certificate<S>(stream: &TlsStream<S>) -> Option<&CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first()
}

/// Returns the first name that a client's certificate is issued for, if it presented one.
pub fn client_name<S>(stream: &TlsStream<S>) -> Option<String> {
    let name = names::names(client_certificate(stream)?).next();
    Some(name.map_or("certificate without a name", CertificateName::text).to_owned())
}

/// Returns the reason for a failed handshake, as a metric label.
pub(super) fn kind(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::TimedOut {
        return "timeout";
    }
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            "client_certificate"
        }
        Some(_) => "protocol",
        None => "closed",
    }
}

#[cfg(test)]
mod tests;
