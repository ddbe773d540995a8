//! Inputs of the benchmarks and of `examples/instructions.rs`: policies, requests, and an in-memory
//! limiter.

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
use tollgate::policy::{CompileOptions, PolicySet, Source, load};
use tollgate::store::clock::ManualClock;
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::telemetry::metrics::Metrics;

/// Request bounds, at least the service's defaults.
pub const BOUNDS: RequestBounds =
    RequestBounds { descriptors: 1_024, entries: 1_024, all_entries: 65_536 };
const NOW: Timestamp = Timestamp::from_micros(1_780_000_000_000_000);

/// A limiter with a clock that never advances.
pub struct Decider(Limiter<MemoryStore<Arc<ManualClock>>>);

impl Decider {
    /// Creates a limiter with a limit on `user` by `algorithm`.
    pub fn of(algorithm: &str) -> Self {
        // A log grows with every admitted hit, so only the first few hits of each user are
        // admitted.
        let amount = if algorithm == "sliding_log" { 10 } else { 1_000_000_000 };
        let limit =
            format!("{{ algorithm: {algorithm}, unit: hour, requests_per_unit: {amount} }}");
        Self::under(&format!(
            "domain: bench\ndescriptors: [{{ key: user, rate_limit: {limit} }}]\n"
        ))
    }

    /// Creates a limiter with a policy of the domain `bench`.
    pub fn under(policy: &str) -> Self {
        let clock = Arc::<ManualClock>::default();
        clock.set(NOW);
        let store =
            MemoryStore::new(Bounds { max_bytes: 1 << 30, domain_max_bytes: 1 << 30 }, clock);
        let in_force = InForce::new(Metrics::new());
        in_force.install(policies(policy));
        Self(Limiter::new(in_force, store, Modes::default()))
    }

    /// Decides a request, and returns the result of `read` on the decision.
    pub fn decide<T>(&self, request: &Request<'_>, read: impl FnOnce(&Decision<'_>) -> T) -> T {
        let snapshot = self.0.snapshot();
        let decided = pin!(self.0.decide(&snapshot, request, Instant::now()));
        match decided.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => read(&decision.unwrap()),
            Poll::Pending => panic!("the memory store never waits"),
        }
    }
}

/// Compiles the policies of one file.
pub fn policies(text: &str) -> PolicySet {
    let source = Source { name: "bench.yaml".to_owned(), text: text.to_owned() };
    load(&[source], &CompileOptions::default()).unwrap_or_else(|report| panic!("{report}")).policies
}

/// Returns a rule as a list item; an empty `value` matches the key alone.
pub fn rule(key: &str, value: &str) -> String {
    let value = if value.is_empty() { String::new() } else { format!("value: \"{value}\", ") };
    format!(
        "  - {{ key: {key}, {value}rate_limit: {{ unit: hour, requests_per_unit: 1000000000 }} }}\n"
    )
}

/// Returns a domain with `count` exact siblings.
pub fn siblings(count: usize) -> String {
    let rules: String = (0..count).map(|number| rule("route", &format!("r{number:08}"))).collect();
    format!("domain: bench\ndescriptors:\n{rules}")
}

/// Returns a domain with `count` patterns for `user`, which match a value that contains `word` and
/// four digits.
pub fn patterns(count: usize) -> String {
    let rules: String =
        (0..count).map(|number| rule("user", &format!("*word{number:04}*"))).collect();
    format!("domain: bench\ndescriptors:\n{rules}")
}

/// Encodes a request with descriptors of the form `key=value,…`.
pub fn message(descriptors: &[&str]) -> Vec<u8> {
    let entry = |(key, value): (&str, &str)| EntryMessage {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
    };
    let descriptors = descriptors.iter().map(|text| RateLimitDescriptor {
        entries: entries(text).map(entry).collect(),
        ..RateLimitDescriptor::default()
    });
    let domain = "bench".to_owned();
    RateLimitRequest { domain, descriptors: descriptors.collect(), ..RateLimitRequest::default() }
        .encode_to_vec()
}

/// Parses a descriptor of one hit.
pub fn descriptor<'a>(text: &'a str) -> Descriptor<'a> {
    let entry =
        |(key, value): (&'a str, &'a str)| Entry { key: key.as_bytes(), value: value.as_bytes() };
    Descriptor {
        entries: entries(text).map(entry).collect(),
        hits: Hits::Charge(1),
        hold: None,
        limit: None,
    }
}

fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').map(|entry| entry.split_once('=').unwrap())
}
