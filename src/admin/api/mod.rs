//! The API of administration, `/api/v1`: JSON, described by `/api/v1/openapi.json`.
//!
//! Handlers are thin: they read a question, ask whoever knows, and write the answer in types of their own, which are the
//! contract and change only on purpose.

pub mod ask;
pub mod counter;
pub mod denials;
pub mod me;
pub mod policies;
pub mod rules;
pub mod store;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{IntoParams, OpenApi as _, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Facts;
use super::desk::Desk;
use super::guard;
use super::rights::Rights;
use crate::journal::Journal;
use crate::journal::rates::Rates;
use crate::limiter::InForce;

/// Where the document is.
pub const DOCUMENT: &str = "/api/v1/openapi.json";
/// Bytes of a request's body.
const MAX_BODY: usize = 64 * 1024;
/// Results of one answer, unless asked for fewer, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

/// What the API answers from.
#[derive(Clone)]
pub struct Api {
    /// What the process says of itself.
    pub facts: Arc<Facts>,
    /// The policies in force.
    pub policies: Arc<InForce>,
    /// Who was denied.
    pub journal: Arc<Journal>,
    /// How much rules decide.
    pub rates: Arc<Mutex<Rates>>,
    /// Who knows the rest.
    pub desk: Arc<dyn Desk>,
    /// When the process began.
    pub begun: Timestamp,
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It makes no sense.
    Invalid(String),
    /// Nobody knows who asks.
    Unknown,
    /// They showed a token that is none.
    UnknownToken,
    /// They may not.
    Forbidden(String),
    /// There is no such thing.
    NotFound(String),
    /// It cannot be here.
    Conflict(String),
    /// It came to the wrong place.
    Misdirected(String),
    /// It is not in a form that is taken.
    Unsupported(String),
    /// It was understood and cannot be done: a report.
    Unprocessable(String),
    /// Nobody could answer.
    Unavailable(String),
}

/// Why a request is not answered.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// In words.
    pub error: String,
}

/// Which part of a long answer is wanted.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Results at most, up to 1000; 100 unless given.
    limit: Option<usize>,
    /// Results to pass over.
    offset: Option<usize>,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Tollgate administration", description = "What is limited now, who is denied, and why."),
    security((), ("token" = []))
)]
struct Document;

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unknown | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Unknown => "a token is needed: `Authorization: Bearer …`, see --admin-token-file",
            Self::UnknownToken => "the token that was shown is not known here: is it one of --admin-token-file?",
            Self::Invalid(text)
            | Self::Forbidden(text)
            | Self::NotFound(text)
            | Self::Conflict(text)
            | Self::Misdirected(text)
            | Self::Unsupported(text)
            | Self::Unprocessable(text)
            | Self::Unavailable(text) => text,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let problem = Json(Problem { error: self.text().to_owned() });
        if matches!(self, Self::Unknown | Self::UnknownToken) {
            return (self.status(), [(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response();
        }
        (self.status(), problem).into_response()
    }
}

impl Page {
    /// That part of `all`.
    fn of<T>(self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        let limit = self.limit.unwrap_or(PAGE).min(MAX_PAGE);
        all.into_iter().skip(self.offset.unwrap_or_default()).take(limit).collect()
    }
}

/// All routes, guarded by `rights`.
pub(super) fn router(api: Api, rights: &Arc<Rights>) -> Router {
    let guarded = |router: OpenApiRouter<Api>| router.layer(DefaultBodyLimit::max(MAX_BODY));
    let reads = guarded(reads()).route_layer(middleware::from_fn_with_state(Arc::clone(rights), guard::reads));
    let writes = guarded(writes()).route_layer(middleware::from_fn_with_state(Arc::clone(rights), guard::writes));
    let (router, document) =
        OpenApiRouter::with_openapi(Document::openapi()).merge(reads).merge(writes).split_for_parts();
    let text = serde_json::to_string(&finished(document)).unwrap_or_else(|error| error.to_string());
    let show = get(move || async move { ([(header::CONTENT_TYPE, "application/json")], text) });
    let show = show.route_layer(middleware::from_fn_with_state(Arc::clone(rights), guard::reads));
    router.with_state(api).route(DOCUMENT, show)
}

/// What changes nothing. `try` is a POST since what it asks is long.
fn reads() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(store::status))
        .routes(routes!(store::store))
        .routes(routes!(policies::policies))
        .routes(routes!(policies::reloads))
        .routes(routes!(me::me))
        .routes(routes!(rules::rules))
        .routes(routes!(denials::top))
        .routes(routes!(denials::denials))
        .routes(routes!(ask::explain))
        .routes(routes!(ask::who))
        .routes(routes!(ask::peek))
        .routes(routes!(counter::counter))
}

/// What changes something. Each says what it does ([`super::desk::Deed`]).
fn writes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(policies::reload))
        .routes(routes!(counter::reset))
        .routes(routes!(counter::refund))
        .routes(routes!(counter::grant))
}

/// The document, with how to show a token.
fn finished(mut document: OpenApi) -> OpenApi {
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("token", bearer);
    document
}

/// An instant as RFC 3339, to the microsecond.
pub fn rfc3339(at: crate::algorithm::time::Timestamp) -> String {
    let us = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::MAX).to_string()
}
