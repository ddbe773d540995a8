//! Sources of policies.

pub mod files;
pub mod watch;
