//! What the scripts cost that decide in Redis: one request at a time, and 64 at once, through the store as the service has it.
//!
//! `cargo bench --bench scripts`. Time in Redis is its own, of `INFO commandstats`; its CPU is of the whole process, with what
//! reading and answering commands takes.
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

// As the binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long each is measured, and before that not.
const TIME: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(200);
/// Users that requests are about.
const USERS: usize = 1_000;

/// What is asked: a name, a limit, descriptors in a request.
const SUBJECTS: [(&str, &str, usize); 7] = [
    ("fixed_window", "unit: hour, requests_per_unit: 1000000000", 1),
    ("fixed_window, 3 descriptors", "unit: hour, requests_per_unit: 1000000000", 3),
    ("sliding_window", "algorithm: sliding_window, unit: hour, requests_per_unit: 1000000000", 1),
    (
        "sliding_window, 3 windows",
        "algorithm: sliding_window, windows: [{ unit: second, requests_per_unit: 1000000000 }, { unit: minute, requests_per_unit: 1000000000 }, { unit: hour, requests_per_unit: 1000000000 }]",
        1,
    ),
    ("sliding_log", "algorithm: sliding_log, unit: second, requests_per_unit: 20", 1),
    ("gcra", "algorithm: gcra, unit: hour, requests_per_unit: 1000000000", 1),
    ("token_bucket", "algorithm: token_bucket, unit: hour, requests_per_unit: 1000000000", 1),
];

fn main() {
    let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        return println!("scripts: SKIPPED, there is no redis-server on this machine");
    }
    println!(
        "{:<28}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "us a request", "in flight", "wall", "script", "Redis CPU", "commands"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (name, limit, descriptors) in SUBJECTS {
            for in_flight in [1, 64] {
                measure(name, limit, descriptors, in_flight).await;
            }
        }
    });
}

async fn measure(name: &str, limit: &str, descriptors: usize, in_flight: usize) {
    let redis = Redis::start().await;
    let process = redis.info("server").await["process_id"].parse().unwrap();
    let in_force = InForce::new(Metrics::new());
    in_force.install(policies(&format!("domain: bench\ndescriptors: [{{ key: user, rate_limit: {{ {limit} }} }}]\n")));
    let options = RedisOptions::at(RedisUrl::parse(&redis.url()).unwrap().unwrap());
    let store = RedisStore::connect(options, Time::Server, Metrics::new());
    store.connected().await;
    let limiter = Limiter::new(in_force, store, Modes::default());
    run(&limiter, descriptors, in_flight, WARM_UP).await;
    let (used, (calls, us)) = (Usage::of(process), scripts(&redis).await);
    let begun = Instant::now();
    let count = run(&limiter, descriptors, in_flight, TIME).await as f64;
    let wall = begun.elapsed().as_secs_f64() * 1e6 / count;
    let cpu = Usage::of(process).since(used).cpu.as_secs_f64() * 1e6 / count;
    let (calls_later, us_later) = scripts(&redis).await;
    let (calls, us) = ((calls_later - calls) / count, (us_later - us) / count);
    println!("{name:<28}{in_flight:>12}{wall:>12.1}{us:>12.1}{cpu:>12.1}{calls:>12.2}");
}

/// Asks for so long, and says how often that was.
async fn run(limiter: &Limiter<RedisStore>, descriptors: usize, in_flight: usize, time: Duration) -> usize {
    let end = Instant::now() + time;
    let of_user = |user: usize| {
        let texts: Vec<String> = (0..descriptors).map(|number| format!("user={number}-{user:08}")).collect();
        message(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let messages: Arc<Vec<Vec<u8>>> = Arc::new((0..USERS).map(of_user).collect());
    let caller = |number: usize| {
        let messages = Arc::clone(&messages);
        async move {
            let mut count = 0;
            while Instant::now() < end {
                let request = request::read(&messages[(number + count * in_flight) % USERS], &BOUNDS).unwrap();
                let snapshot = limiter.snapshot();
                limiter.decide(&snapshot, &request, Instant::now() + support::PATIENCE).await.expect("Redis decides");
                count += 1;
            }
            count
        }
    };
    join_all((0..in_flight).map(caller)).await.into_iter().sum()
}

/// Calls of scripts, and the microseconds that they took.
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
