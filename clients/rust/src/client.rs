//! The client, and its calls of `ShouldRateLimit`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tonic::Status;

use crate::call::{CallOptions, option_methods, repeated, unary};
use crate::connection::{Replicas, TargetError};
use crate::decision::{Decision, Error};
use crate::descriptor::{Descriptor, messages};
use crate::generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::hold::Reserve;
use crate::lease::{LeaseStats, Leases};
use crate::throttle::Throttle;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A client of all replicas behind a name.
///
/// Create one and clone it: all clones share one connection to each replica. Calls need a runtime
/// of tokio.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    pub(crate) options: CallOptions,
}

#[derive(Debug)]
struct Shared {
    connection: Replicas,
    /// Bounds the repeats of all calls of holds.
    throttle: Throttle,
    leases: Option<Leases>,
    /// Number of calls in the background.
    background: watch::Sender<usize>,
}

/// Creates a [`Client`], with options that are the defaults of its calls.
#[derive(Debug)]
#[must_use = "it creates nothing until `build`"]
pub struct ClientBuilder {
    target: String,
    leases: bool,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::rustls::ClientConfig>,
    options: CallOptions,
}

impl ClientBuilder {
    option_methods! {}

    /// Makes `ShouldRateLimit` admit requests in memory, from blocks of hits that the service has
    /// charged before it lent them.
    ///
    /// They are borrowed in the background for descriptors with at least 8 requests in the TTL of a
    /// lease, if their rule has a lease with the holder `client`. All other requests, and all
    /// denials, are decided by the service. A decision in memory has no headers. Hits that are lent
    /// when a process is killed count until they expire: see [`Client::close`].
    pub fn leases(mut self) -> Self {
        self.leases = true;
        self
    }

    /// Sets TLS; the default is plaintext.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: tokio_rustls::rustls::ClientConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Creates the client, which connects at its first call.
    ///
    /// # Errors
    /// The target is not valid.
    pub fn build(self) -> Result<Client, TargetError> {
        #[cfg(feature = "tls")]
        let connection = match self.tls {
            Some(config) => Replicas::with_tls(&self.target, config)?,
            None => Replicas::new(&self.target)?,
        };
        #[cfg(not(feature = "tls"))]
        let connection = Replicas::new(&self.target)?;
        let leases = self.leases.then(|| Leases::new(connection.clone()));
        let throttle = Throttle::default();
        let shared = Shared { connection, throttle, leases, background: watch::Sender::new(0) };
        Ok(Client { shared: Arc::new(shared), options: self.options })
    }
}

impl Client {
    /// Returns a builder of a client.
    ///
    /// The target is `HOST:PORT` or `dns:///HOST:PORT`. Calls go to all addresses of the name in
    /// turn, and around those that are down.
    pub fn builder(target: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            target: target.into(),
            leases: false,
            #[cfg(feature = "tls")]
            tls: None,
            options: CallOptions::default(),
        }
    }

    /// Requests the decision for a request, which takes one hit unless [`hits`] sets another
    /// number. It is never repeated after it may have been charged.
    ///
    /// [`hits`]: ShouldRateLimit::hits
    pub fn should_rate_limit<'a>(
        &'a self,
        domain: &'a str,
        descriptors: &'a [Descriptor],
    ) -> ShouldRateLimit<'a> {
        ShouldRateLimit { client: self, domain, descriptors, hits: 1, options: self.options }
    }

    /// Reserves an estimate until the work is done.
    pub fn reserve<'a>(
        &'a self,
        domain: &'a str,
        descriptors: &'a [Descriptor],
        hits: u32,
    ) -> Reserve<'a> {
        Reserve::new(self, domain, descriptors, hits)
    }

    /// Returns the counts of [`ClientBuilder::leases`].
    pub fn lease_stats(&self) -> LeaseStats {
        self.shared.leases.as_ref().map(Leases::stats).unwrap_or_default()
    }

    /// Waits for the cancels of holds in the background, and returns all hits that are lent.
    ///
    /// Call it before the process ends. Later requests are decided by the service.
    pub async fn close(&self) {
        // The sender of the channel is a field.
        let _ = self.shared.background.subscribe().wait_for(|count| *count == 0).await;
        if let Some(leases) = &self.shared.leases {
            leases.close().await;
        }
    }

    /// Makes a call of `HoldService`.
    pub(crate) async fn call_hold<Q: prost::Message + Clone + 'static>(
        &self,
        path: &'static str,
        message: Q,
        options: CallOptions,
    ) -> Result<Decision, Error> {
        let Shared { connection, throttle, .. } = &*self.shared;
        let response = repeated(connection, throttle, path, message, options.timeout).await;
        decision(response, options)
    }

    /// Runs a call in the background, for which [`close`](Self::close) waits.
    pub(crate) fn spawn(&self, runtime: &Handle, call: impl Future<Output = ()> + Send + 'static) {
        let count = BackgroundCount::new(Arc::clone(&self.shared));
        runtime.spawn(async move {
            call.await;
            drop(count);
        });
    }
}

/// Counts a call in the background until it is dropped, also with a runtime that ends.
struct BackgroundCount(Arc<Shared>);

impl BackgroundCount {
    fn new(shared: Arc<Shared>) -> Self {
        shared.background.send_modify(|count| *count += 1);
        Self(shared)
    }
}

impl Drop for BackgroundCount {
    fn drop(&mut self) {
        self.0.background.send_modify(|count| *count -= 1);
    }
}

fn decision(
    response: Result<RateLimitResponse, Status>,
    options: CallOptions,
) -> Result<Decision, Error> {
    match response {
        Ok(response) => Decision::of_response(response, options.failure_mode, options.shadow),
        Err(status) => Decision::of_failure(status, options.failure_mode, options.shadow),
    }
}

/// A request for a decision, which is sent when it is awaited.
#[derive(Clone, Debug)]
#[must_use = "it is sent when it is awaited"]
pub struct ShouldRateLimit<'a> {
    client: &'a Client,
    domain: &'a str,
    descriptors: &'a [Descriptor],
    hits: u32,
    options: CallOptions,
}

impl ShouldRateLimit<'_> {
    option_methods! {}

    /// Sets the number of hits that the request takes. With 0, it peeks without taking any.
    pub fn hits(mut self, hits: u32) -> Self {
        self.hits = hits;
        self
    }

    pub(crate) fn options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }

    fn message(&self) -> RateLimitRequest {
        let mut descriptors = messages(self.descriptors);
        if self.hits == 0 {
            // The protocol reads 0 as 1, except at a descriptor.
            descriptors.iter_mut().for_each(|descriptor| descriptor.hits_addend = Some(0));
        }
        RateLimitRequest { domain: self.domain.to_owned(), descriptors, hits_addend: self.hits }
    }

    async fn send(self) -> Result<Decision, Error> {
        let connection = &self.client.shared.connection;
        let response = unary(connection, SHOULD_RATE_LIMIT, self.message(), self.options.timeout);
        decision(response.await, self.options)
    }
}

impl<'a> IntoFuture for ShouldRateLimit<'a> {
    type Output = Result<Decision, Error>;
    type IntoFuture = DecisionFuture<'a>;

    fn into_future(self) -> DecisionFuture<'a> {
        let leases = self.client.shared.leases.as_ref();
        match leases.and_then(|leases| leases.decide(self.domain, self.descriptors, self.hits)) {
            Some(decision) => DecisionFuture(Progress::Decided(Some(decision))),
            None => DecisionFuture(Progress::Called(Box::pin(self.send()))),
        }
    }
}

/// The future of [`ShouldRateLimit`]. A decision in memory is ready at once, and needs no
/// allocation of a future.
#[must_use = "futures do nothing unless they are awaited"]
pub struct DecisionFuture<'a>(Progress<'a>);

enum Progress<'a> {
    /// `None` after it was returned.
    Decided(Option<Decision>),
    Called(Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send + 'a>>),
}

impl Future for DecisionFuture<'_> {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Decided(decision) => {
                decision.take().map_or(Poll::Pending, |decision| Poll::Ready(Ok(decision)))
            }
            Progress::Called(call) => call.as_mut().poll(context),
        }
    }
}
