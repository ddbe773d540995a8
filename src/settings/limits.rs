//! Bounds on requests and connections, and the number of threads that serve them.

use std::time::Duration;

use super::{MemorySettings, Problems, SettingProblem, Size, parse};
use crate::grpc::request::RequestBounds;
use crate::grpc::server::MessageBounds;
use crate::http2::Limits;
use crate::http2::registry::{ConnectionBounds, MAX_LEAVING};
use crate::http2::server::Lifetime;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Resource limits")]
pub(super) struct Flags {
    /// Maximum number of descriptors in a request.
    #[arg(long, env = "TOLLGATE_MAX_DESCRIPTORS", value_name = "N", default_value = "1024")]
    max_descriptors: String,
    /// Maximum number of entries in a descriptor.
    #[arg(long, env = "TOLLGATE_MAX_ENTRIES", value_name = "N", default_value = "1024")]
    max_entries: String,
    /// Maximum number of entries in all descriptors of a request together.
    #[arg(long, env = "TOLLGATE_MAX_REQUEST_ENTRIES", value_name = "N", default_value = "65536")]
    max_request_entries: String,
    /// Maximum size of a request; default: 4MiB, as in envoyproxy/ratelimit, or less if a quarter
    /// of --client-memory-max is less.
    #[arg(long, env = "TOLLGATE_MAX_MESSAGE", value_name = "SIZE")]
    max_message: Option<String>,
    /// Maximum size of the headers of a call together, each with 32 bytes more than its name and
    /// value (RFC 9113, 6.5.2): metadata that Envoy adds, such as initial_metadata and baggage of
    /// tracing.
    #[arg(long, env = "TOLLGATE_MAX_HEADER_LIST", value_name = "SIZE", default_value = "64KiB")]
    max_header_list: String,
    /// Maximum number of concurrent requests on one connection.
    #[arg(long, env = "TOLLGATE_MAX_STREAMS", value_name = "N", default_value = "256")]
    max_streams: String,
    /// Timeout for receiving a request, from the start of its call.
    #[arg(long, env = "TOLLGATE_MESSAGE_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    message_timeout: String,
    /// Maximum number of gRPC connections, as far as --client-memory-max and the limit of open
    /// files allow. At the maximum, a new connection replaces the one that has been idle longest,
    /// starting with the address that has the most; if none is idle, the new connection is closed
    /// at once, so that its client tries another replica.
    #[arg(long, env = "TOLLGATE_MAX_CONNECTIONS", value_name = "N", default_value = "16384")]
    max_connections: String,
    /// Maximum number of these connections from one address, or from one IPv6 /64 network; default:
    /// no separate limit. Clients behind a proxy share its address.
    #[arg(long, env = "TOLLGATE_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    max_connections_per_address: Option<String>,
    /// Idle time after which a keepalive PING is sent on a connection.
    #[arg(long, env = "TOLLGATE_KEEPALIVE", value_name = "DURATION", default_value = "60s")]
    keepalive: String,
    /// Maximum age of a connection (±10 %), after which it is closed with GOAWAY; 0s: unlimited.
    /// No request is lost, and callers discover replicas that were added later.
    #[arg(
        long,
        env = "TOLLGATE_MAX_CONNECTION_AGE",
        value_name = "DURATION",
        default_value = "24h"
    )]
    max_connection_age: String,
    /// Grace period for requests in flight on a connection that reached its maximum age, before it
    /// is closed.
    #[arg(
        long,
        env = "TOLLGATE_MAX_CONNECTION_AGE_GRACE",
        value_name = "DURATION",
        default_value = "1h"
    )]
    max_connection_age_grace: String,
    /// Number of threads that serve gRPC; default: the cores available to this process.
    #[arg(long, env = "TOLLGATE_WORKERS", value_name = "N")]
    workers: Option<String>,
}

/// Bounds on requests and connections, and the number of threads that serve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Bounds on descriptors and entries.
    pub request: RequestBounds,
    /// Bounds on messages.
    pub message: MessageBounds,
    /// Bounds on connections, for all workers together.
    pub connections: ConnectionBounds,
    /// Limits of each connection, and its maximum age.
    pub lifetime: Lifetime,
    /// Number of worker threads.
    pub workers: usize,
}

/// Default of `--max-message`, and its bytes: the default of envoyproxy/ratelimit.
const DEFAULT_MAX_MESSAGE: &str = "4MiB";
const DEFAULT_MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Divisor of the memory for clients for what one message, or one header list, may take.
const SHARE_OF_CLIENTS: usize = 4;
/// Largest value of `--max-header-list`, in bytes.
const MAX_HEADER_LIST: usize = 1 << 20;
/// Maximum size of all headers of a request together that Envoy accepts by default, in bytes.
const ENVOY_HEADERS: usize = 60 << 10;

/// The maximum size of a request, for commands that report how much fits into it.
#[derive(Debug, clap::Args)]
pub struct MessageFlag {
    /// Maximum size of a request, as in `tollgate serve`
    #[arg(
        long, env = "TOLLGATE_MAX_MESSAGE", value_name = "SIZE",
        default_value = DEFAULT_MAX_MESSAGE, value_parser = parse::bytes
    )]
    max_message: usize,
}

impl Default for MessageFlag {
    fn default() -> Self {
        Self { max_message: DEFAULT_MAX_MESSAGE_BYTES }
    }
}

impl MessageFlag {
    /// Describes a domain with this number of open limits if they can require a larger message.
    pub fn excess(&self, (domain, open_limits): (&str, usize)) -> Option<String> {
        excess(self.max_message, domain, open_limits)
    }

    /// Describes how many header values of maximum size fit into a message, and whether the domain
    /// with the most open limits can require more.
    pub fn room(&self, largest: Option<(&str, usize)>) -> String {
        let room = message_room(self.max_message);
        match largest.and_then(|largest| self.excess(largest)) {
            Some(excess) => format!("{room}; {excess}"),
            None => room,
        }
    }
}

impl LimitSettings {
    /// Describes how many header values of maximum size fit into a message.
    pub fn message_room(&self) -> String {
        message_room(self.message.max_bytes)
    }
}

/// Describes how many header values of maximum size fit into a message of `max` bytes. The message
/// grows with the product of descriptors and values: a client that sends the longest headers gets a
/// larger one refused if several descriptors of a route contain them, and Envoy admits such
/// requests by default.
fn message_room(max: usize) -> String {
    let count = max.div_euclid(ENVOY_HEADERS);
    format!(
        "{} is enough for {count} header values of {}, Envoy's maximum",
        Size(max),
        Size(ENVOY_HEADERS)
    )
}

/// Describes a domain whose open limits, whose values clients can choose, can make a message larger
/// than `max` bytes, if a route has a descriptor with the largest header for each of them. Envoy
/// admits such requests by default.
fn excess(max: usize, domain: &str, open_limits: usize) -> Option<String> {
    let needed =
        open_limits.saturating_mul(ENVOY_HEADERS).div_ceil(1 << 20).saturating_mul(1 << 20);
    (open_limits > max.div_euclid(ENVOY_HEADERS)).then(|| {
        format!(
            "domain `{domain}` has {open_limits} limits on values that clients can choose: if one route has an action \
             for each, set --max-message {}",
            Size(needed)
        )
    })
}

impl Flags {
    pub(super) fn resolve(
        &self,
        memory: &MemorySettings,
        problems: &mut Problems,
    ) -> LimitSettings {
        let request = RequestBounds {
            descriptors: problems.read("--max-descriptors", &self.max_descriptors, descriptors),
            entries: problems.read("--max-entries", &self.max_entries, parse::count),
            all_entries: problems.read(
                "--max-request-entries",
                &self.max_request_entries,
                parse::count,
            ),
        };
        let streams = problems.read("--max-streams", &self.max_streams, parse::count);
        let max_age_grace = problems.read(
            "--max-connection-age-grace",
            &self.max_connection_age_grace,
            parse::duration,
        );
        let max_age =
            problems.read("--max-connection-age", &self.max_connection_age, parse::duration);
        // One connection may hold at most a quarter of the memory for clients.
        let share = memory.clients.div_euclid(SHARE_OF_CLIENTS);
        let max_message = self.max_message.as_ref();
        let max_message = max_message.map_or(DEFAULT_MAX_MESSAGE_BYTES.min(share), |text| {
            problems.read("--max-message", text, parse::bytes)
        });
        let max_header_list =
            problems.read("--max-header-list", &self.max_header_list, header_list);
        let message = MessageBounds {
            max_bytes: max_message,
            timeout: problems.read("--message-timeout", &self.message_timeout, parse::some_time),
        };
        let limits = Limits {
            max_streams: u32::try_from(streams).unwrap_or(u32::MAX),
            max_header_list: u32::try_from(max_header_list).unwrap_or(u32::MAX),
            message_timeout: message.timeout,
            keepalive_interval: problems.read("--keepalive", &self.keepalive, parse::duration),
            keepalive_timeout: Duration::from_secs(20),
        };
        let lifetime = Lifetime {
            limits,
            max_age: Some(max_age).filter(|age| !age.is_zero()),
            max_age_grace: Some(max_age_grace).filter(|grace| !grace.is_zero()),
        };
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let workers = match &self.workers {
            Some(workers) => problems.read("--workers", workers, parse::count),
            None => cores(),
        };
        let per_address = self.max_connections_per_address.as_ref();
        let connections = ConnectionBounds {
            total: problems.read("--max-connections", &self.max_connections, parse::count),
            per_address: per_address
                .map(|text| problems.read("--max-connections-per-address", text, parse::count)),
            leaving: MAX_LEAVING,
        };
        for (flag, bytes) in
            [("--max-message", max_message), ("--max-header-list", max_header_list)]
        {
            if bytes > share {
                let needed = Size(bytes.saturating_mul(SHARE_OF_CLIENTS));
                let found = Size(memory.clients);
                let what =
                    format!("requires --client-memory-max of at least {needed}, found {found}");
                problems.0.push(SettingProblem { flag, what });
            }
        }
        LimitSettings { request, message, connections, lifetime, workers }
    }
}

/// Parses a maximum size of header lists: at least what the usual headers of a call take.
fn header_list(text: &str) -> Result<usize, String> {
    const LEAST: usize = 4 << 10;
    let bytes = parse::bytes(text)?;
    if (LEAST..=MAX_HEADER_LIST).contains(&bytes) {
        return Ok(bytes);
    }
    let least = Size(LEAST);
    let most = Size(MAX_HEADER_LIST);
    Err(format!("expected {least} to {most}, found `{text}`"))
}

/// Parses a number of descriptors. Scripts in Redis count the checks of a request in 16 bits, and a
/// descriptor has up to three checks: that of its rule and those of candidate limits.
fn descriptors(text: &str) -> Result<usize, String> {
    const MOST: usize = 16_384;
    let count = parse::count(text)?;
    if count > MOST { Err(format!("expected at most {MOST}, found {count}")) } else { Ok(count) }
}
