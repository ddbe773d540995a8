//! The life of one connection: opened, served, told to go, closed.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};
use h2::{Ping, PingPong, Reason};
use tokio::time::{sleep, timeout};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::caller::Caller;
use super::rights::Rights;
use super::server::Services;
use super::socket::{Accepted, Audible, Carrier, Heard};
use super::tls::{self, Tls};
use crate::store::Store;
use crate::telemetry::guard::Cut;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::seldom::Seldom;

/// Time for a client's first words.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the same where the server drains: a request may have come along with the connection, a moment ago.
const LAST_MOMENT: Duration = Duration::from_millis(100);
/// Time to acknowledge that (HTTP/2 pings along with GOAWAY). Who does not is gone, or as good as gone.
const LAST_SIGN: Duration = Duration::from_secs(3);
/// Bytes that a client may send ahead, on one stream and on all: far more than any request.
const WINDOW: u32 = 1 << 20;
/// Bytes of a request's headers.
const MAX_HEADERS: u32 = 16 << 10;
/// Bytes of answers that wait for the client to read.
const MAX_UNSENT: usize = 400 << 10;
/// Streams that a client opened and reset before they were looked at, which happens to real ones when this process was stalled
/// for a moment; h2's own bound of 20 would then part it from its clients. They take up to their headers each.
const MAX_RESET_UNSEEN: usize = 512;
/// Streams that are over here, of which frames may still come; and for how long.
const MAX_RESET_HERE: usize = 64;
const RESET_HERE_FOR: Duration = Duration::from_secs(1);
/// Errors of its streams that a client may make in its connection's life, streams beyond the bound included.
const MAX_STREAM_ERRORS: usize = 1024;
/// How far a connection's age may be from the one that is set, so that those which came together do not go together.
const AGE_JITTER: f64 = 0.1;

/// How connections are kept and how large a message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Bytes of a request message.
    pub max_message_bytes: usize,
    /// Time for a request message to come.
    pub message_timeout: Duration,
    /// Connections that all workers may have together.
    pub max_connections: usize,
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
    http: Builder,
    tls: Option<Tls>,
    metrics: Arc<Metrics>,
    connections: Connections,
    drain: CancellationToken,
    told: Seldom,
}

/// A connection that speaks HTTP/2.
type Http = Connection<Audible, Bytes>;

impl Keeper {
    /// Connections are told to go when `drain` is cancelled.
    pub(super) fn new(
        connections: Connections,
        tls: Option<Tls>,
        metrics: Arc<Metrics>,
        drain: CancellationToken,
    ) -> Self {
        let mut http = Builder::new();
        http.initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .max_send_buffer_size(MAX_UNSENT)
            .max_concurrent_streams(connections.max_streams)
            .max_pending_accept_reset_streams(MAX_RESET_UNSEEN)
            .max_concurrent_reset_streams(MAX_RESET_HERE)
            .reset_stream_duration(RESET_HERE_FOR)
            .max_local_error_reset_streams(Some(MAX_STREAM_ERRORS));
        Self { http, tls, metrics, connections, drain, told: Seldom::default() }
    }

    /// Keeps a connection until its end.
    pub(super) async fn keep<S: Store>(&self, accepted: Accepted, services: &Services<S>) {
        let Accepted { carrier, place: _place } = accepted;
        let address = carrier.peer();
        let opened = tokio::select! {
            opened = self.open(carrier) => opened,
            () = self.last_moment() => return,
        };
        let (mut http, heard, rights) = match opened {
            Ok(opened) => opened,
            Err(error) => return debug!(%error, "a connection came to nothing"),
        };
        let calls = services.of(Caller::new(address, rights));
        let mut gone = pin!(self.gone(http.ping_pong(), &heard));
        let grace = tokio::select! {
            biased;
            ended = calls.serve(&mut http) => return self.note_end(ended, calls.caller()),
            grace = self.time_to_go() => grace,
            cut = gone.as_mut() => return self.cut(cut, calls.caller()),
        };
        let before = heard.times();
        http.graceful_shutdown();
        let mut ends = pin!(async {
            tokio::select! {
                biased;
                ended = calls.serve(&mut http) => self.note_end(ended, calls.caller()),
                cut = gone => self.cut(cut, calls.caller()),
            }
        });
        match timeout(grace.min(LAST_SIGN), ends.as_mut()).await {
            Ok(()) => return,
            Err(_) if heard.times() == before => return debug!("a client is gone that was told to go"),
            Err(_) => {}
        }
        if timeout(grace.saturating_sub(LAST_SIGN), ends).await.is_err() {
            debug!("a connection was cut off at the end of its grace");
        }
    }

    /// Both ends know of each other and speak HTTP/2, and this one what the other may ask for.
    async fn open(&self, carrier: Carrier) -> io::Result<(Http, Arc<Heard>, Rights)> {
        let socket = carrier.register()?;
        let (stream, rights) = match &self.tls {
            Some(tls) => {
                let failed = |error: &io::Error| self.metrics.tls_handshake_failed(tls::kind(error));
                let stream = tls.accept(socket).await.inspect_err(failed)?;
                let rights = tls.rights(&stream);
                (Either::Right(stream), rights)
            }
            None => (Either::Left(socket), Rights::All),
        };
        let stream = Audible::new(stream);
        let heard = stream.heard();
        let http = timeout(PREFACE_TIMEOUT, self.http.handshake(stream)).await?.map_err(io::Error::other)?;
        Ok((http, heard, rights))
    }

    async fn last_moment(&self) {
        self.drain.cancelled().await;
        sleep(LAST_MOMENT).await;
    }

    /// Waits until a client is as good as gone: silent for an interval, and then without an answer to a ping; or talking on, and
    /// for two intervals without reading what waits for it.
    async fn gone(&self, pings: Option<PingPong>, heard: &Heard) -> Cut {
        let Some(mut pings) = pings else { return std::future::pending().await };
        loop {
            let (before, waits) = (heard.times(), heard.waits());
            sleep(self.connections.keepalive_interval).await;
            if heard.times() != before {
                if waits.is_some() && heard.waits() == waits {
                    return Cut::Unread;
                }
                continue;
            }
            let answered = timeout(self.connections.keepalive_timeout, pings.ping(Ping::opaque())).await;
            if answered.is_err() {
                return Cut::Silent;
            }
        }
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

    /// Tells how a connection ended by itself, or by what its client did.
    fn note_end(&self, ended: Result<(), h2::Error>, caller: &Caller) {
        match ended {
            _ if caller.wastes_calls() => self.cut(Cut::GivenUp, caller),
            Err(error) if is_flood(&error) => self.cut(Cut::Flood, caller),
            Err(error) => debug!(%error, "a connection ended with an error"),
            Ok(()) => {}
        }
    }

    fn cut(&self, cut: Cut, caller: &Caller) {
        self.metrics.guard.cut(cut);
        let (kind, client) = (cut.name(), caller.address);
        if let Some(times) = self.told.times() {
            warn!(kind, ?client, times, "a connection was closed for what its client did");
        } else {
            debug!(kind, ?client, "a connection was closed for what its client did");
        }
    }
}

/// Whether h2 had enough of a client: resets, continuations, empty frames, errors.
fn is_flood(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
}
