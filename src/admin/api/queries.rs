//! Queries about one descriptor or request: the rule that it matches and why, the decision that it
//! would get, the callers that used up its counter.

use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Api, ApiError, ErrorBody, undecided};
use crate::algorithm::judge::Hits;
use crate::algorithm::tallies::EntryTally;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::limiter::StatusKind;
use crate::operations::attempt::{AttemptedRequest, AttemptedStatus};
use crate::operations::counters::CounterTallies;
use crate::operations::{Backend, OperationError};
use crate::policy::explain;
use crate::telemetry::journal::key::read_text;

/// A descriptor in a domain.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DescriptorQuery {
    /// Domain.
    pub(super) domain: String,
    /// Descriptor, `key=value,key=value`.
    pub(super) descriptor: String,
}

/// The rule that a descriptor matches, with an explanation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Version of the policies in force.
    pub version: String,
    /// Path of the rule; absent if no rule matches.
    pub rule: Option<String>,
    /// Each matching step, the rules tried and the limit, in the format of `tollgate explain`.
    pub text: String,
}

/// A request to try.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TryRequest {
    /// Domain.
    pub domain: String,
    /// Descriptors of the request.
    pub descriptors: Vec<TryResult>,
}

/// A descriptor to try.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TryResult {
    /// Entries, in order.
    pub entries: Vec<EntryView>,
    /// Hits to charge, 1 by default; 0 is a peek.
    #[serde(default = "one")]
    pub hits: u32,
}

/// An entry of a descriptor.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryView {
    /// Key of the entry.
    pub key: String,
    /// Value of the entry.
    #[serde(default)]
    pub value: String,
}

/// The decision that a request would get now. Nothing is written for it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Peeked {
    /// `true` if the request would be admitted, judging by the current counters. Hits that a
    /// process has leased in advance (`lease`) count as used.
    pub would_admit: bool,
    /// Reason why the writes of the request would probably fail now, such as `store full`; absent
    /// if none is known. `on_store_error` would then decide.
    pub write_error: Option<String>,
    /// The status of each descriptor, in order.
    pub statuses: Vec<PeekedStatus>,
}

/// The status that a descriptor would get now.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PeekedStatus {
    /// Path of the rule; absent if no rule applies.
    pub rule: Option<String>,
    /// `no limit`, `unlimited`, `room`, `no room`, `watched` (no room, but the rule is in shadow
    /// mode) or `unknown` (the store did not decide). A request may be admitted without room
    /// because of a mode of the process or other votes; see `would_admit`.
    pub standing: String,
    /// Amount of the window that binds.
    pub limit: Option<u32>,
    /// Maximum hits that a request would be admitted with, before the hits of this request are
    /// charged. Hits are charged either to the limit or to a grant, so this is the larger of what
    /// the two have left.
    pub remaining: Option<u64>,
    /// Microseconds until the counter resets.
    pub reset_after_us: Option<u64>,
}

/// The callers that used up a counter.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CounterUsers {
    /// Path of the rule.
    pub rule: String,
    /// Tallies per caller, largest first.
    pub tallies: Vec<TallyView>,
}

/// The hits of one caller.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TallyView {
    /// Recorded entry of the request, `key=value`; absent for the total of callers without a tally
    /// of their own.
    pub who: Option<String>,
    /// Hits charged.
    pub charged: u64,
    /// Hits denied.
    pub denied: u64,
}

impl TryResult {
    fn descriptor(&self) -> Descriptor<'_> {
        let entries = self.entries.iter();
        let entries =
            entries.map(|entry| Entry { key: entry.key.as_bytes(), value: entry.value.as_bytes() });
        let hits = Hits::Peek(self.hits);
        // An operation on a hold is not performed: a reserve is tried as the charge that it is.
        let descriptor = Descriptor::new(entries.collect(), hits, None, None);
        let hits = if descriptor.changes_no_hits() { Hits::Peek(0) } else { hits };
        Descriptor { hits, hold: None, ..descriptor }
    }
}

impl From<AttemptedRequest> for Peeked {
    fn from(AttemptedRequest { would_admit, statuses }: AttemptedRequest) -> Self {
        let statuses = statuses.into_iter().map(PeekedStatus::from).collect();
        Self { would_admit, write_error: None, statuses }
    }
}

impl From<AttemptedStatus> for PeekedStatus {
    fn from(status: AttemptedStatus) -> Self {
        let standing = match status.kind {
            StatusKind::NoLimit => "no limit",
            StatusKind::Unlimited => "unlimited",
            StatusKind::Allowed => "room",
            StatusKind::Denied => "no room",
            StatusKind::ShadowDenied => "watched",
            StatusKind::PresumedAllowed | StatusKind::PresumedDenied => "unknown",
        };
        Self {
            rule: status.rule,
            standing: standing.to_owned(),
            limit: status.limit,
            remaining: status.remaining,
            reset_after_us: status.reset_after.map(|length| length.get()),
        }
    }
}

impl From<EntryTally> for TallyView {
    fn from(tally: EntryTally) -> Self {
        Self {
            who: (!tally.entry.is_empty())
                .then(|| String::from_utf8_lossy(&tally.entry).into_owned()),
            charged: tally.charged,
            denied: tally.denied,
        }
    }
}

fn one() -> u32 {
    1
}

/// Returns the rule that a descriptor matches, and explains why.
#[utoipa::path(
    get,
    path = "/api/v1/explain",
    params(DescriptorQuery),
    responses(
        (status = 200, body = Explanation),
        (status = 400, description = "invalid descriptor", body = ErrorBody),
        (status = 503, description = "no policy loaded yet", body = ErrorBody)
    )
)]
pub(super) async fn explain<B: Backend>(
    State(api): State<Api<B>>,
    Query(which): Query<DescriptorQuery>,
) -> Result<Json<Explanation>, ApiError> {
    let snapshot = api.policies.snapshot();
    let live = snapshot.as_deref().ok_or_else(|| ApiError::from(OperationError::NoPolicy))?;
    let owned = read_text(&which.descriptor).map_err(|wrong| {
        ApiError::invalid(format!("descriptor `{}`: {wrong}", which.descriptor))
    })?;
    let (text, rule) = explain::explain(live.policies(), &which.domain, &owned.entries());
    let version = live.policies().version().to_owned();
    Ok(Json(Explanation { version, rule: rule.map(|rule| rule.path().to_owned()), text }))
}

/// Tries a request: returns the decision that the call would get now, without charging, writing or
/// counting anything.
#[utoipa::path(
    post,
    path = "/api/v1/try",
    request_body = TryRequest,
    responses(
        (status = 200, body = Peeked),
        (status = 400, description = "invalid request", body = ErrorBody),
        (status = 503, description = "store unavailable, or no policy loaded yet", body = ErrorBody)
    )
)]
pub(super) async fn peek<B: Backend>(
    State(api): State<Api<B>>,
    Json(question): Json<TryRequest>,
) -> Result<Json<Peeked>, ApiError> {
    let request = Request {
        domain: &question.domain,
        descriptors: question.descriptors.iter().map(TryResult::descriptor).collect(),
    };
    let attempted = api.operations.attempt(&request).await?;
    Ok(Json(Peeked { write_error: undecided::write_error(&api), ..attempted.into() }))
}

/// Returns the callers that used up the counter of a descriptor, if its limit has `record`.
#[utoipa::path(
    get,
    path = "/api/v1/who",
    params(DescriptorQuery),
    responses(
        (status = 200, body = CounterUsers),
        (status = 404, description = "no such counter, or its rule does not record callers", body = ErrorBody),
        (status = 409, description = "the store does not support it", body = ErrorBody),
        (status = 503, description = "store unavailable", body = ErrorBody)
    )
)]
pub(super) async fn who<B: Backend>(
    State(api): State<Api<B>>,
    Query(which): Query<DescriptorQuery>,
) -> Result<Json<CounterUsers>, ApiError> {
    let CounterTallies { rule, tallies } =
        api.operations.who(&which.domain, &which.descriptor).await?;
    Ok(Json(CounterUsers { rule, tallies: tallies.into_iter().map(TallyView::from).collect() }))
}
