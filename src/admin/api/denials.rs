//! Who was denied, when and how often.

use axum::Json;
use axum::extract::{Query, State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Api, Page, Problem, Refusal, rfc3339};
use crate::algorithm::time::{Micros, Timestamp as Instant};
use crate::journal::{Denials, Found, Journal, Span};

/// Minutes that are looked back, unless told otherwise.
const TOP_MINUTES: u64 = 5;

/// Keys that were denied.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DenialsView {
    /// From when on denials are known, RFC 3339.
    pub known_since: String,
    /// How many keys there are, those of other parts of the answer included.
    pub total: usize,
    /// Denials in that time of keys that are not among them, for there was no room.
    pub dropped: u64,
    /// Processes whose denials these are: this one, and those on the same store that have denied something.
    pub processes: usize,
    /// Why those of other processes are not all among them; absent: they are, but for their last seconds.
    pub missing: Option<String>,
    /// This part.
    pub denials: Vec<DenialView>,
}

/// The denials of a key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DenialView {
    /// The domain.
    pub domain: String,
    /// The path of the rule.
    pub rule: String,
    /// The entries of the descriptor, `key=value,key=value`.
    pub key: String,
    /// The first in that time, RFC 3339, to the microsecond.
    pub first: String,
    /// The last.
    pub last: String,
    /// Denials that are known for certain.
    pub count: u64,
    /// Those beyond `count` that there may have been, while there was no room for this key.
    pub missed_at_most: u64,
    /// Those of `count` whose requests passed all the same: in shadow mode, or outvoted.
    pub passed: u64,
    /// Those of `count` that were made because the store could not say.
    pub presumed: u64,
    /// Hits that were wanted, all together.
    pub hits: u64,
    /// When the hits of the last would have been admitted; absent: never, or not known.
    pub retry_at: Option<String>,
    /// The version of the policies at the last.
    pub version: String,
    /// What the rule records of these requests, as `key=value`: the latest.
    pub recorded: Vec<String>,
}

/// Which denials.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Of this domain alone.
    domain: Option<String>,
    /// Of this rule alone, by its path.
    rule: Option<String>,
    /// Of keys that have this in them.
    key: Option<String>,
    /// At this instant (RFC 3339) or later.
    since: Option<String>,
    /// At this instant or earlier.
    until: Option<String>,
}

/// Which keys.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Lately {
    /// Of this domain alone.
    domain: Option<String>,
    /// Of this rule alone, by its path.
    rule: Option<String>,
    /// Of the last so many minutes, up to 15; 5 unless given.
    minutes: Option<u64>,
}

impl From<Found> for DenialView {
    fn from(found: Found) -> Self {
        let Found { domain, rule, key, record, missed_at_most } = found;
        Self {
            domain,
            rule,
            key,
            first: rfc3339(record.first),
            last: rfc3339(record.last),
            count: record.count,
            missed_at_most,
            passed: record.passed,
            presumed: record.presumed,
            hits: record.hits,
            retry_at: record.retry_at.map(rfc3339),
            version: record.version.to_string(),
            recorded: record.recorded.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Who was denied in a span of the last 15 minutes, those denied last first. Counts and times are of the whole minutes that the
/// span touches.
#[utoipa::path(
    get,
    path = "/api/v1/denials",
    params(Which, Page),
    responses((status = 200, body = DenialsView), (status = 400, body = Problem))
)]
pub(super) async fn denials(
    State(api): State<Api>,
    Query(which): Query<Which>,
    Query(page): Query<Page>,
) -> Result<Json<DenialsView>, Refusal> {
    let (since, until) = (which.since.as_deref().map(instant), which.until.as_deref().map(instant));
    let (since, until) = (since.transpose()?, until.transpose()?);
    let (domain, rule, key) = (which.domain.as_deref(), which.rule.as_deref(), which.key.as_deref());
    let span = Span { domain, rule, key, since, until };
    let known = read(&api, &span).await?;
    Ok(Json(known.view(&span, known.denials.find(&span), page)))
}

/// The keys that were denied most often lately, of one rule or of all.
#[utoipa::path(
    get,
    path = "/api/v1/top",
    params(Lately, Page),
    responses((status = 200, body = DenialsView), (status = 400, body = Problem))
)]
pub(super) async fn top(
    State(api): State<Api>,
    Query(lately): Query<Lately>,
    Query(page): Query<Page>,
) -> Result<Json<DenialsView>, Refusal> {
    let back = Micros::from_secs(lately.minutes.unwrap_or(TOP_MINUTES).saturating_mul(60));
    let since = Some(Journal::now() - back);
    let span = Span { domain: lately.domain.as_deref(), rule: lately.rule.as_deref(), since, ..Span::default() };
    let known = read(&api, &span).await?;
    Ok(Json(known.view(&span, known.denials.top(&span), page)))
}

/// What all processes know.
struct Known {
    denials: Denials,
    processes: usize,
    missing: Option<String>,
}

impl Known {
    fn view(&self, span: &Span<'_>, found: Vec<Found>, page: Page) -> DenialsView {
        DenialsView {
            known_since: rfc3339(self.denials.since()),
            total: found.len(),
            dropped: self.denials.dropped(span),
            processes: self.processes,
            missing: self.missing.clone(),
            denials: page.of(found).into_iter().map(DenialView::from).collect(),
        }
    }
}

async fn read(api: &Api, span: &Span<'_>) -> Result<Known, Refusal> {
    if !api.journal.is_on() {
        return Err(Refusal::Conflict("denials are not taken down: --denial-journal is off".to_owned()));
    }
    let others = api.desk.others(Journal::minutes_of(span)).await;
    let processes = others.processes.saturating_add(1);
    Ok(Known { denials: api.journal.read_with(others.told), processes, missing: others.missing })
}

/// The denials of exactly this key, of all processes, and why some may be missing.
pub(super) async fn of_key(api: &Api, domain: &str, rule: &str, key: &str) -> (Option<DenialView>, Option<String>) {
    let span = Span { domain: Some(domain), rule: Some(rule), key: Some(key), ..Span::default() };
    let known = match read(api, &span).await {
        Ok(known) => known,
        Err(refusal) => return (None, Some(refusal.text().to_owned())),
    };
    // A span finds all keys that have this one in them.
    let found = known.denials.find(&span).into_iter().find(|found| found.key == key);
    (found.map(DenialView::from), known.missing)
}

pub(super) fn instant(text: &str) -> Result<Instant, Refusal> {
    let invalid = || Refusal::Invalid(format!("expected an instant such as 2026-06-01T12:03:00Z, found `{text}`"));
    let at: Timestamp = text.parse().map_err(|_| invalid())?;
    u64::try_from(at.as_microsecond()).map(Instant::from_micros).map_err(|_| invalid())
}
