//! The connections of a worker: opened, run, told to go, closed.

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
use tracing::{debug, warn};

use super::budget::Budget;
use super::connection::{Connection, End, Limits};
use super::io::{Driver, Ran, now};
use super::service::Service;
use super::socket::{Accepted, Carrier, Stream};
use super::tls::{self, Tls};
use crate::telemetry::guard::Cut;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::seldom::Seldom;

/// Time for a handshake that has begun when the server shuts down: a request may follow at once.
const LAST_HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(100);
/// Largest deviation of a connection's age from the one that is set, so that those which came together do not go together.
const AGE_JITTER: f64 = 0.1;

/// Bounds of connections, and of their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Bounds of each.
    pub limits: Limits,
    /// Age at which a connection is told to go (GOAWAY), a tenth more or less; `None`: never.
    pub max_age: Option<Duration>,
    /// Time for what is under way then; `None`: as long as it takes.
    pub max_age_grace: Option<Duration>,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    /// `None` at a Unix socket.
    pub address: Option<SocketAddr>,
    /// Its certificate, verified; `None` without TLS, or where none is asked for.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Serves the connections of a worker.
pub struct Server {
    /// Bounds of connections.
    pub lifetime: Lifetime,
    /// `None`: connections are not encrypted.
    pub tls: Option<Tls>,
    /// Memory that the connections of all workers share.
    pub budget: Arc<Budget>,
    /// Counts connections that are cut.
    pub metrics: Arc<Metrics>,
    /// Cancelled when the server shuts down: each connection is told to go, and finishes what is under way.
    pub drain: CancellationToken,
    /// Bounds the log of connections that are cut.
    pub warned: Seldom,
}

impl Server {
    /// Serves the connections that `incoming` brings until it ends and they have. `service`: makes the service of a connection.
    pub async fn serve<S: Service>(
        self,
        mut incoming: mpsc::Receiver<Accepted>,
        service: impl Fn(&Client) -> S + Send + Sync + 'static,
    ) {
        let (server, service) = (Arc::new(self), Arc::new(service));
        let tasks = TaskTracker::new();
        while let Some(accepted) = incoming.recv().await {
            let (server, service) = (Arc::clone(&server), Arc::clone(&service));
            tasks.spawn(async move { server.serve_connection(accepted, &*service).await });
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn serve_connection<S: Service>(&self, accepted: Accepted, service: impl Fn(&Client) -> S) {
        let Accepted { carrier, permit: _permit } = accepted;
        let opened = tokio::select! {
            opened = self.open(carrier) => opened,
            () = self.last_handshake() => return,
        };
        let (stream, client) = match opened {
            Ok(opened) => opened,
            Err(error) => return debug!(%error, "handshake failed"),
        };
        let connection = Connection::new(service(&client), self.lifetime.limits, &self.budget, now());
        let mut driver = Driver::new(connection, stream);
        match self.run(&mut driver).await {
            Ok(end) => {
                self.report(end, &client);
                let _ = driver.close().await;
            }
            Err(error) => debug!(%error, "connection failed"),
        }
    }

    /// Registers a socket with this runtime, and shakes hands where TLS is spoken.
    async fn open(&self, carrier: Carrier) -> io::Result<(Stream, Client)> {
        let address = carrier.peer();
        let socket = carrier.register()?;
        let Some(tls) = &self.tls else {
            return Ok((Either::Left(socket), Client { address, certificate: None }));
        };
        let failed = |error: &io::Error| self.metrics.tls_handshake_failed(tls::kind(error));
        let stream = tls.accept(socket).await.inspect_err(failed)?;
        let certificate = tls::client_certificate(&stream).map(|certificate| certificate.clone().into_owned());
        Ok((Either::Right(stream), Client { address, certificate }))
    }

    async fn last_handshake(&self) {
        self.drain.cancelled().await;
        sleep(LAST_HANDSHAKE_TIMEOUT).await;
    }

    /// Runs a connection: until it is to go, and then until what is under way is finished. Its age counts from when the client
    /// has spoken: one that is slow to begin must not find it closed.
    async fn run<S: Service>(&self, driver: &mut Driver<S, Stream>) -> io::Result<End> {
        if let Some(end) = driver.handshake(pin!(self.last_handshake())).await? {
            return Ok(end);
        }
        let grace = match driver.run(pin!(self.time_to_go())).await? {
            Ran::Ended(end) => return Ok(end),
            Ran::Interrupted(grace) => grace,
        };
        driver.shut_down(grace);
        match driver.run(pin!(std::future::pending::<std::convert::Infallible>())).await? {
            Ran::Ended(end) => Ok(end),
            Ran::Interrupted(never) => match never {},
        }
    }

    /// Waits for the shutdown, whose own end cuts off what is left, or for the connection to be old. Returns the time for what
    /// is under way then.
    async fn time_to_go(&self) -> Option<Duration> {
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
        }
    }

    /// Counts and logs how a connection ended.
    fn report(&self, end: End, client: &Client) {
        let cut = match end {
            End::Finished => return,
            // Not a warning: scanners and health checks by HTTP/1 end so, too.
            End::Error(reason) => {
                self.metrics.guard.cut(Cut::Protocol);
                return debug!(?reason, ?client.address, "client broke the protocol");
            }
            End::HandshakeTimeout => return debug!(?client.address, "client did not speak HTTP/2 in time"),
            End::GraceExceeded => return debug!(?client.address, "calls were under way at the end of the grace period"),
            End::ResetFlood => Cut::GivenUp,
            End::Flood => Cut::Flood,
            End::Unread => Cut::Unread,
            End::Silent => Cut::Silent,
        };
        self.metrics.guard.cut(cut);
        let kind = cut.name();
        if let Some(times) = self.warned.times() {
            warn!(kind, ?client.address, times, "connection closed for its client's behaviour");
        } else {
            debug!(kind, ?client.address, "connection closed for its client's behaviour");
        }
    }
}
