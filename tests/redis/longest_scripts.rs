//! The scripts at large states of a counter take time in proportion to the state, so that one key
//! cannot stop a server. `benches/RESULTS.md` has the figures of the largest states.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::grpc::proto::RateLimitDescriptor;

use super::{policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, entry, request};

/// Numbers of permits or entries. In proportion, the larger state takes four times as long; with
/// the square, sixteen times.
const SIZES: [usize; 2] = [2_000, 8_000];
const MOST_TIMES: u64 = 8;
/// Runs of which the shortest counts.
const RUNS: usize = 7;

const LIMITS: [(&str, &str); 3] = [
    ("permits", "algorithm: concurrency, in_flight: 10000, hold: { ttl: 1h }"),
    ("log", "algorithm: sliding_log, requests_per_unit: 10000, unit: day"),
    ("other", "requests_per_unit: 1000000, unit: day"),
];

fn micros(instant: SystemTime) -> [u8; 7] {
    let micros = instant.duration_since(UNIX_EPOCH).unwrap().as_micros();
    let [_, bytes @ ..] = u64::try_from(micros).unwrap().to_be_bytes();
    bytes
}

/// Returns the value of a counter with permits, of which every other one has ended if `half` is
/// set; the others end in no order.
fn permits(count: usize, half: bool) -> Vec<u8> {
    let now = SystemTime::now();
    let taken = micros(now - Duration::from_secs(3_600));
    let mut value = [&[26][..], &taken, &u16::try_from(count).unwrap().to_be_bytes()].concat();
    for number in 0..count {
        let has_ended = half && number % 2 == 0;
        let seconds = u64::try_from(number * 7_919 % count).unwrap();
        let ends = if has_ended { taken } else { micros(now + Duration::from_secs(600 + seconds)) };
        value.extend([&taken[..], &ends, &1u32.to_be_bytes(), &[36]].concat());
        value.extend(format!("{number:036}").bytes());
    }
    value
}

/// Returns the value of a log with entries of one hit.
fn log(count: usize) -> Vec<u8> {
    let first = SystemTime::now() - Duration::from_secs(3_600);
    let of = |number: usize| micros(first + Duration::from_micros(u64::try_from(number).unwrap()));
    let entries = u16::try_from(count).unwrap().to_be_bytes();
    let mut value = [&[22][..], &of(count), &entries, &[0; 4]].concat();
    for number in 0..count {
        value.extend(of(number));
        value.extend(u32::try_from(number + 1).unwrap().to_be_bytes());
    }
    value
}

/// Returns the CPU time of a server in microseconds: the time that its scripts take also depends on
/// other processes.
async fn cpu_us(redis: &Redis) -> u64 {
    let used = redis.info("cpu").await;
    // In seconds, with six decimals.
    let us = |name: &str| used[name].replace('.', "").parse::<u64>().unwrap();
    us("used_cpu_user") + us("used_cpu_sys")
}

/// Returns the least CPU time in microseconds of a request to a counter with this value.
async fn shortest(
    redis: &Redis,
    client: &Client,
    (key, value): (&[u8], &[u8]),
    descriptors: &[RateLimitDescriptor],
) -> u64 {
    let mut shortest = u64::MAX;
    for _ in 0..RUNS {
        redis.query_bytes::<()>(&[b"SET", key, value]).await.unwrap();
        let before = cpu_us(redis).await;
        client.decide(request(descriptors.to_vec())).await.unwrap();
        shortest = shortest.min(cpu_us(redis).await - before);
    }
    assert!(shortest > 0, "no script ran");
    shortest
}

async fn counter_key(redis: &Redis, client: &Client, name: &str) -> Vec<u8> {
    redis.command(&["FLUSHALL"]).await;
    assert!(client.hit(name, "a").await);
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", "*"]).await.unwrap();
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    key.clone()
}

fn operation(name: &str, id: &str, hits: u64) -> RateLimitDescriptor {
    let mut operation = descriptor(&[("permits", "a")]);
    operation.entries.push(entry(name.as_bytes(), id.as_bytes()));
    RateLimitDescriptor { hits_addend: Some(hits), ..operation }
}

#[tokio::test]
async fn scripts_take_time_in_proportion_to_the_permits_or_entries_of_a_counter() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&LIMITS));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    let of = |key: &str, hits: u64| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[(key, "a")])
    };
    let refund = RateLimitDescriptor { is_negative_hits: true, ..of("permits", 500) };
    let cases = [
        ("a peek", vec![of("permits", 0)]),
        ("a reserve", vec![operation("tollgate.reserve", "new", 1)]),
        ("a denied reserve", vec![operation("tollgate.reserve", "new", 9_999)]),
        ("a settle", vec![operation("tollgate.settle", &format!("{:036}", 1_001), 0)]),
        ("a refund", vec![refund]),
        ("two limits", vec![operation("tollgate.reserve", "new", 9_999), of("other", 1)]),
    ];
    let key = counter_key(&redis, &client, "permits").await;
    for half in [false, true] {
        for (case, descriptors) in &cases {
            let [small, large] = SIZES.map(|size| permits(size, half));
            let small = shortest(&redis, &client, (&key, &small), descriptors).await;
            let large = shortest(&redis, &client, (&key, &large), descriptors).await;
            assert!(large <= small * MOST_TIMES, "{case}, {half}: {small} us, {large} us");
        }
    }
    let key = counter_key(&redis, &client, "log").await;
    let refund = RateLimitDescriptor { is_negative_hits: true, ..of("log", 500) };
    for descriptors in [vec![of("log", 1)], vec![refund], vec![of("log", 1), of("other", 1)]] {
        let [small, large] = SIZES.map(log);
        let small = shortest(&redis, &client, (&key, &small), &descriptors).await;
        let large = shortest(&redis, &client, (&key, &large), &descriptors).await;
        assert!(large <= small * MOST_TIMES, "a log: {small} us, {large} us");
    }
}

#[tokio::test]
async fn a_request_reads_a_counter_once_for_each_operation() {
    const OPERATIONS: usize = 16;
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&LIMITS));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    let key = counter_key(&redis, &client, "permits").await;
    let reserves = |count: usize| -> Vec<_> {
        (0..count).map(|id| operation("tollgate.reserve", &format!("new{id}"), 1)).collect()
    };
    let value = permits(SIZES[0], false);
    let one = shortest(&redis, &client, (&key, &value), &reserves(1)).await;
    let all = shortest(&redis, &client, (&key, &value), &reserves(OPERATIONS)).await;
    // Once more for the reply of all.
    let most = one * u64::try_from(2 * OPERATIONS).unwrap();
    assert!(all <= most, "{one} us for one, {all} us for {OPERATIONS}, at most {most} us");
}
