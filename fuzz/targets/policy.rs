//! Arbitrary text as policies: it loads or is refused with a report, and a loaded policy can be
//! queried.

use tollgate::algorithm::judge::Hits;
use tollgate::algorithm::time::{Micros, Timestamp};
use tollgate::descriptor::{Descriptor, Entry, KeyBuffer, Request};
use tollgate::policy::{
    CompileOptions, Imposes, Policy, PolicyDialect, PolicySet, Rule, Source, load,
};

use super::service::Service;

/// Maximum number of rules that are queried; others exercise no other code.
const MAX_RULES: usize = 16;
/// An instant in the 21st century that is not a window boundary.
const NOW: Timestamp = Timestamp::from_micros(1_780_000_012_345_678);

/// Reads the bytes as one file, or as two separated by a zero byte.
pub(crate) fn run(bytes: &[u8]) {
    let texts = bytes.splitn(2, |byte| *byte == 0);
    let named = |(name, text): (&str, &[u8])| Source {
        name: name.into(),
        text: String::from_utf8_lossy(text).into(),
    };
    let sources: Vec<Source> = ["a.yaml", "b.yaml"].into_iter().zip(texts).map(named).collect();
    for (merge_domains, dialect) in [
        (false, PolicyDialect::Tollgate),
        (true, PolicyDialect::Tollgate),
        (true, PolicyDialect::Envoyproxy),
    ] {
        match load(
            &sources,
            &CompileOptions { merge_domains, dialect, ..CompileOptions::default() },
        ) {
            Err(report) => assert!(!report.to_string().is_empty()),
            Ok(loaded) => {
                assert_eq!(loaded.warnings.is_empty(), loaded.warnings.to_string().is_empty());
                return query(loaded.policies);
            }
        }
    }
}

fn query(set: PolicySet) {
    assert!(
        set.rules().map(Rule::id).eq(0..set.rules().count()),
        "rules are numbered in their order"
    );
    let rules: Vec<_> = set
        .rules()
        .take(MAX_RULES)
        .map(|rule| (rule.domain().to_owned(), rule.path().to_owned()))
        .collect();
    let periods: Vec<_> = set.rules().take(MAX_RULES).map(longest_period).collect();
    for (domain, path) in &rules {
        find_and_trace_agree(
            set.find(domain).expect("a rule's domain has a policy"),
            &entries(path),
        );
    }
    let service = Service::new(set);
    for ((domain, path), period) in rules.iter().zip(periods) {
        // Now, 1 us later, a period later, and a clock that steps back.
        for now in [NOW, NOW + Micros::new(1), NOW + period, NOW - period] {
            service.set_time(now);
            for hits in [
                Hits::Charge(1),
                Hits::Peek(0),
                Hits::Peek(2),
                Hits::Charge(u32::MAX),
                Hits::Refund(1),
                Hits::Charge(2),
            ] {
                let descriptor =
                    Descriptor { entries: entries(path).into(), hits, hold: None, limit: None };
                service
                    .decide(&Request { domain, descriptors: [descriptor].into_iter().collect() });
            }
        }
    }
    service.end();
}

/// Returns a descriptor that matches the rule at this path, unless the rule's words contain the
/// path's own separators.
fn entries(path: &str) -> Vec<Entry<'_>> {
    let steps = path.split(" > ").map(|step| step.split_once('=').unwrap_or((step, "any")));
    steps.map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() }).collect()
}

fn find_and_trace_agree(policy: &Policy, entries: &[Entry<'_>]) {
    let found = policy.find(entries, &mut KeyBuffer::default()).map(Rule::id);
    let steps = policy.trace(entries);
    let taken = steps.last().filter(|_| steps.len() == entries.len()).and_then(|step| step.taken);
    assert_eq!(found, taken.map(|(_, rule)| rule.id()));
}

fn longest_period(rule: &Rule) -> Micros {
    match rule.imposes() {
        Imposes::Limit(limit) => {
            limit.windows().iter().map(|window| window.period()).max().unwrap_or_default()
        }
        Imposes::Nothing | Imposes::Unlimited => Micros::ZERO,
    }
}
