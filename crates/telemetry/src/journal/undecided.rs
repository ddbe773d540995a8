//! Store errors that decisions met in the last ten seconds, by rule, kind and effect.
//!
//! They are derived from existing counters, sampled once a second, so requests pay nothing for
//! them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::algorithm::store_error::StoreError;

use crate::metrics::{Effect, Metrics, UndecidedTable, met};

/// Number of samples that are kept, one a second.
const SAMPLES: usize = 10;
/// Maximum number of causes of a sample; more are added up by kind and effect.
const MAX_CAUSES: usize = 64;
/// Domain and rule of the causes that are added up.
const OTHER: &str = "other";

/// Store errors with the same rule, kind and effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// Domain of the rule.
    pub domain: Arc<str>,
    /// Path of the rule.
    pub rule: Arc<str>,
    /// Kind of the error.
    pub error: StoreError,
    /// Effect on the decision.
    pub effect: Effect,
}

/// Store errors of the last ten seconds.
#[derive(Debug, Default)]
pub struct UndecidedWindow {
    /// Numbers at the last sample.
    last: HashMap<(Arc<str>, Arc<str>), UndecidedTable>,
    samples: VecDeque<(Duration, Vec<(Cause, u64)>)>,
}

impl UndecidedWindow {
    /// Samples the counters, `elapsed` after the last sample.
    pub fn sample(&mut self, metrics: &Metrics, elapsed: Duration) {
        let before = std::mem::take(&mut self.last);
        let mut causes = Vec::new();
        metrics.undecided(|domain, rule, table| {
            let key: (Arc<str>, Arc<str>) = (domain.into(), rule.into());
            let old = before.get(&key).copied().unwrap_or_default();
            for (cause, count) in causes_of(&key, more_than(old, table)) {
                add(&mut causes, cause, count);
            }
            self.last.insert(key, table);
        });
        self.samples.truncate(SAMPLES - 1);
        self.samples.push_front((elapsed, causes));
    }

    /// Returns the errors per second by cause, highest first.
    pub fn causes(&self) -> Vec<(Cause, f64)> {
        let mut counts: BTreeMap<&Cause, u64> = BTreeMap::new();
        for (cause, count) in self.samples.iter().flat_map(|(_, causes)| causes) {
            *counts.entry(cause).or_default() += count;
        }
        let length: Duration = self.samples.iter().map(|(elapsed, _)| *elapsed).sum();
        let seconds = length.max(Duration::from_millis(1)).as_secs_f64();
        let mut causes = Vec::new();
        for (cause, count) in counts {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            causes.push((cause.clone(), f64::from(count) / seconds));
        }
        causes.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        causes
    }
}

fn more_than(old: UndecidedTable, mut new: UndecidedTable) -> UndecidedTable {
    let pairs = new.iter_mut().flatten().zip(old.iter().flatten());
    pairs.for_each(|(new, old)| *new = new.saturating_sub(*old));
    new
}

fn causes_of(
    (domain, rule): &(Arc<str>, Arc<str>),
    table: UndecidedTable,
) -> impl Iterator<Item = (Cause, u64)> {
    met(table).map(|(error, effect, count)| {
        (Cause { domain: Arc::clone(domain), rule: Arc::clone(rule), error, effect }, count)
    })
}

/// Adds a cause, or adds its count to that of all others if there are too many.
fn add(causes: &mut Vec<(Cause, u64)>, cause: Cause, count: u64) {
    if causes.len() < MAX_CAUSES {
        causes.push((cause, count));
        return;
    }
    let other = Cause { domain: OTHER.into(), rule: OTHER.into(), ..cause };
    match causes.iter_mut().find(|(known, _)| *known == other) {
        Some((_, sum)) => *sum += count,
        None => causes.push((other, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rates(window: &UndecidedWindow) -> Vec<(String, &'static str, &'static str, f64)> {
        let view = |(cause, rate): (Cause, f64)| {
            (cause.rule.to_string(), cause.error.kind(), cause.effect.label(), rate)
        };
        window.causes().into_iter().map(view).collect()
    }

    #[test]
    fn causes_of_the_last_ten_seconds_are_listed_highest_first() {
        let metrics = Metrics::new();
        let [a, b] = ["a", "b"].map(|rule| metrics.of_rule("d", rule));
        let mut window = UndecidedWindow::default();
        (0..10).for_each(|_| window.sample(&metrics, SECOND));
        assert_eq!(rates(&window), []);
        (0..10).for_each(|_| a.undecided.inc(StoreError::Lost, Effect::Local));
        (0..30).for_each(|_| b.undecided.inc(StoreError::NoRoom, Effect::Failed));
        window.sample(&metrics, SECOND);
        let met =
            [("b".to_owned(), "no_room", "failed", 3.0), ("a".to_owned(), "lost", "local", 1.0)];
        (0..9).for_each(|_| {
            assert_eq!(rates(&window), met);
            window.sample(&metrics, SECOND);
        });
        window.sample(&metrics, SECOND);
        assert_eq!(rates(&window), []);
    }

    #[test]
    fn many_rules_are_added_up() {
        let metrics = Metrics::new();
        let rules: Vec<_> =
            (0..1_000).map(|number| metrics.of_rule("d", &number.to_string())).collect();
        rules.iter().for_each(|rule| rule.undecided.inc(StoreError::Late, Effect::Allowed));
        let mut window = UndecidedWindow::default();
        window.sample(&metrics, SECOND);
        let causes = window.causes();
        assert_eq!((causes.len(), &*causes[0].0.rule, causes[0].1), (65, OTHER, 936.0));
    }
}
