//! Tests of the module as a whole.

mod counters;
mod dialect;
mod differences;
mod examples;
mod hashed;
mod holds;
mod limits;
mod loans;
mod matching;
mod metric_keys;
mod overlays;
mod quirks;
mod quotas;
mod reports;
mod requests;
mod robust;
mod warnings;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tollgate_core::descriptor::{Entry, Identity, KeyBuffer};

use super::{CompileOptions, Loaded, PolicySet, ProblemReport, Source, load};

/// Returns sources named `a.yaml`, `b.yaml` and so on.
fn sources(texts: &[&str]) -> Vec<Source> {
    let named = |(name, text): (char, &&str)| Source {
        name: format!("{name}.yaml"),
        text: (*text).to_owned(),
    };
    ('a'..='z').zip(texts).map(named).collect()
}

fn load_all(texts: &[&str]) -> Result<Loaded, ProblemReport> {
    load(&sources(texts), &CompileOptions::default())
}

/// Loads policies that have no warnings.
fn policies(text: &str) -> PolicySet {
    let loaded = load_all(&[text]).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.policies
}

fn warnings(text: &str) -> String {
    load_all(&[text]).unwrap_or_else(|report| panic!("{report}")).warnings.to_string()
}

fn errors(texts: &[&str]) -> String {
    load_all(texts).unwrap_err().to_string()
}

/// Checks that files are refused by a report with these texts.
#[track_caller]
fn refused(texts: &[&str], expected: &[&str]) {
    let report = errors(texts);
    assert!(expected.iter().all(|text| report.contains(text)), "{report}");
}

/// Returns a policy with one limit, whose `rate_limit` is given in flow style.
fn limited(rate_limit: &str) -> String {
    format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {rate_limit}\n")
}

fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
    pairs
        .iter()
        .map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() })
        .collect()
}

/// Returns the path of the rule that is matched in domain `d`, and the counter's key.
fn hit(set: &PolicySet, pairs: &[(&str, &str)]) -> Option<(String, Vec<u8>)> {
    let mut buffer = KeyBuffer::default();
    let policy = set.find("d")?;
    let rule = policy.find(&entries(pairs), &mut buffer)?;
    let range = policy.finish(rule, &mut buffer, None);
    Some((rule.path().to_owned(), buffer.key("d", &range).bytes().to_vec()))
}

fn path(set: &PolicySet, pairs: &[(&str, &str)]) -> Option<String> {
    hit(set, pairs).map(|(path, _)| path)
}

/// Returns the identity of the only limit of [`limited`].
fn identity(rate_limit: &str) -> Identity {
    let set = policies(&limited(rate_limit));
    *set.rules().next().unwrap().identity()
}

/// Returns the CPU time of this thread: other threads take none of it.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}
