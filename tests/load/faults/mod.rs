//! Faults under a steady load: results of calls while servers die, hang, refuse or move, and how
//! soon it is over.
//!
//! Each test prints its measurements as lines that begin with `fault:`; `docs/faults.md` is written
//! from them.
//!
//! | file | fault |
//! |---|---|
//! | `away` | one server that is not there, at the start or later |
//! | `silent` | one server that is there and does not answer |
//! | `refusal` | one server that answers, but not with a decision |
//! | `demotion` | one server that becomes a replica, behind a name that later leads elsewhere |
//! | `cluster`, `moves` | one of several masters, and the assignment of slots to masters |
//! | `sentinel` | a master that sentinels replace |

mod away;
mod cluster;
mod demotion;
mod moves;
mod refusal;
mod sentinel;
mod silent;
