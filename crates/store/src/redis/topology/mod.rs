//! The node of each slot: one server, a Cluster, or a master monitored by sentinels.
//!
//! | file | purpose |
//! |---|---|
//! | `routes` | the node of each slot |
//! | `single`, `cluster`, `sentinel` | its discovery |
//! | `foreign_slots` | detection of Cluster nodes that accept one call for several slots |

pub(super) mod cluster;
mod foreign_slots;
pub(super) mod routes;
pub(super) mod sentinel;
pub(super) mod single;
