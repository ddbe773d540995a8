//! Middleware that authorizes requests to the admin port.
//!
//! Checks the host that a request is for, the token or certificate of the client and its rights
//! and, for writes, that the request was not sent by a page of another origin. Every write is
//! logged with target `audit`; refusals are counted, and logged at a bounded rate. Text from
//! requests is truncated before it is logged.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{info, warn};

use super::api::error::ApiError;
use super::rights::{AdminRights, Right};
use super::server::AdminPeer;
use crate::operations::audit::AuditEntry;
use crate::printable::excerpt;
use crate::problem::HttpProblem;
use crate::telemetry::http::{HttpMetrics, HttpPort, HttpRefusal};
use crate::telemetry::log_throttle::LogThrottle;

/// Timeout for a response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes logged of a text from a request, and of the details of a write.
const MAX_LOGGED: usize = 256;
const MAX_DONE: usize = 1024;
/// Number of refusals of one kind that are logged in a burst; beyond it, one per second.
const REFUSALS_AT_ONCE: u32 = 10;
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// The rights of clients, with metrics and log limits for refusals.
pub(super) struct AccessGuard {
    rights: Arc<AdminRights>,
    metrics: Arc<HttpMetrics>,
    /// Log limits by kind, so that a flood of one kind does not hide the others.
    logged: [LogThrottle; HttpRefusal::ALL.len()],
}

/// An admitted client.
#[derive(Clone, Debug)]
pub(super) struct AdmittedClient {
    /// Name in the audit log.
    pub(super) name: String,
    pub(super) right: Right,
}

impl AccessGuard {
    pub(super) fn new(rights: Arc<AdminRights>, metrics: Arc<HttpMetrics>) -> Arc<Self> {
        let logged = HttpRefusal::ALL.map(|_| LogThrottle::new(REFUSAL_PAUSE, REFUSALS_AT_ONCE));
        Arc::new(Self { rights, metrics, logged })
    }

    /// Counts and logs a refusal, and returns the response.
    fn refuse(&self, caller: &LoggedRequest, (kind, refusal): Refused, wanted: Right) -> Response {
        self.log(caller, &refusal, kind, wanted);
        refusal.into_response()
    }

    fn log(&self, caller: &LoggedRequest, refusal: &ApiError, kind: HttpRefusal, wanted: Right) {
        self.metrics.refused(HttpPort::Admin, kind);
        // Browsers send requests without a token until the user has entered one.
        if wanted == Right::Read && kind == HttpRefusal::NoToken {
            return;
        }
        let logged = HttpRefusal::ALL.iter().zip(&self.logged).find(|(of, _)| **of == kind);
        let Some(times) = logged.and_then(|(_, throttle)| throttle.due()) else { return };
        let LoggedRequest { peer, method, path } = caller;
        let kind = kind.name();
        let status = refusal.status.as_u16();
        let why = &refusal.text;
        match wanted {
            Right::Write => {
                warn!(target: "audit", peer, method, path, status, kind, why, times, "audit: write refused");
            }
            Right::Read => {
                warn!(target: "audit", peer, method, path, status, kind, why, times, "audit: read refused");
            }
        }
    }
}

/// A refusal with its kind.
type Refused = (HttpRefusal, ApiError);

/// A request as it appears in the log.
struct LoggedRequest {
    peer: String,
    method: String,
    path: String,
}

impl LoggedRequest {
    fn of(request: &Request) -> Self {
        let peer = request.extensions().get::<AdminPeer>();
        Self {
            peer: peer.map_or_else(|| "unknown".to_owned(), |peer| peer.address.to_string()),
            method: excerpt(request.method().as_str(), MAX_LOGGED).into_owned(),
            path: excerpt(request.uri().path(), MAX_LOGGED).into_owned(),
        }
    }
}

/// Admits clients that may read, and adds the client to the extensions of the request.
pub(super) async fn admit_reads(
    State(guard): State<Arc<AccessGuard>>,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&guard.rights, &request, Right::Read) {
        Ok(who) => {
            request.extensions_mut().insert(who);
            answer(next, request).await
        }
        Err(refused) => guard.refuse(&LoggedRequest::of(&request), refused, Right::Read),
    }
}

/// Admits clients that may see pages.
pub(super) async fn admit_pages(
    State(guard): State<Arc<AccessGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let admitted = if guard.rights.open_pages {
        Ok(())
    } else {
        admit(&guard.rights, &request, Right::Read).map(drop)
    };
    match admitted.and_then(|()| check_host(&guard.rights, request.headers())) {
        Ok(()) => answer(next, request).await,
        Err(refused) => guard.refuse(&LoggedRequest::of(&request), refused, Right::Read),
    }
}

/// Admits clients that may write, and logs what they did.
pub(super) async fn admit_writes(
    State(guard): State<Arc<AccessGuard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = LoggedRequest::of(&request);
    let admitted = admit(&guard.rights, &request, Right::Write).and_then(|who| {
        check_deliberate(request.headers())?;
        check_same_origin(request.headers()).map_err(|why| {
            (HttpRefusal::Origin, ApiError::new(StatusCode::FORBIDDEN, why.to_string()))
        })?;
        Ok(who)
    });
    match admitted {
        Ok(AdmittedClient { name, .. }) => {
            let audit = AuditEntry::default();
            request.extensions_mut().insert(audit.clone());
            // Runs in its own task: a write is completed and logged even if the client disconnects.
            let answered = tokio::spawn(async move {
                let response = answer(next, request).await;
                let LoggedRequest { peer, method, path } = caller;
                let status = response.status().as_u16();
                let done = audit.text();
                let who = &*excerpt(&name, MAX_LOGGED);
                let done = &*excerpt(&done, MAX_DONE);
                info!(target: "audit", who, peer, method, path, status, done, "audit: write");
                response
            });
            answered.await.unwrap_or_else(|_| {
                let why = "the response was lost";
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
            })
        }
        Err(refused) => guard.refuse(&caller, refused, Right::Write),
    }
}

/// Admits any request with an allowed host. For resources that hold no data.
pub(super) async fn admit_hosts(
    State(guard): State<Arc<AccessGuard>>,
    request: Request,
    next: Next,
) -> Response {
    match check_host(&guard.rights, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => guard.refuse(&LoggedRequest::of(&request), refused, Right::Read),
    }
}

/// Runs the handler with a timeout, and forbids caching of the response.
async fn answer(next: Next, request: Request<Body>) -> Response {
    let mut response = match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let why = format!("no response within {TIMEOUT:?}");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Checks the host, and returns the client if it has the `wanted` right.
fn admit(
    rights: &AdminRights,
    request: &Request,
    wanted: Right,
) -> Result<AdmittedClient, Refused> {
    check_host(rights, request.headers())?;
    let bearer = request
        .headers()
        .get(header::AUTHORIZATION)
        .map(|value| value.to_str().unwrap_or_default());
    let shown = bearer.map(|value| value.strip_prefix("Bearer ").unwrap_or_default());
    let peer = request.extensions().get::<AdminPeer>().and_then(|peer| peer.name.clone());
    let known = match (shown, peer) {
        (Some(secret), _) => rights.of_secret(secret.trim()),
        // A certificate of the configured authority grants all rights.
        (None, Some(name)) => Some((name, Right::Write)),
        (None, None) => rights.anonymous().map(|right| ("loopback".to_owned(), right)),
    };
    // A port that needs no token does not refuse clients that send an unknown one.
    let known = known.or_else(|| rights.anonymous().map(|right| ("loopback".to_owned(), right)));
    match known {
        Some((name, right)) if right >= wanted => Ok(AdmittedClient { name, right }),
        Some((name, _)) => Err((
            HttpRefusal::ReadOnly,
            ApiError::new(StatusCode::FORBIDDEN, format!("`{name}` has read access only")),
        )),
        None if shown.is_some_and(|secret| !secret.is_empty()) => {
            let why = "unknown token; use one from --admin-token-file";
            Err((HttpRefusal::UnknownToken, ApiError::new(StatusCode::UNAUTHORIZED, why)))
        }
        None => {
            let why = "token required: send `Authorization: Bearer …`; see --admin-token-file";
            Err((HttpRefusal::NoToken, ApiError::new(StatusCode::UNAUTHORIZED, why)))
        }
    }
}

/// Checks the `Host` header on a port that needs no token. Only IP addresses and `localhost` are
/// allowed, since DNS rebinding cannot redirect them.
fn check_host(rights: &AdminRights, headers: &HeaderMap) -> Result<(), Refused> {
    let host = text_of(headers, header::HOST);
    if !rights.checks_host || is_of_this_machine(host) {
        return Ok(());
    }
    let host = excerpt(host, MAX_LOGGED);
    let why = format!(
        "host `{host}` is not allowed; use 127.0.0.1 or localhost, or set --admin-token-file"
    );
    Err((HttpRefusal::Host, ApiError::new(StatusCode::MISDIRECTED_REQUEST, why)))
}

/// Returns the value of a header; empty if it is missing or no ASCII text.
fn text_of(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_of_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Refuses requests of browsers to a port without tokens by name: the page of another site can let
/// its own name resolve to this address (DNS rebinding). Other clients may use any name.
pub(super) async fn check_browsers(
    State(metrics): State<Arc<HttpMetrics>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    // Over plain HTTP, browsers send neither of the former with a GET.
    let is_browser = headers.contains_key(header::ORIGIN)
        || headers.contains_key("sec-fetch-site")
        || text_of(headers, header::USER_AGENT).starts_with("Mozilla/");
    if !is_browser || is_of_this_machine(text_of(headers, header::HOST)) {
        return next.run(request).await;
    }
    metrics.refused(HttpPort::Public, HttpRefusal::Host);
    let why = "browsers must use an IP address or localhost in place of this host name";
    HttpProblem::new(StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Checks for a header that a browser does not send across origins without a preflight request,
/// which this port never allows.
fn check_deliberate(headers: &HeaderMap) -> Result<(), Refused> {
    let is_json = text_of(headers, header::CONTENT_TYPE)
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if is_json || headers.contains_key("x-tollgate") {
        Ok(())
    } else {
        let why = "a write requires `Content-Type: application/json` or a header `X-Tollgate`";
        Err((HttpRefusal::ContentType, ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)))
    }
}

/// Refuses requests that a browser sent for a page of another origin, judging by the headers with
/// which browsers mark them. Other clients send neither header.
///
/// # Errors
/// The header that shows another origin.
pub(super) fn check_same_origin(headers: &HeaderMap) -> Result<(), CrossOrigin> {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes).unwrap_or_default();
    if site.eq_ignore_ascii_case(b"cross-site") || site.eq_ignore_ascii_case(b"same-site") {
        return Err(CrossOrigin("Sec-Fetch-Site"));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = String::from_utf8_lossy(origin.as_bytes());
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_own = origin.split_once("://").is_some_and(|(_, authority)| {
        authority.eq_ignore_ascii_case(&String::from_utf8_lossy(host))
    });
    if is_own { Ok(()) } else { Err(CrossOrigin("Origin")) }
}

/// The header by which a request is refused as one of another origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cross-origin request refused ({0})")]
pub(super) struct CrossOrigin(&'static str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_of_this_machine_by_address_or_as_localhost() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:6070",
            "localhost:6070",
            "LOCALHOST",
            "[::1]:6070",
            "[::1]",
            "10.0.0.7:80",
        ] {
            assert!(is_of_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:6070",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            ":6070",
        ] {
            assert!(!is_of_this_machine(host), "{host}");
        }
    }
}
