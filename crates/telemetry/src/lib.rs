//! Telemetry of a rate limiter: logs, statistics, spans, the journal of denials, and metrics with
//! all names in one place.
//!
//! | file | subject |
//! |---|---|
//! | `metrics` | every metric and its name |
//! | `build_info` | version, revision and compiler of this program |
//! | `count`, `histogram` | counters, gauges and histograms |
//! | `family` | series by label; series of rules, bounded |
//! | `snapshot`, `exposition` | all series at one time, and their text formats |
//! | `candidates` | metrics of candidate limits |
//! | `connections`, `http` | metrics of connections and refused requests |
//! | `span_export` | metrics of exported spans |
//! | `log`, `log_throttle` | the log, and its bound |
//! | `statistics` | statistics under the names of envoyproxy/ratelimit |
//! | `spans` | sampling of calls, and the contents of their spans |
//! | `journal` | recent denials; decisions and errors per rule |

pub mod build_info;
pub mod candidates;
pub mod connections;
pub mod count;
mod exposition;
mod family;
pub mod histogram;
pub mod http;
pub mod journal;
pub mod log;
pub mod log_throttle;
pub mod metrics;
mod snapshot;
pub mod span_export;
pub mod spans;
pub mod statistics;
