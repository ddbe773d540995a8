//! A process of tollgate in a world: the real limiter, policies, caches, leases and store, without
//! sockets around them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use prost::Message as _;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldList;
use tollgate::algorithm::judge::Hits;
use tollgate::algorithm::share::Share;
use tollgate::algorithm::time::Timestamp;
use tollgate::descriptor::hold::{COMMIT, RESERVE, SETTLE};
use tollgate::descriptor::{Descriptor, Entry, KeyBuffer, Request};
use tollgate::grpc::proto::hold::ReserveRequest;
use tollgate::grpc::proto::lease::{ExchangeRequest, ExchangeResponse};
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{self, RateLimitDescriptor, RateLimitResponse};
use tollgate::grpc::request::RequestBounds;
use tollgate::grpc::response::AnswerStyle;
use tollgate::grpc::rights::DomainRights;
use tollgate::grpc::service::quotas::QuotaCaller;
use tollgate::grpc::service::{Caller, HoldCall, Rls};
use tollgate::http2::{BodySender, Budget, CallAccount, Delivery, RequestBody};
use tollgate::limiter::{Decision, InForce, Limiter, Modes, Snapshot, StatusKind, Undecided};
use tollgate::policy::{CompileOptions, PolicySet, Source, load};
use tollgate::store::backend::Backend as _;
use tollgate::store::clock::Clock;
use tollgate::store::fallback::{Fallback, OwnShare};
use tollgate::store::layer::Layered;
use tollgate::store::layer::deny_cache::DenialTable;
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::store::redis::{
    Environment, RedisOptions, RedisStore, RedisUrl, Simulation as _, Time,
};
use tollgate::telemetry::metrics::{Metrics, StoreMetrics};
use tonic::body::Body;

use super::history::{Ending, PartStatus};
use super::network::ProcessEnvironment;
use super::plan::{Part, PartHits, Plan, PlannedCall};
use super::retries::RetriedReserve;
use super::server::fleet::Arrangement;
use super::shared::SharedWorld;

/// Timeout for connections and background work.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time of store calls for RLQS.
pub const QUOTA_CALL_US: u64 = 300_000;
const MEMORY: usize = 1 << 20;
/// Memory of the connection of a stream of RLQS, four times.
const BUDGET: usize = 1 << 26;
const REQUEST: RequestBounds = RequestBounds { descriptors: 64, entries: 2, all_entries: 128 };

/// The service of a worker: each has connections and leases of its own.
type WorkerService = Arc<Rls<Layered<RedisStore>>>;

/// A process with its workers.
pub struct SimProcess {
    policies: Arc<InForce>,
    workers: Vec<WorkerService>,
    pub metrics: Arc<StoreMetrics>,
    pub all_metrics: Arc<Metrics>,
    environment: Arc<ProcessEnvironment>,
    dead: CancellationToken,
}

/// The clock of a process, for its local counters.
struct ProcessClock(Arc<ProcessEnvironment>);

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl SimProcess {
    /// Starts a process.
    pub fn start(shared: &Arc<SharedWorld>, plan: &Plan, process: usize) -> Self {
        let all_metrics = Metrics::new();
        let metrics = Arc::clone(&all_metrics.store);
        let policies = InForce::new(Arc::clone(&all_metrics));
        let dead = CancellationToken::new();
        let environment = Arc::new(ProcessEnvironment {
            shared: Arc::clone(shared),
            process,
            skew_us: plan.skews_us[process],
            dead: dead.clone(),
        });
        let options = options(plan, &environment);
        let bounds = Bounds { max_bytes: MEMORY, domain_max_bytes: MEMORY };
        let clock = ProcessClock(Arc::clone(&environment));
        let memory = Arc::new(MemoryStore::new(bounds, clock));
        let count = NonZeroU32::new(plan.processes.try_into().unwrap()).unwrap();
        let share = OwnShare::new(Share::of(count, Some(process.try_into().unwrap())));
        let longest = Duration::from_millis(plan.deny_cache_ms);
        let denials = DenialTable::new(longest, Arc::clone(&metrics));
        let worker = |_| {
            let fallback =
                Fallback::new(Arc::clone(&memory), Arc::clone(&share), Arc::clone(&metrics));
            let store = RedisStore::connect(options.clone(), Time::Server, Arc::clone(&metrics));
            let denials = Some(Arc::clone(&denials));
            let store = Layered::new(store, fallback, denials, Arc::clone(&metrics));
            let limiter = Limiter::new(Arc::clone(&policies), store, Modes::default());
            let style = AnswerStyle::default();
            let shared = Arc::clone(shared);
            let time = Duration::from_micros(QUOTA_CALL_US);
            let service = Rls::new(limiter, Arc::clone(&all_metrics), REQUEST, style, time)
                .with_loan_numbers(Arc::new(move || {
                    let mut number = [0; 16];
                    number[..8].copy_from_slice(&shared.random().next().to_be_bytes());
                    number
                }));
            Arc::new(service)
        };
        let workers = (0..plan.workers).map(worker).collect();
        Self { policies, workers, metrics, all_metrics, environment, dead }
    }

    /// Installs a version of the policy.
    pub fn install(&self, plan: &Plan, version: usize) {
        self.policies.install(compile(&plan.policy(version)));
    }

    /// Ends the process as a crash does: nothing leaves it any more.
    pub fn crash(&self) {
        self.dead.cancel();
    }

    /// Waits until the process crashes.
    pub async fn has_crashed(&self) {
        self.dead.cancelled().await;
    }

    /// Opens a stream of RLQS, and returns the sender of its messages and the body of its answer.
    pub fn open_quotas(&self, worker: usize, delivery: Delivery) -> (BodySender, Body) {
        let account = CallAccount::new(Arc::new(Budget::new(BUDGET)));
        let (messages, body) =
            RequestBody::channel(Waker::noop().clone(), account.clone(), Some(MEMORY));
        let rights = DomainRights::All;
        let caller = QuotaCaller { rights, delivery, account, message_timeout: TEST_TIMEOUT };
        (messages, Arc::clone(&self.workers[worker]).open_quotas(caller, body))
    }

    /// Waits until all workers are connected, for a limited time.
    pub async fn connected(&self) {
        for worker in &self.workers {
            let _ = timeout(TEST_TIMEOUT, redis(worker).connected()).await;
        }
    }

    /// Waits until leases are given back and charges taken back.
    pub async fn settled(&self) {
        for worker in &self.workers {
            let settling = worker.limiter().store().settled();
            timeout(TEST_TIMEOUT, settling).await.expect("background work ends");
        }
    }

    /// Makes a call of the plan.
    pub async fn call(&self, plan: &Plan, call: &PlannedCall) -> Ending {
        let limiter = self.workers[call.worker].limiter();
        let deadline = Instant::now() + Duration::from_micros(call.timeout_us);
        let snapshot = limiter.snapshot();
        let words = words(plan, call);
        let request = request(call, &words);
        let deciding = limiter.decide(&snapshot, &request, deadline.into_std());
        let ended = async {
            match call.cancel_after_us {
                None => ending(deciding.await),
                Some(us) => match timeout(Duration::from_micros(us), deciding).await {
                    Ok(decided) => ending(decided),
                    Err(_) => Ending::Cancelled,
                },
            }
        };
        self.environment.shared.while_running(call.process, ended).await
    }

    /// Sends a call of `LeaseService`.
    pub async fn exchange(
        &self,
        worker: usize,
        request: ExchangeRequest,
        timeout: Duration,
    ) -> Result<ExchangeResponse, tonic::Code> {
        let service = &self.workers[worker];
        let caller = Caller { time: Some(timeout), ..service.http_caller() };
        let exchanging = service.exchange(request, caller, None);
        let answered = self.environment.shared.while_running(self.environment.process, exchanging);
        answered.await.map_err(|status| status.code())
    }

    /// Sends a reserve of `HoldService`.
    pub async fn reserve(
        &self,
        plan: &Plan,
        worker: usize,
        reserve: &RetriedReserve,
        timeout: Duration,
    ) -> Result<Code, tonic::Code> {
        let request = ReserveRequest {
            domain: "world".to_owned(),
            descriptors: reserve
                .counters
                .iter()
                .map(|counter| descriptor_of(plan, *counter))
                .collect(),
            id: id_of(reserve.id),
            hits: reserve.hits,
            ttl: None,
        };
        let mut answer = Vec::new();
        let service = &self.workers[worker];
        let caller = Caller { time: Some(timeout), ..service.http_caller() };
        let reserving = service.hold(HoldCall::from(request), caller, None, &mut answer);
        let answered = self.environment.shared.while_running(self.environment.process, reserving);
        answered.await.map_err(|status| status.code())?;
        Ok(RateLimitResponse::decode(answer.as_slice()).unwrap().overall_code())
    }

    /// Changes a counter as an operator does. The result does not matter: the checker allows for
    /// the change in any case.
    pub async fn amend(&self, plan: &Plan, counter: usize, amendment: Amendment) {
        let limiter = self.workers[0].limiter();
        let snapshot: Snapshot = limiter.snapshot();
        let value = value_of(counter);
        let rule = format!("r{}", plan.counters[counter]);
        let entries = [Entry { key: rule.as_bytes(), value: value.as_bytes() }];
        let mut keys = KeyBuffer::default();
        let policies = snapshot.as_ref().unwrap().policies();
        let (rule, key) = policies.counter("world", &entries, &mut keys).unwrap();
        let deadline = (Instant::now() + Duration::from_millis(100)).into_std();
        let amending = limiter.amend(rule, key, amendment, deadline);
        let shared = &self.environment.shared;
        let amended = shared.while_running(self.environment.process, amending).await;
        let name = if amended.is_ok() { "amended" } else { "not amended" };
        shared.fleet.lock().count(&format!("change {name}"));
    }

    /// Returns the hits that each counter counts; `None` if the store does not report them.
    pub async fn used(&self, plan: &Plan, counter: usize) -> Option<u64> {
        Some(self.usage(plan, counter).await?.0)
    }

    /// Returns the hits that a counter counts, and its open holds; `None` if the store does not
    /// report them.
    pub async fn usage(&self, plan: &Plan, counter: usize) -> Option<(u64, HoldList)> {
        let limiter = self.workers[0].limiter();
        let snapshot: Snapshot = limiter.snapshot();
        let policies = snapshot.as_ref().unwrap().policies();
        let rule = format!("r{}", plan.counters[counter]);
        let value = value_of(counter);
        let entries = [Entry { key: rule.as_bytes(), value: value.as_bytes() }];
        let mut keys = KeyBuffer::default();
        let (rule, key) = policies.counter("world", &entries, &mut keys).unwrap();
        let deadline = (Instant::now() + Duration::from_secs(1)).into_std();
        let amended = limiter.amend(rule, key, Amendment::Look, deadline).await.ok()?.before;
        let used = amended.windows.first()?.used;
        let mut held = HoldList::default();
        if plan.rule_of(counter).hold.is_some() {
            held = redis(&self.workers[0]).open_holds(&key, amended.at).await.ok()?;
        }
        Some((used, held))
    }
}

fn redis(worker: &WorkerService) -> &RedisStore {
    worker.limiter().store().backend()
}

/// Returns the descriptor of a counter.
pub fn descriptor_of(plan: &Plan, counter: usize) -> RateLimitDescriptor {
    let key = format!("r{}", plan.counters[counter]);
    let value = value_of(counter);
    let entry = proto::rate_limit_descriptor::Entry { key: key.into(), value: value.into() };
    RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
}

/// Returns the text of an ID.
pub fn id_of(id: u32) -> String {
    format!("id-{id}")
}

/// Returns the value of a counter: it is in the name of its key.
pub fn value_of(counter: usize) -> String {
    format!("counter-{counter:02}-")
}

fn options(plan: &Plan, environment: &Arc<ProcessEnvironment>) -> RedisOptions {
    let url = match plan.arrangement {
        Arrangement::Single => "redis://redis".to_owned(),
        Arrangement::Sentinels => "redis-sentinel://main@sentinel0,sentinel1,sentinel2".to_owned(),
        Arrangement::Cluster => "redis-cluster://s0,s1,s2,s3".to_owned(),
    };
    let mut options = RedisOptions::at(RedisUrl::parse(&url).unwrap().unwrap());
    options.access.environment = Environment::Simulated(Arc::clone(environment) as _);
    options.sentinel_access.environment = options.access.environment.clone();
    options
}

fn compile(text: &str) -> PolicySet {
    let source = Source { name: "world.yaml".to_owned(), text: text.to_owned() };
    match load(&[source], &CompileOptions::default()) {
        Ok(loaded) => loaded.policies,
        Err(report) => panic!("{text}\n{report}"),
    }
}

/// Returns the entries of each descriptor of a call.
fn words(plan: &Plan, call: &PlannedCall) -> Vec<Vec<(String, String)>> {
    let word = |part: &Part| {
        let counter = (format!("r{}", plan.counters[part.counter]), value_of(part.counter));
        let operation = match part.hits {
            PartHits::Reserve { id, .. } => Some((RESERVE, id)),
            PartHits::End { id, cost: Some(_), .. } => Some((COMMIT, id)),
            PartHits::End { id, cost: None, .. } => Some((SETTLE, id)),
            PartHits::Charge(_) | PartHits::Peek | PartHits::Refund(_) => None,
        };
        let operation = operation.map(|(key, id)| (key.to_owned(), id_of(id)));
        std::iter::once(counter).chain(operation).collect()
    };
    call.parts.iter().map(word).collect()
}

fn request<'a>(call: &PlannedCall, words: &'a [Vec<(String, String)>]) -> Request<'a> {
    let parts = call.parts.iter().zip(words);
    let descriptor = |(part, words): (&Part, &'a Vec<(String, String)>)| {
        let mut cost = None;
        let hits = match part.hits {
            PartHits::Charge(hits) => Hits::Charge(hits),
            PartHits::Peek => Hits::Peek(0),
            PartHits::Refund(hits) => Hits::Refund(hits),
            PartHits::Reserve { hits, .. } => Hits::Charge(hits),
            PartHits::End { cost: of_end, .. } => {
                cost = of_end;
                Hits::Charge(of_end.unwrap_or(1))
            }
        };
        let entry = |(key, value): &'a (String, String)| Entry {
            key: key.as_bytes(),
            value: value.as_bytes(),
        };
        Descriptor::new(words.iter().map(entry).collect(), hits, cost, None)
    };
    Request { domain: "world", descriptors: parts.map(descriptor).collect() }
}

fn ending(decided: Result<Decision<'_>, Undecided>) -> Ending {
    match decided {
        Ok(decision) => {
            let statuses = decision.statuses().iter().map(|status| PartStatus {
                standing: standing(status.kind()),
                left: status.left(),
                retry_after_us: status.retry_after().map(|time| time.get()),
                is_cached: status.is_cached(),
                effect: status.hold().and(status.hold_effect()),
            });
            Ending::Decided(decision.is_over_limit(), statuses.collect())
        }
        Err(Undecided::Store(error)) => Ending::Failed(error.kind()),
        Err(Undecided::NoPolicy) => Ending::Failed("no policy"),
    }
}

fn standing(kind: StatusKind) -> &'static str {
    match kind {
        StatusKind::Allowed => "allowed",
        StatusKind::Denied => "denied",
        StatusKind::PresumedAllowed => "presumed allowed",
        StatusKind::PresumedDenied => "presumed denied",
        StatusKind::ShadowDenied => "shadow denied",
        StatusKind::NoLimit => "no limit",
        StatusKind::Unlimited => "unlimited",
    }
}
