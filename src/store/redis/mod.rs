//! Counters in Redis or Valkey: one node, a master behind sentinels, or a Cluster; the same decisions for every replica.
//!
//! A script judges and charges all checks of a request that live in one slot, at one instant of the server's clock. Checks of
//! several slots are judged at the same time, each slot charging as if the others admitted; where they do not, those charges
//! are taken back, by receipt, after the caller has been answered.
//!
//! | file | what it knows |
//! |---|---|
//! | `lua/`, `script` | the scripts |
//! | `question`, `straight`, `answer` | what goes to them, in general and of the frequent kinds, and what comes back |
//! | `plan`, `key` | which slot judges what, and what counters are called |
//! | `options`, `url`, `access`, `slot` | where, as whom, and which slot |
//! | `connect`, `tls` | a connection, and whom to trust |
//! | `calls` | one request's part in one slot, and what is sent again |
//! | `gather`, `batch` | requests that go to a node at once: when, and as which commands |
//! | `node`, `failure` | one connection: deadlines, the breaker, coming back; why a call failed |
//! | `routes`, `single`, `cluster`, `sentinel` | which node serves a slot, and how that is found out |
//! | `take_back` | charges that have to be undone |
//! | `lend` | hits that are charged in advance |
//! | `tallies` | who used a counter up |
//! | `check_up` | what to warn of at the start, and how many replicas there are |

mod access;
mod answer;
mod batch;
mod calls;
mod check_up;
mod cluster;
mod connect;
mod failure;
mod gather;
mod key;
mod lend;
mod node;
mod options;
mod plan;
mod question;
mod routes;
mod script;
mod sentinel;
mod single;
mod slot;
mod straight;
mod take_back;
mod tallies;
mod tls;
mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

pub use self::access::{Access, Secret};
use self::answer::Answer;
use self::calls::{Core, UnderWay, within};
use self::node::Node;
pub use self::options::{RedisOptions, Time};
use self::plan::Group;
use self::question::{Question, Undo, Wanted};
use self::routes::Routes;
use self::take_back::TakeBacks;
pub use self::tallies::Tally;
pub use self::url::{Address, Kind, RedisUrl, without_password};
use super::fallback::Fallback;
use super::{Check, Outcomes, Store, StoreError};
use crate::algorithm::judge::{Few, Hits};
use crate::algorithm::verdict::{Overall, Prior, combine};
use crate::algorithm::{Charge, Receipt};
use crate::telemetry::metrics::Metrics;

/// How often it is looked whether a store is connected.
const CONNECTED_EVERY: Duration = Duration::from_millis(5);
/// Time for one step of forgetting keys.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// A store in Redis, for the runtime that it was made in: connections belong to it.
#[derive(Debug)]
pub struct RedisStore {
    core: Arc<Core>,
    /// The servers for limits of one second, where they are others.
    per_second: Option<Arc<Core>>,
    take_backs: TakeBacks,
    /// Whether it was tried to reach all servers: until then calls wait for that, within their deadlines.
    begun: AtomicBool,
    /// Decides what `on_store_error: local` asks for; without it that is an error.
    fallback: Option<Fallback>,
}

type Judged = Few<plan::Judged>;

impl RedisStore {
    /// A store that begins to connect at once. To be called within a runtime.
    pub fn connect(options: RedisOptions, time: Time, metrics: Arc<Metrics>) -> Self {
        let per_second =
            options.per_second.clone().map(|other| RedisOptions { prefix: options.prefix.clone(), ..*other });
        let per_second = per_second.map(|options| Self::core(options, time.clone(), Arc::clone(&metrics)));
        let core = Self::core(options, time, metrics);
        Self { core, per_second, take_backs: TakeBacks::default(), begun: AtomicBool::new(false), fallback: None }
    }

    fn core(options: RedisOptions, time: Time, metrics: Arc<Metrics>) -> Arc<Core> {
        let access = Arc::new(options.access.clone().with(&options.url));
        let routes = Routes::new(Arc::clone(&access), Arc::clone(&metrics));
        let start = |seed, access: &Arc<Access>| Node::start(seed, Arc::clone(access), Arc::clone(&metrics));
        let by_slot = matches!(options.url.kind, Kind::Cluster(_));
        match options.url.kind.clone() {
            Kind::Single(address) => single::find(&routes, address),
            Kind::Cluster(seeds) => {
                let seeds = seeds.into_iter().map(|seed| start(seed, &access)).collect();
                tokio::spawn(cluster::find(Arc::downgrade(&routes), seeds));
            }
            Kind::Sentinel { master, sentinels } => {
                let access = Arc::new(Access { tls: options.url.tls, ..options.sentinel_access });
                let sentinels = sentinels.into_iter().map(|seed| start(seed, &access)).collect();
                tokio::spawn(sentinel::find(Arc::downgrade(&routes), master, sentinels));
            }
        }
        Arc::new(Core {
            routes,
            prefix: options.prefix,
            by_slot,
            time,
            metrics,
            complained: parking_lot::Mutex::default(),
        })
    }

    /// All servers.
    fn cores(&self) -> impl Iterator<Item = &Arc<Core>> {
        std::iter::once(&self.core).chain(&self.per_second)
    }

    fn core_of(&self, group: &Group) -> &Arc<Core> {
        self.per_second.as_ref().filter(|_| group.per_second).unwrap_or(&self.core)
    }

    /// The same, with somebody to decide while it is away.
    pub fn with_fallback(self, fallback: Fallback) -> Self {
        Self { fallback: Some(fallback), ..self }
    }

    /// Waits until a master is connected to, and every other one is too or was tried in vain: one that is dead does not keep
    /// the keys of the others from being decided.
    pub async fn connected(&self) {
        for core in self.cores() {
            loop {
                let masters = core.routes.masters();
                let (one, tried) = (|node: &Arc<Node>| node.is_connected(), |node: &Arc<Node>| node.is_tried());
                if masters.iter().any(one) && masters.iter().all(tried) {
                    break;
                }
                tokio::time::sleep(CONNECTED_EVERY).await;
            }
        }
    }

    /// Waits until it was tried to reach the servers of these slots, with whatever success: at the start of the process.
    async fn begin(&self, groups: &[Group], deadline: Instant) {
        if self.begun.load(Ordering::Relaxed) {
            return;
        }
        let is_tried = |group: &Group| self.core_of(group).is_tried(group.slot);
        while !groups.iter().all(is_tried) && Instant::now() < deadline {
            tokio::time::sleep(CONNECTED_EVERY).await;
        }
        if self.cores().all(|core| core.routes.is_tried()) {
            self.begun.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a connection to a master is open; where limits of a second are elsewhere, to one of theirs as well.
    pub fn is_connected(&self) -> bool {
        self.cores().all(|core| core.routes.masters().iter().any(|node| node.is_connected()))
    }

    /// Forgets every key that begins with this store's prefix.
    ///
    /// # Errors
    /// What kept a node from it.
    pub async fn clear(&self) -> Result<(), StoreError> {
        for node in self.cores().flat_map(|core| core.routes.masters()) {
            let mut cursor = 0u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg([self.core.prefix.as_slice(), b"*"].concat()).arg("COUNT").arg(1_000);
                let reply = node.call(&scan, within(CLEAR_TIMEOUT)).await?;
                let (next, keys): (u64, Vec<Vec<u8>>) =
                    redis::from_redis_value(reply).map_err(|_| StoreError::Refused)?;
                for key in keys {
                    node.call(redis::cmd("UNLINK").arg(key), within(CLEAR_TIMEOUT)).await?;
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until charges that have to be undone are.
    pub async fn settled(&self) {
        self.take_backs.settled().await;
    }

    /// Asks the slots that can be asked, and puts what they say to `judged`.
    async fn ask_all(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> (Judged, Few<(Group, Few<Answer>)>) {
        let now = self.core.now();
        let mut judged: Judged = checks
            .iter()
            .map(|check| check.limit.is_ban().then(|| plan::of_ban(check, now)).flatten().map(Ok))
            .collect();
        let groups = plan::groups(checks, &self.core, self.per_second.as_deref());
        self.begin(&groups, deadline).await;
        let (down, up): (Few<Group>, Few<Group>) =
            groups.into_iter().partition(|group| self.core_of(group).is_down(group.slot));
        for group in &down {
            fail(group, &mut judged, &StoreError::Unavailable);
            self.core_of(group).routes.doubt();
        }
        // Limits of a second on servers of their own are asked first, in half of the time: the others then know the rest of
        // the request, and what they charge stands.
        let (first, last): (Few<Group>, Few<Group>) = up.into_iter().partition(|group| group.per_second);
        let until = if last.is_empty() { deadline } else { halfway(deadline) };
        let (more, mut known) = (!last.is_empty(), Few::new());
        for (groups, more, until) in [(first, more, until), (last, false, deadline)] {
            if groups.is_empty() {
                continue;
            }
            // Alone and last it decides, but for a vote that has let pass, and for what this process decides after it.
            let is_partial = more
                || groups.len() > 1
                || plan::has_passing_vote(checks, &judged)
                || judged.iter().any(|outcome| matches!(outcome, Some(Err(_))));
            let prior = plan::prior_of(checks, &judged, prior, self.fallback.is_some());
            known.extend(self.ask_at_once(checks, groups, (prior, is_partial), until, &mut judged).await);
        }
        // When all others have spoken: what it charges is not taken back.
        self.fall_back(checks, &mut judged, prior).await;
        (judged, known)
    }

    /// Asks some slots at the same time. `as_if`: what is known before, and whether there is more than these.
    async fn ask_at_once(
        &self,
        checks: &[Check<'_>],
        groups: Few<Group>,
        as_if: (Prior, bool),
        deadline: Instant,
        judged: &mut Judged,
    ) -> Few<(Group, Few<Answer>)> {
        let mut asked = groups.iter().map(|group| self.ask_group(checks, group, as_if, deadline));
        let charges = groups.iter().map(|group| group.charges(checks)).fold(0, u64::saturating_add);
        let under_way = UnderWay::new(&self.core, charges);
        let answers = match (asked.len(), asked.next()) {
            (1, Some(only)) => vec![only.await],
            (_, first) => futures_util::future::join_all(first.into_iter().chain(asked)).await,
        };
        under_way.answered();
        let mut known = Few::new();
        for (group, answer) in groups.into_iter().zip(answers) {
            match answer {
                Ok(answers) => {
                    for (number, answer) in group.checks.iter().zip(&answers) {
                        if let Some(place) = judged.get_mut(*number) {
                            *place = Some(answer.outcome.clone());
                        }
                    }
                    known.push((group, answers));
                }
                Err(error) => {
                    self.core.count_unknown(group.charges(checks), &error);
                    fail(&group, judged, &error);
                }
            }
        }
        known
    }

    /// Asks one slot: straight where its only check is the whole request and of a frequent kind.
    async fn ask_group(
        &self,
        checks: &[Check<'_>],
        group: &Group,
        (prior, is_partial): (Prior, bool),
        deadline: Instant,
    ) -> Result<Few<Answer>, StoreError> {
        let core = self.core_of(group);
        let given = core.given();
        if let ([check], false) = (checks, is_partial)
            && let Some(question) = Question::straight(&core.prefix, check, prior, given)
            && let Some(answers) = core.ask(group.slot, question, deadline).await?
        {
            return Ok(answers);
        }
        let mut question = Question::new(prior, is_partial, given);
        let of_group = group.checks.iter().filter_map(|number| checks.get(*number));
        of_group.for_each(|check| question.add(&core.prefix, check, Wanted::Hits(check.hits), core.now()));
        core.ask(group.slot, question, deadline).await?.ok_or(StoreError::Refused)
    }

    /// Decides in this process what could not be judged and whose limit says so. `prior`: of the request, before all checks.
    async fn fall_back(&self, checks: &[Check<'_>], judged: &mut Judged, prior: Prior) {
        let Some(fallback) = &self.fallback else { return };
        let wants = |(number, check): (usize, &Check<'_>)| {
            let outcome = judged.get(number).and_then(Option::as_ref);
            outcome.is_some_and(|outcome| plan::is_left(check, outcome)).then_some(number)
        };
        let numbers: Few<usize> = checks.iter().enumerate().filter_map(wants).collect();
        if numbers.is_empty() {
            return;
        }
        let prior = plan::prior_of(checks, judged, prior, true);
        let of_them: Few<Check<'_>> = numbers.iter().filter_map(|number| checks.get(*number).copied()).collect();
        for (number, outcome) in numbers.iter().zip(fallback.decide(&of_them, prior).await) {
            if let Some(place) = judged.get_mut(*number) {
                *place = Some(outcome);
            }
        }
    }
}

impl Store for RedisStore {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: std::time::Instant) -> Outcomes {
        // What it takes to wait is kilobytes, which whoever is answered without asking Redis would carry along.
        Box::pin(self.ask_and_settle(checks, prior, Instant::from_std(deadline))).await
    }
}

impl RedisStore {
    /// Asks, and takes back what was charged for nothing.
    async fn ask_and_settle(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> Outcomes {
        let (mut judged, known) = self.ask_all(checks, prior, deadline).await;
        let verdicts = checks.iter().zip(&judged).map(|(check, outcome)| {
            let outcome = outcome.as_ref().map_or(Err(&StoreError::Unavailable), Result::as_ref);
            (check.role, check.verdict(outcome))
        });
        if combine(prior, verdicts) != Overall::Admitted {
            for (group, answers) in known {
                let mut undo: Few<(&Check<'_>, Receipt, Undo)> = Few::new();
                for (number, answer) in group.checks.iter().zip(answers) {
                    let (Some(check), Some(place)) = (checks.get(*number), judged.get_mut(*number)) else { continue };
                    if let Some(outcome) = answer.otherwise {
                        *place = Some(Ok(outcome));
                    }
                    undo.extend(
                        to_undo(check, &answer).map(|receipt| (check, receipt, answer.undo.unwrap_or_default())),
                    );
                }
                self.take_backs.add(self.core_of(&group), group.slot, undo);
            }
        }
        judged.into_iter().map(|outcome| outcome.unwrap_or(Err(StoreError::Unavailable))).collect()
    }
}

/// The instant between now and another.
fn halfway(deadline: Instant) -> Instant {
    let now = Instant::now();
    now.checked_add(deadline.saturating_duration_since(now).div_f64(2.0)).unwrap_or(now)
}

/// Puts an error to all checks of a group.
fn fail(group: &Group, judged: &mut Judged, error: &StoreError) {
    for number in &group.checks {
        if let Some(place) = judged.get_mut(*number) {
            *place = Some(Err(error.clone()));
        }
    }
}

/// The receipt of a charge that only an admitted request makes.
fn to_undo(check: &Check<'_>, answer: &Answer) -> Option<Receipt> {
    let allowed = answer.outcome.as_ref().is_ok_and(|outcome| outcome.allowed);
    let conditional = matches!(check.limit.charge_mode(), Charge::Admitted | Charge::Blamed) && allowed;
    match (check.hits, answer.written) {
        (Hits::Charge(hits), Some(at)) if conditional => Some(Receipt { at, hits: hits.into() }),
        (Hits::Charge(_) | Hits::Peek | Hits::Refund(_), _) => None,
    }
}
