//! A call of `ShouldRateLimit`: the common case is decoded, decided and answered in place, anything
//! else is passed to tonic.
//!
//! The responses are byte-identical to those of [tonic's service](super::rls_service); a
//! differential test verifies this.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use futures_util::future::{Either, FutureExt as _, ready};
use http::{HeaderValue, Request};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::call_headers::{CALLER, SERVICE, receiver_of, timeout_of};
use super::refusal::Refusals;
use super::response::Receiver;
use super::rights::{DomainRights, IsGateway};
use super::service::gateway::{self, CheckCaller};
use super::service::{Caller, Rls};
use super::{PREFIX, set_length};
use crate::http2::{Answer, CallAccount, CallHold, Exchange, HeaderFields};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::Recording;
use crate::telemetry::statistics::{CallTimer, Stats};

/// Path of `ShouldRateLimit`.
const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Maximum lengths of header values that are kept; `grpc-timeout` has at most 8 digits and a unit.
const MAX_TIMEOUT: usize = 9;
const MAX_ENCODING: usize = 32;
const MAX_TRACE_FIELD: usize = 512;
/// Maximum ratio of a message's inflated to its compressed size; up to `ALWAYS_INFLATED` bytes are
/// accepted at any ratio. Otherwise 1 KB could inflate to 1 MiB, which takes a worker over a
/// millisecond: eight clients stalled all others.
const MAX_INFLATION: usize = 32;
const ALWAYS_INFLATED: usize = 64 << 10;
/// Replaces an encoding with a longer name.
const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");
const TRACE_FIELDS: [&str; 2] = ["traceparent", "tracestate"];
const CHECK_FIELDS: [&str; 3] = ["traceparent", "tracestate", gateway::MAPPING];

/// Cost of answering a call through tonic, as the bytes of inflated message that take as long.
const GENERAL_WORK: usize = 8 << 10;

/// Length in bytes of a message whose decision takes no longer than reading its call, and work of
/// each further byte. Short descriptors are read fast, but each takes a decision: while eight
/// connections sent calls of 50 new counters, the calls of another took 30 ms, and take 10 now.
const COMMON_MESSAGE: usize = 256;
const BYTE_WORK: usize = 128;

/// A method whose calls are answered in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UnaryMethod {
    #[default]
    ShouldRateLimit,
    Check,
}

impl UnaryMethod {
    /// Returns the path of the method.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => PATH,
            Self::Check => gateway::PATH,
        }
    }
}

/// State that the calls of a connection share.
pub(super) struct CallContext<S> {
    pub(super) rls: Arc<Rls<S>>,
    /// All services, served by tonic.
    pub(super) routes: Routes,
    /// Domains that the client may request.
    pub(super) rights: DomainRights,
    /// `true` if the client is a gateway, whose attributes of requests are trusted.
    pub(super) is_gateway: bool,
    /// Maximum message size in bytes.
    pub(super) max_message: usize,
    /// Counts and times calls, if enabled.
    pub(super) stats: Option<Arc<Stats>>,
    pub(super) refusals: Refusals,
    pub(super) metrics: Arc<Metrics>,
    /// Memory and work of the calls.
    pub(super) account: CallAccount,
}

impl<S> CallContext<S> {
    /// Returns the caller of a call with this timeout.
    fn caller(&self, time: Option<Duration>, receiver: Receiver) -> Caller<'_> {
        Caller { rights: &self.rights, account: &self.account, time, receiver }
    }

    /// Adds the connection's part of a caller to a request for tonic.
    pub(super) fn describe_to(&self, extensions: &mut http::Extensions) {
        extensions.insert(self.rights.clone());
        extensions.insert(self.account.clone());
        extensions.insert(IsGateway(self.is_gateway));
    }
}

/// The name and value of a header for spans or for `Check`.
type TraceField = (&'static str, Vec<u8>);

/// The headers of a call that affect its response.
#[derive(Clone, Debug, Default)]
pub(super) struct CallHead {
    method: UnaryMethod,
    /// The caller's timeout, as received and less a margin.
    timeout: Option<(HeaderValue, Duration)>,
    receiver: Receiver,
    /// `grpc-encoding`, unless it is `identity`.
    encoding: Option<HeaderValue>,
    /// Trace context headers, if calls are traced, and the mapping of a `Check`.
    kept: Option<Arc<[TraceField]>>,
}

impl CallHead {
    /// Reads a header list. Values longer than any valid one are dropped, since a pending call
    /// retains them.
    pub(super) fn read(method: UnaryMethod, fields: &HeaderFields, is_traced: bool) -> Self {
        let timeout = header(fields, "grpc-timeout", MAX_TIMEOUT).and_then(|value| {
            let timeout = timeout_of(value.as_bytes())?;
            Some((value, timeout))
        });
        let names = match method {
            UnaryMethod::ShouldRateLimit if is_traced => TRACE_FIELDS.as_slice(),
            UnaryMethod::ShouldRateLimit => &[],
            UnaryMethod::Check => CHECK_FIELDS.as_slice(),
        };
        let kept = names
            .iter()
            .filter_map(|name| Some((*name, field(fields, name, MAX_TRACE_FIELD)?.to_vec())));
        let encoding = fields
            .get(b"grpc-encoding")
            .map(|_| header(fields, "grpc-encoding", MAX_ENCODING).unwrap_or(UNKNOWN));
        Self {
            method,
            timeout,
            receiver: receiver_of(fields.get(CALLER.as_bytes())),
            encoding: encoding.filter(|encoding| encoding != "identity"),
            kept: (!names.is_empty()).then(|| kept.collect()),
        }
    }

    fn time(&self) -> Option<Duration> {
        self.timeout.as_ref().map(|(_, time)| *time)
    }

    fn is_gzip(&self) -> bool {
        self.encoding.as_ref().is_some_and(|encoding| encoding == "gzip")
    }

    fn kept_field(&self, name: &str) -> Option<&[u8]> {
        let kept = self.kept.as_ref()?;
        kept.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_slice())
    }

    /// Adds the headers to those of a request for tonic.
    fn write(&self, headers: &mut http::HeaderMap) {
        let kept = self.kept.iter().flat_map(|kept| kept.iter());
        let kept =
            kept.filter_map(|(name, value)| Some((*name, HeaderValue::from_bytes(value).ok()?)));
        let timeout = self.timeout.iter().map(|(value, _)| ("grpc-timeout", value.clone()));
        let encoding = self.encoding.iter().map(|value| ("grpc-encoding", value.clone()));
        let caller = (self.receiver == Receiver::Caller)
            .then(|| (CALLER, HeaderValue::from_static(SERVICE)));
        headers.extend(
            timeout
                .chain(encoding)
                .chain(caller)
                .chain(kept)
                .map(|(name, value)| (http::HeaderName::from_static(name), value)),
        );
    }
}

/// Returns the value of a field, unless it is longer than `max`.
fn field<'f>(fields: &'f HeaderFields, name: &str, max: usize) -> Option<&'f [u8]> {
    fields.get(name.as_bytes()).filter(|value| value.len() <= max)
}

/// Returns the value of a field as [`field`] does, if it is one for HTTP.
fn header(fields: &HeaderFields, name: &str, max: usize) -> Option<HeaderValue> {
    HeaderValue::from_bytes(field(fields, name, max)?).ok()
}

/// Answers a call whose body is complete.
pub(super) fn answer<S: Store>(
    context: Arc<CallContext<S>>,
    head: CallHead,
    mut exchange: Exchange,
) -> impl Future<Output = Answer<Body>> + Send {
    let timer = context.stats.as_ref().and_then(|stats| stats.begin(head.method.path()));
    if claims_more_than(&exchange.request, context.max_message) {
        context.metrics.clients.oversized_messages.inc();
    }
    let held = head.is_gzip().then(|| inflate(&mut exchange.request, &context)).transpose();
    let is_readable = head.encoding.is_none() || head.is_gzip();
    let is_one_message = is_readable && is_one_message(&exchange.request, context.max_message);
    let answered = match held {
        Err(status) => Either::Left(ready(Answer::Response(Box::new(status.into_http())))),
        Ok(held) if is_one_message => Either::Right(Either::Left(match head.method {
            UnaryMethod::ShouldRateLimit => {
                Either::Left(answer_message(context, &head, exchange, held.flatten()))
            }
            // Boxed, so that calls of the other method do not have room for it.
            UnaryMethod::Check => {
                Either::Right(Box::pin(check_message(context, head, exchange, held.flatten())))
            }
        })),
        Ok(held) => Either::Right(Either::Right(Box::pin(async move {
            let _held = held;
            answer_by_tonic(context, head, exchange).await
        }))),
    };
    answered.inspect(move |_| timer.into_iter().for_each(CallTimer::answered))
}

/// Answers a call whose body is one message. `held`: the memory of its inflated form.
fn answer_message<S: Store>(
    context: Arc<CallContext<S>>,
    head: &CallHead,
    mut exchange: Exchange,
    held: Option<CallHold>,
) -> impl Future<Output = Answer<Body>> + Send + use<S> {
    let mut recording =
        context.rls.tracer().and_then(|tracer| tracer.begin(|name| head.kept_field(name)));
    let receiver = head.receiver;
    let time = head.time();
    async move {
        let Exchange { request, answer } = &mut exchange;
        let message = request.get(PREFIX..).unwrap_or_default();
        context.account.add_work(message.len().saturating_sub(COMMON_MESSAGE) * BYTE_WORK);
        answer.resize(PREFIX, 0);
        let answered = context
            .rls
            .answer(message, context.caller(time, receiver), recording.as_deref_mut(), answer)
            .await;
        drop(held);
        record_status(recording, answered.as_ref().err());
        if let Err(status) = answered {
            return Answer::Response(Box::new(status.into_http()));
        }
        set_length(answer);
        Answer::Message(exchange)
    }
}

/// Answers a `Check` whose body is one message. `held`: the memory of its inflated form.
async fn check_message<S: Store>(
    context: Arc<CallContext<S>>,
    head: CallHead,
    mut exchange: Exchange,
    held: Option<CallHold>,
) -> Answer<Body> {
    let tracer = context.rls.tracer();
    let mut recording = tracer.and_then(|tracer| tracer.begin(|name| head.kept_field(name)));
    let Exchange { request, answer } = &mut exchange;
    let message = request.get(PREFIX..).unwrap_or_default();
    // Most of a message is headers, which are read once.
    context.account.add_work(message.len());
    answer.resize(PREFIX, 0);
    let caller = CheckCaller {
        is_gateway: context.is_gateway,
        caller: context.caller(head.time(), Receiver::Proxy),
        mapping: head.kept_field(gateway::MAPPING),
    };
    let attributes = recording.as_mut().map(|recording| recording.attributes_mut());
    let answered = context.rls.check(message, caller, attributes, answer).await;
    drop(held);
    record_status(recording, answered.as_ref().err());
    if let Err(status) = answered {
        return Answer::Response(Box::new(status.into_http()));
    }
    set_length(answer);
    Answer::Message(exchange)
}

async fn answer_by_tonic<S: Store>(
    context: Arc<CallContext<S>>,
    head: CallHead,
    exchange: Exchange,
) -> Answer<Body> {
    context.account.add_work(GENERAL_WORK);
    if has_more_messages(&exchange.request) {
        let status = Status::internal("expected one message, found more");
        return Answer::Response(Box::new(status.into_http()));
    }
    let mut request = Request::post(head.method.path())
        .body(Body::new(http_body_util::Full::from(exchange.request)))
        .unwrap_or_default();
    head.write(request.headers_mut());
    context.describe_to(request.extensions_mut());
    let Ok(response) = context.routes.clone().call(request).await;
    Answer::Response(Box::new(response))
}

/// Finishes a recording with the status of its call.
pub(super) fn record_status(recording: Option<Box<Recording>>, error: Option<&Status>) {
    if let Some(mut recording) = recording {
        recording.attributes_mut().status = Some(error.map_or(0, |status| status.code().into()));
    }
}

/// Replaces a compressed message with its inflated form, and charges its size to the account. A
/// message that cannot be inflated is left for tonic, which reports the error. Inflating here keeps
/// messages on the fast path: tonic would decode them into lists of many times their size.
///
/// # Errors
/// RESOURCE_EXHAUSTED, with tonic's error text if the inflated message is larger than allowed (for
/// any message, or for its compressed size), or if the budget of clients is exhausted.
fn inflate<S>(body: &mut Vec<u8>, context: &CallContext<S>) -> Result<Option<CallHold>, Status> {
    let Some((&[1, ref length @ ..], compressed)) = body.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if usize::try_from(u32::from_be_bytes(*length)) != Ok(compressed.len()) {
        return Ok(None);
    }
    let max = context.max_message.min((compressed.len() * MAX_INFLATION).max(ALWAYS_INFLATED));
    let mut inflated = vec![0; PREFIX];
    let limit = u64::try_from(max + 1).unwrap_or(u64::MAX);
    let read = GzDecoder::new(compressed).take(limit).read_to_end(&mut inflated);
    context.account.add_work(inflated.len());
    let Ok(length) = read else { return Ok(None) };
    if length > max {
        context.metrics.clients.oversized_messages.inc();
        let text = format!(
            "Error decompressing: size limit, of {max} bytes, exceeded while decompressing message"
        );
        return Err(Status::resource_exhausted(text));
    }
    inflated.shrink_to_fit();
    let held = context
        .account
        .hold(length)
        .map_err(|error| Status::resource_exhausted(error.to_string()))?;
    set_length(&mut inflated);
    *body = inflated;
    Ok(Some(held))
}

/// Returns `true` if the prefix of a body's first message announces more than `max` bytes.
fn claims_more_than(body: &[u8], max: usize) -> bool {
    let prefix = body.first_chunk::<PREFIX>();
    prefix.is_some_and(|&[_, ref length @ ..]| {
        usize::try_from(u32::from_be_bytes(*length)).is_ok_and(|length| length > max)
    })
}

/// Returns `true` if a body is exactly one uncompressed message of at most `max` bytes.
fn is_one_message(body: &[u8], max: usize) -> bool {
    let Some((&[compressed, ref length @ ..], message)) = body.split_first_chunk::<PREFIX>() else {
        return false;
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    compressed == 0 && length == message.len() && length <= max
}

/// Returns `true` if a body continues after its first message. tonic ignores the rest.
fn has_more_messages(body: &[u8]) -> bool {
    let Some((&[_, ref length @ ..], message)) = body.split_first_chunk::<PREFIX>() else {
        return false;
    };
    message.len() > usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
