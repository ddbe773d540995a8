//! Where policies come from.

pub mod files;
pub mod watch;
