//! Decision rates of each rule, over the last second, minute and 15 minutes, and their history.
//!
//! They are derived from existing counters, sampled once a second, so requests pay nothing for
//! them. Each rule that has decided anything has 60 samples of a second, 15 of a minute and, of
//! three counts, 60 of 15 seconds: 2.6 kB.

use std::collections::HashMap;
use std::time::Duration;

/// Number of counts of a rule.
const COUNTS: usize = 6;

/// The counts of a rule: descriptors allowed, denied, allowed near the limit, shadow-denied, failed
/// (no decision), and unchecked (decided without the store).
pub type Counts = [u64; COUNTS];
/// The counts per second.
pub type PerSecond = [f64; COUNTS];

const SECONDS: usize = 60;
const MINUTES: usize = 15;
/// Number of counts with a history: allowed, denied, shadow-denied.
const CHARTED: usize = 3;
/// Number of steps of a history, and the samples of each.
const STEPS: usize = 60;
const STEP: usize = 15;

/// The decision rates of all rules.
#[derive(Debug, Default)]
pub struct Rates {
    /// Generation of the policies that the rule IDs belong to.
    generation: Option<u64>,
    /// Samples by rule ID; `None` if the rule has not decided anything yet.
    rules: Vec<Option<Box<Ring>>>,
    seconds: Lengths<SECONDS>,
    minutes: Lengths<MINUTES>,
    steps: Lengths<STEPS>,
    /// Number of samples; every 60th starts a new minute.
    ticks: usize,
}

/// The counters of a rule at one sample.
#[derive(Clone, Copy, Debug)]
pub struct CounterSnapshot<'a> {
    /// Domain of the rule.
    pub domain: &'a str,
    /// Path of the rule.
    pub rule: &'a str,
    /// Counts since the process started.
    pub counts: Counts,
}

/// Decisions per second over three periods that end now, and the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Totals since the process started.
    pub all: Counts,
    /// Rates over the last second.
    pub second: PerSecond,
    /// Rates over the last minute.
    pub minute: PerSecond,
    /// Rates over the last 15 minutes, or over the time known if shorter.
    pub quarter: PerSecond,
}

/// Decisions per second in one step of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateStep {
    /// Seconds from the end of the step to the last sample.
    pub seconds_ago: f64,
    /// Descriptors allowed per second.
    pub allowed: f64,
    /// Descriptors denied per second.
    pub denied: f64,
    /// Descriptors denied per second by a rule in shadow mode.
    pub shadow_denied: f64,
}

/// The durations of the samples in microseconds.
#[derive(Debug)]
struct Lengths<const N: usize>([u64; N]);

impl<const N: usize> Default for Lengths<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

#[derive(Debug)]
struct Ring {
    domain: Box<str>,
    rule: Box<str>,
    last: Counts,
    /// Samples by tick; zero for ticks before the rule was sampled.
    seconds: [[u32; COUNTS]; SECONDS],
    minutes: [[u32; COUNTS]; MINUTES],
    steps: [[u32; CHARTED]; STEPS],
}

impl Rates {
    /// Samples the counts of rules, in the order of rule IDs, `elapsed` after the last sample. A
    /// new `generation` means other rules: removed ones are dropped.
    pub fn sample<'a>(
        &mut self,
        generation: u64,
        rules: impl Iterator<Item = CounterSnapshot<'a>> + Clone,
        elapsed: Duration,
    ) {
        if self.generation != Some(generation) {
            self.generation = Some(generation);
            self.renumber(rules.clone());
        }
        self.ticks = self.ticks.wrapping_add(1);
        let [second, minute, step] = self.places();
        let is_new_minute = second == 0;
        let is_new_step = second % STEP == 0;
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.seconds.set(second, elapsed_us);
        if is_new_minute {
            self.minutes.set(minute, 0);
        }
        self.minutes.add(minute, elapsed_us);
        if is_new_step {
            self.steps.set(step, 0);
        }
        self.steps.add(step, elapsed_us);
        for (place, snapshot) in self.rules.iter_mut().zip(rules) {
            if place.is_none() && snapshot.counts != [0; COUNTS] {
                *place = Some(Box::new(Ring::new(&snapshot)));
            }
            if let Some(ring) = place {
                let more = ring.put(second, (minute, is_new_minute), snapshot.counts);
                ring.put_step(step, is_new_step, more);
            }
        }
    }

    fn ring(&self, generation: u64, rule: usize) -> Option<&Ring> {
        let ring = self.rules.get(rule).and_then(Option::as_ref);
        ring.filter(|_| self.generation == Some(generation)).map(AsRef::as_ref)
    }

    /// Returns the rate of a rule by its ID, in the policies of `generation`.
    pub fn of(&self, generation: u64, rule: usize) -> Rate {
        let Some(ring) = self.ring(generation, rule) else { return Rate::default() };
        let [second, ..] = self.places();
        let last = ring.seconds.get(second).copied().unwrap_or_default();
        let last_us = self.seconds.0.get(second).copied().unwrap_or_default();
        Rate {
            all: ring.last,
            second: per_second([last].iter(), last_us),
            minute: per_second(ring.seconds.iter(), self.seconds.sum()),
            quarter: per_second(ring.minutes.iter(), self.minutes.sum()),
        }
    }

    /// Returns domain, path and rates of each rule that decided anything in the last minute.
    pub(super) fn last_minute(&self) -> impl Iterator<Item = (&str, &str, PerSecond)> {
        let length_us = self.seconds.sum();
        let rules = self.rules.iter().flatten().map(move |ring| {
            (&*ring.domain, &*ring.rule, per_second(ring.seconds.iter(), length_us))
        });
        rules.filter(|(.., minute)| *minute != [0.0; COUNTS])
    }

    /// Returns the complete steps of the last 15 minutes of a rule, oldest first; empty if it has
    /// decided nothing.
    pub fn history(&self, generation: u64, rule: usize) -> Vec<RateStep> {
        let Some(ring) = self.ring(generation, rule) else { return Vec::new() };
        let [_, _, current] = self.places();
        let mut ago_us = self.steps.0.get(current).copied().unwrap_or_default();
        let mut steps = Vec::with_capacity(STEPS);
        for back in 1..STEPS {
            let place = (current + STEPS - back) % STEPS;
            let length_us = self.steps.0.get(place).copied().unwrap_or_default();
            if length_us == 0 {
                break;
            }
            let counts = ring.steps.get(place).copied().unwrap_or_default();
            let length = Duration::from_micros(length_us).as_secs_f64();
            let [allowed, denied, shadow_denied] = counts.map(|count| f64::from(count) / length);
            let seconds_ago = Duration::from_micros(ago_us).as_secs_f64();
            steps.push(RateStep { seconds_ago, allowed, denied, shadow_denied });
            ago_us += length_us;
        }
        steps.reverse();
        steps
    }

    /// Returns the number of rules that have decided something.
    pub fn len(&self) -> usize {
        self.rules.iter().flatten().count()
    }

    /// Returns `true` if no rule has decided anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory in use in bytes.
    pub fn bytes(&self) -> usize {
        let places = self.rules.capacity() * size_of::<Option<Box<Ring>>>();
        self.len() * (size_of::<Ring>() + 64) + places
    }

    /// Returns the indices of the latest sample among seconds, minutes and steps.
    fn places(&self) -> [usize; 3] {
        [self.ticks % SECONDS, (self.ticks / SECONDS) % MINUTES, (self.ticks / STEP) % STEPS]
    }

    fn renumber<'a>(&mut self, rules: impl Iterator<Item = CounterSnapshot<'a>>) {
        let old = std::mem::take(&mut self.rules).into_iter().flatten();
        let mut old: HashMap<_, _> =
            old.map(|ring| ((ring.domain.clone(), ring.rule.clone()), ring)).collect();
        // A rule without samples costs a pointer, and a lookup here.
        self.rules = rules
            .map(|snapshot| old.remove(&(snapshot.domain.into(), snapshot.rule.into())))
            .collect();
    }
}

impl<const N: usize> Lengths<N> {
    fn set(&mut self, place: usize, us: u64) {
        if let Some(length) = self.0.get_mut(place) {
            *length = us;
        }
    }

    fn add(&mut self, place: usize, us: u64) {
        if let Some(length) = self.0.get_mut(place) {
            *length += us;
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Ring {
    fn new(snapshot: &CounterSnapshot<'_>) -> Self {
        Self {
            domain: snapshot.domain.into(),
            rule: snapshot.rule.into(),
            last: [0; COUNTS],
            seconds: [[0; COUNTS]; SECONDS],
            minutes: [[0; COUNTS]; MINUTES],
            steps: [[0; CHARTED]; STEPS],
        }
    }

    /// Records the counts of a second; returns how much they have grown.
    fn put(
        &mut self,
        second: usize,
        (minute, is_new_minute): (usize, bool),
        counts: Counts,
    ) -> [u32; COUNTS] {
        let mut more = [0; COUNTS];
        for (more, (now, last)) in more.iter_mut().zip(counts.iter().zip(&self.last)) {
            *more = u32::try_from(now.saturating_sub(*last)).unwrap_or(u32::MAX);
        }
        self.last = counts;
        if let Some(place) = self.seconds.get_mut(second) {
            *place = more;
        }
        if let Some(place) = self.minutes.get_mut(minute) {
            let before = if is_new_minute { [0; COUNTS] } else { *place };
            *place = sum([before, more].iter());
        }
        more
    }

    /// Adds the growth of a second to its step.
    fn put_step(&mut self, step: usize, is_new: bool, more: [u32; COUNTS]) {
        let [allowed, denied, _, shadow_denied, ..] = more;
        let Some(place) = self.steps.get_mut(step) else { return };
        if is_new {
            *place = [0; CHARTED];
        }
        for (sum, more) in place.iter_mut().zip([allowed, denied, shadow_denied]) {
            *sum = sum.saturating_add(more);
        }
    }
}

fn sum<'a>(samples: impl Iterator<Item = &'a [u32; COUNTS]>) -> [u32; COUNTS] {
    samples.fold([0; COUNTS], |mut sum, sample| {
        sum.iter_mut().zip(sample).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        sum
    })
}

fn per_second<'a>(samples: impl Iterator<Item = &'a [u32; COUNTS]>, length_us: u64) -> PerSecond {
    let seconds = Duration::from_micros(length_us).as_secs_f64();
    sum(samples).map(|count| if seconds > 0.0 { f64::from(count) / seconds } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn look<'a>(rule: &'a str, allowed: u64) -> CounterSnapshot<'a> {
        CounterSnapshot { domain: "d", rule, counts: [allowed, 0, 0, 0, 0, 0] }
    }

    #[test]
    fn three_rates_end_now() {
        let mut rates = Rates::default();
        for second in 1..=120u64 {
            // 10 a second for a minute, then 100 a second.
            let allowed = if second <= 60 { second * 10 } else { 600 + (second - 60) * 100 };
            rates.sample(1, [look("r", allowed)].into_iter(), SECOND);
        }
        let rate = rates.of(1, 0);
        assert_eq!((rate.second[0], rate.minute[0], rate.quarter[0]), (100.0, 100.0, 55.0));
        rates.sample(1, [look("r", 6_600)].into_iter(), SECOND);
        assert_eq!(rates.of(1, 0).second[0], 0.0);
    }

    #[test]
    fn the_history_has_the_complete_steps_of_15_minutes() {
        let mut rates = Rates::default();
        for second in 1..=1_000u64 {
            // 2 a second, but 4 a second from 900 s on.
            let allowed = second * 2 + second.saturating_sub(900) * 2;
            rates.sample(1, [look("r", allowed), look("idle", 0)].into_iter(), SECOND);
        }
        let history = rates.history(1, 0);
        assert_eq!(history.len(), STEPS - 1);
        // 990 to 1,000 are an incomplete step.
        let ends: Vec<_> = history.iter().rev().map(|step| step.seconds_ago).collect();
        assert_eq!(ends[..3], [11.0, 26.0, 41.0]);
        assert_eq!((history[0].allowed, history[STEPS - 2].allowed), (2.0, 4.0));
        assert_eq!(history[0].denied, 0.0);
        assert_eq!((rates.history(1, 1), rates.history(2, 0)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_history_of_a_young_process_is_as_long_as_its_life() {
        let mut rates = Rates::default();
        (1..=50).for_each(|second| rates.sample(1, [look("r", second)].into_iter(), SECOND));
        let history = rates.history(1, 0);
        let found: Vec<_> = history.iter().map(|step| (step.seconds_ago, step.allowed)).collect();
        // The first sample begins the count.
        assert_eq!(found, [(36.0, 1.0), (21.0, 1.0), (6.0, 1.0)]);
    }

    #[test]
    fn samples_expire_after_15_minutes() {
        let mut rates = Rates::default();
        (0..16 * 60).for_each(|second| {
            rates.sample(1, [look("r", if second < 10 { 0 } else { 9 })].into_iter(), SECOND)
        });
        assert_eq!(rates.of(1, 0), Rate { all: [9, 0, 0, 0, 0, 0], ..Rate::default() });
    }

    #[test]
    fn a_rule_keeps_its_rate_through_a_reload_and_one_that_is_removed_is_forgotten() {
        let mut rates = Rates::default();
        rates.sample(1, [look("a", 0), look("b", 7), look("c", 3)].into_iter(), SECOND);
        assert_eq!(rates.len(), 2);
        rates.sample(2, [look("new", 0), look("b", 8)].into_iter(), SECOND);
        assert_eq!(
            (rates.len(), rates.of(2, 1).second[0], rates.of(2, 1).minute[0]),
            (1, 1.0, 4.0)
        );
        assert_eq!(rates.of(1, 1), Rate::default(), "of other policies nothing is known");
    }

    #[test]
    fn the_samples_of_a_rule_are_small() {
        assert!(size_of::<Ring>() < 2_650);
    }
}
