//! HTTP: probes, metrics and decisions for machines; for people, what is in force, what is decided, and why. The only room that
//! serves HTTP.
//!
//! | file | what it knows |
//! |---|---|
//! | `facts` | whether the process should be asked, and the policies in force |
//! | [`loads`] | the last loads of policies |
//! | `decide` | decisions in JSON |
//! | [`api`], [`desk`] | the API of administration, and whom it asks |
//! | [`rights`], `guard` | who may do what there, and what every request has to pass |
//! | `page` | the page, for browsers |
//! | [`server`] | the loop that serves connections |
//! | `connections`, `deadline` | how many there may be, which gives way, and which are cut |

pub mod api;
mod connections;
mod deadline;
mod decide;
pub mod desk;
mod facts;
mod guard;
pub mod loads;
mod page;
pub mod rights;
pub mod server;

use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router, middleware};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use self::api::Api;
pub use self::decide::{Decide, Decided};
pub use self::facts::{Facts, Needs, PolicyFacts, Readiness, StoreState};
use self::rights::Rights;
use self::server::Handshake;
use crate::telemetry::mapping::Exposition;
use crate::telemetry::metrics::Metrics;

/// What a reader that asks for it, as Prometheus does, is given.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What any other is given.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Time for which a reader of metrics waits for others.
const RENDER_WAIT: Duration = Duration::from_secs(5);

/// Connections at once to what machines ask, and to administration.
const PUBLIC_CONNECTIONS: usize = 512;
const ADMIN_CONNECTIONS: usize = 256;

/// What administration shows, and to whom.
pub struct Administration {
    /// What the API answers from.
    pub api: Api,
    /// Pages of text.
    pub pages: Vec<Page>,
    /// Who may do what.
    pub rights: Arc<Rights>,
    /// Speaks TLS, where it shall.
    pub handshake: Option<Handshake>,
}

/// A page of administration: plain text, made anew whenever it is asked for.
#[derive(Clone)]
pub struct Page {
    /// Where it is, with a slash in front.
    pub path: &'static str,
    /// What it shows, in a line.
    pub help: &'static str,
    /// Its text. May take its time: nobody else waits for it.
    pub text: Arc<dyn Fn() -> String + Send + Sync>,
}

/// Serves probes, metrics and decisions until `shutdown`.
pub async fn serve_public(
    listener: TcpListener,
    facts: Arc<Facts>,
    metrics: Arc<Metrics>,
    decide: Decide,
    shutdown: impl Future<Output = ()>,
) {
    const ELSEWHERE: &str = "not here; there are /livez, /readyz, /healthcheck, /metrics and /json\n";
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(Arc::clone(&facts)))
        .route("/healthcheck", any(healthcheck).with_state(facts))
        .route("/metrics", get(render).with_state(Rendering { metrics, turn: Arc::new(Semaphore::new(1)) }))
        .route("/json", any(decide::answer).with_state(decide))
        .fallback(|| async { (StatusCode::NOT_FOUND, ELSEWHERE) });
    server::serve(listener, router, PUBLIC_CONNECTIONS, None, shutdown).await;
}

/// Serves the statistics of envoyproxy/ratelimit at `path` until `shutdown`.
pub async fn serve_stats(
    listener: TcpListener,
    path: String,
    exposition: Arc<Exposition>,
    shutdown: impl Future<Output = ()>,
) {
    let text = |State(exposition): State<Arc<Exposition>>| async move {
        ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], exposition.render())
    };
    let router = Router::new().route(&path, get(text).with_state(exposition));
    server::serve(listener, router, PUBLIC_CONNECTIONS, None, shutdown).await;
}

/// Serves administration until `shutdown`: pages, the policies in force, a list of all that is there, and the API.
pub async fn serve_admin(listener: TcpListener, administration: Administration, shutdown: impl Future<Output = ()>) {
    let Administration { api, pages, rights, handshake } = administration;
    let (list, front) = (list_of(&pages), page::Front::new());
    let mut shown = Router::new().route("/policies", get(policies).with_state(Arc::clone(&api.facts)));
    for page in pages {
        shown = shown.route(page.path, any(show).with_state(page));
    }
    let guarded =
        |router: Router| router.route_layer(middleware::from_fn_with_state(Arc::clone(&rights), guard::pages));
    let root = guarded(Router::new().route("/", any(|| async { list })));
    let open = root
        .route_layer(middleware::from_fn_with_state(front.clone(), page::instead))
        .merge(front.files())
        .route_layer(middleware::from_fn_with_state(Arc::clone(&rights), guard::hosts));
    let router = guarded(shown)
        .merge(open)
        .merge(api::router(api, &rights))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not here; / lists what is\n") });
    server::serve(listener, router, ADMIN_CONNECTIONS, handshake, shutdown).await;
}

/// A line for each path.
fn list_of(pages: &[Page]) -> String {
    let own = [
        ("/", "this list; for browsers a page"),
        ("/policies", "the policies in force and the last change that was refused, as JSON"),
        (api::DOCUMENT, "what the API below /api/v1 can be asked"),
    ];
    let mut lines: Vec<_> = pages.iter().map(|page| (page.path, page.help)).chain(own).collect();
    lines.sort_unstable();
    lines.into_iter().fold(String::new(), |mut list, (path, help)| {
        let _ = writeln!(list, "{path}: {help}");
        list
    })
}

async fn ready(State(facts): State<Arc<Facts>>) -> Response {
    match facts.unready() {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason).into_response(),
    }
}

/// The same in the words of envoyproxy/ratelimit.
async fn healthcheck(State(facts): State<Arc<Facts>>) -> Response {
    match facts.unready() {
        None => "OK".into_response(),
        Some(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Metrics, which are rendered for one reader at a time.
#[derive(Clone)]
struct Rendering {
    metrics: Arc<Metrics>,
    turn: Arc<Semaphore>,
}

async fn render(State(rendering): State<Rendering>, headers: HeaderMap) -> Response {
    let Rendering { metrics, turn } = rendering;
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accepted| accepted.to_str().ok());
    let is_open = accepted.any(|accepted| accepted.contains("application/openmetrics-text"));
    let format = if is_open { OPEN_METRICS } else { PROMETHEUS_TEXT };
    let Ok(Ok(turn)) = tokio::time::timeout(RENDER_WAIT, turn.acquire_owned()).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "others are reading the metrics\n").into_response();
    };
    // Not on the thread that answers probes. The turn ends with the task, not with a reader who hangs up before.
    let rendered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        if is_open { metrics.render() } else { metrics.render_plain() }
    });
    let text = match rendered.await {
        Ok(text) => text,
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, format)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn policies(State(facts): State<Arc<Facts>>) -> Json<PolicyFacts> {
    Json(facts.policies())
}

async fn show(State(page): State<Page>) -> Response {
    match tokio::task::spawn_blocking(move || (page.text)()).await {
        Ok(text) => text.into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
