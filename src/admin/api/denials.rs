//! Who was denied, when and how often.

use std::collections::{HashMap, HashSet};

use axum::Json;
use axum::extract::{Query, State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Api, Page, Problem, Refusal, rfc3339};
use crate::admin::desk::Others;
use crate::algorithm::time::{Micros, Timestamp as Instant};
use crate::journal::{Denials, Found, Journal, Span};
use crate::policy::explain::limit_in_words;
use crate::policy::{Imposes, PolicySet, Rule};
use crate::telemetry::candidates::From as TriedOutBy;

/// Minutes that are looked back, unless told otherwise.
const TOP_MINUTES: u64 = 5;

/// Keys that were denied.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DenialsView {
    /// From when on this process knows all of its own, RFC 3339: it began then, or what was before is kept no longer.
    pub known_since: String,
    /// From when on those of other processes are among them, as far as they were there; absent: none are.
    #[serde(default)]
    pub others_since: Option<String>,
    /// Whether processes on the same store tell each other; else these are of this process alone.
    #[serde(default)]
    pub is_shared: bool,
    /// That the domain or the rule asked for is none of the policies in force, with those that are; absent where something was
    /// found all the same.
    #[serde(default)]
    pub unknown: Option<String>,
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
    /// Its limit in words, by the policies in force; absent: they have no limit there.
    #[serde(default)]
    pub limit: Option<String>,
    /// Whether that is a ban.
    #[serde(default)]
    pub is_ban: bool,
    /// Whether nobody is denied for it: the rule only watches, or is a candidate.
    #[serde(default)]
    pub is_watching: bool,
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
    /// Those of the last.
    #[serde(default)]
    pub last_hits: u64,
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
    /// Of keys that have this in them, or of whose requests something was recorded that has. Commas may be escaped or not.
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

impl DenialView {
    /// Whether the hits of the last are more than the limit ever admits at once. Where nobody could say that is not known.
    pub fn never_fits(&self) -> bool {
        self.retry_at.is_none() && self.presumed == 0 && !self.is_ban && self.last_hits > 1
    }
}

impl From<Found> for DenialView {
    fn from(found: Found) -> Self {
        let Found { domain, rule, key, record, missed_at_most } = found;
        Self {
            domain,
            rule,
            limit: None,
            is_ban: false,
            is_watching: false,
            key,
            first: rfc3339(record.first),
            last: rfc3339(record.last),
            count: record.count,
            missed_at_most,
            passed: record.passed,
            presumed: record.presumed,
            hits: record.hits,
            last_hits: record.last_hits,
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
    Ok(Json(known.view(&api, &span, known.denials.find(&span), page)))
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
    Ok(Json(known.view(&api, &span, known.denials.top(&span), page)))
}

/// What all processes know.
struct Known {
    denials: Denials,
    others: Others,
}

impl Known {
    fn view(&self, api: &Api, span: &Span<'_>, found: Vec<Found>, page: Page) -> DenialsView {
        let snapshot = api.policies.snapshot();
        let policies = snapshot.as_deref().map(|live| live.policies());
        let (kept, begun) = (self.denials.since(), u64::try_from(api.begun.as_microsecond()).unwrap_or_default());
        let total = found.len();
        let unknown = policies.and_then(|policies| policies.unknown(span.domain, span.rule));
        let shown = page.of(found);
        let rules = by_path(policies, &shown);
        let denials = shown.into_iter().map(|found| (rule_of(&rules, &found), found));
        let denials = denials.map(|(rule, found)| view(rule, found)).collect();
        DenialsView {
            known_since: rfc3339(kept.max(Instant::from_micros(begun))),
            others_since: (self.others.processes > 0).then(|| rfc3339(kept)),
            is_shared: self.others.is_shared,
            unknown: unknown.filter(|_| total == 0).map(|none| none.to_string()),
            total,
            dropped: self.denials.dropped(span),
            processes: self.others.processes.saturating_add(1),
            missing: self.others.missing.clone(),
            denials,
        }
    }
}

async fn read(api: &Api, span: &Span<'_>) -> Result<Known, Refusal> {
    if !api.journal.is_on() {
        return Err(Refusal::Conflict("denials are not taken down: --denial-journal is off".to_owned()));
    }
    let mut others = api.desk.others(Journal::minutes_of(span)).await;
    Ok(Known { denials: api.journal.read_with(std::mem::take(&mut others.told)), others })
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
    let snapshot = api.policies.snapshot();
    let rules = by_path(snapshot.as_deref().map(|live| live.policies()), &found);
    (found.map(|found| view(rule_of(&rules, &found), found)), known.others.missing)
}

/// The rules in force that denials are of, by domain and path: looked for once, however many denials there are.
type ByPath<'a> = HashMap<(&'a str, &'a str), &'a Rule>;

fn by_path<'a, 'f>(policies: Option<&'a PolicySet>, found: impl IntoIterator<Item = &'f Found>) -> ByPath<'a> {
    let wanted: HashSet<_> = found.into_iter().map(|found| (found.domain.as_str(), found.rule.as_str())).collect();
    let rules = policies.into_iter().flat_map(PolicySet::rules).map(|rule| ((rule.domain(), rule.path()), rule));
    rules.filter(|(path, _)| wanted.contains(path)).collect()
}

fn rule_of<'a>(rules: &ByPath<'a>, found: &Found) -> Option<&'a Rule> {
    rules.get(&(found.domain.as_str(), found.rule.as_str())).copied()
}

/// A denial, with what the policies in force say of its rule.
fn view(rule: Option<&Rule>, found: Found) -> DenialView {
    let view = DenialView::from(found);
    let is_candidate = TriedOutBy::ALL.iter().any(|by| view.rule.ends_with(by.mark()));
    let is_ban = |rule: &Rule| matches!(rule.imposes(), Imposes::Limit(limit) if limit.is_ban());
    DenialView {
        limit: rule.and_then(limit_in_words),
        is_ban: rule.is_some_and(is_ban),
        is_watching: is_candidate || rule.is_some_and(Rule::shadow_mode),
        ..view
    }
}

pub(super) fn instant(text: &str) -> Result<Instant, Refusal> {
    let invalid = || Refusal::Invalid(format!("expected an instant such as 2026-06-01T12:03:00Z, found `{text}`"));
    let at: Timestamp = text.parse().map_err(|_| invalid())?;
    u64::try_from(at.as_microsecond()).map(Instant::from_micros).map_err(|_| invalid())
}
