//! A connection: socket, TLS, handshake, and the check that the server lets this user decide and
//! accepts writes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tollgate_telemetry::metrics::StoreMetrics;

use super::connect_error::ConnectError;
use super::failure::CallFailure;
use super::preload::load_scripts;
use super::replies::BoundedReplies;
use super::rights::{GrantedRights, RightsCheck};
use super::tls;
use crate::redis::config::access::Access;
use crate::redis::config::environment::Environment;
use crate::redis::config::url::ServerAddress;
use crate::redis::credentials::Logins;
use crate::redis::credentials::login::Login;
use crate::servers::AccessRefusal;

/// Default timeout for a connection, including its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Least part of its maximum age at which a connection is replaced.
const YOUNGEST: f64 = 0.8;

/// The role that a server must have.
#[derive(Clone, Debug)]
pub(in crate::redis) enum RequiredRole {
    /// None: a sentinel, which decides nothing.
    Sentinel,
    /// Either: a node of a Cluster redirects to the master of a key itself.
    ClusterNode(RightsCheck),
    /// A master, found by its host name or by sentinels. A replica refuses one of the checks, which
    /// is a command that any user who can decide may run, unlike `ROLE` and `INFO`.
    Master(RightsCheck),
}

/// A multiplexed connection, shared by all callers.
pub(super) struct NodeLink {
    opened: DrivenConnection,
    role: RequiredRole,
    is_sharded: bool,
    /// The login with which the connection last authenticated.
    login: Mutex<Arc<Login>>,
    /// The time at which the connection is to be replaced.
    replace_at: Option<Instant>,
    metrics: Arc<StoreMetrics>,
}

/// A connection, and the task that writes its requests and reads the replies.
struct DrivenConnection {
    connection: MultiplexedConnection,
    driver: AbortHandle,
}

/// The reply to a login on a connection in use. A server that refuses it keeps the last login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthReply {
    Accepted,
    Refused,
    /// There was no reply in time.
    Late,
    /// The connection is lost.
    Lost,
}

impl Drop for NodeLink {
    fn drop(&mut self) {
        self.metrics.disconnects.inc();
    }
}

impl NodeLink {
    /// Returns the login with which the connection last authenticated.
    pub(super) fn login(&self) -> Arc<Login> {
        Arc::clone(&self.login.lock())
    }

    /// Returns the time at which the connection is to be replaced because of its age.
    pub(super) fn replace_at(&self) -> Option<Instant> {
        self.replace_at
    }

    /// Authenticates the connection with another login, between the calls on it.
    pub(super) async fn authenticate(&self, login: &Arc<Login>, within: Duration) -> AuthReply {
        let Some(command) = login.auth() else { return AuthReply::Refused };
        let mut handle = self.handle();
        let reply = timeout(within, handle.req_packed_command(&command)).await;
        match reply.map(|reply| reply.map(Value::extract_error)) {
            Ok(Ok(Ok(_))) => {
                *self.login.lock() = Arc::clone(login);
                AuthReply::Accepted
            }
            Ok(Ok(Err(_))) => AuthReply::Refused,
            Ok(Err(error)) if CallFailure::of(&error) == CallFailure::Lost => AuthReply::Lost,
            Ok(Err(_)) => AuthReply::Refused,
            Err(_) => AuthReply::Late,
        }
    }

    /// Returns a handle for sending.
    pub(in crate::redis) fn handle(&self) -> MultiplexedConnection {
        self.opened.connection.clone()
    }

    /// Returns `true` if the address is that of a proxy that shards keys across several servers.
    pub(in crate::redis) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    /// Closes the connection. All calls that wait for a reply on it fail immediately.
    pub(super) fn close(&self) {
        self.opened.driver.abort();
    }

    /// Refuses redirections, except those of a Cluster's nodes: they may lead to any host, which
    /// would get the password.
    pub(super) fn permitted(&self, failure: CallFailure) -> CallFailure {
        match self.role {
            RequiredRole::ClusterNode(_) => failure,
            RequiredRole::Master(_) | RequiredRole::Sentinel => failure.without_redirection(),
        }
    }

    /// Returns `true` if the server must be a master.
    pub(super) fn must_be_master(&self) -> bool {
        matches!(self.role, RequiredRole::Master(_))
    }

    /// Returns `true` if the server answers in time, and `None` if the connection is lost.
    pub(in crate::redis) async fn answers(&self, within: Duration) -> Option<bool> {
        let mut handle = self.handle();
        let ping = redis::cmd("PING");
        match timeout(within, handle.req_packed_command(&ping)).await {
            Ok(Ok(_)) => Some(true),
            Ok(Err(_)) => None,
            Err(_) => Some(false),
        }
    }

    /// Returns `true` if the server answers in time and has the required role.
    pub(super) async fn is_good(&self, within: Duration) -> bool {
        match &self.role {
            RequiredRole::Sentinel | RequiredRole::ClusterNode(_) => {
                self.answers(within).await == Some(true)
            }
            RequiredRole::Master(proof) => {
                matches!(timeout(within, proof.may_write(self.handle())).await, Ok(Ok(true)))
            }
        }
    }
}

impl std::fmt::Debug for NodeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// Opens connections to one node.
pub(super) struct Connector {
    pub(in crate::redis) address: ServerAddress,
    pub(in crate::redis) access: Arc<Access>,
    pub(in crate::redis) role: RequiredRole,
    pub(in crate::redis) logins: Arc<Logins>,
    pub(in crate::redis) metrics: Arc<StoreMetrics>,
}

impl Connector {
    /// Connects to the server that currently has the address, and checks its role.
    pub(in crate::redis) async fn connect(&self) -> Result<NodeLink, ConnectError> {
        let login = self.logins.current(timeout_of(&self.access)).await?;
        let connected = within_timeout(&self.access, self.connect_in_role(&login)).await;
        let (opened, is_sharded) = connected.map_err(|error| {
            let error = error.of_login(&login, &self.access);
            if error.refusal() == Some(AccessRefusal::Login) {
                self.logins.record_refusal(&login);
            }
            error
        })?;
        self.metrics.connects.inc();
        Ok(NodeLink {
            opened,
            role: self.role.clone(),
            is_sharded,
            login: Mutex::new(login),
            replace_at: self.access.max_age.and_then(|age| self.end_of(age)),
            metrics: Arc::clone(&self.metrics),
        })
    }

    /// Returns the time at which a connection that is made now is replaced: somewhat before its
    /// maximum age, so that those that were made together are not all replaced at once.
    fn end_of(&self, age: Duration) -> Option<Instant> {
        let part = self.access.environment.random().mul_add(1.0 - YOUNGEST, YOUNGEST);
        Instant::now().checked_add(age.mul_f64(part))
    }

    /// Loads scripts, within the timeout of a connection. One that is not loaded in time is sent
    /// with the first decision that needs it.
    pub(super) fn load_scripts(&self, link: &NodeLink) -> impl Future<Output = ()> + Send + use<> {
        let is_needed = !matches!(self.role, RequiredRole::Sentinel);
        let connection = link.handle();
        let timeout_after = timeout_of(&self.access);
        async move {
            if is_needed {
                let _ = timeout(timeout_after, load_scripts(connection)).await;
            }
        }
    }

    /// Connects, and returns whether keys are sharded across several servers.
    async fn connect_in_role(
        &self,
        login: &Login,
    ) -> Result<(DrivenConnection, bool), ConnectError> {
        let opened = open(&self.access, &self.address, login).await?;
        let (RequiredRole::Master(proof) | RequiredRole::ClusterNode(proof)) = &self.role else {
            return Ok((opened, false));
        };
        let GrantedRights { is_replica, is_sharded, forbidden } =
            proof.run(opened.connection.clone()).await?;
        if !forbidden.is_empty() {
            // Without them, the error still names what decisions need.
            let extras = proof.forbidden_extras(opened.connection).await.unwrap_or_default();
            return Err(ConnectError::Forbidden {
                user: login.user.clone(),
                commands: forbidden,
                extras,
            });
        }
        match self.role {
            RequiredRole::Master(_) if is_replica => Err(ConnectError::Replica),
            RequiredRole::Master(_) | RequiredRole::ClusterNode(_) | RequiredRole::Sentinel => {
                Ok((opened, is_sharded))
            }
        }
    }
}

/// Connects to one node with a login, within the connect timeout. Calls on the connection have no
/// timeout of their own.
pub(in crate::redis) async fn connect(
    access: &Access,
    address: &ServerAddress,
    login: &Login,
) -> Result<MultiplexedConnection, ConnectError> {
    let opened = within_timeout(access, open(access, address, login)).await?;
    Ok(opened.connection)
}

/// Returns the timeout for a connection.
pub(in crate::redis) fn timeout_of(access: &Access) -> Duration {
    access.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
}

async fn within_timeout<T>(
    access: &Access,
    connecting: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let timeout_after = timeout_of(access);
    timeout(timeout_after, connecting).await.map_err(|_| ConnectError::Late(timeout_after))?
}

async fn open(
    access: &Access,
    address: &ServerAddress,
    login: &Login,
) -> Result<DrivenConnection, ConnectError> {
    let login = login.handshake(access.database);
    if let Environment::Simulated(simulation) = &access.environment {
        return greet(&login, simulation.open(address).await?).await;
    }
    match address {
        ServerAddress::Unix(path) => greet(&login, UnixStream::connect(path).await?).await,
        ServerAddress::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            if !access.tls {
                return greet(&login, stream).await;
            }
            greet(&login, tls::handshake(access, host, stream).await?).await
        }
    }
}

async fn greet(
    login: &RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<DrivenConnection, ConnectError> {
    let stream = BoundedReplies::of(stream);
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(login, stream, config).await?;
    let driver = tokio::spawn(driver).abort_handle();
    Ok(DrivenConnection { connection, driver })
}
