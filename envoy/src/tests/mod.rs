//! Tests of the filter with doubles of Envoy and of the service. The time is set.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

// Proptest's many cases take too long in Miri.
#[cfg(not(miri))]
mod arbitrary;
mod configurations;
mod descriptors;
mod requests;
mod service;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prost_types::Duration as ProtoDuration;

use crate::exchange::CallResult;
use crate::filter::{Filter, Verdict};
use crate::holder::Registry;
use crate::host::{MainThread, MetadataSource, Request, Stat};
use crate::pacer::Wake;
use crate::wire::{
    Answer, CounterReport, Denial, Empty, ExchangeRequest, ExchangeResponse, LeaseAnswer, Loan,
    frame, unframe,
};

thread_local! {
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the time of this test.
fn clock() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + PASSED.get()
}

fn advance(ms: u64) {
    PASSED.set(PASSED.get() + Duration::from_millis(ms));
}

#[derive(Clone, Default)]
struct Wakes(Arc<AtomicUsize>);

impl Wake for Wakes {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A request, with what became of it.
#[derive(Debug, Default)]
struct FakeRequest {
    headers: HashMap<String, Vec<Vec<u8>>>,
    address: Option<String>,
    cluster: Option<String>,
    metadata: HashMap<(bool, String, String), String>,
    refuses_mark: bool,
    is_marked: bool,
    response: Option<FakeResponse>,
    counts: Vec<Stat>,
}

/// Status, headers and details.
type FakeResponse = (u32, Vec<(String, String)>, String);

impl FakeRequest {
    /// Returns a request of a tenant.
    fn of(tenant: &str) -> Self {
        Self::with(&[("x-tenant", tenant)])
    }

    fn with(headers: &[(&str, &str)]) -> Self {
        let mut request = Self { cluster: Some("application".to_owned()), ..Self::default() };
        for (name, value) in headers {
            request.headers.entry((*name).to_owned()).or_default().push(value.as_bytes().to_vec());
        }
        request
    }
}

impl Request for FakeRequest {
    fn header(&self, name: &str, index: usize) -> (Option<&[u8]>, usize) {
        let values = self.headers.get(name).map(Vec::as_slice).unwrap_or_default();
        (values.get(index).map(Vec::as_slice), values.len())
    }

    fn remote_address(&self) -> Option<&[u8]> {
        self.address.as_deref().map(str::as_bytes)
    }

    fn cluster(&self) -> Option<&[u8]> {
        self.cluster.as_deref().map(str::as_bytes)
    }

    fn metadata(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]> {
        let is_of_route = source == MetadataSource::Route;
        let name = (is_of_route, namespace.to_owned(), key.to_owned());
        self.metadata.get(&name).map(|text| text.as_bytes())
    }

    fn mark_decided(&mut self) -> bool {
        self.is_marked = !self.refuses_mark;
        self.is_marked
    }

    fn respond(&mut self, status: u32, headers: &[(&str, &str)], details: &str) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.response = Some((status, headers.collect(), details.to_owned()));
    }

    fn count(&mut self, stat: Stat) {
        self.counts.push(stat);
    }
}

/// The main thread, with the calls that were made.
#[derive(Debug, Default)]
struct FakeMain {
    calls: Vec<ExchangeRequest>,
    heads: Vec<Vec<(String, String)>>,
    stats: HashMap<usize, u64>,
    warnings: Vec<String>,
    refuses: Option<&'static str>,
}

impl FakeMain {
    fn stat(&self, stat: Stat) -> u64 {
        self.stats.get(&(stat as usize)).copied().unwrap_or_default()
    }
}

impl MainThread for FakeMain {
    fn call(
        &mut self,
        cluster: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        _timeout_ms: u64,
    ) -> Result<u64, &'static str> {
        assert_eq!(cluster, "tollgate");
        if let Some(reason) = self.refuses {
            return Err(reason);
        }
        let head = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.heads.push(head.collect());
        self.calls.push(unframe(body).unwrap());
        Ok(u64::try_from(self.calls.len()).unwrap())
    }

    fn add(&mut self, stat: Stat, value: u64) {
        *self.stats.entry(stat as usize).or_default() += value;
    }

    fn set(&mut self, stat: Stat, value: u64) {
        self.stats.insert(stat as usize, value);
    }

    fn warn(&mut self, text: &str) {
        self.warnings.push(text.to_owned());
    }
}

/// A filter with its main thread.
struct World {
    registry: Registry,
    filter: Filter,
    main: FakeMain,
}

/// A descriptor of the tenant, and one of the path if there is such a header.
const CONFIG: &str = r#"{
    "domain": "shop",
    "cluster": "tollgate",
    "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
    "enable_retry_after_header": true,
    "rate_limits": [
        {"actions": [{"request_headers": {"header_name": "X-Tenant", "descriptor_key": "tenant"}}]},
        {"actions": [{"request_headers": {"header_name": "x-path", "descriptor_key": "path"}}]}
    ]
}"#;

impl World {
    fn new() -> Self {
        Self::with(CONFIG)
    }

    fn with(config: &str) -> Self {
        let registry = Registry::new();
        let filter = Filter::start(config.as_bytes(), &registry, Wakes::default(), clock).unwrap();
        Self { registry, filter, main: FakeMain::default() }
    }

    /// Sends a request, and returns what became of it.
    fn send(&self, mut request: FakeRequest) -> (Verdict, FakeRequest) {
        let verdict = self.filter.decide(&mut request, None);
        (verdict, request)
    }

    /// Returns whether a request of the tenant was decided here.
    fn is_decided(&self, tenant: &str) -> bool {
        self.send(FakeRequest::of(tenant)).1.is_marked
    }

    /// Sends so many requests of a tenant.
    fn demand(&self, tenant: &str, count: usize) {
        for _ in 0..count {
            self.send(FakeRequest::of(tenant));
        }
    }

    /// Runs the main thread, and returns the call that it made.
    fn exchange(&mut self) -> Option<ExchangeRequest> {
        let calls = self.main.calls.len();
        self.filter.driver().on_wake(&mut self.main);
        self.main.calls.get(calls).cloned()
    }

    /// Answers the latest call.
    fn answer(&mut self, answers: Vec<LeaseAnswer>) {
        let body = frame(&ExchangeResponse { answers });
        self.reply(CallResult::Response { status: b"200".to_vec(), grpc_status: None, body });
    }

    fn reply(&mut self, result: CallResult) {
        let id = u64::try_from(self.main.calls.len()).unwrap();
        self.filter.driver().on_response(id, result, &mut self.main);
    }

    /// Makes a tenant hot, and lends it a block.
    fn lend(&mut self, tenant: &str, hits: u32, ms: i32) {
        self.demand(tenant, 8);
        assert_eq!(self.exchange().unwrap().wants.len(), 1);
        self.answer(vec![loan(hits, ms)]);
    }
}

fn millis(ms: i32) -> Option<ProtoDuration> {
    Some(ProtoDuration { seconds: (ms / 1_000).into(), nanos: ms % 1_000 * 1_000_000 })
}

fn counter(remaining: u64) -> Option<CounterReport> {
    let period = millis(60_000);
    Some(CounterReport { limit: 1_000, period, remaining, reset_after: millis(30_000) })
}

fn loan(hits: u32, ms: i32) -> LeaseAnswer {
    let receipt = format!("receipt of {hits}").into_bytes();
    let loan = Loan { hits, receipt, usable_for: millis(ms), counter: counter(500) };
    LeaseAnswer { generation: 1, answer: Some(Answer::Loan(loan)) }
}

fn denial(ms: i32) -> LeaseAnswer {
    let denial = Denial { valid_for: millis(ms), counter: counter(0) };
    LeaseAnswer { generation: 1, answer: Some(Answer::Denial(denial)) }
}

fn ask_each_request() -> LeaseAnswer {
    LeaseAnswer { generation: 1, answer: Some(Answer::AskEachRequest(Empty {})) }
}

fn not_leasable() -> LeaseAnswer {
    LeaseAnswer { generation: 0, answer: Some(Answer::NotLeasable(Empty {})) }
}
