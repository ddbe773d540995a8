//! What the process tells of itself: logs, metrics with their names in one place, and statistics under another's names.

pub mod candidates;
pub mod guard;
pub mod log;
pub mod mapping;
pub mod metrics;
pub mod seldom;
pub mod spans;
pub mod stats;
pub mod statsd;
