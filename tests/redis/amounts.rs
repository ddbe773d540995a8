//! Changes of amounts while a counter is in use, step by step in simulated time: memory, one server
//! and a cluster agree.
//!
//! The law: a refund or take-back of n hits through any amount lowers what any other amount counts
//! by at most n; no other write lowers it. So a replica that judges by old amounts, for
//! a moment or by mistake, frees no hits for others.
//!
//! `TOLLGATE_RANDOM_SEED` selects other random writes, `TOLLGATE_RANDOM_CASES` more of them.

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::{Charge, Receipt};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::limiter::Modes;

use super::{cluster, policy};
use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{descriptor, request};
use crate::support::traces::sides::Sides;

const AT: u64 = 1_780_000_000_000_000;
const AMOUNT: u32 = 10_000;
/// Amounts that other replicas no longer have, and amounts written by mistake.
const OLD: [u32; 4] = [100, 1, 0, 9_999];

/// Limits that admit N at once.
const LIMITS: [(&str, &str); 11] = [
    ("fixed", "requests_per_unit: N, unit: hour"),
    (
        "fixed_windows",
        "windows: [{ requests_per_unit: N, unit: hour }, { requests_per_unit: N, unit: year }]",
    ),
    ("calendar", "requests_per_unit: N, unit: day, calendar: true, time_zone: Asia/Kathmandu"),
    ("sliding", "algorithm: sliding_window, requests_per_unit: N, unit: hour"),
    ("weighted", "algorithm: sliding_window, requests_per_unit: N, unit: hour, estimate: weighted"),
    ("log", "algorithm: sliding_log, requests_per_unit: N, unit: hour"),
    ("gcra", "algorithm: gcra, requests_per_unit: N, unit: hour"),
    ("gcra_yearly", "algorithm: gcra, requests_per_unit: N, unit: year"),
    ("gcra_without_debt", "algorithm: gcra, requests_per_unit: N, unit: hour, max_debt: 0"),
    ("bucket", "algorithm: token_bucket, requests_per_unit: N, unit: hour, burst: B"),
    (
        "bucket_of_another_size",
        "algorithm: token_bucket, requests_per_unit: 100, unit: hour, burst: B",
    ),
];

#[tokio::test]
async fn hits_of_a_lease_of_old_amounts_return_at_most_themselves() {
    let servers = Servers::start().await;
    for old in [100, 9_999] {
        let bench = servers.bench().await;
        for key in bench.keys("admitted") {
            bench.install(old, "admitted");
            let receipt = bench.lend(key, 6).await;
            bench.install(AMOUNT, "admitted");
            bench.admits_just(key, AMOUNT - 6, "with the lease").await;
            bench.install(old, "admitted");
            bench.take_back(key, Receipt { hits: 5, ..receipt }).await;
            bench.install(AMOUNT, "admitted");
            bench.admits_just(key, 5, &format!("of the lease of {old}")).await;
        }
    }
}

#[tokio::test]
async fn refunds_through_old_amounts_return_at_most_themselves() {
    let servers = Servers::start().await;
    for old in OLD {
        let bench = servers.bench().await;
        for key in bench.keys("admitted") {
            bench.install(AMOUNT, "admitted");
            bench.admits_just(key, AMOUNT, "at first").await;
            for hits in [1, 3] {
                bench.install(old, "admitted");
                bench.refund(key, hits).await;
                bench.install(AMOUNT, "admitted");
                let hits = if is_ban(key, old) { 0 } else { hits };
                bench.admits_just(key, hits, &format!("after a refund through {old}")).await;
            }
        }
    }
}

#[tokio::test]
async fn denied_hits_through_old_amounts_return_nothing() {
    let servers = Servers::start().await;
    for (old, charge) in OLD.into_iter().flat_map(|old| [(old, "blamed"), (old, "always")]) {
        let bench = servers.bench().await;
        for key in bench.keys(charge) {
            bench.install(AMOUNT, charge);
            bench.install(AMOUNT, "admitted");
            bench.admits(key, AMOUNT - 1, "at first").await;
            bench.install(old, charge);
            assert!(!bench.hit(key, 7).await, "{key}: 7 hits of {old}");
            bench.install(AMOUNT, "admitted");
            assert!(
                bench.used(key).await >= u64::from(AMOUNT) - 1,
                "{key}: {charge} through {old}"
            );
            // The seven hits were charged as far as the amount allows debt; if they were not, the
            // one hit that was left still is.
            bench.install(AMOUNT, charge);
            assert!(!bench.hit(key, 2).await, "{key}: {charge} through {old}");
        }
    }
}

#[tokio::test]
async fn amounts_that_were_lowered_by_mistake_and_raised_again_admit_no_more_in_all() {
    let servers = Servers::start().await;
    for mistake in OLD {
        let bench = servers.bench().await;
        for key in bench.keys("admitted") {
            bench.install(AMOUNT, "admitted");
            bench.admits(key, 6_000, "at first").await;
            let mut admitted = 6_000;
            for _ in 0..3 {
                bench.install(mistake, "admitted");
                for _ in 0..3 {
                    admitted += u32::from(bench.hit(key, 1).await);
                    bench.refund(key, 1).await;
                    admitted -= u32::from(!is_ban(key, mistake));
                }
                bench.install(AMOUNT, "admitted");
                let left = bench.left(key).await;
                assert!(
                    left <= u64::from(AMOUNT - admitted),
                    "{key}: {admitted} admitted, {left} left: {mistake}"
                );
                bench.admits(key, 500, &format!("after {mistake}")).await;
                admitted += 500;
            }
            bench.admits_just(key, AMOUNT - admitted, &format!("after {mistake}")).await;
        }
    }
}

/// No write lowers the hits counted by any amount by more than the hits that it returns.
#[tokio::test]
async fn no_write_lowers_what_any_amount_counts_by_more_than_it_gives_back() {
    const AMOUNTS: [u32; 6] = [0, 1, 7, 997, 5_000, 10_000];
    /// Amounts whose counts are compared; a ban has no counts.
    const WATCHED: [u32; 3] = [1, 997, 10_000];
    let servers = Servers::start().await;
    let from_environment =
        |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default();
    for case in 0..from_environment("TOLLGATE_RANDOM_CASES").unwrap_or(1) {
        let bench = servers.bench().await;
        let mut random = Random(seed.wrapping_add(case));
        for key in bench.keys("always") {
            let mut lent = Vec::new();
            let mut before = vec![0; WATCHED.len()];
            for step in 0..40 {
                let amount = *random.one_of(&AMOUNTS);
                let charge = *random.one_of(&["admitted", "blamed", "always"]);
                bench.install(amount, charge);
                let most = *random.one_of(&[10, 4_000]);
                let hits = u32::try_from(1 + random.below(most)).unwrap();
                let mut given_back = 0;
                let what = *random.one_of(&["lease", "refund", "take-back", "charge", "charge"]);
                match what {
                    "lease" => lent.extend(bench.try_lend(key, hits).await),
                    "refund" => {
                        bench.refund(key, hits).await;
                        given_back = hits.into();
                    }
                    // A limit that denies everything has no leases.
                    "take-back" if !is_ban(key, amount) && !lent.is_empty() => {
                        let receipt: Receipt = lent.swap_remove(random.below(lent.len()));
                        bench.take_back(key, receipt).await;
                        given_back = receipt.hits;
                    }
                    _ => drop(bench.hit(key, hits).await),
                }
                let after = bench.used_by(key, &WATCHED).await;
                let is_held =
                    before.iter().zip(&after).all(|(before, after)| after + given_back >= *before);
                let subject = format!(
                    "{key}, case {case}, step {step}: {what} of {hits} through {amount}, {charge}"
                );
                assert!(is_held, "{subject}: {WATCHED:?} counted {before:?}, and then {after:?}");
                before = after;
            }
        }
    }
}

/// One server and a cluster.
struct Servers(Redis, Cluster);

impl Servers {
    async fn start() -> Self {
        Self(Redis::start().await, cluster().await)
    }

    /// Returns the servers and memory, without any counter.
    async fn bench(&self) -> Bench {
        let sides = Sides::new(&[self.0.url(), self.1.url()], "amounts:", Modes::default()).await;
        sides.clear().await;
        Bench { sides }
    }
}

/// Stores that must agree.
struct Bench {
    sides: Sides,
}

impl Bench {
    /// Returns the limits that support this charge mode.
    fn keys(&self, charge: &str) -> impl Iterator<Item = &'static str> {
        let is_one = move |key: &&str| charge == "admitted" || charge == "blamed" || *key != "log";
        LIMITS.into_iter().map(|(key, _)| key).filter(is_one).collect::<Vec<_>>().into_iter()
    }

    /// Installs a policy with this amount in all stores.
    fn install(&self, amount: u32, charge: &str) {
        let limit = |limit: &str| {
            limit
                .replace(": N", &format!(": {amount}"))
                .replace(": B", &format!(": {}", amount.max(1)))
        };
        let keys: Vec<&str> = self.keys(charge).collect();
        let limits = LIMITS.iter().filter(|(key, _)| keys.contains(key));
        let limits: Vec<(&str, String)> = limits.map(|(key, text)| (*key, limit(text))).collect();
        let limits: Vec<(&str, &str)> =
            limits.iter().map(|(key, limit)| (*key, limit.as_str())).collect();
        self.sides.install(&format!("defaults: {{ charge: {charge} }}\n{}", policy(&limits)));
    }

    async fn status(&self, descriptor: RateLimitDescriptor) -> bool {
        let (response, ..) =
            self.sides.decide(AT, &request(vec![descriptor])).await.unwrap().unwrap();
        response.overall_code() == Code::Ok
    }

    async fn hit(&self, key: &str, hits: u32) -> bool {
        self.status(of_hits(key, hits)).await
    }

    async fn refund(&self, key: &str, hits: u32) {
        assert!(
            self.status(RateLimitDescriptor { is_negative_hits: true, ..of_hits(key, hits) }).await
        );
    }

    async fn try_lend(&self, key: &str, hits: u32) -> Option<Receipt> {
        self.sides.lend(AT, &format!("{key}=a"), hits, Charge::Admitted).await.unwrap()
    }

    async fn lend(&self, key: &str, hits: u32) -> Receipt {
        self.try_lend(key, hits).await.unwrap()
    }

    async fn take_back(&self, key: &str, receipt: Receipt) {
        self.sides.take_back(AT, &format!("{key}=a"), receipt).await;
    }

    /// Returns the hits used, and the hits left.
    async fn usage(&self, key: &str) -> (u64, u64) {
        let touched =
            self.sides.amend(AT, &format!("{key}=a"), Amendment::Look).await.unwrap().unwrap();
        let windows = touched.after.windows;
        // All windows here have the same amount.
        (windows.iter().map(|window| window.used).min().unwrap(), windows[0].remaining)
    }

    async fn used(&self, key: &str) -> u64 {
        self.usage(key).await.0
    }

    async fn left(&self, key: &str) -> u64 {
        self.usage(key).await.1
    }

    async fn used_by(&self, key: &str, amounts: &[u32]) -> Vec<u64> {
        let mut used = Vec::new();
        for amount in amounts {
            self.install(*amount, "always");
            used.push(self.used(key).await);
        }
        used
    }

    async fn admits(&self, key: &str, hits: u32, when: &str) {
        assert!(
            self.hit(key, hits).await,
            "{key}: {hits} hits {when}; {} are left",
            self.left(key).await
        );
    }

    /// Asserts that this many hits are admitted, and no more.
    async fn admits_just(&self, key: &str, hits: u32, when: &str) {
        if hits > 0 {
            self.admits(key, hits, when).await;
        }
        assert!(
            !self.hit(key, 1).await,
            "{key}: more than {hits} hits {when}; {} are left",
            self.left(key).await + 1
        );
    }
}

/// Returns `true` if the limit has no counter to which hits could be returned.
fn is_ban(key: &str, amount: u32) -> bool {
    amount == 0 && key != "bucket_of_another_size"
}

fn of_hits(key: &str, hits: u32) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits.into()), ..descriptor(&[(key, "a")]) }
}
