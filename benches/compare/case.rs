//! What is compared, and what is wanted of it.

use std::fmt::Write as _;

use super::load::InFlight;

/// One comparison of two servers by the same requests.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) subject: Server,
    pub(crate) baseline: Server,
    /// Descriptors of each request; `%n` is a number.
    pub(crate) asks: &'static [&'static str],
    /// How many such numbers there are.
    pub(crate) keys: usize,
    pub(crate) in_flight: InFlight,
    pub(crate) targets: &'static [(Figure, f64)],
}

/// A server that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Tollgate(Place, Policy),
    /// The same with nothing taken down of whom it denies.
    Blind(Place, Policy),
    /// `examples/ceiling.rs`: the same proto by tonic over hyper, with a constant answer.
    Ceiling,
    /// The same by tonic's own loop.
    Bare,
    /// envoyproxy/ratelimit, whose binary somebody has.
    Peer,
}

/// Where counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    Redis,
    /// Three masters.
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// A few rules.
    Usual,
    /// So many exact siblings.
    Siblings(usize),
}

/// What is told of a case; a target is of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Answers a second, as a part of the baseline's.
    Throughput,
    /// CPU an answer, of the baseline's.
    Cpu,
    /// Half of the answers take no longer; of the baseline's, and a bare call of the same script more where there is Redis.
    Median,
    /// 99 of 100 take no longer, in ms, at half of the throughput in a closed loop.
    P99AtHalf,
    /// Of all Redis servers, in us a decision.
    RedisCpu,
    /// Commands of scripts an answer.
    RedisCommands,
    SystemCalls,
    /// How often a thread waited, an answer.
    Waits,
    /// Memory beyond that of the baseline, in MB.
    Memory,
    /// Series of metrics.
    Series,
}

impl Figure {
    /// Whether a target is the least; else it is the most.
    pub(crate) fn is_better_above(self) -> bool {
        self == Self::Throughput
    }
}

use Figure::{Cpu, Median, P99AtHalf, RedisCommands, RedisCpu, SystemCalls, Throughput};
use Place::{Cluster, Memory, Redis};
use Policy::{Siblings, Usual};

const ONE: &[&str] = &["user=u%n"];
const THREE: &[&str] = &["a=1", "b=1", "n1=x,n2=y%n"];
const KEYS: usize = 100_000;
/// 64 in flight.
const USUAL: InFlight = InFlight { connections: 4, streams: 16 };
const ALONE: InFlight = InFlight { connections: 1, streams: 1 };
const MANY: InFlight = InFlight { connections: 16, streams: 16 };

const fn case(name: &'static str, place: Place, targets: &'static [(Figure, f64)]) -> Case {
    let (subject, baseline) = (Server::Tollgate(place, Usual), Server::Ceiling);
    Case { name, subject, baseline, asks: ONE, keys: KEYS, in_flight: USUAL, targets }
}

/// All comparisons.
pub(crate) const CASES: &[Case] = &[
    Case { subject: Server::Ceiling, baseline: Server::Bare, ..case("ceiling", Memory, &[(Throughput, 0.9)]) },
    case("memory", Memory, &[(Throughput, 1.6), (Cpu, 0.45), (P99AtHalf, 2.0), (SystemCalls, 0.2)]),
    Case { keys: 1, ..case("memory-1-key", Memory, &[(Throughput, 1.6), (Cpu, 0.45)]) },
    Case { asks: THREE, ..case("memory-3", Memory, &[(Throughput, 1.3), (Cpu, 0.65)]) },
    Case { in_flight: ALONE, ..case("memory-alone", Memory, &[(Median, 0.9)]) },
    Case { in_flight: MANY, ..case("memory-256", Memory, &[]) },
    Case {
        subject: Server::Tollgate(Memory, Siblings(10_000)),
        baseline: Server::Tollgate(Memory, Siblings(10)),
        asks: &["route=r%n"],
        keys: 10,
        ..case("memory-10000-rules", Memory, &[(Cpu, 1.1)])
    },
    // Nearly all are denied, each key a few times: what the journal has most to do with.
    Case {
        subject: Server::Tollgate(Memory, Usual),
        baseline: Server::Blind(Memory, Usual),
        asks: &["over=o%n"],
        keys: 1_000_000,
        ..case("observed", Memory, &[(Throughput, 0.95), (Figure::Memory, 50.0), (Figure::Series, 10_000.0)])
    },
    Case {
        asks: &["over=o%n"],
        keys: 100,
        ..case("denied", Redis, &[(Throughput, 1.6), (Cpu, 0.45), (RedisCommands, 0.02)])
    },
    Case {
        asks: &["leased=hot"],
        keys: 1,
        ..case("leased", Redis, &[(Throughput, 1.6), (Cpu, 0.45), (RedisCommands, 0.02)])
    },
    case(
        "redis",
        Redis,
        &[(Throughput, 0.45), (Cpu, 1.0), (RedisCpu, 4.5), (P99AtHalf, 4.0), (RedisCommands, 1.01), (SystemCalls, 0.4)],
    ),
    Case { keys: 1, ..case("redis-1-key", Redis, &[(Throughput, 0.45), (Cpu, 2.2), (RedisCpu, 4.5)]) },
    Case { asks: THREE, ..case("redis-3", Redis, &[(RedisCommands, 1.01)]) },
    Case { in_flight: ALONE, ..case("redis-alone", Redis, &[(Median, 1.25)]) },
    Case { in_flight: MANY, ..case("redis-256", Redis, &[(RedisCpu, 4.5)]) },
    case("cluster", Cluster, &[(Throughput, 0.35), (Cpu, 2.8)]),
    Case { keys: 1, ..case("cluster-1-key", Cluster, &[]) },
    Case { asks: THREE, ..case("cluster-3", Cluster, &[]) },
    Case { in_flight: MANY, ..case("cluster-256", Cluster, &[]) },
];

/// The name of the case that is no comparison: what a counter in memory costs.
pub(crate) const COUNTERS: &str = "counters";

impl Case {
    /// Whether Redis is asked in it.
    pub(crate) fn place(&self) -> Place {
        match self.subject {
            Server::Tollgate(place, _) | Server::Blind(place, _) => place,
            Server::Ceiling | Server::Bare | Server::Peer => Memory,
        }
    }

    /// The same beside envoyproxy/ratelimit on the same Redis.
    pub(crate) const fn beside_peer(self) -> Self {
        Self { baseline: Server::Peer, targets: &[(Throughput, 4.0)], ..self }
    }

    pub(crate) fn target(&self, figure: Figure) -> Option<f64> {
        self.targets.iter().find(|(of, _)| *of == figure).map(|(_, target)| *target)
    }
}

impl Policy {
    /// As YAML, for the domain `bench`, with what only we understand or without. Limits that nobody reaches, but for `over`.
    pub(crate) fn text(self, is_ours: bool) -> String {
        const PLENTY: &str = "unit: hour, requests_per_unit: 1000000000";
        let mut text = "domain: bench\ndescriptors:\n".to_owned();
        match self {
            Self::Usual => {
                for key in ["user", "a", "b"] {
                    let _ = writeln!(text, "  - {{ key: {key}, rate_limit: {{ {PLENTY} }} }}");
                }
                let _ = writeln!(text, "  - key: n1\n    descriptors: [{{ key: n2, rate_limit: {{ {PLENTY} }} }}]");
                let _ = writeln!(text, "  - {{ key: over, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}");
                let lease = if is_ours { ", lease: { size: 1%, ttl: 100ms }" } else { "" };
                let _ = writeln!(text, "  - {{ key: leased, rate_limit: {{ {PLENTY}{lease} }} }}");
            }
            Self::Siblings(count) => {
                for number in 0..count {
                    let value = format!("r{number:08}");
                    let _ = writeln!(text, "  - {{ key: route, value: {value}, rate_limit: {{ {PLENTY} }} }}");
                }
            }
        }
        text
    }
}
