//! Files of a process that others write: secrets, keys and certificates, and their changes.
//!
//! | file | contents |
//! |---|---|
//! | `bounded_file` | reads with a maximum size |
//! | `watch` | notification of changes |

pub mod bounded_file;
pub mod watch;
