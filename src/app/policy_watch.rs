//! Watching of policy files.

use std::sync::Arc;

use crate::policy::source::SourceReading;
use crate::policy::source::files::{self, PolicyLocations};
use crate::watch;

/// Reads `places` forever and passes every settled change to `changed`, including the first reading
/// if it differs from `known`.
pub(super) async fn watch(
    places: PolicyLocations,
    known: SourceReading,
    changed: impl FnMut(SourceReading),
) {
    let places = Arc::new(places);
    watch::watch(known, move || files::read(&places), changed).await;
}

/// Reads `places` forever and passes every settled reading to `settled`, changed or not.
pub(super) async fn watch_settled(places: PolicyLocations, settled: impl FnMut(&SourceReading)) {
    let places = Arc::new(places);
    watch::watch_settled(move || files::read(&places), settled).await;
}
