//! Attacks on the release binary, in the memory of a pod.
//!
//! Each test below is an attack: a function that generates traffic, the bound that it meets, and
//! its flags. `harness` makes the same checks for all: the process survives in 384 MiB; calls do
//! not fail; the log stays short; and within seconds after the attack, connections and memory are
//! as before. The bound is seen by what the service counts or, if other clients would wait without
//! it, by ten times the times of those of a service without an attack: the call of a well-behaved
//! client (p90), `/livez`, a new client.
//!
//! Attacks without settings of their own share one service, one after the other. Each lasts a
//! second; `TOLLGATE_ABUSE_SECONDS=30 tests/run --all attacks::` lasts longer. The tests
//! of `tests/abuse.rs` check one bound each, with a debug build.

mod admitted;
mod calls;
mod client;
mod connections;
mod doors;
mod frames;
mod harness;
mod http1;
mod observer;
mod policies;
mod probes;

use harness::{Attack, Meets, withstand};

/// The memory of a pod as a limit of address space.
const ADDRESSES: &str = "ulimit -n 20000 && ulimit -v 393216";

/// Series of the bounds that attacks meet.
const FLOOD: &str = r#"tollgate_grpc_connections_cut_total{kind="flood"}"#;
const GIVEN_UP: &str = r#"tollgate_grpc_connections_cut_total{kind="given_up_calls"}"#;
const EVICTED: &str = r#"tollgate_grpc_connections_cut_total{kind="evicted"}"#;
/// Calls refused because messages would exceed `--client-memory-max`.
const NO_MEMORY: &str = "tollgate_slow_calls_total";
const NO_ROOM: &str = r#"tollgate_store_errors_total{kind="no_room"}"#;
/// Of any kind: idle ones, or others if there are none.
const HTTP_CUT: &str = r#"tollgate_http_connections_cut_total{port="http""#;
const HTTP_PROTOCOL: &str =
    r#"tollgate_http_connections_cut_total{port="http",kind="protocol_error"}"#;
const HTTP_TOO_LARGE: &str =
    r#"tollgate_http_refused_requests_total{port="http",kind="too_large"}"#;
const REFUSED_HOST: &str = r#"tollgate_http_refused_requests_total{port="admin",kind="host"}"#;
const POLICIES_REFUSED: &str = r#"tollgate_policy_loads_total{kind="refused"}"#;

macro_rules! attacks {
    ($($name:ident: $run:path, $meets:ident $(($series:expr))?
       $(, flags: $flags:expr)? $(, limits: $limits:expr)?;)*) => {
        $(
            #[test]
            fn $name() {
                let meets = Meets::$meets $(($series))?;
                #[allow(unused_mut, unused_assignments, reason = "most attacks set none")]
                let mut attack =
                    Attack { name: stringify!($name), meets, flags: &[], limits: "", run: $run };
                $(attack.flags = &$flags;)?
                $(attack.limits = $limits;)?
                withstand(&attack);
            }
        )*
    };
}

attacks! {
    pings: frames::pings, Count(FLOOD);
    settings: frames::settings, Count(FLOOD);
    priorities: frames::priorities, Count(FLOOD);
    window_updates: frames::window_updates, Count(FLOOD);
    unknown_frames: frames::unknown_frames, Count(FLOOD);
    empty_data: frames::empty_data, Count(FLOOD);
    empty_continuations: frames::empty_continuations, Count(FLOOD);
    continuations: frames::continuations, Count(FLOOD);
    hpack_bombs: frames::hpack_bombs, Delay;
    rapid_resets: frames::rapid_resets, Count(GIVEN_UP);
    resets_of_watches: frames::resets_of_watches, Count(GIVEN_UP);
    resets_of_unknown_methods: frames::resets_of_unknown_methods, Count(GIVEN_UP);
    long_headers: frames::long_headers, Count(NO_MEMORY);
    many_headers: frames::many_headers, Count(NO_MEMORY);

    calls_that_are_only_begun: calls::begun, Count(NO_MEMORY);
    unfinished_messages: calls::unfinished, Count(NO_MEMORY);
    answers_without_windows: calls::without_windows, Count(NO_MEMORY);
    large_answers_without_windows: calls::large_without_windows, Count(NO_MEMORY), flags: ["--dynamic-metadata"];
    reflection_without_windows: calls::reflection_without_windows, Count(NO_MEMORY);
    unread_reflection: calls::unread_reflection, Count(NO_MEMORY);
    watches: calls::watches, Count(NO_MEMORY);
    large_health_checks: calls::large_health_checks, Count(NO_MEMORY);
    empty_descriptors: calls::empty_descriptors, Count("tollgate_invalid_requests_total");
    // Without one search for all patterns, the machine is busy and the control waits as well:
    // `speed` counts the instructions.
    slow_patterns: calls::patterns, Usual;
    gzip_bombs: calls::gzip_bombs, Delay;
    new_counters: calls::new_counters, Count(NO_ROOM), flags: ["--memory-max", "16MiB"];

    idle_connections: connections::idle, Count(EVICTED);
    silent_connections: connections::silent, DelayAndCount(EVICTED);
    connections_closed_at_once: connections::closed_at_once, Usual;
    more_connections_than_places: connections::more_than_places, Count(EVICTED), flags: ["--max-connections", "1000"];
    more_connections_than_file_descriptors: connections::more_than_places, DelayAndCount(EVICTED), limits: "ulimit -n 512";

    silent_http_connections: http1::silent, DelayAndCount(HTTP_CUT);
    slow_http_heads: http1::slow_heads, Count(HTTP_CUT);
    slow_http_bodies: http1::slow_bodies, Count(HTTP_CUT);
    unread_http_answers: http1::unread, Count(HTTP_CUT);
    http_connections_closed_at_once: http1::closed_at_once, Usual;
    repeated_metrics: http1::metrics, Delay;
    large_json: http1::large_json, Delay;
    oversized_json: http1::oversized_json, Count(HTTP_TOO_LARGE);
    long_http_heads: http1::long_heads, Count(HTTP_PROTOCOL);
    refused_writes: http1::refused_writes, Count(REFUSED_HOST);

    policies_of_aliases: policies::aliases, Count(POLICIES_REFUSED), flags: ["--policy-memory-max", "32MiB"];
    policies_of_many_rules: policies::many_rules, Delay, flags: ["--policy-memory-max", "32MiB"];
    policies_of_too_many_rules: policies::too_many_rules, Count(POLICIES_REFUSED), flags: ["--policy-memory-max", "32MiB"];

    idle_connections_in_little_address_space: connections::idle, Count(EVICTED), limits: ADDRESSES;
    unfinished_messages_in_little_address_space: calls::unfinished, Count(NO_MEMORY), limits: ADDRESSES;
    new_counters_in_little_address_space: calls::new_counters, Usual, limits: ADDRESSES;
    large_json_in_little_address_space: http1::large_json, Usual, limits: ADDRESSES;
}

/// Returns a policy for domain `test`: a limit that no test reaches, and 100 patterns side by side.
fn policy() -> String {
    let limit = "rate_limit: { requests_per_unit: 1000000000, unit: day }";
    let pattern =
        |number: usize| format!("  - key: path\n    value: \"*word{number:02}*\"\n    {limit}\n");
    let patterns: String = (0..100).map(pattern).collect();
    format!("domain: test\ndescriptors:\n  - key: user\n    {limit}\n{patterns}")
}
