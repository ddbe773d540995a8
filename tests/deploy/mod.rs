//! What `deploy` holds: manifests that are what they say, and an observability that sees what goes wrong.

mod envoys;
mod manifests;
mod observability;
