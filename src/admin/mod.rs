//! The HTTP servers: probes, metrics and decisions for machines; the admin API and page for
//! operators. The only module that serves HTTP.
//!
//! | file | contents |
//! |---|---|
//! | `decide` | decisions in JSON |
//! | `forward_auth` | decisions for gateways, at `/auth/NAME` |
//! | [`api`] | the admin API |
//! | [`rights`], `guard` | rights on the admin port, and the checks that every request passes |
//! | `page` | the admin page for browsers |
//! | `accept` | media types that a client accepts |
//! | `render` | rendering of expensive texts |
//! | [`server`] | the loop that serves connections |
//! | `connections`, `deadline` | bounds: number of connections, eviction, write timeouts |

mod accept;
pub mod api;
mod connections;
mod deadline;
mod decide;
mod forward_auth;
mod guard;
mod page;
mod render;
pub mod rights;
pub mod server;

use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router, middleware};
use tokio::net::TcpListener;

use self::accept::accepts;
use self::api::Api;
pub use self::decide::{Decide, DecidePath, Decided};
pub use self::forward_auth::{ForwardAuth, ForwardedRequest};
use self::guard::AccessGuard;
use self::render::Renderer;
use self::rights::AdminRights;
use self::server::{AdminHandshake, HttpServer};
use crate::operations::Backend;
use crate::operations::process_state::ProcessState;
use crate::telemetry::http::{HttpMetrics, HttpPort};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::statistics::mapping::Exposition;

/// Content type for clients that accept OpenMetrics, such as Prometheus.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Path of the OpenAPI document of the public port.
const OPENAPI: &str = "/openapi.json";
/// Content type for all other clients.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Maximum number of concurrent connections to the public port, if file descriptors allow it.
pub const PUBLIC_CONNECTIONS: usize = 512;
/// Maximum number of concurrent connections to the admin port, if file descriptors allow it.
pub const ADMIN_CONNECTIONS: usize = 256;
/// See [`PUBLIC_CONNECTIONS`]. Only Prometheus reads there.
pub const STATS_CONNECTIONS: usize = 64;
/// Bytes of the heads of requests that all these connections hold at most.
pub const ALL_HEADS: usize =
    (PUBLIC_CONNECTIONS + ADMIN_CONNECTIONS + STATS_CONNECTIONS) * server::HEAD_BYTES;

/// The contents and the access rules of the admin port.
pub struct Administration<B> {
    /// State of the API.
    pub api: Api<B>,
    /// Plain-text pages.
    pub pages: Vec<PlainPage>,
    /// Rights of clients.
    pub rights: Arc<AdminRights>,
    /// Metrics of connections and refusals.
    pub metrics: Arc<HttpMetrics>,
    /// Maximum number of concurrent connections.
    pub connections: usize,
    /// TLS handshake; `None` for plaintext.
    pub handshake: Option<AdminHandshake>,
}

/// The handlers of decisions on the public port.
pub struct PublicDecisions {
    /// Requests in JSON.
    pub decide: Decide,
    /// Requests of gateways.
    pub auth: ForwardAuth,
    /// OpenAPI document of both.
    pub document: String,
}

/// A plain-text page of the admin port, rendered for each request.
#[derive(Clone)]
pub struct PlainPage {
    /// Path, with a leading slash.
    pub path: &'static str,
    /// Description in one line.
    pub help: &'static str,
    /// Renders the text. May be slow: it runs on a blocking thread.
    pub text: Arc<dyn Fn() -> String + Send + Sync>,
}

/// Serves probes, metrics and decisions until `shutdown` completes.
pub async fn serve_public(
    listener: TcpListener,
    connections: usize,
    process: Arc<ProcessState>,
    metrics: Arc<Metrics>,
    PublicDecisions { decide, auth, document }: PublicDecisions,
    shutdown: impl Future<Output = ()>,
) {
    const ELSEWHERE: &str = "not found; available: /livez, /readyz, /healthcheck, /metrics, /json, /json/reserve, \
         /json/extend, /json/commit, /json/cancel, /json/exchange, /auth/NAME, /openapi.json\n";
    let rendering = Rendering::new(HttpPort::Public, &metrics.http, Arc::clone(&metrics));
    let mut router = Router::new().route("/metrics", get(render).with_state(rendering));
    let metrics = Arc::clone(&metrics.http);
    let decide = decide.counted_by(&metrics);
    for path in DecidePath::ALL {
        let state = (path, decide.clone());
        router = router.route(path.path(), any(decide::answer).with_state(state));
    }
    // Probes may come by any name, also from services that call themselves Mozilla, and a gateway
    // passes on the headers of browsers.
    let router = router
        .layer(middleware::from_fn_with_state(Arc::clone(&metrics), guard::check_browsers))
        .route(
            OPENAPI,
            get(move || async move { ([(header::CONTENT_TYPE, "application/json")], document) }),
        )
        .route("/auth/{name}", any(forward_auth::answer).with_state(auth))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(Arc::clone(&process)))
        .route("/healthcheck", any(healthcheck).with_state(process))
        .fallback(|| async { (StatusCode::NOT_FOUND, ELSEWHERE) });
    let port = HttpPort::Public;
    HttpServer { listener, port, connections, handshake: None, metrics }
        .serve(router, shutdown)
        .await;
}

/// Serves the statistics of envoyproxy/ratelimit at `path` until `shutdown` completes.
pub async fn serve_stats(
    listener: TcpListener,
    connections: usize,
    path: String,
    exposition: Arc<Exposition>,
    metrics: Arc<HttpMetrics>,
    shutdown: impl Future<Output = ()>,
) {
    let port = HttpPort::Stats;
    let router = Router::new()
        .route(&path, get(statistics).with_state(Rendering::new(port, &metrics, exposition)));
    HttpServer { listener, port, connections, handshake: None, metrics }
        .serve(router, shutdown)
        .await;
}

/// Serves the admin port until `shutdown` completes: pages, the policies in force, an index of all
/// paths, and the API.
pub async fn serve_admin<B: Backend>(
    listener: TcpListener,
    administration: Administration<B>,
    shutdown: impl Future<Output = ()>,
) {
    let Administration { api, pages, rights, metrics, connections, handshake } = administration;
    let list = list_of(&pages);
    let front = page::AdminPage::new();
    let port = HttpPort::Admin;
    let renderer = Renderer::new(port, Arc::clone(&metrics));
    let process = Rendering { renderer: renderer.clone(), source: Arc::clone(&api.process) };
    let mut shown = Router::new().route("/policies", get(policies).with_state(process));
    for page in pages {
        shown = shown.route(
            page.path,
            any(show).with_state(Rendering { renderer: renderer.clone(), source: page }),
        );
    }
    let guard = AccessGuard::new(rights, Arc::clone(&metrics));
    let root = Router::new().route("/", any(|| async { list }));
    let open = guarded(root, &guard)
        .route_layer(middleware::from_fn_with_state(front.clone(), page::serve_page))
        .merge(front.files())
        .route_layer(middleware::from_fn_with_state(Arc::clone(&guard), guard::admit_hosts));
    let router = guarded(shown, &guard)
        .merge(open)
        .merge(api::router(api, &guard))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found; / lists all paths\n") });
    HttpServer { listener, port, connections, handshake, metrics }.serve(router, shutdown).await;
}

/// Returns the routes of pages, for clients that may see them.
fn guarded(pages: Router, guard: &Arc<AccessGuard>) -> Router {
    pages.route_layer(middleware::from_fn_with_state(Arc::clone(guard), guard::admit_pages))
}

/// Returns an index with one line per path.
fn list_of(pages: &[PlainPage]) -> String {
    let own = [
        ("/", "this list; in browsers, the admin page"),
        ("/policies", "the policies in force and the last rejected change, as JSON"),
        (api::DOCUMENT, "OpenAPI document of the API at /api/v1"),
    ];
    let mut lines: Vec<_> = pages.iter().map(|page| (page.path, page.help)).chain(own).collect();
    lines.sort_unstable();
    lines.into_iter().fold(String::new(), |mut list, (path, help)| {
        let _ = writeln!(list, "{path}: {help}");
        list
    })
}

async fn ready(State(process): State<Arc<ProcessState>>) -> Response {
    match process.not_ready_reason() {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason).into_response(),
    }
}

/// Reports readiness with the bodies and status codes of envoyproxy/ratelimit.
async fn healthcheck(State(process): State<Arc<ProcessState>>) -> Response {
    match process.not_ready_reason() {
        None => "OK".into_response(),
        Some(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A source of texts, with the renderer that runs it for one client at a time.
#[derive(Clone)]
struct Rendering<T> {
    renderer: Renderer,
    source: T,
}

impl<T> Rendering<T> {
    fn new(port: HttpPort, metrics: &Arc<HttpMetrics>, source: T) -> Self {
        Self { renderer: Renderer::new(port, Arc::clone(metrics)), source }
    }
}

async fn render(
    State(Rendering { renderer, source }): State<Rendering<Arc<Metrics>>>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let is_open = accepts(&headers, "application/openmetrics-text");
    let format = if is_open { OPEN_METRICS } else { PROMETHEUS_TEXT };
    let text = renderer
        .render(move || if is_open { source.render() } else { source.render_plain() })
        .await?;
    Ok(([(header::CONTENT_TYPE, format)], text).into_response())
}

async fn statistics(
    State(Rendering { renderer, source }): State<Rendering<Arc<Exposition>>>,
) -> Result<Response, Response> {
    let text = renderer.render(move || source.render()).await?;
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response())
}

async fn policies(
    State(Rendering { renderer, source }): State<Rendering<Arc<ProcessState>>>,
) -> Result<Response, Response> {
    renderer.render(move || Json(source.policies()).into_response()).await
}

async fn show(
    State(Rendering { renderer, source }): State<Rendering<PlainPage>>,
) -> Result<String, Response> {
    renderer.render(move || (source.text)()).await
}
