//! Storage of counters, and layers around it. The trait of all stores is in `tollgate-lease`.
//!
//! A store judges all checks of a request at one instant of its own clock and writes the hits that
//! their charge modes require. It knows limits and keys, but no policies, protocols or callers. A
//! layer is a store that wraps another store.
//!
//! | file | subject |
//! |---|---|
//! | `backend` | the trait of stores that hold counters: all that the process may ask of one |
//! | `servers`, `replicas`, `scan` | its values: servers, processes on the store, keys |
//! | `memory`, `redis` | where counters are |
//! | `any` | the list of stores, one of which the settings select |
//! | `layer` | layers around a store: cached denials, leases, local decisions |
//! | `fallback`, `open_checks` | decisions of this process alone; requests judged in part |
//! | `clock` | clocks of stores |
//! | `loan` | returns of loans |
//! | `background`, `duplicates` | shared by stores and layers |
// Values of counters may be those of other releases: an overflow would end the process or lift a
// limit.
#![warn(clippy::arithmetic_side_effects)]

pub mod any;
pub mod backend;
mod background;
pub mod clock;
mod duplicates;
pub mod fallback;
pub mod layer;
pub mod loan;
pub mod memory;
mod open_checks;
pub mod redis;
pub mod replicas;
pub mod scan;
pub mod servers;
#[cfg(test)]
mod tests;

pub use tollgate_lease::{
    CertainDenials, Check, Lender, Lent, Outcomes, Store, StoreError, error_behind,
};
