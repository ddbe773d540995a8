//! Authentication, TLS and the key prefix of Redis.

use std::path::PathBuf;
use std::time::Duration;

use super::{FlagError, FlagProblem, FlagValue, StoreLocation, deferred, parse};
use crate::store::redis::{
    Access, Credential, CredentialsCommand, Environment, LoggedErrors, RedisOptions, RedisUrl,
    SharedLogins, check_prefix,
};

#[derive(Debug, clap::Args)]
#[group(skip)]
/// The flags of Redis.
#[command(next_help_heading = "Redis")]
pub struct Flags {
    /// ACL user; a user in the URL takes precedence.
    #[arg(long, env = "TOLLGATE_REDIS_USER", value_name = "NAME")]
    redis_user: Option<String>,
    /// File with the name of the ACL user. It is read again as --redis-password-file is.
    #[arg(long, env = "TOLLGATE_REDIS_USER_FILE", value_name = "FILE")]
    redis_user_file: Option<PathBuf>,
    /// File with the password, read again for each connection; a password in the URL takes
    /// precedence. When it changes, connections in use authenticate again. Or set
    /// TOLLGATE_REDIS_PASSWORD.
    #[arg(long, env = "TOLLGATE_REDIS_PASSWORD_FILE", value_name = "FILE")]
    redis_password_file: Option<PathBuf>,
    /// Password. Do not use it as a flag: other users of the machine can see command lines.
    #[arg(long, env = "TOLLGATE_REDIS_PASSWORD", hide = true, hide_env_values = true)]
    redis_password: Option<String>,
    /// Program with arguments that prints a user and a password, for passwords that expire:
    /// {"username": "USER", "password": "TOKEN", "expires_in": SECONDS}. It is run without a shell,
    /// by one thread of the process, and again before they expire.
    #[arg(
        long,
        env = "TOLLGATE_REDIS_CREDENTIALS_COMMAND",
        value_name = "COMMAND",
        hide_env_values = true,
        conflicts_with_all = ["redis_user", "redis_user_file", "redis_password", "redis_password_file"],
        value_parser = deferred(command)
    )]
    redis_credentials_command: Option<FlagValue<CredentialsCommand>>,
    /// Maximum age of a connection to Redis or a sentinel. Before it is reached, another connection
    /// takes its place, and it ends with its calls; default: none.
    #[arg(long, env = "TOLLGATE_REDIS_CONNECTION_MAX_AGE", value_name = "DURATION", value_parser = parse::some_time)]
    redis_connection_max_age: Option<Duration>,
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
    /// File with the name of the ACL user of the sentinels.
    #[arg(long, env = "TOLLGATE_SENTINEL_USER_FILE", value_name = "FILE")]
    sentinel_user_file: Option<PathBuf>,
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
    /// File with the name of the ACL user of the per-second servers.
    #[arg(long, env = "TOLLGATE_PER_SECOND_USER_FILE", value_name = "FILE")]
    per_second_user_file: Option<PathBuf>,
    /// File with the password of the per-second servers. Or set TOLLGATE_PER_SECOND_PASSWORD.
    #[arg(long, env = "TOLLGATE_PER_SECOND_PASSWORD_FILE", value_name = "FILE")]
    per_second_password_file: Option<PathBuf>,
    /// Password of the per-second servers.
    #[arg(long, env = "TOLLGATE_PER_SECOND_PASSWORD", hide = true, hide_env_values = true)]
    per_second_password: Option<String>,
    /// Program that prints the user and the password of the per-second servers, as
    /// --redis-credentials-command does.
    #[arg(
        long,
        env = "TOLLGATE_PER_SECOND_CREDENTIALS_COMMAND",
        value_name = "COMMAND",
        hide_env_values = true,
        conflicts_with_all = ["per_second_user", "per_second_user_file", "per_second_password", "per_second_password_file"],
        value_parser = deferred(command)
    )]
    per_second_credentials_command: Option<FlagValue<CredentialsCommand>>,
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
    /// The URL of the per-second servers or a command line is invalid, or a URL has a user or
    /// password beside a command that prints both.
    pub fn complete(&self, place: StoreLocation) -> Result<StoreLocation, FlagProblem> {
        // Whatever the store is, so that invalid values are always reported.
        let per_second = valid(self.per_second_store.as_ref())?;
        let command = valid(self.redis_credentials_command.as_ref())?;
        let per_second_command = valid(self.per_second_credentials_command.as_ref())?;
        let StoreLocation::Redis(options) = place else { return Ok(place) };
        without_login(&options.url, command.as_ref(), "--redis-credentials-command")?;
        let access = Access {
            user: credential(self.redis_user.as_ref(), self.redis_user_file.as_ref()),
            password: credential(self.redis_password.as_ref(), self.redis_password_file.as_ref()),
            credentials_command: command,
            database: 0,
            tls: false,
            ca: self.redis_ca.clone(),
            certificate: self.redis_cert.clone().zip(self.redis_key.clone()),
            system_roots: self.redis_system_roots || self.redis_ca.is_none(),
            any_hostname: self.redis_any_hostname,
            connect_timeout: self.redis_connect_timeout,
            max_age: self.redis_connection_max_age,
            environment: Environment::System,
            logged: LoggedErrors::default(),
            logins: SharedLogins::default(),
        };
        let sentinel_access = Access {
            user: credential(self.sentinel_user.as_ref(), self.sentinel_user_file.as_ref()),
            password: credential(
                self.sentinel_password.as_ref(),
                self.sentinel_password_file.as_ref(),
            ),
            credentials_command: None,
            ..access.clone()
        };
        let prefix = self.redis_prefix.clone().into_bytes();
        let per_second = match per_second {
            Some(url) => {
                let flag = "--per-second-credentials-command";
                without_login(&url, per_second_command.as_ref(), flag)?;
                Some(self.per_second(url, per_second_command, &access))
            }
            None => None,
        };
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
    fn per_second(
        &self,
        url: RedisUrl,
        command: Option<CredentialsCommand>,
        main: &Access,
    ) -> Box<RedisOptions> {
        let access = Access {
            user: credential(self.per_second_user.as_ref(), self.per_second_user_file.as_ref()),
            password: credential(
                self.per_second_password.as_ref(),
                self.per_second_password_file.as_ref(),
            ),
            credentials_command: command,
            ..main.clone()
        };
        let sentinel_access = Access {
            user: credential(self.per_second_sentinel_user.as_ref(), None),
            password: credential(self.per_second_sentinel_password.as_ref(), None),
            credentials_command: None,
            ..main.clone()
        };
        Box::new(RedisOptions { access, sentinel_access, ..RedisOptions::at(url) })
    }
}

/// Returns the value of a flag.
///
/// # Errors
/// It is invalid.
fn valid<T: Clone>(flag: Option<&FlagValue<T>>) -> Result<Option<T>, FlagProblem> {
    let Some(FlagValue { flag, value }) = flag else { return Ok(None) };
    let value = value.clone();
    let value = value.map_err(|what| FlagProblem { flag: flag.clone(), what: what.to_string() })?;
    Ok(Some(value))
}

/// Checks that the user and password come from one source.
fn without_login(
    url: &RedisUrl,
    command: Option<&CredentialsCommand>,
    flag: &str,
) -> Result<(), FlagProblem> {
    if command.is_none() || (url.user.is_none() && url.password.is_none()) {
        return Ok(());
    }
    let what =
        "expected a URL of the servers without a user and password, which the command prints";
    Err(FlagProblem { flag: flag.to_owned(), what: what.to_owned() })
}

fn command(line: &str) -> Result<CredentialsCommand, FlagError> {
    CredentialsCommand::parse(line).map_err(FlagError::refused)
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

fn credential(text: Option<&String>, file: Option<&PathBuf>) -> Option<Credential> {
    file.cloned().map(Credential::File).or_else(|| text.cloned().map(Credential::Text))
}
