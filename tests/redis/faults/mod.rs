//! Faults of a store, and what callers, probes and commands report meanwhile. Under a load, with
//! measurements, they are in `tests/load/faults`.
//!
//! | file | fault |
//! |---|---|
//! | `away` | one server that is not there, at the start or later |
//! | `silent` | one server that is there and does not answer |
//! | `views` | each of these once: the texts of all views, probes and commands |
//! | `refusal` | one server that answers, but not with a decision |
//! | `demotion` | one server that becomes a replica, behind a name that later leads elsewhere |

mod away;
mod demotion;
mod refusal;
mod silent;
mod views;
