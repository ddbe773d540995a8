//! Telemetry of the process: logs, and metrics with all names in one place.

pub mod candidates;
pub mod guard;
pub mod http;
mod known_rules;
pub mod log;
pub mod log_throttle;
pub mod metrics;
pub mod spans;
