//! Counters in Redis or Valkey: one node, a master behind sentinels, or a Cluster; the same decisions for every replica.
//!
//! A script judges and charges all checks of a request that live in one slot, at one instant of the server's clock. Checks of
//! several slots are judged at the same time, each slot charging as if the others admitted; where they do not, those charges
//! are taken back, by receipt, after the caller has been answered.
//!
//! | file | what it knows |
//! |---|---|
//! | `lua/`, `script` | the scripts |
//! | `question`, `answer` | what goes to them and what comes back |
//! | `plan`, `key` | which slot judges what, and what counters are called |
//! | `url`, `access`, `slot` | where, as whom, and which slot |
//! | `calls` | one script call: the command, and what is sent again |
//! | `node`, `failure` | one connection: deadlines, the breaker, coming back; why a call failed |
//! | `routes`, `single`, `cluster`, `sentinel` | which node serves a slot, and how that is found out |
//! | `take_back` | charges that have to be undone |
//! | `tallies` | who used a counter up |
//! | `check_up` | what to warn of at the start, and how many replicas there are |

mod access;
mod answer;
mod calls;
mod check_up;
mod cluster;
mod failure;
mod key;
mod node;
mod plan;
mod question;
mod routes;
mod script;
mod sentinel;
mod single;
mod slot;
mod take_back;
mod tallies;
mod url;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::access::{Access, Secret};
use self::answer::Answer;
use self::calls::{Core, within};
use self::node::Node;
use self::plan::Group;
use self::question::{Question, Undo, Wanted};
use self::routes::Routes;
use self::take_back::TakeBacks;
pub use self::tallies::Tally;
pub use self::url::{Address, Kind, RedisUrl};
use super::clock::ManualClock;
use super::fallback::Fallback;
use super::{Check, Outcomes, Store, StoreError};
use crate::algorithm::judge::{Few, Hits};
use crate::algorithm::verdict::{Overall, Prior, combine};
use crate::algorithm::{Charge, OnStoreError, Receipt};
use crate::telemetry::metrics::Metrics;

/// How often it is looked whether a store is connected.
const CONNECTED_EVERY: Duration = Duration::from_millis(5);
/// Time for one step of forgetting keys.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// How to reach Redis, and how to name keys there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    /// Where it is.
    pub url: RedisUrl,
    /// As whom.
    pub access: Access,
    /// As whom to ask the sentinels.
    pub sentinel_access: Access,
    /// What all keys begin with.
    pub prefix: Vec<u8>,
}

impl RedisOptions {
    /// Those of a URL, with nothing besides.
    pub fn at(url: RedisUrl) -> Self {
        Self { url, access: Access::default(), sentinel_access: Access::default(), prefix: Vec::new() }
    }
}

/// Whose clock decides.
#[derive(Clone, Debug)]
pub enum Time {
    /// The server's.
    Server,
    /// One that is set by hand, for traces.
    Given(Arc<ManualClock>),
}

/// A store in Redis, for the runtime that it was made in: connections belong to it.
#[derive(Debug)]
pub struct RedisStore {
    core: Arc<Core>,
    take_backs: TakeBacks,
    /// Decides what `on_store_error: local` asks for; without it that is an error.
    fallback: Option<Fallback>,
}

type Judged = Few<Option<Result<crate::algorithm::judge::Outcome, StoreError>>>;

impl RedisStore {
    /// A store that begins to connect at once. To be called within a runtime.
    pub fn connect(options: RedisOptions, time: Time, metrics: Arc<Metrics>) -> Self {
        let routes = Routes::new(Arc::new(options.access.clone().with(&options.url)), Arc::clone(&metrics));
        let start = |seed, access: &Arc<Access>| Node::start(seed, Arc::clone(access), Arc::clone(&metrics));
        let by_slot = matches!(options.url.kind, Kind::Cluster(_));
        match options.url.kind.clone() {
            Kind::Single(address) => single::find(&routes, address),
            Kind::Cluster(seeds) => {
                let access = Arc::new(options.access.clone().with(&options.url));
                let seeds = seeds.into_iter().map(|seed| start(seed, &access)).collect();
                tokio::spawn(cluster::find(Arc::downgrade(&routes), seeds));
            }
            Kind::Sentinel { master, sentinels } => {
                let access = Arc::new(Access { tls: options.url.tls, ..options.sentinel_access });
                let sentinels = sentinels.into_iter().map(|seed| start(seed, &access)).collect();
                tokio::spawn(sentinel::find(Arc::downgrade(&routes), master, sentinels));
            }
        }
        let core = Arc::new(Core {
            routes,
            prefix: options.prefix,
            by_slot,
            time,
            metrics,
            complained: parking_lot::Mutex::default(),
        });
        Self { take_backs: TakeBacks::new(Arc::clone(&core)), core, fallback: None }
    }

    /// The same, with somebody to decide while it is away.
    pub fn with_fallback(self, fallback: Fallback) -> Self {
        Self { fallback: Some(fallback), ..self }
    }

    /// Waits until a master is connected to, and every other one is too or was tried in vain: one that is dead does not keep
    /// the keys of the others from being decided.
    pub async fn connected(&self) {
        loop {
            let masters = self.core.routes.masters();
            let (one, tried) = (|node: &Arc<Node>| node.is_connected(), |node: &Arc<Node>| node.is_tried());
            if masters.iter().any(one) && masters.iter().all(tried) {
                return;
            }
            tokio::time::sleep(CONNECTED_EVERY).await;
        }
    }

    /// Forgets every key that begins with this store's prefix.
    ///
    /// # Errors
    /// What kept a node from it.
    pub async fn clear(&self) -> Result<(), StoreError> {
        for node in self.core.routes.masters() {
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
        let (down, up): (Few<Group>, Few<Group>) = plan::groups(checks, &self.core.prefix, self.core.by_slot)
            .into_iter()
            .partition(|group| self.core.is_down(group));
        let all = |group: &Group, judged: &mut Judged, error: &StoreError| {
            for number in &group.checks {
                if let Some(place) = judged.get_mut(*number) {
                    *place = Some(Err(error.clone()));
                }
            }
        };
        down.iter().for_each(|group| all(group, &mut judged, &StoreError::Unavailable));
        if !down.is_empty() {
            self.core.routes.doubt();
        }
        let locally = self.fallback.is_some();
        let asked = plan::prior_of(checks, &judged, prior, locally);
        let is_partial = up.len() > 1 || judged.iter().any(Option::is_some);
        let asked = up.iter().map(|group| {
            let mut question = Question::new(&self.core.prefix, asked, is_partial);
            let of_group = group.checks.iter().filter_map(|number| checks.get(*number));
            of_group.for_each(|check| question.add(check, Wanted::Hits(check.hits), now));
            self.core.ask(group.slot, question, deadline)
        });
        let answers = match up.len() {
            1 => {
                let mut asked = asked;
                let Some(only) = asked.next() else { return (judged, Few::new()) };
                vec![only.await]
            }
            _ => futures_util::future::join_all(asked).await,
        };
        let mut known = Few::new();
        for (group, answer) in up.into_iter().zip(answers) {
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
                    self.core.count_unknown(checks, &group, &error);
                    all(&group, &mut judged, &error);
                }
            }
        }
        // Last, when all others have spoken: what it charges is not taken back.
        let prior = plan::prior_of(checks, &judged, prior, locally);
        self.fall_back(checks, &mut judged, prior).await;
        (judged, known)
    }

    /// Decides in this process what could not be judged and whose limit says so.
    async fn fall_back(&self, checks: &[Check<'_>], judged: &mut Judged, prior: Prior) {
        let Some(fallback) = &self.fallback else { return };
        let wants = |(number, check): (usize, &Check<'_>)| {
            let failed = judged.get(number).is_some_and(|outcome| matches!(outcome, Some(Err(_))));
            (failed && check.limit.on_store_error() == OnStoreError::Local).then_some(number)
        };
        let numbers: Few<usize> = checks.iter().enumerate().filter_map(wants).collect();
        if numbers.is_empty() {
            return;
        }
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
        let (mut judged, known) = self.ask_all(checks, prior, Instant::from_std(deadline)).await;
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
                self.take_backs.add(group.slot, undo);
            }
        }
        judged.into_iter().map(|outcome| outcome.unwrap_or(Err(StoreError::Unavailable))).collect()
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
