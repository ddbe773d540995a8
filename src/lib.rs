//! Map to come.
pub mod algorithm;
pub mod descriptor;
pub mod store;
