//! One counter: how it stands, who used it up, when it denied; reset, refund, grant.

use axum::extract::{Query, State};
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ask::{TallyView, Which};
use super::denials::{DenialView, instant, of_key};
use super::{Api, Problem, Refusal};
use crate::admin::desk::Deed;
use crate::algorithm::amend::Amendment;
use crate::algorithm::time::Micros;

/// The longest grant: a year. What is meant for longer belongs in a policy.
const MAX_GRANT: Micros = Micros::from_secs(366 * 86_400);

/// A counter, and what is known of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CounterView {
    /// The domain.
    pub domain: String,
    /// The path of the rule.
    pub rule: String,
    /// The entries of the descriptor, `key=value,key=value`; values hashed, where the rule has `hash_values`.
    pub key: String,
    /// The limit in words.
    pub limit: String,
    /// How it counts.
    pub algorithm: String,
    /// Shadow mode of the rule or of the process: a request is admitted also if there is no room for it.
    pub is_shadow: bool,
    /// How it stands.
    pub state: StateView,
    /// Who used it up, those who used most first.
    pub who: Vec<TallyView>,
    /// Why nobody can be named, in words; absent: who used it is named.
    pub who_unknown: Option<String>,
    /// What the journal has of the last 15 minutes; absent: no denial that is known.
    pub denials: Option<DenialView>,
    /// Why there may be denials that are not known, such as those of other processes; absent: all are, but for the last seconds of
    /// others.
    #[serde(default)]
    pub denials_missing: Option<String>,
}

/// How a counter stands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StateView {
    /// When, by the store's clock, RFC 3339.
    pub at: String,
    /// Hits that a request would be admitted with now: they are taken whole from the limit or from the grant, so the more of the
    /// two.
    pub remaining: u64,
    /// When one hit fits again, if nobody else comes; absent: now, or never.
    pub retry_at: Option<String>,
    /// The windows of the limit.
    pub windows: Vec<WindowView>,
    /// Hits beside the limit; absent: none.
    pub grant: Option<GrantView>,
}

/// How one window of a limit stands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WindowView {
    /// Its amount and length, in words.
    pub limit: String,
    /// Hits that count; more than the limit where hits were charged beyond it.
    pub used: u64,
    /// Hits that are left.
    pub remaining: u64,
    /// When it is as if never used.
    pub reset_at: String,
}

/// Hits beside a limit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantView {
    /// Hits that are left of it.
    pub remaining: u64,
    /// When they are gone.
    pub until: String,
}

/// What came of a change of a counter.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// The domain.
    pub domain: String,
    /// The path of the rule.
    pub rule: String,
    /// The entries of the descriptor, as in the answer to a look.
    pub key: String,
    /// How it stood.
    pub before: StateView,
    /// How it stands.
    pub after: StateView,
    /// What is to be looked at: whether the key is the right one, or that fewer hits were given back than asked for.
    #[serde(default)]
    pub notes: Vec<String>,
    /// How long processes may go on by what they knew of it, in microseconds: others by denials that they remember; all, this one
    /// too, by hits that they took in advance. Absent: others for ever, since counters live in each process.
    pub elsewhere_within_us: Option<u64>,
    /// The same in words.
    pub elsewhere: String,
}

/// A counter to reset.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToReset {
    /// The domain.
    domain: String,
    /// The descriptor that leads to it, `key=value,key=value`.
    descriptor: String,
}

/// Hits to give back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToRefund {
    /// The domain.
    domain: String,
    /// The descriptor that leads to the counter, `key=value,key=value`.
    descriptor: String,
    /// So many.
    #[schema(minimum = 1)]
    hits: u32,
}

/// Hits to grant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToGrant {
    /// The domain.
    domain: String,
    /// The descriptor that leads to the counter, `key=value,key=value`.
    descriptor: String,
    /// So many, in the place of what was granted before; 0: none any more.
    hits: u32,
    /// For how long, such as `10m`; either this or `until`.
    r#for: Option<String>,
    /// Until when, RFC 3339.
    until: Option<String>,
}

/// How the counter stands that a descriptor leads to, who used it up, and when it denied.
#[utoipa::path(
    get,
    path = "/api/v1/counter",
    params(Which),
    responses(
        (status = 200, body = CounterView),
        (status = 400, description = "no such descriptor can be", body = Problem),
        (status = 404, description = "there is no such counter", body = Problem),
        (status = 409, description = "the limit is a ban, which counts nothing", body = Problem),
        (status = 503, description = "the store cannot say", body = Problem)
    )
)]
pub(super) async fn counter(State(api): State<Api>, Query(which): Query<Which>) -> Result<Json<CounterView>, Refusal> {
    let mut view = api.desk.counter(which.domain, which.descriptor).await?;
    (view.denials, view.denials_missing) = of_key(&api, &view.domain, &view.rule, &view.key).await;
    Ok(Json(view))
}

/// Resets the counter that a descriptor leads to: as if never used, without debt or grant, and nobody has used it. Hits of leases that
/// processes hold stay theirs to their ends.
#[utoipa::path(
    post,
    path = "/api/v1/counter/reset",
    request_body = ToReset,
    responses(
        (status = 200, body = Changed),
        (status = 400, description = "no such descriptor can be", body = Problem),
        (status = 404, description = "there is no such counter", body = Problem),
        (status = 409, description = "the limit is a ban, which counts nothing", body = Problem),
        (status = 503, description = "the store cannot; where it was late it may have", body = Problem)
    )
)]
pub(super) async fn reset(
    State(api): State<Api>,
    Extension(deed): Extension<Deed>,
    Json(asked): Json<ToReset>,
) -> Result<Json<Changed>, Refusal> {
    change(&api, &deed, asked.domain, asked.descriptor, Amendment::Reset).await
}

/// Gives hits back to the counter that a descriptor leads to, newest first, never more than were used.
#[utoipa::path(
    post,
    path = "/api/v1/counter/refund",
    request_body = ToRefund,
    responses(
        (status = 200, body = Changed),
        (status = 400, description = "no hits, or no such descriptor can be", body = Problem),
        (status = 404, description = "there is no such counter", body = Problem),
        (status = 409, description = "the limit is a ban, which counts nothing", body = Problem),
        (status = 503, description = "the store cannot; where it was late it may have", body = Problem)
    )
)]
pub(super) async fn refund(
    State(api): State<Api>,
    Extension(deed): Extension<Deed>,
    Json(asked): Json<ToRefund>,
) -> Result<Json<Changed>, Refusal> {
    if asked.hits == 0 {
        return Err(Refusal::Invalid("hits must be at least 1, found 0".to_owned()));
    }
    change(&api, &deed, asked.domain, asked.descriptor, Amendment::Refund(asked.hits)).await
}

/// Grants hits beside the limit, until an instant, to the counter that a descriptor leads to. They are used where the limit has no
/// room, a request's whole or not at all. Another grant takes its place; a reset ends it. What of it is taken in advance (`lease`) before
/// its end may be used for a lease's `ttl` after it.
#[utoipa::path(
    post,
    path = "/api/v1/counter/grant",
    request_body = ToGrant,
    responses(
        (status = 200, body = Changed),
        (status = 400, description = "no such time or descriptor can be", body = Problem),
        (status = 404, description = "there is no such counter", body = Problem),
        (status = 409, description = "the limit is a ban, which counts nothing", body = Problem),
        (status = 503, description = "the store cannot; where it was late it may have", body = Problem)
    )
)]
pub(super) async fn grant(
    State(api): State<Api>,
    Extension(deed): Extension<Deed>,
    Json(asked): Json<ToGrant>,
) -> Result<Json<Changed>, Refusal> {
    let length = match (&asked.r#for, &asked.until) {
        (Some(length), None) => length_of(length)?,
        (None, Some(until)) => {
            let now = Timestamp::now();
            let (end, us) = (instant(until)?, u64::try_from(now.as_microsecond()).unwrap_or_default());
            let length = Micros::new(end.as_micros().saturating_sub(us));
            if length == Micros::ZERO {
                let now = now.strftime("%Y-%m-%dT%H:%M:%SZ");
                return Err(Refusal::Invalid(format!(
                    "`until` is to be in the future, found {until}; it is {now} now"
                )));
            }
            length
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(Refusal::Invalid("expected either `for` or `until`".to_owned()));
        }
    };
    if length == Micros::ZERO || length > MAX_GRANT {
        return Err(Refusal::Invalid(format!(
            "a grant ends in the future, within {MAX_GRANT}, found {length} from now"
        )));
    }
    change(&api, &deed, asked.domain, asked.descriptor, Amendment::Grant { hits: asked.hits, length }).await
}

impl Changed {
    /// Hits that went back: of several windows those of the one that had most.
    fn given_back(&self) -> u64 {
        let pairs = self.before.windows.iter().zip(&self.after.windows);
        pairs.map(|(before, after)| before.used.saturating_sub(after.used)).max().unwrap_or_default()
    }

    /// What of this change is probably not meant.
    fn note(&self, amendment: Amendment) -> Option<String> {
        let used = self.before.windows.iter().map(|window| window.used).max().unwrap_or_default();
        let is_unused = used == 0 && self.before.grant.is_none();
        match amendment {
            Amendment::Refund(hits) if self.given_back() < u64::from(hits) => Some(match used {
                0 => "nothing of this counter is used; is the key right?".to_owned(),
                _ => format!("only {used} were used"),
            }),
            Amendment::Grant { hits: 0, .. } => None,
            Amendment::Reset | Amendment::Grant { .. } if is_unused => {
                Some("this counter was never used, or is as new again; is the key right?".to_owned())
            }
            Amendment::Look | Amendment::Reset | Amendment::Refund(_) | Amendment::Grant { .. } => None,
        }
    }
}

async fn change(
    api: &Api,
    deed: &Deed,
    domain: String,
    descriptor: String,
    amendment: Amendment,
) -> Result<Json<Changed>, Refusal> {
    let what = match amendment {
        Amendment::Look => "looked at".to_owned(),
        Amendment::Reset => "reset".to_owned(),
        Amendment::Refund(hits) => format!("{hits} hits given back"),
        Amendment::Grant { hits, length } => format!("{hits} hits granted for {length}"),
    };
    let changed = api.desk.amend(domain, descriptor, amendment, deed.clone()).await;
    let mut changed = changed.inspect_err(|_| deed.add(&format!(": to be {what}, see the status")))?;
    changed.notes.extend(changed.note(amendment));
    let what = match amendment {
        Amendment::Refund(_) => format!("{} of {what}", changed.given_back()),
        Amendment::Look | Amendment::Reset | Amendment::Grant { .. } => what,
    };
    deed.add(&format!(": {what}; {} hits left before, {} after", changed.before.remaining, changed.after.remaining));
    Ok(Json(changed))
}

fn length_of(text: &str) -> Result<Micros, Refusal> {
    let length: Option<SignedDuration> = text.parse().ok();
    let us = length.and_then(|length| u64::try_from(length.as_micros()).ok());
    us.map(Micros::new)
        .ok_or_else(|| Refusal::Invalid(format!("expected a length of time such as 10m, found `{text}`")))
}
