//! A given number of in-memory decisions, from request bytes to response bytes, and nothing else:
//! for counting the instructions of a decision on a machine too noisy for timing.
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     target/release/examples/instructions one 10000
//! ```
//!
//! The difference of two runs excludes the start-up. `tests/load/speed.rs` runs this and has the
//! bounds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what panics is not counted"
)]

use std::hint::black_box;

use tollgate::grpc::request;
use tollgate::grpc::response::{self, AnswerStyle};
use tollgate_testkit::inputs::{BOUNDS, Decider, message, patterns};

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WIDE: &str = "domain: bench\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, requests_per_unit: 9, record: [absent] }\n";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [subject, count] = arguments.as_slice() else {
        panic!("expected a subject and how often, found {arguments:?}")
    };
    let usual = |descriptors: usize| {
        (0..descriptors).map(|number| format!("user=0123456789abcdef-{number}")).collect()
    };
    let (decider, texts): (Decider, Vec<String>) = match subject.as_str() {
        "one" => (Decider::of("fixed_window"), usual(1)),
        "three" => (Decider::of("fixed_window"), usual(3)),
        "sixteen" => (Decider::of("fixed_window"), usual(16)),
        "long" => (Decider::of("fixed_window"), vec![format!("user={}", "x".repeat(4_096))]),
        "sliding" => (Decider::of("sliding_window"), usual(1)),
        "gcra" => (Decider::of("gcra"), usual(1)),
        // Only the last of 1,000 patterns matches, at the end of a value of 60 KB that begins as
        // all patterns expect.
        "patterns" => (
            Decider::under(&patterns(1_000)),
            vec![format!("user={}word0999", "wor ".repeat(15_000))],
        ),
        // 960 descriptors with a counter each, and a rule that records an entry that none of the
        // request's 65,000 entries has.
        "wide" => {
            let own = (0..960).map(|number| format!("user={number}"));
            let more = ["other=0"; 1_000].join(",");
            (Decider::under(WIDE), own.chain(std::iter::repeat_n(more, 64)).collect())
        }
        other => panic!("expected one, three, sliding, gcra, patterns or wide, found {other}"),
    };
    let message = message(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let style = AnswerStyle::default();
    let mut answer = Vec::new();
    for _ in 0..count.parse().expect("a number of decisions") {
        answer.clear();
        let request = request::read(black_box(&message), &BOUNDS).unwrap();
        decider.decide(&request, |decision| {
            response::write(decision, &style, response::Receiver::Proxy, &mut answer)
        });
        black_box(&answer);
    }
}
