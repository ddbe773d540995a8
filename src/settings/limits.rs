//! How large requests may be, how connections are kept, and how many threads serve them.

use std::time::Duration;

use super::{Problems, parse};
use crate::grpc::request::RequestBounds;
use crate::grpc::server::MessageBounds;
use crate::transport::Limits;
use crate::transport::server::Lifetime;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Bounds")]
pub(super) struct Flags {
    /// Descriptors that a request may have.
    #[arg(long, env = "TOLLGATE_MAX_DESCRIPTORS", value_name = "N", default_value = "64")]
    max_descriptors: String,
    /// Entries that a descriptor may have.
    #[arg(long, env = "TOLLGATE_MAX_ENTRIES", value_name = "N", default_value = "32")]
    max_entries: String,
    /// Size of a request.
    #[arg(long, env = "TOLLGATE_MAX_MESSAGE", value_name = "SIZE", default_value = "4MiB")]
    max_message: String,
    /// Requests that one connection may have under way.
    #[arg(long, env = "TOLLGATE_MAX_STREAMS", value_name = "N", default_value = "1024")]
    max_streams: String,
    /// Time for a request to come, once its call is begun.
    #[arg(long, env = "TOLLGATE_MESSAGE_TIMEOUT", value_name = "DURATION", default_value = "30s")]
    message_timeout: String,
    /// Connections of gRPC that there may be; more are closed at once, so that their clients go to another replica.
    #[arg(long, env = "TOLLGATE_MAX_CONNECTIONS", value_name = "N", default_value = "16384")]
    max_connections: String,
    /// Silence after which a connection is asked for a sign of life.
    #[arg(long, env = "TOLLGATE_KEEPALIVE", value_name = "DURATION", default_value = "60s")]
    keepalive: String,
    /// Age at which a connection is told to go elsewhere, a tenth more or less; 0s: never. Callers lose no request by it, and
    /// find replicas that came later.
    #[arg(long, env = "TOLLGATE_MAX_CONNECTION_AGE", value_name = "DURATION", default_value = "24h")]
    max_connection_age: String,
    /// Time that an old connection has for what is under way, before it is closed.
    #[arg(long, env = "TOLLGATE_MAX_CONNECTION_AGE_GRACE", value_name = "DURATION", default_value = "1h")]
    max_connection_age_grace: String,
    /// Threads that serve gRPC; default: the cores that this process may use.
    #[arg(long, env = "TOLLGATE_WORKERS", value_name = "N")]
    workers: Option<String>,
}

/// How large requests may be, how connections are kept, and how many threads serve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Descriptors and entries.
    pub request: RequestBounds,
    /// Messages.
    pub message: MessageBounds,
    /// Connections that all workers may have together.
    pub max_connections: usize,
    /// Bounds of connections, and of their age.
    pub lifetime: Lifetime,
    /// Threads.
    pub workers: usize,
}

impl Flags {
    pub(super) fn resolve(&self, problems: &mut Problems) -> LimitSettings {
        let request = RequestBounds {
            descriptors: problems.read("--max-descriptors", &self.max_descriptors, parse::count),
            entries: problems.read("--max-entries", &self.max_entries, parse::count),
        };
        let streams = problems.read("--max-streams", &self.max_streams, parse::count);
        let max_age_grace =
            problems.read("--max-connection-age-grace", &self.max_connection_age_grace, parse::duration);
        let max_age = problems.read("--max-connection-age", &self.max_connection_age, parse::duration);
        let message = MessageBounds {
            max_bytes: problems.read("--max-message", &self.max_message, parse::bytes),
            timeout: problems.read("--message-timeout", &self.message_timeout, parse::some_time),
        };
        let limits = Limits {
            max_streams: u32::try_from(streams).unwrap_or(u32::MAX),
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
        let max_connections = problems.read("--max-connections", &self.max_connections, parse::count);
        LimitSettings { request, message, max_connections, lifetime, workers }
    }
}
