//! Exchange of rates between processes on one store: a text with the busiest rules of a process,
//! bounded in size, and the sum of those of others.
//!
//! Encoded as JSON for compatibility between versions: readers ignore unknown fields.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::rates::{PerSecond, Rates};

/// Maximum size of a text in bytes.
const MAX_RATES: usize = 16 << 10;
/// Bytes of a rule besides its names.
const RULE_BYTES: usize = 128;

/// The rates of one rule over the last minute.
#[derive(Serialize, Deserialize)]
struct SharedRate {
    domain: String,
    rule: String,
    minute: PerSecond,
}

/// Sums of the rates of several processes over the last minute, by domain and rule.
#[derive(Debug, Default)]
pub struct RateSums(HashMap<String, HashMap<String, PerSecond>>);

impl Rates {
    /// Returns the rates of the rules that decided most in the last minute, as text; empty if none
    /// decided anything.
    pub fn message(&self) -> String {
        let mut busy: Vec<_> = self.last_minute().collect();
        busy.sort_by(|(.., one), (.., other)| {
            let [one, other] = [one, other].map(|minute| minute.iter().sum::<f64>());
            other.total_cmp(&one)
        });
        let mut bytes = 0_usize;
        let rates = busy.into_iter().take_while(|(domain, rule, _)| {
            bytes = bytes.saturating_add(domain.len() + rule.len() + RULE_BYTES);
            bytes <= MAX_RATES
        });
        let rates = rates.map(|(domain, rule, minute)| SharedRate {
            domain: domain.to_owned(),
            rule: rule.to_owned(),
            // Two decimals: a busy rule needs fewer, and the text is shorter.
            minute: minute.map(|rate| (rate * 100.0).round() / 100.0),
        });
        let rates: Vec<_> = rates.collect();
        if rates.is_empty() {
            return String::new();
        }
        serde_json::to_string(&rates).unwrap_or_default()
    }
}

impl RateSums {
    /// Adds the rates of a process. Text that cannot be parsed adds nothing.
    pub fn add(&mut self, text: &str) {
        let rates: Vec<SharedRate> = serde_json::from_str(text).unwrap_or_default();
        for SharedRate { domain, rule, minute } in rates {
            let sum = self.0.entry(domain).or_default().entry(rule).or_default();
            *sum = sum_of(*sum, minute);
        }
    }

    /// Returns the sum of a rule, and the rates of one more process.
    pub fn plus(&self, domain: &str, rule: &str, more: PerSecond) -> PerSecond {
        self.0.get(domain).and_then(|rules| rules.get(rule)).map_or(more, |sum| sum_of(*sum, more))
    }
}

fn sum_of(mut sum: PerSecond, more: PerSecond) -> PerSecond {
    sum.iter_mut().zip(more).for_each(|(sum, rate)| *sum += rate);
    sum
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rates::CounterSnapshot;
    use super::*;

    #[test]
    fn the_rates_of_other_processes_add_up() {
        let mut rates = Rates::default();
        let look =
            |rule, allowed| CounterSnapshot { domain: "d", rule, counts: [allowed, 1, 0, 0, 0, 0] };
        assert_eq!(rates.message(), "");
        rates.sample(1, [look("a", 10), look("b", 20)].into_iter(), Duration::from_secs(2));
        let mut sums = RateSums::default();
        (0..3).for_each(|_| sums.add(&rates.message()));
        sums.add("no JSON");
        let of = |rule| sums.plus("d", rule, PerSecond::default());
        assert_eq!(of("a"), [15.0, 1.5, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!((of("b")[0], of("c")[0]), (30.0, 0.0));
    }

    #[test]
    fn a_text_has_the_busiest_rules_that_fit() {
        let mut rates = Rates::default();
        let names: Vec<_> = (0..500_u32).map(|number| format!("rule-{number:03}\"")).collect();
        let all = names.iter().zip(0..).map(|(rule, allowed)| CounterSnapshot {
            domain: "d",
            rule,
            counts: [u64::MAX - allowed, 0, 0, 0, 0, allowed],
        });
        rates.sample(1, all, Duration::from_secs(1));
        let text = rates.message();
        assert!((MAX_RATES / 3..=MAX_RATES).contains(&text.len()), "{}", text.len());
        let mut sums = RateSums::default();
        sums.add(&text);
        assert!(sums.plus("d", "rule-499\"", PerSecond::default())[0] > 0.0, "the busiest");
    }
}
