//! Where policies come from.

pub mod files;
