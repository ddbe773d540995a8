//! Access to Redis: user, password, certificates, database. Files are read again for each
//! connection.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::RedisConnectionInfo;

use super::environment::Environment;
use super::url::RedisUrl;
use crate::redis::server::failure::{is_of_login, shown};
use crate::servers::AccessRefusal;

/// Connection settings for every node of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The ACL user; `None` is the default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The database.
    pub database: i64,
    /// `true` if connections are encrypted.
    pub tls: bool,
    /// PEM file of the authority for the servers' certificates.
    pub ca: Option<PathBuf>,
    /// `true` if the system's authorities are trusted too.
    pub system_roots: bool,
    /// PEM files of the client's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// `true` if a certificate of a trusted authority is accepted for any host name.
    pub any_hostname: bool,
    /// Timeout for a connection, including its handshake; 500 ms by default.
    pub connect_timeout: Option<Duration>,
    /// The network, clock and randomness: those of the system, except in simulations.
    pub environment: Environment,
    /// The errors that were logged.
    pub logged: LoggedErrors,
}

/// The last logged error of each address, shared by all connections of the process: each worker has
/// one of its own, and one log line is enough.
#[derive(Clone, Debug, Default)]
pub struct LoggedErrors(Arc<Mutex<HashMap<String, String>>>);

impl LoggedErrors {
    /// Stores the error of an address. Returns `true` if it differs from the stored one.
    pub(in crate::redis) fn replace(&self, address: &str, error: &str) -> bool {
        self.0.lock().insert(address.to_owned(), error.to_owned()).as_deref() != Some(error)
    }

    /// Removes the error of an address. Returns `true` if there was one.
    pub(in crate::redis) fn remove(&self, address: &str) -> bool {
        self.0.lock().remove(address).is_some()
    }
}

/// Settings are equal whatever was logged.
impl PartialEq for LoggedErrors {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LoggedErrors {}

/// A password, or the file that contains it, which is read again for each connection.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as above")]
pub enum Secret {
    Text(String),
    File(PathBuf),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(***)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(in crate::redis) enum ConnectError {
    #[error("{path}: {error}")]
    File { path: String, error: std::io::Error },
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    #[error("{}", shown(.0))]
    Tls(String),
    #[error("{}", shown(.0))]
    Redis(#[from] redis::RedisError),
    #[error("{}", login_advice(.has_password, .user.as_deref(), .text))]
    Login {
        /// `true` if a password is configured.
        has_password: bool,
        user: Option<String>,
        /// The error of the server.
        text: String,
    },
    #[error("connection timed out after {0:?}")]
    Late(Duration),
    #[error("server is a read-only replica")]
    Replica,
    #[error("{}", crate::redis::server::rights::advice(.user.as_deref(), .commands, .extras))]
    Forbidden {
        user: Option<String>,
        /// Commands that decisions need.
        commands: Vec<&'static str>,
        /// Commands that other features need.
        extras: Vec<&'static str>,
    },
}

impl ConnectError {
    pub(in crate::redis) fn tls(error: impl ToString) -> Self {
        Self::Tls(error.to_string())
    }

    /// Returns the error with the next step, if the server refused the login of `access`.
    pub(in crate::redis) fn of_login(self, access: &Access) -> Self {
        let Self::Redis(error) = self else { return self };
        if !is_of_login(&error) {
            return Self::Redis(error);
        }
        Self::Login {
            has_password: access.password.is_some(),
            user: access.user.clone(),
            text: shown(error),
        }
    }

    /// Returns the reason if the server refuses all that decisions need.
    pub(in crate::redis) fn refusal(&self) -> Option<AccessRefusal> {
        match self {
            Self::Login { .. } => Some(AccessRefusal::Login),
            Self::Forbidden { .. } => Some(AccessRefusal::Commands),
            Self::File { .. }
            | Self::Socket(_)
            | Self::Tls(_)
            | Self::Redis(_)
            | Self::Late(_)
            | Self::Replica => None,
        }
    }
}

fn login_advice(has_password: &bool, user: Option<&str>, text: &str) -> String {
    if *has_password {
        let name = user.unwrap_or("default");
        return format!(
            "the server refuses user `{name}` with this password ({text}); correct --redis-user \
             and --redis-password-file"
        );
    }
    format!(
        "the server requires a password, but none is configured ({text}); set \
         --redis-password-file FILE or TOLLGATE_REDIS_PASSWORD, and --redis-user NAME for a named \
         user"
    )
}

impl Access {
    /// Returns these settings with those of a URL, which take precedence.
    pub fn with(mut self, url: &RedisUrl) -> Self {
        self.user = url.user.clone().or(self.user);
        self.password = url.password.clone().map(Secret::Text).or(self.password);
        (self.database, self.tls) = (url.database, url.tls);
        self
    }

    /// Returns the login for the handshake.
    pub(in crate::redis) fn login(&self) -> Result<RedisConnectionInfo, ConnectError> {
        let mut login = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_lib_name("tollgate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        match &self.password {
            Some(Secret::Text(text)) => login = login.set_password(text),
            Some(Secret::File(path)) => {
                let bytes = read(path)?;
                login = login.set_password(String::from_utf8_lossy(&bytes).trim_end());
            }
            None => {}
        }
        Ok(login)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    tollgate_files::bounded_file::read(path)
        .map_err(|error| ConnectError::File { path: path.display().to_string(), error })
}
