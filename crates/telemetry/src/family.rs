//! Values by label: of fixed words and servers, and of rules, up to a bound.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::snapshot::{MetricSeries, SampleValue};

/// Domain and rule label of the rules beyond the bound.
const OTHER: &str = "other";

/// The values of `N` labels.
type LabelValues<const N: usize> = [Cow<'static, str>; N];

/// Values by their `N` labels.
#[derive(Debug)]
pub(crate) struct Family<T, const N: usize>(RwLock<BTreeMap<LabelValues<N>, T>>);

/// Counts of rules: a set for each rule, up to a bound, and one that all other rules share, as does
/// a rule with its name. Rules resolve their sets once, when a policy is installed, so that a
/// request only counts.
#[derive(Debug)]
pub(crate) struct RuleFamily<T> {
    /// By domain and rule.
    own: Mutex<BTreeMap<(String, String), T>>,
    shared: T,
    is_shared: AtomicBool,
    max: usize,
}

impl<T, const N: usize> Default for Family<T, N> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Clone + Default, const N: usize> Family<T, N> {
    /// Returns the value with these labels, creating it if needed.
    pub(crate) fn of(&self, labels: [impl Into<Cow<'static, str>>; N]) -> T {
        let labels = labels.map(Into::into);
        if let Some(value) = self.0.read().get(&labels) {
            return value.clone();
        }
        self.0.write().entry(labels).or_default().clone()
    }

    /// Creates series: a rate over one that appears with its first event would miss that event.
    pub(crate) fn show(&self, all: impl IntoIterator<Item = [&'static str; N]>) {
        all.into_iter().for_each(|labels| drop(self.of(labels)));
    }

    /// Removes the value with these labels.
    pub(crate) fn remove(&self, labels: [impl Into<Cow<'static, str>>; N]) {
        self.0.write().remove(&labels.map(Into::into));
    }

    /// Returns the series, with the names of their labels.
    pub(crate) fn series(&self, names: [&'static str; N]) -> Vec<MetricSeries>
    where
        for<'a> SampleValue: From<&'a T>,
    {
        let values = self.0.read();
        let series = values.iter().map(|(labels, value)| {
            let labels = names.into_iter().zip(labels.iter().map(AsRef::as_ref));
            MetricSeries { labels: labels.collect(), value: value.into() }
        });
        series.collect()
    }
}

impl<T: Clone + Default> RuleFamily<T> {
    /// Creates an empty family with sets of their own for at most `max` rules; `shared` is the set
    /// of all others.
    pub(crate) fn new(max: usize, shared: T) -> Self {
        Self { own: Mutex::default(), shared, is_shared: AtomicBool::new(false), max }
    }

    /// Returns the set of a rule.
    pub(crate) fn of(&self, domain: &str, rule: &str) -> T {
        let name = (domain.to_owned(), rule.to_owned());
        let mut own = self.own.lock();
        let has_room = own.len() < self.max || own.contains_key(&name);
        if has_room && (domain, rule) != (OTHER, OTHER) {
            return own.entry(name).or_default().clone();
        }
        self.is_shared.store(true, Ordering::Relaxed);
        self.shared.clone()
    }

    /// Returns the set of a rule that has one of its own.
    pub(crate) fn own(&self, domain: &str, rule: &str) -> Option<T> {
        self.own.lock().get(&(domain.to_owned(), rule.to_owned())).cloned()
    }

    /// Removes the sets of all rules except these. In-flight requests of an older policy then
    /// count in sets that are no longer exported.
    pub(crate) fn keep(&self, rules: &HashSet<(&str, &str)>) {
        self.own.lock().retain(|(domain, rule), _| rules.contains(&(domain, rule)));
    }

    /// Calls `view` with each set, and the domain and the rule that it belongs to.
    pub(crate) fn each(&self, mut view: impl FnMut(&str, &str, &T)) {
        let own = self.own.lock();
        for ((domain, rule), set) in &*own {
            view(domain, rule, set);
        }
        if self.is_shared.load(Ordering::Relaxed) {
            view(OTHER, OTHER, &self.shared);
        }
    }

    /// Returns a series of each set.
    pub(crate) fn series<V>(&self, value: impl Fn(&T) -> &V) -> Vec<MetricSeries>
    where
        for<'a> SampleValue: From<&'a V>,
    {
        let mut series = Vec::new();
        self.each(|domain, rule, set| {
            let labels = [("domain", domain), ("rule", rule)].into_iter().collect();
            series.push(MetricSeries { labels, value: value(set).into() });
        });
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counter;

    fn shown(family: &RuleFamily<Counter>) -> Vec<(String, u64)> {
        let mut shown = Vec::new();
        family.each(|_, rule, count| shown.push((rule.to_owned(), count.get())));
        shown
    }

    #[test]
    fn rules_beyond_the_bound_share_a_set_and_removed_ones_make_room() {
        let family = RuleFamily::new(1, Counter::default());
        assert_eq!(family.series(|count| count).len(), 0);
        for rule in ["a", "b", "a", "c"] {
            family.of("d", rule).inc();
        }
        assert_eq!(shown(&family), [("a".to_owned(), 2), ("other".to_owned(), 2)]);
        assert!(family.own("d", "a").is_some() && family.own("d", "b").is_none());
        family.of("other", "other").inc();
        assert!(family.own("other", "other").is_none());
        family.keep(&HashSet::from([("other", "other")]));
        assert_eq!(shown(&family), [("other".to_owned(), 3)], "no series occurs twice");
        family.keep(&HashSet::from([("d", "b")]));
        family.of("d", "b").inc();
        assert_eq!(shown(&family), [("b".to_owned(), 1), ("other".to_owned(), 3)]);
    }
}
