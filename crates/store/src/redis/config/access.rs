//! Access to Redis: user, password, certificates, database. Files are read again for each
//! connection.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_telemetry::metrics::StoreMetrics;

use super::environment::Environment;
use super::url::RedisUrl;
use crate::redis::credentials::command::CredentialsCommand;
use crate::redis::credentials::source::{Credential, LoginSource};
use crate::redis::credentials::{Logins, SharedLogins};

/// Connection settings for every node of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The ACL user; `None` is the default user.
    pub user: Option<Credential>,
    /// The password.
    pub password: Option<Credential>,
    /// The program that prints a user and a password, used instead of both.
    pub credentials_command: Option<CredentialsCommand>,
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
    /// Maximum age of a connection; `None` for no maximum.
    pub max_age: Option<Duration>,
    /// The network, clock and randomness: those of the system, except in simulations.
    pub environment: Environment,
    /// The errors that were logged.
    pub logged: LoggedErrors,
    /// The users and passwords that were read.
    pub logins: SharedLogins,
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

impl Access {
    /// Returns these settings with those of a URL, which take precedence.
    pub fn with(mut self, url: &RedisUrl) -> Self {
        self.user = url.user.clone().map(Credential::Text).or(self.user);
        self.password = url.password.clone().map(Credential::Text).or(self.password);
        (self.database, self.tls) = (url.database, url.tls);
        self
    }

    /// Returns the users and passwords of these settings, shared by all clones.
    pub(in crate::redis) fn logins(&self, metrics: &Arc<StoreMetrics>) -> Arc<Logins> {
        let source = match &self.credentials_command {
            Some(command) => {
                LoginSource { command: Some(command.clone()), ..LoginSource::default() }
            }
            None => LoginSource {
                user: self.user.clone(),
                password: self.password.clone(),
                command: None,
            },
        };
        self.logins.of(source, metrics)
    }
}
