//! The servers as operators see them, and the keys that replicas share beside the counters.
//!
//! | file | purpose |
//! |---|---|
//! | `health`, `replica_clocks` | the servers' health, and the clocks of their replicas |
//! | `check_up`, `examine` | warnings at startup; the full examination for an operator |
//! | `tallies` | the callers that used a counter up |
//! | `open_holds` | the open holds of a counter |
//! | `scan` | iteration over the keys of all counters |
//! | `shared_denials` | denials that processes publish for each other |
//! | `replicas` | the number of processes that share the limits |

mod check_up;
mod examine;
pub(super) mod health;
pub(super) mod open_holds;
pub(super) mod replica_clocks;
mod replicas;
mod scan;
pub(super) mod shared_denials;
pub(super) mod tallies;
