//! Questions about one descriptor or request: which rule and why, what would be answered, who used it up.

use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Api, Problem, Refusal};
use crate::journal::key::read_text;
use crate::policy::explain;

/// A descriptor of a domain.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The domain.
    pub(super) domain: String,
    /// The descriptor, `key=value,key=value`.
    pub(super) descriptor: String,
}

/// Why a descriptor hits the rule that it hits.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The version of the policies in force.
    pub version: String,
    /// The path of the rule; absent where none is hit.
    pub rule: Option<String>,
    /// Each step, what was tried, and the limit, as `tollgate explain` tells it.
    pub text: String,
}

/// A request to try.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The domain.
    pub domain: String,
    /// Its descriptors.
    pub descriptors: Vec<Tried>,
}

/// A descriptor to try.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    /// Its entries, in order.
    pub entries: Vec<EntryView>,
    /// Hits that it would take; 1 unless given. 0 is a peek.
    #[serde(default = "one")]
    pub hits: u32,
}

/// An entry of a descriptor.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryView {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
}

/// What a request would be answered now. Nothing was written for it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Peeked {
    /// Whether it would be admitted, as far as the counters say now. Hits that a process has taken in advance (`lease`) are used
    /// already.
    pub would_admit: bool,
    /// One for each descriptor.
    pub statuses: Vec<PeekedStatus>,
}

/// What a descriptor would be answered now.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PeekedStatus {
    /// The path of the rule; absent where none applies.
    pub rule: Option<String>,
    /// `no limit`, `unlimited`, `room`, `no room`, `watched` (no room, and the rule is in shadow mode), `unknown` (the store cannot
    /// say). A request can be admitted without room, by a mode of the process or by other votes: `would_admit` has it.
    pub standing: String,
    /// The amount of the limit's window that binds.
    pub limit: Option<u32>,
    /// Hits that a request would be admitted with, before those of this one: they are taken whole from the limit or from a grant, so
    /// the more of the two.
    pub remaining: Option<u64>,
    /// Microseconds until the counter is as if never used.
    pub reset_after_us: Option<u64>,
}

/// Who used a counter up.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Who {
    /// The path of the rule.
    pub rule: String,
    /// Those who used most first.
    pub tallies: Vec<TallyView>,
}

/// What one of them used.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TallyView {
    /// `key=value` of the request; absent: all that are not named.
    pub who: Option<String>,
    /// Hits that were charged.
    pub charged: u64,
    /// Hits that were denied.
    pub denied: u64,
}

fn one() -> u32 {
    1
}

/// Which rule a descriptor hits, and why.
#[utoipa::path(
    get,
    path = "/api/v1/explain",
    params(Which),
    responses(
        (status = 200, body = Explanation),
        (status = 400, description = "no such descriptor can be", body = Problem),
        (status = 503, description = "no policy is loaded yet", body = Problem)
    )
)]
pub(super) async fn explain(State(api): State<Api>, Query(which): Query<Which>) -> Result<Json<Explanation>, Refusal> {
    let snapshot = api.policies.snapshot();
    let live = snapshot.as_deref().ok_or_else(|| Refusal::Unavailable("no policy is loaded yet".to_owned()))?;
    let owned = read_text(&which.descriptor)
        .map_err(|wrong| Refusal::Invalid(format!("descriptor `{}`: {wrong}", which.descriptor)))?;
    let (text, rule) = explain::explain(live.policies(), &which.domain, &owned.entries());
    let version = live.policies().version().to_owned();
    Ok(Json(Explanation { version, rule: rule.map(|rule| rule.path().to_owned()), text }))
}

/// Tries a request: decided as the call itself would be now, with nothing taken, written or counted.
#[utoipa::path(
    post,
    path = "/api/v1/try",
    request_body = Question,
    responses(
        (status = 200, body = Peeked),
        (status = 400, description = "no such request can be", body = Problem),
        (status = 503, description = "nobody can say", body = Problem)
    )
)]
pub(super) async fn peek(State(api): State<Api>, Json(question): Json<Question>) -> Result<Json<Peeked>, Refusal> {
    api.desk.peek(question).await.map(Json)
}

/// Who used the counter up that a descriptor leads to, where its limit has `record`.
#[utoipa::path(
    get,
    path = "/api/v1/who",
    params(Which),
    responses(
        (status = 200, body = Who),
        (status = 404, description = "there is no such counter, or nobody is recorded", body = Problem),
        (status = 503, description = "the store cannot say", body = Problem)
    )
)]
pub(super) async fn who(State(api): State<Api>, Query(which): Query<Which>) -> Result<Json<Who>, Refusal> {
    api.desk.who(which.domain, which.descriptor).await.map(Json)
}
