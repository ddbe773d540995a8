//! What the benchmarks and `examples/instructions.rs` decide on: policies, requests, and a limiter in memory.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use prost::Message as _;
use tollgate::algorithm::judge::Hits;
use tollgate::algorithm::time::Timestamp;
use tollgate::descriptor::{Descriptor, Entry, Request};
use tollgate::grpc::proto::rate_limit_descriptor::Entry as EntryMessage;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate::grpc::request::RequestBounds;
use tollgate::limiter::{Decision, InForce, Limiter, Modes};
use tollgate::policy::{Options, PolicySet, Source, load};
use tollgate::store::clock::ManualClock;
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::telemetry::metrics::Metrics;

/// As many as the service takes by default, or more.
pub(crate) const BOUNDS: RequestBounds = RequestBounds { descriptors: 256, entries: 64 };
const NOW: Timestamp = Timestamp::from_micros(1_780_000_000_000_000);

/// A limiter whose clock stands still.
pub(crate) struct Decider(Limiter<MemoryStore<Arc<ManualClock>>>);

impl Decider {
    /// With a limit for `user` by an algorithm.
    pub(crate) fn of(algorithm: &str) -> Self {
        // A log grows with every hit that it admits: here it admits the first few of each user.
        let amount = if algorithm == "sliding_log" { 10 } else { 1_000_000_000 };
        let limit = format!("{{ algorithm: {algorithm}, unit: hour, requests_per_unit: {amount} }}");
        Self::under(&format!("domain: bench\ndescriptors: [{{ key: user, rate_limit: {limit} }}]\n"))
    }

    /// With a policy of the domain `bench`.
    pub(crate) fn under(policy: &str) -> Self {
        let clock = Arc::<ManualClock>::default();
        clock.set(NOW);
        let store = MemoryStore::new(Bounds { max_bytes: 1 << 28, domain_max_bytes: 1 << 28 }, clock);
        let in_force = InForce::new(Metrics::new());
        in_force.install(policies(policy));
        Self(Limiter::new(in_force, store, Modes::default()))
    }

    /// What `read` makes of the decision.
    pub(crate) fn decide<T>(&self, request: &Request<'_>, read: impl FnOnce(&Decision<'_>) -> T) -> T {
        let snapshot = self.0.snapshot();
        let decided = pin!(self.0.decide(&snapshot, request, Instant::now()));
        match decided.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => read(&decision.unwrap()),
            Poll::Pending => panic!("the memory store waits for nothing"),
        }
    }
}

/// Policies of one file.
pub(crate) fn policies(text: &str) -> PolicySet {
    let source = Source { name: "bench.yaml".to_owned(), text: text.to_owned() };
    load(&[source], &Options::default()).unwrap_or_else(|report| panic!("{report}")).policies
}

/// A rule of a list; an empty value is none.
pub(crate) fn rule(key: &str, value: &str) -> String {
    let value = if value.is_empty() { String::new() } else { format!("value: \"{value}\", ") };
    format!("  - {{ key: {key}, {value}rate_limit: {{ unit: hour, requests_per_unit: 1000000000 }} }}\n")
}

/// A domain with so many exact siblings.
pub(crate) fn siblings(count: usize) -> String {
    let rules: String = (0..count).map(|number| rule("route", &format!("r{number:08}"))).collect();
    format!("domain: bench\ndescriptors:\n{rules}")
}

/// A domain with this many patterns for `user`, which match a value that has a word of four digits in it.
pub(crate) fn patterns(count: usize) -> String {
    let rules: String = (0..count).map(|number| rule("user", &format!("*word{number:04}*"))).collect();
    format!("domain: bench\ndescriptors:\n{rules}")
}

/// A message of a request, of descriptors `key=value,…`.
pub(crate) fn message(descriptors: &[&str]) -> Vec<u8> {
    let entry =
        |(key, value): (&str, &str)| EntryMessage { key: key.to_owned().into(), value: value.to_owned().into() };
    let descriptors = descriptors.iter().map(|text| RateLimitDescriptor {
        entries: entries(text).map(entry).collect(),
        ..RateLimitDescriptor::default()
    });
    let domain = "bench".to_owned();
    RateLimitRequest { domain, descriptors: descriptors.collect(), ..RateLimitRequest::default() }.encode_to_vec()
}

/// A descriptor that asks for one hit.
pub(crate) fn descriptor<'a>(text: &'a str) -> Descriptor<'a> {
    let entry = |(key, value): (&'a str, &'a str)| Entry { key: key.as_bytes(), value: value.as_bytes() };
    Descriptor { entries: entries(text).map(entry).collect(), hits: Hits::Charge(1), limit: None }
}

fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').map(|entry| entry.split_once('=').unwrap())
}
