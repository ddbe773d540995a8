//! Cases with simulated servers: memory, which judges in Rust, and the scripts of one server and of
//! a Cluster must agree. They run in one thread without sockets, in milliseconds.

use std::sync::Arc;

use proptest::strategy::{BoxedStrategy, Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tollgate::algorithm::time::Timestamp;
use tollgate::limiter::Modes;
use tollgate::store::clock::ManualClock;
use tollgate::store::redis::Time;

use super::cases::STANDS_STILL_AT;
use super::directed::DIRECTED;
use super::disturbed::disturb;
use super::lifetimes::Lifetimes;
use super::network::CalmNetwork;
use super::sides::Sides;
use super::{
    LentHits, StepWatch, TraceCase, TraceOperation, Unwatched, cases, hold_cases, run_with,
};
use crate::world::server::fleet::Arrangement;
use crate::world::server::resp::Resp;

/// Number of random cases, in which nearly every line of the scripts runs.
const RANDOM: u64 = 32;
/// The cause if only replies or items are others than those that were recorded.
pub const UNLIKE_RECORDED: &str = "replies or items are not those that were recorded";
/// The trail of each seed.
const RECORDED: &str = include_str!("trails.txt");
/// The clocks by which the servers of a case judge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JudgingClock {
    /// The instants of the trace are given.
    Given,
    /// The servers' own, as is the process's. They never step back.
    OfServers,
    /// The same, but the process's clock stands still long before: the store learns the time of the
    /// servers from their replies.
    OfServersAlone,
}

/// Kinds of cases.
const KINDS: u64 = 8;
/// The first byte of a reply to a request that is in no window that was sent.
const BEYOND: u8 = 4;
/// The URL of a single server.
const SINGLE: &str = "redis://redis";

/// A single server and a Cluster, in this order, whose stores are compared with memory.
struct CalmServersWatch {
    networks: Vec<Arc<CalmNetwork>>,
    lifetimes: Lifetimes,
    has_given_time: bool,
    /// Number of the single server's calls of scripts before a step that takes one at most.
    calls: Option<usize>,
}

impl CalmServersWatch {
    /// Returns the number of the single server's replies that judge a request: others ask for it
    /// again, with the windows of a calendar at a counter's instant.
    fn calls(&self) -> usize {
        let judges = |reply: &&Resp| !matches!(reply, Resp::Bulk(bytes) if bytes[0] == BEYOND);
        self.networks[0].with_replies(|replies| replies.iter().filter(judges).count())
    }
}

impl StepWatch for CalmServersWatch {
    async fn before(
        &mut self,
        sides: &Sides,
        step: (usize, u64),
        operation: &TraceOperation,
        lent: &LentHits,
    ) -> Result<(), String> {
        disturb(sides, &self.networks, step, operation, lent).await?;
        // Servers' own clocks would stay ahead of memory.
        let slow = if let TraceOperation::Slow(_, time) = operation { *time } else { 0 };
        let time = if self.has_given_time { slow } else { 0 };
        self.networks.iter().for_each(|network| network.take(time));
        let is_one = matches!(operation, TraceOperation::Decide(_) | TraceOperation::Hold(..));
        self.calls = (is_one && self.has_given_time).then(|| self.calls());
        Ok(())
    }

    async fn after(&mut self, sides: &Sides, (_, now): (usize, u64)) -> Result<(), String> {
        self.lifetimes.check(sides, &self.networks, now)?;
        if let Some(before) = self.calls
            && self.calls() > before + 1
        {
            return Err(format!("at {now}: {} calls", self.calls() - before));
        }
        match self.networks.iter().find_map(|network| network.broken()) {
            Some(error) => Err(format!("at {now}: {error}")),
            None => Ok(()),
        }
    }
}

/// The end of a case.
pub struct EndOfCase {
    /// The first difference from memory, if there is any.
    pub difference: Option<String>,
    /// The digest of all replies of scripts and of all items that they wrote.
    pub trail: String,
}

/// Runs the case of a seed. Returns the difference from memory that it shows; if there is none,
/// [`UNLIKE_RECORDED`] if replies or items are not those that were recorded.
pub fn broken_by(seed: u64) -> Vec<String> {
    let EndOfCase { difference, trail } = run_seed(seed);
    let recorded = RECORDED.lines().nth(seed.try_into().unwrap());
    let is_unlike = recorded != Some(&trail);
    difference.or_else(|| is_unlike.then(|| UNLIKE_RECORDED.to_owned())).into_iter().collect()
}

/// Returns the number of cases: random ones, and [`DIRECTED`] ones after them.
#[must_use]
pub fn number_of_cases() -> u64 {
    RANDOM + DIRECTED.len() as u64
}

/// Runs the case of a seed.
pub fn run_seed(seed: u64) -> EndOfCase {
    if let Some(directed) = seed.checked_sub(RANDOM) {
        let case = &DIRECTED[usize::try_from(directed).unwrap()];
        let clocks = [JudgingClock::Given, JudgingClock::OfServersAlone];
        let [given, own] = clocks.map(|by| run_case(case, by));
        return EndOfCase {
            difference: given.difference.or(own.difference),
            trail: given.trail + &own.trail,
        };
    }
    // The kinds take turns, and so do the clocks.
    let is_given = (seed / KINDS).is_multiple_of(2);
    let by = if is_given { JudgingClock::Given } else { JudgingClock::OfServers };
    run_case(&random_case(seed), by)
}

/// Returns the replies of the scripts of a single server to some cases, one after another.
#[must_use]
pub fn replies(cases: &[TraceCase]) -> Vec<Resp> {
    in_paused_time(async {
        let clock = Arc::<ManualClock>::default();
        let network = CalmNetwork::new(Arrangement::Single, &clock, &clock);
        let store = (SINGLE.to_owned(), network.options(SINGLE));
        let time = Time::Given(Arc::clone(&clock));
        let sides = Sides::with(clock, vec![store], time, Modes::default()).await;
        for case in cases {
            run_with(&sides, case, &mut Unwatched).await.unwrap();
        }
        network.with_replies(<[_]>::to_vec)
    })
}

/// Runs a future in one thread, whose timers end at once when nothing else happens.
pub(crate) fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// Runs a case.
fn run_case(case: &TraceCase, by: JudgingClock) -> EndOfCase {
    in_paused_time(async {
        let clock = Arc::<ManualClock>::default();
        let still = Arc::<ManualClock>::default();
        still.set(Timestamp::from_micros(STANDS_STILL_AT));
        let process_clock = if by == JudgingClock::OfServersAlone { &still } else { &clock };
        let has_given_time = by == JudgingClock::Given;
        let servers = [(Arrangement::Single, SINGLE), (Arrangement::Cluster, "redis-cluster://s0")];
        let network = |(arrangement, _)| CalmNetwork::new(arrangement, &clock, process_clock);
        let networks: Vec<_> = servers.map(network).into();
        let stores = networks.iter().zip(servers);
        let stores = stores.map(|(network, (_, url))| (url.to_owned(), network.options(url)));
        let time = if has_given_time { Time::Given(Arc::clone(&clock)) } else { Time::Server };
        let forwards = case.clone().forwards();
        let case = if has_given_time { case } else { &forwards };
        let sides = Sides::with(clock, stores.collect(), time, case.modes).await;
        let lifetimes = Lifetimes::new(networks.len(), has_given_time);
        let mut watch = CalmServersWatch { networks, lifetimes, has_given_time, calls: None };
        let difference = run_with(&sides, case, &mut watch).await.err();
        let trail = watch.networks.iter().map(|network| network.trail()).collect();
        EndOfCase { difference, trail }
    })
}

/// Returns the random case of a seed: kinds of cases take turns, and some of them with another.
#[must_use]
pub fn random_case(seed: u64) -> TraceCase {
    let is_other = !(seed / (2 * KINDS)).is_multiple_of(2);
    let kinds: [fn() -> BoxedStrategy<TraceCase>; KINDS as usize] = [
        || cases::decided().boxed(),
        if is_other {
            || hold_cases::of_callers(true).boxed()
        } else {
            || hold_cases::in_one_slot().boxed()
        },
        || cases::with_other_amounts().boxed(),
        || cases::lent().boxed(),
        if is_other {
            || hold_cases::of_callers(false).boxed()
        } else {
            || hold_cases::across_slots().boxed()
        },
        || cases::tallied().boxed(),
        || cases::decided_later().boxed(),
        if is_other {
            || hold_cases::splitting_logs().boxed()
        } else {
            || hold_cases::merging_marks().boxed()
        },
    ];
    let kind = kinds[(seed % KINDS) as usize];
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    kind().new_tree(&mut runner).unwrap().current()
}
