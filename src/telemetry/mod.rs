//! Telemetry of the process: logs, and metrics with all names in one place.
//!
//! | file | subject |
//! |---|---|
//! | `metrics` | every metric and its name |
//! | `known_rules`, `candidates` | series of rules, and of candidate limits |
//! | `connections`, `http` | metrics of connections and refused requests |
//! | `spans` | metrics of exported spans |
//! | `log`, `log_throttle` | the log, and its bound |

pub mod candidates;
pub mod connections;
pub mod http;
mod known_rules;
pub mod log;
pub mod log_throttle;
pub mod metrics;
pub mod spans;
