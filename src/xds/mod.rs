//! Policies from a control plane: a client of Envoy's xDS that asks for `RateLimitConfig`s, as envoyproxy/ratelimit does.
//!
//! Knows both ways of asking, how a connection is made, kept and made again, and how a resource reads as YAML. What it brings
//! are [`Source`]s, compiled like files, so that a mistake in them has a place and a caret. Does not know what rules are.
//!
//! | file | what it knows |
//! |---|---|
//! | `connection` | where to, as whom, by which certificates |
//! | `sotw`, `delta` | the two ways: each response is all there is, or what has changed |
//! | `resource` | what a response holds, and its bounds |
//! | `yaml` | a `RateLimitConfig` as the text of a policy |
//! | `backoff` | how long to wait before it is tried again |
//!
//! Whatever fails, the policies in force stay, and it is tried again: nothing here ends but by being dropped.

mod backoff;
mod connection;
mod delta;
mod resource;
mod sotw;
mod yaml;

use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tracing::{info, warn};

use self::backoff::Backoff;
pub use self::connection::{Target, Tls};
use self::delta::Delta;
use self::sotw::StateOfTheWorld;
use crate::grpc::client::Header;
use crate::grpc::proto::envoy::config::core::v3::{Node, node::UserAgentVersionType};
use crate::grpc::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::grpc::proto::google::rpc;
use crate::policy::Source;
use crate::telemetry::metrics::Metrics;

/// Requests that may wait for a server that does not read.
const OUTGOING: usize = 4;
/// Bytes of a report that a control plane is told.
const MAX_REASON: usize = 2_000;

/// A control plane, and as whom it is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlPlane {
    /// Where it is.
    pub target: Target,
    /// Whether it is asked for changes only; otherwise each response is the whole configuration.
    pub is_delta: bool,
    /// What it knows this process as; many choose by it what they answer.
    pub node_id: String,
    /// What it is told besides.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of each call.
    pub headers: Vec<Header>,
    /// Encryption; `None`: none.
    pub tls: Option<Tls>,
    /// Bytes of one response.
    pub max_message_bytes: usize,
    /// Time after which a silent connection is asked for a sign of life.
    pub keepalive: Duration,
    /// The shortest time to wait before it is tried again,
    pub backoff_min: Duration,
    /// and the longest.
    pub backoff_max: Duration,
}

/// What a control plane says the policies are now, or why that cannot be understood.
pub type Update = Result<Vec<Source>, String>;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{path}: {error}")]
    File { path: String, error: std::io::Error },
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("no connection within {0:?}")]
    Late(Duration),
    #[error("{:?}: {}{}", .0.code(), .0.message(), cause(.0))]
    Stream(#[from] Box<Status>),
    #[error("the control plane ended the stream")]
    Ended,
    #[error("{0}")]
    TooMuch(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Stream(Box::new(status))
    }
}

/// What lies beneath a status that the transport made, where its message does not say it: that the other has had enough, say.
fn cause(status: &Status) -> String {
    let causes = std::iter::successors(std::error::Error::source(status), |error| error.source());
    let cause = causes.last().map(ToString::to_string);
    cause.filter(|cause| !status.message().contains(cause)).map_or(String::new(), |cause| format!(": {cause}"))
}

/// One of the two ways to ask: what is said, and what is remembered from one stream to the next.
trait Protocol {
    type Request: Send + 'static;
    type Response: Send + 'static;

    /// The first request of a stream.
    fn open(&mut self) -> Self::Request;

    /// Takes a response over, if it can be, and answers it; `None` where it is not for us.
    fn take(
        &mut self,
        response: Self::Response,
        apply: &mut impl FnMut(Update) -> Result<(), String>,
    ) -> Result<Option<Answer<Self::Request>>, Failure>;

    /// Calls.
    fn call(
        client: AggregatedDiscoveryServiceClient<Channel>,
        requests: Request<ReceiverStream<Self::Request>>,
    ) -> impl Future<Output = Result<Streaming<Self::Response>, Status>> + Send;
}

/// What a response is answered with.
struct Answer<R> {
    request: R,
    is_refusal: bool,
}

/// A request that waits to be sent.
struct Delayed<R> {
    request: R,
    wait: Duration,
    since: Instant,
}

/// Gives every change to `apply` for ever; what that cannot use, it says why, and so does this to the control plane.
pub async fn follow(plane: ControlPlane, metrics: &Metrics, apply: impl FnMut(Update) -> Result<(), String> + Send) {
    let node = plane.node();
    if plane.is_delta {
        Client { plane, metrics, apply, protocol: Delta::new(node) }.run().await;
    } else {
        Client { plane, metrics, apply, protocol: StateOfTheWorld::new(node) }.run().await;
    }
}

struct Client<'m, P, A> {
    plane: ControlPlane,
    metrics: &'m Metrics,
    protocol: P,
    apply: A,
}

impl<P: Protocol, A: FnMut(Update) -> Result<(), String>> Client<'_, P, A> {
    async fn run(mut self) {
        let mut backoff = self.backoff();
        loop {
            let begun = Instant::now();
            let end = self.stream(&mut backoff).await;
            self.metrics.xds_connected.set(0);
            // A stream on which nothing had to be said was a good one too.
            if begun.elapsed() > self.plane.backoff_max {
                backoff.reset();
            }
            let wait = backoff.next();
            if let Err(error) = end {
                warn!(control_plane = %self.plane.target, %error, ?wait, "no policies from the control plane; what is in force stays, and where nothing is yet calls are UNAVAILABLE");
            }
            sleep(wait).await;
            self.metrics.xds_reconnects.inc();
        }
    }

    /// One stream, to its end.
    async fn stream(&mut self, backoff: &mut Backoff) -> Result<(), Failure> {
        let client = self.plane.connect().await?;
        self.metrics.xds_connected.set(1);
        info!(control_plane = %self.plane.target, "connected to the control plane");
        let (requests, outgoing) = mpsc::channel(OUTGOING);
        requests.send(self.protocol.open()).await.map_err(|_| Failure::Ended)?;
        let mut call = Request::new(ReceiverStream::new(outgoing));
        self.plane.headers.iter().for_each(|header| header.add_to(call.metadata_mut()));
        let mut responses = P::call(client, call).await?;
        let (mut refusals, mut has_refused) = (self.backoff(), false);
        let mut next: Option<Delayed<P::Request>> = None;
        loop {
            let response = tokio::select! {
                response = responses.message() => response?.ok_or(Failure::Ended)?,
                () = due(next.as_ref()) => {
                    send(&requests, &mut next).await?;
                    continue;
                }
            };
            let Some(answer) = self.protocol.take(response, &mut self.apply)? else { continue };
            // Some control planes answer a refusal by the same again, at once: from the second on it is held back.
            let wait = if answer.is_refusal && has_refused { refusals.next() } else { Duration::ZERO };
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

/// Sends what is to be sent.
async fn send<R>(requests: &mpsc::Sender<R>, next: &mut Option<Delayed<R>>) -> Result<(), Failure> {
    match next.take() {
        Some(Delayed { request, .. }) => requests.send(request).await.map_err(|_| Failure::Ended),
        None => Ok(()),
    }
}

/// Waits until a request is to be sent; for ever where there is none.
async fn due<R>(next: Option<&Delayed<R>>) {
    match next {
        Some(Delayed { wait, since, .. }) => sleep(wait.saturating_sub(since.elapsed())).await,
        None => std::future::pending().await,
    }
}

impl ControlPlane {
    fn node(&self) -> Node {
        let text = |text: &String| prost_types::Value::from(text.as_str());
        let metadata = self.node_metadata.iter().map(|(key, value)| (key.clone(), text(value)));
        Node {
            id: self.node_id.clone(),
            cluster: String::new(),
            metadata: (!self.node_metadata.is_empty()).then(|| prost_types::Struct { fields: metadata.collect() }),
            user_agent_name: "tollgate".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(env!("CARGO_PKG_VERSION").to_owned())),
        }
    }
}

/// Why a response is refused, as the protocol says it: the first lines of the reason.
fn refusal(reason: &str) -> rpc::Status {
    let cut = reason.floor_char_boundary(MAX_REASON);
    let (shown, rest) = reason.split_at(cut);
    let lines = if rest.is_empty() { shown } else { shown.rsplit_once('\n').map_or(shown, |(lines, _)| lines) };
    // envoyproxy/ratelimit sends 0, which is that of success; what makes it a refusal is that it is there.
    rpc::Status { code: tonic::Code::InvalidArgument.into(), message: lines.trim_end().to_owned(), details: vec![] }
}
