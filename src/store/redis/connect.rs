//! One connection: the socket, TLS on it, the greeting, and the proof that the server takes writes, if it has to.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::access::{Access, ConnectError};
use super::failure::Failure;
use super::tls;
use super::url::Address;
use crate::telemetry::metrics::Metrics;

/// Time for a connection, with its greeting, unless given.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The key of [`RequiredRole::Master`], after the prefix of all keys.
const PROBE: &[u8] = b"tollgate:probe";

/// The role that a server must have.
#[derive(Clone, Debug)]
pub(super) enum RequiredRole {
    /// Either: a node of a Cluster, which redirects to the master of a key itself, or a sentinel.
    Any,
    /// A master, as it is found by a name or by sentinels. The command deletes a key that nobody writes: it changes nothing, a
    /// replica refuses it, and a user who can decide may send it, unlike `ROLE` and `INFO`.
    Master(Cmd),
}

impl RequiredRole {
    /// A master, for keys that begin with `prefix`.
    pub(super) fn master(prefix: &[u8]) -> Self {
        let mut probe = redis::cmd("DEL");
        probe.arg([prefix, PROBE].concat());
        Self::Master(probe)
    }
}

/// A multiplexed connection, shared by those who call.
pub(super) struct Link {
    connection: MultiplexedConnection,
    role: RequiredRole,
    metrics: Arc<Metrics>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.metrics.disconnected();
    }
}

impl Link {
    fn new(connection: MultiplexedConnection, role: &RequiredRole, metrics: &Arc<Metrics>) -> Self {
        metrics.connected();
        Self { connection, role: role.clone(), metrics: Arc::clone(metrics) }
    }

    /// A handle to send with.
    pub(super) fn handle(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// Whether the server must be a master.
    pub(super) fn must_be_master(&self) -> bool {
        matches!(self.role, RequiredRole::Master(_))
    }

    /// Whether the server answers within a time.
    pub(super) async fn answers(&self, within: Duration) -> bool {
        let (mut handle, ping) = (self.handle(), redis::cmd("PING"));
        matches!(timeout(within, handle.req_packed_command(&ping)).await, Ok(Ok(_)))
    }

    /// Whether the server answers within a time, in the role that it must have.
    pub(super) async fn is_good(&self, within: Duration) -> bool {
        match &self.role {
            RequiredRole::Any => self.answers(within).await,
            RequiredRole::Master(probe) => {
                matches!(timeout(within, refuses_writes(self.handle(), probe)).await, Ok(Ok(false)))
            }
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// Makes connections to one node.
pub(super) struct Connector {
    pub(super) address: Address,
    pub(super) access: Arc<Access>,
    pub(super) role: RequiredRole,
    pub(super) metrics: Arc<Metrics>,
}

impl Connector {
    /// A connection to whatever server has the address now, in the role that it must have.
    pub(super) async fn connect(&self) -> Result<Link, ConnectError> {
        let connection = within_patience(&self.access, self.connect_in_role()).await?;
        Ok(Link::new(connection, &self.role, &self.metrics))
    }

    async fn connect_in_role(&self) -> Result<MultiplexedConnection, ConnectError> {
        let connection = open(&self.access, &self.address).await?;
        match &self.role {
            RequiredRole::Master(probe) if refuses_writes(connection.clone(), probe).await? => {
                Err(ConnectError::Replica)
            }
            RequiredRole::Master(_) | RequiredRole::Any => Ok(connection),
        }
    }
}

/// A connection to one node, greeted, within the time for that. Calls on it have no time limit of their own.
pub(super) async fn connect(access: &Access, address: &Address) -> Result<MultiplexedConnection, ConnectError> {
    within_patience(access, open(access, address)).await
}

async fn within_patience<T>(
    access: &Access,
    connecting: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let patience = access.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
    timeout(patience, connecting).await.map_err(|_| ConnectError::Late(patience))?
}

/// Whether the server refuses a write because it is a replica; another refusal is no matter of its role.
async fn refuses_writes(mut connection: MultiplexedConnection, probe: &Cmd) -> Result<bool, RedisError> {
    let reply = connection.req_packed_command(probe).await?.extract_error();
    Ok(reply.is_err_and(|error| Failure::of(&error) == Failure::ReadOnly))
}

async fn open(access: &Access, address: &Address) -> Result<MultiplexedConnection, ConnectError> {
    match address {
        Address::Unix(path) => greet(access, UnixStream::connect(path).await?).await,
        Address::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            if !access.tls {
                return greet(access, stream).await;
            }
            greet(access, tls::shake_hands(access, host, stream).await?).await
        }
    }
}

async fn greet(
    access: &Access,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<MultiplexedConnection, ConnectError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(&access.login()?, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}
