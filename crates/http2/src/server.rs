//! Opens, runs, shuts down and closes the connections of a worker.

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::account::{CallAccount, ConnectionAccount};
use super::budget::Budget;
use super::connection::{Connection, ConnectionEnd, Limits};
use super::io::{Driver, DriverResult};
use super::now;
use super::observer::{CloseReason, ConnectionObserver};
use super::registry::Registration;
use super::service::Service;
use super::socket::{Accepted, Carrier, SocketStream};
use super::tls::{self, ServerTls};

/// Timeout of a handshake in progress when the server shuts down: a request may follow at once.
const LAST_HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(100);
/// Grace period of an evicted connection. Usually it has no calls under way.
const EVICTION_GRACE: Duration = Duration::from_secs(1);
/// Maximum relative deviation from the configured age, so that connections opened together do not
/// end together.
const AGE_JITTER: f64 = 0.1;

/// Limits of connections, and of their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Limits of each connection.
    pub limits: Limits,
    /// Age at which a connection is sent GOAWAY, a tenth more or less; `None` is never.
    pub max_age: Option<Duration>,
    /// Grace period after that; `None` is no limit.
    pub max_age_grace: Option<Duration>,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// Its verified certificate; `None` without TLS, or if none is requested.
    pub certificate: Option<CertificateDer<'static>>,
}

/// A server of a worker's connections.
pub struct TransportServer {
    /// Limits and maximum age of connections.
    pub lifetime: Lifetime,
    /// TLS configuration; `None` if connections are not encrypted.
    pub tls: Option<ServerTls>,
    /// Memory that the connections of all workers share.
    pub budget: Arc<Budget>,
    /// Receives the events of connections.
    pub observer: Arc<dyn ConnectionObserver>,
    /// Cancelled when the server shuts down: each connection is sent GOAWAY, and finishes its
    /// calls.
    pub drain: CancellationToken,
}

impl TransportServer {
    /// Serves the connections from `incoming` until it ends and all of them have ended. `service`
    /// creates the service of a connection, whose calls charge the account.
    pub async fn serve<S: Service>(
        self,
        mut incoming: mpsc::Receiver<Accepted>,
        service: impl Fn(&Client, CallAccount) -> S + Send + Sync + 'static,
    ) {
        let server = Arc::new(self);
        let service = Arc::new(service);
        let tasks = TaskTracker::new();
        while let Some(accepted) = incoming.recv().await {
            let server = Arc::clone(&server);
            let service = Arc::clone(&service);
            tasks.spawn(async move { server.serve_connection(accepted, &*service).await });
            // The sockets are polled before the next one is taken: a crowd of new connections must
            // not delay the calls of others.
            tokio::task::yield_now().await;
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn serve_connection<S: Service>(
        &self,
        accepted: Accepted,
        service: impl Fn(&Client, CallAccount) -> S,
    ) {
        let Accepted { carrier, registration } = accepted;
        let opened = tokio::select! {
            opened = self.open(carrier) => opened,
            () = registration.evicted() => return,
            () = self.last_handshake() => return,
        };
        let (stream, client) = match opened {
            Ok(opened) => opened,
            Err(error) => return debug!(%error, "handshake failed"),
        };
        let account = ConnectionAccount::new(Arc::clone(&self.budget));
        let service = service(&client, account.calls().clone());
        let connection = Connection::new(service, self.lifetime.limits, account, now());
        let mut driver = Driver::new(connection, registration.usage(), stream);
        let ended = match self.run(&mut driver, &registration).await {
            Ok(None) => tokio::select! {
                ended = self.leave(&mut driver, &registration) => ended,
                () = registration.cut() => return,
            },
            Ok(Some(end)) => Ok(end),
            Err(error) => Err(error),
        };
        match ended {
            Ok(end) => {
                self.report(end, &client);
                tokio::select! {
                    _ = driver.close() => {}
                    () = registration.cut() => {}
                }
            }
            Err(error) => debug!(%error, "connection failed"),
        }
    }

    /// Registers a socket with this runtime, and performs the TLS handshake if TLS is on.
    async fn open(&self, carrier: Carrier) -> io::Result<(SocketStream, Client)> {
        let address = carrier.peer()?;
        let socket = carrier.register()?;
        let Some(tls) = &self.tls else {
            return Ok((Either::Left(socket), Client { address, certificate: None }));
        };
        let stream = tls
            .accept(socket)
            .await
            .inspect_err(|error| self.observer.handshake_failed(tls::kind(error)))?;
        let certificate =
            tls::client_certificate(&stream).map(|certificate| certificate.clone().into_owned());
        Ok((Either::Right(stream), Client { address, certificate }))
    }

    async fn last_handshake(&self) {
        self.drain.cancelled().await;
        sleep(LAST_HANDSHAKE_TIMEOUT).await;
    }

    /// Runs a connection until it ends or is evicted (`None`). Its age counts from the end of the
    /// handshake: a client that is slow to begin must not find the connection closed.
    async fn run<S: Service>(
        &self,
        driver: &mut Driver<S, SocketStream>,
        registration: &Registration,
    ) -> io::Result<Option<ConnectionEnd>> {
        let too_late = async {
            tokio::select! {
                () = self.last_handshake() => {}
                () = registration.evicted() => {}
            }
        };
        if let Some(end) = driver.handshake(pin!(too_late)).await? {
            return Ok(Some(end));
        }
        match driver.run(pin!(self.time_to_go(registration))).await? {
            DriverResult::Ended(end) => Ok(Some(end)),
            DriverResult::Interrupted(grace) => {
                driver.shut_down(grace);
                Ok(None)
            }
        }
    }

    /// Runs an evicted connection until it ends.
    async fn leave<S: Service>(
        &self,
        driver: &mut Driver<S, SocketStream>,
        registration: &Registration,
    ) -> io::Result<ConnectionEnd> {
        match driver.run(pin!(registration.evicted())).await? {
            DriverResult::Ended(end) => return Ok(end),
            DriverResult::Interrupted(()) => driver.shut_down(Some(EVICTION_GRACE)),
        }
        match driver.run(pin!(std::future::pending::<std::convert::Infallible>())).await? {
            DriverResult::Ended(end) => Ok(end),
            DriverResult::Interrupted(never) => match never {},
        }
    }

    /// Waits until the server shuts down, the connection reaches its maximum age, or it is evicted.
    /// Returns the grace period; a shutdown has none, since its own end cuts off what is left.
    async fn time_to_go(&self, registration: &Registration) -> Option<Duration> {
        let jitter = rand::random_range(1.0 - AGE_JITTER..=1.0 + AGE_JITTER);
        let age = self.lifetime.max_age.map(|age| age.mul_f64(jitter));
        let old = async {
            match age {
                Some(age) => sleep(age).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.drain.cancelled() => None,
            () = old => self.lifetime.max_age_grace,
            () = registration.evicted() => Some(EVICTION_GRACE),
        }
    }

    /// Reports the end of a connection.
    fn report(&self, end: ConnectionEnd, client: &Client) {
        let cut = match end {
            ConnectionEnd::Finished => return,
            ConnectionEnd::Error(reason) => {
                debug!(?reason, ?client.address, "protocol error");
                CloseReason::Protocol
            }
            ConnectionEnd::HandshakeTimeout => {
                return debug!(?client.address, "HTTP/2 handshake timed out");
            }
            ConnectionEnd::GraceExceeded => {
                return debug!(?client.address, "calls in progress at the end of the grace period");
            }
            ConnectionEnd::ResetFlood => CloseReason::GivenUp,
            ConnectionEnd::Flood => CloseReason::Flood,
            ConnectionEnd::Unread => CloseReason::Unread,
            ConnectionEnd::Silent => CloseReason::Silent,
        };
        self.observer.closed(cut, client.address);
    }
}
