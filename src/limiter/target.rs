//! What a descriptor leads to: nothing, a rule without a limit, or a limit and the key of its counter.

use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::judge::Few;
use crate::algorithm::lease::Lease;
use crate::algorithm::quota::{QuotaError, Window};
use crate::algorithm::verdict::Role;
use crate::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use crate::descriptor::{Descriptor, KeyBuffer, KeyRange, Keyed, Override, Request};
use crate::policy::{Imposes, Policy, Rule};

/// Bytes of a recorded value: who it was, not all that was said.
const MAX_RECORDED: usize = 128;

/// What one descriptor leads to.
pub(super) enum Target<'a> {
    /// No rule, one that imposes nothing, or one that another of the request replaces.
    Nothing,
    /// A rule that says so.
    Unlimited(&'a Rule),
    /// A limit. `keyed`: what hashes its values, where they may not be read.
    Limited { rule: Option<&'a Rule>, limit: Imposed<'a>, key: KeyRange, keyed: Option<&'a Keyed> },
}

/// A rule's limit, or one that the request brought along.
#[derive(Debug)]
pub(super) enum Imposed<'a> {
    ByRule(&'a Limit),
    ByRequest(Box<Limit>),
}

impl<'a> Target<'a> {
    /// Matches a descriptor and encodes the key of its counter. `beside`: what hashes the values of a rule's own limit where the
    /// rule itself does not.
    pub(super) fn find(
        policy: &'a Policy,
        descriptor: &Descriptor<'_>,
        keys: &mut KeyBuffer,
        beside: Option<&'a Keyed>,
    ) -> Self {
        let rule = policy.find(&descriptor.entries, keys);
        if let Some(wanted) = descriptor.limit {
            return Self::overridden(policy, rule, wanted, descriptor, keys);
        }
        let Some(rule) = rule else { return Self::Nothing };
        match rule.imposes() {
            Imposes::Nothing => Self::Nothing,
            Imposes::Unlimited => Self::Unlimited(rule),
            Imposes::Limit(limit) => {
                let keyed = policy.keyed_for(rule).or(beside);
                let key = keys.finish_keyed(rule.identity(), None, keyed);
                Self::Limited { rule: Some(rule), limit: Imposed::ByRule(limit), key, keyed }
            }
        }
    }

    /// A limit that the request sets: the rule's own with other numbers where that inherits them, else a fixed window.
    fn overridden(
        policy: &'a Policy,
        rule: Option<&'a Rule>,
        wanted: Override,
        descriptor: &Descriptor<'_>,
        keys: &mut KeyBuffer,
    ) -> Self {
        let inheriting = rule.filter(|rule| rule.inherits_override()).and_then(|rule| match rule.imposes() {
            Imposes::Limit(limit) => Some((rule, limit)),
            Imposes::Nothing | Imposes::Unlimited => None,
        });
        // The bounds of a period are checked where the request is read; what a rule cannot count, it does not impose.
        let Ok(window) = Window::new(wanted.limit, wanted.period) else { return Self::Nothing };
        if let Some((rule, limit)) = inheriting {
            let own = limit.windows().iter().all(|own| own.period() == window.period());
            let period = (!own).then_some(window.period());
            if let Ok(limit) = limit.with_window(window.clone()) {
                let (key, keyed) = (policy.finish(rule, keys, period), policy.keyed_for(rule));
                return Self::Limited { rule: Some(rule), limit: Imposed::ByRequest(Box::new(limit)), key, keyed };
            }
        }
        keys.begin();
        for entry in &descriptor.entries {
            keys.push(entry.key);
            keys.push(entry.value);
        }
        let (key, keyed) = (policy.finish_override(keys, wanted.period), policy.keyed_for_overrides());
        match fixed(window, policy.override_charge()) {
            Ok(limit) => Self::Limited { rule: None, limit: Imposed::ByRequest(Box::new(limit)), key, keyed },
            Err(_) => Self::Nothing,
        }
    }

    /// A rule's own limit, and the key of its counter; nothing where the request has set the limit.
    pub(super) fn of_rule(self) -> Option<(&'a Rule, &'a Limit, KeyRange)> {
        match self {
            Self::Limited { rule: Some(rule), limit: Imposed::ByRule(limit), key, .. } => Some((rule, limit, key)),
            Self::Limited { .. } | Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    pub(super) fn key(&self) -> Option<&KeyRange> {
        match self {
            Self::Limited { key, .. } => Some(key),
            Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    /// What hashes the values that its counter is of; `None`: they may be read.
    pub(super) fn keyed(&self) -> Option<&'a Keyed> {
        match self {
            Self::Limited { keyed, .. } => *keyed,
            Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    pub(super) fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Limited { limit, .. } => Some(limit.limit()),
            Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    /// What may be taken of the limit in advance; nothing of one that the request has set.
    pub(super) fn lease(&self) -> Option<Lease> {
        match self {
            Self::Limited { rule: Some(rule), limit: Imposed::ByRule(limit), .. } => Some(rule.lease()?.of(limit)),
            Self::Limited { .. } | Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    pub(super) fn role(&self) -> Role {
        match self {
            Self::Limited { rule: Some(rule), .. } => role_of(rule),
            Self::Limited { rule: None, .. } | Self::Nothing | Self::Unlimited(_) => Role::Enforce,
        }
    }

    /// The entries of the request that the rule records, as `key=value`; of several with one key the first.
    pub(super) fn recorded(&self, request: &Request<'_>) -> Vec<Vec<u8>> {
        let Self::Limited { rule: Some(rule), .. } = self else { return Vec::new() };
        let first = |key: &[u8]| {
            let entries = request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
            let entry = entries.into_iter().find(|entry| entry.key == key)?;
            let write = |value: &[u8]| [entry.key, b"=", value.get(..MAX_RECORDED).unwrap_or(value)].concat();
            Some(self.keyed().map_or_else(|| write(entry.value), |keyed| write(keyed.shown(entry.value).as_bytes())))
        };
        rule.record().iter().filter_map(|key| first(key)).collect()
    }

    fn rule(&self) -> Option<&'a Rule> {
        match self {
            Self::Limited { rule, .. } => *rule,
            Self::Unlimited(rule) => Some(rule),
            Self::Nothing => None,
        }
    }
}

impl Imposed<'_> {
    pub(super) fn limit(&self) -> &Limit {
        match self {
            Self::ByRule(limit) => limit,
            Self::ByRequest(limit) => limit,
        }
    }
}

/// The part in a request that a rule gives its limit.
pub(super) fn role_of(rule: &Rule) -> Role {
    match (rule.shadow_mode(), rule.quota_mode()) {
        (false, false) => Role::Enforce,
        (true, false) => Role::Shadow,
        (false, true) => Role::Quota,
        (true, true) => Role::QuotaShadow,
    }
}

/// Drops the limits whose name another rule of the request replaces. Unlimited rules replace, and are not replaced; what is
/// replaced still replaces others.
pub(super) fn drop_replaced(targets: &mut [Target<'_>]) {
    let replaced: Few<&str> =
        targets.iter().filter_map(Target::rule).flat_map(Rule::replaces).map(AsRef::as_ref).collect();
    if replaced.is_empty() {
        return;
    }
    let gone = |target: &Target<'_>| match target {
        Target::Limited { rule: Some(rule), .. } => rule.name().is_some_and(|name| replaced.contains(&name)),
        Target::Limited { rule: None, .. } | Target::Nothing | Target::Unlimited(_) => false,
    };
    targets.iter_mut().filter(|target| gone(target)).for_each(|target| *target = Target::Nothing);
}

/// The limit of an override: a fixed window, as envoyproxy/ratelimit counts it.
fn fixed(window: Window, charge: Charge) -> Result<Limit, QuotaError> {
    let algorithm = Algorithm::FixedWindow(FixedWindow::new(vec![window])?);
    Limit::new(algorithm, charge, OnStoreError::Error)
}
