//! What the process tells of itself: logs, and metrics with their names in one place.

pub mod log;
pub mod metrics;
