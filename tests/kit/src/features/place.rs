//! A service over one kind of store, in paused time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use serde_json::Value;
use tollgate::algorithm::amend::{Amendment, CounterReading};
use tollgate::algorithm::share::Share;
use tollgate::algorithm::time::{Micros, Timestamp};
use tollgate::descriptor::{Entry, KeyBuffer};
use tollgate::grpc::json::{exchange_response, exchange_text, request_text};
use tollgate::grpc::proto::auth::attribute_context::{self, HttpRequest};
use tollgate::grpc::proto::auth::{AttributeContext, CheckRequest, CheckResponse};
use tollgate::grpc::proto::lease::{ExchangeRequest, ExchangeResponse};
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tollgate::grpc::request::RequestBounds;
use tollgate::grpc::response::{AnswerStyle, Receiver};
use tollgate::grpc::service::gateway::{CheckCaller, GatewayCall};
use tollgate::grpc::service::{Caller, HoldCall, Rls};
use tollgate::limiter::{InForce, Limiter, Modes, Snapshot};
use tollgate::policy::requests::GatewayRequest;
use tollgate::policy::{self, CompileOptions, Loaded, Source};
use tollgate::store::any::AnyStore;
use tollgate::store::backend::Backend as _;
use tollgate::store::clock::{Clock as _, ManualClock, instant};
use tollgate::store::fallback::{Fallback, OwnShare};
use tollgate::store::layer::Layered;
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::store::redis::{RedisOptions, RedisStore, RedisUrl, Time};
use tollgate::telemetry::candidates::{CandidateMetrics, CandidateSource};
use tollgate::telemetry::metrics::Metrics;

use crate::rls::request;
use crate::traces::cases::START;
use crate::traces::network::{CalmNetwork, ServerFault};
use crate::traces::sides::all_connected;
use crate::world::server::data::Keys;
use crate::world::server::fleet::Arrangement;

const REQUEST: RequestBounds = RequestBounds { descriptors: 8, entries: 4, all_entries: 16 };
const TIMEOUT: Duration = Duration::from_secs(10);
const ROOM: Bounds = Bounds { max_bytes: 1 << 24, domain_max_bytes: 1 << 24 };
/// The time moves in steps, between which the service works.
const STEP: Duration = Duration::from_millis(500);

/// The kinds of stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    Memory,
    Server,
    Cluster,
    /// A server, and another one for limits of a second.
    PerSecond,
    /// Real servers at a URL, with this prefix of keys.
    Real(String, String),
}

type FeatureStore = Layered<AnyStore<Arc<ManualClock>>>;

/// A service, with its policies, its store and their time.
pub(super) struct Place {
    pub(super) service: Arc<Rls<FeatureStore>>,
    in_force: Arc<InForce>,
    metrics: Arc<Metrics>,
    clock: Arc<ManualClock>,
    networks: Vec<Arc<CalmNetwork>>,
}

impl Place {
    pub(super) async fn new(kind: &StoreKind) -> Self {
        let clock = Arc::<ManualClock>::default();
        clock.set(Timestamp::from_micros(START));
        let metrics = Metrics::new();
        let in_force = InForce::new(Arc::clone(&metrics));
        let memory = Arc::new(MemoryStore::new(ROOM, Arc::clone(&clock)));
        let networks: Vec<_> = match kind {
            StoreKind::Memory | StoreKind::Real(..) => Vec::new(),
            StoreKind::Server => vec![CalmNetwork::new(Arrangement::Single, &clock, &clock)],
            StoreKind::Cluster => vec![CalmNetwork::new(Arrangement::Cluster, &clock, &clock)],
            StoreKind::PerSecond => {
                [(); 2].map(|()| CalmNetwork::new(Arrangement::Single, &clock, &clock)).into()
            }
        };
        let options = match kind {
            StoreKind::Memory => None,
            StoreKind::Server => Some(networks[0].options("redis://redis")),
            StoreKind::Cluster => Some(networks[0].options("redis-cluster://s0")),
            StoreKind::PerSecond => {
                let per_second = Some(Box::new(networks[1].options("redis://redis")));
                Some(RedisOptions { per_second, ..networks[0].options("redis://redis") })
            }
            StoreKind::Real(url, prefix) => {
                let options = RedisOptions::at(RedisUrl::parse(url).unwrap().unwrap());
                Some(RedisOptions { prefix: prefix.clone().into(), ..options })
            }
        };
        let store = options.map_or(AnyStore::Memory(Arc::clone(&memory)), |options| {
            let time = Time::Given(Arc::clone(&clock));
            AnyStore::Redis(RedisStore::connect(options, time, Arc::clone(&metrics.store)))
        });
        all_connected(&store).await;
        let whole = OwnShare::new(Share::of(NonZeroU32::MIN, None));
        let fallback = Fallback::new(memory, whole, Arc::clone(&metrics.store));
        let store = Layered::new(store, fallback, None, Arc::clone(&metrics.store));
        let limiter = Limiter::new(Arc::clone(&in_force), store, Modes::default());
        let service =
            Rls::new(limiter, Arc::clone(&metrics), REQUEST, AnswerStyle::default(), TIMEOUT);
        Self { service: Arc::new(service), in_force, metrics, clock, networks }
    }

    /// Installs a policy.
    pub(super) fn install(&self, text: &str) {
        self.in_force.install(compile(text, false).unwrap().policies);
    }

    /// Installs a policy of candidates.
    pub(super) fn try_out(&self, text: &str) {
        self.in_force.try_out(compile(text, true).unwrap().policies);
    }

    /// Lets time pass, in which the service works.
    pub(super) async fn wait(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            let us = Micros::new(step.as_micros().try_into().unwrap());
            self.clock.set(self.clock.now() + us);
            tokio::time::sleep(step).await;
            left -= step;
        }
    }

    /// Returns the time in microseconds.
    pub(super) fn now_us(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// Returns the hits that proxies may still admit or give back: they always have some.
    pub(super) fn outstanding(&self) -> u64 {
        let quotas = &self.metrics.loans.quotas;
        let ended = [&quotas.spent, &quotas.returned, &quotas.stranded];
        quotas.lent.get() - ended.map(|counter| counter.get()).iter().sum::<u64>()
    }

    /// Decides a request. Returns its response, or the error.
    pub(super) async fn decide(
        &self,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitResponse, String> {
        self.answer(request(descriptors)).await
    }

    async fn answer(&self, message: RateLimitRequest) -> Result<RateLimitResponse, String> {
        let message = message.encode_to_vec();
        let mut answer = Vec::new();
        let caller = Caller { receiver: Receiver::Proxy, ..self.service.http_caller() };
        let answered = self.service.answer(&message, caller, None, &mut answer).await;
        answered.map_err(|status| status.to_string())?;
        Ok(RateLimitResponse::decode(answer.as_slice()).unwrap())
    }

    /// Decides a request in JSON. Returns its response, or the error.
    pub(super) async fn decide_json(&self, text: &str) -> Result<RateLimitResponse, String> {
        let message = request_text(text.as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        let caller = self.service.http_caller();
        let answered = self.service.answer(&message, caller, None, &mut answer).await;
        answered.map_err(|status| status.to_string())?;
        Ok(RateLimitResponse::decode(answer.as_slice()).unwrap())
    }

    /// Makes a call of `HoldService`. Returns its response, or the error.
    pub(super) async fn hold(&self, call: HoldCall) -> Result<RateLimitResponse, String> {
        let mut answer = Vec::new();
        let held = self.service.hold(call, self.service.http_caller(), None, &mut answer).await;
        held.map_err(|status| status.to_string())?;
        Ok(RateLimitResponse::decode(answer.as_slice()).unwrap())
    }

    /// Asks for a decision of a gateway by ext_authz. Returns `true` if the request is admitted, or
    /// the error.
    pub(super) async fn check(&self) -> Result<bool, String> {
        let http = HttpRequest { method: "GET".into(), path: "/".into(), ..Default::default() };
        let request = attribute_context::Request { http: Some(http), ..Default::default() };
        let attributes = AttributeContext { request: Some(request), ..Default::default() };
        let message = CheckRequest { attributes: Some(attributes) }.encode_to_vec();
        let caller =
            CheckCaller { is_gateway: true, caller: self.service.http_gateway(), mapping: None };
        let mut answer = Vec::new();
        let checked = self.service.check(&message, caller, None, &mut answer).await;
        checked.map_err(|status| status.to_string())?;
        let answer = CheckResponse::decode(answer.as_slice()).unwrap();
        Ok(answer.status.unwrap().code == tonic::Code::Ok as i32)
    }

    /// Asks for a decision of a gateway as `/auth/NAME` does. Returns `true` if the request is
    /// admitted, or the error.
    pub(super) async fn forward_auth(&self) -> Result<bool, String> {
        let http = GatewayRequest {
            method: b"GET",
            host: b"shop",
            target: b"/",
            ..GatewayRequest::default()
        };
        let call =
            GatewayCall { mapping: Some("gateway"), http, caller: self.service.http_gateway() };
        let answered = self.service.decide_http(call, None).await;
        Ok(answered.map_err(|status| status.to_string())?.denial.is_none())
    }

    /// Makes a call of `LeaseService`. Returns its response, or the error.
    pub(super) async fn exchange(&self, call: ExchangeRequest) -> Result<ExchangeResponse, String> {
        let answered = self.service.exchange(call, self.service.http_caller(), None).await;
        answered.map_err(|status| status.to_string())
    }

    /// Makes a call of `LeaseService` in JSON. Returns its response, or the error.
    pub(super) async fn exchange_json(&self, call: &Value) -> Result<Value, String> {
        let call = exchange_text(call.to_string().as_bytes()).map_err(|error| error.to_string())?;
        let response = self.exchange(call).await?;
        exchange_response(&response).map_err(|error| error.to_string())
    }

    /// Changes the counter, and returns it.
    pub(super) async fn amend(&self, amendment: Amendment) -> CounterReading {
        let limiter = self.service.limiter();
        let snapshot: Snapshot = limiter.snapshot();
        let mut keys = KeyBuffer::default();
        let policies = snapshot.as_deref().unwrap().policies();
        let (rule, key) = policies.counter("test", &ENTRIES, &mut keys).unwrap();
        let amended = limiter.amend(rule, key, amendment, instant() + TIMEOUT).await;
        amended.unwrap().after
    }

    /// Returns the hits tallied for the entry of the counter, charged and denied.
    pub(super) async fn tallied(&self) -> (u64, u64) {
        let limiter = self.service.limiter();
        let snapshot: Snapshot = limiter.snapshot();
        let mut keys = KeyBuffer::default();
        let policies = snapshot.as_deref().unwrap().policies();
        let (_, key) = policies.counter("test", &ENTRIES, &mut keys).unwrap();
        let tallies = limiter.store().backend().tallies(&key).await.unwrap();
        let of_entry = tallies.iter().find(|tally| &*tally.entry == b"k0=a");
        of_entry.map_or((0, 0), |tally| (tally.charged, tally.denied))
    }

    /// Returns how often the candidate of the limit allowed, denied, denied what was denied anyway,
    /// and did not decide.
    pub(super) fn judged_by_candidate(&self) -> [u64; 4] {
        let series = self.metrics.candidates.of_rule(CandidateSource::Policy, "test", "k0");
        let CandidateMetrics { allowed, denied, denied_already, unknown } = series;
        [allowed, denied, denied_already, unknown].map(|counter| counter.get())
    }

    /// Lets the servers refuse all writes. Returns what ends that.
    pub(super) fn fail(&self) -> Vec<Vec<Keys>> {
        self.networks.iter().map(|network| network.begin(ServerFault::Full)).collect()
    }

    /// Ends a failure.
    pub(super) fn recover(&self, before: Vec<Vec<Keys>>) {
        self.networks.iter().zip(before).for_each(|(network, keys)| network.end(keys));
    }

    /// Returns the number of keys of each network.
    pub(super) fn keys(&self) -> Vec<usize> {
        self.networks.iter().map(|network| network.values().len()).collect()
    }
}

/// The entries of the counter of a cell.
const ENTRIES: [Entry<'static>; 1] = [Entry { key: b"k0", value: b"a" }];

/// Compiles a policy, or candidates. Returns the report if it has errors.
pub(super) fn compile(text: &str, are_candidates: bool) -> Result<Loaded, String> {
    let source = Source { name: "policy".to_owned(), text: text.to_owned() };
    let options = CompileOptions { are_candidates, ..CompileOptions::default() };
    policy::load(&[source], &options).map_err(|report| report.to_string())
}
