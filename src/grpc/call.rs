//! One call of `ShouldRateLimit`: the frequent case read, decided and answered in place, anything else by tonic.
//!
//! The shortcut answers byte for byte as [tonic's service](super::method) does; a differential test holds that.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use http::{HeaderValue, Request};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::rights::Rights;
use super::service::{Rls, budget};
use crate::spans::Recording;
use crate::store::Store;
use crate::telemetry::stats::Stats;
use crate::transport::{Answer, Budget, Exchange, Fields, Held};

/// The method's path.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Bytes in front of a message: whether it is compressed (1), and its length (4).
pub(super) const PREFIX: usize = 5;
/// Bytes of values that are kept: `grpc-timeout` has at most 8 digits and a unit.
const MAX_TIMEOUT: usize = 9;
const MAX_ENCODING: usize = 32;
const MAX_TRACE_FIELD: usize = 512;
/// Stands for an encoding with a longer name.
const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");
const TRACE_FIELDS: [&str; 2] = ["traceparent", "tracestate"];

/// State that the calls of a connection share.
pub(super) struct CallContext<S> {
    pub(super) rls: Arc<Rls<S>>,
    /// All services, by tonic.
    pub(super) routes: Routes,
    /// Domains that the client may ask for.
    pub(super) rights: Rights,
    /// Bytes of a message.
    pub(super) max_message: usize,
    /// Counts and times calls, if that is wanted.
    pub(super) stats: Option<Arc<Stats>>,
    /// Memory that clients can make the process hold.
    pub(super) budget: Arc<Budget>,
}

/// The name and the value of a field that says which trace a call is of.
type TraceField = (&'static str, Vec<u8>);

/// The fields of a call's header list that its answer depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct CallHead {
    /// Time that the caller has; as it is, and less a margin.
    timeout: Option<(HeaderValue, Duration)>,
    /// `grpc-encoding`, unless it is `identity`.
    encoding: Option<HeaderValue>,
    /// Fields that say which trace the call is of, if calls are traced.
    trace: Option<Arc<[TraceField]>>,
}

impl CallHead {
    /// Reads a header list. What is longer than any such value is left out, since a call that waits keeps it.
    pub(super) fn read(fields: &Fields, is_traced: bool) -> Self {
        let value = |name: &str, max| fields.get(name.as_bytes()).filter(|value| value.len() <= max);
        let header = |name, max| HeaderValue::from_bytes(value(name, max)?).ok();
        let timeout = header("grpc-timeout", MAX_TIMEOUT).and_then(|value| {
            let budget = budget(value.as_bytes())?;
            Some((value, budget))
        });
        let trace = || TRACE_FIELDS.iter().filter_map(|name| Some((*name, value(name, MAX_TRACE_FIELD)?.to_vec())));
        let encoding = fields.get(b"grpc-encoding").map(|_| header("grpc-encoding", MAX_ENCODING).unwrap_or(UNKNOWN));
        Self {
            timeout,
            encoding: encoding.filter(|encoding| encoding != "identity"),
            trace: is_traced.then(|| trace().collect()),
        }
    }

    fn is_gzip(&self) -> bool {
        self.encoding.as_ref().is_some_and(|encoding| encoding == "gzip")
    }

    fn trace_field(&self, name: &str) -> Option<&[u8]> {
        let trace = self.trace.as_ref()?;
        trace.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_slice())
    }

    /// The fields, for tonic.
    fn write(&self, headers: &mut http::HeaderMap) {
        let trace = self.trace.iter().flat_map(|trace| trace.iter());
        let trace = trace.filter_map(|(name, value)| Some((*name, HeaderValue::from_bytes(value).ok()?)));
        let timeout = self.timeout.iter().map(|(value, _)| ("grpc-timeout", value.clone()));
        let encoding = self.encoding.iter().map(|value| ("grpc-encoding", value.clone()));
        headers.extend(
            timeout.chain(encoding).chain(trace).map(|(name, value)| (http::HeaderName::from_static(name), value)),
        );
    }
}

/// Answers a call, all of whose body has come.
pub(super) async fn answer<S: Store>(context: Arc<CallContext<S>>, head: CallHead, exchange: Exchange) -> Answer<Body> {
    let timer = context.stats.as_ref().and_then(|stats| stats.begin(PATH));
    let mut exchange = exchange;
    // Kept until the call is answered.
    let _held = match head.is_gzip().then(|| inflate(&mut exchange.request, context.max_message, &context.budget)) {
        Some(Err(status)) => return Answer::Response(Box::new(status.into_http())),
        Some(Ok(held)) => held,
        None => None,
    };
    let is_readable = head.encoding.is_none() || head.is_gzip();
    let answer = if is_readable && is_one_message(&exchange.request, context.max_message) {
        answer_message(&context, &head, exchange).await
    } else {
        Box::pin(answer_by_tonic(&context, &head, exchange)).await
    };
    timer.into_iter().for_each(crate::telemetry::stats::Call::answered);
    answer
}

async fn answer_message<S: Store>(context: &CallContext<S>, head: &CallHead, mut exchange: Exchange) -> Answer<Body> {
    let Exchange { request, answer } = &mut exchange;
    let message = request.get(PREFIX..).unwrap_or_default();
    let mut recording = context.rls.tracer().and_then(|tracer| tracer.begin(|name| head.trace_field(name)));
    answer.resize(PREFIX, 0);
    let time = head.timeout.as_ref().map(|(_, time)| *time);
    let answered = context.rls.answer(message, time, &context.rights, recording.as_deref_mut(), answer).await;
    record_status(recording, answered.as_ref().err());
    if let Err(status) = answered {
        return Answer::Response(Box::new(status.into_http()));
    }
    let length = u32::try_from(answer.len().saturating_sub(PREFIX)).unwrap_or(u32::MAX);
    set_length(answer, length);
    Answer::Message(exchange)
}

async fn answer_by_tonic<S: Store>(context: &CallContext<S>, head: &CallHead, exchange: Exchange) -> Answer<Body> {
    if has_more_messages(&exchange.request) {
        let status = Status::internal("a call has one message, found more");
        return Answer::Response(Box::new(status.into_http()));
    }
    let mut request =
        Request::post(PATH).body(Body::new(http_body_util::Full::from(exchange.request))).unwrap_or_default();
    head.write(request.headers_mut());
    request.extensions_mut().insert(context.rights.clone());
    let Ok(response) = context.routes.clone().call(request).await;
    Answer::Response(Box::new(response))
}

/// Ends a recording with the status of its call.
pub(super) fn record_status(recording: Option<Box<Recording>>, error: Option<&Status>) {
    if let Some(mut recording) = recording {
        recording.told().status = Some(error.map_or(0, |status| status.code().into()));
    }
}

/// Puts a message in the place of its compressed form, and charges it. One that cannot be inflated stays as it is: tonic reports
/// what is wrong with it. What tonic reads itself becomes lists of many times the bytes of the message.
///
/// # Errors
/// RESOURCE_EXHAUSTED: it has more than `max` bytes, in tonic's words; or clients hold as much as they may.
fn inflate(body: &mut Vec<u8>, max: usize, budget: &Arc<Budget>) -> Result<Option<Held>, Status> {
    let Some((&[1, ref length @ ..], compressed)) = body.split_first_chunk::<PREFIX>() else { return Ok(None) };
    if usize::try_from(u32::from_be_bytes(*length)) != Ok(compressed.len()) {
        return Ok(None);
    }
    let mut inflated = vec![0; PREFIX];
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let Ok(length) = GzDecoder::new(compressed).take(limit).read_to_end(&mut inflated) else { return Ok(None) };
    if length > max {
        let text = format!("Error decompressing: size limit, of {max} bytes, exceeded while decompressing message");
        return Err(Status::resource_exhausted(text));
    }
    inflated.shrink_to_fit();
    let held = budget.hold(length).map_err(|error| Status::resource_exhausted(error.to_string()))?;
    set_length(&mut inflated, u32::try_from(length).unwrap_or(u32::MAX));
    *body = inflated;
    Ok(Some(held))
}

/// Sets the length in front of a message.
fn set_length(framed: &mut [u8], length: u32) {
    if let Some((_, place)) = framed.first_chunk_mut::<PREFIX>().and_then(|prefix| prefix.split_first_mut()) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// Returns whether a body is one message, not compressed, of at most `max` bytes.
fn is_one_message(body: &[u8], max: usize) -> bool {
    let Some((&[compressed, ref length @ ..], message)) = body.split_first_chunk::<PREFIX>() else { return false };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    compressed == 0 && length == message.len() && length <= max
}

/// Returns whether a body goes on behind its first message. tonic passes over what is there.
fn has_more_messages(body: &[u8]) -> bool {
    let Some((&[_, ref length @ ..], message)) = body.split_first_chunk::<PREFIX>() else { return false };
    message.len() > usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
