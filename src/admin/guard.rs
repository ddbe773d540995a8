//! What a request to the admin port has to pass: where it is for, who asks and what they may, and, of writes, that no page of
//! elsewhere sent it. Every write is told in the log, target `audit`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{info, warn};

use super::api::Refusal;
use super::desk::Deed;
use super::rights::{Right, Rights};
use super::server::Peer;

/// Time for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Who {
    /// As the audit log calls them.
    pub(super) name: String,
    pub(super) right: Right,
}

/// Lets in who may read, whom the request then names in its extensions.
pub(super) async fn reads(State(rights): State<Arc<Rights>>, mut request: Request, next: Next) -> Response {
    match admit(&rights, &request, Right::Read) {
        Ok(who) => {
            request.extensions_mut().insert(who);
            answer(next, request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Lets in who may see pages.
pub(super) async fn pages(State(rights): State<Arc<Rights>>, request: Request, next: Next) -> Response {
    let admitted = match rights.open_pages {
        true => Ok(()),
        false => admit(&rights, &request, Right::Read).map(drop),
    };
    match admitted.and_then(|()| check_host(&rights, request.headers())) {
        Ok(()) => answer(next, request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Lets in who may write, and tells of it.
pub(super) async fn writes(State(rights): State<Arc<Rights>>, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let admitted = admit(&rights, &request, Right::Write).and_then(|who| {
        is_deliberate(request.headers())?;
        same_site(request.headers()).map_err(Refusal::Forbidden)?;
        Ok(who)
    });
    match admitted {
        Ok(Who { name: who, .. }) => {
            let deed = Deed::default();
            request.extensions_mut().insert(deed.clone());
            // By a task of its own: what somebody begins who then hangs up is done all the same, and has to be told.
            let answered = tokio::spawn(async move {
                let response = answer(next, request).await;
                let (status, done) = (response.status().as_u16(), deed.text());
                info!(target: "audit", who, %method, path, status, done, "audit: a write");
                response
            });
            answered.await.unwrap_or_else(|_| Refusal::Unavailable("the answer was lost".to_owned()).into_response())
        }
        Err(refusal) => {
            warn!(target: "audit", %method, path, status = refusal.status().as_u16(), why = refusal.text(), "audit: a write is refused");
            refusal.into_response()
        }
    }
}

/// Lets in everybody who asks for this machine: for what holds no data.
pub(super) async fn hosts(State(rights): State<Arc<Rights>>, request: Request, next: Next) -> Response {
    match check_host(&rights, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Answers within a bounded time, for this reader alone.
async fn answer(next: Next, request: Request<Body>) -> Response {
    let mut response = match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Refusal::Unavailable(format!("no answer within {TIMEOUT:?}")).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Who asks, where they may.
fn admit(rights: &Rights, request: &Request, wanted: Right) -> Result<Who, Refusal> {
    check_host(rights, request.headers())?;
    let bearer = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    let shown = bearer.map(|value| value.strip_prefix("Bearer ").unwrap_or_default());
    let peer = request.extensions().get::<Peer>().and_then(|peer| peer.0.clone());
    let known = match (shown, peer) {
        (Some(secret), _) => rights.of_secret(secret.trim()),
        // Who has a certificate of the authority that was given may do everything.
        (None, Some(name)) => Some((name, Right::Write)),
        (None, None) => rights.of_stranger().map(|right| ("loopback".to_owned(), right)),
    };
    // On a port that needs no token, one that is shown all the same is no reason to be refused.
    let known = known.or_else(|| rights.of_stranger().map(|right| ("loopback".to_owned(), right)));
    match known {
        Some((name, right)) if right >= wanted => Ok(Who { name, right }),
        Some((name, _)) => Err(Refusal::Forbidden(format!("`{name}` may read and not write"))),
        None if shown.is_some_and(|secret| !secret.is_empty()) => Err(Refusal::UnknownToken),
        None => Err(Refusal::Unknown),
    }
}

/// On a port that needs no token: only names that cannot lead elsewhere tomorrow, against DNS rebinding.
fn check_host(rights: &Rights, headers: &HeaderMap) -> Result<(), Refusal> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !rights.checks_host || is_of_this_machine(host) {
        return Ok(());
    }
    Err(Refusal::Misdirected(format!(
        "`{host}` is not known here; use 127.0.0.1 or localhost, or set --admin-token-file"
    )))
}

fn is_of_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// A browser sends neither of these across sites without asking first, which nobody here would allow.
fn is_deliberate(headers: &HeaderMap) -> Result<(), Refusal> {
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_json = content.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    match is_json || headers.contains_key("x-tollgate") {
        true => Ok(()),
        false => Err(Refusal::Unsupported(
            "a write has `Content-Type: application/json`, or a header `X-Tollgate`".to_owned(),
        )),
    }
}

/// Refuses what a browser sends for a page of elsewhere, by the headers with which browsers mark such requests. Other clients
/// send neither.
///
/// # Errors
/// Where the page is from.
pub(super) fn same_site(headers: &HeaderMap) -> Result<(), String> {
    let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    if let Some(site) = text("sec-fetch-site")
        && (site.eq_ignore_ascii_case("cross-site") || site.eq_ignore_ascii_case("same-site"))
    {
        return Err("a page of another origin sent this request (Sec-Fetch-Site)".to_owned());
    }
    let Some(origin) = text("origin") else { return Ok(()) };
    let host = text("host").unwrap_or_default();
    let is_own = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(&host));
    if is_own { Ok(()) } else { Err("a page of another origin sent this request (Origin)".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_of_this_machine_by_address_or_as_localhost() {
        for host in ["127.0.0.1", "127.0.0.1:6070", "localhost:6070", "LOCALHOST", "[::1]:6070", "[::1]", "10.0.0.7:80"]
        {
            assert!(is_of_this_machine(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:6070", "localhost.evil.example", "127.0.0.1.evil.example", ":6070"]
        {
            assert!(!is_of_this_machine(host), "{host}");
        }
    }
}
