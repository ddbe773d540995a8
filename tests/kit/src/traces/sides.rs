//! Several stores that receive the same requests, all at one simulated time.

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tollgate::algorithm::amend::{Amended, Amendment};
use tollgate::algorithm::hold::{HoldEffect, HoldList};
use tollgate::algorithm::judge::Hits;
use tollgate::algorithm::tallies::EntryTally;
use tollgate::algorithm::time::Timestamp;
use tollgate::algorithm::{Charge, Receipt};
use tollgate::descriptor::{KeyBuffer, entries};
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse, rate_limit_response};
use tollgate::limiter::{InForce, Limiter, Modes};
use tollgate::policy::{self, Imposes, Source};
use tollgate::store::any::AnyStore;
use tollgate::store::backend::Backend as _;
use tollgate::store::clock::ManualClock;
use tollgate::store::loan::{LoanReturn, Returned};
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::store::redis::{RedisOptions, RedisStore, RedisUrl, Time};
use tollgate::store::servers::ServerList;
use tollgate::telemetry::metrics::Metrics;

use super::calls::{amend, decide, hold, lend, open_holds, peek, return_loan, tallies};
use super::lifetimes::RememberedCounter;
use super::{LentHits, TraceOperation, TracedHoldCall, loan_of};

/// Timeout of one answer: on a busy machine, six stores answer at once.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// An answer, with the retry and reset times of each descriptor in microseconds, and its effect on
/// holds.
pub type SideAnswer = Result<(RateLimitResponse, Vec<[Option<u64>; 2]>, Vec<HoldEffect>), String>;

/// The answer to a try: `true` if denied; for each descriptor `true` if over limit, the hits left,
/// and the times.
pub type Tried = Result<(bool, Vec<(bool, Option<u64>, [Option<u64>; 2])>), String>;

/// Waits for every master: on a busy machine, a store may be ready without masters that it failed
/// to reach.
pub(crate) async fn all_connected(store: &AnyStore<Arc<ManualClock>>) {
    store.connected().await;
    while let ServerList::Listed(nodes) = store.servers()
        && nodes.iter().any(|node| !node.is_connected)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The result of amending a counter.
pub type Touched = Result<Amended, String>;

/// The limiter of a side.
pub type SideLimiter = Limiter<AnyStore<Arc<ManualClock>>>;

/// Memory, and the stores that must agree with it.
pub struct Sides {
    clock: Arc<ManualClock>,
    in_force: Arc<InForce>,
    modes: Modes,
    limiters: Vec<(String, SideLimiter)>,
}

impl Sides {
    /// Creates a memory store, and a store at each of `urls` with keys that begin with `prefix`.
    /// `modes` apply to every side.
    pub async fn new(urls: &[String], prefix: &str, modes: Modes) -> Self {
        let options = |url: &String| {
            let place = RedisUrl::parse(url).unwrap().unwrap();
            RedisOptions { prefix: prefix.into(), ..RedisOptions::at(place) }
        };
        let stores = urls.iter().map(|url| (url.clone(), options(url))).collect();
        let clock = Arc::<ManualClock>::default();
        let time = Time::Given(Arc::clone(&clock));
        Self::with(clock, stores, time, modes).await
    }

    /// Creates a memory store with a clock, and stores in Redis, each with a name.
    pub(super) async fn with(
        clock: Arc<ManualClock>,
        redis: Vec<(String, RedisOptions)>,
        time: Time,
        modes: Modes,
    ) -> Self {
        let metrics = Metrics::new();
        let in_force = InForce::new(Arc::clone(&metrics));
        let mut stores = vec![("memory".to_owned(), in_memory(&clock))];
        for (name, options) in redis {
            let store = RedisStore::connect(options, time.clone(), Arc::clone(&metrics.store));
            stores.push((name, AnyStore::Redis(store)));
        }
        let limiter = |(name, store)| (name, Limiter::new(Arc::clone(&in_force), store, modes));
        let limiters: Vec<_> = stores.into_iter().map(limiter).collect();
        for (name, limiter) in &limiters {
            let connected =
                tokio::time::timeout(TEST_TIMEOUT, all_connected(limiter.store())).await;
            connected.unwrap_or_else(|_| panic!("{name} cannot be reached"));
        }
        Self { clock, in_force, modes, limiters }
    }

    /// Installs a policy on all sides.
    pub fn install(&self, policy: &str) {
        let source = Source { name: "policy".to_owned(), text: policy.to_owned() };
        let loaded = policy::load(&[source], &policy::CompileOptions::default());
        self.in_force
            .install(loaded.unwrap_or_else(|report| panic!("{report}\n{policy}")).policies);
    }

    /// Decides a request on all sides at an instant. Returns the common answer, or an error with
    /// all of them.
    pub async fn decide(&self, at: u64, message: &RateLimitRequest) -> Result<SideAnswer, String> {
        let answers = self.each(at, |limiter| decide(limiter, message)).await;
        self.common(answers, format_args!("at {at}: {message:#?}"))
    }

    /// Calls all sides at an instant.
    async fn each<'a, F: Future>(
        &'a self,
        at: u64,
        call: impl Fn(&'a SideLimiter) -> F,
    ) -> Vec<F::Output> {
        self.set_clock(at);
        join_all(self.limiters.iter().map(|(_, limiter)| call(limiter))).await
    }

    /// Decides requests on all sides that are made at once. Returns an error with all answers if
    /// they differ.
    pub async fn decide_together(
        &self,
        at: u64,
        messages: &[RateLimitRequest],
    ) -> Result<(), String> {
        let answers = self.decide_overlapping(at, messages).await;
        self.common(answers, format_args!("at {at}, at once: {messages:#?}")).map(drop)
    }

    /// Decides requests on all sides that are made at once. Returns the answers of each side.
    pub async fn decide_overlapping(
        &self,
        at: u64,
        messages: &[RateLimitRequest],
    ) -> Vec<Vec<SideAnswer>> {
        let mut answers = Vec::new();
        for (_, limiter) in &self.limiters {
            self.set_clock(at);
            answers.push(join_all(messages.iter().map(|message| decide(limiter, message))).await);
        }
        answers
    }

    /// Makes a call for holds on all sides. Returns the common answer, or an error with all of
    /// them.
    pub async fn hold(
        &self,
        at: u64,
        message: &RateLimitRequest,
        call: &TracedHoldCall,
    ) -> Result<SideAnswer, String> {
        let answers = self.each(at, |limiter| hold(limiter, message, call)).await;
        self.common(answers, format_args!("at {at}: {call:?} of {message:#?}"))
    }

    /// Tries a request on all sides without taking its hits. Returns the common answer, or an error
    /// with all of them.
    pub async fn peek(&self, at: u64, message: &RateLimitRequest) -> Result<Tried, String> {
        let tried = self.each(at, |limiter| peek(limiter, message)).await;
        self.common(tried, format_args!("at {at}, tried: {message:#?}"))
    }

    /// Amends a counter on all sides.
    pub async fn amend(
        &self,
        at: u64,
        descriptor: &str,
        amendment: Amendment,
    ) -> Result<Touched, String> {
        let answers = self.each(at, |limiter| amend(limiter, descriptor, amendment)).await;
        self.common(answers, format_args!("at {at}: {amendment:?} of {descriptor}"))
    }

    /// Amends several counters at once on all sides.
    pub(super) async fn amend_together(
        &self,
        at: u64,
        descriptors: &[String],
        amendment: Amendment,
    ) -> Result<Vec<Touched>, String> {
        let all = |limiter| {
            join_all(
                descriptors.iter().map(move |descriptor| amend(limiter, descriptor, amendment)),
            )
        };
        let answers = self.each(at, all).await;
        self.common(answers, format_args!("at {at}: {amendment:?} of {descriptors:?}"))
    }

    /// Returns the tallies of a counter on all sides, except those without hits: a charge that is
    /// taken back leaves an entry in a Cluster.
    pub async fn tallies(&self, descriptor: &str) -> Result<Vec<EntryTally>, String> {
        let calls = self.limiters.iter().map(|(_, limiter)| tallies(limiter, descriptor));
        let mut answers = join_all(calls).await;
        for tallies in &mut answers {
            tallies.retain(|tally| (tally.charged, tally.denied) != (0, 0));
        }
        self.common(answers, format_args!("tallies of {descriptor}"))
    }

    /// Returns the open holds of a counter on all sides; none if its limit keeps none.
    pub async fn open_holds(&self, at: u64, descriptor: &str) -> Result<HoldList, String> {
        let answers = self.each(at, |limiter| open_holds(limiter, descriptor)).await;
        self.common(answers, format_args!("at {at}: open holds of {descriptor}"))
    }

    /// Returns the common answer, or an error with all of them.
    fn common<T: Debug + PartialEq>(
        &self,
        mut answers: Vec<T>,
        question: impl Display,
    ) -> Result<T, String> {
        if answers.iter().all(|answer| *answer == answers[0]) {
            return Ok(answers.swap_remove(0));
        }
        Err(format!("{question}\n{}", self.report(&answers)))
    }

    /// Returns the answers of all sides, each with the name of its side.
    fn report<T: Debug>(&self, answers: &[T]) -> String {
        let sides = self.limiters.iter().zip(answers);
        sides.map(|((name, _), answer)| format!("{name}: {answer:#?}\n")).collect()
    }

    /// Returns the limiter of the last store.
    pub fn last(&self) -> &SideLimiter {
        &self.limiters[self.limiters.len() - 1].1
    }

    /// Charges the counter of a descriptor in advance, on all sides, by a charge mode. Returns the
    /// receipt.
    pub async fn lend(
        &self,
        at: u64,
        descriptor: &str,
        hits: u32,
        mode: Charge,
    ) -> Result<Option<Receipt>, String> {
        let hits = Hits::Charge(hits);
        let answers = self.each(at, |limiter| lend(limiter, descriptor, hits, mode, None)).await;
        self.common(answers, format_args!("at {at}: {hits:?} of {descriptor} in advance, {mode:?}"))
    }

    /// Takes back a charge of [`Self::lend`].
    pub async fn take_back(&self, at: u64, descriptor: &str, receipt: Receipt) {
        let taken_back =
            |limiter| lend(limiter, descriptor, Hits::Peek(0), Charge::Admitted, Some(receipt));
        self.each(at, taken_back).await;
    }

    /// Returns a loan on all sides. Returns the common result, or an error with all of them.
    pub async fn return_loan(
        &self,
        at: u64,
        descriptor: &str,
        back: LoanReturn,
    ) -> Result<Returned, String> {
        let results = self.each(at, |limiter| return_loan(limiter, descriptor, back)).await;
        self.common(results, format_args!("at {at}: {descriptor}"))?
    }

    pub(super) fn set_clock(&self, at: u64) {
        self.clock.set(Timestamp::from_micros(at));
    }

    /// Performs a request, an operation on holds, an amendment or the return of a loan on the first
    /// sides after memory. Returns their answers, as text.
    pub(super) async fn of_servers(
        &self,
        sides: usize,
        operation: &TraceOperation,
        lent: &LentHits,
    ) -> Vec<Result<String, String>> {
        let mut answers = Vec::new();
        for (_, limiter) in self.limiters.iter().skip(1).take(sides) {
            let answer = if let TraceOperation::Decide(message) = operation {
                text(decide(limiter, message).await)
            } else if let TraceOperation::Hold(message, call) = operation {
                text(hold(limiter, message, call).await)
            } else if let TraceOperation::Amend(descriptor, amendment) = operation {
                text(amend(limiter, descriptor, *amendment).await)
            } else if let TraceOperation::Return(which, hits, usable_for) = operation
                && let Some((descriptor, back)) =
                    loan_of(&mut lent.clone(), *which, *hits, *usable_for)
            {
                text(return_loan(limiter, &descriptor, back).await)
            } else {
                continue;
            };
            answers.push(answer);
        }
        answers
    }

    /// Returns what memory knows of the counters of random traces.
    pub(super) fn remembered(&self, at: u64) -> Vec<RememberedCounter> {
        let (_, limiter) = &self.limiters[0];
        let AnyStore::Memory(store) = limiter.store() else { unreachable!() };
        let snapshot = limiter.snapshot();
        let policies = snapshot.as_deref().unwrap().policies();
        let remembered = |descriptor: String| {
            let mut keys = KeyBuffer::default();
            let (rule, key) = policies.counter("test", &entries(&descriptor), &mut keys).ok()?;
            let Imposes::Limit(limit) = rule.imposes() else { return None };
            let holds = MemoryStore::open_holds(store, &key, Timestamp::from_micros(at)).holds;
            Some(RememberedCounter {
                key: key.bytes().to_vec(),
                matters_until: store.matters_until(&key, limit)?,
                held_until: holds.iter().map(|hold| hold.ends_at).max().unwrap_or_default(),
                keeps_holds: limit.hold().is_some(),
            })
        };
        let values = ["a", "b"];
        let all = (0..10).flat_map(|key| values.map(|value| format!("k{key}={value}")));
        all.filter_map(remembered).collect()
    }

    /// Deletes all counters.
    pub async fn clear(&mut self) {
        self.limiters[0].1 =
            Limiter::new(Arc::clone(&self.in_force), in_memory(&self.clock), self.modes);
        for (_, limiter) in &self.limiters {
            limiter.store().clear().await.unwrap();
        }
    }
}

fn in_memory(clock: &Arc<ManualClock>) -> AnyStore<Arc<ManualClock>> {
    let room = Bounds { max_bytes: usize::MAX, domain_max_bytes: usize::MAX };
    AnyStore::Memory(Arc::new(MemoryStore::new(room, Arc::clone(clock))))
}

fn text<T: Debug>(answer: Result<T, String>) -> Result<String, String> {
    answer.map(|answer| format!("{answer:?}"))
}

/// Compares a try with the same request made after it, on all sides.
pub async fn a_try_is_what_follows(
    sides: &Sides,
    now: u64,
    message: &RateLimitRequest,
) -> Result<(), String> {
    let tried = sides.peek(now, message).await?.map(|(is_over, statuses)| {
        let statuses: Vec<_> = statuses.iter().map(|(is_over, ..)| *is_over).collect();
        (is_over, statuses)
    });
    let made = sides.decide(now, message).await?.map(|(answer, ..)| {
        let is_over = |code| code == rate_limit_response::Code::OverLimit;
        let statuses: Vec<_> =
            answer.statuses.iter().map(|status| is_over(status.code())).collect();
        (is_over(answer.overall_code()), statuses)
    });
    if tried == made {
        Ok(())
    } else {
        Err(format!("at {now}: {message:#?}\ntried: {tried:?}, made: {made:?}"))
    }
}
