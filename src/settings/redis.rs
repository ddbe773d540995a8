//! As whom to go to Redis, and how to name keys there.

use std::path::PathBuf;
use std::time::Duration;

use super::{Place, parse};
use crate::store::redis::{Access, RedisOptions, RedisUrl, Secret, check_prefix};

#[derive(Debug, clap::Args)]
#[group(skip)]
/// The flags.
#[command(next_help_heading = "Redis")]
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
    /// Trust the system's authorities besides that one.
    #[arg(long, env = "TOLLGATE_REDIS_SYSTEM_ROOTS")]
    redis_system_roots: bool,
    /// PEM file of the certificate to show to servers.
    #[arg(long, env = "TOLLGATE_REDIS_CERT", value_name = "FILE", requires = "redis_key")]
    redis_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, env = "TOLLGATE_REDIS_KEY", value_name = "FILE", requires = "redis_cert")]
    redis_key: Option<PathBuf>,
    /// Take a certificate by that authority for any host: for certificates that name none of the hosts that are connected to.
    #[arg(long, env = "TOLLGATE_REDIS_ANY_HOSTNAME")]
    redis_any_hostname: bool,
    /// Time for one attempt to connect, with the greeting; they are repeated.
    #[arg(long, env = "TOLLGATE_REDIS_CONNECT_TIMEOUT", value_name = "DURATION", value_parser = parse::duration)]
    redis_connect_timeout: Option<Duration>,
    /// What all keys begin with. Each byte is paid for with every counter. With a hash tag, `{TEXT}`, all are in one slot of a
    /// Cluster.
    #[arg(long, env = "TOLLGATE_REDIS_PREFIX", value_name = "TEXT", default_value = "", value_parser = prefix)]
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
    /// Other servers for the limits whose only period is a second: a URL as --store takes it.
    #[arg(long, env = "TOLLGATE_PER_SECOND_STORE", value_name = "URL", hide_env_values = true)]
    per_second_store: Option<String>,
    /// The ACL user there.
    #[arg(long, env = "TOLLGATE_PER_SECOND_USER", value_name = "NAME")]
    per_second_user: Option<String>,
    /// File that has the password for them. Or TOLLGATE_PER_SECOND_PASSWORD.
    #[arg(long, env = "TOLLGATE_PER_SECOND_PASSWORD_FILE", value_name = "FILE")]
    per_second_password_file: Option<PathBuf>,
    /// The password for them.
    #[arg(long, env = "TOLLGATE_PER_SECOND_PASSWORD", hide = true, hide_env_values = true)]
    per_second_password: Option<String>,
    /// The ACL user at their sentinels.
    #[arg(long, env = "TOLLGATE_PER_SECOND_SENTINEL_USER", value_name = "NAME", hide = true)]
    per_second_sentinel_user: Option<String>,
    /// The password for their sentinels.
    #[arg(long, env = "TOLLGATE_PER_SECOND_SENTINEL_PASSWORD", hide = true, hide_env_values = true)]
    per_second_sentinel_password: Option<String>,
}

impl Flags {
    /// Completes what the URL says.
    ///
    /// # Errors
    /// What is wrong with that of other servers.
    pub fn complete(&self, place: Place) -> Result<Place, String> {
        // Read whatever the place is, so that nothing wrong is passed over.
        let per_second = self.per_second_store.as_deref().map(redis_url).transpose()?;
        let Place::Redis(options) = place else { return Ok(place) };
        let access = Access {
            user: self.redis_user.clone(),
            password: secret(self.redis_password.as_ref(), self.redis_password_file.as_ref()),
            database: 0,
            tls: false,
            ca: self.redis_ca.clone(),
            certificate: self.redis_cert.clone().zip(self.redis_key.clone()),
            system_roots: self.redis_system_roots || self.redis_ca.is_none(),
            any_hostname: self.redis_any_hostname,
            connect_timeout: self.redis_connect_timeout,
        };
        let sentinel_access = Access {
            user: self.sentinel_user.clone(),
            password: secret(self.sentinel_password.as_ref(), self.sentinel_password_file.as_ref()),
            ..access.clone()
        };
        let prefix = self.redis_prefix.clone().into_bytes();
        let per_second = per_second.map(|url| self.per_second(url, &access));
        Ok(Place::Redis(Box::new(RedisOptions { access, sentinel_access, prefix, per_second, ..*options })))
    }

    /// The servers for limits of a second. Certificates are those of the others.
    fn per_second(&self, url: RedisUrl, main: &Access) -> Box<RedisOptions> {
        let access = Access {
            user: self.per_second_user.clone(),
            password: secret(self.per_second_password.as_ref(), self.per_second_password_file.as_ref()),
            ..main.clone()
        };
        let sentinel_access = Access {
            user: self.per_second_sentinel_user.clone(),
            password: secret(self.per_second_sentinel_password.as_ref(), None),
            ..main.clone()
        };
        Box::new(RedisOptions { access, sentinel_access, ..RedisOptions::at(url) })
    }
}

fn prefix(text: &str) -> Result<String, String> {
    check_prefix(text).map(|()| text.to_owned())
}

fn redis_url(text: &str) -> Result<RedisUrl, String> {
    RedisUrl::parse(text.trim())
        .unwrap_or_else(|| Err("expected a URL that begins with redis:// or the like".to_owned()))
}

fn secret(text: Option<&String>, file: Option<&PathBuf>) -> Option<Secret> {
    file.cloned().map(Secret::File).or_else(|| text.cloned().map(Secret::Text))
}
