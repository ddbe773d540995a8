//! Access control of the admin port.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Problems, tls};
use crate::http2::tls::{Clients, TlsFiles, TlsProtocol};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Administration")]
pub(super) struct Flags {
    /// File with tokens that grant read and write access to the admin port, one `NAME:SECRET` per
    /// line; the name appears in the audit log. The file is reloaded when it changes. Without any
    /// token, every client that reaches the port has full access, so the port must listen on this
    /// machine only.
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// File with tokens that grant read access only.
    #[arg(long, env = "TOLLGATE_ADMIN_READ_TOKEN_FILE", value_name = "FILE")]
    admin_read_token_file: Option<PathBuf>,
    /// Serve the plain pages (/policies, /rlconfig, /stats) without authentication, and the API
    /// with a token only.
    #[arg(long, env = "TOLLGATE_ADMIN_OPEN_PAGES")]
    admin_open_pages: bool,
    /// PEM file with the certificate chain of the admin port. It is reloaded when it changes,
    /// together with its key.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_CERT", value_name = "FILE")]
    admin_tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_KEY", value_name = "FILE")]
    admin_tls_key: Option<PathBuf>,
    /// Require client certificates issued by a CA in this PEM file; no other CA is trusted. Such
    /// clients can read and write.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_CLIENT_CA", value_name = "FILE")]
    admin_tls_client_ca: Option<PathBuf>,
}

/// Access control of the admin port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminSettings {
    /// File of tokens that grant read and write access.
    pub token_file: Option<PathBuf>,
    /// File of tokens that grant read access.
    pub read_token_file: Option<PathBuf>,
    /// `true` if the plain pages need no authentication.
    pub open_pages: bool,
    /// Certificates; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
}

impl AdminSettings {
    /// Returns `true` if no client has to authenticate.
    pub fn is_open(&self) -> bool {
        let is_certified = self.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        self.token_file.is_none() && self.read_token_file.is_none() && !is_certified
    }
}

impl Flags {
    pub(super) fn resolve(self, listen: SocketAddr, problems: &mut Problems) -> AdminSettings {
        let identity = (self.admin_tls_cert, self.admin_tls_key);
        let authorities = self.admin_tls_client_ca;
        let clients = authorities.map(|authorities| Clients { authorities, name: None });
        let tls = tls::files("--admin-tls", identity, clients, TlsProtocol::Http1, problems);
        let settings = AdminSettings {
            token_file: self.admin_token_file,
            read_token_file: self.admin_read_token_file,
            open_pages: self.admin_open_pages,
            tls,
        };
        if settings.is_open() && !listen.ip().is_loopback() && !settings.open_pages {
            problems.add(
                "--admin-listen",
                format_args!(
                    "{listen} is reachable from other machines without authentication: set --admin-token-file (and \
                     --admin-read-token-file) or --admin-tls-client-ca, listen on 127.0.0.1:{}, or set \
                     --admin-open-pages to serve only the plain pages",
                    listen.port()
                ),
            );
        }
        settings
    }
}
