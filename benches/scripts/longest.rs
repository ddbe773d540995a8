//! The longest scripts: each algorithm at the largest state that a policy allows, and the requests
//! that take the longest there. Prints the time of scripts by `INFO commandstats`, the median and
//! the longest of some runs, each at the same state of the counter.

use std::time::Duration;

use tollgate::algorithm::hold::{HoldAction, HoldRequest};
use tollgate::algorithm::judge::Hits;
use tollgate::algorithm::time::Micros;
use tollgate::descriptor::{Descriptor, Entry, Request};

use super::Bench;

const RUNS: usize = 15;
/// Time to live of holds that have ended when the scripts are measured, and the time until then.
const ENDS_AFTER: Micros = Micros::from_secs(1);
const ENDED_AFTER: Duration = Duration::from_millis(1_500);
/// Number of an ID without a hold.
const NEW: usize = 9_999_999;
/// Requests that fill a counter, at once.
const AT_ONCE: usize = 250;

/// A counter at its largest: its limit, the hits or holds that fill it, and the requests.
struct LargestState {
    name: &'static str,
    limit: &'static str,
    filled: Filling,
    requests: &'static [(&'static str, Operation)],
}

#[derive(Clone, Copy)]
enum Filling {
    /// Charges of one hit.
    Charges(usize),
    /// Reserves of one hit with different IDs.
    Holds(usize),
    /// The same, of which every other one has ended.
    HalfEnded(usize),
}

#[derive(Clone, Copy)]
enum Operation {
    Hits(Hits),
    /// An operation on a new ID.
    New(HoldAction, u32),
    /// An operation on the ID in the middle.
    Middle(HoldAction),
}

const SLOT_REQUESTS: &[(&str, Operation)] = &[
    ("peek", Operation::Hits(Hits::Peek(0))),
    ("reserve", Operation::New(HoldAction::Reserve, 1)),
    ("reserve, denied", Operation::New(HoldAction::Reserve, 9_999)),
    ("Reserve", Operation::New(HoldAction::ReserveOnce, 1)),
    ("settle", Operation::Middle(HoldAction::Settle)),
    ("Cancel", Operation::Middle(HoldAction::Cancel)),
    ("Extend", Operation::Middle(HoldAction::Extend)),
];

const RATE_REQUESTS: &[(&str, Operation)] = &[
    ("charge", Operation::Hits(Hits::Charge(1))),
    ("refund", Operation::Hits(Hits::Refund(500))),
    ("reserve", Operation::New(HoldAction::Reserve, 1)),
    ("commit", Operation::Middle(HoldAction::Commit(0))),
    ("settle", Operation::Middle(HoldAction::Settle)),
    ("Cancel", Operation::Middle(HoldAction::Cancel)),
    ("Extend", Operation::Middle(HoldAction::Extend)),
];

const PLAIN_REQUESTS: &[(&str, Operation)] =
    &[("charge", Operation::Hits(Hits::Charge(1))), ("refund", Operation::Hits(Hits::Refund(500)))];

const STATES: [LargestState; 11] = [
    LargestState {
        name: "10,000 slots",
        limit: "algorithm: concurrency, in_flight: 10000, hold: { ttl: 1h }",
        filled: Filling::Holds(9_990),
        requests: SLOT_REQUESTS,
    },
    LargestState {
        name: "10,000 slots, half ended",
        limit: "algorithm: concurrency, in_flight: 10000, hold: { ttl: 1h }",
        filled: Filling::HalfEnded(9_990),
        requests: SLOT_REQUESTS,
    },
    LargestState {
        name: "2,000 slots",
        limit: "algorithm: concurrency, in_flight: 2000, hold: { ttl: 1h }",
        filled: Filling::Holds(1_990),
        requests: SLOT_REQUESTS,
    },
    LargestState {
        name: "2,000 slots, half ended",
        limit: "algorithm: concurrency, in_flight: 2000, hold: { ttl: 1h }",
        filled: Filling::HalfEnded(1_990),
        requests: SLOT_REQUESTS,
    },
    LargestState {
        name: "sliding_log of 10,000",
        limit: "algorithm: sliding_log, requests_per_unit: 10000, unit: day",
        filled: Filling::Charges(9_990),
        requests: PLAIN_REQUESTS,
    },
    LargestState {
        name: "sliding_log of 10,000, holds",
        limit: "algorithm: sliding_log, requests_per_unit: 10000, unit: day, hold: { ttl: 1h }",
        filled: Filling::Holds(9_990),
        requests: RATE_REQUESTS,
    },
    LargestState {
        name: "fixed_window, 100,000 holds",
        limit: "requests_per_unit: 1000000, unit: day, hold: { ttl: 1h }",
        filled: Filling::Holds(100_000),
        requests: RATE_REQUESTS,
    },
    LargestState {
        name: "sliding_window, 100,000 holds",
        limit: "algorithm: sliding_window, requests_per_unit: 1000000, unit: day, hold: { ttl: 1h }",
        filled: Filling::Holds(100_000),
        requests: RATE_REQUESTS,
    },
    LargestState {
        name: "gcra, 100,000 holds",
        limit: "algorithm: gcra, requests_per_unit: 1000000, unit: day, hold: { ttl: 1h }",
        filled: Filling::Holds(100_000),
        requests: RATE_REQUESTS,
    },
    LargestState {
        name: "fixed_window, 8 windows",
        limit: "windows: [{ unit: 10s, requests_per_unit: 9000000 }, { unit: 20s, requests_per_unit: 9000000 }, { unit: 30s, requests_per_unit: 9000000 }, { unit: 1m, requests_per_unit: 9000000 }, { unit: 2m, requests_per_unit: 9000000 }, { unit: 3m, requests_per_unit: 9000000 }, { unit: 4m, requests_per_unit: 9000000 }, { unit: 5m, requests_per_unit: 9000000 }]",
        filled: Filling::Charges(1_000),
        requests: PLAIN_REQUESTS,
    },
    LargestState {
        name: "sliding_window, 8 windows",
        limit: "algorithm: sliding_window, windows: [{ unit: 1s, requests_per_unit: 9000000 }, { unit: 2s, requests_per_unit: 9000000 }, { unit: 3s, requests_per_unit: 9000000 }, { unit: 4s, requests_per_unit: 9000000 }, { unit: 5s, requests_per_unit: 9000000 }, { unit: 6s, requests_per_unit: 9000000 }, { unit: 7s, requests_per_unit: 9000000 }, { unit: 8s, requests_per_unit: 9000000 }]",
        filled: Filling::Charges(100_000),
        requests: PLAIN_REQUESTS,
    },
];

/// Measures the states that the arguments name.
pub(super) async fn measure_longest(is_wanted: impl Fn(&str) -> bool) {
    println!("\n{:<36}{:<20}{:>12}{:>12}", "ms a script", "request", "median", "longest");
    for state in STATES.iter().filter(|state| is_wanted(state.name)) {
        let bench = Bench::of(state.limit).await;
        bench.fill(state.filled).await;
        let kept = bench.dump().await;
        for (name, operation) in state.requests {
            let number = match operation {
                Operation::Hits(_) | Operation::New(..) => NEW,
                Operation::Middle(_) => state.filled.middle(),
            };
            let mut times = Vec::new();
            for run in 0..=RUNS {
                bench.restore(&kept).await;
                let (_, before) = super::scripts(&bench.redis).await;
                bench.send(std::iter::once((*operation, number, None))).await;
                let (_, after) = super::scripts(&bench.redis).await;
                // The first one also compiles the script.
                if run > 0 {
                    times.push((after - before) / 1_000.0);
                }
            }
            times.sort_by(f64::total_cmp);
            let [median, longest] = [times[RUNS / 2], times[RUNS - 1]];
            println!("{:<36}{name:<20}{median:>12.2}{longest:>12.2}", state.name);
        }
    }
}

impl Filling {
    fn count(self) -> usize {
        match self {
            Self::Charges(count) | Self::Holds(count) | Self::HalfEnded(count) => count,
        }
    }

    /// Returns the number of a hold in the middle that is open.
    fn middle(self) -> usize {
        (self.count() / 2) | 1
    }
}

fn id(number: usize) -> Vec<u8> {
    format!("{number:036}").into_bytes()
}

impl Bench {
    async fn fill(&self, filled: Filling) {
        let one = |number: usize| match filled {
            Filling::Charges(_) => (Operation::Hits(Hits::Charge(1)), number, None),
            Filling::Holds(_) => (Operation::New(HoldAction::Reserve, 1), number, None),
            Filling::HalfEnded(_) => {
                let ttl = number.is_multiple_of(2).then_some(ENDS_AFTER);
                (Operation::New(HoldAction::Reserve, 1), number, ttl)
            }
        };
        let numbers: Vec<usize> = (0..filled.count()).collect();
        for numbers in numbers.chunks(AT_ONCE) {
            self.send(numbers.iter().map(|number| one(*number))).await;
        }
        if matches!(filled, Filling::HalfEnded(_)) {
            tokio::time::sleep(ENDED_AFTER).await;
        }
    }

    /// Sends a request of these operations, each with the number of its ID.
    async fn send(&self, operations: impl Iterator<Item = (Operation, usize, Option<Micros>)>) {
        let all: Vec<(Operation, Vec<u8>, Option<Micros>)> =
            operations.map(|(operation, number, ttl)| (operation, id(number), ttl)).collect();
        let descriptors = all.iter().map(|(operation, id, ttl)| {
            let (hits, hold) = match *operation {
                Operation::Hits(hits) => (hits, None),
                Operation::New(action, hits) => (Hits::Charge(hits), Some(action)),
                Operation::Middle(action) => (Hits::Refund(0), Some(action)),
            };
            let user = Entry { key: b"user", value: b"a" };
            let hold = hold.map(|action| Box::new(HoldRequest { id, action, ttl: *ttl }));
            Descriptor { entries: [user].into_iter().collect(), hits, hold, limit: None }
        });
        let request = Request { domain: "bench", descriptors: descriptors.collect() };
        let snapshot = self.limiter.snapshot();
        let deadline = std::time::Instant::now() + tollgate_testkit::TEST_TIMEOUT;
        self.limiter.decide(&snapshot, &request, deadline).await.expect("Redis decides");
    }

    /// Returns all keys with their values.
    async fn dump(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        for key in self.redis.query::<Vec<Vec<u8>>>(&["KEYS", "*"]).await.unwrap() {
            let value = self.redis.query_bytes(&[b"DUMP", &key]).await.unwrap();
            all.push((key, value));
        }
        all
    }

    async fn restore(&self, kept: &[(Vec<u8>, Vec<u8>)]) {
        self.redis.command(&["FLUSHDB"]).await;
        for (key, value) in kept {
            self.redis.query_bytes::<()>(&[b"RESTORE", key, b"0", value]).await.unwrap();
        }
    }
}
