//! The files in `deploy`: manifests that work as described, and dashboards and alerts that detect
//! failures.

pub(crate) mod envoys;
mod manifests;
mod observability;
mod release;
