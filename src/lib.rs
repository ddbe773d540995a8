//! Map to come.
pub mod algorithm;
pub mod cli;
pub mod descriptor;
pub mod policy;
