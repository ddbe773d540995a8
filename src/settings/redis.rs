//! As whom to go to Redis, and how to name keys there.

use std::path::PathBuf;

use super::Place;
use crate::store::redis::{Access, RedisOptions, Secret};

#[derive(Debug, clap::Args)]
#[group(skip)]
/// The flags.
pub struct Flags {
    /// The ACL user; the URL's wins.
    #[arg(long, env = "TOLLGATE_REDIS_USER", value_name = "NAME")]
    redis_user: Option<String>,
    /// File that has the password, read again for each connection; the URL's wins. Or TOLLGATE_REDIS_PASSWORD.
    #[arg(long, env = "TOLLGATE_REDIS_PASSWORD_FILE", value_name = "FILE")]
    redis_password_file: Option<PathBuf>,
    /// The password. Not a flag to use: other users of the machine see command lines.
    #[arg(long, env = "TOLLGATE_REDIS_PASSWORD", hide = true, hide_env_values = true)]
    redis_password: Option<String>,
    /// PEM file of the authority that servers' certificates are checked by; default: those of the system.
    #[arg(long, env = "TOLLGATE_REDIS_CA", value_name = "FILE")]
    redis_ca: Option<PathBuf>,
    /// PEM file of the certificate to show to servers.
    #[arg(long, env = "TOLLGATE_REDIS_CERT", value_name = "FILE", requires = "redis_key")]
    redis_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, env = "TOLLGATE_REDIS_KEY", value_name = "FILE", requires = "redis_cert")]
    redis_key: Option<PathBuf>,
    /// What all keys begin with. Each byte is paid for with every counter.
    #[arg(long, env = "TOLLGATE_REDIS_PREFIX", value_name = "TEXT", default_value = "")]
    redis_prefix: String,
    /// The ACL user at the sentinels.
    #[arg(long, env = "TOLLGATE_SENTINEL_USER", value_name = "NAME")]
    sentinel_user: Option<String>,
    /// File that has the password for the sentinels. Or TOLLGATE_SENTINEL_PASSWORD.
    #[arg(long, env = "TOLLGATE_SENTINEL_PASSWORD_FILE", value_name = "FILE")]
    sentinel_password_file: Option<PathBuf>,
    /// The password for the sentinels.
    #[arg(long, env = "TOLLGATE_SENTINEL_PASSWORD", hide = true, hide_env_values = true)]
    sentinel_password: Option<String>,
}

impl Flags {
    /// Completes what the URL says.
    pub fn complete(&self, place: Place) -> Place {
        let Place::Redis(options) = place else { return place };
        let access = Access {
            user: self.redis_user.clone(),
            password: secret(self.redis_password.as_ref(), self.redis_password_file.as_ref()),
            database: 0,
            tls: false,
            ca: self.redis_ca.clone(),
            certificate: self.redis_cert.clone().zip(self.redis_key.clone()),
        };
        let sentinel_access = Access {
            user: self.sentinel_user.clone(),
            password: secret(self.sentinel_password.as_ref(), self.sentinel_password_file.as_ref()),
            ..access.clone()
        };
        let prefix = self.redis_prefix.clone().into_bytes();
        Place::Redis(Box::new(RedisOptions { access, sentinel_access, prefix, ..*options }))
    }
}

fn secret(text: Option<&String>, file: Option<&PathBuf>) -> Option<Secret> {
    file.cloned().map(Secret::File).or_else(|| text.cloned().map(Secret::Text))
}
