//! One file a subcommand, all of the same shape: the arguments, and `run`, which says how the process ends.

pub mod check;
pub mod explain;
pub mod schema;
