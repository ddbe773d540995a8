//! Who may do what on the admin port.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Problem, Problems, tls};
use crate::transport::tls::{Clients, Speaks, TlsFiles};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Administration")]
pub(super) struct Flags {
    /// File of tokens that may read and write on the admin port, one a line: `NAME:SECRET`; the name is told in the audit log. It is
    /// read again when it changes. Without any, who reaches the port may do all, so it has to listen on this machine only.
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// File of tokens that may read only.
    #[arg(long, env = "TOLLGATE_ADMIN_READ_TOKEN_FILE", value_name = "FILE")]
    admin_read_token_file: Option<PathBuf>,
    /// Show the plain pages (/policies, /rlconfig, /stats) to everybody who reaches the port, and the API to those with a token
    /// alone.
    #[arg(long, env = "TOLLGATE_ADMIN_OPEN_PAGES")]
    admin_open_pages: bool,
    /// PEM file of the certificate for the admin port with its chain. It is read again when it changes, together with its key.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_CERT", value_name = "FILE")]
    admin_tls_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_KEY", value_name = "FILE")]
    admin_tls_key: Option<PathBuf>,
    /// PEM file of the authorities, and no other, by which clients have to be certified; they may read and write.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_CLIENT_CA", value_name = "FILE")]
    admin_tls_client_ca: Option<PathBuf>,
}

/// Who may do what on the admin port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminSettings {
    /// Tokens that may read and write.
    pub token_file: Option<PathBuf>,
    /// Tokens that may read.
    pub read_token_file: Option<PathBuf>,
    /// Whether the plain pages are for everybody.
    pub open_pages: bool,
    /// Certificates; `None`: it speaks in the clear.
    pub tls: Option<TlsFiles>,
}

impl AdminSettings {
    /// Whether nobody has to show anything.
    pub fn is_open(&self) -> bool {
        let is_certified = self.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        self.token_file.is_none() && self.read_token_file.is_none() && !is_certified
    }
}

impl Flags {
    pub(super) fn resolve(self, listen: &SocketAddr, problems: &mut Problems) -> AdminSettings {
        let flags = tls::Names {
            certificate: "--admin-tls-cert",
            key: "--admin-tls-key",
            authorities: "--admin-tls-client-ca",
        };
        let (certificate, key, authorities) = (self.admin_tls_cert, self.admin_tls_key, self.admin_tls_client_ca);
        let clients = authorities.map(|authorities| Clients { authorities, name: None });
        let tls = tls::files(&flags, (certificate, key), clients, Speaks::Http1, problems);
        let settings = AdminSettings {
            token_file: self.admin_token_file,
            read_token_file: self.admin_read_token_file,
            open_pages: self.admin_open_pages,
            tls,
        };
        if settings.is_open() && !listen.ip().is_loopback() && !settings.open_pages {
            let what = format!(
                "{listen} is reached from other machines, and nobody has to show anything: set --admin-token-file (and \
                 --admin-read-token-file) or --admin-tls-client-ca, listen on 127.0.0.1:{}, or give --admin-open-pages to show the \
                 plain pages alone",
                listen.port()
            );
            problems.0.push(Problem { flag: "--admin-listen", what });
        }
        settings
    }
}
