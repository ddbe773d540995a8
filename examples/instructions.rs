//! So many decisions in memory, from the bytes of a request to those of its answer, and nothing else: for counting the
//! instructions that one takes, on a machine where time tells nothing.
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null target/smoke/examples/instructions one 10000`; the difference of
//! two runs is free of the start. `tests/speed.rs` does that and has the bounds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what panics is not counted")]

#[allow(dead_code, reason = "the benchmarks' inputs, of which this needs some")]
#[path = "../benches/decisions/inputs.rs"]
mod inputs;

use std::hint::black_box;

use tollgate::grpc::request;
use tollgate::grpc::response::{self, AnswerStyle};

use self::inputs::{BOUNDS, Decider, message, patterns};

// As the binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [subject, count] = arguments.as_slice() else {
        panic!("expected a subject and how often, found {arguments:?}")
    };
    let usual = |descriptors: usize| (0..descriptors).map(|number| format!("user=0123456789abcdef-{number}")).collect();
    let (decider, texts): (Decider, Vec<String>) = match subject.as_str() {
        "one" => (Decider::of("fixed_window"), usual(1)),
        "three" => (Decider::of("fixed_window"), usual(3)),
        "sliding" => (Decider::of("sliding_window"), usual(1)),
        "gcra" => (Decider::of("gcra"), usual(1)),
        // 1,000 patterns, the last of which matches at the end of a value of 60 KB that begins as they all do.
        "patterns" => (Decider::under(&patterns(1_000)), vec![format!("user={}word0999", "wor ".repeat(15_000))]),
        other => panic!("expected one, three, sliding, gcra or patterns, found {other}"),
    };
    let message = message(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let (style, mut answer) = (AnswerStyle::default(), Vec::new());
    for _ in 0..count.parse().expect("a number of decisions") {
        answer.clear();
        let request = request::read(black_box(&message), &BOUNDS).unwrap();
        decider.decide(&request, |decision| response::write(decision, &style, &mut answer));
        black_box(&answer);
    }
}
