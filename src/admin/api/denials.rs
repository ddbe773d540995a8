//! Denials by key: time, number and details.

use std::collections::{HashMap, HashSet};

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Api, ApiError, ErrorBody, PageQuery, rfc3339};
use crate::algorithm::time::{Micros, Timestamp as Instant};
use crate::operations::Backend;
use crate::operations::denial_sync::PeerReport;
use crate::policy::explain::limit_in_words;
use crate::policy::{Imposes, PolicySet, Rule};
use crate::telemetry::candidates::CandidateSource;
use crate::telemetry::journal::{DenialFilter, DeniedKey, Journal, RecentDenials};

/// Default span of `top`, in minutes.
const TOP_MINUTES: u64 = 5;

/// Keys that were denied.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DenialsView {
    /// Time from which the denials of this process are complete, RFC 3339: the start of the
    /// process, or the beginning of the retention period if that is later.
    pub known_since: String,
    /// Time from which denials of other replicas are included, as far as those were running; absent
    /// if none are included.
    #[serde(default)]
    pub others_since: Option<String>,
    /// `true` if replicas on the same store exchange their denials; otherwise only those of this
    /// process are included.
    #[serde(default)]
    pub is_shared: bool,
    /// Message that the requested domain or rule is not in the policies in force, with those that
    /// are; absent if keys were found nevertheless.
    #[serde(default)]
    pub unknown: Option<String>,
    /// Total number of keys, including those on other pages.
    pub total: usize,
    /// Denials within the requested time whose keys are not included, since the journal had no
    /// space for them.
    pub dropped: u64,
    /// Number of processes whose denials are included: this one, and those on the same store that
    /// denied something.
    pub processes: usize,
    /// The reason why denials of other replicas are missing; absent if they are complete, except
    /// for their last seconds.
    pub missing: Option<String>,
    /// Keys of this page.
    pub denials: Vec<DenialView>,
}

/// The denials of one key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DenialView {
    /// Domain.
    pub domain: String,
    /// Path of the rule.
    pub rule: String,
    /// The limit as text, by the policies in force, and `(now)` if they are not those of `version`;
    /// absent if they have no limit for this rule.
    #[serde(default)]
    pub limit: Option<String>,
    /// `true` if the limit is a ban.
    #[serde(default)]
    pub is_ban: bool,
    /// `true` if the rule denies no requests, since it is in shadow mode or a candidate.
    #[serde(default)]
    pub is_watching: bool,
    /// Entries of the descriptor, `key=value,key=value`.
    pub key: String,
    /// Time of the first denial, RFC 3339, to the microsecond.
    pub first: String,
    /// Time of the last denial.
    pub last: String,
    /// Denials known for certain.
    pub count: u64,
    /// Maximum number of denials not included in `count`, made while the journal had no space for
    /// this key.
    pub missed_at_most: u64,
    /// Denials of `count` whose requests were admitted nevertheless: in shadow mode, or outvoted.
    pub passed: u64,
    /// Denials of `count` made because the store was not available.
    pub presumed: u64,
    /// Total number of hits requested.
    pub hits: u64,
    /// Hits requested by the last denied request.
    #[serde(default)]
    pub last_hits: u64,
    /// Time at which the hits of the last denied request would be admitted; absent if never, or not
    /// known.
    pub retry_at: Option<String>,
    /// Version of the policies at the last denial.
    pub version: String,
    /// Entries that the rule records of these requests, as `key=value`, latest first.
    pub recorded: Vec<String>,
}

/// Filter for denials.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DenialQuery {
    /// Only denials of this domain.
    domain: Option<String>,
    /// Only denials of the rule with this path.
    rule: Option<String>,
    /// Only keys that contain this text, or for whose requests an entry was recorded that contains
    /// it. Commas may be escaped.
    key: Option<String>,
    /// Only keys denied at this time (RFC 3339) or later.
    since: Option<String>,
    /// Only keys denied at this time or earlier.
    until: Option<String>,
}

/// Filter for the most frequently denied keys.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TopQuery {
    /// Only keys of this domain.
    domain: Option<String>,
    /// Only keys of the rule with this path.
    rule: Option<String>,
    /// Only keys denied in the last minutes: up to 15, 5 by default.
    minutes: Option<u64>,
}

impl DenialView {
    /// Returns `true` if the last denied request has more hits than the limit ever admits at once.
    /// Returns `false` if that is not known because the store was not available.
    pub fn never_fits(&self) -> bool {
        self.retry_at.is_none() && self.presumed == 0 && !self.is_ban && self.last_hits > 1
    }
}

impl From<DeniedKey> for DenialView {
    fn from(found: DeniedKey) -> Self {
        let DeniedKey { domain, rule, key, record, missed_at_most } = found;
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

/// Returns the keys denied within a span of the last 15 minutes, most recently denied first. Counts
/// and times cover whole minutes: every one that the span overlaps.
#[utoipa::path(
    get,
    path = "/api/v1/denials",
    params(DenialQuery, PageQuery),
    responses((status = 200, body = DenialsView), (status = 400, body = ErrorBody))
)]
pub(super) async fn denials<B: Backend>(
    State(api): State<Api<B>>,
    Query(which): Query<DenialQuery>,
    Query(page): Query<PageQuery>,
) -> Result<Json<DenialsView>, ApiError> {
    let since = which.since.as_deref().map(instant).transpose()?;
    let until = which.until.as_deref().map(instant).transpose()?;
    let domain = which.domain.as_deref();
    let rule = which.rule.as_deref();
    let key = which.key.as_deref();
    let span = DenialFilter { domain, rule, key, since, until };
    let known = read(&api, &span).await?;
    Ok(Json(known.view(&api, &span, known.denials.find(&span), page)))
}

/// Returns the keys denied most often in the last minutes, of one rule or of all.
#[utoipa::path(
    get,
    path = "/api/v1/top",
    params(TopQuery, PageQuery),
    responses((status = 200, body = DenialsView), (status = 400, body = ErrorBody))
)]
pub(super) async fn top<B: Backend>(
    State(api): State<Api<B>>,
    Query(query): Query<TopQuery>,
    Query(page): Query<PageQuery>,
) -> Result<Json<DenialsView>, ApiError> {
    let back = Micros::from_secs(query.minutes.unwrap_or(TOP_MINUTES).saturating_mul(60));
    let since = Some(Journal::now() - back);
    let span = DenialFilter {
        domain: query.domain.as_deref(),
        rule: query.rule.as_deref(),
        since,
        ..DenialFilter::default()
    };
    let known = read(&api, &span).await?;
    Ok(Json(known.view(&api, &span, known.denials.top(&span), page)))
}

/// The denials of all replicas.
struct ReplicaDenials {
    denials: RecentDenials,
    peers: PeerReport,
}

impl ReplicaDenials {
    fn view(
        &self,
        api: &Api<impl Backend>,
        span: &DenialFilter<'_>,
        found: Vec<DeniedKey>,
        page: PageQuery,
    ) -> DenialsView {
        let snapshot = api.policies.snapshot();
        let policies = snapshot.as_deref().map(|live| live.policies());
        let kept = self.denials.since();
        let begun = u64::try_from(api.begun.as_microsecond()).unwrap_or_default();
        let total = found.len();
        let unknown = policies.and_then(|policies| policies.unknown(span.domain, span.rule));
        let shown = page.of(found);
        let rules = by_path(policies, &shown);
        let denials = shown.into_iter().map(|found| (rule_of(&rules, &found), found));
        let denials = denials.map(|(rule, found)| view(policies, rule, found)).collect();
        DenialsView {
            known_since: rfc3339(kept.max(Instant::from_micros(begun))),
            others_since: (self.peers.processes > 0).then(|| rfc3339(kept)),
            is_shared: self.peers.is_shared,
            unknown: unknown.filter(|_| total == 0).map(|none| none.to_string()),
            total,
            dropped: self.denials.dropped(span),
            processes: self.peers.processes + 1,
            missing: self.peers.missing.clone(),
            denials,
        }
    }
}

async fn read(
    api: &Api<impl Backend>,
    span: &DenialFilter<'_>,
) -> Result<ReplicaDenials, ApiError> {
    if !api.journal.is_on() {
        let why = "denials are not recorded: --denial-journal is off";
        return Err(ApiError::new(StatusCode::CONFLICT, why));
    }
    let mut peers = api.operations.peer_denials(Journal::minutes_of(span)).await;
    Ok(ReplicaDenials { denials: api.journal.read_with(std::mem::take(&mut peers.denials)), peers })
}

/// Returns the denials of exactly this key from all replicas, and the reason why some may be
/// missing.
pub(super) async fn of_key(
    api: &Api<impl Backend>,
    domain: &str,
    rule: &str,
    key: &str,
) -> (Option<DenialView>, Option<String>) {
    let span = DenialFilter {
        domain: Some(domain),
        rule: Some(rule),
        key: Some(key),
        ..DenialFilter::default()
    };
    let known = match read(api, &span).await {
        Ok(known) => known,
        Err(refusal) => return (None, Some(refusal.text)),
    };
    // The span also matches keys that only contain this one.
    let found = known.denials.find(&span).into_iter().find(|found| found.key == key);
    let snapshot = api.policies.snapshot();
    let policies = snapshot.as_deref().map(|live| live.policies());
    let rules = by_path(policies, &found);
    (found.map(|found| view(policies, rule_of(&rules, &found), found)), known.peers.missing)
}

/// Rules in force of a set of denials, by domain and path. Looked up in a single pass, regardless
/// of the number of denials.
type ByPath<'a> = HashMap<(&'a str, &'a str), &'a Rule>;

fn by_path<'a, 'f>(
    policies: Option<&'a PolicySet>,
    found: impl IntoIterator<Item = &'f DeniedKey>,
) -> ByPath<'a> {
    let wanted: HashSet<_> =
        found.into_iter().map(|found| (found.domain.as_str(), found.rule.as_str())).collect();
    let rules = policies
        .into_iter()
        .flat_map(PolicySet::rules)
        .map(|rule| ((rule.domain(), rule.path()), rule));
    rules.filter(|(path, _)| wanted.contains(path)).collect()
}

fn rule_of<'a>(rules: &ByPath<'a>, found: &DeniedKey) -> Option<&'a Rule> {
    rules.get(&(found.domain.as_str(), found.rule.as_str())).copied()
}

/// Builds the view of a denial, with the details of its rule from the policies in force, which may
/// be other ones than those that denied.
fn view(policies: Option<&PolicySet>, rule: Option<&Rule>, found: DeniedKey) -> DenialView {
    let view = DenialView::from(found);
    let is_past = policies.is_some_and(|policies| policies.version() != view.version);
    let limit = rule.and_then(limit_in_words);
    let is_candidate = CandidateSource::ALL.iter().any(|by| view.rule.ends_with(by.mark()));
    DenialView {
        limit: limit.map(|limit| if is_past { format!("{limit} (now)") } else { limit }),
        is_ban: matches!(rule.map(Rule::imposes), Some(Imposes::Limit(limit)) if limit.is_ban()),
        is_watching: is_candidate || rule.is_some_and(Rule::shadow_mode),
        ..view
    }
}

pub(super) fn instant(text: &str) -> Result<Instant, ApiError> {
    let at = text.parse::<Timestamp>().ok();
    let us = at.and_then(|at| u64::try_from(at.as_microsecond()).ok());
    us.map(Instant::from_micros).ok_or_else(|| {
        ApiError::invalid(format!("expected a time such as 2026-06-01T12:03:00Z, found `{text}`"))
    })
}
