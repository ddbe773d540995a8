//! Descriptors of the last ten seconds that the store could not judge.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use crate::algorithm::store_error::StoreError;
use crate::operations::Backend;
use crate::telemetry::journal::undecided::Cause;
use crate::telemetry::metrics::Effect;

/// Maximum number of causes in a response.
const MAX_CAUSES: usize = 50;
/// Maximum number of rules that are named in a problem.
const MAX_RULES: usize = 3;

/// Descriptors of the last ten seconds that the store could not judge, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UndecidedView {
    /// Descriptors of any effect.
    pub per_second: f64,
    /// Descriptors without a decision: their requests failed.
    pub failed_per_second: f64,
    /// Descriptors decided without the store: by `on_store_error: allow`, `deny` or `local`.
    pub unchecked_per_second: f64,
    /// By cause, highest first; at most 50.
    pub causes: Vec<CauseView>,
}

/// Descriptors with the same rule, store error and effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CauseView {
    /// Domain of the rule; `other` for rules that share their metrics.
    pub domain: String,
    /// Path of the rule.
    pub rule: String,
    /// Kind of the store error: `no_room`, `unreadable`, `unavailable`, `late`, `lost` or
    /// `refused`.
    pub kind: String,
    /// Effect: `failed`, `allowed`, `denied` or `local`.
    pub effect: String,
    /// Descriptors per second.
    pub per_second: f64,
}

impl UndecidedView {
    /// Returns the view of causes, highest first.
    pub(super) fn of(causes: &[(Cause, f64)]) -> Self {
        let mut failed_per_second = 0.0;
        let mut unchecked_per_second = 0.0;
        for (cause, rate) in causes {
            match cause.effect {
                Effect::Failed => failed_per_second += rate,
                Effect::Allowed | Effect::Denied | Effect::Local => unchecked_per_second += rate,
            }
        }
        Self {
            per_second: failed_per_second + unchecked_per_second,
            failed_per_second,
            unchecked_per_second,
            causes: causes.iter().take(MAX_CAUSES).map(CauseView::of).collect(),
        }
    }
}

impl CauseView {
    fn of((cause, per_second): &(Cause, f64)) -> Self {
        Self {
            domain: cause.domain.to_string(),
            rule: cause.rule.to_string(),
            kind: cause.error.kind().to_owned(),
            effect: cause.effect.label().to_owned(),
            per_second: *per_second,
        }
    }
}

/// The causes of one kind of error and effect.
struct CauseGroup<'a> {
    rate: f64,
    rules: Vec<&'a str>,
    error: StoreError,
}

impl CauseGroup<'_> {
    /// Returns the line that describes the group.
    fn text(&self, effect: Effect) -> String {
        let Self { rate, rules, error } = self;
        let effect = match effect {
            Effect::Failed => "failed",
            Effect::Allowed => "allowed unchecked",
            Effect::Denied => "denied unchecked",
            Effect::Local => "made by this replica alone",
        };
        let named = rules.iter().take(MAX_RULES).copied().collect::<Vec<_>>().join(", ");
        let more = if rules.len() > MAX_RULES { ", …" } else { "" };
        let plural = if rules.len() == 1 { "rule" } else { "rules" };
        let next = next_step(*error);
        format!("{rate:.1} decisions/s {effect}: {error} ({plural} {named}{more}); {next}")
    }
}

/// Returns a line for each kind of error and effect, with its rate, rules, and the next step.
pub(super) fn problems(causes: &[(Cause, f64)]) -> Vec<String> {
    let mut groups: BTreeMap<(Effect, &str), CauseGroup<'_>> = BTreeMap::new();
    for (cause, rate) in causes {
        let group = groups
            .entry((cause.effect, cause.error.kind()))
            .or_insert_with(|| CauseGroup { rate: 0.0, rules: Vec::new(), error: cause.error });
        group.rate += rate;
        group.rules.push(&cause.rule);
    }
    groups.into_iter().map(|((effect, _), group)| group.text(effect)).collect()
}

/// Returns the reason why a write would probably fail now: one failed for lack of room in the last
/// ten seconds, or a server reported that it is full.
pub(super) fn write_error(api: &Api<impl Backend>) -> Option<String> {
    let servers = api.operations.servers().unwrap_or_default();
    let full = servers.into_iter().find_map(|server| {
        let report = server.report?.server;
        let is_full = report.policy.as_deref() == Some("noeviction")
            && report.max_bytes.is_some_and(|max| report.used_bytes >= max);
        is_full.then(|| {
            format!("{}: {} uses all of its maxmemory", StoreError::NoRoom, server.address)
        })
    });
    full.or_else(|| {
        let causes = api.undecided.lock().causes();
        let of_room = causes.iter().filter(|(cause, _)| cause.error == StoreError::NoRoom);
        let rate: f64 = of_room.map(|(_, rate)| rate).sum();
        (rate > 0.0)
            .then(|| format!("{}: {rate:.1} writes/s failed in the last 10 s", StoreError::NoRoom))
    })
}

fn next_step(error: StoreError) -> &'static str {
    match error {
        StoreError::NoRoom => "raise maxmemory of Redis, or --memory-max of the memory store",
        StoreError::Unreadable => {
            "another program or version wrote the key: delete it, and use a --redis-prefix of its own"
        }
        StoreError::Unavailable | StoreError::Lost => {
            "restore the store; `tollgate check-store` has the reason"
        }
        StoreError::Late => "check the store's latency and CPU, and --store-timeout",
        StoreError::Refused => "the log has the store's reason; run `tollgate check-store`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(rule: &str, error: StoreError, effect: Effect) -> Cause {
        Cause { domain: "d".into(), rule: rule.into(), error, effect }
    }

    #[test]
    fn problems_are_by_effect_and_kind_with_rate_rules_and_the_next_step() {
        let full = |rule, effect| cause(rule, StoreError::NoRoom, effect);
        let causes = [
            (full("a", Effect::Failed), 12.0),
            (full("b", Effect::Failed), 0.25),
            (cause("c", StoreError::Late, Effect::Local), 0.1),
        ];
        assert_eq!(
            problems(&causes),
            [
                "12.2 decisions/s failed: store full (rules a, b); raise maxmemory of Redis, or --memory-max of the memory store",
                "0.1 decisions/s made by this replica alone: store timed out (rule c); \
                 check the store's latency and CPU, and --store-timeout",
            ]
        );
        let view = UndecidedView::of(&causes);
        assert_eq!((view.failed_per_second, view.unchecked_per_second), (12.25, 0.1));
    }
}
