//! The rules that can be verified, and requests that match them.

use tollgate_core::algorithm::time::Micros;
use tollgate_core::descriptor;
use tollgate_policy::{Imposes, LeaseHolder, PolicySet, Rule};

use crate::bound::{CounterBound, CounterModel, NotVerifiable};
use crate::clock::epoch_micros;
use crate::service::VerifyRequest;

/// Length of the shortest period that is verified, in skews: with less, hardly any calls must have
/// been judged in one window, and nothing could be found.
const PERIOD_OF_SKEWS: u64 = 4;

/// The kind of the targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// Replicas of a rate limit service.
    Service,
    /// Gateways that call a rate limit service. A request is one hit of one descriptor, and an
    /// answer is an admission or a denial without a status.
    Gateway {
        /// Keys whose values can be sent.
        keys: Vec<String>,
    },
}

/// A rule to verify, with the keys and values of its descriptor.
#[derive(Debug)]
pub struct VerifiedRule {
    domain: String,
    path: String,
    /// Values are `None` if they are chosen at random.
    entries: Vec<(String, Option<String>)>,
    /// Its limit, as far as histories show it.
    pub(crate) model: CounterModel,
    /// Amounts and periods of the limit, one for each window; of hits in flight, their TTL.
    pub(crate) windows: Vec<(u32, Micros)>,
    /// Largest difference between clocks, in milliseconds, by which its windows stay distinct.
    pub(crate) max_skew: u64,
}

impl VerifiedRule {
    fn of(
        rule: &Rule,
        policies: &PolicySet,
        skew: u64,
        now: u64,
        kind: &TargetKind,
    ) -> Result<Option<Self>, NotVerifiable> {
        let Imposes::Limit(limit) = rule.imposes() else { return Ok(None) };
        if rule.shadow_mode() || rule.quota_mode() {
            return Err(NotVerifiable::DeniesNothing);
        }
        let lease = match kind {
            TargetKind::Service => rule.lease_for(LeaseHolder::Process).map(|lease| lease.ttl),
            // Hits may be held by processes of the service and by the gateway.
            TargetKind::Gateway { .. } => {
                let quota = rule.lease().and_then(|lease| lease.quota).map(|quota| quota.ttl);
                rule.lease().map(|lease| lease.ttl).max(quota)
            }
        };
        let mut model = CounterModel::of(limit, lease.map(Micros::get), now)?;
        let steps = rule.path().split(" > ").map(|step| match step.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (step.to_owned(), None),
        });
        let entries: Vec<_> = steps.collect();
        if let TargetKind::Gateway { keys } = kind {
            if model.hold.is_some() {
                return Err(NotVerifiable::HoldsOfGateway);
            }
            if entries.iter().any(|(key, _)| !keys.contains(key)) {
                return Err(NotVerifiable::NoHeader);
            }
            model.is_behind_gateway = true;
        }
        if entries.iter().all(|(_, value)| value.is_some()) {
            return Err(NotVerifiable::FixedValues);
        }
        let mut windows: Vec<(u32, Micros)> =
            limit.windows().iter().map(|window| (window.limit(), window.period())).collect();
        windows
            .extend(limit.in_flight().zip(limit.hold()).map(|(amount, hold)| (amount, hold.ttl)));
        // A lease shortens the period in which hits are compared.
        let periods = model.bounds.iter().map(CounterBound::period);
        let shortest = periods.chain(model.hold.map(|hold| hold.ttl)).min();
        let made = Self {
            domain: rule.domain().to_owned(),
            path: rule.path().to_owned(),
            entries,
            model,
            windows,
            max_skew: shortest.unwrap_or_default() / 1000 / PERIOD_OF_SKEWS,
        };
        if made.max_skew < skew {
            return Err(NotVerifiable::ShortPeriod);
        }
        let values = made.values(0);
        let texts: Vec<_> = values
            .iter()
            .map(|(key, value)| descriptor::Entry { key: key.as_bytes(), value: value.as_bytes() })
            .collect();
        let found = policies.find(rule.domain());
        let found = found.and_then(|policy| policy.find(&texts, &mut Default::default()));
        match found {
            Some(found) if found.id() == rule.id() => Ok(Some(made)),
            _ => Err(NotVerifiable::Unmatched),
        }
    }

    /// Returns the domain and the path.
    pub fn name(&self) -> String {
        format!("{} {}", self.domain, self.path)
    }

    /// Returns the domain and the entries of the counter with a value.
    pub(crate) fn counter_name(&self, value: u64) -> String {
        let values = self.values(value).into_iter().map(|(key, value)| format!("{key}={value}"));
        format!("{} {}", self.domain, values.collect::<Vec<_>>().join(" > "))
    }

    /// Returns the entries of the counter with a value.
    pub(crate) fn values(&self, value: u64) -> Vec<(String, String)> {
        let mut values = Vec::new();
        for (key, fixed) in &self.entries {
            let text = fixed.clone().unwrap_or_else(|| format!("v{value:016x}"));
            values.push((key.clone(), text));
        }
        values
    }

    /// Returns a request that charges a hit to the counter with a value.
    pub(crate) fn request(&self, value: u64) -> VerifyRequest {
        VerifyRequest {
            domain: self.domain.clone(),
            descriptors: vec![self.values(value)],
            hits: 1,
            ..Default::default()
        }
    }

    /// Returns the domain.
    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }
}

/// Returns the rules that can be verified with a skew in milliseconds, and why others cannot.
pub fn rules_of(
    policies: &PolicySet,
    skew: u64,
    kind: &TargetKind,
) -> (Vec<VerifiedRule>, Vec<String>) {
    rules_at(policies, skew, epoch_micros(), kind)
}

/// Returns the same for a run that begins at a time.
pub(crate) fn rules_at(
    policies: &PolicySet,
    skew: u64,
    now: u64,
    kind: &TargetKind,
) -> (Vec<VerifiedRule>, Vec<String>) {
    let mut rules = Vec::new();
    let mut skipped = Vec::new();
    for rule in policies.rules() {
        match VerifiedRule::of(rule, policies, skew, now, kind) {
            Ok(verified) => rules.extend(verified),
            Err(reason) => skipped.push(format!("{} {}: {reason}", rule.domain(), rule.path())),
        }
    }
    (rules, skipped)
}
