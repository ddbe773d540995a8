//! A law: for any outcome of each limit, with readable counters or not, the store charges what
//! the verdict on the request requires, and so does this process's share. `TOLLGATE_RANDOM_CASES`
//! sets the number of cases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tollgate::algorithm::fixed_window::FixedWindow;
use tollgate::algorithm::judge::{Hits, JudgedBy};
use tollgate::algorithm::quota::Window;
use tollgate::algorithm::share::Share;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::verdict::{Prior, Role, Verdict, charges, combine};
use tollgate::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use tollgate::descriptor::CounterKey;
use tollgate::store::backend::Backend as _;
use tollgate::store::clock::SystemClock;
use tollgate::store::fallback::{Fallback, OwnShare};
use tollgate::store::layer::local::Local;
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::store::redis::{RedisOptions, RedisStore, RedisUrl, Time};
use tollgate::store::{Check, Outcomes, Store};
use tollgate::telemetry::metrics::StoreMetrics;

use super::{cluster, from_environment, nodes_of};
use crate::support::TEST_TIMEOUT;
use crate::support::redis::Redis;

const CASES: u32 = 60;
/// Hits of a limit, over a period in which none become available within the test.
const AMOUNT: u32 = 5;
const YEAR: Micros = Micros::from_secs(365 * 86_400);

/// State of a counter in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    HasRoom,
    Full,
    Unreadable,
}

/// One limit of a request.
#[derive(Clone, Debug)]
struct Part {
    counter: Counter,
    /// `true` if this process's share of the limit is used up.
    share_is_full: bool,
    role: Role,
    limit: Limit,
    hits: Hits,
}

/// A store, and the share of `local`.
struct Bench<'a> {
    name: &'static str,
    store: Local<RedisStore>,
    share: Option<Arc<MemoryStore>>,
    nodes: Vec<&'a Redis>,
    in_one_slot: bool,
}

#[test]
fn the_store_charges_according_to_the_verdict() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (redis, cluster) = runtime.block_on(async { (Redis::start().await, cluster().await) });
    let single = (redis.url(), vec![&redis]);
    let several = || (cluster.url(), nodes_of(&cluster));
    let benches = runtime.block_on(async {
        [
            Bench::start("one server", single.clone(), true, false).await,
            Bench::start("one server without a fallback", single, false, false).await,
            Bench::start("slots of a cluster", several(), true, false).await,
            Bench::start("one slot of a cluster", several(), true, true).await,
        ]
    });
    let config = Config {
        cases: from_environment("TOLLGATE_RANDOM_CASES").unwrap_or(CASES),
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32]);
    let priors =
        prop_oneof![6 => Just(Prior::Open), 1 => Just(Prior::Denied), 1 => Just(Prior::Admitted)];
    let cases = (priors, prop::collection::vec(parts(), 1..5));
    let number = AtomicU32::new(0);
    let outcome = TestRunner::new_with_rng(config, rng).run(&cases, |(prior, parts)| {
        for bench in &benches {
            let number = number.fetch_add(1, Ordering::Relaxed);
            runtime.block_on(bench.holds(prior, &parts, number));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

fn parts() -> impl Strategy<Value = Part> {
    let counters =
        select(vec![Counter::HasRoom, Counter::HasRoom, Counter::Full, Counter::Unreadable]);
    let roles = select(vec![
        Role::Enforce,
        Role::Enforce,
        Role::Shadow,
        Role::Quota,
        Role::Quota,
        Role::QuotaShadow,
    ]);
    let modes = select(vec![Charge::Admitted, Charge::Admitted, Charge::Blamed, Charge::Always]);
    let errors = prop_oneof![
        3 => Just(OnStoreError::Local),
        2 => select(vec![OnStoreError::Error, OnStoreError::Allow, OnStoreError::Deny])
    ];
    let hits = prop_oneof![5 => Just(Hits::Charge(1)), 1 => Just(Hits::Peek(0))];
    (counters, any::<bool>(), roles, modes, errors, hits).prop_map(
        |(counter, share_is_full, role, mode, on_error, hits)| {
            let window = Window::new(AMOUNT, YEAR).unwrap();
            let algorithm = Algorithm::FixedWindow(FixedWindow::new(vec![window]).unwrap());
            let limit = Limit::new(algorithm, mode, on_error).unwrap();
            Part { counter, share_is_full, role, limit, hits }
        },
    )
}

impl<'a> Bench<'a> {
    async fn start(
        name: &'static str,
        (url, nodes): (String, Vec<&'a Redis>),
        has_fallback: bool,
        in_one_slot: bool,
    ) -> Self {
        let metrics = Arc::<StoreMetrics>::default();
        let options = RedisOptions::at(RedisUrl::parse(&url).unwrap().unwrap());
        let store = RedisStore::connect(options, Time::Server, Arc::clone(&metrics));
        let room = Bounds { max_bytes: usize::MAX, domain_max_bytes: usize::MAX };
        let share = has_fallback.then(|| Arc::new(MemoryStore::new(room, SystemClock)));
        tokio::time::timeout(TEST_TIMEOUT, store.connected()).await.unwrap();
        let fallback = share.as_ref().map(|share| {
            let whole = OwnShare::new(Share::of(std::num::NonZeroU32::MIN, None));
            Fallback::new(Arc::clone(share), whole, metrics)
        });
        let store = Local::new(store, fallback);
        Self { name, store, share, nodes, in_one_slot }
    }

    fn check<'c>(&self, name: &'c str, part: &'c Part, hits: Hits) -> Check<'c> {
        let key = CounterKey::of("d", name.as_bytes()).in_one_slot(self.in_one_slot);
        let Part { limit, role, .. } = part;
        Check { key, limit, hits, role: *role, recorded: &[], lease: None, hold: None }
    }

    /// Fills or spoils the counter of a part.
    async fn fill(&self, name: &str, part: &Part) {
        let fill = [self.check(name, part, Hits::Charge(AMOUNT))];
        if part.share_is_full
            && let Some(share) = &self.share
        {
            share.decide(&fill, Prior::Admitted, soon()).await;
        }
        if part.counter != Counter::HasRoom {
            self.store.decide(&fill, Prior::Admitted, soon()).await;
        }
        if part.counter == Counter::Unreadable {
            self.corrupt(name).await;
        }
    }

    /// Sets up counters, sends a request, and compares.
    async fn holds(&self, prior: Prior, parts: &[Part], number: u32) {
        let names: Vec<String> =
            (0..parts.len()).map(|part| format!("case-{number}-{part}-")).collect();
        let check = |index: usize, hits| self.check(&names[index], &parts[index], hits);
        for (name, part) in names.iter().zip(parts) {
            self.fill(name, part).await;
        }
        let checks: Vec<Check<'_>> =
            (0..parts.len()).map(|index| check(index, parts[index].hits)).collect();
        let outcomes = self.store.decide(&checks, prior, soon()).await;
        self.store.store().settled().await;

        let verdicts: Vec<Verdict> = parts.iter().map(|part| self.verdict(part)).collect();
        let overall =
            combine(prior, parts.iter().map(|part| part.role).zip(verdicts.iter().copied()));
        let context = format!("{}: {prior:?} {parts:#?}\n{outcomes:#?}\n{overall:?}", self.name);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(
                checks[index].verdict(outcomes[index].as_ref()),
                verdicts[index],
                "part {index}, {context}"
            );
            let is_owed = part.hits != Hits::Peek(0)
                && verdicts[index] == Verdict::Allowed
                && charges(part.limit.charge_mode(), true, overall);
            let left = u64::from(AMOUNT) - u64::from(is_owed);
            let peek = [check(index, Hits::Peek(0))];
            let remaining = |outcomes: &Outcomes, of: usize| outcomes[of].unwrap().report.remaining;
            if part.counter == Counter::HasRoom {
                let peeked = self.store.decide(&peek, Prior::Open, soon()).await;
                assert_eq!(remaining(&peeked, 0), left, "the counter of part {index}, {context}");
                assert_eq!(remaining(&outcomes, index), left, "the answer for {index}, {context}");
            } else if let Ok(outcome) = &outcomes[index]
                && let Some(share) = &self.share
                && part.counter == Counter::Unreadable
                && !part.share_is_full
            {
                assert!(matches!(outcome.by, JudgedBy::Share(_)), "part {index}, {context}");
                let peeked = share.decide(&peek, Prior::Open, soon()).await;
                assert_eq!(remaining(&peeked, 0), left, "the share of part {index}, {context}");
            }
        }
    }

    /// Returns the verdict on a part.
    fn verdict(&self, part: &Part) -> Verdict {
        let is_decided_here =
            self.share.is_some() && part.limit.on_store_error() == OnStoreError::Local;
        let is_full = match part.counter {
            Counter::HasRoom => false,
            Counter::Full => true,
            Counter::Unreadable if is_decided_here => part.share_is_full,
            Counter::Unreadable => return Verdict::Unknown(part.limit.on_store_error()),
        };
        if is_full && part.hits != Hits::Peek(0) { Verdict::Denied } else { Verdict::Allowed }
    }

    /// Makes a counter unreadable.
    async fn corrupt(&self, name: &str) {
        for node in &self.nodes {
            let keys: Vec<Vec<u8>> = node.query(&["KEYS", &format!("*{name}")]).await.unwrap();
            for key in keys {
                node.query_bytes::<redis::Value>(&[b"SET", &key, b"no counter"]).await.unwrap();
            }
        }
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
