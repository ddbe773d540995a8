//! Attacks on memory and on file descriptors, with a store in Redis as well: both are bounded.

mod files;
mod memory;
