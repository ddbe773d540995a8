//! Benchmarks of the Lua scripts, by kind of limit and for requests of 1 to 256 checks: several
//! requests concurrently, and one at a time, through the service's store.
//!
//! Then limits that keep holds: a plain charge, a reserve, and the commit of that hold with its
//! settle in one request, 64 requests concurrently. Last, the [longest] scripts.
//!
//! Run with `cargo bench --bench scripts`, or `-- NAME...` for some kinds; with `--redis62`,
//! `--redis8` or `--valkey` in another server than the distribution's Redis. Script time is that of
//! `INFO commandstats`; CPU is that of the whole Redis process, which includes reading commands and
//! writing replies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a benchmark that panics measures nothing"
)]

mod longest;

use std::cell::Cell;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use prost::Message as _;
use tollgate::grpc::proto::rate_limit_descriptor::Entry;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate::grpc::request;
use tollgate::limiter::{InForce, Limiter, Modes};
use tollgate::store::backend::Backend as _;
use tollgate::store::redis::{RedisOptions, RedisStore, RedisUrl, Time};
use tollgate::telemetry::metrics::Metrics;
use tollgate_testkit::inputs::{BOUNDS, message, policies};
use tollgate_testkit::redis::flavor::Flavor;
use tollgate_testkit::redis::{Redis, Setup};
use tollgate_testkit::usage::Usage;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of each measurement, after the warm-up.
const TIME: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(200);
/// Number of users in the requests.
const USERS: usize = 1_000;

/// Checks of a request, and requests in flight.
const LOADS: [(usize, usize); 8] =
    [(1, 1), (1, 64), (2, 64), (4, 64), (8, 64), (16, 64), (64, 4), (256, 4)];

/// Kinds of limits: a name, and the limit.
const KINDS: [(&str, &str); 11] = [
    ("fixed_window", "unit: hour, requests_per_unit: 1000000000"),
    (
        "fixed_window, 3 windows",
        "windows: [{ unit: second, requests_per_unit: 1000000000 }, { unit: minute, requests_per_unit: 1000000000 }, { unit: hour, requests_per_unit: 1000000000 }]",
    ),
    ("fixed_window, denied", "unit: hour, requests_per_unit: 1, charge: admitted"),
    ("gcra", "algorithm: gcra, unit: second, requests_per_unit: 1000000"),
    ("gcra, fractions", "algorithm: gcra, unit: hour, requests_per_unit: 7777777"),
    ("sliding_window", "algorithm: sliding_window, unit: hour, requests_per_unit: 1000000000"),
    (
        "sliding_window, weighted",
        "algorithm: sliding_window, unit: hour, requests_per_unit: 1000000000, estimate: weighted",
    ),
    (
        "sliding_window, 3 windows",
        "algorithm: sliding_window, windows: [{ unit: second, requests_per_unit: 1000000000 }, { unit: minute, requests_per_unit: 1000000000 }, { unit: hour, requests_per_unit: 1000000000 }]",
    ),
    ("sliding_log of 50", "algorithm: sliding_log, unit: second, requests_per_unit: 50"),
    ("sliding_log of 1,000", "algorithm: sliding_log, unit: minute, requests_per_unit: 1000"),
    ("recorded", "unit: hour, requests_per_unit: 1000000000, record: [user]"),
];

/// Limits that keep holds.
const HOLDS: [(&str, &str); 5] = [
    ("fixed_window, hold", "unit: hour, requests_per_unit: 1000000000, hold: { ttl: 1m }"),
    (
        "gcra, hold",
        "algorithm: gcra, unit: second, requests_per_unit: 1000000, burst: 2000000, hold: { ttl: 1m }",
    ),
    (
        "sliding_window, hold",
        "algorithm: sliding_window, unit: hour, requests_per_unit: 1000000000, hold: { ttl: 1m }",
    ),
    (
        "sliding_log, hold",
        "algorithm: sliding_log, unit: second, requests_per_unit: 50, hold: { ttl: 1m }",
    ),
    ("slots", "algorithm: concurrency, in_flight: 10, hold: { ttl: 1m }"),
];

/// A request under a limit that keeps holds: its name, and each of its descriptors: the
/// key of the operation, none for a charge, and the hits.
type Operations = (&'static str, &'static [(&'static str, Option<u64>)]);

const CHARGE: Operations = ("charge", &[("", Some(1))]);
const RESERVE: Operations = ("reserve", &[("tollgate.reserve", Some(3))]);
/// Less of the hold of a rate limit was used.
const COMMIT: Operations =
    ("commit, settle", &[("tollgate.commit", Some(2)), ("tollgate.settle", None)]);

fn main() {
    let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        return println!("scripts: SKIPPED, there is no redis-server on this machine");
    }
    println!(
        "{:<36}{:>8}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "us a request", "checks", "in flight", "wall", "script", "Redis CPU", "commands"
    );
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (name, limit) in KINDS.iter().filter(|(name, _)| is_wanted(name)) {
            for (checks, in_flight) in LOADS {
                measure(name, limit, checks, in_flight).await;
            }
        }
        for (name, limit) in HOLDS.iter().filter(|(name, _)| is_wanted(name)) {
            measure_holds(name, limit).await;
        }
        longest::measure_longest(is_wanted).await;
    });
}

/// Returns true if the arguments name this kind, or none.
fn is_wanted(name: &str) -> bool {
    let mut names =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).peekable();
    names.peek().is_none() || names.any(|part| name.contains(&part))
}

/// Returns the server that the arguments name.
fn flavor() -> Flavor {
    let named = |name: &str| std::env::args().any(|argument| argument == name);
    match [named("--redis62"), named("--redis8"), named("--valkey")] {
        [true, _, _] => Flavor::Redis62,
        [_, true, _] => Flavor::Redis8,
        [_, _, true] => Flavor::Valkey,
        [false, false, false] => Flavor::Distribution,
    }
}

/// A server, the process that it is, and a limiter whose counters are there.
struct Bench {
    redis: Redis,
    process: u32,
    limiter: Limiter<RedisStore>,
}

impl Bench {
    async fn of(limit: &str) -> Self {
        let redis = Redis::start_as(Setup { flavor: flavor(), ..Setup::default() }).await;
        let process = redis.info("server").await["process_id"].parse().unwrap();
        let in_force = InForce::new(Metrics::new());
        in_force.install(policies(&format!(
            "domain: bench\ndescriptors: [{{ key: user, rate_limit: {{ {limit} }} }}]\n"
        )));
        let options = RedisOptions::at(RedisUrl::parse(&redis.url()).unwrap().unwrap());
        let store = RedisStore::connect(options, Time::Server, Arc::default());
        store.connected().await;
        Self { redis, process, limiter: Limiter::new(in_force, store, Modes::default()) }
    }

    /// Sends requests, and prints their costs. Returns their number.
    async fn measure(
        &self,
        name: &str,
        descriptors: usize,
        in_flight: usize,
        requests: &impl Fn(usize) -> Option<Vec<u8>>,
    ) -> usize {
        let used = Usage::of(self.process);
        let (calls, us) = scripts(&self.redis).await;
        let begun = Instant::now();
        let sent = run(&self.limiter, in_flight, TIME, requests).await;
        let count = sent as f64;
        let wall = begun.elapsed().as_secs_f64() * 1e6 / count;
        let cpu = Usage::of(self.process).since(used).cpu.as_secs_f64() * 1e6 / count;
        let (calls_later, us_later) = scripts(&self.redis).await;
        let calls = (calls_later - calls) / count;
        let us = (us_later - us) / count;
        println!(
            "{name:<36}{descriptors:>8}{in_flight:>12}{wall:>12.1}{us:>12.1}{cpu:>12.1}{calls:>12.2}"
        );
        sent
    }
}

async fn measure(name: &str, limit: &str, descriptors: usize, in_flight: usize) {
    let bench = Bench::of(limit).await;
    let of_user = |user: usize| {
        let texts: Vec<String> =
            (0..descriptors).map(|number| format!("user={number}-{user:08}")).collect();
        message(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let messages: Vec<Vec<u8>> = (0..USERS).map(of_user).collect();
    let requests = |number: usize| Some(messages[number % USERS].clone());
    run(&bench.limiter, in_flight, WARM_UP, &requests).await;
    bench.measure(name, descriptors, in_flight, &requests).await;
}

/// Measures charges, reserves, and the ends of the holds that these have made.
async fn measure_holds(name: &str, limit: &str) {
    const IN_FLIGHT: usize = 64;
    let bench = Bench::of(limit).await;
    for round in ["warm-up", "measured"] {
        let charges = |number: usize| Some(on_hold(&CHARGE, round, number));
        let reserves = |number: usize| Some(on_hold(&RESERVE, round, number));
        if round == "warm-up" {
            run(&bench.limiter, IN_FLIGHT, WARM_UP, &charges).await;
            run(&bench.limiter, IN_FLIGHT, WARM_UP, &reserves).await;
            continue;
        }
        let name = |what: &Operations| format!("{name}: {}", what.0);
        bench.measure(&name(&CHARGE), 1, IN_FLIGHT, &charges).await;
        let made = bench.measure(&name(&RESERVE), 1, IN_FLIGHT, &reserves).await;
        let ends = |number: usize| (number < made).then(|| on_hold(&COMMIT, round, number));
        bench.measure(&name(&COMMIT), 2, IN_FLIGHT, &ends).await;
    }
}

/// Encodes a request with an ID of 36 bytes, as that of a UUID.
fn on_hold((_, operations): &Operations, round: &str, number: usize) -> Vec<u8> {
    let entry =
        |key: &str, value: String| Entry { key: key.to_owned().into(), value: value.into() };
    let of = |(operation, hits): &(&str, Option<u64>)| {
        let id =
            (!operation.is_empty()).then(|| entry(operation, format!("{round:>12}{number:024}")));
        let user = entry("user", format!("{:08}", number % USERS));
        RateLimitDescriptor {
            entries: std::iter::once(user).chain(id).collect(),
            hits_addend: *hits,
            ..RateLimitDescriptor::default()
        }
    };
    let descriptors = operations.iter().map(of).collect();
    RateLimitRequest { domain: "bench".to_owned(), descriptors, ..RateLimitRequest::default() }
        .encode_to_vec()
}

/// Sends requests by number for `time`, or until there are no more. Returns their number.
async fn run(
    limiter: &Limiter<RedisStore>,
    in_flight: usize,
    time: Duration,
    requests: &impl Fn(usize) -> Option<Vec<u8>>,
) -> usize {
    let end = Instant::now() + time;
    let next = Cell::new(0);
    let caller = async || {
        while Instant::now() < end {
            let Some(message) = requests(next.get()) else { return };
            next.set(next.get() + 1);
            let request = request::read(&message, &BOUNDS).unwrap();
            let snapshot = limiter.snapshot();
            limiter
                .decide(&snapshot, &request, Instant::now() + tollgate_testkit::TEST_TIMEOUT)
                .await
                .expect("Redis decides");
        }
    };
    join_all((0..in_flight).map(|_| caller())).await;
    next.get()
}

/// Returns the number of script calls and their total time in microseconds.
async fn scripts(redis: &Redis) -> (f64, f64) {
    let stats = redis.info("commandstats").await;
    let of = |name: &str, field: &str| -> f64 {
        let fields = stats.get(&format!("cmdstat_{name}")).map_or("", String::as_str);
        let value = fields.split(',').find_map(|part| part.strip_prefix(field)?.strip_prefix('='));
        value.map_or(0.0, |value| value.parse().unwrap())
    };
    let sum = |field: &str| of("eval", field) + of("evalsha", field);
    (sum("calls"), sum("usec"))
}
