//! Attacks on the release binary, in the memory of a pod.
//!
//! Each test below is an attack: its flags, and a function that generates traffic. `harness` makes
//! the same checks for all: the process survives in 384 MiB; a well-behaved client is answered
//! within 50 ms (p99), `/livez` within 100 ms, a new client within 800 ms, or on a busy machine
//! three times as late as by a service without an attack; the log stays short; and within seconds
//! after the attack, connections, memory and latencies are as before.
//!
//! Attacks without settings of their own share one service, one after the other. Each lasts a
//! second; `TOLLGATE_ABUSE_SECONDS=30 tests/run --all attacks::` lasts longer. The tests
//! of `tests/abuse.rs` check one bound each, with a debug build.

mod calls;
mod client;
mod connections;
mod frames;
mod harness;
mod http1;
mod observer;
mod policies;
mod probes;

use harness::{Attack, withstand};

/// The memory of a pod as a limit of address space.
const ADDRESSES: &str = "ulimit -n 20000 && ulimit -v 393216";

macro_rules! attacks {
    ($($name:ident: $run:expr $(, flags: $flags:expr)? $(, limits: $limits:expr)?;)*) => {
        $(
            #[test]
            fn $name() {
                #[allow(unused_mut, unused_assignments, reason = "most attacks set none")]
                let mut attack = Attack { name: stringify!($name), flags: &[], limits: "", run: $run };
                $(attack.flags = &$flags;)?
                $(attack.limits = $limits;)?
                withstand(&attack);
            }
        )*
    };
}

attacks! {
    pings: frames::pings;
    settings: frames::settings;
    priorities: frames::priorities;
    window_updates: frames::window_updates;
    unknown_frames: frames::unknown_frames;
    empty_data: frames::empty_data;
    empty_continuations: frames::empty_continuations;
    continuations: frames::continuations;
    hpack_bombs: frames::hpack_bombs;
    rapid_resets: frames::rapid_resets;
    resets_of_watches: frames::resets_of_watches;
    resets_of_unknown_methods: frames::resets_of_unknown_methods;
    long_headers: frames::long_headers;
    many_headers: frames::many_headers;

    calls_that_are_only_begun: calls::begun;
    unfinished_messages: calls::unfinished;
    answers_without_windows: calls::without_windows;
    large_answers_without_windows: calls::large_without_windows, flags: ["--dynamic-metadata"];
    reflection_without_windows: calls::reflection_without_windows;
    unread_reflection: calls::unread_reflection;
    watches: calls::watches;
    large_health_checks: calls::large_health_checks;
    empty_descriptors: calls::empty_descriptors;
    slow_patterns: calls::patterns;
    gzip_bombs: calls::gzip_bombs;
    new_counters: calls::new_counters, flags: ["--memory-max", "16MiB"];

    idle_connections: connections::idle;
    silent_connections: connections::silent;
    connections_closed_at_once: connections::closed_at_once;
    more_connections_than_places: connections::more_than_places, flags: ["--max-connections", "1000"];
    more_connections_than_file_descriptors: connections::more_than_places, limits: "ulimit -n 512";

    silent_http_connections: http1::silent;
    slow_http_heads: http1::slow_heads;
    slow_http_bodies: http1::slow_bodies;
    unread_http_answers: http1::unread;
    http_connections_closed_at_once: http1::closed_at_once;
    repeated_metrics: http1::metrics;
    large_json: http1::large_json;
    oversized_json: http1::oversized_json;
    long_http_heads: http1::long_heads;
    refused_writes: http1::refused_writes;

    policies_of_aliases: policies::aliases, flags: ["--policy-memory-max", "32MiB"];
    policies_of_many_rules: policies::many_rules, flags: ["--policy-memory-max", "32MiB"];
    policies_of_too_many_rules: policies::too_many_rules, flags: ["--policy-memory-max", "32MiB"];

    idle_connections_in_little_address_space: connections::idle, limits: ADDRESSES;
    unfinished_messages_in_little_address_space: calls::unfinished, limits: ADDRESSES;
    new_counters_in_little_address_space: calls::new_counters, limits: ADDRESSES;
    large_json_in_little_address_space: http1::large_json, limits: ADDRESSES;
}

/// Returns a policy for domain `test`: a limit that no test reaches, and 100 patterns side by side.
fn policy() -> String {
    let limit = "rate_limit: { requests_per_unit: 1000000000, unit: day }";
    let pattern =
        |number: usize| format!("  - key: path\n    value: \"*word{number:02}*\"\n    {limit}\n");
    let patterns: String = (0..100).map(pattern).collect();
    format!("domain: test\ndescriptors:\n  - key: user\n    {limit}\n{patterns}")
}
