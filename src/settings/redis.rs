//! Authentication, TLS and the key prefix of Redis.

use std::path::PathBuf;
use std::time::Duration;

use super::{FlagError, FlagValue, StoreLocation, deferred, parse};
use crate::store::redis::{
    Access, Environment, LoggedErrors, RedisOptions, RedisUrl, Secret, check_prefix,
};

#[derive(Debug, clap::Args)]
#[group(skip)]
/// The flags of Redis.
#[command(next_help_heading = "Redis")]
pub struct Flags {
    /// ACL user; a user in the URL takes precedence.
    #[arg(long, env = "TOLLGATE_REDIS_USER", value_name = "NAME")]
    redis_user: Option<String>,
    /// File with the password, read again for each connection; a password in the URL takes
    /// precedence. Or set TOLLGATE_REDIS_PASSWORD.
    #[arg(long, env = "TOLLGATE_REDIS_PASSWORD_FILE", value_name = "FILE")]
    redis_password_file: Option<PathBuf>,
    /// Password. Do not use it as a flag: other users of the machine can see command lines.
    #[arg(long, env = "TOLLGATE_REDIS_PASSWORD", hide = true, hide_env_values = true)]
    redis_password: Option<String>,
    /// PEM file with the CA certificates that server certificates are verified against; default:
    /// those of the system.
    #[arg(long, env = "TOLLGATE_REDIS_CA", value_name = "FILE")]
    redis_ca: Option<PathBuf>,
    /// Also trust the CA certificates of the system.
    #[arg(long, env = "TOLLGATE_REDIS_SYSTEM_ROOTS")]
    redis_system_roots: bool,
    /// PEM file with the client certificate.
    #[arg(long, env = "TOLLGATE_REDIS_CERT", value_name = "FILE", requires = "redis_key")]
    redis_cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    #[arg(long, env = "TOLLGATE_REDIS_KEY", value_name = "FILE", requires = "redis_cert")]
    redis_key: Option<PathBuf>,
    /// Do not check the hostname in server certificates; the certificate must still be issued by a
    /// trusted CA.
    #[arg(long, env = "TOLLGATE_REDIS_ANY_HOSTNAME")]
    redis_any_hostname: bool,
    /// Timeout of one connection attempt, including the handshake; attempts are repeated.
    #[arg(long, env = "TOLLGATE_REDIS_CONNECT_TIMEOUT", value_name = "DURATION", value_parser = parse::duration)]
    redis_connect_timeout: Option<Duration>,
    /// Prefix of all keys. Each byte is stored with every counter. With a hash tag, `{TEXT}`, all
    /// keys are in one slot of a Cluster.
    #[arg(long, env = "TOLLGATE_REDIS_PREFIX", value_name = "TEXT", default_value = "", value_parser = prefix)]
    redis_prefix: String,
    /// ACL user of the sentinels.
    #[arg(long, env = "TOLLGATE_SENTINEL_USER", value_name = "NAME")]
    sentinel_user: Option<String>,
    /// File with the password of the sentinels. Or set TOLLGATE_SENTINEL_PASSWORD.
    #[arg(long, env = "TOLLGATE_SENTINEL_PASSWORD_FILE", value_name = "FILE")]
    sentinel_password_file: Option<PathBuf>,
    /// Password of the sentinels.
    #[arg(long, env = "TOLLGATE_SENTINEL_PASSWORD", hide = true, hide_env_values = true)]
    sentinel_password: Option<String>,
    /// Separate servers for limits whose only period is a second; a URL as for --store.
    #[arg(long, env = "TOLLGATE_PER_SECOND_STORE", value_name = "URL", hide_env_values = true, value_parser = deferred(redis_url))]
    per_second_store: Option<FlagValue<RedisUrl>>,
    /// ACL user of the per-second servers.
    #[arg(long, env = "TOLLGATE_PER_SECOND_USER", value_name = "NAME")]
    per_second_user: Option<String>,
    /// File with the password of the per-second servers. Or set TOLLGATE_PER_SECOND_PASSWORD.
    #[arg(long, env = "TOLLGATE_PER_SECOND_PASSWORD_FILE", value_name = "FILE")]
    per_second_password_file: Option<PathBuf>,
    /// Password of the per-second servers.
    #[arg(long, env = "TOLLGATE_PER_SECOND_PASSWORD", hide = true, hide_env_values = true)]
    per_second_password: Option<String>,
    /// ACL user of the sentinels of the per-second servers.
    #[arg(long, env = "TOLLGATE_PER_SECOND_SENTINEL_USER", value_name = "NAME", hide = true)]
    per_second_sentinel_user: Option<String>,
    /// Password of the sentinels of the per-second servers.
    #[arg(
        long,
        env = "TOLLGATE_PER_SECOND_SENTINEL_PASSWORD",
        hide = true,
        hide_env_values = true
    )]
    per_second_sentinel_password: Option<String>,
}

impl Flags {
    /// Completes the options of a URL with those of the flags.
    ///
    /// # Errors
    /// The URL of the per-second servers is invalid.
    pub fn complete(&self, place: StoreLocation) -> Result<StoreLocation, FlagError> {
        // Whatever the store is, so that an invalid URL is always reported.
        let per_second = self.per_second_store.clone().map(|url| url.value).transpose()?;
        let StoreLocation::Redis(options) = place else { return Ok(place) };
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
            environment: Environment::System,
            logged: LoggedErrors::default(),
        };
        let sentinel_access = Access {
            user: self.sentinel_user.clone(),
            password: secret(self.sentinel_password.as_ref(), self.sentinel_password_file.as_ref()),
            ..access.clone()
        };
        let prefix = self.redis_prefix.clone().into_bytes();
        let per_second = per_second.map(|url| self.per_second(url, &access));
        Ok(StoreLocation::Redis(Box::new(RedisOptions {
            access,
            sentinel_access,
            prefix,
            per_second,
            ..*options
        })))
    }

    /// Returns the options of the servers for limits of a second. They use the certificates of the
    /// main servers.
    fn per_second(&self, url: RedisUrl, main: &Access) -> Box<RedisOptions> {
        let access = Access {
            user: self.per_second_user.clone(),
            password: secret(
                self.per_second_password.as_ref(),
                self.per_second_password_file.as_ref(),
            ),
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

fn prefix(text: &str) -> Result<String, FlagError> {
    check_prefix(text).map_err(FlagError::refused)?;
    Ok(text.to_owned())
}

fn redis_url(text: &str) -> Result<RedisUrl, FlagError> {
    match RedisUrl::parse(text.trim()) {
        Some(url) => url.map_err(FlagError::refused),
        None => Err(FlagError::UnexpectedHidden {
            allowed: "a URL such as redis://HOST, rediss://HOST or redis-cluster://HOST,HOST",
        }),
    }
}

fn secret(text: Option<&String>, file: Option<&PathBuf>) -> Option<Secret> {
    file.cloned().map(Secret::File).or_else(|| text.cloned().map(Secret::Text))
}
