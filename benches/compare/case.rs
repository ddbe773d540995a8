//! Comparison cases and their targets.

use std::fmt::Write as _;

use super::load::InFlight;

/// A comparison of two servers under the same load.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) subject: Server,
    pub(crate) baseline: Server,
    /// Descriptors of each request; `%n`, `%p` and `%q` are numbers below `keys`.
    descriptors: &'static [&'static str],
    /// Number of times that the descriptors are sent, each time with another number for `%i`.
    repeats: usize,
    /// Length of the text that replaces `%v`.
    value_bytes: usize,
    /// Descriptors of the requests that end the holds of `descriptors`; empty without holds.
    pub(crate) ends: &'static [&'static str],
    /// Number of distinct values of each number.
    pub(crate) keys: usize,
    pub(crate) in_flight: InFlight,
    pub(crate) targets: &'static [(Figure, f64)],
}

/// A server under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Tollgate(Place, Policy),
    /// Tollgate with the denial journal off.
    Blind(Place, Policy),
    /// `examples/ceiling.rs`: the same proto on tonic over hyper, with a constant response.
    Ceiling,
    /// The ceiling on tonic's own accept loop.
    Bare,
    /// envoyproxy/ratelimit; its binary is given by `--peer`.
    Peer,
}

/// The location of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    Redis,
    /// A cluster of three masters.
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// A few rules.
    Usual,
    /// The same rules, whose counters share one slot.
    OneSlot,
    /// The given number of exact siblings.
    Siblings(usize),
}

/// A measured figure of a case, with an optional target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Responses per second, relative to the baseline.
    Throughput,
    /// CPU per response, relative to the baseline.
    Cpu,
    /// Median latency, relative to the baseline's median plus, on Redis, a bare call of the same
    /// script.
    Median,
    /// 99th percentile of the latency in ms, at half of the throughput, in an open loop.
    P99AtHalf,
    /// CPU of all Redis servers, in us per decision.
    RedisCpu,
    /// Script calls per response.
    RedisCommands,
    SystemCalls,
    /// Voluntary context switches per response.
    Waits,
    /// Memory in excess of the baseline, in MB.
    Memory,
    /// Number of metric series.
    Series,
}

impl Figure {
    /// Returns `true` if the target is a minimum, `false` if it is a maximum.
    pub(crate) fn is_better_above(self) -> bool {
        self == Self::Throughput
    }
}

use Figure::{Cpu, Median, P99AtHalf, RedisCommands, RedisCpu, SystemCalls, Throughput};
use Place::{Cluster, Memory, Redis};
use Policy::{OneSlot, Siblings, Usual};

const ONE: &[&str] = &["user=u%n"];
const THREE: &[&str] = &["a=1", "b=1", "n1=x,n2=y%n"];
/// Three descriptors, each with a key out of many.
const THREE_KEYS: &[&str] = &["user=u%n", "a=a%p", "n1=x,n2=y%q"];
/// A limit that records a caller.
const RECORD: &[&str] = &["recorded=r%n", "caller=c"];
const HOLD: &[&str] = &["held=h%n,tollgate.reserve=i%n*8"];
const HOLD_ENDS: &[&str] = &["held=h%n,tollgate.commit=i%n*3", "held=h%n,tollgate.settle=i%n"];
const SLOT: &[&str] = &["slots=s%n,tollgate.reserve=i%n"];
const SLOT_ENDS: &[&str] = &["slots=s%n,tollgate.settle=i%n"];
const KEYS: usize = 100_000;
/// 64 calls in flight.
const USUAL: InFlight = InFlight { connections: 4, streams: 16 };
const ALONE: InFlight = InFlight { connections: 1, streams: 1 };
const MANY: InFlight = InFlight { connections: 16, streams: 16 };
const MOST: InFlight = InFlight { connections: 16, streams: 64 };
const ALONE_EACH: InFlight = InFlight { connections: 1_000, streams: 1 };
const ALONE_EACH_OF_MANY: InFlight = InFlight { connections: 10_000, streams: 1 };

const fn case(name: &'static str, place: Place, targets: &'static [(Figure, f64)]) -> Case {
    let subject = Server::Tollgate(place, Usual);
    let baseline = Server::Ceiling;
    Case {
        name,
        subject,
        baseline,
        descriptors: ONE,
        repeats: 1,
        value_bytes: 0,
        ends: &[],
        keys: KEYS,
        in_flight: USUAL,
        targets,
    }
}

/// All comparisons.
pub(crate) const CASES: &[Case] = &[
    Case {
        subject: Server::Ceiling,
        baseline: Server::Bare,
        ..case("ceiling", Memory, &[(Throughput, 0.9)])
    },
    case("memory", Memory, &[(Throughput, 1.6), (Cpu, 0.45), (P99AtHalf, 2.0), (SystemCalls, 0.2)]),
    Case { keys: 1, ..case("memory-1-key", Memory, &[(Throughput, 1.6), (Cpu, 0.45)]) },
    Case { descriptors: THREE, ..case("memory-3", Memory, &[(Throughput, 1.3), (Cpu, 0.65)]) },
    Case {
        descriptors: THREE_KEYS,
        ..case("memory-3-keys", Memory, &[(Throughput, 1.4), (Cpu, 0.6)])
    },
    Case { in_flight: ALONE, ..case("memory-alone", Memory, &[(Median, 0.9)]) },
    Case { in_flight: MANY, ..case("memory-256", Memory, &[]) },
    Case { in_flight: ALONE_EACH, ..case("memory-1000-connections", Memory, &[]) },
    Case { in_flight: ALONE_EACH_OF_MANY, ..case("memory-10000-connections", Memory, &[]) },
    Case { in_flight: MOST, ..case("memory-1024", Memory, &[]) },
    Case { descriptors: RECORD, ..case("record", Memory, &[]) },
    Case {
        subject: Server::Tollgate(Memory, Siblings(10_000)),
        baseline: Server::Tollgate(Memory, Siblings(10)),
        descriptors: &["route=r%n"],
        keys: 10,
        ..case("memory-10000-rules", Memory, &[(Cpu, 1.1)])
    },
    // Nearly every request is denied, and each key only a few times: the journal's worst case.
    Case {
        subject: Server::Tollgate(Memory, Usual),
        baseline: Server::Blind(Memory, Usual),
        descriptors: &["over=o%n"],
        keys: 1_000_000,
        ..case(
            "observed",
            Memory,
            &[(Throughput, 0.95), (Figure::Memory, 50.0), (Figure::Series, 10_000.0)],
        )
    },
    Case {
        descriptors: &["over=o%n"],
        keys: 100,
        ..case("denied", Redis, &[(Throughput, 1.6), (Cpu, 0.45), (RedisCommands, 0.02)])
    },
    Case {
        descriptors: &["leased=hot"],
        keys: 1,
        ..case("leased", Redis, &[(Throughput, 1.6), (Cpu, 0.45), (RedisCommands, 0.02)])
    },
    case(
        "redis",
        Redis,
        &[
            (Throughput, 0.45),
            (Cpu, 1.0),
            (RedisCpu, 4.5),
            (P99AtHalf, 4.0),
            (RedisCommands, 1.01),
            (SystemCalls, 0.4),
        ],
    ),
    Case {
        keys: 1,
        ..case("redis-1-key", Redis, &[(Throughput, 0.45), (Cpu, 2.2), (RedisCpu, 4.5)])
    },
    Case {
        descriptors: &["fraction=f%n"],
        ..case("redis-gcra", Redis, &[(Throughput, 0.33), (RedisCpu, 5.0)])
    },
    Case {
        descriptors: &["sliding=s%n"],
        ..case("redis-sliding", Redis, &[(Throughput, 0.33), (RedisCpu, 6.0)])
    },
    Case {
        descriptors: &["windows=w%n"],
        ..case("redis-windows", Redis, &[(Throughput, 0.33), (RedisCpu, 10.0)])
    },
    Case {
        descriptors: &["log=l%n"],
        ..case("redis-log", Redis, &[(Throughput, 0.33), (RedisCpu, 9.0)])
    },
    Case {
        descriptors: THREE,
        ..case("redis-3", Redis, &[(Throughput, 0.25), (RedisCpu, 11.0), (RedisCommands, 1.01)])
    },
    Case {
        descriptors: THREE_KEYS,
        ..case("redis-3-keys", Redis, &[(Throughput, 0.4), (Cpu, 1.0), (RedisCpu, 11.0)])
    },
    // Half of the requests reserve, the other half end that; as Envoy sends them.
    Case { descriptors: HOLD, ends: HOLD_ENDS, ..case("hold", Memory, &[]) },
    Case { descriptors: HOLD, ends: HOLD_ENDS, ..case("redis-hold", Redis, &[]) },
    Case { descriptors: SLOT, ends: SLOT_ENDS, ..case("slots", Memory, &[]) },
    Case { descriptors: SLOT, ends: SLOT_ENDS, ..case("redis-slots", Redis, &[]) },
    Case { in_flight: ALONE, ..case("redis-alone", Redis, &[(Median, 1.25)]) },
    Case { in_flight: MANY, ..case("redis-256", Redis, &[(RedisCpu, 4.5)]) },
    Case { in_flight: ALONE_EACH, ..case("redis-1000-connections", Redis, &[]) },
    Case { in_flight: MOST, ..case("redis-1024", Redis, &[]) },
    Case { descriptors: RECORD, ..case("redis-record", Redis, &[]) },
    case("cluster", Cluster, &[(Throughput, 0.35), (Cpu, 2.8)]),
    Case { keys: 1, ..case("cluster-1-key", Cluster, &[]) },
    Case { descriptors: THREE, ..case("cluster-3", Cluster, &[(RedisCpu, 36.0)]) },
    Case {
        descriptors: THREE_KEYS,
        ..case("cluster-3-keys", Cluster, &[(Throughput, 0.25), (Cpu, 1.6)])
    },
    Case {
        subject: Server::Tollgate(Cluster, OneSlot),
        descriptors: THREE,
        ..case("cluster-3-one-slot", Cluster, &[(RedisCpu, 13.0)])
    },
    Case { in_flight: MANY, ..case("cluster-256", Cluster, &[]) },
    // The growth of the cost with the number of counters, descriptors and rules, and with the
    // length of values.
    growing("counters-10k", 10_000, 1, 0),
    growing("counters-100k", 100_000, 1, 0),
    growing("counters-1m", 1_000_000, 1, 0),
    growing("counters-10m", 10_000_000, 1, 0),
    growing("descriptors-4", KEYS, 4, 0),
    growing("descriptors-16", KEYS, 16, 0),
    growing("descriptors-64", KEYS, 64, 0),
    growing("value-16", KEYS, 1, 16),
    growing("value-256", KEYS, 1, 256),
    growing("value-4096", KEYS, 1, 4_096),
    with_rules("rules-10", 10),
    with_rules("rules-1000", 1_000),
    with_rules("rules-100000", 100_000),
];

/// A case in memory, with descriptors whose keys are out of `keys`.
const fn growing(name: &'static str, keys: usize, repeats: usize, value_bytes: usize) -> Case {
    let descriptors = &["user=u%i%v%n"];
    Case { descriptors, keys, repeats, value_bytes, ..case(name, Memory, &[]) }
}

/// A case in memory with this number of rules.
const fn with_rules(name: &'static str, rules: usize) -> Case {
    let subject = Server::Tollgate(Memory, Siblings(rules));
    Case { subject, descriptors: &["route=r%n"], keys: 10, ..case(name, Memory, &[]) }
}

/// Rules of other kinds than a fixed window, by key.
const KINDS: [(&str, &str); 7] = [
    ("recorded", "unit: hour, requests_per_unit: 1000000000, record: [caller]"),
    ("fraction", "algorithm: gcra, unit: hour, requests_per_unit: 7777777"),
    ("sliding", "algorithm: sliding_window, unit: hour, requests_per_unit: 1000000000"),
    (
        "windows",
        "algorithm: sliding_window, windows: [{ unit: second, requests_per_unit: 1000000000 }, \
         { unit: minute, requests_per_unit: 1000000000 }, \
         { unit: hour, requests_per_unit: 1000000000 }]",
    ),
    ("log", "algorithm: sliding_log, unit: second, requests_per_unit: 50"),
    ("held", "unit: hour, requests_per_unit: 1000000000, hold: { ttl: 10m }"),
    ("slots", "algorithm: concurrency, in_flight: 100, hold: { ttl: 10m }"),
];

/// Name of the case without a comparison: the memory cost of a counter.
pub(crate) const COUNTERS: &str = "counters";

impl Case {
    /// Returns the descriptors of each request, with the placeholders of numbers.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let value = "x".repeat(self.value_bytes);
        let mut descriptors = Vec::new();
        for number in 0..self.repeats {
            let number = number.to_string();
            let filled = |text: &&str| text.replace("%i", &number).replace("%v", &value);
            descriptors.extend(self.descriptors.iter().map(filled));
        }
        descriptors
    }

    /// Returns the location of the subject's counters.
    pub(crate) fn place(&self) -> Place {
        match self.subject {
            Server::Tollgate(place, _) | Server::Blind(place, _) => place,
            Server::Ceiling | Server::Bare | Server::Peer => Memory,
        }
    }

    /// Returns the case with envoyproxy/ratelimit on the same Redis as its baseline.
    pub(crate) const fn against_peer(self) -> Self {
        Self { baseline: Server::Peer, targets: &[(Throughput, 4.0)], ..self }
    }

    pub(crate) fn target(&self, figure: Figure) -> Option<f64> {
        self.targets.iter().find(|(of, _)| *of == figure).map(|(_, target)| *target)
    }
}

impl Policy {
    /// Returns the policy of the domain `bench` as YAML, with or without Tollgate's extensions. No
    /// request reaches a limit, except that of `over`.
    pub(crate) fn text(self, is_ours: bool) -> String {
        const PLENTY: &str = "unit: hour, requests_per_unit: 1000000000";
        let mut text = "domain: bench\n".to_owned();
        if is_ours && self == Self::OneSlot {
            text.push_str("atomicity: domain\n");
        }
        text.push_str("descriptors:\n");
        match self {
            Self::Usual | Self::OneSlot => {
                for key in ["user", "a", "b"] {
                    let _ = writeln!(text, "  - {{ key: {key}, rate_limit: {{ {PLENTY} }} }}");
                }
                let _ = writeln!(
                    text,
                    "  - key: n1\n    descriptors: [{{ key: n2, rate_limit: {{ {PLENTY} }} }}]"
                );
                let _ = writeln!(
                    text,
                    "  - {{ key: over, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}"
                );
                for (key, limit) in KINDS {
                    let limit = if is_ours { limit } else { PLENTY };
                    let _ = writeln!(text, "  - {{ key: {key}, rate_limit: {{ {limit} }} }}");
                }
                let lease = if is_ours { ", lease: { size: 1%, ttl: 100ms }" } else { "" };
                let _ = writeln!(text, "  - {{ key: leased, rate_limit: {{ {PLENTY}{lease} }} }}");
            }
            Self::Siblings(count) => {
                for number in 0..count {
                    let value = format!("r{number:08}");
                    let _ = writeln!(
                        text,
                        "  - {{ key: route, value: {value}, rate_limit: {{ {PLENTY} }} }}"
                    );
                }
            }
        }
        text
    }
}
