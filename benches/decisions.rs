//! Benchmarks of the parts of a decision: reading a request, matching its rules, deciding in
//! memory, writing the response.
//!
//! `cargo bench --bench decisions` runs all, `-- read` those whose names contain it. The network
//! and the runtimes are measured in `compare`, Redis in `scripts`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a benchmark that panics is none"
)]

use std::hint::black_box;

use divan::Bencher;
use rand::Rng as _;
use tollgate::descriptor::KeyBuffer;
use tollgate::grpc::request;
use tollgate::grpc::response::{self, AnswerStyle};
use tollgate::policy::PolicySet;
use tollgate_testkit::inputs::{
    BOUNDS, Decider, descriptor, message, patterns, policies, rule, siblings,
};

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// Finds the rule for one descriptor, `key=value,…`.
fn find(bencher: Bencher<'_, '_>, policies: &PolicySet, text: &str) {
    let policy = policies.find("bench").unwrap();
    let descriptor = descriptor(text);
    bencher.bench_local(|| {
        let mut key = KeyBuffer::default();
        black_box(policy.find(black_box(&descriptor.entries), &mut key)).is_some()
    });
}

/// Matches one of `count` exact siblings.
#[divan::bench(args = [10, 10_000])]
fn match_siblings(bencher: Bencher<'_, '_>, count: usize) {
    find(bencher, &policies(&siblings(count)), "route=r00000007");
}

/// Matches the rule for the key alone, if no sibling matches exactly.
#[divan::bench(args = [10, 10_000])]
fn match_key_alone(bencher: Bencher<'_, '_>, count: usize) {
    let text = siblings(count) + &rule("route", "");
    find(bencher, &policies(&text), "route=elsewhere");
}

/// Matches the last of `count` patterns, in a value of 200 bytes.
#[divan::bench(args = [8, 1_000])]
fn match_patterns(bencher: Bencher<'_, '_>, count: usize) {
    let value = format!("user={}word{:04}", "wor ".repeat(48), count.saturating_sub(1));
    find(bencher, &policies(&patterns(count)), &value);
}

/// Matches a descriptor through `levels` levels of rules.
#[divan::bench(args = [1, 4, 16])]
fn match_deep(bencher: Bencher<'_, '_>, levels: usize) {
    let limit = "rate_limit: { unit: hour, requests_per_unit: 10 }".to_owned();
    let nest = |inner: String, level: usize| {
        format!("descriptors: [{{ key: k{level}, value: v, {inner} }}]")
    };
    let text = format!("domain: bench\n{}\n", (0..levels).rev().fold(limit, nest));
    let entries: Vec<String> = (0..levels).map(|level| format!("k{level}=v")).collect();
    find(bencher, &policies(&text), &entries.join(","));
}

/// Matches the last of `count` rules with `*`.
#[divan::bench(args = [1, 10, 100])]
fn match_wildcards(bencher: Bencher<'_, '_>, count: usize) {
    let rules: String =
        (0..count).map(|number| rule("path", &format!("/{number}/*/edit"))).collect();
    let last = format!("path=/{}/some/thing/edit", count - 1);
    find(bencher, &policies(&format!("domain: bench\ndescriptors:\n{rules}")), &last);
}

#[divan::bench(args = [1, 3])]
fn read(bencher: Bencher<'_, '_>, descriptors: usize) {
    let message = message(&vec!["key=user,value=0123456789"; descriptors]);
    bencher.bench_local(|| request::read(black_box(&message), &BOUNDS).is_ok());
}

/// Decides requests for 10,000 counters in turn.
#[divan::bench(args = ["fixed_window", "sliding_window", "sliding_log", "gcra", "token_bucket"])]
fn decide(bencher: Bencher<'_, '_>, algorithm: &str) {
    let decider = Decider::of(algorithm);
    let messages: Vec<Vec<u8>> =
        (0..10_000).map(|user| message(&[&format!("user={user:08}")])).collect();
    let requests: Vec<_> =
        messages.iter().map(|message| request::read(message, &BOUNDS).unwrap()).collect();
    let mut turns = requests.iter().cycle();
    bencher
        .bench_local(|| decider.decide(turns.next().unwrap(), |decision| decision.is_over_limit()));
}

/// Reads and decides requests of three descriptors, each with a key out of a third of the counters,
/// at random.
#[divan::bench(args = [3_000, 300_000, 3_000_000])]
fn decide_three(bencher: Bencher<'_, '_>, counters: usize) {
    const DIGITS: &str = "00000000";
    let rules: String = ["a", "b", "c"].map(|key| rule(key, "")).concat();
    let decider = Decider::under(&format!("domain: bench\ndescriptors:\n{rules}"));
    let mut message = message(
        &["a", "b", "c"].map(|key| format!("{key}={DIGITS}")).each_ref().map(String::as_str),
    );
    let places: Vec<usize> = (0..message.len())
        .filter(|place| {
            message.get(*place..).is_some_and(|rest| rest.starts_with(DIGITS.as_bytes()))
        })
        .collect();
    let keys = counters / 3;
    let mut decide = |numbers: [usize; 3]| {
        for (place, number) in places.iter().zip(numbers) {
            if let Some(digits) = message.get_mut(*place..place + DIGITS.len()) {
                digits.copy_from_slice(format!("{number:08}").as_bytes());
            }
        }
        let request = request::read(&message, &BOUNDS).unwrap();
        decider.decide(&request, |decision| decision.is_over_limit())
    };
    (0..keys).for_each(|number| assert!(!decide([number; 3])));
    let mut random = rand::rng();
    bencher.bench_local(|| decide([0; 3].map(|_| random.random_range(..keys))));
}

#[divan::bench(args = [1, 3])]
fn write(bencher: Bencher<'_, '_>, descriptors: usize) {
    let decider = Decider::of("fixed_window");
    let message = message(&vec!["user=0123456789"; descriptors]);
    let request = request::read(&message, &BOUNDS).unwrap();
    let style = AnswerStyle::default();
    let mut answer = Vec::with_capacity(128 * descriptors);
    decider.decide(&request, |decision| {
        bencher.bench_local(|| {
            answer.clear();
            response::write(black_box(decision), &style, response::Receiver::Proxy, &mut answer);
            answer.len()
        });
    });
}
