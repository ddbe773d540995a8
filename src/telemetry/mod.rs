//! Telemetry of the process: logs, metrics with all names in one place, and statistics under the
//! names of envoyproxy/ratelimit.

pub mod candidates;
pub mod guard;
pub mod http;
pub mod log;
pub mod log_throttle;
pub mod mapping;
pub mod metrics;
pub mod spans;
pub mod stats;
pub mod statsd;
