//! Bounds on requests and connections, and the number of threads that serve them.

use std::time::Duration;

use super::{FlagError, FlagValue, MemorySettings, Problems, Size, deferred, parse};
use crate::grpc::request::{RequestBounds, memory_of};
use crate::grpc::server::MessageBounds;
use crate::http2::Limits;
use crate::http2::registry::{ConnectionBounds, MAX_LEAVING};
use crate::http2::server::Lifetime;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Resource limits")]
pub(super) struct Flags {
    /// Maximum number of descriptors in a request; default: 1024, or fewer if a quarter of
    /// --client-memory-max has no room for them.
    #[arg(long, env = "TOLLGATE_MAX_DESCRIPTORS", value_name = "N", value_parser = deferred(descriptors))]
    max_descriptors: Option<FlagValue<usize>>,
    /// Maximum number of entries in a descriptor.
    #[arg(long, env = "TOLLGATE_MAX_ENTRIES", value_name = "N", default_value = "1024", value_parser = deferred(parse::count))]
    max_entries: FlagValue<usize>,
    /// Maximum number of entries in all descriptors of a request together; default: 65536, or fewer
    /// if a quarter of --client-memory-max has no room for them.
    #[arg(long, env = "TOLLGATE_MAX_REQUEST_ENTRIES", value_name = "N", value_parser = deferred(parse::count))]
    max_request_entries: Option<FlagValue<usize>>,
    /// Maximum size of a request; default: 4MiB, as in envoyproxy/ratelimit, or less if a quarter
    /// of --client-memory-max is less.
    #[arg(long, env = "TOLLGATE_MAX_MESSAGE", value_name = "SIZE", value_parser = deferred(parse::bytes))]
    max_message: Option<FlagValue<usize>>,
    /// Maximum size of the headers of a call together, each with 32 bytes more than its name and
    /// value (RFC 9113, 6.5.2): metadata that Envoy adds, such as initial_metadata and baggage of
    /// tracing.
    #[arg(long, env = "TOLLGATE_MAX_HEADER_LIST", value_name = "SIZE", default_value = "64KiB", value_parser = deferred(header_list))]
    max_header_list: FlagValue<usize>,
    /// Maximum number of concurrent requests on one connection.
    #[arg(long, env = "TOLLGATE_MAX_STREAMS", value_name = "N", default_value = "256", value_parser = deferred(parse::count))]
    max_streams: FlagValue<usize>,
    /// Timeout for receiving a request, from the start of its call; for later messages of a stream,
    /// from the first byte of each.
    #[arg(long, env = "TOLLGATE_MESSAGE_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = deferred(parse::some_time))]
    message_timeout: FlagValue<Duration>,
    /// Maximum number of gRPC connections, as far as --client-memory-max and the limit of open
    /// files allow. At the maximum, a new connection replaces the one that has been idle longest,
    /// starting with the address that has the most; if none is idle, the one with the most memory
    /// of an address that has more than the new client's; otherwise the new one is closed at once,
    /// so that its client tries another replica.
    #[arg(long, env = "TOLLGATE_MAX_CONNECTIONS", value_name = "N", default_value = "16384", value_parser = deferred(parse::count))]
    max_connections: FlagValue<usize>,
    /// Maximum number of these connections from one address, or from one IPv6 /64 network; default:
    /// no separate limit. Clients behind a proxy share its address.
    #[arg(long, env = "TOLLGATE_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = deferred(parse::count))]
    max_connections_per_address: Option<FlagValue<usize>>,
    /// Idle time after which a keepalive PING is sent on a connection.
    #[arg(long, env = "TOLLGATE_KEEPALIVE", value_name = "DURATION", default_value = "60s", value_parser = deferred(parse::duration))]
    keepalive: FlagValue<Duration>,
    /// Maximum age of a connection (±10 %), after which it is closed with GOAWAY; 0s: unlimited.
    /// No request is lost, and callers discover replicas that were added later.
    #[arg(
        long,
        env = "TOLLGATE_MAX_CONNECTION_AGE",
        value_name = "DURATION",
        default_value = "24h",
        value_parser = deferred(parse::duration)
    )]
    max_connection_age: FlagValue<Duration>,
    /// Grace period for requests in flight on a connection that reached its maximum age, before it
    /// is closed.
    #[arg(
        long,
        env = "TOLLGATE_MAX_CONNECTION_AGE_GRACE",
        value_name = "DURATION",
        default_value = "1h",
        value_parser = deferred(parse::duration)
    )]
    max_connection_age_grace: FlagValue<Duration>,
    /// Number of threads that serve gRPC; default: the cores available to this process.
    #[arg(long, env = "TOLLGATE_WORKERS", value_name = "N", value_parser = deferred(parse::count))]
    workers: Option<FlagValue<usize>>,
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
/// Defaults of `--max-descriptors` and of `--max-request-entries`.
const DEFAULT_MAX_DESCRIPTORS: usize = 1024;
const DEFAULT_MAX_ENTRIES: usize = 65_536;
/// Divisor of the memory for clients for what one message, the descriptors and entries of a
/// request, or one header list may take.
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
    /// Describes a domain whose open limits, whose values clients can choose, can require a larger
    /// message, if a route has a descriptor with the largest header for each of them. Envoy admits
    /// such requests by default.
    pub fn excess(&self, (domain, open_limits): (&str, usize)) -> Option<String> {
        let needed =
            open_limits.saturating_mul(ENVOY_HEADERS).div_ceil(1 << 20).saturating_mul(1 << 20);
        (open_limits > self.max_message.div_euclid(ENVOY_HEADERS)).then(|| {
            format!(
                "domain `{domain}` has {open_limits} limits on values that clients can choose: if one route has an action \
                 for each, set --max-message {}",
                Size(needed)
            )
        })
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

impl Flags {
    pub(super) fn resolve(self, memory: &MemorySettings, problems: &mut Problems) -> LimitSettings {
        let streams = problems.take(self.max_streams);
        let max_age_grace = problems.take(self.max_connection_age_grace);
        let max_age = problems.take(self.max_connection_age);
        // One connection may hold at most a quarter of the memory for clients.
        let share = memory.clients.div_euclid(SHARE_OF_CLIENTS);
        // Half of it for the default number of descriptors, the rest for that of entries.
        let room = share.div_euclid(2 * memory_of(1, 1));
        let descriptors = self.max_descriptors.map(|given| problems.take(given));
        let descriptors = descriptors.unwrap_or(DEFAULT_MAX_DESCRIPTORS.min(room));
        let room = share.saturating_sub(memory_of(descriptors, 0)).div_euclid(memory_of(0, 1));
        let bounds_entries = self.max_request_entries.is_some();
        let all_entries = self.max_request_entries.map(|given| problems.take(given));
        let all_entries = all_entries.unwrap_or(DEFAULT_MAX_ENTRIES.min(room));
        let entries = problems.take(self.max_entries);
        let request = RequestBounds { descriptors, entries, all_entries };
        let of_request = if bounds_entries { "--max-request-entries" } else { "--max-descriptors" };
        let max_message = match self.max_message {
            Some(max) => problems.take(max),
            None => DEFAULT_MAX_MESSAGE_BYTES.min(share),
        };
        let max_header_list = problems.take(self.max_header_list);
        let timeout = problems.take(self.message_timeout);
        let limits = Limits {
            max_streams: u32::try_from(streams).unwrap_or(u32::MAX),
            max_header_list: u32::try_from(max_header_list).unwrap_or(u32::MAX),
            message_timeout: timeout,
            keepalive_interval: problems.take(self.keepalive),
            keepalive_timeout: Duration::from_secs(20),
        };
        let lifetime = Lifetime {
            limits,
            max_age: Some(max_age).filter(|age| !age.is_zero()),
            max_age_grace: Some(max_age_grace).filter(|grace| !grace.is_zero()),
        };
        let workers = match self.workers {
            Some(workers) => problems.take(workers),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let connections = ConnectionBounds {
            total: problems.take(self.max_connections),
            per_address: self.max_connections_per_address.map(|most| problems.take(most)),
            leaving: MAX_LEAVING,
        };
        for (flag, bytes) in [
            (of_request, request.memory()),
            ("--max-message", max_message),
            ("--max-header-list", max_header_list),
        ] {
            if bytes > share {
                // In whole MiB, since sizes are shown rounded down.
                let needed = bytes.saturating_mul(SHARE_OF_CLIENTS).div_ceil(1 << 20);
                let needed = Size(needed.saturating_mul(1 << 20));
                let found = Size(memory.clients);
                let what = format_args!(
                    "requires --client-memory-max of at least {needed}, found {found}"
                );
                problems.add(flag, what);
            }
        }
        let message = MessageBounds { max_bytes: max_message, timeout };
        LimitSettings { request, message, connections, lifetime, workers }
    }
}

/// Parses a maximum size of header lists: at least what the usual headers of a call take.
fn header_list(text: &str) -> Result<usize, FlagError> {
    const LEAST: usize = 4 << 10;
    let bytes = parse::bytes(text)?;
    if (LEAST..=MAX_HEADER_LIST).contains(&bytes) {
        return Ok(bytes);
    }
    let allowed = format_args!("{} to {}", Size(LEAST), Size(MAX_HEADER_LIST));
    Err(FlagError::unexpected(allowed, text))
}

/// Parses a number of descriptors. Scripts in Redis count the checks of a request in 16 bits, and a
/// descriptor has up to three checks: that of its rule and those of candidate limits.
fn descriptors(text: &str) -> Result<usize, FlagError> {
    const MOST: usize = 16_384;
    let found = parse::count(text)?;
    let what = format_args!("expected at most {MOST}, found {found}");
    if found > MOST { Err(FlagError::refused(what)) } else { Ok(found) }
}
