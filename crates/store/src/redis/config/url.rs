//! The address of Redis as a URL: `redis://host`, `rediss://`, `redis+unix://`, `redis-cluster://`,
//! `redis-sentinel://`.

use std::fmt;
use std::path::PathBuf;

use tollgate_core::printable::{excerpt, without_password};

/// Default port.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// Maximum bytes of a host in messages.
const MAX_SHOWN_HOST: usize = 256;

/// The address of Redis and the credentials in it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// The topology and its addresses.
    pub kind: Topology,
    /// `true` if connections are encrypted.
    pub tls: bool,
    /// The database; 0 by default.
    pub database: i64,
    /// The ACL user; `None` is the default user.
    pub user: Option<String>,
    /// The password, if the URL contains one.
    pub password: Option<String>,
}

/// A Redis topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A single server.
    Single(ServerAddress),
    /// A Cluster: any of these nodes returns the addresses of all.
    Cluster(Vec<ServerAddress>),
    /// The master of this name, which any of these sentinels knows.
    Sentinel {
        /// The name under which the sentinels know the master.
        master: String,
        /// The sentinels.
        sentinels: Vec<ServerAddress>,
    },
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerAddress {
    /// Host and port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// An invalid URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} in `{url}`")]
pub struct RedisUrlError {
    /// The part that is invalid.
    pub fault: RedisUrlFault,
    /// The URL, without its password.
    pub url: String,
}

/// The part of a URL that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlFault {
    /// The path of a socket is relative.
    #[error("socket path must begin with `/`")]
    SocketPath,
    /// There is no name of a master that sentinels know.
    #[error("missing master name before `@`")]
    NoMaster,
    /// The name of a master is followed by a password.
    #[error(
        "expected only the master name before `@`; use the password settings, such as \
         --redis-password-file"
    )]
    MasterWithPassword,
    /// A database other than 0 in a Cluster.
    #[error("a Cluster supports only database 0")]
    ClusterDatabase,
    /// Several hosts, or none, for a single server.
    #[error("expected one host, found {found} (for a Cluster, use `redis-cluster://`)")]
    Hosts {
        /// The number of hosts.
        found: usize,
    },
    /// The database is no number, or too large.
    #[error("database must be a number")]
    Database,
    /// The user, password or master name is not UTF-8.
    #[error("name or password is not UTF-8")]
    NotUtf8,
    /// A host is empty.
    #[error("missing host")]
    NoHost,
    /// The port is no number, or too large.
    #[error("invalid port after `{host}:`")]
    Port {
        /// The host before it.
        host: String,
    },
}

impl RedisUrl {
    /// Parses a URL; returns `None` if its scheme is not one of Redis.
    ///
    /// # Errors
    /// If the scheme is one of Redis, but the rest is invalid.
    pub fn parse(text: &str) -> Option<Result<Self, RedisUrlError>> {
        let (scheme, rest) = text.split_once("://")?;
        let parse = match scheme
            .strip_suffix("-cluster")
            .or(scheme.strip_suffix("-sentinel"))
            .unwrap_or(scheme)
        {
            "redis" | "rediss" | "redis+unix" => Self::parse_rest(scheme, rest),
            _ => return None,
        };
        Some(parse.map_err(|fault| RedisUrlError { fault, url: without_password(text) }))
    }

    fn parse_rest(scheme: &str, rest: &str) -> Result<Self, RedisUrlFault> {
        let tls = scheme.starts_with("rediss");
        // A path may contain an `@`.
        let (access, rest) = if rest.starts_with('/') {
            (None, rest)
        } else {
            rest.rsplit_once('@').map_or((None, rest), |(access, rest)| (Some(access), rest))
        };
        if scheme == "redis+unix" {
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            let database = query.strip_prefix("db=").map_or(Ok(0), database)?;
            let (user, password) = user_and_password(access)?;
            if !path.starts_with('/') {
                return Err(RedisUrlFault::SocketPath);
            }
            return Ok(Self {
                kind: Topology::Single(ServerAddress::Unix(path.into())),
                tls,
                database,
                user,
                password,
            });
        }
        let (hosts, database_text) = rest.split_once('/').unwrap_or((rest, ""));
        let database = if database_text.is_empty() { 0 } else { database(database_text)? };
        if scheme.ends_with("-sentinel") {
            let master =
                access.filter(|master| !master.is_empty()).ok_or(RedisUrlFault::NoMaster)?;
            if master.contains(':') {
                return Err(RedisUrlFault::MasterWithPassword);
            }
            let kind = Topology::Sentinel {
                master: decoded(master)?,
                sentinels: addresses(hosts, SENTINEL_PORT)?,
            };
            return Ok(Self { kind, tls, database, user: None, password: None });
        }
        let (user, password) = user_and_password(access)?;
        let mut found = addresses(hosts, PORT)?;
        let kind = if scheme.ends_with("-cluster") {
            if database > 0 {
                return Err(RedisUrlFault::ClusterDatabase);
            }
            Topology::Cluster(found)
        } else if found.len() == 1 {
            Topology::Single(found.remove(0))
        } else {
            return Err(RedisUrlFault::Hosts { found: found.len() });
        };
        Ok(Self { kind, tls, database, user, password })
    }
}

fn database(text: &str) -> Result<i64, RedisUrlFault> {
    text.parse::<u16>().map(i64::from).map_err(|_| RedisUrlFault::Database)
}

/// Returns the user and the password before the `@` of a URL.
fn user_and_password(
    access: Option<&str>,
) -> Result<(Option<String>, Option<String>), RedisUrlFault> {
    let Some(access) = access else { return Ok((None, None)) };
    let (user, password) =
        access.split_once(':').map_or((access, None), |(user, password)| (user, Some(password)));
    let user = if user.is_empty() { None } else { Some(decoded(user)?) };
    Ok((user, password.map(decoded).transpose()?))
}

fn addresses(text: &str, port: u16) -> Result<Vec<ServerAddress>, RedisUrlFault> {
    text.split(',').map(|host| ServerAddress::parse(host, port)).collect()
}

/// Decodes `%40` and the like, by which a URL escapes characters in names and passwords.
fn decoded(text: &str) -> Result<String, RedisUrlFault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte =
            escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8(bytes).map_err(|_| RedisUrlFault::NotUtf8)
}

impl ServerAddress {
    /// Parses `host`, `host:port` or `[v6]:port`.
    fn parse(text: &str, port: u16) -> Result<Self, RedisUrlFault> {
        let (host, port_text) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(RedisUrlFault::NoHost);
        }
        let port = port_text.map_or(Ok(port), |text| {
            text.parse().map_err(|_| RedisUrlFault::Port { host: host.to_owned() })
        })?;
        Ok(Self::Tcp(host.to_owned(), port))
    }
}

impl ServerAddress {
    /// Returns this address, with the host of `other` if it has none, as in some redirections.
    pub(in crate::redis) fn or_host_of(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Tcp(host, port), Self::Tcp(other, _)) if host.is_empty() => {
                Self::Tcp(other.clone(), port)
            }
            (address, _) => address,
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A host may be one that a server named.
            Self::Tcp(host, port) => {
                let host = excerpt(host, MAX_SHOWN_HOST);
                if host.contains(':') {
                    write!(f, "[{host}]:{port}")
                } else {
                    write!(f, "{host}:{port}")
                }
            }
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for RedisUrl {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, tls, database, user, password: _ } = self;
        let mut debug = f.debug_struct("RedisUrl");
        debug.field("kind", kind).field("tls", tls).field("database", database).field("user", user);
        debug.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::Access;
    use super::*;
    use crate::redis::Credential;

    fn kind(text: &str) -> Topology {
        RedisUrl::parse(text).unwrap().unwrap().kind
    }

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp(host.to_owned(), port)
    }

    #[test]
    fn each_topology_has_a_scheme() {
        let unix = ServerAddress::Unix("/run/redis.sock".into());
        let sentinels = vec![tcp("a", 26379), tcp("b", 1)];
        for (text, expected) in [
            ("redis://h", Topology::Single(tcp("h", 6379))),
            ("rediss://[::1]:7000", Topology::Single(tcp("::1", 7000))),
            ("redis+unix:///run/redis.sock?db=2", Topology::Single(unix)),
            ("redis-cluster://a:1,b", Topology::Cluster(vec![tcp("a", 1), tcp("b", 6379)])),
            (
                "rediss-sentinel://mymaster@a,b:1",
                Topology::Sentinel { master: "mymaster".to_owned(), sentinels },
            ),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
        assert!(RedisUrl::parse("memory").is_none() && RedisUrl::parse("http://x").is_none());
    }

    #[test]
    fn user_password_and_database_are_read() {
        let url = RedisUrl::parse("rediss://tolly:s%40cret@h:1/3").unwrap().unwrap();
        assert!(url.tls);
        assert_eq!(
            (url.user.as_deref(), url.password.as_deref(), url.database),
            (Some("tolly"), Some("s@cret"), 3)
        );
        assert!(!format!("{url:?}").contains("s@cret"));
        let text = |text: &str| Some(Credential::Text(text.to_owned()));
        let flags = Access { user: text("other"), password: text("other"), ..Access::default() };
        let access = flags.with(&url);
        assert_eq!((access.user, access.password), (text("tolly"), text("s@cret")));
    }

    #[test]
    fn an_invalid_url_is_reported_without_its_password() {
        let problem = |text| RedisUrl::parse(text).unwrap().unwrap_err().to_string();
        let two = "expected one host, found 2 (for a Cluster, use `redis-cluster://`)";
        for (text, expected, shown) in [
            ("redis://u:secret@h:port", "invalid port after `h:`", "redis://u:***@h:***"),
            ("redis://u:secret", "invalid port after `u:`", "redis://u:***"),
            ("redis://:secret", "missing host", "redis://:***"),
            ("redis://u:1/secret", "database must be a number", "redis://u:1/***"),
            ("redis://a,b", two, "redis://a,b"),
            ("redis-sentinel://a", "missing master name before `@`", "redis-sentinel://a"),
            ("redis-cluster://a/1", "a Cluster supports only database 0", "redis-cluster://a/1"),
            ("redis://", "missing host", "redis://"),
        ] {
            assert_eq!(problem(text), format!("{expected} in `{shown}`"));
        }
        assert!(!problem("redis-sentinel://:secret@m").contains("secret"));
    }
}
