//! The life of one connection: opened, served, told to go, closed.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{sleep, timeout};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tracing::debug;

use super::socket::{Accepted, Prefaced};
use super::tls::{self, Tls};
use crate::telemetry::metrics::Metrics;

/// Time for a client's first words.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the same where the server drains: a request may have come along with the connection, a moment ago.
const LAST_MOMENT: Duration = Duration::from_millis(100);
/// Time to acknowledge that (HTTP/2 pings along with GOAWAY). Who does not is gone, or as good as gone.
const LAST_SIGN: Duration = Duration::from_secs(3);
/// How far a connection's age may be from the one that is set, so that those which came together do not go together.
const AGE_JITTER: f64 = 0.1;

/// How connections are kept and how large a message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Bytes of a request message.
    pub max_message_bytes: usize,
    /// Time without a sign of life after which a connection is asked for one.
    pub keepalive_interval: Duration,
    /// Time to answer, before the connection is closed.
    pub keepalive_timeout: Duration,
    /// Requests that one connection may have under way.
    pub max_streams: u32,
    /// Age at which a connection is told to go (GOAWAY), a tenth more or less; `None`: never.
    pub max_age: Option<Duration>,
    /// Time for what is under way then; `None`: as long as it takes.
    pub max_age_grace: Option<Duration>,
}

/// How the connections of one worker are kept.
pub(super) struct Keeper {
    http: http2::Builder<TokioExecutor>,
    tls: Option<Tls>,
    metrics: Arc<Metrics>,
    connections: Connections,
    drain: CancellationToken,
}

impl Keeper {
    /// Connections are told to go when `drain` is cancelled.
    pub(super) fn new(
        connections: Connections,
        tls: Option<Tls>,
        metrics: Arc<Metrics>,
        drain: CancellationToken,
    ) -> Self {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(connections.keepalive_interval)
            .keep_alive_timeout(connections.keepalive_timeout)
            .max_concurrent_streams(connections.max_streams)
            // No client of gRPC reads it.
            .auto_date_header(false);
        Self { http, tls, metrics, connections, drain }
    }

    /// Keeps a connection until its end.
    pub(super) async fn keep<S>(&self, accepted: Accepted, service: S)
    where
        S: Service<
                Request<Incoming>,
                Response = Response<Body>,
                Error = Infallible,
                Future = BoxFuture<Response<Body>, Infallible>,
            >,
    {
        let opened = tokio::select! {
            opened = self.open(accepted) => opened,
            () = self.last_moment() => return,
        };
        let stream = match opened {
            Ok(stream) => stream,
            Err(error) => return debug!(%error, "a connection came to nothing"),
        };
        let heard = stream.heard();
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let grace = tokio::select! {
            biased;
            ended = connection.as_mut() => return log_end(ended),
            grace = self.time_to_go() => grace,
        };
        heard.store(false, Ordering::Relaxed);
        connection.as_mut().graceful_shutdown();
        match timeout(grace.min(LAST_SIGN), connection.as_mut()).await {
            Ok(ended) => return log_end(ended),
            Err(_) if !heard.load(Ordering::Relaxed) => return debug!("a client is gone that was told to go"),
            Err(_) => {}
        }
        match timeout(grace.saturating_sub(LAST_SIGN), connection).await {
            Ok(ended) => log_end(ended),
            Err(_) => debug!("a connection was cut off at the end of its grace"),
        }
    }

    /// Both ends know of each other, and speak HTTP/2.
    async fn open(&self, accepted: Accepted) -> io::Result<Prefaced> {
        let socket = accepted.register()?;
        let stream = match &self.tls {
            Some(tls) => Either::Right(tls.accept(socket).await.inspect_err(|error| {
                self.metrics.tls_handshake_failed(tls::kind(error));
            })?),
            None => Either::Left(socket),
        };
        timeout(PREFACE_TIMEOUT, Prefaced::read(stream)).await?
    }

    async fn last_moment(&self) {
        self.drain.cancelled().await;
        sleep(LAST_MOMENT).await;
    }

    /// Waits for the drain, whose own end cuts off what is left, or for the connection to be old. Says how long to wait then.
    async fn time_to_go(&self) -> Duration {
        let age =
            self.connections.max_age.map(|age| age.mul_f64(rand::random_range(1.0 - AGE_JITTER..=1.0 + AGE_JITTER)));
        let old = async {
            match age {
                Some(age) => sleep(age).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.drain.cancelled() => Duration::MAX,
            () = old => self.connections.max_age_grace.unwrap_or(Duration::MAX),
        }
    }
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        debug!(%error, "a connection ended with an error");
    }
}
