//! The target of a descriptor: nothing, a rule without a limit, or a limit and its counter key.

use super::entries::FirstEntries;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::hold::HoldRequest;
use crate::algorithm::lease::Lease;
use crate::algorithm::quota::{QuotaError, Window};
use crate::algorithm::verdict::Role;
use crate::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use crate::descriptor::{Descriptor, KeyBuffer, KeyRange, Keyed, Override};
use crate::policy::{Imposes, LeaseHolder, Policy, Rule};

/// Maximum length of a recorded value in bytes: enough to identify a client.
const MAX_RECORDED: usize = 128;

/// The target of one descriptor.
#[derive(Debug)]
pub(super) enum DescriptorTarget<'a> {
    /// No rule, a rule that imposes nothing, or one that another rule of the request replaces.
    Nothing,
    /// A rule that is declared unlimited.
    Unlimited(&'a Rule),
    /// A limit. `keyed` is the hasher for its values, if they must not be shown.
    Limited { rule: Option<&'a Rule>, limit: Imposed<'a>, key: KeyRange, keyed: Option<&'a Keyed> },
}

/// The limit of a rule, or one that the request itself sets.
#[derive(Debug)]
pub(super) enum Imposed<'a> {
    ByRule(&'a Limit),
    ByRequest(Box<Limit>),
}

impl<'a> DescriptorTarget<'a> {
    /// Matches a descriptor and encodes its counter key. `beside` is the hasher for a rule's own
    /// limit if the rule itself does not hash values.
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

    /// Returns the target of an override: the rule's own limit with other numbers if the rule
    /// inherits overrides, else a fixed window.
    fn overridden(
        policy: &'a Policy,
        rule: Option<&'a Rule>,
        wanted: Override,
        descriptor: &Descriptor<'_>,
        keys: &mut KeyBuffer,
    ) -> Self {
        let inheriting = rule.filter(|rule| rule.inherits_override());
        let inheriting = inheriting.and_then(|rule| Some((rule, rule.limit()?)));
        // The period was validated when the request was read; a window that cannot be counted
        // imposes no limit.
        let Ok(window) = Window::new(wanted.limit, wanted.period) else { return Self::Nothing };
        if let Some((rule, limit)) = inheriting {
            let own = limit.windows().iter().all(|own| own.period() == window.period());
            let period = (!own).then_some(window.period());
            if let Ok(limit) = limit.with_window(window.clone()) {
                let key = policy.finish(rule, keys, period);
                let keyed = policy.keyed_for(rule);
                return Self::Limited {
                    rule: Some(rule),
                    limit: Imposed::ByRequest(Box::new(limit)),
                    key,
                    keyed,
                };
            }
        }
        keys.begin();
        for entry in &descriptor.entries {
            keys.push(entry.key);
            keys.push(entry.value);
        }
        let key = policy.finish_override(keys, wanted.period);
        let keyed = policy.keyed_for_overrides();
        match fixed(window, policy.override_charge()) {
            Ok(limit) => {
                Self::Limited { rule: None, limit: Imposed::ByRequest(Box::new(limit)), key, keyed }
            }
            Err(_) => Self::Nothing,
        }
    }

    /// Returns the rule's own limit and its counter key; `None` if the request set the limit.
    pub(super) fn of_rule(self) -> Option<(&'a Rule, &'a Limit, KeyRange)> {
        match self {
            Self::Limited { rule: Some(rule), limit: Imposed::ByRule(limit), key, .. } => {
                Some((rule, limit, key))
            }
            Self::Limited { .. } | Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    pub(super) fn key(&self) -> Option<&KeyRange> {
        match self {
            Self::Limited { key, .. } => Some(key),
            Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    /// Returns the hasher for the values of its counter; `None` if they may be shown.
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

    /// Returns the lease of the rule's own limit for this process, if any; `None` if the request
    /// set the limit.
    pub(super) fn lease(&self) -> Option<Lease> {
        match self {
            Self::Limited { rule: Some(rule), limit: Imposed::ByRule(limit), .. } => {
                Some(rule.lease_for(LeaseHolder::Process)?.of(limit))
            }
            Self::Limited { .. } | Self::Nothing | Self::Unlimited(_) => None,
        }
    }

    pub(super) fn role(&self) -> Role {
        match self {
            Self::Limited { rule: Some(rule), .. } => role_of(rule),
            Self::Limited { rule: None, .. } | Self::Nothing | Self::Unlimited(_) => Role::Enforce,
        }
    }

    /// Returns the entries of the request that the rule records, as `key=value`; of several with
    /// one key, the first.
    pub(super) fn recorded(&self, entries: &FirstEntries<'_, '_>) -> Vec<Vec<u8>> {
        let Self::Limited { rule: Some(rule), .. } = self else { return Vec::new() };
        let recorded = rule.record().iter().filter_map(|key| entries.with_key(key));
        recorded
            .map(|entry| match self.keyed() {
                None => recorded_text(entry.key, entry.value),
                Some(keyed) => recorded_text(entry.key, keyed.shown(entry.value).as_bytes()),
            })
            .collect()
    }

    /// Returns the rule; `None` if the request set the limit.
    pub(super) fn rule(&self) -> Option<&'a Rule> {
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

/// Returns an entry as `key=value`, with the beginning of a long value.
fn recorded_text(key: &[u8], value: &[u8]) -> Vec<u8> {
    [key, b"=", value.get(..MAX_RECORDED).unwrap_or(value)].concat()
}

/// Returns the role that a rule gives its limit.
pub(super) fn role_of(rule: &Rule) -> Role {
    match (rule.shadow_mode(), rule.quota_mode()) {
        (false, false) => Role::Enforce,
        (true, false) => Role::Shadow,
        (false, true) => Role::Quota,
        (true, true) => Role::QuotaShadow,
    }
}

/// Creates the limit of an override: a fixed window, as in envoyproxy/ratelimit.
fn fixed(window: Window, charge: Charge) -> Result<Limit, QuotaError> {
    let algorithm = Algorithm::FixedWindow(FixedWindow::new(vec![window])?);
    Limit::new(algorithm, charge, OnStoreError::Error)
}

/// Returns the operation of a descriptor on a hold, if its limit keeps holds and its ID is one.
/// Otherwise a reserve is a plain charge, and an end changes nothing.
#[inline]
pub(super) fn operation<'a>(
    descriptor: &'a Descriptor<'_>,
    limit: &Limit,
) -> Option<&'a HoldRequest<'a>> {
    descriptor.hold.as_deref().filter(|hold| limit.hold().is_some() && hold.is_valid())
}
