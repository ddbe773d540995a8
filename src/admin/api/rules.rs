//! The rules in force, with their rates.

use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Api, PageQuery};
use crate::operations::Backend;
use crate::policy::explain::limit_in_words;
use crate::policy::{Imposes, Rule};
use crate::telemetry::journal::rates::{Counts, PerSecond, Rate, RateStep};
use crate::telemetry::metrics::{EstimateSummary, HeldHits, Metrics};

/// Rules in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleList {
    /// Version of the policies.
    pub version: String,
    /// Total number of rules, including those on other pages.
    pub total: usize,
    /// Number of replicas of which `1m_replicas` has rates, including this one.
    #[serde(default)]
    pub replicas: usize,
    /// Rules of this page, in the requested order.
    pub rules: Vec<RuleView>,
}

/// A rule.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleView {
    /// Domain.
    pub domain: String,
    /// Path of the rule, such as `plan=free > user`.
    pub rule: String,
    /// Name of the limit in the policy.
    pub name: Option<String>,
    /// The limit as text; absent if there is none.
    pub limit: Option<String>,
    /// `true` if the rule is marked as unlimited.
    pub is_unlimited: bool,
    /// `true` if the rule is in shadow mode.
    pub is_shadow: bool,
    /// `true` if the rule is in quota mode: its denial is only a vote.
    pub is_quota: bool,
    /// Costs of committed holds relative to their reserved hits, in this process; absent if there
    /// are none.
    pub estimate: Option<EstimateView>,
    /// Hits in the hands of others; absent if the rule lends none.
    #[serde(default)]
    pub held: Option<HeldHitsView>,
    /// Rates of the rule.
    pub rates: RatesView,
    /// Number of descriptors since the start of the process, updated every second.
    pub counts: CountsView,
    /// Rates of the last 15 minutes in steps of 15 seconds, oldest first; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<StepView>>,
}

/// Descriptors per second in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepView {
    /// Seconds since the end of the step.
    pub seconds_ago: f64,
    /// Allowed.
    pub allowed: f64,
    /// Denied.
    pub denied: f64,
    /// Denied by a rule in shadow mode.
    pub shadow_denied: f64,
}

/// Costs of committed holds relative to their reserved hits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EstimateView {
    /// Number of commits since the start of the process.
    pub commits: u64,
    /// Mean of cost divided by reserved hits.
    pub mean: f64,
    /// Bound that 95 % of the commits do not exceed; absent if it is above 4.
    pub most: Option<f64>,
    /// Share of the commits that cost more than was reserved, from 0 to 1.
    pub overruns: f64,
    /// Advice to raise or lower the estimate; absent if it is good, or if there are too few
    /// commits.
    pub advice: Option<String>,
    /// All of this as text.
    pub text: String,
}

/// Hits of a rule that were lent, and are neither reported nor returned. Negative if this process
/// took back hits that other ones lent: add up the numbers of all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldHitsView {
    /// Held by clients of `LeaseService`.
    pub clients: i64,
    /// Held by proxies, by RLQS.
    pub proxies: i64,
}

/// Descriptors decided per second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RatesView {
    /// Over the last second.
    #[serde(rename = "1s")]
    pub second: RateView,
    /// Over the last minute.
    #[serde(rename = "1m")]
    pub minute: RateView,
    /// Over the last minute, of all replicas on the store, up to 5 s late; absent without others.
    #[serde(rename = "1m_replicas", default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<RateView>,
    /// Over the last 15 minutes.
    #[serde(rename = "15m")]
    pub quarter: RateView,
}

/// Descriptors per second, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RateView {
    /// Allowed.
    pub allowed: f64,
    /// Denied.
    pub denied: f64,
    /// Allowed, but near the limit; included in `allowed`.
    pub near: f64,
    /// Denied by a rule in shadow mode.
    pub shadow_denied: f64,
    /// Without a decision: the store failed, and so did the request.
    pub failed: f64,
    /// Decided without the store, which failed: by `on_store_error: allow`, `deny` or `local`.
    /// Decisions by `local` are also included in `allowed`, `denied`, `near` and `shadow_denied`.
    pub unchecked: f64,
}

/// Number of descriptors, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountsView {
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Allowed, but near the limit; included in `allowed`.
    pub near: u64,
    /// Denied by a rule in shadow mode.
    pub shadow_denied: u64,
    /// Without a decision: the store failed, and so did the request.
    pub failed: u64,
    /// Decided without the store, which failed: by `on_store_error: allow`, `deny` or `local`.
    /// Decisions by `local` are also included in `allowed`, `denied`, `near` and `shadow_denied`.
    pub unchecked: u64,
}

/// Filter for rules.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RuleQuery {
    /// Only rules of this domain.
    domain: Option<String>,
    /// Only rules whose path contains this text.
    rule: Option<String>,
    /// `policy` (default): in the order of the policies; `denied`, `allowed`: highest rate over the
    /// last minute first.
    #[param(inline)]
    order: Option<Order>,
    /// Include the rates of the last 15 minutes.
    history: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Policy,
    Denied,
    Allowed,
}

impl RuleQuery {
    fn includes(&self, rule: &Rule) -> bool {
        !matches!(rule.imposes(), Imposes::Nothing)
            && self.domain.as_deref().is_none_or(|domain| rule.domain() == domain)
            && self.rule.as_deref().is_none_or(|part| rule.path().contains(part))
    }
}

impl Order {
    /// Returns the rate by which rules are ordered; the highest is the first.
    fn rate(self, rates: &RatesView) -> f64 {
        let minute = rates.replicas.unwrap_or(rates.minute);
        match self {
            Self::Policy => 0.0,
            Self::Denied => minute.denied,
            Self::Allowed => minute.allowed,
        }
    }
}

impl From<PerSecond> for RateView {
    fn from([allowed, denied, near, shadow_denied, failed, unchecked]: PerSecond) -> Self {
        Self { allowed, denied, near, shadow_denied, failed, unchecked }
    }
}

impl From<EstimateSummary> for EstimateView {
    fn from(summary: EstimateSummary) -> Self {
        let EstimateSummary { commits, mean, most, overruns } = summary;
        let advice = summary.advice().map(str::to_owned);
        Self { commits, mean, most, overruns, advice, text: summary.to_string() }
    }
}

impl From<HeldHits> for HeldHitsView {
    fn from(HeldHits { clients, proxies }: HeldHits) -> Self {
        Self { clients, proxies }
    }
}

impl From<RateStep> for StepView {
    fn from(step: RateStep) -> Self {
        let RateStep { seconds_ago, allowed, denied, shadow_denied } = step;
        let [allowed, denied, shadow_denied] =
            [allowed, denied, shadow_denied].map(|rate| (rate * 100.0).round() / 100.0);
        Self { seconds_ago: seconds_ago.round(), allowed, denied, shadow_denied }
    }
}

impl From<Counts> for CountsView {
    fn from([allowed, denied, near, shadow_denied, failed, unchecked]: Counts) -> Self {
        Self { allowed, denied, near, shadow_denied, failed, unchecked }
    }
}

impl From<Rate> for RatesView {
    fn from(rate: Rate) -> Self {
        Self {
            second: rate.second.into(),
            minute: rate.minute.into(),
            replicas: None,
            quarter: rate.quarter.into(),
        }
    }
}

fn view(rule: &Rule, rates: RatesView, counts: Counts, metrics: &Metrics) -> RuleView {
    RuleView {
        domain: rule.domain().to_owned(),
        rule: rule.path().to_owned(),
        name: rule.name().map(str::to_owned),
        limit: limit_in_words(rule),
        is_unlimited: matches!(rule.imposes(), Imposes::Unlimited),
        is_shadow: rule.shadow_mode(),
        is_quota: rule.quota_mode(),
        estimate: metrics.holds.estimate(rule.domain(), rule.path()).map(EstimateView::from),
        held: metrics.loans.held(rule.domain(), rule.path()).map(HeldHitsView::from),
        rates,
        counts: counts.into(),
        history: None,
    }
}

/// Returns the rules in force that impose a limit or mark a descriptor as unlimited, with live
/// rates. Rates of rules beyond `--metrics-max-rules` are 0.
#[utoipa::path(get, path = "/api/v1/rules", params(RuleQuery, PageQuery), responses((status = 200, body = RuleList)))]
pub(super) async fn rules<B: Backend>(
    State(api): State<Api<B>>,
    Query(which): Query<RuleQuery>,
    Query(page): Query<PageQuery>,
) -> Json<RuleList> {
    let snapshot = api.policies.snapshot();
    let Some(live) = snapshot.as_deref() else {
        return Json(RuleList { version: String::new(), total: 0, replicas: 0, rules: Vec::new() });
    };
    let others = api.operations.rates_of_others().await;
    let rates = api.rates.lock();
    let rated = live.policies().rules().filter(|rule| which.includes(rule)).map(|rule| {
        let rate = rates.of(live.generation(), rule.id());
        let all = others.as_ref();
        let all = all.map(|all| all.sums.plus(rule.domain(), rule.path(), rate.minute).into());
        (rule, RatesView { replicas: all, ..rate.into() }, rate.all)
    });
    let mut rated: Vec<(&Rule, RatesView, Counts)> = rated.collect();
    drop(rates);
    let order = which.order.unwrap_or_default();
    // A stable sort keeps the order of the policies for equal rates.
    rated.sort_by(|(_, one, _), (_, other, _)| order.rate(other).total_cmp(&order.rate(one)));
    let total = rated.len();
    let rules = page.of(rated).into_iter();
    let history = |rule: &Rule| {
        which.history.unwrap_or_default().then(|| {
            let steps = api.rates.lock().history(live.generation(), rule.id());
            steps.into_iter().map(StepView::from).collect()
        })
    };
    let rules = rules
        .map(|(rule, rates, counts)| RuleView {
            history: history(rule),
            ..view(rule, rates, counts, &api.metrics)
        })
        .collect();
    let version = live.policies().version().to_owned();
    let replicas = others.map_or(1, |others| others.replicas.saturating_add(1));
    Json(RuleList { version, total, replicas, rules })
}
