//! Descriptors: the entries by which a policy finds the limits of a request.

use std::borrow::Cow;

use crate::generated::envoy::extensions::common::ratelimit::v3 as wire;

/// The entries of a descriptor, in the order in which the policy nests its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Descriptor {
    entries: Vec<(Cow<'static, str>, String)>,
}

impl Descriptor {
    /// Returns a descriptor of one entry.
    pub fn new(key: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        Self { entries: vec![(key.into(), value.into())] }
    }

    /// Adds an entry.
    #[must_use]
    pub fn and(mut self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.entries.push((key.into(), value.into()));
        self
    }

    /// Returns the key of the last entry.
    pub(crate) fn last_key(&self) -> Option<&str> {
        self.entries.last().map(|(key, _)| key.as_ref())
    }

    /// Returns its size in bytes, of which each entry counts as `entry` more than its text.
    pub(crate) fn size(&self, entry: usize) -> usize {
        self.entries.iter().map(|(key, value)| key.len() + value.len() + entry).sum()
    }

    pub(crate) fn message(&self) -> wire::RateLimitDescriptor {
        let entry = |(key, value): &(Cow<'static, str>, String)| {
            wire::rate_limit_descriptor::Entry { key: key.to_string(), value: value.clone() }
        };
        wire::RateLimitDescriptor {
            entries: self.entries.iter().map(entry).collect(),
            ..wire::RateLimitDescriptor::default()
        }
    }
}

impl<K: Into<Cow<'static, str>>, V: Into<String>> FromIterator<(K, V)> for Descriptor {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self { entries: entries.collect() }
    }
}

pub(crate) fn messages(descriptors: &[Descriptor]) -> Vec<wire::RateLimitDescriptor> {
    descriptors.iter().map(Descriptor::message).collect()
}
