//! The admin API, `/api/v1`: JSON, described by `/api/v1/openapi.json`.
//!
//! Handlers are thin: they parse a request, call the module that has the data, and convert the
//! result to types of their own. Those types are the contract of the API and change only on
//! purpose.

pub mod ahead;
pub mod counter;
pub mod denials;
pub mod error;
pub mod me;
pub mod open_holds;
pub mod policies;
pub mod queries;
pub mod replicas;
pub mod rules;
pub mod state;
pub mod store;
pub mod undecided;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::routing::get;
use axum::{Router, middleware};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{IntoParams, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::error::{ApiError, ErrorBody};
use super::guard::{self, AccessGuard};
use crate::limiter::InForce;
use crate::operations::process_state::ProcessState;
use crate::operations::{Backend, Operations};
use crate::telemetry::journal::Journal;
use crate::telemetry::journal::rates::Rates;
use crate::telemetry::journal::undecided::UndecidedWindow;
use crate::telemetry::metrics::Metrics;

/// Path of the OpenAPI document.
pub const DOCUMENT: &str = "/api/v1/openapi.json";
/// Maximum size of a request body in bytes.
const MAX_BODY: usize = 64 * 1024;
/// Default and maximum number of results per page.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

/// State of the API.
#[derive(Clone)]
pub struct Api<B> {
    /// State of the process.
    pub process: Arc<ProcessState>,
    /// The policies in force.
    pub policies: Arc<InForce>,
    /// The journal of denials.
    pub journal: Arc<Journal>,
    /// Rates of the rules.
    pub rates: Arc<Mutex<Rates>>,
    /// Store errors of the last ten seconds.
    pub undecided: Arc<Mutex<UndecidedWindow>>,
    /// Host name of this replica.
    pub instance: Arc<str>,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Operations on the stores and the policies.
    pub operations: Arc<Operations<B>>,
    /// Start time of the process.
    pub begun: Timestamp,
}

/// A page of a long result.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Maximum number of results: up to 1000, 100 by default.
    limit: Option<usize>,
    /// Number of results to skip.
    offset: Option<usize>,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Tollgate administration", description = "Limits, denials, counters and policies."),
    security((), ("token" = []))
)]
struct Document;

impl PageQuery {
    /// Returns this page of `all`.
    fn of<T>(self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        let limit = self.limit.unwrap_or(PAGE).min(MAX_PAGE);
        all.into_iter().skip(self.offset.unwrap_or_default()).take(limit).collect()
    }
}

/// Builds the router of all routes, behind `guard`.
pub(super) fn router<B: Backend>(api: Api<B>, guard: &Arc<AccessGuard>) -> Router {
    let reads = reads()
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .route_layer(middleware::from_fn_with_state(Arc::clone(guard), guard::admit_reads));
    let writes = writes()
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .route_layer(middleware::from_fn_with_state(Arc::clone(guard), guard::admit_writes));
    let (router, document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(reads)
        .merge(writes)
        .split_for_parts();
    let text = serde_json::to_string(&finished(document)).unwrap_or_else(|error| error.to_string());
    let show = get(move || async move { ([(header::CONTENT_TYPE, "application/json")], text) });
    let show =
        show.route_layer(middleware::from_fn_with_state(Arc::clone(guard), guard::admit_reads));
    router.with_state(api).route(DOCUMENT, show)
}

/// Returns the routes that change nothing. `try` is a POST since its request does not fit in a
/// query string.
fn reads<B: Backend>() -> OpenApiRouter<Api<B>> {
    OpenApiRouter::new()
        .routes(routes!(store::status))
        .routes(routes!(store::store))
        .routes(routes!(replicas::replicas))
        .routes(routes!(policies::policies))
        .routes(routes!(policies::reloads))
        .routes(routes!(me::me))
        .routes(routes!(rules::rules))
        .routes(routes!(denials::top))
        .routes(routes!(denials::denials))
        .routes(routes!(queries::explain))
        .routes(routes!(queries::who))
        .routes(routes!(queries::peek))
        .routes(routes!(counter::counter))
}

/// Returns the routes that make changes. Each handler adds details for the audit log to
/// [`crate::operations::audit::AuditEntry`].
fn writes<B: Backend>() -> OpenApiRouter<Api<B>> {
    OpenApiRouter::new()
        .routes(routes!(policies::reload))
        .routes(routes!(counter::reset))
        .routes(routes!(counter::refund))
        .routes(routes!(counter::grant))
        .routes(routes!(ahead::reset_ahead))
}

/// Adds the authentication scheme to the document.
fn finished(mut document: OpenApi) -> OpenApi {
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("token", bearer);
    document
}

/// Formats an instant as RFC 3339, to the microsecond.
pub fn rfc3339(at: crate::algorithm::time::Timestamp) -> String {
    let us = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::MAX).to_string()
}
