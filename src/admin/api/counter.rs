//! One counter: its state, the callers that used it up and its denials; reset, refund and grant.

use axum::extract::{Query, State};
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::denials::{DenialView, instant, of_key};
use super::open_holds::HeldView;
use super::queries::{DescriptorQuery, TallyView};
use super::state::StateView;
use super::{Api, ApiError, ErrorBody, undecided};
use crate::algorithm::amend::Amendment;
use crate::algorithm::time::Micros;
use crate::operations::Backend;
use crate::operations::audit::AuditEntry;
use crate::operations::counters::{AmendedCounter, CounterState};

/// Maximum length of a grant: a year. Anything longer belongs in a policy.
const MAX_GRANT: Micros = Micros::from_secs(366 * 86_400);

/// A counter with its limit, state, callers and denials.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CounterView {
    /// Domain.
    pub domain: String,
    /// Path of the rule.
    pub rule: String,
    /// Entries of the descriptor, `key=value,key=value`; values are hashed if the rule has
    /// `hash_values`.
    pub key: String,
    /// The limit as text.
    pub limit: String,
    /// Algorithm of the limit.
    pub algorithm: String,
    /// `true` if other replicas may use the counter too.
    #[serde(default)]
    pub is_shared: bool,
    /// `true` if the rule or the process is in shadow mode: requests are admitted even if the limit
    /// has no room for them.
    pub is_shadow: bool,
    /// State of the counter.
    pub state: StateView,
    /// Reason why a write to the counter would probably fail now, such as `store full`; absent if
    /// none is known.
    pub write_error: Option<String>,
    /// Tallies of the callers that used it up, largest first.
    pub who: Vec<TallyView>,
    /// The reason why no callers are listed; absent if they are.
    pub who_unknown: Option<String>,
    /// Open holds; absent if the limit keeps none, or if they cannot be listed.
    #[serde(default)]
    pub held: Option<HeldView>,
    /// The reason why no holds are listed although the limit keeps them; absent if they are.
    #[serde(default)]
    pub held_unknown: Option<String>,
    /// Denials of the last 15 minutes recorded in the journal; absent if none are known.
    pub denials: Option<DenialView>,
    /// The reason why denials may be missing, such as those of other replicas; absent if all are
    /// known, except for the last seconds of other replicas.
    #[serde(default)]
    pub denials_missing: Option<String>,
}

/// The result of a change to a counter.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// Domain.
    pub domain: String,
    /// Path of the rule.
    pub rule: String,
    /// Entries of the descriptor, in the same form as in `CounterView`.
    pub key: String,
    /// State before the change.
    pub before: StateView,
    /// State after the change.
    pub after: StateView,
    /// Warnings, such as that the key may be wrong or that fewer hits were refunded than requested.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Maximum time, in microseconds, for which processes may act on state from before the change:
    /// other replicas on cached denials, and all replicas, including this one, on hits leased
    /// in advance. Absent if other replicas never see the change, since counters live in each
    /// process.
    pub elsewhere_within_us: Option<u64>,
    /// Explanation of `elsewhere_within_us` as text.
    pub elsewhere: String,
}

/// A counter to reset.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToReset {
    /// Domain.
    domain: String,
    /// Descriptor of the counter, `key=value,key=value`.
    descriptor: String,
}

/// Hits to refund.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToRefund {
    /// Domain.
    domain: String,
    /// Descriptor of the counter, `key=value,key=value`.
    descriptor: String,
    /// Number of hits.
    #[schema(minimum = 1)]
    hits: u32,
}

/// Hits to grant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToGrant {
    /// Domain.
    domain: String,
    /// Descriptor of the counter, `key=value,key=value`.
    descriptor: String,
    /// Number of hits; replaces an earlier grant. 0 ends the grant.
    hits: u32,
    /// Length of the grant, such as `10m`; exclusive with `until`.
    r#for: Option<String>,
    /// End of the grant, RFC 3339; exclusive with `for`.
    until: Option<String>,
}

/// Returns the counter of a descriptor: its state, the callers that used it up, and its denials.
#[utoipa::path(
    get,
    path = "/api/v1/counter",
    params(DescriptorQuery),
    responses(
        (status = 200, body = CounterView),
        (status = 400, description = "invalid descriptor", body = ErrorBody),
        (status = 404, description = "no such counter", body = ErrorBody),
        (status = 409, description = "the limit is a ban, which has no counter", body = ErrorBody),
        (status = 503, description = "store unavailable", body = ErrorBody)
    )
)]
pub(super) async fn counter<B: Backend>(
    State(api): State<Api<B>>,
    Query(which): Query<DescriptorQuery>,
) -> Result<Json<CounterView>, ApiError> {
    let found = api.operations.inspect(&which.domain, &which.descriptor).await?;
    let mut view = CounterView::of(found, api.operations.is_shared());
    view.write_error = undecided::write_error(&api);
    (view.denials, view.denials_missing) = of_key(&api, &view.domain, &view.rule, &view.key).await;
    Ok(Json(view))
}

/// Resets the counter of a descriptor.
///
/// The counter is then unused, without debt, grant or tallies. Hits leased by processes remain
/// valid until the leases end.
#[utoipa::path(
    post,
    path = "/api/v1/counter/reset",
    request_body = ToReset,
    responses(
        (status = 200, body = Changed),
        (status = 400, description = "invalid descriptor", body = ErrorBody),
        (status = 404, description = "no such counter", body = ErrorBody),
        (status = 409, description = "the limit is a ban, which has no counter", body = ErrorBody),
        (status = 503, description = "store unavailable; after a timeout, the change may apply", body = ErrorBody)
    )
)]
pub(super) async fn reset<B: Backend>(
    State(api): State<Api<B>>,
    Extension(audit): Extension<AuditEntry>,
    Json(body): Json<ToReset>,
) -> Result<Json<Changed>, ApiError> {
    change(&api, &audit, body.domain, body.descriptor, Amendment::Reset).await
}

/// Refunds hits to the counter of a descriptor, newest first, and never more than were used.
#[utoipa::path(
    post,
    path = "/api/v1/counter/refund",
    request_body = ToRefund,
    responses(
        (status = 200, body = Changed),
        (status = 400, description = "invalid number of hits, or invalid descriptor", body = ErrorBody),
        (status = 404, description = "no such counter", body = ErrorBody),
        (status = 409, description = "the limit is a ban, which has no counter", body = ErrorBody),
        (status = 503, description = "store unavailable; after a timeout, the change may apply", body = ErrorBody)
    )
)]
pub(super) async fn refund<B: Backend>(
    State(api): State<Api<B>>,
    Extension(audit): Extension<AuditEntry>,
    Json(body): Json<ToRefund>,
) -> Result<Json<Changed>, ApiError> {
    if body.hits == 0 {
        return Err(ApiError::invalid("hits must be at least 1, found 0"));
    }
    change(&api, &audit, body.domain, body.descriptor, Amendment::Refund(body.hits)).await
}

/// Grants hits in addition to the limit, until a given time, to the counter of a descriptor.
///
/// Granted hits are used if the limit has no room; the hits of one request are all charged to the
/// grant or none are. Another grant replaces this one, and a reset ends it. Hits leased from it
/// (`lease`) before its end may be used until the `ttl` of the lease expires.
#[utoipa::path(
    post,
    path = "/api/v1/counter/grant",
    request_body = ToGrant,
    responses(
        (status = 200, body = Changed),
        (status = 400, description = "invalid time or descriptor", body = ErrorBody),
        (status = 404, description = "no such counter", body = ErrorBody),
        (status = 409, description = "the limit is a ban, which has no counter", body = ErrorBody),
        (status = 503, description = "store unavailable; after a timeout, the change may apply", body = ErrorBody)
    )
)]
pub(super) async fn grant<B: Backend>(
    State(api): State<Api<B>>,
    Extension(audit): Extension<AuditEntry>,
    Json(body): Json<ToGrant>,
) -> Result<Json<Changed>, ApiError> {
    let length = match (&body.r#for, &body.until) {
        (Some(length), None) => length_of(length)?,
        (None, Some(until)) => {
            let now = Timestamp::now();
            let end = instant(until)?;
            let us = u64::try_from(now.as_microsecond()).unwrap_or_default();
            let length = Micros::new(end.as_micros().saturating_sub(us));
            if length == Micros::ZERO {
                let now = now.strftime("%Y-%m-%dT%H:%M:%SZ");
                return Err(ApiError::invalid(format!(
                    "`until` must be in the future, found {until}; the time is {now}"
                )));
            }
            length
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(ApiError::invalid("expected either `for` or `until`"));
        }
    };
    if length == Micros::ZERO || length > MAX_GRANT {
        return Err(ApiError::invalid(format!(
            "a grant must end in the future, within {MAX_GRANT}, found {length} from now"
        )));
    }
    change(&api, &audit, body.domain, body.descriptor, Amendment::Grant { hits: body.hits, length })
        .await
}

impl CounterView {
    /// Returns the view of a counter. `is_shared`: other replicas may use it too.
    fn of(found: CounterState, is_shared: bool) -> Self {
        let (tallies, who_unknown) = match found.tallies {
            Some(Ok(tallies)) => (tallies, None),
            Some(Err(error)) => (Vec::new(), Some(format!("callers cannot be listed: {error}"))),
            None => {
                let reason = "callers not recorded; add `record: [key]` to rate_limit";
                (Vec::new(), Some(reason.to_owned()))
            }
        };
        let (held, held_unknown) = match found.held {
            None => (None, None),
            Some(Ok(open)) => (Some(HeldView::of(&open)), None),
            Some(Err(error)) => (None, Some(format!("open holds cannot be listed: {error}"))),
        };
        Self {
            held,
            held_unknown,
            state: StateView::of(&found.limit, &found.reading),
            write_error: None,
            domain: found.domain,
            rule: found.rule,
            key: found.key,
            limit: found.limit_text,
            algorithm: found.algorithm,
            is_shared,
            is_shadow: found.is_shadow,
            who: tallies.into_iter().map(TallyView::from).collect(),
            who_unknown,
            denials: None,
            denials_missing: None,
        }
    }
}

impl From<AmendedCounter> for Changed {
    fn from(counter: AmendedCounter) -> Self {
        let (elsewhere_within, elsewhere) = elsewhere(counter.cached_for, counter.leased);
        let note = counter.valueless_key.map(|key| {
            format!("`{key}` has no value: this is the counter of `{key}=`; check the key")
        });
        Self {
            before: StateView::of(&counter.limit, &counter.amended.before),
            after: StateView::of(&counter.limit, &counter.amended.after),
            domain: counter.domain,
            rule: counter.rule,
            key: counter.key,
            notes: note.into_iter().collect(),
            elsewhere_within_us: elsewhere_within.map(Micros::get),
            elsewhere,
        }
    }
}

/// Returns the maximum time for which processes may act on state from before a change, and an
/// explanation: other replicas remember denials, and all replicas, including this one, use hits
/// that they leased before.
fn elsewhere(cached_for: Option<Micros>, leased: Option<Micros>) -> (Option<Micros>, String) {
    let Some(cached_for) = cached_for else {
        let own = "applied to this process only; other replicas keep their own counters";
        return (None, own.to_owned());
    };
    let seen = match cached_for {
        Micros::ZERO => "other replicas see the change at once".to_owned(),
        _ => format!(
            "other replicas see the change within {cached_for}, for which they cache denials"
        ),
    };
    let used = leased
        .map(|ttl| format!("; hits leased before by any replica may be used for up to {ttl}, even after a grant ends"));
    (Some(leased.map_or(cached_for, |ttl| cached_for.max(ttl))), seen + &used.unwrap_or_default())
}

impl Changed {
    /// Returns the number of hits refunded: with several windows, that of the window with the most.
    fn given_back(&self) -> u64 {
        let pairs = self.before.windows.iter().zip(&self.after.windows);
        pairs
            .map(|(before, after)| before.used.saturating_sub(after.used))
            .max()
            .unwrap_or_default()
    }

    /// Returns a warning if the change is probably not the intended one.
    fn note(&self, amendment: Amendment) -> Option<String> {
        let used = self.before.windows.iter().map(|window| window.used).max().unwrap_or_default();
        let is_unused = used == 0 && self.before.grant.is_none();
        match amendment {
            Amendment::Refund(hits) if self.given_back() < u64::from(hits) => Some(match used {
                0 => "the counter is unused; check the key".to_owned(),
                _ => format!("only {used} hits were used"),
            }),
            Amendment::Grant { hits: 0, .. } => None,
            Amendment::Reset | Amendment::Grant { .. } if is_unused => {
                Some("the counter is unused, or has reset; check the key".to_owned())
            }
            Amendment::Look | Amendment::Reset | Amendment::Refund(_) | Amendment::Grant { .. } => {
                None
            }
        }
    }
}

async fn change(
    api: &Api<impl Backend>,
    audit: &AuditEntry,
    domain: String,
    descriptor: String,
    amendment: Amendment,
) -> Result<Json<Changed>, ApiError> {
    let what = match amendment {
        Amendment::Look => "inspected".to_owned(),
        Amendment::Reset => "reset".to_owned(),
        Amendment::Refund(hits) => format!("{hits} hits refunded"),
        Amendment::Grant { hits, length } => format!("{hits} hits granted for {length}"),
    };
    let amended = api.operations.amend(&domain, &descriptor, amendment, audit).await;
    let amended =
        amended.inspect_err(|_| audit.add(&format!(": {what}: not confirmed, see the status")))?;
    let is_lent_to_proxies = amended.is_lent_to_proxies;
    let mut changed = Changed::from(amended);
    changed.notes.extend(changed.note(amendment));
    if is_lent_to_proxies && matches!(amendment, Amendment::Grant { hits: 1.., .. }) {
        changed
            .notes
            .push("proxies that use RLQS get hits of the limit, none of the grant".to_owned());
    }
    let what = match amendment {
        Amendment::Refund(_) => format!("{} of {what}", changed.given_back()),
        Amendment::Look | Amendment::Reset | Amendment::Grant { .. } => what,
    };
    audit.add(&format!(
        ": {what}; {} hits remaining before, {} after",
        changed.before.remaining, changed.after.remaining
    ));
    Ok(Json(changed))
}

fn length_of(text: &str) -> Result<Micros, ApiError> {
    let length: Option<SignedDuration> = text.parse().ok();
    let us = length.and_then(|length| u64::try_from(length.as_micros()).ok());
    us.map(Micros::new).ok_or_else(|| {
        ApiError::invalid(format!(
            "expected a duration such as 10m or 48h, at most {MAX_GRANT}; the largest unit is h; found `{text}`"
        ))
    })
}
