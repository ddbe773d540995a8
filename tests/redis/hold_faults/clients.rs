//! Clients that reserve, and commit, settle, cancel or abandon their holds; and the
//! processes that they call.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;
use tollgate::grpc::proto::hold::{CancelRequest, CommitRequest, ReserveRequest};
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitResponse};
use tonic::transport::Channel;

use super::ledger::Ledger;
use super::{PERMITS, RULES, TTL};
use crate::support::policy::Policies;
use crate::support::random::Random;
use crate::support::rls::{Client, channel, descriptor, entry, request};
use crate::support::tollgate::Tollgate;

/// Timeout of most calls.
const PATIENT: Duration = Duration::from_secs(2);
/// Calls by which a client tries to end a hold.
const TRIES: usize = 3;
/// Pause of a client whose call has failed.
const PAUSE: Duration = Duration::from_millis(20);

/// A process that can be replaced by another.
pub(super) struct Replica {
    policies: Arc<Policies>,
    store: String,
    running: Mutex<Option<Tollgate>>,
    channel: Mutex<Channel>,
}

impl Replica {
    pub(super) async fn start(policies: Arc<Policies>, store: String) -> Self {
        let service = serve(Arc::clone(&policies), store.clone()).await;
        let channel = Mutex::new(channel(service.grpc).await);
        Self { policies, store, running: Mutex::new(Some(service)), channel }
    }

    /// Kills the process by SIGKILL, and starts another.
    pub(super) async fn kill_and_restart(&self) {
        drop(self.running.lock().unwrap().take());
        let service = serve(Arc::clone(&self.policies), self.store.clone()).await;
        let connection = channel(service.grpc).await;
        *self.channel.lock().unwrap() = connection;
        *self.running.lock().unwrap() = Some(service);
    }

    pub(super) fn client(&self) -> Client {
        Client::over(self.channel())
    }

    pub(super) fn admin(&self) -> SocketAddr {
        self.running.lock().unwrap().as_ref().unwrap().admin
    }

    fn channel(&self) -> Channel {
        self.channel.lock().unwrap().clone()
    }
}

async fn serve(policies: Arc<Policies>, store: String) -> Tollgate {
    let serve = move || {
        let policy = policies.path().to_str().unwrap();
        let flags = ["--policy", policy, "--store", &store, "--store-timeout", "5s"];
        Tollgate::serve_by(&[&flags[..], &["--replicas", "8", "--workers", "2"]].concat())
    };
    tokio::task::spawn_blocking(serve).await.unwrap()
}

/// The way by which a call is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `ShouldRateLimit`, with an entry of the descriptors.
    Entries,
    HoldService,
}

/// An operation, with its hits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Reserve(u32),
    Commit(u32),
    Settle,
    Cancel,
}

/// A hold of a client.
struct Hold {
    number: u64,
    /// Rules, and the values of their counters.
    counters: Vec<(usize, usize)>,
    hits: u32,
    /// Instant until which the hold is certainly open.
    until: Instant,
}

/// Reserves and ends holds, one by one, until `ended` is set.
pub(super) async fn hold_until(
    ended: Arc<AtomicBool>,
    replicas: Arc<Vec<Replica>>,
    client: usize,
    ledger: Arc<Ledger>,
    mut random: Random,
) {
    let mut number = u64::try_from(client).unwrap() << 32;
    while !ended.load(Ordering::Relaxed) {
        number += 1;
        let hold = new_hold(number, &ledger, &mut random);
        let replica = &replicas[client % replicas.len()];
        match reserve(replica, &hold, &ledger, &mut random).await {
            Some(true) => {}
            Some(false) => continue,
            None => {
                tokio::time::sleep(PAUSE).await;
                if random.percent(50) {
                    give_up(replica, &hold, &ledger, &mut random).await;
                }
                continue;
            }
        }
        if random.percent(2) {
            ledger.calls.abandoned.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        // The work.
        let length = if random.percent(1) { TTL } else { Duration::from_millis(20) };
        let percent = u32::try_from(random.below(110)).unwrap();
        tokio::time::sleep(length * percent / 100).await;
        end(&replicas, &hold, &ledger, &mut random).await;
    }
}

fn new_hold(number: u64, ledger: &Ledger, random: &mut Random) -> Hold {
    let first = random.below(RULES.len());
    let mut rules = vec![first];
    if random.percent(20) {
        rules.push((first + 1 + random.below(RULES.len() - 1)) % RULES.len());
    }
    let most = if rules.contains(&PERMITS) { 2 } else { 60 };
    let hits = 1 + u32::try_from(random.below(most)).unwrap();
    let counters = rules.into_iter().map(|rule| (rule, ledger.value(rule))).collect();
    Hold { number, counters, hits, until: Instant::now() + TTL }
}

/// Returns `true` if the hold was admitted, `None` if no answer came.
async fn reserve(
    replica: &Replica,
    hold: &Hold,
    ledger: &Ledger,
    random: &mut Random,
) -> Option<bool> {
    for (rule, value) in &hold.counters {
        ledger.may_charge(*rule, *value, hold.hits);
    }
    let answer = call(replica, hold, Operation::Reserve(hold.hits), random).await;
    let Some(answer) = answer else {
        ledger.calls.lost.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let is_admitted = answer.overall_code() == Code::Ok;
    let calls = if is_admitted { &ledger.calls.admitted } else { &ledger.calls.denied };
    calls.fetch_add(1, Ordering::Relaxed);
    for (rule, value) in &hold.counters {
        match (is_admitted, hold.counters.len()) {
            (true, _) if *rule == PERMITS => {
                ledger.take_permits(hold.number, hold.hits, hold.until);
            }
            (true, _) => ledger.admit(*rule, *value, hold.hits),
            // The take-back of a charge in another slot may be lost.
            (false, 1) => ledger.did_not_charge(*rule, *value, hold.hits),
            (false, _) => {}
        }
    }
    Some(is_admitted)
}

/// Ends a hold that may never have been.
async fn give_up(replica: &Replica, hold: &Hold, ledger: &Ledger, random: &mut Random) {
    for (rule, value) in &hold.counters {
        ledger.may_return(*rule, *value, hold.hits);
    }
    let operation = if random.percent(50) { Operation::Settle } else { Operation::Cancel };
    let _ = call(replica, hold, operation, random).await;
}

/// Ends a hold by a few calls to any process, until one is answered.
async fn end(replicas: &[Replica], hold: &Hold, ledger: &Ledger, random: &mut Random) {
    let hits = hold.hits;
    let below = u32::try_from(random.below(hits as usize)).unwrap();
    let operation = match random.below(10) {
        0 => Operation::Commit(hits + below),
        1..6 => Operation::Commit(below / 4),
        6..8 => Operation::Settle,
        _ => Operation::Cancel,
    };
    ledger.free_permits(hold.number);
    for (rule, value) in &hold.counters {
        match operation {
            Operation::Commit(cost) if cost > hits => ledger.may_charge(*rule, *value, cost - hits),
            Operation::Reserve(_)
            | Operation::Commit(_)
            | Operation::Settle
            | Operation::Cancel => {
                ledger.may_return(*rule, *value, returned(operation, hits, *rule))
            }
        }
    }
    let mut is_late = false;
    for _ in 0..TRIES {
        let replica = random.one_of(replicas);
        let was_late = is_late;
        is_late |= Instant::now() + PATIENT > hold.until;
        if let Operation::Commit(cost) = operation
            && is_late
            && !was_late
        {
            // The hold may have ended: then all of the cost is charged.
            hold.counters.iter().for_each(|(rule, value)| {
                ledger.may_charge(*rule, *value, cost.min(hits));
            });
        }
        let Some(answer) = call(replica, hold, operation, random).await else {
            ledger.calls.lost.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        ledger.calls.ended.fetch_add(1, Ordering::Relaxed);
        if !is_late {
            count(&answer, hold, operation, ledger);
            // A repeated end has no effect.
            if random.percent(20) {
                let _ = call(random.one_of(replicas), hold, operation, random).await;
            }
        }
        return;
    }
}

/// Records an end that was answered in time.
fn count(answer: &RateLimitResponse, hold: &Hold, operation: Operation, ledger: &Ledger) {
    for ((rule, value), status) in hold.counters.iter().zip(&answer.statuses) {
        // Without the state of its counter, the store may not have it.
        if status.duration_until_reset.is_none() {
            continue;
        }
        match operation {
            Operation::Commit(cost) if cost > hold.hits => {
                ledger.calls.overruns.fetch_add(1, Ordering::Relaxed);
                ledger.overrun(*rule, *value, cost - hold.hits);
            }
            Operation::Reserve(_)
            | Operation::Commit(_)
            | Operation::Settle
            | Operation::Cancel => {
                ledger.did_return(*rule, *value, returned(operation, hold.hits, *rule))
            }
        }
    }
}

/// Returns the hits that the end of a hold of `hits` gives back.
fn returned(operation: Operation, hits: u32, rule: usize) -> u32 {
    match operation {
        Operation::Commit(cost) => hits.saturating_sub(cost),
        Operation::Settle if !RULES[rule].releases => 0,
        Operation::Settle | Operation::Cancel | Operation::Reserve(_) => hits,
    }
}

/// Sends an operation. Some calls are cancelled so early that their outcome is unknown.
async fn call(
    replica: &Replica,
    hold: &Hold,
    operation: Operation,
    random: &mut Random,
) -> Option<RateLimitResponse> {
    let timeout = if random.percent(2) {
        Duration::from_micros(500 * u64::try_from(random.below(20)).unwrap())
    } else {
        PATIENT
    };
    // HoldService has no settle, and the entries have no cancel.
    let way = match operation {
        Operation::Settle => Way::Entries,
        Operation::Cancel => Way::HoldService,
        Operation::Reserve(_) | Operation::Commit(_) => {
            *random.one_of(&[Way::Entries, Way::HoldService])
        }
    };
    let answer = async {
        match way {
            Way::Entries => by_entries(replica, hold, operation).await,
            Way::HoldService => by_service(replica, hold, operation).await,
        }
    };
    tokio::time::timeout(timeout, answer).await.ok().flatten()
}

async fn by_entries(
    replica: &Replica,
    hold: &Hold,
    operation: Operation,
) -> Option<RateLimitResponse> {
    let (key, hits) = match operation {
        Operation::Reserve(hits) => ("tollgate.reserve", Some(hits)),
        Operation::Commit(hits) => ("tollgate.commit", Some(hits)),
        Operation::Settle | Operation::Cancel => ("tollgate.settle", None),
    };
    let mut descriptors = descriptors(hold);
    for descriptor in &mut descriptors {
        descriptor.entries.push(entry(key.as_bytes(), hold.number.to_string().as_bytes()));
        descriptor.hits_addend = hits.map(u64::from);
    }
    replica.client().decide_within(request(descriptors), Some(PATIENT)).await.ok()
}

async fn by_service(
    replica: &Replica,
    hold: &Hold,
    operation: Operation,
) -> Option<RateLimitResponse> {
    let mut client = HoldServiceClient::new(replica.channel());
    let domain = "test".to_owned();
    let id = hold.number.to_string();
    let descriptors = descriptors(hold);
    let answer = match operation {
        Operation::Reserve(hits) => {
            let reserve = ReserveRequest { domain, descriptors, id, hits, ttl: None };
            client.reserve(limited(reserve)).await
        }
        Operation::Commit(hits) => {
            client.commit(limited(CommitRequest { domain, descriptors, id, hits })).await
        }
        Operation::Settle | Operation::Cancel => {
            client.cancel(limited(CancelRequest { domain, descriptors, id })).await
        }
    };
    Some(answer.ok()?.into_inner())
}

fn limited<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(PATIENT);
    request
}

fn descriptors(hold: &Hold) -> Vec<RateLimitDescriptor> {
    let one = |(rule, value): &(usize, usize)| {
        descriptor(&[(RULES[*rule].key, value.to_string().as_str())])
    };
    hold.counters.iter().map(one).collect()
}
