//! Benchmarks of the Lua scripts, by kind of limit and for requests of 1 to 16 checks: 64 requests
//! concurrently, and one at a time, through the service's store.
//!
//! Run with `cargo bench --bench scripts`, or `-- NAME...` for some kinds. Script time is that of
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

#[allow(dead_code, reason = "the benchmarks' inputs, of which this needs some")]
#[path = "decisions/inputs.rs"]
mod inputs;
#[allow(dead_code, unused_imports, reason = "the tests' servers, of which this needs one")]
#[path = "../tests/support/mod.rs"]
mod support;
#[allow(dead_code, reason = "of what processes use this tells the CPU")]
#[path = "compare/usage.rs"]
mod usage;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate::grpc::request;
use tollgate::limiter::{InForce, Limiter, Modes};
use tollgate::store::redis::{RedisOptions, RedisStore, RedisUrl, Time};
use tollgate::telemetry::metrics::Metrics;

use self::inputs::{BOUNDS, message, policies};
use self::support::redis::Redis;
use self::usage::Usage;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of each measurement, after the warm-up.
const TIME: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(200);
/// Number of users in the requests.
const USERS: usize = 1_000;

/// Checks of a request, and requests in flight.
const LOADS: [(usize, usize); 6] = [(1, 1), (1, 64), (2, 64), (4, 64), (8, 64), (16, 64)];

/// Kinds of limits: a name, and the limit. The last is decided by the general script.
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

fn main() {
    let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        return println!("scripts: SKIPPED, there is no redis-server on this machine");
    }
    println!(
        "{:<28}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}",
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
    });
}

/// Returns true if the arguments name this kind, or none.
fn is_wanted(name: &str) -> bool {
    let mut names =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).peekable();
    names.peek().is_none() || names.any(|part| name.contains(&part))
}

async fn measure(name: &str, limit: &str, descriptors: usize, in_flight: usize) {
    let redis = Redis::start().await;
    let process = redis.info("server").await["process_id"].parse().unwrap();
    let in_force = InForce::new(Metrics::new());
    in_force.install(policies(&format!(
        "domain: bench\ndescriptors: [{{ key: user, rate_limit: {{ {limit} }} }}]\n"
    )));
    let options = RedisOptions::at(RedisUrl::parse(&redis.url()).unwrap().unwrap());
    let store = RedisStore::connect(options, Time::Server, Metrics::new());
    store.connected().await;
    let limiter = Limiter::new(in_force, store, Modes::default());
    run(&limiter, descriptors, in_flight, WARM_UP).await;
    let used = Usage::of(process);
    let (calls, us) = scripts(&redis).await;
    let begun = Instant::now();
    let count = run(&limiter, descriptors, in_flight, TIME).await as f64;
    let wall = begun.elapsed().as_secs_f64() * 1e6 / count;
    let cpu = Usage::of(process).since(used).cpu.as_secs_f64() * 1e6 / count;
    let (calls_later, us_later) = scripts(&redis).await;
    let calls = (calls_later - calls) / count;
    let us = (us_later - us) / count;
    println!(
        "{name:<28}{descriptors:>12}{in_flight:>12}{wall:>12.1}{us:>12.1}{cpu:>12.1}{calls:>12.2}"
    );
}

/// Sends requests for `time`, and returns their number.
async fn run(
    limiter: &Limiter<RedisStore>,
    descriptors: usize,
    in_flight: usize,
    time: Duration,
) -> usize {
    let end = Instant::now() + time;
    let of_user = |user: usize| {
        let texts: Vec<String> =
            (0..descriptors).map(|number| format!("user={number}-{user:08}")).collect();
        message(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let messages: Arc<Vec<Vec<u8>>> = Arc::new((0..USERS).map(of_user).collect());
    let caller = |number: usize| {
        let messages = Arc::clone(&messages);
        async move {
            let mut count = 0;
            while Instant::now() < end {
                let request =
                    request::read(&messages[(number + count * in_flight) % USERS], &BOUNDS)
                        .unwrap();
                let snapshot = limiter.snapshot();
                limiter
                    .decide(&snapshot, &request, Instant::now() + support::PATIENCE)
                    .await
                    .expect("Redis decides");
                count += 1;
            }
            count
        }
    };
    join_all((0..in_flight).map(caller)).await.into_iter().sum()
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
