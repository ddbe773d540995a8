//! The rules in force, with how much they decide.

use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Api, Page};
use crate::journal::rates::{Counts, Rate};
use crate::policy::explain::limit_in_words;
use crate::policy::{Imposes, Rule};

/// Rules in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Rules {
    /// The version of the policies that they are of.
    pub version: String,
    /// How many there are, those of other parts of the answer included.
    pub total: usize,
    /// This part, in the order of the policies.
    pub rules: Vec<RuleView>,
}

/// A rule.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleView {
    /// Its domain.
    pub domain: String,
    /// Its path, such as `plan=free > user`.
    pub rule: String,
    /// The name that the policy gives to its limit.
    pub name: Option<String>,
    /// Its limit in words; absent where there is none.
    pub limit: Option<String>,
    /// Whether it says that there is no limit.
    pub is_unlimited: bool,
    /// Whether it only watches.
    pub is_shadow: bool,
    /// Whether its denial is a vote.
    pub is_quota: bool,
    /// How much it decides.
    pub rates: RatesView,
    /// Descriptors since the process began, to the second.
    pub counts: CountsView,
}

/// Descriptors decided a second.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RatesView {
    /// Over the last second.
    #[serde(rename = "1s")]
    pub second: RateView,
    /// Over the last minute.
    #[serde(rename = "1m")]
    pub minute: RateView,
    /// Over the last 15 minutes.
    #[serde(rename = "15m")]
    pub quarter: RateView,
}

/// Descriptors a second, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RateView {
    /// Allowed.
    pub allowed: f64,
    /// Denied.
    pub denied: f64,
    /// Allowed with little room left; a part of `allowed`.
    pub near: f64,
    /// Denied by a rule that only watches.
    pub shadow_denied: f64,
}

/// Descriptors, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountsView {
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Allowed with little room left; a part of `allowed`.
    pub near: u64,
    /// Denied by a rule that only watches.
    pub shadow_denied: u64,
}

/// Which rules.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Of this domain alone.
    domain: Option<String>,
    /// Those whose path has this in it.
    rule: Option<String>,
    /// `policy`: in the order of the policies (the default); `denied`, `allowed`: those first that do most of it now, by the last
    /// minute.
    #[param(inline)]
    order: Option<Order>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Policy,
    Denied,
    Allowed,
}

impl From<[f64; 4]> for RateView {
    fn from([allowed, denied, near, shadow_denied]: [f64; 4]) -> Self {
        Self { allowed, denied, near, shadow_denied }
    }
}

impl From<Counts> for CountsView {
    fn from([allowed, denied, near, shadow_denied]: Counts) -> Self {
        Self { allowed, denied, near, shadow_denied }
    }
}

impl From<Rate> for RatesView {
    fn from(rate: Rate) -> Self {
        Self { second: rate.second.into(), minute: rate.minute.into(), quarter: rate.quarter.into() }
    }
}

fn view(rule: &Rule, rate: Rate) -> RuleView {
    RuleView {
        domain: rule.domain().to_owned(),
        rule: rule.path().to_owned(),
        name: rule.name().map(str::to_owned),
        limit: limit_in_words(rule),
        is_unlimited: matches!(rule.imposes(), Imposes::Unlimited),
        is_shadow: rule.shadow_mode(),
        is_quota: rule.quota_mode(),
        rates: rate.into(),
        counts: rate.all.into(),
    }
}

/// The rules in force that impose something, with live rates. Of rules beyond `--metrics-max-rules` the rates are 0.
#[utoipa::path(get, path = "/api/v1/rules", params(Which, Page), responses((status = 200, body = Rules)))]
pub(super) async fn rules(State(api): State<Api>, Query(which): Query<Which>, Query(page): Query<Page>) -> Json<Rules> {
    let snapshot = api.policies.snapshot();
    let Some(live) = snapshot.as_deref() else {
        return Json(Rules { version: String::new(), total: 0, rules: Vec::new() });
    };
    let wanted = |rule: &&Rule| {
        !matches!(rule.imposes(), Imposes::Nothing)
            && which.domain.as_deref().is_none_or(|domain| rule.domain() == domain)
            && which.rule.as_deref().is_none_or(|part| rule.path().contains(part))
    };
    let rates = api.rates.lock();
    let rated = live.policies().rules().filter(wanted).map(|rule| (rule, rates.of(live.generation(), rule.id())));
    let mut rated: Vec<(&Rule, Rate)> = rated.collect();
    drop(rates);
    let by = |rate: &Rate| match which.order.unwrap_or_default() {
        Order::Policy => 0.0,
        Order::Denied => RateView::from(rate.minute).denied,
        Order::Allowed => RateView::from(rate.minute).allowed,
    };
    // Stable: the order of the policies among equals.
    rated.sort_by(|(_, one), (_, other)| by(other).total_cmp(&by(one)));
    let total = rated.len();
    let rules = page.of(rated).into_iter().map(|(rule, rate)| view(rule, rate)).collect();
    Json(Rules { version: live.policies().version().to_owned(), total, rules })
}
