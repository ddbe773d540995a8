//! Client of an Envoy xDS control plane that subscribes to `RateLimitConfig`s, as
//! envoyproxy/ratelimit does.
//!
//! Knows both variants of the protocol, the lifecycle of a connection, and the text of a resource
//! as YAML. Returns [`Source`]s, which are compiled like files, so that errors in them have a
//! position and an excerpt. Does not know rules.
//!
//! | file | contents |
//! |---|---|
//! | `connection` | target, TLS and timeouts of a connection |
//! | `sotw`, `delta` | the two variants: each response is the whole configuration, or a change |
//! | `resource` | resources of a response, and their bounds |
//! | `yaml` | a `RateLimitConfig` as the text of a policy |
//! | `fuzz` | a fuzz target, compiled for fuzzing and tests only |
//!
//! After any failure the policies in force stay, and the client retries. It runs until it is
//! dropped.

#![warn(clippy::arithmetic_side_effects)]

mod connection;
mod delta;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod resource;
mod sotw;
mod yaml;

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use rand::Rng as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tracing::{info, warn};

pub use self::connection::{XdsTarget, XdsTargetError};
use self::delta::Delta;
pub use self::resource::ResourceError;
use self::sotw::StateOfTheWorld;
use crate::backoff::Backoff;
use crate::grpc::client::{AnyError, ClientTls, Header, cause};
use crate::grpc::proto::envoy::config::core::v3::{Node, node::UserAgentVersionType};
use crate::grpc::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::grpc::proto::google::rpc;
use crate::policy::Source;
use crate::telemetry::metrics::XdsMetrics;

/// Requests that are queued while the server does not read.
const OUTGOING: usize = 4;
/// Maximum bytes of an error that are sent to a control plane.
const MAX_REASON: usize = 2_000;

/// A control plane, and the identity of this client.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlPlane {
    /// Address of the control plane.
    pub target: XdsTarget,
    /// Set to subscribe to changes only; otherwise each response is the whole configuration.
    pub is_delta: bool,
    /// Node ID of this process, by which many control planes select the configuration.
    pub node_id: String,
    /// Node metadata.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of each call.
    pub headers: Vec<Header>,
    /// TLS options; `None` for plaintext.
    pub tls: Option<ClientTls>,
    /// Maximum bytes of one response.
    pub max_message_bytes: usize,
    /// Idle time before a keepalive ping is sent.
    pub keepalive: Duration,
    /// Minimum wait before a retry.
    pub backoff_min: Duration,
    /// Maximum wait before a retry.
    pub backoff_max: Duration,
}

/// The policies of a response, or the reason why it cannot be parsed.
pub type Update = Result<Vec<Source>, ResourceError>;

/// The reason why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamFailure {
    #[error("cannot connect: {}", cause(&**.0))]
    Connect(AnyError),
    #[error("connection timed out after {0:?}")]
    Late(Duration),
    #[error("{:?}: {}{}", .0.code(), .0.message(), cause_of(.0))]
    Stream(#[from] Box<Status>),
    #[error("stream closed by the control plane")]
    Ended,
    #[error("{0}")]
    Resources(#[from] ResourceError),
}

impl From<Status> for StreamFailure {
    fn from(status: Status) -> Self {
        Self::Stream(Box::new(status))
    }
}

/// Returns the root cause of a status that the transport made, such as an error of the peer, unless
/// the message contains it.
fn cause_of(status: &Status) -> String {
    let cause = std::error::Error::source(status).map(cause);
    let cause = cause.filter(|cause| !status.message().contains(cause));
    cause.map_or(String::new(), |cause| format!(": {cause}"))
}

/// One variant of the protocol, with the state that is kept from one stream to the next.
trait XdsProtocol {
    type Request: Send + 'static;
    type Response: Send + 'static;

    /// Returns the first request of a stream.
    fn open(&mut self) -> Self::Request;

    /// Applies a response, if possible, and returns the ACK or NACK; `None` if it is of another
    /// type.
    fn take<E: Display>(
        &mut self,
        response: Self::Response,
        apply: &mut impl FnMut(Update) -> Result<(), E>,
    ) -> Result<Option<Acknowledgement<Self::Request>>, StreamFailure>;

    /// Opens the stream of the call.
    fn call(
        client: AggregatedDiscoveryServiceClient<Channel>,
        requests: Request<ReceiverStream<Self::Request>>,
    ) -> impl Future<Output = Result<Streaming<Self::Response>, Status>> + Send;
}

/// The reply to a response: an ACK or a NACK.
struct Acknowledgement<R> {
    request: R,
    is_refusal: bool,
}

/// A request that is sent after a wait.
struct Delayed<R> {
    request: R,
    wait: Duration,
    since: Instant,
}

/// Passes every change to `apply`, forever. If `apply` rejects one, its error is sent to the
/// control plane.
pub async fn follow<E: Display>(
    plane: ControlPlane,
    metrics: &XdsMetrics,
    apply: impl FnMut(Update) -> Result<(), E> + Send,
) {
    let node = plane.node();
    if plane.is_delta {
        XdsClient { plane, metrics, apply, protocol: Delta::new(node) }.run().await;
    } else {
        XdsClient { plane, metrics, apply, protocol: StateOfTheWorld::new(node) }.run().await;
    }
}

struct XdsClient<'m, P, A> {
    plane: ControlPlane,
    metrics: &'m XdsMetrics,
    protocol: P,
    apply: A,
}

impl<P: XdsProtocol, A> XdsClient<'_, P, A> {
    async fn run<E: Display>(mut self)
    where
        A: FnMut(Update) -> Result<(), E>,
    {
        let mut backoff = self.backoff();
        loop {
            let begun = Instant::now();
            let end = self.stream(&mut backoff).await;
            self.metrics.connected.set(0);
            // A stream without responses is a success too if it lasts long enough.
            if begun.elapsed() > self.plane.backoff_max {
                backoff.reset();
            }
            let wait = backoff.next(rand::rng().random());
            if let Err(error) = end {
                warn!(control_plane = %self.plane.target, %error, ?wait, "no policies from the control plane, retrying; active policies stay in force, and without any, calls return UNAVAILABLE");
            }
            sleep(wait).await;
            self.metrics.reconnects.inc();
        }
    }

    /// Runs one stream until it ends.
    async fn stream<E: Display>(&mut self, backoff: &mut Backoff) -> Result<(), StreamFailure>
    where
        A: FnMut(Update) -> Result<(), E>,
    {
        let client = self.plane.connect().await?;
        self.metrics.connected.set(1);
        info!(control_plane = %self.plane.target, "connected to the control plane");
        let (requests, outgoing) = mpsc::channel(OUTGOING);
        requests.send(self.protocol.open()).await.map_err(|_| StreamFailure::Ended)?;
        let mut call = Request::new(ReceiverStream::new(outgoing));
        self.plane.headers.iter().for_each(|header| header.add_to(call.metadata_mut()));
        let mut responses = P::call(client, call).await?;
        let mut refusals = self.backoff();
        let mut has_refused = false;
        let mut next: Option<Delayed<P::Request>> = None;
        loop {
            let response = tokio::select! {
                response = responses.message() => response?.ok_or(StreamFailure::Ended)?,
                () = due(next.as_ref()) => {
                    send(&requests, &mut next).await?;
                    continue;
                }
            };
            let Some(answer) = self.protocol.take(response, &mut self.apply)? else { continue };
            // Some control planes respond to a NACK with the same resources at once: delay all
            // consecutive NACKs but the first.
            let wait = if answer.is_refusal && has_refused {
                refusals.next(rand::rng().random())
            } else {
                Duration::ZERO
            };
            has_refused = answer.is_refusal;
            if !has_refused {
                refusals.reset();
                backoff.reset();
            }
            next = Some(Delayed { request: answer.request, wait, since: Instant::now() });
            if wait.is_zero() {
                send(&requests, &mut next).await?;
            }
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(self.plane.backoff_min, self.plane.backoff_max)
    }
}

/// Sends the pending request, if any.
async fn send<R>(
    requests: &mpsc::Sender<R>,
    next: &mut Option<Delayed<R>>,
) -> Result<(), StreamFailure> {
    match next.take() {
        Some(Delayed { request, .. }) => {
            requests.send(request).await.map_err(|_| StreamFailure::Ended)
        }
        None => Ok(()),
    }
}

/// Waits until the pending request is due; forever if there is none.
async fn due<R>(next: Option<&Delayed<R>>) {
    match next {
        Some(Delayed { wait, since, .. }) => sleep(wait.saturating_sub(since.elapsed())).await,
        None => std::future::pending().await,
    }
}

impl ControlPlane {
    fn node(&self) -> Node {
        let metadata = self.node_metadata.iter();
        let metadata = metadata.map(|(key, value)| (key.clone(), value.as_str().into()));
        Node {
            id: self.node_id.clone(),
            cluster: String::new(),
            metadata: (!self.node_metadata.is_empty())
                .then(|| prost_types::Struct { fields: metadata.collect() }),
            user_agent_name: "tollgate".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
                env!("CARGO_PKG_VERSION").to_owned(),
            )),
        }
    }
}

/// Returns the error of a NACK: the first lines of the reason.
fn refusal(reason: impl Display) -> rpc::Status {
    let reason = reason.to_string();
    let cut = reason.floor_char_boundary(MAX_REASON);
    let (shown, rest) = reason.split_at(cut);
    let lines = if rest.is_empty() {
        shown
    } else {
        shown.rsplit_once('\n').map_or(shown, |(lines, _)| lines)
    };
    // envoyproxy/ratelimit sends code 0, which means success; the presence of a status makes it a
    // NACK.
    rpc::Status {
        code: tonic::Code::InvalidArgument.into(),
        message: lines.trim_end().to_owned(),
        details: vec![],
    }
}
