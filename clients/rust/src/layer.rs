//! A layer of tower that limits the requests of an HTTP or gRPC server.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use prost::Message as _;
use tonic::Status;
use tower::{Layer, Service};

use crate::call::{CallOptions, option_methods};
use crate::client::Client;
use crate::decision::{Decision, Error};
use crate::descriptor::Descriptor;

/// Type of the detail of a denial that has the time to wait.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Limits the requests of a server that is built with tower, such as those of axum and tonic.
///
/// A denied HTTP request is answered with 429 and `Retry-After`; without a decision, with 503. A
/// gRPC call, which has the content type `application/grpc`, ends with `RESOURCE_EXHAUSTED`, a
/// `RetryInfo` and `retry-after`, or with `UNAVAILABLE`. Why there is no decision is a warning of
/// `tracing`, at most once a second.
#[derive(Clone, Debug)]
#[must_use = "it limits nothing until a server has it"]
pub struct RateLimitLayer<F> {
    client: Client,
    describe: F,
    options: CallOptions,
}

/// The domain and the descriptors of a request.
pub type Limits = (Cow<'static, str>, Vec<Descriptor>);

impl<F: Fn(&Parts) -> Option<Limits>> RateLimitLayer<F> {
    option_methods! {}

    /// Creates a layer. `describe` maps a request to its domain and descriptors; with `None`, it is
    /// not limited.
    pub fn new(client: Client, describe: F) -> Self {
        let options = client.options;
        Self { client, describe, options }
    }
}

impl<S, F: Clone> Layer<S> for RateLimitLayer<F> {
    type Service = RateLimit<S, F>;

    fn layer(&self, inner: S) -> RateLimit<S, F> {
        RateLimit { inner, layer: self.clone() }
    }
}

/// A service whose requests are limited, by a [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimit<S, F> {
    inner: S,
    layer: RateLimitLayer<F>,
}

impl<S, F, B, R> Service<Request<B>> for RateLimit<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Parts) -> Option<Limits>,
    B: Send + 'static,
{
    type Response = Response<Either<R, Full<Bytes>>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that is ready is called, not its clone.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let RateLimitLayer { client, describe, options } = &self.layer;
        let (parts, body) = request.into_parts();
        let limits = describe(&parts).filter(|(_, descriptors)| !descriptors.is_empty());
        let request = Request::from_parts(parts, body);
        let Some((domain, descriptors)) = limits else {
            let answer = inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(Either::Left)) });
        };
        let client = client.clone();
        let options = *options;
        Box::pin(async move {
            let decision = client.should_rate_limit(&domain, &descriptors).options(options).await;
            let mut response = match &decision {
                Ok(decision) if decision.allowed => inner.call(request).await?.map(Either::Left),
                refused => refusal(refused, is_grpc(request.headers())).map(Either::Right),
            };
            if let Ok(decision) = decision {
                response.headers_mut().extend(headers(&decision));
            }
            Ok(response)
        })
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let found = headers.get(CONTENT_TYPE);
    found.is_some_and(|found| found.as_bytes().starts_with(b"application/grpc"))
}

/// Returns the headers of the service that are valid in HTTP.
fn headers(decision: &Decision) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    decision.headers.iter().filter_map(|(name, value)| {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        Some((name, HeaderValue::try_from(value.as_str()).ok()?))
    })
}

/// Logs why there is no decision, at most once a second, however many requests fail.
fn warn(error: &Error) {
    static NEXT: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    // Another thread that has the lock logs.
    let Ok(mut next) = NEXT.try_lock() else { return };
    if next.is_none_or(|next| now >= next) {
        *next = now.checked_add(Duration::from_secs(1));
        tracing::warn!(%error, "no rate limit decision; the request is refused");
    }
}

/// Returns the answer to a request that is not admitted.
fn refusal(decision: &Result<Decision, Error>, is_grpc: bool) -> Response<Full<Bytes>> {
    let (http, grpc) = match decision {
        Ok(decision) => (StatusCode::TOO_MANY_REQUESTS, denied_status(decision)),
        Err(Error::Rejected(_)) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            Status::internal("the rate limit service rejects the request"),
        ),
        Err(error) => {
            warn(error);
            (
                StatusCode::SERVICE_UNAVAILABLE,
                Status::unavailable("no decision of the rate limit service"),
            )
        }
    };
    let mut response = if is_grpc { grpc.into_http() } else { problem(http) };
    if let Some(seconds) =
        decision.as_ref().ok().and_then(|decision| decision.retry_after_seconds())
    {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Returns a problem of RFC 9457.
fn problem(status: StatusCode) -> Response<Full<Bytes>> {
    let title = status.canonical_reason().unwrap_or_default();
    let code = status.as_u16();
    let text = format!(r#"{{"type":"about:blank","title":"{title}","status":{code}}}"#);
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn denied_status(decision: &Decision) -> Status {
    const MESSAGE: &str = "over the rate limit";
    let code = tonic::Code::ResourceExhausted;
    let Some(wait) = decision.retry_after else { return Status::new(code, MESSAGE) };
    let info = RetryInfo { retry_delay: prost_types::Duration::try_from(wait).ok() };
    let detail = prost_types::Any { type_url: RETRY_INFO.to_owned(), value: info.encode_to_vec() };
    let details =
        StatusDetails { code: code.into(), message: MESSAGE.to_owned(), details: vec![detail] };
    Status::with_details(code, MESSAGE, details.encode_to_vec().into())
}

/// The message `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
struct StatusDetails {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// The message `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    fn denied() -> Decision {
        let retry_after = Some(Duration::from_millis(1_500));
        Decision { retry_after, ..Decision::undecided(false, None) }
    }

    #[test]
    fn a_denied_call_has_the_time_to_wait_as_a_detail_and_a_header() {
        let response = refusal(&Ok(denied()), true);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        let details = StatusDetails::decode(status.details()).unwrap();
        assert_eq!(details.code, 8);
        let info = RetryInfo::decode(&*details.details[0].value).unwrap();
        let wait = prost_types::Duration { seconds: 1, nanos: 500_000_000 };
        assert_eq!(info.retry_delay, Some(wait));
    }

    #[test]
    fn a_request_that_the_service_refuses_is_an_internal_error() {
        let rejected = Err(Error::Rejected(Status::invalid_argument("")));
        let response = refusal(&rejected, false);
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!response.headers().contains_key(RETRY_AFTER));
        let status = refusal(&rejected, true);
        let status = Status::from_header_map(status.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::Internal);
    }

    #[test]
    fn headers_of_the_service_that_are_not_valid_in_http_are_left_out() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let all = vec![header("a b", "1"), header("x-a", "1\n"), header("X-Limit", "1")];
        let found: Vec<_> = headers(&Decision { headers: all, ..denied() }).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "x-limit");
    }

    /// Counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn why_requests_are_refused_is_logged_once_a_second() {
        let warnings = Arc::<AtomicUsize>::default();
        tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
            for _ in 0..100 {
                let error = Error::NoDecision(Status::unavailable("connection refused"));
                let response = refusal(&Err(error), false);
                assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            }
        });
        // A second may have passed meanwhile.
        assert!((1..100).contains(&warnings.load(Ordering::Relaxed)));
    }
}
